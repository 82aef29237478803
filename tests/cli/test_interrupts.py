"""Training that ends early, by signals, kills or numbers that are not finite: what was good stays, and it goes on."""

import errno
import io
import itertools
import math
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from discrete_vae import cli as cli_of_dvae
from discrete_vae.cli import ended_by_interrupts, main, signals_first, stop_on_signals
from discrete_vae.likelihoods.base import BernoulliLikelihood
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.runs.run_directory import MetricsLog, RunDirectory
from tests.campaigns.tiny_runs import difference, train_words
from tests.cli.conftest import TINY, snapshot
from tests.training.tiny import without_times

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")

WORDS = [*TINY, "--training.num-epochs", "12", "--training.validate-every", "5", "--training.log-every", "4"]
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def handlers_are_put_back():
    before = [signal.getsignal(each) for each in SIGNALS]
    yield
    assert [signal.getsignal(each) for each in SIGNALS] == before


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, data_file):
    run = tmp_path_factory.mktemp("unbroken") / "run"
    assert main(["train", "--data", str(data_file), "--run-dir", str(run), *WORDS]) == 0
    return run


def signal_at(monkeypatch, *signals):
    """Send signals to this process at steps."""
    left, original = dict(signals), TrainingProgress.advance

    def advance(self, step, *words):
        for number in left.pop(step, ()):
            os.kill(os.getpid(), number)
        original(self, step, *words)

    monkeypatch.setattr(TrainingProgress, "advance", advance)


def files(run):
    """Every byte of a run, its log without the times."""
    saved = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in run.glob("checkpoints/*/*")}
    return saved, without_times(MetricsLog(run / "metrics.jsonl").read()), (run / "best.json").read_bytes()


@pytest.mark.parametrize(
    ("number", "status", "step"),
    [(signal.SIGINT, 130, 3), (signal.SIGTERM, 143, 5), (signal.SIGINT, 130, 6), (signal.SIGTERM, 143, 11)],
)
def test_the_step_in_progress_is_saved_and_resuming_equals_not_stopping(
    cli, done, tmp_path, data_file, unbroken, monkeypatch, number, status, step
):
    run = tmp_path / "run"
    signal_at(monkeypatch, (step, [number]))
    got, out, err = cli("train", "--data", data_file, "--run-dir", run, *WORDS)
    assert (got, out) == (status, "")
    assert err.endswith(f"Interrupted; step {step} is saved. Continue: dvae train --resume --run-dir {run}\n")
    assert f"from step {step} to 12" in done("train", "--resume", "--run-dir", run)[1]
    assert files(run) == files(unbroken)


def test_many_interrupts_leave_what_none_leaves(cli, tmp_path, data_file, unbroken, monkeypatch):
    run = tmp_path / "run"
    signal_at(monkeypatch, *((step, [signal.SIGINT]) for step in (1, 2, 6, 7)))
    assert cli("train", "--data", data_file, "--run-dir", run, *WORDS)[0] == 130
    assert [cli("train", "--resume", "--run-dir", run)[0] for _ in range(4)] == [130] * 3 + [0]
    assert files(run) == files(unbroken)


