"""The figure of the shifted form: its quadrature against enumeration of another kind, bias found where it is."""

import numpy as np
import pytest
import torch

from discrete_vae.errors import InvalidInputError
from reproduction.shifted_spike_gaussian import draw_shifted_spike_gaussian, shifted_spike_gaussian_table


@pytest.fixture(scope="module")
def table():
    return shifted_spike_gaussian_table([0.2, 0.5, 0.8], num_draws=40_000)


def rows(table, form, term):
    return (table.form == form) & (table.term == term)


@pytest.mark.parametrize("term", ["reconstruction", "KL"])
def test_the_shifted_form_is_biased_and_the_other_is_not(table, term):
    assert np.abs(table.z_score[rows(table, "unshifted", term)]).max() < 4.9
    assert np.abs(table.z_score[rows(table, "shifted", term)]).min() > 5


def test_the_exact_gradients_are_differences_of_plain_averages(table):
    """E by the law of z and zeta itself, from many draws of zeta that share nothing with the inverse CDF."""
    noise = torch.Generator().manual_seed(0)
    normal = 0.5 + torch.randn(400_000, 2, generator=noise, dtype=torch.float64)
    weight, bias = 1.5, (0.3, -0.6)

    def terms(z, zeta, logit):
        logits = torch.stack([torch.full_like(zeta[:, 0], logit), -0.4 + 1.5 * torch.tanh(zeta[:, 0])], -1)
        q = torch.sigmoid(logits)
        log_q = torch.where(z > 0, q, 1 - q).log().sum(-1)
        log_p = weight * z[:, 0] * z[:, 1] + z @ torch.tensor(bias, dtype=torch.float64)
        of_zeta = 0.125 * q.sum(-1)  # q KL[N(1/2, 1) || N(0, 1)]
        likelihood = torch.nn.functional.logsigmoid(torch.tanh(zeta) @ torch.tensor([1.5, -1.0]).double())
        return log_q, likelihood, log_q - log_p + of_zeta

    def expectations(logit):
        found = torch.zeros(2, dtype=torch.float64)
        for bits in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)):
            z = torch.tensor(bits, dtype=torch.float64).expand(len(normal), 2)
            log_q, likelihood, divergence = terms(z, normal * z, logit)
            found += (log_q.exp()[:, None] * torch.stack([likelihood, divergence], -1)).mean(0)
        return found

    for q in (0.2, 0.5, 0.8):
        logit = float(np.log(q / (1 - q)))
        slope = (expectations(logit + 1e-3) - expectations(logit - 1e-3)) / 2e-3
        for term, value in zip(("reconstruction", "KL"), slope, strict=True):
            (exact,) = set(table.exact[rows(table, "unshifted", term) & (table.q == q)])
            assert exact == pytest.approx(float(value), abs=3e-3)
            assert set(table.exact[rows(table, "shifted", term) & (table.q == q)]) == {exact}


def test_the_noise_is_keyed(table):
    again = shifted_spike_gaussian_table([0.2, 0.5, 0.8], num_draws=40_000)
    other = shifted_spike_gaussian_table([0.2, 0.5, 0.8], num_draws=1000, seed=1)
    np.testing.assert_array_equal(table.mean, again.mean)
    np.testing.assert_array_equal(table.exact, other.exact)
    assert not (table.mean == other.mean).any()
    assert (other.std_error > table.std_error)[table.form == "unshifted"].all()


def test_two_panels_per_term():
    picture = draw_shifted_spike_gaussian(shifted_spike_gaussian_table([0.4], num_draws=100))
    assert len(picture.axes) == 4
    labels = [text.get_text() for text in picture.legends[0].get_texts()]
    assert labels == ["exact", "unshifted, mean of draws", "shifted, mean of draws"]


def test_a_number_of_draws_that_is_none():
    with pytest.raises(InvalidInputError, match="num_draws must be a positive integer"):
        shifted_spike_gaussian_table([0.5], num_draws=0)
