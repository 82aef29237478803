"""Settings on the command line: what they mean, how wrong ones are refused, and what a swapped component is like."""

import io
import math
from pathlib import Path
from types import NoneType
from typing import get_args

import numpy as np
import pytest
import torch
from rich.console import Console

from discrete_vae import DiscreteVAE
from discrete_vae.config import SpikeSlabConfig, instantiate
from discrete_vae.config.overrides import (
    Setting,
    apply_overrides,
    read_value,
    settings,
    settings_of,
    slots,
    split_overrides,
    swapped_sizes,
)
from discrete_vae.presets import SIZES, load_experiment, own_data
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.loop import run_steps
from tests.refusals import refused

DIGITS = load_experiment("digits")


def changed(words):
    return apply_overrides(DIGITS, split_overrides(words.split())[1])


def test_importance_samples_may_start_at_once_where_nothing_warms_up():
    words = "--model.hierarchy gaussian --training.num-importance-samples 5 --training.importance-start 0"
    assert changed(f"{words} --training.warm-up.strength 1").training.importance_start == 0
    assert "importance_start" in str(refused(changed, words))


def test_values_are_set_and_the_rest_stays():
    words = "--training.num-epochs 7 --training.optimizer.learning_rate=1e-4"
    config = changed(f"{words} --model.smoothing.trainable false")
    assert (config.training.num_epochs, config.training.optimizer.learning_rate) == (7, 1e-4)
    assert config.model.smoothing.trainable is False
    back = apply_overrides(config, [("training.num-epochs", ["300"])])
    assert back.training.warm_up == DIGITS.training.warm_up
    config = changed("--evaluation.num-examples 5")
    assert config.evaluation.num_examples == 5
    assert apply_overrides(config, [("evaluation.num-examples", ["none"])]).evaluation.num_examples is None


def test_lists_and_lists_of_lists():
    for words, hidden in (("20 30", (20, 30)), ("20", (20,)), ("", ()), ("[20,30]", (20, 30))):
        assert changed(f"--model.posterior.hidden {words}").model.posterior.hidden == hidden
    for words, groups in (("2", 2), ("[[0,2],[1]]", ((0, 2), (1,)))):
        assert changed(f"--model.posterior.groups {words}").model.posterior.groups == groups


def test_names_in_brackets_are_names():
    assert settings()["data.label-column"][0].read(["[Age]"]) == "[Age]"
    assert settings()["data.condition"][0].read(["[Age]"]) == ("[Age]",)
    assert settings()["data.condition"][0].read(['["Age", "Sex"]']) == ("Age", "Sex")


def test_a_component_is_swapped_whatever_the_order():
    assert changed("--model.smoothing spike-slab").model.smoothing == SpikeSlabConfig()
    config = changed("--model.prior.num-units 6 --model.prior factorial")
    assert (config.model.prior.kind, config.model.prior.num_units) == ("factorial", 6)
    assert config.model.posterior == DIGITS.model.posterior


WRONG = """
--training.num-epochs abc
--training.num-epochs 0
--training.num-epochs 1.5
--training.num-epochs
--training.optimizer.learning-rate inf
--training.optimizer.learning-rate nan
--training.optimizer.learning-rate -1
--model.smoothing.trainable maybe
--model.smoothing.beta 0
--model.posterior.hidden 4 x
--model.posterior.hidden [4,
--training.num-epohs 3
--trainin.qqq.zzz 3
--model.smoothing ramp-up
--model.smoothing
--model.prior.num-units 3
--model.hierarchy.sharing complete
"""
"""The last two are of no RBM, and of layers, which are not there."""


@pytest.mark.parametrize("words", WRONG.strip().splitlines())
def test_wrong_settings_are_named(words):
    error = refused(changed, words)
    assert error.argument == words.split()[0]
    assert "pydantic" not in str(error)


@pytest.mark.parametrize("experiment", ["digits", "mnist-static-rbm128"])
def test_every_setting_of_an_experiment_can_be_set_to_what_it_is(experiment):
    config = load_experiment(experiment)
    for entry in settings_of(config):
        if isinstance(entry, Setting):
            value = read_value(config, entry.path)
            words = [str(item) for item in value] if isinstance(value, tuple) else [str(value)]
            assert apply_overrides(config, [(entry.path, words)]) == config, entry.path
            assert entry.field.description


def test_every_component_can_be_swapped_in():
    for path, slot in slots().items():
        for name in slot.members:
            if name != "file":  # needs a path
                assert read_value(swapped(DIGITS, path, name), path).kind == name


def test_a_component_inside_a_component_can_be_swapped():
    words = "--model.hierarchy gaussian --model.hierarchy.num-layers 4 --model.hierarchy.sharing groups "
    hierarchy = changed(words + "--model.hierarchy.sharing.num-groups 4").model.hierarchy
    assert hierarchy.num_layers == hierarchy.sharing.num_groups == 4


