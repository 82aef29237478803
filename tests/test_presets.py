"""Every experiment in every size builds, the paper's models have its numbers, and what goes by experiments' names."""

import math
import re
import resource
from pathlib import Path

import pytest
import torch

from discrete_vae import DiscreteVAE, load_dataset
from discrete_vae.config import ExperimentConfig, TableLikelihoodConfig, WarmUpConfig
from discrete_vae.config.overrides import apply_overrides, settings, slots
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.evaluation.evaluate import evaluate_elbo
from discrete_vae.presets import (
    SIZES,
    cited_keys,
    experiment_names,
    first_difference,
    load_experiment,
    own_data,
    references,
    run_name,
)
from discrete_vae.training.loop import training_step
from discrete_vae.training.state import TrainingState
from tests.refusals import refused


@pytest.mark.parametrize("name", experiment_names())
@pytest.mark.parametrize("size", SIZES)
def test_config_builds_a_model(name, size):
    config = load_experiment(name, size)
    assert (config.name, config.size) == (name, size)
    with torch.device("meta"):
        model = DiscreteVAE.from_config(config.model)
    assert model.event_shape == config.model.shape


def test_an_unknown_name_is_answered_with_what_was_meant():
    names = {"digit": "digits?", "omniglott": "omniglot?", "mine.csv": "--data mine.csv?"}
    for name, repair in (names | dict.fromkeys(("x", "", None), "dvae list")).items():
        error = refused(load_experiment, name)
        assert (error.argument, repair in error.repair) == ("experiment", True)


def test_settings_by_name_are_those_of_the_command_line():
    given = {"training.num_epochs": 7, "model.smoothing": "spike-slab", "model.decoder.hidden": (5, 6)}
    words = overrides("training.num-epochs 7, model.smoothing spike-slab, model.decoder.hidden 5 6")
    assert load_experiment("digits", settings=given) == apply_overrides(load_experiment("digits"), words)
    assert "num-epochs" in refused(load_experiment, "digits", settings={"training.epochs": 7}).repair
    for wrong in (["training.num_epochs", 7], "training.num_epochs", {7: "training.num_epochs"}, 0):
        assert refused(load_experiment, "digits", settings=wrong).argument == "settings"


def test_settings_may_be_dictionaries_and_lists():
    solver = {"beta_range": [0.1, 1.0], "proposal_acceptance_criteria": "Gibbs"}
    given = {"training.sampler": "dimod", "training.sampler.parameters": solver}
    config = load_experiment("digits", settings=given | {"model.posterior.groups": [[0, 2], [1]]})
    assert config.training.sampler.parameters == solver
    assert config.model.posterior.groups == ((0, 2), (1,))


def test_the_first_difference_is_an_option():
    given = {"training.sampler": "dimod", "training.sampler.parameters": {"answer_mode": "raw"}}
    plain = load_experiment("digits", settings={"training.sampler": "dimod"})
    solver = load_experiment("digits", settings=given)
    option = "--training.sampler.parameters"
    assert first_difference(solver, plain) == (option, {"answer_mode": "raw"}, {})
    found = first_difference(load_experiment("digits"), plain)
    assert found == ("--training.sampler", "block-gibbs", "dimod")


def overrides(words):
    """Paths and values of settings that commas separate."""
    return [(path, values) for path, *values in map(str.split, words.split(","))]


# The paper's four models: parameter counts by hand, ten steps inside 24 GiB, stable training from 1 to 20 layers.


NAMES = ("mnist-dynamic", "mnist-static", "omniglot", "caltech101-silhouettes")


def network(num_inputs, hidden, num_outputs):
    """Weights of linear layers; scale and offset of a norm behind each hidden one; biases of the last."""
    total, size = 0, num_inputs
    for width in hidden:
        total += size * width + 2 * width
        size = width
    return total + size * num_outputs + num_outputs


def by_hand():
    """Table architectural-hyperparameters, counted without the library."""
    rbm = 64 * 64 + 64 + 64
    beta = 1
    # four groups of 32 units; scale and offset of the bounded norm stand where a network has one vector of biases
    groups = sum(network(784 + 32 * j, (2000, 2000), 32) + 32 for j in range(4))

    def posterior(layers, units):
        return sum(network(784 + 128 + units * m, (2000, 2000), 2 * units) for m in range(layers))

    def prior(units, hidden):
        return network(units, (hidden,), 2 * units)

    top = rbm + beta + groups
    dynamic_prior = sum(network(128 + 64 * m, (1000,), 128) for m in range(18))
    return {
        "mnist-dynamic": top + posterior(18, 64) + dynamic_prior + network(128 + 18 * 64, (), 784),
        "mnist-static": top + posterior(20, 256) + 128 * 256 + 2 * prior(256, 2000) + network(256, (), 784),
        "omniglot": top + posterior(16, 256) + 128 * 256 + 2 * prior(256, 800) + network(256, (800,), 784),
        "caltech101-silhouettes": top + posterior(12, 80) + 128 * 80 + prior(80, 100) + network(80, (), 784),
    }


