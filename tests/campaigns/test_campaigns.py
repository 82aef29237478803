"""Each campaign at its bounded size; `make campaign` runs the long ones."""

import json
import os
import re
import subprocess
import sys
from inspect import isabstract

import pytest

import discrete_vae
from discrete_vae.cli.options import VERBS
from tests.campaigns.__main__ import CAMPAIGNS
from tests.campaigns.engine import FAULTS
from tests.campaigns.planted import EXPECTED
from tests.campaigns.public_calls import public_calls
from tests.campaigns.tiny_runs import VERBS as STOPPED_VERBS


@pytest.fixture(scope="module")
def carry_out():
    """Run a campaign in a process that has a single thread and has imported everything once."""
    command, pipe = [sys.executable, "-m", "tests.campaigns", "--serve"], subprocess.PIPE
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=one_thread) as process:

        def run(name):
            process.stdin.write(f"{name}\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield run
        process.stdin.close()


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_no_fault(carry_out, name):
    report = carry_out(name)
    assert report["cases"] == CAMPAIGNS[name].bounded
    assert report["struck"] >= report["cases"] / 2
    begin = f"python -m tests.campaigns {name} --case"
    shown = [f"{begin} {number}: {what}\n{detail}" for number, what, detail in report["faults"]]
    assert not shown, "\n\n".join(shown)


def test_every_verb_is_stopped_among_processes():
    assert STOPPED_VERBS.keys() == VERBS.keys() - {"train"}  # every fourth case trains


def test_planted_faults_are_found(carry_out):
    report = carry_out("planted")
    expected = [(number, outcome) for number, outcome in enumerate(EXPECTED) if outcome in FAULTS]
    assert [(number, outcome) for number, outcome, _ in report["faults"]] == expected
    assert report["counts"] == {name: EXPECTED.count(name) for name in EXPECTED}


# Made by functions, without arguments, or of a model with classes.
WITHOUT_ENTRY = {"CheckedLogPartition", "LoadedRun", "LogPartition", "Moments", "TrainingResult"}
WITHOUT_ENTRY |= {"pretrained_names", "yielding_threads", "predict_rows"}


def test_every_exported_callable_has_an_entry_among_the_calls(tmp_path):
    calls = public_calls(tmp_path)
    found = {name: getattr(discrete_vae, name) for name in discrete_vae.__all__}
    callables = {name for name, value in found.items() if callable(value) and not isabstract(value)}
    covered = {re.split(r"\W", call.name)[0] for call in calls}
    assert callables - covered == WITHOUT_ENTRY
    assert covered <= set(found)
    assert len({call.name for call in calls}) == len(calls)