def test_components_of_one_slot_may_share_a_settings_name():
    owners = {entry.owner[1] for entry in settings()["data.num-valid"]}
    assert {"digits", "omniglot"} <= owners


def test_importance_samples_of_the_experiment_give_way():
    base = load_experiment("mnist-dynamic", "cpu")
    for words in ("--model.hierarchy none", "--training.num-epochs 1", "--training.gradient reinforce"):
        change = split_overrides(words.split())[1]
        with pytest.warns(UserWarning, match=r"without the experiment's 5 importance samples: .*must be"):
            assert apply_overrides(base, change).training.num_importance_samples == 1
        refused(apply_overrides, base, [*change, ("training.num-importance-samples", ["5"])])


# A component that is swapped in takes sizes that fit the experiment.


MAX_GROWTH = 3.5  # a swapped model has at most so many times the parameters
SLOTS = {path: slot for path, slot in slots().items() if path != "data"}
SWAPS = [(path, name) for path, slot in SLOTS.items() for name in slot.members]


def swapped(config, path, name):
    owner = slots()[path].owner
    owners = [] if owner is None else [(owner[0], [owner[1]])]
    return apply_overrides(config, [(path, [name]), *owners])


def num_parameters(config):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in DiscreteVAE.from_config(config.model).parameters())


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
        model = small.model.model_copy(update={"num_features": None, "event_shape": (1, 3, 4)})
        small = small.model_copy(update={"model": model})
    config = swapped(small, path, name)
    assert num_parameters(config) <= MAX_GROWTH * num_parameters(small)
    run = RunDirectory.create(tmp_path / "run")
    quiet = TrainingProgress(0, 3, Console(file=io.StringIO()))
    result = run_steps(config, instantiate(config.data, data_dir=None), run, progress=quiet)
    assert math.isfinite(result.best_elbo)
    assert result.best_elbo > -3 * 12 * math.log(2)  # three times fair coins, after three steps


@pytest.mark.parametrize("size", SIZES)
def test_every_swap_of_digits_stays_small(size):
    digits = load_experiment("digits", size)
    growth = MAX_GROWTH if size in ("smoke", "short") else 10  # eight or ten layers beside four groups
    most = growth * num_parameters(digits)
    for path, name in SWAPS:
        assert num_parameters(swapped(digits, path, name)) <= most, (path, name)


def test_every_size_of_every_component_has_a_rule():
    """A new component's sizes must not be the paper's by default; what is no size is named here."""
    no_size = {"edges", "inverse_temperatures", "nodes", "num_categories", "num_gibbs_sweeps", "num_samples"}
    no_size |= {"sweeps_per_swap"}
    fields = DIGITS.model_dump()
    for path, slot in SLOTS.items():
        for kind, member in slot.members.items() if len(slot.members) > 1 else ():
            sizes = {name for name, field in member.model_fields.items() if counts(field.annotation)}
            assert sizes - no_size == swapped_sizes(path, kind, fields).keys(), (path, kind)


def counts(annotation):
    """True if a type is a whole number, or several."""
    return annotation is int or any(counts(part) for part in get_args(annotation) if part is not NoneType)


def test_swaps_that_read_each_other_may_come_in_any_order():
    swaps = [("model.prior", ["graph"]), ("model.hierarchy", ["gaussian"])]
    sizes = {"num_train": 60, "num_valid": 10, "num_test": 10, "size": "smoke"}
    own = own_data(Path("x.npy"), event_shape=(4,), **sizes)
    assert apply_overrides(own, swaps) == apply_overrides(own, swaps[::-1])


def test_what_the_user_sets_wins_in_any_order():
    words = "--model.hierarchy.num-layers 9 --model.hierarchy.prior-hidden 7 8"
    given = split_overrides(f"{words} --model.hierarchy.sharing groups --model.hierarchy gaussian".split())[1]
    for order in (given, given[::-1]):
        hierarchy = apply_overrides(load_experiment("digits", "smoke"), order).model.hierarchy
        assert (hierarchy.num_layers, hierarchy.num_units, hierarchy.prior_hidden) == (9, 16, (7, 8))
        assert hierarchy.sharing.num_groups == 3  # the smallest that divides the layers


def test_swaps_keep_latents_and_chains_and_take_networks_without_hidden_layers():
    for kind in ("factorial", "graph"):
        assert changed(f"--model.prior {kind}").model.prior.num_units == 32
    assert changed("--training.sampler parallel-tempering").training.sampler.num_chains == 50
    config = apply_overrides(changed("--model.posterior.hidden"), [("model.encoder", ["convolutional"])])
    assert config.model.encoder.num_features == 256