@pytest.mark.parametrize("name", NAMES)
def test_parameter_counts_are_those_of_a_hand_count_and_settings_the_papers(name):
    config = load_experiment(name, "paper")
    with torch.device("meta"):
        model = DiscreteVAE.from_config(config.model)
    assert sum(parameter.numel() for parameter in model.parameters()) == by_hand()[name]
    training = config.training
    assert training.sampler.num_chains == 20 * training.batch_size
    assert training.num_sweeps == 100
    assert training.warm_up == WarmUpConfig(strength=20, epochs=5, prior_strength=2, prior_epochs=20)
    assert config.model.smoothing.trainable
    assert (config.evaluation.num_samples, config.evaluation.num_examples) == (10_000, None)


def digits_like(name, size, **hierarchy):
    """An experiment on the embedded digits, with its own model widths and training settings."""
    config = load_experiment(name, size).model_dump()
    config["data"] = {"kind": "digits"}
    config["model"]["event_shape"] = (1, 8, 8)
    config["model"]["hierarchy"] |= hierarchy
    return ExperimentConfig(**config)


def steps(config, num_steps, dataset=None, steps_per_epoch=None):
    """ELBOs of the first steps of an experiment, and the state after them."""
    dataset = dataset or load_dataset("digits")
    batches = TrainingBatches(dataset, config.training.batch_size, seed=0)
    state = TrainingState.initial(config, dataset.train)
    values = []
    for step in range(num_steps):
        if step % 100 == 0:
            state.estimate_log_partition()
        epoch = step / (steps_per_epoch or batches.steps_per_epoch)
        elbo = training_step(state, config, batches.batch(step), epoch, step / num_steps)
        values.append(float(elbo.value.detach().mean()))
        state.step += 1
    return values, state


@pytest.mark.parametrize("sharing", [{"kind": kind} for kind in ("none", "groups", "complete")])
def test_a_deep_hierarchy_starts_gently(sharing):
    """With torch's own start of the Gaussian heads, complete sharing begins at -1,033 and falls below -10^6."""
    config = digits_like("mnist-static", "smoke", num_layers=20, sharing=sharing)
    values, _ = steps(config, 4)
    assert min(values) > -100.0


@pytest.mark.slow
@pytest.mark.parametrize("num_layers", [1, 2, 10, 20])
@pytest.mark.parametrize("kind", ["none", "complete"])
def test_training_is_stable_from_1_to_20_layers(num_layers, kind):
    """2,000 steps of smoke widths with the paper's schedules, an epoch taken as the 500 steps of MNIST."""
    config = digits_like("mnist-static", "smoke", num_layers=num_layers, sharing={"kind": kind})
    values, state = steps(config, 2000, steps_per_epoch=500)
    assert all(math.isfinite(value) for value in values)
    assert all(bool(parameter.isfinite().all()) for parameter in state.model.parameters())
    assert sum(values[-100:]) / 100 > -35.0  # from below -80 at the start


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_paper_size_fits_24_gib(name):
    """Builds, takes ten training steps and one evaluation step; random bits stand in for the data."""
    config = load_experiment(name, "paper")
    bits = torch.bernoulli(torch.full((200, 784), 0.2), generator=torch.Generator().manual_seed(0))
    state = TrainingState.initial(config, bits)
    for step in range(10):
        elbo = training_step(state, config, bits[:100], step / 500, step / 1e6)
        assert math.isfinite(float(elbo.value.detach().mean()))
        state.step += 1
    estimate = evaluate_elbo(state.model, bits, log_partition=128 * math.log(2))
    assert math.isfinite(estimate.elbo)
    weights = state.model.log_likelihood(bits[:1], 1000, log_partition=128 * math.log(2), chunk_size=1000)
    assert math.isfinite(float(weights.value[0]))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 24 * 2**20  # KiB


# An experiment for data of one's own.


def own(rows, features, size="short", **more):
    counts = {"num_train": rows, "num_valid": rows, "num_test": rows}
    return own_data(Path("x.npy"), event_shape=(features,), **counts, size=size, **more)


