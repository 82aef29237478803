"""The variance of stochastic gradients against laws that are known exactly."""

import math
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from discrete_vae import (
    RBM,
    DisARM,
    DiscreteVAE,
    HierarchicalPosterior,
    LeaveOneOut,
    Reinforce,
    Reparameterized,
    SpikeSlab,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.likelihoods.base import BernoulliLikelihood
from reproduction.gradient_variance import gradient_variance

STEEP = torch.tensor([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0]])  # g = offset + STEEP^T noise
OFFSET = torch.tensor([3.0, -1.0, 0.5])


def linear(parameter, offset=OFFSET, steep=STEEP):
    return lambda noise: (parameter * (offset + torch.randn(2, generator=noise) @ steep)).sum()


@pytest.fixture
def parameter():
    return torch.zeros(3, requires_grad=True)


def test_trace_and_squared_norm_of_a_known_law(parameter):
    exact, norm = float(STEEP.square().sum()), float(OFFSET.square().sum())
    for num_draws, repeats in ((20, 200), (4, 1500)):
        asked = {"parameters": [parameter], "num_draws": num_draws}
        found = [gradient_variance(linear(parameter), **asked, seed=seed) for seed in range(repeats)]
        for name, value in (("variance", exact), ("squared_norm", norm)):
            values = torch.tensor([getattr(each, name) for each in found], dtype=torch.float64)
            error = float(values.std()) / math.sqrt(repeats)
            assert abs(float(values.mean()) - value) < 4.9 * error, name
            assert error < 0.05 * value
        if num_draws > 4:
            spread = torch.tensor([each.variance for each in found]).std()
            stated = torch.tensor([each.std_error for each in found]).mean()
            assert stated == pytest.approx(float(spread), rel=0.2)
    # the planted fault: |mean of the draws|^2 holds the variance over their number
    naive = torch.tensor([float(each.mean.square().sum()) for each in found], dtype=torch.float64)
    assert abs(float(naive.mean()) - norm) > 4.9 * error


def test_the_noise_is_keyed_and_a_parameter_that_is_not_reached_counts_as_zero(parameter):
    both = [parameter, torch.zeros(4, requires_grad=True)]
    first, again, other = (
        gradient_variance(linear(parameter), which, num_draws=10, seed=seed)
        for which, seed in (([parameter], 5), (both, 5), (both, 6))
    )
    assert first.variance == again.variance != other.variance
    assert again.mean.tolist() == [*first.mean.tolist(), 0, 0, 0, 0]
    assert first.seconds > 0


def test_the_distance_of_means_tells_bias_from_chance(parameter):
    reference = gradient_variance(linear(parameter), [parameter], num_draws=400, seed=1)
    noisy = gradient_variance(linear(parameter, steep=5 * STEEP), [parameter], num_draws=400, seed=2)
    biased = gradient_variance(linear(parameter, OFFSET * 1.6), [parameter], num_draws=400, seed=2)
    assert noisy.distance(reference) < 10
    assert biased.distance(reference) > 50
    assert biased.distance(reference) == pytest.approx(reference.distance(biased))
    assert reference.distance(reference) == 0


@pytest.mark.parametrize(
    ("changes", "offset", "said"),
    [
        *(({"num_draws": number}, OFFSET, "^num_draws ") for number in (2, 5, 0, 2.5)),
        ({"parameters": []}, OFFSET, "^parameters "),
        ({}, OFFSET * math.inf, "the gradient must be finite"),
    ],
)
def test_wrong_arguments_are_named(parameter, changes, offset, said):
    asked = {"parameters": [parameter], "num_draws": 4} | changes
    with pytest.raises(InvalidInputError, match=said):
        gradient_variance(linear(parameter, offset), **asked)


X = np.array([1.0, 0.0, 1.0])
LOGITS = np.array([0.6, -0.9])
DECODER, OUTPUT = np.array([[2.0, -1.0], [-1.5, 0.7], [0.4, 2.2]]), np.array([0.3, -0.2, -1.0])
WEIGHT, BIAS = 1.7, np.array([0.4, -0.8])
Q = 1 / (1 + np.exp(-LOGITS))
P = 1 - Q
NODES, SHARES = (part for part in np.polynomial.legendre.leggauss(10))
NODES, SHARES = (NODES + 1) / 2, SHARES / 2


def log_likelihood(zeta):
    outputs = DECODER @ zeta + OUTPUT
    return float((X * outputs - np.logaddexp(0, outputs)).sum())


def slope_of_log_likelihood(zeta):
    outputs = DECODER @ zeta + OUTPUT
    return (X - 1 / (1 + np.exp(-outputs))) @ DECODER


