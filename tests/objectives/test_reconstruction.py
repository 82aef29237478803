"""The gradient of E[f(zeta)] through the smoothed posterior, against quadrature."""

import pytest
import torch

from discrete_vae import SpikeSlab
from discrete_vae.testing.goodness_of_fit import check_mean
from tests.oracles.polynomial_posterior import PolynomialPosterior
from tests.transformations import OVERLAPPING, SMOOTHINGS, spike

# name -> (groups, offsets of the logits, smoothing)
CASES = {
    "three groups": ([[0], [1], [2]], [0.3, -0.8, 0.5], spike(3.0)),
    "two units in one group": ([[0, 2], [1]], [0.5, -0.4, 0.2], spike(2.0)),
    "interleaved": ([[1], [0, 2]], [0.2, 0.4, -0.6], spike(1.0)),
    "logits of nine": ([[0], [1]], [9.0, -9.0], spike(1.0)),
    "large beta": ([[0], [1]], [0.3, -0.5], spike(8.0)),
    "slab": ([[0], [1], [2]], [-0.2, 0.8, 0.1], SpikeSlab),
}
CASES |= {f"{kind}, interleaved": ([[1], [0, 2]], [0.2, 2.4, -1.6], SMOOTHINGS[kind]) for kind in OVERLAPPING}


def build(name):
    groups, offset, make = CASES[name]
    return PolynomialPosterior(groups, make(), offset)


def log_likelihood(zeta):
    """A curved, smooth log p(x | zeta)."""
    width = zeta.shape[-1]
    generator = torch.Generator().manual_seed(3)
    first = torch.randn(width, 4, dtype=torch.float64, generator=generator)
    return torch.nn.functional.logsigmoid(
        torch.tanh(zeta @ first).sum(-1) + (zeta.roll(1, -1) * zeta).sum(-1)
    )


def flat_gradient(value, posterior):
    wrt = list(posterior.parameters())
    return torch.cat([value.detach()[None], *(g.flatten() for g in torch.autograd.grad(value, wrt))])


def exact(posterior, num_nodes=24):
    quadrature = posterior.quadrature(num_nodes)
    return flat_gradient(quadrature.expectation(log_likelihood(quadrature.nodes.zeta)), posterior)


def estimates(posterior, draw, num_batches=60, batch_size=5000):
    generator = torch.Generator().manual_seed(5)
    return torch.stack(
        [
            flat_gradient(log_likelihood(draw(posterior, batch_size, generator)).mean(), posterior)
            for _ in range(num_batches)
        ]
    )


def ours(posterior, batch_size, generator):
    return posterior.rsample(batch_size, generator)[1]


def zeta_of_a_second_draw(posterior, batch_size, generator):
    """zeta keeps its slope but takes its on-off pattern from an independent draw of z."""
    groups, zeta = posterior.rsample(batch_size, generator)
    order = torch.cat([group.units for group in groups]).argsort()
    logits = torch.cat([group.logits for group in groups], -1)[:, order]
    return zeta * torch.bernoulli(torch.sigmoid(logits.detach()), generator=generator)


@pytest.mark.parametrize("name", CASES)
def test_value_and_every_gradient_are_unbiased(name):
    posterior = build(name)
    num_batches = 32 if name.startswith(OVERLAPPING) else 60  # these are smoother, and cost more
    check_mean(estimates(posterior, ours, num_batches), exact(posterior), resolution=0.02)


@pytest.mark.parametrize("name", ["three groups", "large beta", "overlapping-power, interleaved"])
def test_quadrature_has_converged(name):
    posterior = build(name)
    torch.testing.assert_close(exact(posterior, 12), exact(posterior, 24), rtol=1e-7, atol=1e-8)


def test_a_second_draw_of_z_is_rejected():
    posterior = build("three groups")
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(estimates(posterior, zeta_of_a_second_draw), exact(posterior))
