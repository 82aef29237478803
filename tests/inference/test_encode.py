"""Codes, reconstructions and denoised examples against enumeration of the latents; nearest codes one by one."""

import numpy as np
import pytest
import torch

from discrete_vae import exact_log_partition
from discrete_vae.inference.encode import (
    _clean,
    denoise_rows,
    drawn,
    encode_rows,
    flip_bits,
    nearest_codes,
    reconstruct_rows,
)
from discrete_vae.inference.score import mean_error
from discrete_vae.testing import all_states
from tests.inference.models import small_model, some_bits
from tests.models import small_model as small_model_of
from tests.refusals import refused_argument


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
        many = features.repeat(2500, 1), zeta.repeat(2500, 1)
        draws = model.hierarchy.rsample(*many).h[:, 0].unflatten(0, (2500, -1))
    error = draws.std(0) / 2500**0.5
    assert bool(((draws.mean(0) - torch.from_numpy(codes.continuous[:, 0])).abs() < 5 * error).all())


def test_draws_have_the_frequencies_of_the_posterior():
    model, x = small_model().discretized(), some_bits(1)
    log_q, states = enumerated(model, x)
    many = encode_rows(model, x.expand(3000, -1), draw=True, seed=3)
    exact = np.exp(log_q[:, 0]) @ states
    error = np.sqrt(exact * (1 - exact) / 3000)
    assert (np.abs(many.bits.mean(0) - exact) < 5 * error + 1e-9).all()  # alpha 5e-6 of 7 units
    other = encode_rows(model, 1 - x.expand(3000, -1), draw=True, seed=3)  # a planted fault: q of another x
    assert not (np.abs(other.bits.mean(0) - exact) < 5 * error + 1e-9).all()
    assert len(np.unique(many.packed, axis=0)) > 1
    again = encode_rows(model, x.expand(3, -1), draw=True, seed=3, numbers=[5, 17, 2500])
    np.testing.assert_array_equal(again.bits, many.bits[[5, 17, 2500]])


@pytest.mark.parametrize("num_classes", [0, 2])
def test_the_log_ratio_of_a_draw_is_that_of_its_densities(num_classes):
    model, x = small_model(layers=2, num_classes=num_classes, scale=0.2), some_bits(7)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        read = model.features_of(x, None)
        found = drawn(model, read, torch.Generator().manual_seed(1))
        features, log_q = model.with_drawn_label(read, generator=generator)
        sample = model.posterior.rsample(features, generator=generator)
        below = model.hierarchy.rsample(features, sample.zeta, generator=generator)
    assert torch.equal(found.h, below.h)
    of_p, of_q = (
        torch.distributions.Normal(law.mean, law.log_std.exp()).log_prob(found.h).sum((1, 2))
        for law in (below.prior, below.posterior)
    )
    expected = of_p - of_q - torch.nn.functional.logsigmoid((2 * found.z - 1) * sample.logits).sum(1)
    if num_classes:
        expected = expected - log_q[found.z[:, :2] == 1]
    torch.testing.assert_close(found.log_ratio, expected)


def test_reconstructions_are_those_of_the_model():
    model, x = small_model(layers=2), some_bits(5)
    found = reconstruct_rows(model, x, num_draws=120, batch_size=5)
    own = torch.stack([model.reconstruct(x, seed=seed) for seed in range(120)]).double().numpy()
    assert (np.abs(found - own.mean(0)) < 6 * own.std(0) * (2 / 120) ** 0.5 + 1e-5).all()
    one = reconstruct_rows(model, x, seed=4)
    np.testing.assert_array_equal(reconstruct_rows(model, x[2:3], seed=4, numbers=[2]), one[2:3])

    codes = encode_rows(model, x)
    decoded = model.decode(torch.from_numpy(codes.zeta), torch.from_numpy(codes.continuous))
    np.testing.assert_allclose(reconstruct_rows(model, x, code=True), decoded, atol=1e-6)


def test_modes_and_samples_are_bits():
    model, x = small_model(), some_bits(400, seed=2)
    mean, mode, sample = (reconstruct_rows(model, x, statistic=name) for name in ("mean", "mode", "sample"))
    np.testing.assert_array_equal(mode, mean > 0.5)
    assert set(np.unique(sample)) == {0.0, 1.0}
    error = np.sqrt((mean * (1 - mean)).mean() / mean.size)
    assert abs(sample.mean() - mean.mean()) < 5 * error
    alone = reconstruct_rows(model, x[7:8], statistic="sample", numbers=[7])
    np.testing.assert_array_equal(alone, sample[7:8])


def exact_clean(model, y, flips):
    """E[x | y] of a model with zeta = z, by a sum over all codes and Bayes' rule for each bit."""
    z = all_states(model.prior.num_units).float()
    with torch.no_grad():
        means = model.likelihood.mean(model.parameters_of(z)).double()
        log_prior = -model.prior.energy(z).double() - exact_log_partition(model.prior).value
    found = []
    for row in y.double():
        keep = torch.where(row == 1, 1 - flips, flips)
        of_bit = means * keep + (1 - means) * (1 - keep)
        weights = (log_prior + of_bit.log().sum(1)).softmax(0)
        found.append((weights[:, None] * means * keep / of_bit).sum(0))
    return torch.stack(found).numpy()