def of_the_kl():
    """d KL / d logits: entropies, biases, and the pair, of which both units take q."""
    return Q * P * (LOGITS - BIAS - WEIGHT * Q[::-1])


def uniform_pairs():
    """Two independent uniforms, each on nodes: values and weight."""
    for i, j in product(range(len(NODES)), repeat=2):
        yield np.array([NODES[i], NODES[j]]), SHARES[i] * SHARES[j]


def bits(z):
    return np.prod(np.where(z, Q, P))


def reparameterized():
    """zeta = 1 - v where z = 1, v uniform; d zeta / d l = p v."""
    for z in product((0, 1), repeat=2):
        z = np.array(z)
        for v, weight in uniform_pairs():
            yield bits(z) * weight, -slope_of_log_likelihood(z * (1 - v)) * z * P * v


def reinforce():
    for z in product((0, 1), repeat=2):
        z = np.array(z)
        for e, weight in uniform_pairs():
            yield bits(z) * weight, -log_likelihood(z * e) * (z - Q)


def leave_one_out():
    """Two draws that share the noise of zeta."""
    for states in product((0, 1), repeat=4):
        z, other = np.array(states[:2]), np.array(states[2:])
        for e, weight in uniform_pairs():
            difference = log_likelihood(other * e) - log_likelihood(z * e)
            yield bits(z) * bits(other) * weight, 0.5 * difference * (z - other)


def disarm():
    """u < q and 1 - u < q: the pieces of u on which neither changes."""
    pieces = []
    for q in Q:
        edges = sorted({0.0, 1.0, q, 1 - q})
        middles = [((a + b) / 2, b - a) for a, b in pairwise(edges)]
        pieces.append([(float(u < q), float(1 - u < q), length) for u, length in middles])
    for first, second in product(*pieces):
        z, other = np.array([first[0], second[0]]), np.array([first[1], second[1]])
        for e, weight in uniform_pairs():
            difference = log_likelihood(other * e) - log_likelihood(z * e)
            slope = 1 / (1 + np.exp(-np.abs(LOGITS)))
            yield first[2] * second[2] * weight, 0.5 * difference * (z - other) * slope


ESTIMATORS = {
    "reparameterized": (reparameterized, Reparameterized),
    "reinforce": (reinforce, Reinforce),
    "leave one out": (leave_one_out, LeaveOneOut),
    "disarm": (disarm, DisARM),
}


def exact(law):
    """Mean of the whole gradient and trace of its covariance."""
    weights, values = (np.array(each) for each in zip(*law(), strict=True))
    assert weights.sum() == pytest.approx(1)
    mean = weights @ values
    return mean + of_the_kl(), float(weights @ (values**2).sum(1) - (mean**2).sum())


@pytest.fixture(scope="module")
def model():
    posterior = HierarchicalPosterior(3, [[0, 1]], (), SpikeSlab())
    made = DiscreteVAE(prior=RBM(1, 1), posterior=posterior, likelihood=BernoulliLikelihood((3,)))
    with torch.no_grad():
        for parameter in made.posterior.networks.parameters():
            parameter.zero_()
        posterior.norms[0].offset.copy_(torch.from_numpy(LOGITS))
        made.prior.weight.fill_(WEIGHT)
        made.prior.bias.copy_(torch.from_numpy(BIAS))
        (last,) = [module for module in made.decoder.modules() if isinstance(module, torch.nn.Linear)]
        last.weight.copy_(torch.from_numpy(DECODER))
        last.bias.copy_(torch.from_numpy(OUTPUT))
    return made.eval()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_measured_variance_is_the_exact_one(model, name):
    law, kind = ESTIMATORS[name]
    mean, variance = exact(law)
    x = torch.from_numpy(X).float()[None]
    states = torch.zeros(1, model.prior.num_units)  # for the prior's gradient, which is not taken
    draw = partial(model.estimate_gradient, kind.of(model), x, negative_phase=states)
    offset = model.posterior.norms[0].offset
    found = gradient_variance(lambda noise: draw(generator=noise).loss, [offset], num_draws=500)
    assert found.std_error < 0.16 * variance
    assert abs(found.variance - variance) < 4.9 * found.std_error
    assert abs(found.variance - 2 * variance) > 4.9 * found.std_error  # another one would be seen
    error = np.sqrt(variance / found.num_draws)
    np.testing.assert_allclose(found.mean.numpy(), mean, rtol=0, atol=4.9 * error)
    assert found.squared_norm == pytest.approx(float(mean @ mean), abs=12 * np.linalg.norm(mean) * error)
