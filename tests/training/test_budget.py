"""A run of so many minutes: its length comes from a timing of its own steps."""

import pytest

from discrete_vae import load_dataset, load_experiment
from discrete_vae.errors import InvalidInputError
from discrete_vae.experiments.overrides import apply_overrides
from discrete_vae.training import budget
from discrete_vae.training.budget import (
    affordable_steps,
    line_seconds,
    step_seconds,
    with_epochs,
    with_length,
)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(budget, "_TIMED_SECONDS", 0.0)


def test_the_bound_of_beta_ends_where_it_did(digits):
    base = load_experiment("digits", size="short")
    changed = apply_overrides(base, [("training.batch-size", ["50"])])
    settings = with_length(changed, digits, 250, validations=12).training
    assert (settings.num_epochs, settings.batch_size) == (10, 50)
    assert settings.beta_bound.slope * 10 == pytest.approx(base.training.beta_bound.slope * 200)
    assert (settings.validate_every, settings.log_every) == (20, 20)


def test_nothing_else_changes(digits):
    base = load_experiment("digits", size="short")
    found = with_length(base, digits, 600, validations=10)
    fields = {"num_epochs", "validate_every", "log_every", "beta_bound"}
    kept = {name: getattr(base.training, name) for name in fields}
    assert found.model_copy(update={"training": found.training.model_copy(update=kept)}) == base


@pytest.mark.parametrize("epochs", [1, 13, 60, 799, 5000])
def test_a_warm_up_takes_a_quarter_of_a_shorter_run_at_most(epochs):
    base = load_experiment("omniglot", size="cpu")
    whole = base.training.warm_up
    found = with_epochs(base, epochs, 100, 100).training.warm_up
    assert found.epochs == min(whole.epochs, epochs / 4)
    assert found.prior_epochs / found.epochs == pytest.approx(whole.prior_epochs / whole.epochs)
    assert found.strength == whole.strength


def test_a_length_that_other_settings_do_not_fit_is_refused():
    early = apply_overrides(
        load_experiment("mnist-dynamic", size="cpu"), [("training.importance-start", ["0.1"])]
    )
    with pytest.raises(InvalidInputError, match=r"importance_start must be at least 0.25"):
        with_epochs(early, 10, 100, 100)


def test_more_minutes_afford_more_steps(digits, quick, monkeypatch):
    config = load_experiment("digits", size="smoke")
    monkeypatch.setattr(budget, "step_seconds", lambda *_, **__: 0.01)
    monkeypatch.setattr(budget, "line_seconds", lambda *_, **__: 0.0)
    assert affordable_steps(config, digits, 1.0) == 5700
    assert affordable_steps(config, digits, 2.0) == 11400


def test_lines_of_the_log_take_their_share(digits, monkeypatch):
    config = load_experiment("digits", size="smoke")  # a line every 100 steps
    monkeypatch.setattr(budget, "step_seconds", lambda *_, **__: 0.01)
    monkeypatch.setattr(budget, "line_seconds", lambda *_, **__: 0.5)
    assert affordable_steps(config, digits, 1.0) == int(0.95 * 60 / 0.015)


def test_importance_samples_make_late_steps_dearer(digits, monkeypatch):
    changes = {
        "model.hierarchy": "gaussian",
        "training.num-importance-samples": "5",
        "training.warm-up.epochs": "1",
    }
    overrides = [(path, [value]) for path, value in changes.items()]
    config = apply_overrides(load_experiment("digits", size="smoke"), overrides)
    monkeypatch.setattr(budget, "line_seconds", lambda *_, **__: 0.0)
    monkeypatch.setattr(
        budget, "step_seconds", lambda _, __, progress, **___: 0.03 if progress == 1.0 else 0.01
    )
    assert affordable_steps(config, digits, 1.0) == int(0.95 * 60 / (0.75 * 0.01 + 0.25 * 0.03))


def test_a_step_takes_time(digits, quick):
    config = load_experiment("digits", size="smoke")
    assert 0 < step_seconds(config, digits, 0.0) < 10
    assert 0 < line_seconds(config, digits) < 10
