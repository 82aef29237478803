"""A run of so many minutes: its length comes from a timing of its own steps."""

import math

import pytest

from discrete_vae import load_dataset, load_experiment
from discrete_vae.errors import InvalidInputError
from discrete_vae.training.run import check_experiment
from reproduction import budget
from reproduction.budget import Costs, time_parts, with_epochs, with_length, with_minutes
from tests.training.tiny import changed

IMPORTANCE_SAMPLES = {
    "model.hierarchy": "gaussian",
    "training.num-importance-samples": "5",
    "training.warm-up.epochs": "1",
}


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(budget, "_TIMED_SECONDS", 0.0)


def test_the_bound_of_beta_ends_where_it_did_and_nothing_else_changes(digits):
    base = load_experiment("digits", size="short")
    smaller = changed(base, {"training.batch-size": "50"})
    settings = with_length(smaller, digits, 250, validations=12).training
    assert (settings.num_epochs, settings.batch_size) == (10, 50)
    assert settings.beta_bound.slope * 10 == pytest.approx(base.training.beta_bound.slope * 200)
    assert (settings.validate_every, settings.log_every) == (21, 21)  # twelve of 250 steps
    found = with_length(base, digits, 600, validations=10)
    fields = {"num_epochs", "validate_every", "log_every", "beta_bound"}
    kept = {name: getattr(base.training, name) for name in fields}
    assert found.model_copy(update={"training": found.training.model_copy(update=kept)}) == base


@pytest.mark.parametrize("epochs", [1, 60, 5000])
def test_a_warm_up_takes_a_quarter_of_a_shorter_run_at_most(epochs):
    base = load_experiment("omniglot", size="cpu")
    whole = base.training.warm_up
    found = with_epochs(base, epochs, 100, 100).training.warm_up
    assert found.epochs == min(whole.epochs, epochs / 4)
    assert found.prior_epochs / found.epochs == pytest.approx(whole.prior_epochs / whole.epochs)
    assert found.strength == whole.strength
    early = changed(load_experiment("mnist-dynamic", size="cpu"), {"training.importance-start": "0.1"})
    with pytest.raises(InvalidInputError, match=r"importance_start must be at least 0.25"):
        with_epochs(early, 10, 100, 100)


@pytest.fixture
def seconds(monkeypatch):
    """Set what the parts of a run take, in seconds."""

    def put(step=0.01, *, late=None, line=0.0, validation=0.0):
        costs = Costs(step, step if late is None else late, line, validation or 1e-9)
        monkeypatch.setattr(budget, "time_parts", lambda *_, **__: costs)

    return put


@pytest.mark.parametrize(
    ("parts", "changes", "minutes", "wanted"),
    [
        ({}, {}, 2.0, 120 / 0.01),
        ({"line": 0.5}, {}, 1.0, None),
        ({"late": 0.03}, IMPORTANCE_SAMPLES, 1.0, 60 / (0.75 * 0.01 + 0.25 * 0.03)),
    ],
    ids=["two minutes", "lines of the log", "importance samples"],
)
def test_all_parts_take_their_share_of_the_minutes(digits, seconds, parts, changes, minutes, wanted):
    config = changed(load_experiment("digits", size="smoke"), changes)
    seconds(0.01, **parts)
    found = with_minutes(config, digits, minutes, validations=1)
    wanted = wanted or 60 / (0.01 + 0.5 / config.training.log_every)
    assert check_experiment(found, digits) == pytest.approx(wanted, abs=12)  # an epoch of digits has 12 steps


def test_validations_take_their_share_and_no_more_than_a_tenth(digits, seconds):
    config = load_experiment("digits", size="smoke")
    for validation, number in ((0.5, 10), (2.0, 3), (50.0, 1)):
        seconds(0.01, validation=validation)
        found = with_minutes(config, digits, 1.0, validations=10)
        steps = check_experiment(found, digits)
        assert steps == pytest.approx((60 - number * validation) / 0.01, abs=12)
        assert math.ceil(steps / found.training.validate_every) == number


@pytest.mark.parametrize(("step", "validation"), [(5.9, 0.0), (1e-3, 70.0)])
def test_minutes_without_room_for_an_epoch_are_refused(digits, seconds, step, validation):
    seconds(step, validation=validation)
    config = load_experiment("digits", size="smoke")
    with pytest.raises(InvalidInputError, match=r"minutes must have room for an epoch.* Give at least 1\.2"):
        with_minutes(config, digits, 1.0, validations=10)
    assert check_experiment(with_minutes(config, digits, 1.2, validations=10), digits) >= 12


@pytest.mark.parametrize("changes", [{}, IMPORTANCE_SAMPLES], ids=["elbo", "importance samples"])
def test_the_parts_of_a_run_are_timed(digits, quick, changes):
    config = changed(load_experiment("digits", size="smoke"), changes)
    costs = time_parts(config, digits)
    assert all(0 < each < 10 for each in costs)
    assert (costs.late_step == costs.step) == (not changes)


def test_a_line_is_timed_with_couplings_to_anneal(digits, quick, monkeypatch):
    """Without couplings log Z is known at once, so a line before the first step takes no time."""
    found = []
    estimate = budget.TrainingState.estimate_log_partition

    def note(self, **options):
        found.append(self.model.prior.weight.abs().max().item())
        estimate(self, **options)

    monkeypatch.setattr(budget.TrainingState, "estimate_log_partition", note)
    time_parts(changed(load_experiment("digits", size="smoke"), {"training.optimizer.rise": "0.03"}), digits)
    assert found[0] == 0.0
    assert min(found[1:]) > 0.0
