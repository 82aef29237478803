"""Each campaign at its bounded size; `make campaign` runs the long ones."""

import json
import os
import subprocess
import sys

import pytest

from tests.campaigns.all import CAMPAIGNS
from tests.campaigns.engine import FAULTS
from tests.campaigns.planted import EXPECTED


@pytest.fixture(scope="module")
def carry_out():
    """Run a campaign in a process that has a single thread and has imported everything once."""
    command = [sys.executable, "-m", "tests.campaigns", "--serve"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=one_thread
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

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
    shown = [
        f"python -m tests.campaigns {name} --case {n}: {what}\n{detail}"
        for n, what, detail in report["faults"]
    ]
    assert not shown, "\n\n".join(shown)


def test_planted_faults_are_found(carry_out):
    report = carry_out("planted")
    expected = [(number, outcome) for number, outcome in enumerate(EXPECTED) if outcome in FAULTS]
    assert [(number, outcome) for number, outcome, _ in report["faults"]] == expected
    assert report["counts"] == {name: EXPECTED.count(name) for name in EXPECTED}
