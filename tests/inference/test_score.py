"""Scores: those of the model's own functions, row by row; p-values and areas by counting."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from discrete_vae.inference.predict import class_accuracy
from discrete_vae.inference.score import (
    elbo_rows,
    p_values,
    reference_numbers,
    roc_area,
    score_features,
    score_rows,
)
from discrete_vae.rng import key_to_seed
from discrete_vae.testing import all_states
from tests.inference.models import small_model, some_bits


@pytest.mark.parametrize("layers", [0, 2])
def test_scores_are_those_of_log_likelihood_bit_for_bit(layers):
    model, x = small_model(layers=layers), some_bits(11)
    found = score_rows(model, x, log_partition=1.5, num_samples=30)
    rows = [3, 4, *[9] * 62]  # products of as many rows
    keys = [key_to_seed(0, 0x6C6C, row) for row in rows]
    got = model.log_likelihood(x[rows], 30, log_partition=1.5, keys=keys)
    np.testing.assert_array_equal(got.value, found.value[rows])
    np.testing.assert_array_equal(got.std_error, found.std_error[rows])
    some = score_rows(model, x[[7, 2]], log_partition=1.5, num_samples=30, numbers=[7, 2])
    np.testing.assert_array_equal(some.value, found.value[[7, 2]])
    other = score_rows(model, x, log_partition=1.5, num_samples=30, seed=1)
    assert (other.value != found.value).all()


def test_elbo_is_that_of_the_model():
    model, x = small_model(layers=2, scale=0.2), some_bits(5)
    found = elbo_rows(model, x, log_partition=2.0, num_samples=60, batch_size=5)
    with torch.no_grad():
        own = torch.stack([model.elbo(x, log_partition=2.0).value for _ in range(60)]).double()
    error = np.hypot(found.std_error, own.std(0).numpy() / 60**0.5)
    assert (error < 0.4).all()
    assert (np.abs(own.mean(0).numpy() - found.value) < 5 * error).all()
    assert (found.is_bound, found.mean) == (True, pytest.approx(found.value.mean()))
    alone = elbo_rows(model, x[3:4], log_partition=2.0, num_samples=60, numbers=[3], batch_size=5)
    assert alone.value == found.value[3]
    one, two = (elbo_rows(model, x, log_partition=2.0, num_samples=n, batch_size=5) for n in (1, 2))
    assert np.isnan(one.std_error).all()
    np.testing.assert_allclose(two.std_error, np.abs(one.value - two.value), rtol=1e-4)  # half their distance


def test_accuracy_and_log_loss_by_hand():
    law = np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8], [0.9, 0.1]])
    found = class_accuracy(np.log(law), np.array([0, 0, 1, -1]))
    losses = -np.log([0.7, 0.4, 0.8])
    error = np.sqrt(0.6 * 0.4 / 3)  # of the share (2 + 1) / (3 + 2)
    right = {"accuracy": 2 / 3, "std_error": error, "most_frequent": 2 / 3, "num_examples": 3}
    right |= {"log_loss": losses.mean(), "log_loss_std_error": losses.std(ddof=1) / np.sqrt(3)}
    assert asdict(found) == pytest.approx(right | {"effective_examples": None})


def test_weighted_accuracy_and_log_loss_by_hand():
    law, weights = np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8], [0.9, 0.1]]), np.array([1.0, 2.0, 5.0, 7.0])
    found = class_accuracy(np.log(law), np.array([0, 0, 1, -1]), torch.from_numpy(weights))
    own, losses = weights[:3] / 8, -np.log([0.7, 0.4, 0.8])
    assert (found.accuracy, found.most_frequent) == pytest.approx((0.75, 0.625))
    assert (found.log_loss, found.num_examples) == (pytest.approx(own @ losses), 3)
    error = np.sqrt(1.5 * (own**2 @ (losses - own @ losses) ** 2))
    count = 1 / (own**2).sum()
    smoothed = (0.75 * count + 1) / (count + 2)
    assert found.effective_examples == pytest.approx(count)
    assert found.log_loss_std_error == pytest.approx(error)
    assert found.std_error == pytest.approx(np.sqrt(smoothed * (1 - smoothed) / count))


def test_p_values_count_what_is_as_low():
    random = np.random.default_rng(0)
    reference, scores = random.normal(size=50).round(1), random.normal(size=80).round(1)
    by_counting = (1 + (reference <= scores[:, None]).sum(1)) / 51
    np.testing.assert_array_equal(p_values(scores, reference), by_counting)
    assert p_values(np.array([-99.0, 99.0]), reference).tolist() == [1 / 51, 1]
    assert not set(reference_numbers(np.arange(1000))) & set(range(100_000))  # noise of their own


def without_itself(scores, reference):
    return np.array([(reference <= score).mean() for score in scores])


def strictly_below(scores, reference):
    return np.array([(1 + (reference < score).sum()) / (1 + len(reference)) for score in scores])


@pytest.mark.parametrize(
    ("make_p_values", "valid"), [(p_values, True), (without_itself, False), (strictly_below, False)]
)
def test_p_values_are_valid_and_plausible_faults_are_not(make_p_values, valid):
    """How often familiar examples, with ties, have a p-value of at most 1/4."""
    drawn = np.random.default_rng(1).integers(0, 6, (6000, 5)).astype(float)
    alarms = np.array([make_p_values(row[:1], row[1:])[0] for row in drawn]) <= 0.25
    assert (alarms.mean() <= 0.25 + 5 * alarms.std() / 6000**0.5) == valid


def test_the_area_counts_pairs_and_its_error_is_that_of_samples():
    random = np.random.default_rng(0)
    familiar, strange = random.normal(1, 1, 30).round(1), random.normal(0, 1, 20).round(1)
    pairs = familiar[:, None] - strange
    found = roc_area(familiar, strange)
    assert found.value == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    many = [roc_area(random.normal(1, 1, 30), random.normal(0, 1, 20)) for _ in range(300)]
    spread = np.std([each.value for each in many])
    assert np.sqrt(np.mean([each.std_error**2 for each in many])) == pytest.approx(spread, rel=0.2)
    assert np.isnan(roc_area(familiar, strange[:1]).std_error)
    assert np.isnan(roc_area(familiar, familiar.min() - np.arange(1.0, 3)).std_error)  # all are told apart


def test_scores_of_features_are_conditional_probabilities_of_the_enumerated_model():
    model, x = small_model(missing=True, scale=0.4).discretized(), some_bits(6)
    x[2, 1] = x[4] = torch.nan
    z = all_states(5).float()
    with torch.no_grad():
        log_prior = -model.prior.energy(z).double()[:, None]
        parameters = model.parameters_of(z[:, None].expand(-1, 6, -1))
        of_features = model.likelihood.feature_log_prob(parameters, x.nan_to_num(0)).double()
        of_features = of_features.masked_fill(x.isnan(), 0)
        joint = (of_features.sum(2) + log_prior)[..., None]
        without = torch.logsumexp(joint - of_features, 0)
        exact = (torch.logsumexp(joint, 0) - without).masked_fill(x.isnan(), torch.nan).numpy()
        marginals = (torch.logsumexp(of_features + log_prior[..., None], 0)) - torch.logsumexp(log_prior, 0)
    draws = np.stack([score_features(model, x, num_samples=1000, seed=seed) for seed in range(8)])
    error = draws.std(0, ddof=1) / 8**0.5
    seen = ~np.isnan(exact)
    assert (np.isnan(draws[0]) == ~seen).all()
    assert (np.abs(draws.mean(0) - exact)[seen] < 5 * error[seen] + 0.01).all()
    wrong = marginals.numpy()  # of a fault that leaves the other features out
    assert not (np.abs(draws.mean(0) - wrong)[seen] < 5 * error[seen] + 0.01).all()
    some = score_features(model, x[[5, 2]], num_samples=1000, numbers=[5, 2])
    np.testing.assert_allclose(some, draws[0][[5, 2]], rtol=1e-6)
