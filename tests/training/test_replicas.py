"""Training in two processes: the gradient of one, whole checkpoints, a stop that all take, a peer that ends."""

import json

import pytest
import torch

from discrete_vae.data.datasets import load_dataset
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.run import train
from tests.processes import FORKED, TORCHRUN, start
from tests.training.replicas import STOPPED_AT, averaged_gradient
from tests.training.tiny import CONFIG, NUM_STEPS, QuietProgress, assert_same_run, last_tensors


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes leave behind, the second of which ends without a word."""
    folder = tmp_path_factory.mktemp("replicas")
    process = start(*FORKED, "-m", "tests.training.replicas", folder)
    statuses, errors = process.communicate(timeout=400)
    assert statuses.split() == ["0", "9"], errors
    return folder


@pytest.fixture(scope="module")
def said(folder):
    return json.loads((folder / "0.json").read_text())


def test_two_halves_have_the_gradient_of_the_whole(folder):
    whole = averaged_gradient()
    halves = [torch.load(folder / f"gradient-{rank}.pt", weights_only=True) for rank in (0, 1)]
    for half in halves:
        assert torch.equal(half["chains"], whole["chains"])  # bit for bit: chains are numbered through
        assert torch.equal(half["constants"], whole["constants"])
        assert torch.equal(half["gradient"], halves[0]["gradient"])
        torch.testing.assert_close(half["gradient"], whole["gradient"], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(half["means"], whole["means"], rtol=1e-5, atol=1e-5)
    assert float(whole["gradient"].abs().max()) > 0.01
    assert not torch.equal(halves[0]["noise"], halves[1]["noise"])  # of the posterior, in training


def test_shares_must_be_equal(said):
    batch, chains = said["refused"]
    assert batch.startswith("training.batch_size ")
    assert "received 99. Give 98," in batch
    assert chains.startswith("training.sampler.num_chains ")
    assert "received 31." in chains
    assert said["constant"]


def test_processes_that_differ_are_refused_and_leave_nothing(folder, said):
    assert said["differing"] == ["config", "data", "device", "checkpoint"]
    assert not (folder / "none").exists()


def test_all_stop_where_one_is_asked_and_a_resumed_run_equals_an_unbroken_one(folder, said):
    assert said["stopped"] == STOPPED_AT
    unbroken, resumed = (RunDirectory.open(folder / name) for name in ("unbroken", "stopped"))
    assert_same_run(resumed, unbroken)
    assert len(last_tensors(unbroken)["chains/z"]) == CONFIG.training.sampler.num_chains


def test_all_end_where_the_bound_rises_no_more(folder, said):
    step, num_steps, best = said["ended"]
    lines = RunDirectory.open(folder / "ended").metrics().read()
    scores = {line["step"]: line["validation_score"] for line in lines if "validation_score" in line}
    values = list(scores.values())
    falls = [later <= max(values[1:place]) for place, later in enumerate(values) if place > 1]
    assert not any(falls[:-1])
    assert step == num_steps == max(scores)
    assert falls[-1] or step == NUM_STEPS
    assert best == max(scores, key=scores.__getitem__)


def test_it_learns_what_one_process_learns(folder, unbroken):
    logs = [run.metrics().read() for run in (RunDirectory.open(folder / "unbroken"), unbroken[0])]
    together, alone = ([each["validation_elbo"] for each in log if "validation_elbo" in each] for log in logs)
    assert together != alone
    assert together == pytest.approx(alone, abs=0.3)  # other noise, and norms over half of the batch


def test_a_peer_that_ends_is_named_within_seconds_and_nothing_is_lost(folder, said):
    assert "one of the 2 processes has ended" in said["error"]
    assert said["seconds"] < 20
    assert not said["is_said"]
    assert RunDirectory.open(folder / "lost").checkpoints().steps() == (7,)


def test_one_process_goes_on_where_two_stopped(folder):
    result = train(CONFIG, load_dataset("digits"), folder / "lost", progress=QuietProgress())
    assert result.step == NUM_STEPS


@pytest.mark.slow
def test_torchrun_trains_and_reports_once(tmp_path):
    command = ["-m", "discrete_vae", "train", "digits", "--size", "smoke", "--run-dir", str(tmp_path / "run")]
    process = start(*TORCHRUN, *command)
    out, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    assert out.count("Best checkpoint") == 1
    process = start(*TORCHRUN, *command)
    _, errors = process.communicate(timeout=400)
    assert errors.count("error: ") == 1
    assert "must be a new or empty folder" in errors
    process = start(*TORCHRUN, "-m", "discrete_vae", "evaluate", tmp_path / "none")
    _, errors = process.communicate(timeout=400)
    assert errors.count("error: ") == 1  # that both have found