@pytest.mark.parametrize(
    ("rows", "features", "steps"),
    [(48, 12, 200), (4_000, 200, 200), (800_000, 50, 200), (240, 20_000, 100), (80, 10**6, 20)],
)
def test_smoke_is_bounded(rows, features, steps):
    config = own(rows, features, "smoke")
    training = config.training
    seen = training.num_examples or rows
    assert seen <= rows
    taken = training.num_epochs * (seen // training.batch_size)
    assert 0.9 * steps <= taken <= steps
    assert (training.num_validation_examples or rows) <= 250
    assert (config.evaluation.num_examples or rows) <= 250
    assert 0 < training.validate_every <= taken


@pytest.mark.parametrize("size", ["short", "cpu", "paper"])
@pytest.mark.parametrize("features", [3, 2000])
def test_what_own_data_get_grows_with_the_rows(size, features):
    rows = (2, 26, 99, 100, 999, 1000, 1999, 2000, 9999, 10_000, 49_999, 50_000, 10**6)
    configs = [own(number, features, size) for number in rows]
    batches = [config.training.batch_size for config in configs]
    units = [config.model.prior.num_units for config in configs]
    layers = [len(config.model.decoder.hidden) for config in configs]
    for values in (batches, units, layers):
        assert values == sorted(values)
        assert values[0] < values[-1]
    steps = []
    for number, config in zip(rows, configs, strict=True):
        training, linear = config.training, not config.model.decoder.hidden
        assert training.batch_size <= number
        assert (training.num_validation_examples or number) == min(number, 20_000)
        assert linear == (number < max(1000, features))
        assert training.independent_start
        assert training.in_epochs(training.warm_up.prior_epochs) == pytest.approx(0.1 * training.num_epochs)
        steps.append(training.num_epochs * (number // training.batch_size))
        assert steps[-1] <= 40 * training.validate_every + 40
    assert max(steps) < 1.1 * min(steps)  # few rows take as many as many do


def test_tables_with_numbers_have_a_gaussian_layer():
    for kinds, hierarchy in (("real binary", "gaussian"), ("count", "gaussian"), ("binary", "none")):
        columns = tuple({"kind": kind, "name": kind} for kind in kinds.split())
        config = own(500, len(columns), likelihood=TableLikelihoodConfig(columns=columns))
        assert config.model.hierarchy.kind == hierarchy


# What is cited follows what is in use.


def test_every_key_has_its_entry_and_every_entry_is_used():
    components = [member for slot in slots().values() for member in slot.members.values()]
    named = {key for member in components for key in member.references}
    assert named <= references().keys()
    of_settings = {"rolfe2017", "kingma2015", "polyak1992", "tucker2019", "burda2016", "bennett1976"}
    assert references().keys() == named | of_settings


def test_entries_are_whole():
    for key, entry in references().items():
        assert entry.count("{") == entry.count("}"), key
        assert entry.startswith("% "), key
        for field in ("title", "author", "year"):
            assert re.search(rf"^  {field} +=", entry, re.MULTILINE), key


def test_keys_follow_the_settings():
    plain = set(cited_keys(load_experiment("digits")))
    for words, more, less in (
        ("model.smoothing overlapping-power", "vahdat2018b", ""),
        ("model.prior factorial", "", "bennett1976"),
        ("training.gradient reinforce", "williams1992", ""),
        ("training.gradient reinforce, training.gradient.baseline learned", "williams1992 mnih2014", ""),
        ("training.averaging.decay 0.999", "polyak1992", ""),
        ("training.optimizer.rate exponential", "", "loshchilov2017"),
        ("training.sampler parallel-tempering", "swendsen1986", "tieleman2008"),
    ):
        config = apply_overrides(load_experiment("digits"), overrides(words))
        assert set(cited_keys(config)) == (plain | {*more.split()}) - {*less.split()}, words


# The names of runs.


def test_names():
    for seed, words, name in (
        (None, "", "digits-short"),
        (3, "", "digits-short-seed-3"),
        (None, "training.num-epochs 3", "digits-short-num-epochs-3"),
        (None, "model.decoder.hidden 20 30", "digits-short-decoder-hidden-20-30"),
        (None, "training.optimizer.learning-rate 1e-4", "digits-short-learning-rate-1e-4"),
        (None, "training.num-epochs 3, training.num-epochs 4", "digits-short-num-epochs-4"),
    ):
        assert run_name("digits-short", seed, overrides(words) if words else []) == name
    words = overrides("training.num-epochs 3, model.smoothing spike-slab")
    assert run_name("a", 1, words) == run_name("a", 1, words[::-1])


def test_names_are_short_safe_and_differ():
    values = ["[[0,1],[2]]", "[[0],[1,2]]", "[[0 1] [2]]", "../../etc", "a/b", "-3", "3", "é"]
    values += ["7 " * 90, "7 " * 91]
    names = [run_name("digits-short", None, [("model.posterior.groups", [value])]) for value in values]
    assert len(set(names)) == len(values)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9.+-]+", name)
        assert ".." not in name
        assert len(name) <= 80


def test_settings_do_not_share_a_name():
    paths = [*settings(), *slots()]
    names = {run_name("a", None, [(path, ["1"])]) for path in paths}
    assert len(names) == len(paths)
