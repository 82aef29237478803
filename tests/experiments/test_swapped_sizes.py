"""A component that is swapped in takes sizes that fit the experiment."""

import io
import math
import types
from typing import get_args

import numpy as np
import pytest
from rich.console import Console

from discrete_vae.config import ExperimentConfig, instantiate
from discrete_vae.load import initial_model
from discrete_vae.overrides import RULES, Setting, apply_overrides, slots, walk
from discrete_vae.presets import SIZES, load_experiment, own_data
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.logging import TrainingProgress
from discrete_vae.training.loop import run_steps

MAX_GROWTH = 3  # a swapped model has at most so many times the parameters
SLOTS = {path: slot for path, slot in slots().items() if path != "data"}
SWAPS = [(path, name) for path, slot in SLOTS.items() for name in slot.members]


def swapped(config, path, name):
    owner = SLOTS[path].owner
    owners = [] if owner is None else [(owner[0], [owner[1]])]
    return apply_overrides(config, [(path, [name]), *owners])


def num_parameters(config):
    return sum(parameter.numel() for parameter in initial_model(config).parameters())


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Size smoke of 60 examples of 12 features, with fewer steps."""
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "small.npy"
    np.save(path, random.random((60, 12)) < random.random((2, 12))[random.integers(0, 2, 60)])
    config = own_data(path, event_shape=(12,), num_train=48, num_valid=6, num_test=6, size="smoke")
    few = [("training.num-epochs", ["3"]), ("training.sampler.num-chains", ["50"])]
    return apply_overrides(config, few)


@pytest.mark.parametrize(("path", "name"), SWAPS)
def test_every_swap_trains_at_smoke(small, path, name, tmp_path):
    if name == "convolutional":  # which wants images
        small = small.model_copy(
            update={"model": small.model.model_copy(update={"num_features": None, "event_shape": (1, 3, 4)})}
        )
    config = swapped(small, path, name)
    assert num_parameters(config) <= MAX_GROWTH * num_parameters(small)
    dataset = instantiate(config.data, data_dir=None)
    run = RunDirectory.create(tmp_path / "run")
    quiet = TrainingProgress(0, 3, Console(file=io.StringIO()))
    result = run_steps(config, dataset, run, progress=quiet)
    assert math.isfinite(result.best_elbo)
    assert result.best_elbo > -3 * 12 * math.log(2)  # three times fair coins, after three steps


@pytest.mark.parametrize(("path", "name"), SWAPS)
@pytest.mark.parametrize("size", SIZES)
def test_every_swap_of_digits_stays_small(path, name, size):
    digits = load_experiment("digits", size)
    growth = MAX_GROWTH if size in ("smoke", "short") else 10  # eight or ten layers beside four groups
    assert num_parameters(swapped(digits, path, name)) <= growth * num_parameters(digits)


def test_every_size_of_every_component_has_a_rule():
    """A new component's sizes must not be the paper's by default; what is no size is named here."""
    no_size = {"edges", "inverse_temperatures", "nodes", "num_gibbs_sweeps", "sweeps_per_swap"}
    sizes = {
        (*entry.owner, entry.path.rpartition(".")[2].replace("-", "_"))
        for entry in walk(ExperimentConfig)
        if isinstance(entry, Setting)
        and entry.owner is not None
        and entry.owner[0] != "data"
        and counts(entry.field.annotation)
    }
    assert {size for size in sizes if size[2] not in no_size} == set(RULES)


def counts(annotation):
    """Whether a type is a whole number, or several."""
    if annotation is bool or annotation is float:
        return False
    parts = [part for part in get_args(annotation) if part is not types.NoneType]
    return annotation is int or any(counts(part) for part in parts)


def test_what_the_user_sets_wins_in_any_order():
    words = [
        ("model.hierarchy.sharing", ["groups"]),
        ("model.hierarchy.num-layers", ["9"]),
        ("model.hierarchy.prior-hidden", ["7", "8"]),
        ("model.hierarchy", ["gaussian"]),
    ]
    for given in (words, words[::-1]):
        hierarchy = apply_overrides(load_experiment("digits", "smoke"), given).model.hierarchy
        assert (hierarchy.num_layers, hierarchy.num_units, hierarchy.prior_hidden) == (9, 16, (7, 8))
        assert hierarchy.sharing.num_groups == 3  # the smallest that divides the layers


def test_latents_and_chains_are_kept():
    digits = load_experiment("digits")
    assert apply_overrides(digits, [("model.prior", ["factorial"])]).model.prior.num_units == 32
    assert apply_overrides(digits, [("model.prior", ["graph"])]).model.prior.num_units == 32
    sampler = apply_overrides(digits, [("training.sampler", ["parallel-tempering"])]).training.sampler
    assert sampler.num_chains == 50