def test_denoising_converges_to_bayes_rule():
    model, y = small_model(scale=0.3).discretized(), some_bits(3)
    exact = exact_clean(model, y, 0.2)
    found = denoise_rows(model, y, noise=0.2, num_draws=600, batch_size=3)
    np.testing.assert_allclose(found, exact, atol=0.047)
    # a planted fault: without the weights and what was seen
    assert np.abs(denoise_rows(model, y, num_draws=100, batch_size=3) - exact).max() > 0.1
    whole = denoise_rows(model, y, noise=0.2, num_draws=2)
    alone = denoise_rows(model, y[2:], noise=0.2, num_draws=2, numbers=[2])
    np.testing.assert_array_equal(alone, whole[2:])
    gapped = some_bits(4)
    gapped[0, 1] = torch.nan
    assert np.isfinite(denoise_rows(small_model(missing=True), gapped, noise=0.1)).all()


def test_a_gap_says_nothing_of_what_is_clean():
    mean, y = torch.rand(5, 3), some_bits(5, 3)
    y[:, 1] = torch.nan
    cleaned, log_prob = _clean(mean, y, ~y.isnan(), 0.2)
    of_seen, right = _clean(mean[:, [0, 2]], y[:, [0, 2]], None, 0.2)
    torch.testing.assert_close(cleaned, torch.stack([of_seen[:, 0], mean[:, 1], of_seen[:, 1]], 1))
    torch.testing.assert_close(log_prob, right)


def test_bits_are_flipped_with_the_probability_and_by_row():
    x = torch.zeros(5000, 6)
    flipped = flip_bits(x, 0.1, seed=1)
    assert abs(float(flipped.mean()) - 0.1) < 5 * (0.09 / 30_000) ** 0.5
    assert torch.equal(flip_bits(x[:2], 0.1, seed=1, numbers=[7, 4999]), flipped[[7, 4999]])


def test_errors_are_counted_over_observed_values():
    truth = np.array([[0.0, 1.0, np.nan], [1.0, 1.0, 1.0]])
    found, _ = mean_error(truth, np.array([[0.9, 0.9, 0.0], [0.2, 0.6, 0.7]]), is_share=True)
    assert found == pytest.approx(2 / 5)
    random = np.random.default_rng(0)
    values = random.normal(size=(3000, 4)) * [1, 10, 100, 0.1]
    noise = random.normal(size=values.shape) * [1, 10, 100, 0.1]
    found, std_error = mean_error(values, values + 0.5 * noise, is_share=False)
    assert abs(found - 0.5) < 5 * std_error < 0.05
    with_constant = [np.column_stack([each, np.full(3000, 7.0)]) for each in (values, values + 0.5 * noise)]
    with_constant[1][:, 4] += 1e6  # a feature that does not vary has no unit
    assert mean_error(*with_constant, is_share=False)[0] == pytest.approx(found)
    assert np.isnan(mean_error(values[:1], values[:1] + 1, is_share=False)).all()
    few = np.full((500, 3), np.nan)
    few[[7, 90]] = [[1.0, 2.0, 0.0], [0.0, np.nan, 1.0]]
    guess = random.integers(0, 3, few.shape)
    assert mean_error(few, guess, is_share=True) == mean_error(few[[7, 90]], guess[[7, 90]], is_share=True)
    right, error = mean_error(few, few, is_share=True)
    assert right == 0
    assert error > 0  # two examples without an error do not show that there are none
    # values of an example are alike; the spread of 400 is 15 % off once in fifty thousand runs
    drawn = np.repeat(random.random((400, 60, 1)) < 0.3, 5, 2)
    found, std_error = np.array([mean_error(wrong, np.zeros((60, 5)), is_share=True) for wrong in drawn]).T
    assert std_error.mean() == pytest.approx(found.std(), rel=0.15)
    truth = random.normal(size=(60, 5))
    guesses = truth + 0.5 * random.normal(size=(400, 60, 1))
    found, std_error = np.array([mean_error(truth, guess, is_share=False) for guess in guesses]).T
    assert std_error.mean() == pytest.approx(found.std(), rel=0.15)


def packed(rows, units, seed):
    return np.packbits(np.random.default_rng(seed).random((rows, units)) < 0.3, axis=1)


@pytest.mark.parametrize(
    ("units", "rows", "k", "alone"),
    [(3, 50, 7, False), (64, 5000, 10, False), (130, 41, 41, False), (8, 1, 1, False), (20, 40, 39, True)],
)
def test_neighbors_are_those_of_a_search_one_by_one(units, rows, k, alone, threads_of_torch):
    """Of equal distances the first; a row may leave itself out."""
    queries, among, done = packed(11, units, 0), packed(rows, units, 1), []
    excluded = np.arange(rows) if alone else None
    queries = among if alone else queries
    distances = np.bitwise_count(queries[:, None] ^ among).sum(-1, dtype=np.int64)
    if alone:
        np.fill_diagonal(distances, 10**6)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    for threads in (1, 2):
        threads_of_torch(threads)
        found = nearest_codes(queries, among, k, excluded=excluded, report=done.append)
        assert (found.indices == order).all()
        assert (found.distances == np.take_along_axis(distances, order, 1)).all()
        assert done[-1] == rows


def test_each_query_leaves_out_one_row():
    codes = packed(8, 5, 0)
    for places in ([0], 0, np.zeros((8, 1), int)):
        assert refused_argument(nearest_codes, codes, codes, 3, excluded=np.array(places)) == "excluded"


def test_a_class_may_be_certain():
    model = small_model_of(num_classes=3)
    with torch.no_grad():
        for module in (model.posterior, model.encoder):
            for parameter in module.parameters():
                parameter.mul_(3000.0)
    x = torch.bernoulli(torch.full((20, 5), 0.5), generator=torch.Generator().manual_seed(0))
    assert len(encode_rows(model, x).packed) == 20
    assert np.isfinite(reconstruct_rows(model, x)).all()
