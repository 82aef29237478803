"""The joint backward pass of zeta and bits against the plain formulas, differentiated by autograd in float64."""

import pytest
import torch

from discrete_vae import SpikeExponential, SpikeSlab
from discrete_vae.smoothing.spike import SharpLimit

SMOOTHINGS = {
    "exponential": lambda: SpikeExponential(beta=3.0).double(),
    "exponential, fixed": lambda: SpikeExponential(beta=3.0, trainable=False).double(),
    "slab": SpikeSlab,
    "sharp": SharpLimit,
}


def noise_and_logits(rows=200):
    generator = torch.Generator().manual_seed(0)
    rho = torch.rand(rows, 3, generator=generator, dtype=torch.float64)
    return rho, 3 * torch.randn(rows, 3, generator=generator, dtype=torch.float64)


def plain_zeta(smoothing, rho, logits):
    """Eq. probabilistic-encoder by v = (1 - rho)/q, with the unused branch made harmless."""
    v = (1 - rho) / torch.sigmoid(logits)
    inside = torch.where(v < 1, v, 0.5)
    if isinstance(smoothing, SpikeExponential):
        inside = 1 + torch.log1p(inside * torch.expm1(-smoothing.beta)) / smoothing.beta
    else:
        inside = 1 - inside if isinstance(smoothing, SpikeSlab) else 1 + 0 * inside
    return torch.where(v < 1, inside, 0.0)


@pytest.mark.parametrize("name", SMOOTHINGS)
def test_values_and_gradients_are_those_of_the_plain_formulas(name):
    smoothing = SMOOTHINGS[name]()
    rho, logits = (value.requires_grad_() for value in noise_and_logits())
    drawn = smoothing.draw(rho, logits)
    zeta = plain_zeta(smoothing, rho, logits)
    bits = smoothing.bits(zeta.detach(), logits)
    torch.testing.assert_close(drawn.zeta, zeta, rtol=0, atol=1e-12)
    assert torch.equal(drawn.bits, bits)
    assert torch.equal(drawn.z, bits)
    assert not drawn.z.requires_grad
    weights = torch.randn(2, 200, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = [rho, logits, *smoothing.parameters()]
    for of_zeta, of_bits in ((1, 1), (1, 0), (0, 1)):
        got, expected = (
            torch.autograd.grad(
                of_zeta * (weights[0] * one).sum() + of_bits * (weights[1] * other).sum(),
                wanted,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            for one, other in ((drawn.zeta, drawn.bits), (zeta, bits))
        )
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_shapes_and_dtypes_broadcast():
    logits = torch.zeros(3, requires_grad=True)
    zeta = SpikeSlab().icdf(torch.tensor([[0.2], [0.8]], dtype=torch.float64), logits)
    assert (zeta.dtype, zeta.shape) == (torch.float64, (2, 3))
    zeta.sum().backward()
    assert (logits.grad.dtype, logits.grad.tolist()) == (torch.float32, [pytest.approx(0.2)] * 3)


def test_a_bound_stops_the_gradient_that_leads_out():
    """As `bounded` does: beta lies above its bound, and descent along the gradient would raise it."""
    for sign, stopped in ((-1.0, True), (1.0, False)):
        smoothing = SpikeExponential(beta=5.0, max_beta=3.0)
        rho, logits = noise_and_logits()
        (sign * smoothing.icdf(rho, logits).sum()).backward()
        assert (smoothing.beta.grad.item() == 0) is stopped


def test_second_derivatives_are_refused_and_not_wrong():
    rho, logits = noise_and_logits()
    logits.requires_grad_()
    square = SpikeSlab().icdf(rho, logits).square().sum()
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.autograd.grad(square, logits, create_graph=True)
