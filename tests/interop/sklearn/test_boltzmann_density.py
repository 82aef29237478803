import itertools
from copy import copy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.neural_network import BernoulliRBM

from discrete_vae import RBM, exact_log_partition
from discrete_vae.errors import LogPartitionWarning
from discrete_vae.interop.sklearn import BoltzmannDensity, DiscreteVAETransformer
from discrete_vae.testing import check_frequencies
from tests.refusals import refused_argument

TINY = {"num_hidden": 3, "num_epochs": 40, "random_state": 0}


# bits in equal pairs: independent bits know nothing of them
ROWS = np.repeat(np.random.default_rng(0).integers(0, 2, (600, 4)), 2, axis=1)
ALL_ROWS = np.array(list(itertools.product([0, 1], repeat=8)))


@pytest.fixture(scope="module")
def fitted():
    return BoltzmannDensity(num_hidden=8, num_epochs=150, random_state=0).fit(ROWS)


@pytest.fixture(scope="module")
def tiny():
    return BoltzmannDensity(**TINY).fit(ROWS)


def test_it_has_a_law_and_learns_what_independent_bits_cannot(fitted):
    assert np.exp(fitted.score_samples(ALL_ROWS)).sum() == pytest.approx(1, abs=1e-6)
    assert fitted.log_partition_.std_error == 0
    # the entropy of four fair coins is 2.77 nats, of eight 5.55
    assert -3.1 < fitted.score(ROWS) < -2.7
    rows = ROWS[:100]
    assert np.mean((fitted.inverse_transform(fitted.transform(rows)) > 0.5) == rows) > 0.95


def unenumerated(**settings):
    """A machine of 30 and 26 units, 16 of which have no weights: log Z is that of 30 and 10 units and their biases."""
    rows = np.repeat(np.random.default_rng(0).integers(0, 2, (400, 15)), 2, axis=1)
    density = BoltzmannDensity(num_hidden=26, num_epochs=10, random_state=0, **settings).fit(rows)
    machine, part = density.machine_, RBM(30, 10).double()
    with torch.no_grad():
        machine.weight[:, 10:] = 0
        part.weight.copy_(machine.weight[:, :10])
        part.bias.copy_(machine.bias[:40])
        rest = torch.nn.functional.softplus(machine.bias[40:]).sum()
    return density, exact_log_partition(part).value + rest.item()


def test_log_z_that_is_not_enumerated_is_found_to_a_hundredth():
    density, answer = unenumerated()
    estimate = density.log_partition_
    assert 0 < estimate.std_error <= 0.01
    assert abs(estimate.value - answer) < 5 * estimate.std_error


def test_log_z_that_is_not_reached_in_its_sweeps_is_said_with_its_error():
    density, _ = unenumerated(log_partition_sweeps=1)
    density.machine_.weight.data[:, :10] *= 3
    with pytest.warns(LogPartitionWarning):
        first = density.score_samples(np.eye(30))
    assert density.log_partition_.converged is False
    assert np.isfinite(first).all()


def test_its_bernoulli_rbm_names_give_scikit_learns_transform(tiny):
    rows = ROWS[:20]
    theirs = BernoulliRBM(n_components=3)
    theirs.components_, theirs.intercept_hidden_ = tiny.components_, tiny.intercept_hidden_
    theirs.intercept_visible_, theirs.n_features_in_ = tiny.intercept_visible_, 8
    np.testing.assert_allclose(theirs.transform(rows.astype(float)), tiny.transform(rows), rtol=1e-6)
    energies = -tiny.score_samples(rows) - tiny.log_partition_.value
    assert np.allclose(theirs._free_energy(rows.astype(float)), energies)


def test_writing_into_the_weights_and_biases_that_it_gives_changes_no_score(tiny):
    before = tiny.score_samples(ALL_ROWS)
    for found in (tiny.components_, tiny.intercept_hidden_, tiny.intercept_visible_):
        found -= found.min()
    assert np.array_equal(tiny.score_samples(ALL_ROWS), before)


