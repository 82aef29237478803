"""Fixed draws, subsets of a data set, what a run keeps of it, and which likelihoods read it."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from discrete_vae.checks import ValueSummary
from discrete_vae.config import LikelihoodConfig, ModelConfig, TrainingConfig, instantiate, members
from discrete_vae.data.datasets import load_dataset
from discrete_vae.data.rows import load_file
from discrete_vae.data.splits import (
    DataMetadata,
    DatasetDescription,
    DataSplits,
    check_compatible,
    describe_data,
    fixed_bits,
    fixed_permutation,
    fixed_uniforms,
    likelihood_for,
    training_subset,
)
from discrete_vae.runs.io import EnvironmentSchema, check_fields
from tests.refusals import refused, refused_argument


def test_permutations_hold_every_number_once_and_depend_on_seed_and_key_alone():
    first = fixed_permutation(100, 3, 1)
    assert sorted(first) == list(range(100))
    np.testing.assert_array_equal(fixed_permutation(100, 3, 1), first)
    for other in (fixed_permutation(100, 3, 2), fixed_permutation(100, 4, 1), fixed_permutation(100, 3)):
        assert (other != first).any()
    assert fixed_permutation(0, 3).shape == (0,)
    assert refused_argument(fixed_permutation, 3, -1) == "seed"


def test_each_place_is_as_likely():
    counts = np.zeros((5, 5))
    for seed in range(4000):
        counts[np.arange(5), fixed_permutation(5, seed)] += 1
    # 25 cells at |z| < 5.6: a false alarm in 1e6 seeds or fewer
    assert (abs(counts - 800) < 5.6 * np.sqrt(4000 * 0.2 * 0.8)).all()


def test_bits_follow_their_probabilities():
    probabilities = np.repeat([0.0, 0.01, 0.5, 0.9, 1.0], 40000).reshape(5, 40000)
    bits = fixed_bits(probabilities, 9, 1)
    assert bits.dtype == np.float32
    assert set(np.unique(bits)) == {0.0, 1.0}
    p = probabilities[:, 0]
    assert (abs(bits.mean(axis=1) - p) <= 5.2 * np.sqrt(p * (1 - p) / 40000)).all()
    wrong = fixed_bits(probabilities * 0.95, 9, 1).mean(axis=1)
    assert (abs(wrong - p) > 5.2 * np.sqrt(p * (1 - p) / 40000))[2:].all()  # the bound has the power to tell
    assert bits[0].max() == 0
    assert bits[4].min() == 1
    assert (fixed_bits(probabilities, 9, 2) != bits).any()
    many = np.full(2**22 + 9, 0.5, np.float32)  # more than are drawn at a time
    assert (fixed_bits(many, 3, 1) == (fixed_uniforms(len(many), 3, 1) < 0.5)).all()
    values = np.array([0.0, np.nan, 1.0], np.float32)
    np.testing.assert_array_equal(fixed_bits(values, 0, 1), values)


def test_a_choice_of_examples_is_fixed_in_order_without_repeats_and_spread_over_the_part():
    numbers = torch.arange(1000.0)[:, None].expand(-1, 64)
    numbered = dataclasses.replace(load_dataset("digits"), train=numbers)
    training = TrainingConfig(num_examples=100, num_validation_examples=7)
    few, again = training_subset(numbered, training), training_subset(numbered, training)
    rows = few.train[:, 0]
    assert torch.equal(rows, again.train[:, 0])
    assert torch.equal(rows, rows.unique())  # sorted, each once
    assert len(rows) == 100
    assert 400 < rows.mean() < 600
    assert len(few.valid) == 7
    assert torch.equal(few.test, numbered.test)
    assert torch.equal(training_subset(few, training).train, few.train)
    assert training_subset(numbered, TrainingConfig()).train is numbered.train
    wanted = "training.num_examples"
    assert refused_argument(training_subset, numbered, TrainingConfig(num_examples=1001)) == wanted


def dataset(test, shape=(4,)):
    x = torch.arange(8.0).reshape(2, 4)
    return DataSplits("mine", x, x, test, shape, False, DatasetDescription("s", "v", "c", "w", None))


def test_what_a_run_keeps_of_its_data():
    """The range is that of the test part."""
    for test, low, high in (([-3.0, 0.5, torch.nan, 7.25], -3.0, 7.25), ([torch.nan] * 4, 0.0, 1.0)):
        assert DataMetadata.of(dataset(torch.tensor([test]))) == DataMetadata((4,), low, high)
    for data in (dataset(torch.ones(1, 4), (1, 2, 2)), load_dataset("digits")):
        found = DataMetadata.read({"data": json.loads(json.dumps(describe_data(data)))})
        assert found == DataMetadata.of(data)
        assert (found.image_shape, found.num_features) == (data.image_shape, data.num_features)
    for of_earlier_version in ({}, {"data": {"name": "x"}}):
        assert DataMetadata.read(of_earlier_version) is None
    right = {"event_shape": [4], "low": 0, "high": 1}
    wrong = [right | {"event_shape": shape} for shape in ([2, 2], [0], [True], "4")]
    for picture in (5, {}, *wrong, *(right | {"low": low} for low in (None, "nan"))):
        given = "e.json", {"data": {"picture": picture}}, EnvironmentSchema
        assert refused_argument(check_fields, *given).startswith("e.json, field 'data.picture")


# Likelihoods that read the values.

PROBE = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 300.0, torch.inf, -torch.inf, torch.nan])


def from_file(tmp_path, array, **settings):
    np.save(tmp_path / "mine.npy", array)
    return load_file(path=tmp_path / "mine.npy", **settings)


def model(kind, **settings):
    return ModelConfig(num_features=3, likelihood={"kind": kind, **settings})


@pytest.mark.parametrize("member", [kind for kind in members(LikelihoodConfig) if kind.is_choice])
@pytest.mark.parametrize("exact", [False, True])
def test_a_config_knows_the_domain_of_what_it_builds(member, exact):
    config = member()
    built = instantiate(config, event_shape=(1,)).domain(exact=exact)
    assert torch.equal(config.domain(exact=exact).contains(PROBE), built.contains(PROBE))
    for value in PROBE[:-1].tolist():
        summary = ValueSummary(value, value, whole=value == value // 1)
        assert config.domain(exact=exact).holds(summary) == bool(built.contains(torch.tensor(value)))


KINDS = ("bernoulli", "gaussian", "categorical", "negative-binomial")
REAL = np.linspace(-3.1, 7.2, 60).reshape(20, 3)
COUNTS = np.arange(600.0).reshape(200, 3)
CODES = COUNTS % 5
UNIT = REAL / 11 + 0.3
BITS = CODES % 2


@pytest.mark.parametrize(
    ("array", "readers"),
    [
        (REAL, {"gaussian"}),
        (COUNTS, {"gaussian", "negative-binomial"}),
        (CODES, {"gaussian", "negative-binomial", "categorical"}),
        (UNIT, {"gaussian", "bernoulli"}),
        (BITS, {"gaussian", "negative-binomial", "categorical", "bernoulli"}),
    ],
    ids=["real", "counts", "codes", "unit", "bits"],
)
def test_the_likelihoods_that_can_read_data_are_named_where_one_cannot(tmp_path, array, readers):
    dataset = from_file(tmp_path, array)
    for kind in KINDS:
        if kind in readers:
            assert likelihood_for(kind, dataset).kind == kind
            continue
        error = refused(likelihood_for, kind, dataset)
        assert "part 'train'" in error.argument
        named = error.repair.partition(" can read them")[0]
        assert {word for word in KINDS if word in named} == readers


def test_categories_are_those_of_the_data_and_probabilities_are_read_as_bits_or_counts(tmp_path):
    assert likelihood_for("categorical", from_file(tmp_path, CODES)).num_categories == 5
    assert likelihood_for("categorical", from_file(tmp_path, BITS)).num_categories == 2
    drawn = from_file(tmp_path, UNIT, binarize=True)
    for kind in ("bernoulli", "negative-binomial"):
        check_compatible(model(kind), drawn)


def test_what_a_model_cannot_read_is_refused_by_part(tmp_path):
    gaps = REAL.copy()
    gaps[:, 1] = np.nan
    real = model("gaussian")
    check_compatible(real.model_copy(update={"missing": True}), from_file(tmp_path, gaps))
    for config, array, part in (
        (real, gaps, "train"),
        (model("categorical", num_categories=4), CODES, "train"),
        (model("bernoulli"), UNIT, "valid"),  # probabilities, which training alone may see
    ):
        assert f"part '{part}'" in refused_argument(check_compatible, config, from_file(tmp_path, array))
    assert refused_argument(likelihood_for, "poisson", from_file(tmp_path, BITS)) == "--model.likelihood"
