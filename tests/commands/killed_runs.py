"""A program that trains runs in processes of its own and kills them with SIGKILL; see test_kill.py.

Standard input: a list of plans, each {"run": folder, "train": words, "moments": [["operation", 7], ["seconds", 0.2]]}.
Each moment starts or resumes the run in a forked process, which is killed at its n-th operation on a file of the run,
or after so many seconds. At last the run is resumed to its end. Standard output: how many kills hit, a plan.

Forking after the imports and a first step of chains makes a kill cost little more than the steps that it loses. The
caller allows a single thread, since threads and forks do not go together.
"""

import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from discrete_vae.cli import main

_IMPORTS = ("discrete_vae.commands.train", "discrete_vae.training.loop", "torch._dynamo")
_OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}


def start(plan):
    """Begin or resume a run in a forked process; returns its id."""
    begun = (Path(plan["run"]) / "config.json").exists()
    words = ["train", "--resume", "--run-dir", plan["run"]] if begun else plan["train"]
    process = os.fork()
    return process, words


def die_at_operation(run, number):
    """Kill this process just before its n-th operation on a file of the run."""
    count = 0

    def hook(event, arguments):
        nonlocal count
        if event in _OPERATIONS and any(run in str(argument) for argument in arguments[:2]):
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def train(plan, moment=None):
    """Train in a forked process up to a moment; returns whether the kill came before the end."""
    process, words = start(plan)
    if process == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        if moment is not None and moment[0] == "operation":
            die_at_operation(plan["run"], moment[1])
        os._exit(main(words))
    if moment is not None and moment[0] == "seconds":
        time.sleep(moment[1])
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not killed and os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"training in {plan['run']} failed")
    return killed


def warm_up():
    """Do once what every forked process would do again."""
    from discrete_vae import RBM, BlockGibbs

    for name in _IMPORTS:
        importlib.import_module(name)
    BlockGibbs(RBM(3, 2), 20, seed=0).step(2)


if __name__ == "__main__":
    warm_up()
    hits = []
    for wanted in json.load(sys.stdin):
        hits.append(sum([train(wanted, at) for at in wanted["moments"]]))
        train(wanted)
    print(json.dumps(hits))
