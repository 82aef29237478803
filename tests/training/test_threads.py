"""Threads of a training run: one for small models, the run's own number when it is resumed, the user's word first."""

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.presets import load_experiment
from discrete_vae.training.run import training_threads


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    """A machine of two cores, whose user has not chosen."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def number(config, begun=None):
    """The threads inside the block; outside they must be as they were."""
    with training_threads(config, {} if begun is None else {"platform": {"torch_threads": begun}}):
        inside = torch.get_num_threads()
    assert torch.get_num_threads() == 2
    return inside


def test_a_small_model_trains_on_one_thread_and_a_large_one_on_all(capsys):
    assert number(load_experiment("digits", "short")) == 1
    assert number(load_experiment("mnist-static", "short")) == 2
    assert capsys.readouterr().err == ""


def test_a_model_that_cannot_be_made_is_refused_before_its_weights_are_counted():
    config = load_experiment("digits", "short")
    for slot, settings in (("prior", {"num_left": 10**10}), ("posterior", {"groups": 10**9})):
        part = getattr(config.model, slot).model_copy(update=settings)
        large = config.model_copy(update={"model": config.model.model_copy(update={slot: part})})
        with pytest.raises(InvalidInputError, match="memory"):
            number(large)


def test_a_resumed_run_keeps_its_number(capsys):
    assert [number(load_experiment("digits", "short"), begun) for begun in (1, 2)] == [1, 2]
    assert capsys.readouterr().err == ""


def test_a_run_from_a_larger_machine_goes_on_with_what_there_is(capsys):
    assert number(load_experiment("digits", "short"), 64) == 2
    assert "began with 64 threads and goes on with 2: the same up to rounding" in capsys.readouterr().err


def test_the_users_number_goes_first_and_a_change_is_said(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert number(load_experiment("digits", "short")) == 2
    assert number(load_experiment("digits", "short"), 1) == 2
    assert "began with 1 thread and goes on with 2" in capsys.readouterr().err


def test_the_number_is_restored_after_an_error():
    with pytest.raises(ZeroDivisionError), training_threads(load_experiment("digits", "short"), {}):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2