class Unread(io.StringIO):
    """A pipe whose reader is gone, or a disk that is full."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.ENOSPC, "No space left on device")])
def test_what_nobody_reads_ends_nothing(tmp_path, data_file, unbroken, monkeypatch, error):
    run = tmp_path / "run"
    signal_at(monkeypatch, (7, [signal.SIGINT]))
    monkeypatch.setattr(sys, "stderr", Unread(error))
    assert main(["train", "--data", str(data_file), "--run-dir", str(run), *WORDS]) == 130
    assert main(["train", "--resume", "--run-dir", str(run)]) == 0
    assert files(run) == files(unbroken)


@pytest.mark.parametrize(("step", "said"), [(7, "step 5 is saved"), (1, "no checkpoint was saved yet")])
def test_a_second_signal_ends_at_once(cli, done, tmp_path, data_file, unbroken, monkeypatch, step, said):
    run = tmp_path / "run"
    signal_at(monkeypatch, (step, [signal.SIGINT, signal.SIGTERM]))
    status, _, err = cli("train", "--data", data_file, "--run-dir", run, *WORDS)
    assert status == 143
    assert f"Interrupted; {said}." in err
    done("train", "--resume", "--run-dir", run)
    assert files(run) == files(unbroken)


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "2"), ("TORCHELASTIC_RUN_ID", "none")])
def test_under_torchrun_two_signals_at_once_are_one_request(monkeypatch, name, value):
    """A scheduler signals all processes, and torchrun, which is one of them, signals its own once more."""
    monkeypatch.setenv(name, value)
    with stop_on_signals() as stop:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert (stop(), stop.status) == (True, 130)
    monkeypatch.setattr(cli_of_dvae, "ONE_REQUEST", 0.05)
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_an_interim_checkpoint_is_evaluated_once_there_is_a_best_one(cli, tmp_path, data_file, monkeypatch):
    run = tmp_path / "run"
    signal_at(monkeypatch, (3, [signal.SIGINT]), (7, [signal.SIGINT]))
    cli("train", "--data", data_file, "--run-dir", run, *WORDS)
    status, _, err = cli("evaluate", run)
    assert (status, "received 'best'" in err, "There are: 3." in err) == (2, True, True)
    cli("train", "--resume", "--run-dir", run)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-5", "step-7"]
    assert "checkpoint of step 5" in cli("evaluate", run)[1]
    assert "checkpoint of step 7" in cli("evaluate", run, "--checkpoint", "last")[1]


def test_handlers_are_put_back_and_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with stop_on_signals() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert not stop()
            os.kill(os.getpid(), signal.SIGINT)
            assert (stop(), stop.status) == (True, 130)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("number", "status", "said", "moment"),
    [
        (signal.SIGINT, 130, "Interrupted.", "computing"),
        (signal.SIGTERM, 143, "Ended by SIGTERM.", "writing"),
    ],
)
def test_other_verbs_end_with_nothing_half_written(
    cli, tmp_path, unbroken, data_file, monkeypatch, number, status, said, moment
):
    def half(file, **arrays):
        file.write(b"PK")
        os.kill(os.getpid(), number)

    if moment == "computing":
        monkeypatch.setattr(TrainingProgress, "advance", lambda *_: os.kill(os.getpid(), number))
    else:
        monkeypatch.setattr("numpy.savez", half)
    before = snapshot(unbroken)
    got, _, err = cli("encode", unbroken, "--data", data_file, "--out", tmp_path / "codes.npz")
    assert (got, err.splitlines()[-1]) == (status, said)
    assert list(tmp_path.iterdir()) == []
    assert snapshot(unbroken) == before


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_torch_is_imported_ends_at_once(number, status):
    """An exception would meet C++ inside the import, which aborts."""
    code = (
        "import os, sys, types\n"
        "from discrete_vae.cli import ended_by_interrupts, ended_by_sigterm\n"
        "with ended_by_interrupts(), ended_by_sigterm():\n"
        "    sys.modules['torch'] = types.SimpleNamespace(__spec__=types.SimpleNamespace(_initializing=True))\n"
        "    try:\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "    except BaseException:\n"
        "        os._exit(1)\n"
        "os._exit(2)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr in ("Interrupted.\n", "Ended by SIGTERM.\n")


def test_ctrl_c_raises_where_torch_is_there():
    with pytest.raises(KeyboardInterrupt), ended_by_interrupts():
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (None, ValueError)])
def test_a_signal_wins_over_what_other_code_makes_of_it(number, expected):
    def damaged():
        try:
            if number is not None:
                os.kill(os.getpid(), number)
        finally:
            raise ValueError("damaged")

    with pytest.raises(expected), ended_by_interrupts(), signals_first():
        damaged()


def train(cli, data_file, run, *more):
    status, out, err = cli("train", "--data", data_file, "--run-dir", run, *TINY, *more)
    assert (status, out) == (1, "")
    error = err.splitlines()[-1]
    assert error.startswith("error: ")
    return error


def assert_checkpoints_are_good(run):
    store = RunDirectory(run).checkpoints()
    for step in store.steps():
        assert all(bool(value.isfinite().all()) for value in store.load(step).tensors.values())


def test_a_nan_of_a_validation_is_named_with_its_step(cli, done, tmp_path, data_file, monkeypatch):
    calls, original = itertools.count(1), BernoulliLikelihood.log_prob

    def broken(self, parameters, x, observed=None):
        is_second = not self.training and next(calls) == 2
        return original(self, parameters, x, observed) * (math.nan if is_second else 1)

    monkeypatch.setattr(BernoulliLikelihood, "log_prob", broken)
    error = train(cli, data_file, tmp_path / "run")
    assert "the validation ELBO is nan at step 4" in error
    assert "checkpoint is that of step 2" in error
    assert_checkpoints_are_good(tmp_path / "run")
    monkeypatch.undo()
    done("train", "--resume", "--run-dir", tmp_path / "run")


@pytest.mark.parametrize(("rate", "validate_every"), [("1e10", "1"), ("1e30", "100")])
def test_a_huge_step_size_never_saves_a_bad_checkpoint(cli, tmp_path, data_file, rate, validate_every):
    more = ("--training.optimizer.learning-rate", rate, "--training.validate-every", validate_every)
    error = train(cli, data_file, tmp_path / "run", *more)
    assert "the run has stopped" in error
    assert_checkpoints_are_good(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_ten_kills_of_the_command_at_random_times(data_file, tmp_path):
    """Threads included; each kill comes up to a second after training began."""
    choose, run, unbroken, hits = random.Random(1), tmp_path / "run", tmp_path / "unbroken", 0

    def command(folder):
        words = [sys.executable, "-m", "discrete_vae", *train_words(data_file, folder)]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    command(unbroken).communicate()
    for _ in range(10):
        process = command(run)
        while "training examples" not in process.stderr.readline():  # training begins
            pass
        time.sleep(choose.uniform(0.0, 1.0))
        process.kill()
        process.stderr.close()
        hits += process.wait() == -9
    assert hits >= 3
    (last := command(run)).communicate()
    assert last.returncode == 0
    assert difference(run, unbroken) is None
