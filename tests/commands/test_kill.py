"""Kill -9 at any moment: the resumed run equals the unbroken one byte for byte."""

import json
import os
import random
import subprocess
import sys
import time

import pytest

from discrete_vae.runs.metrics import MetricsLog
from tests.commands.conftest import TINY

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has neither fork nor SIGKILL")

NUM_STEPS = 24
WORDS = [*TINY, "--training.num-epochs", str(NUM_STEPS), "--training.validate-every", "4"]


def train_words(data_file, run):
    return ["train", "--data", str(data_file), "--run-dir", str(run), *WORDS]


def kill(plans):
    """Carry out plans of killed_runs.py; returns how many kills hit, a plan."""
    command = [sys.executable, "-m", "tests.commands.killed_runs"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(
        command, input=json.dumps(plans), capture_output=True, text=True, check=False, env=one_thread
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def plan(data_file, run, moments=()):
    return {"run": str(run), "train": train_words(data_file, run), "moments": list(moments)}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, data_file):
    run = tmp_path_factory.mktemp("unbroken") / "run"
    assert kill([plan(data_file, run)]) == [0]
    return run


def assert_equal_runs(run, other):
    """Weights, beta, chains, optimiser, running log Z, the best checkpoint, and the log but for its times."""
    last = f"checkpoints/step-{NUM_STEPS}"
    best = f"checkpoints/step-{json.loads((other / 'best.json').read_text())['step']}"
    for name in (
        "config.json",
        "best.json",
        *(f"{folder}/{f}" for folder in (last, best) for f in ("state.safetensors", "checkpoint.json")),
    ):
        assert (run / name).read_bytes() == (other / name).read_bytes(), name
    one, two = (MetricsLog(each / "metrics.jsonl").read() for each in (run, other))
    assert [r | {"seconds": 0} for r in one] == [r | {"seconds": 0} for r in two]


def test_ten_kills_at_random_operations_on_files(data_file, tmp_path):
    choose = random.Random(0)
    moments = [("operation", choose.randint(1, 60)) for _ in range(10)]
    plans = [plan(data_file, tmp_path / "unbroken"), plan(data_file, tmp_path / "killed", moments)]
    hits = kill(plans)
    assert hits[0] == 0
    assert hits[1] >= 5
    assert_equal_runs(tmp_path / "killed", tmp_path / "unbroken")


@pytest.mark.slow
def test_a_kill_at_every_operation_on_files_of_two_checkpoints(unbroken, data_file, tmp_path):
    plans = [plan(data_file, tmp_path / f"run-{n}", [("operation", n)]) for n in range(1, 80)]
    assert kill(plans) == [1] * len(plans)
    for each in plans:
        assert_equal_runs(tmp_path / each["run"], unbroken)


@pytest.mark.slow
def test_ten_kills_of_the_command_at_random_times(data_file, tmp_path):
    """The command as a user runs it, threads included; each kill comes up to a second after training began."""
    choose, run, unbroken, hits = random.Random(1), tmp_path / "run", tmp_path / "unbroken", 0
    dvae = [sys.executable, "-m", "discrete_vae"]
    subprocess.run([*dvae, *train_words(data_file, unbroken)], capture_output=True, check=True)
    first = train_words(data_file, run)
    again = ["train", "--resume", "--run-dir", str(run)]
    for _ in range(10):
        words = again if (run / "config.json").exists() else first
        process = subprocess.Popen(
            [*dvae, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        process.stderr.readline()  # its first line: training begins
        time.sleep(choose.uniform(0.0, 1.0))
        process.kill()
        process.stderr.close()
        hits += process.wait() == -9
    assert hits >= 3
    done = subprocess.run([*dvae, *again], capture_output=True, check=False)
    assert done.returncode == 0
    assert_equal_runs(run, unbroken)