def test_samples_have_the_law(fitted):
    draws = fitted.sample(4000, random_state=0)
    assert set(np.unique(draws)) == {0.0, 1.0}
    wanted = np.exp(fitted.score_samples(ALL_ROWS))
    counts = np.bincount((draws @ (1 << np.arange(8)[::-1])).astype(int), minlength=256)
    check_frequencies(torch.from_numpy(counts), torch.from_numpy(wanted))
    with pytest.raises(AssertionError, match="chi-square"):  # planted: those of other rows
        check_frequencies(torch.from_numpy(counts), torch.from_numpy(np.roll(wanted, 1)))
    assert np.array_equal(draws, fitted.sample(4000, random_state=0))


def test_one_seed_gives_one_machine_and_values_are_bits_above_the_threshold(tiny):
    scaled = clone(tiny).set_params(binarize=3.0).fit(ROWS * 5.0)
    assert np.array_equal(scaled.components_, tiny.components_)
    assert np.array_equal(scaled.score_samples([[5.0] * 8]), tiny.score_samples([[1] * 8]))
    other = clone(tiny).set_params(random_state=1).fit(ROWS)
    assert not np.array_equal(other.components_, tiny.components_)


def test_probabilities_of_bits_are_drawn_anew_in_each_step():
    soft = np.full((200, 4), 0.5)
    soft[:, :2] = np.repeat([[0.9], [0.1]], 100, 0)
    density = BoltzmannDensity(num_hidden=2, binarize=None, num_epochs=300, random_state=0).fit(soft)
    assert np.abs(density.sample(4000, random_state=0).mean(0) - 0.5).max() < 0.05
    together = density.score_samples([[1, 1, 0, 0]]) - density.score_samples([[1, 0, 0, 0]])
    assert 0.8 < together < 2.2  # log of (0.81 + 0.01) / 0.18 is 1.5
    assert density.transform(soft).shape == (200, 2)
    assert refused_argument(density.score_samples, soft) == "X"


def test_showing_it_estimates_nothing():
    """Notebooks show all attributes of what was fitted."""
    density = BoltzmannDensity(**(TINY | {"num_epochs": 1})).fit(ROWS)
    assert "num_hidden" in density._repr_html_()
    assert "log_partition_" not in dir(density)
    assert np.isfinite(density.log_partition_.value)
    assert "log_partition_" in dir(density)


LAWS = ("bernoulli", "categorical", "gaussian", "negative-binomial")


@pytest.mark.parametrize(
    "estimator",
    [BoltzmannDensity(num_epochs=1), *(DiscreteVAETransformer(num_epochs=1, likelihood=law) for law in LAWS)],
)
def test_settings_of_torch_change_nothing(estimator):
    estimator.set_params(random_state=0)
    with torch.device("meta"), torch.no_grad():
        drawn = estimator.fit(ROWS).sample(3, random_state=0)
    assert np.array_equal(estimator.fit(ROWS).sample(3, random_state=0), drawn)


@pytest.mark.parametrize(
    ("change", "rows", "name"),
    [
        ({"num_hidden": 0}, ROWS, "num_hidden"),
        ({"num_hidden": 10**12}, ROWS, "num_hidden"),
        ({"learning_rate": -1.0}, ROWS, "learning_rate"),
        ({"binarize": "yes"}, ROWS, "binarize"),
        ({"log_partition_sweeps": 0}, ROWS, "log_partition_sweeps"),
        ({"binarize": None}, 2 * ROWS, "X"),
        ({"binarize": None, "contamination": 0.1}, 0.5 * ROWS, "contamination"),
    ],
)
def test_wrong_arguments_are_named(change, rows, name):
    density = BoltzmannDensity(**(TINY | {"num_epochs": 1} | change))
    assert refused_argument(lambda: density.fit(rows).score(rows)) == name


@pytest.mark.parametrize(
    "call",
    [
        lambda density: density.fit(np.zeros((1, 3))),
        lambda density: density.fit(np.full((5, 3), np.nan)),
        lambda density: density.inverse_transform([["a"]]),
        lambda density: density.inverse_transform(np.zeros((2, 1))),
        lambda density: density.inverse_transform(np.full((2, TINY["num_hidden"]), 2.0)),
    ],
)
def test_wrong_arrays_are_refused(tiny, call):
    with pytest.raises(ValueError):  # noqa: PT011 (scikit-learn's own for some)
        call(copy(tiny))
