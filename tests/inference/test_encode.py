"""Codes: the greedy ones by enumeration of the posterior, draws by their frequencies."""

import numpy as np
import pytest
import torch

from discrete_vae.inference.encode import encode_rows
from discrete_vae.testing.enumeration import all_states
from tests.inference.models import small_model, some_bits


def enumerated(model, x):
    """log q(z | x) of every code of a model with zeta = z, (code, row), and the codes."""
    states = all_states(model.prior.num_units).float()
    with torch.no_grad():
        features = model.read(x, None)
        forced = (1 - states)[:, None].expand(-1, len(x), -1)  # z = 1 where u < q
        sample = model.posterior.sample_discretely(features, forced)
    assert torch.equal(sample.z, states[:, None].expand_as(sample.z))
    return sample.log_prob().double().numpy(), states.numpy()


def conditionals(log_q, states, code, group_of_unit):
    """q(z_i = 1 | x, the code's bits of the groups before i's), summed over all codes."""
    found = []
    for unit, group in enumerate(group_of_unit):
        before = group_of_unit < group
        agrees = (states[:, before] == code[before]).all(1)
        q = np.exp(log_q)
        found.append(q[agrees & (states[:, unit] == 1)].sum() / q[agrees].sum())
    return np.array(found)


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_probabilities_are_those_of_the_enumerated_posterior(groups):
    model, x = small_model(groups=groups).discretized(), some_bits(5)
    codes = encode_rows(model, x)
    log_q, states = enumerated(model, x)
    np.testing.assert_allclose(np.exp(log_q).sum(0), 1, rtol=1e-5)
    order = model.posterior.group_of_unit.numpy()
    for row in range(len(x)):
        exact = conditionals(log_q[:, row], states, codes.bits[row], order)
        np.testing.assert_allclose(codes.probabilities[row], exact, rtol=2e-5)
        np.testing.assert_array_equal(codes.bits[row], exact > 0.5)
    if groups == 1:  # then it is the most probable code of all
        np.testing.assert_array_equal(codes.bits, states[log_q.argmax(0)])
    if groups > 1:  # a planted fault: probabilities that forget the groups before
        marginal = np.stack([np.exp(log_q[:, row]) @ states for row in range(len(x))])
        assert np.abs(marginal - codes.probabilities).max() > 0.01


def test_zeta_is_the_median_at_the_bits_and_layers_are_means():
    model, x = small_model(layers=2), some_bits(7)
    codes = encode_rows(model, x)
    certain = (torch.from_numpy(codes.bits).float() - 0.5) * 90
    below = model.smoothing.cdf(torch.from_numpy(codes.zeta), certain)
    on = codes.bits == 1
    np.testing.assert_allclose(below.detach().numpy()[on], 0.5, atol=1e-4)
    assert (codes.zeta[~on] == 0).all()
    with torch.no_grad():
        zeta, features = torch.from_numpy(codes.zeta), model.read(x, None)
        draws = torch.stack([model.hierarchy.rsample(features, zeta).h[:, 0] for _ in range(2500)])
    error = draws.std(0) / 2500**0.5
    assert bool(((draws.mean(0) - torch.from_numpy(codes.continuous[:, 0])).abs() < 5 * error).all())


def test_packed_bits_are_in_the_documented_order():
    codes = encode_rows(small_model(units=(6, 5)), some_bits(9))
    assert codes.packed.shape == (9, 2)
    first = sum(int(bit) << (7 - place) for place, bit in enumerate(codes.bits[0][:8]))
    assert codes.packed[0, 0] == first
    assert (codes.packed[:, 1] & 0b11111 == 0).all()
    assert "continuous" not in codes.arrays()


def test_draws_have_the_frequencies_of_the_posterior():
    model, x = small_model().discretized(), some_bits(1)
    log_q, states = enumerated(model, x)
    many = encode_rows(model, x.expand(3000, -1), draw=True, seed=3)
    exact = np.exp(log_q[:, 0]) @ states
    error = np.sqrt(exact * (1 - exact) / 3000)
    assert (np.abs(many.bits.mean(0) - exact) < 5 * error + 1e-9).all()
    assert len(np.unique(many.packed, axis=0)) > 1
    again = encode_rows(model, x.expand(3, -1), draw=True, seed=3, numbers=[5, 17, 2500])
    np.testing.assert_array_equal(again.bits, many.bits[[5, 17, 2500]])
