"""Several processes that talk to each other, as torchrun starts them.

`python -m tests.processes -m MODULE FOLDER` imports a module once and forks two that call its `main`.
"""

import importlib
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


FORKED = ("-m", "tests.processes")  # what torchrun does, with one import for both; prints their exit statuses
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")


def start(*words):
    """Start Python, which imports this repository's source and tests."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    quiet = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *map(str, words)], env=os.environ | quiet, **pipes)


# Runs programs one after the other, each in a fork of a process that has imported the package and started no thread.
APART = """
import os, signal, sys, traceback
from pathlib import Path
import discrete_vae.model
import discrete_vae.kernels.gibbs

for number, code in enumerate(sys.argv[2:]):
    child = os.fork()
    if child == 0:
        written = os.open(Path(sys.argv[1], str(number)), os.O_CREAT | os.O_WRONLY)
        os.dup2(written, 1)
        os.dup2(written, 2)
        signal.alarm(100)
        status = 1
        try:
            exec(code, {"__name__": "__main__"})
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run_apart(codes, folder, **environment):
    """Run programs in processes of their own; the exit status of each, and what it wrote, by its name."""
    command = [sys.executable, "-W", "error", "-c", APART, str(folder), *codes.values()]
    told = {"cwd": ROOT, "capture_output": True, "text": True}
    done = subprocess.run(command, env=os.environ | environment, timeout=500, check=False, **told)
    assert (done.returncode, done.stderr) == (0, "")
    statuses = map(int, done.stdout.split())
    written = [Path(folder, str(number)).read_text() for number in range(len(codes))]
    return dict(zip(codes, zip(statuses, written, strict=True), strict=True))


def main(module, folder):
    work = importlib.import_module(module).main
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    children = []
    for rank in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            os.environ["RANK"] = str(rank)
            try:
                work(Path(folder))
            except BaseException:
                traceback.print_exc()
            os._exit(1)  # the work ends its process itself
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(*statuses)
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[2:]))
