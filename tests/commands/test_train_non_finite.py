"""dvae train: a loss or a weight that is not finite ends the run with status 1 and keeps what was good."""

import math

import pytest

from discrete_vae.likelihoods.families import BernoulliLikelihood
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training import step as step_module
from tests.commands.conftest import TINY


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


@pytest.mark.parametrize("when", ["training", "validation"])
def test_a_planted_nan_is_named_with_step_term_and_last_checkpoint(
    cli, done, tmp_path, data_file, monkeypatch, when
):
    monkeypatch.setattr(step_module, "_why_not", lambda *modules: "the test counts calls")
    calls, original = {True: 0, False: 0}, BernoulliLikelihood.log_prob

    def broken(self, parameters, x, observed=None):
        calls[self.training] += 1
        bad = calls[True] == 4 if when == "training" else (calls[False] == 2 and not self.training)
        return original(self, parameters, x, observed) * (math.nan if bad else 1)

    monkeypatch.setattr(BernoulliLikelihood, "log_prob", broken)
    error = train(cli, data_file, tmp_path / "run")
    if when == "training":
        assert "reconstruction is nan at step 3; the run has stopped." in error
    else:
        assert "the validation ELBO is nan at step 4; the run has stopped." in error
    assert "The last good checkpoint is that of step 2." in error
    assert "A smaller learning rate" in error
    assert_checkpoints_are_good(tmp_path / "run")
    monkeypatch.undo()
    done("train", "--resume", "--run-dir", tmp_path / "run")


@pytest.mark.parametrize(("rate", "validate_every"), [("1e10", "1"), ("1e30", "100")])
def test_a_huge_step_size_never_saves_a_bad_checkpoint(cli, tmp_path, data_file, rate, validate_every):
    more = ("--training.optimizer.learning-rate", rate, "--training.validate-every", validate_every)
    error = train(cli, data_file, tmp_path / "run", *more)
    assert "the run has stopped" in error
    assert_checkpoints_are_good(tmp_path / "run")
