"""Transformations without a spike: closed forms, limits, the bits and their gradients."""

import math

import pytest
import torch

from discrete_vae import MixtureOfRamps, OverlappingExponential, OverlappingPower, SpikeExponential
from discrete_vae.rng import DrawnNoise
from tests.refusals import refused_argument
from tests.transformations import OVERLAPPING, SMOOTHINGS, log_densities, noise_and_logits, of_prior


def test_the_roots_are_the_published_ones():
    rho, logits = noise_and_logits(2000)
    q = torch.sigmoid(logits)
    # eq. probabilistic-encoder-two-sided
    printed = (q - 1 + ((q - 1) ** 2 + (2 * q - 1) * rho).sqrt()) / (2 * q - 1)
    torch.testing.assert_close(MixtureOfRamps().icdf(rho, logits), printed, rtol=0, atol=1e-10)
    fair = torch.zeros_like(rho)
    torch.testing.assert_close(MixtureOfRamps().icdf(rho, fair), rho, rtol=0, atol=1e-15)
    for beta in (0.5, 3.0, 8.0):
        overlap, c = math.exp(-beta), -math.expm1(-beta)
        k = 1 - q - q * overlap - rho * c
        u = (k + (k**2 + 4 * q * (1 - q) * overlap).sqrt()) / (2 * (1 - q))
        got = OverlappingExponential(beta).double().icdf(rho, logits)
        torch.testing.assert_close(got, -u.log() / beta, rtol=0, atol=1e-9)


@pytest.mark.parametrize("b", [1.01, 30.0, 100.0])
def test_newton_steps_reach_the_root(b):
    """The root by bisection of the CDF; where zeta is closer to 1 than float64 is, both are 1."""
    rho, logits = noise_and_logits(200)
    smoothing = OverlappingPower(b).double()
    low, high = torch.zeros_like(rho), torch.ones_like(rho)
    for _ in range(1100):  # numbers down to 2^-1000
        small = torch.where(low > 0, (low * high).sqrt(), high * 2.0**-10)
        middle = small.where(high < 0.1, (low + high) / 2)
        below = smoothing.cdf(middle, logits) < rho
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    torch.testing.assert_close(smoothing.icdf(rho, logits), high, rtol=1e-10, atol=1e-15)


def test_the_limits_are_rho_and_z():
    """Where r(zeta|z) is flat zeta is rho, where it is sharp zeta is z."""
    rho, logits = noise_and_logits(2000)
    for flat in (OverlappingExponential(0.01).double(), OverlappingPower(1.001)):
        torch.testing.assert_close(flat.icdf(rho, logits), rho, rtol=0, atol=3e-3)
    z = (rho > torch.sigmoid(-logits)).double()
    for sharp, distance in (
        (OverlappingExponential(200.0).double(), 1 / 200),
        (OverlappingPower(100.0), 0.01),
    ):
        found = (sharp.icdf(rho, logits) - z).abs().mean()
        assert float(found) == pytest.approx(distance, rel=0.5)


@pytest.mark.parametrize("kind", OVERLAPPING)
def test_the_mirror_image(kind):
    """F^-1 of (1 - rho, -l) is 1 - zeta, and the other value of z lies behind it."""
    smoothing = SMOOTHINGS[kind]().double()
    rho, logits = noise_and_logits(2000)
    zeta, mirrored = smoothing.icdf(rho, logits), smoothing.icdf(1 - rho, -logits)
    torch.testing.assert_close(zeta, 1 - mirrored, rtol=0, atol=1e-14)
    inside = (zeta > 0.01) & (zeta < 0.99)
    bits, others = smoothing.bits(zeta, logits), smoothing.bits(mirrored, -logits)
    torch.testing.assert_close(bits[inside], 1 - others[inside], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", OVERLAPPING)
def test_bits_are_bayes_rule_with_all_of_its_gradient(kind):
    smoothing = SMOOTHINGS[kind]().double()
    rho, logits = noise_and_logits(2000)
    logits.requires_grad_()
    drawn = smoothing.draw(rho, logits, generator=torch.Generator().manual_seed(1))
    q, zeta = torch.sigmoid(logits), smoothing.icdf(rho, logits)
    keep = (zeta > 1e-9) & (zeta < 1 - 1e-9)
    off, on = (part.exp() for part in log_densities(smoothing, torch.where(keep, zeta, 0.5)))
    bits = q * on / (q * on + (1 - q) * off)
    torch.testing.assert_close(drawn.bits[keep], bits[keep], rtol=1e-9, atol=1e-9)
    assert torch.equal(drawn.zeta, zeta)
    weights = torch.randn(len(rho), generator=torch.Generator().manual_seed(2), dtype=torch.float64) * keep
    got, expected = (
        torch.autograd.grad((weights * value)[keep].sum(), logits, retain_graph=True)[0]
        for value in (drawn.bits, bits)
    )
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-9)
    assert not drawn.z.requires_grad
    assert float((drawn.z - drawn.bits.detach()).mean().abs()) < 5 / len(rho) ** 0.5


def test_bits_have_the_gradient_of_beta():
    """E[z | zeta(beta), l; beta] by differences of beta."""
    rho, logits = noise_and_logits(200)
    ends = [OverlappingExponential(3 + step).double() for step in (-(2.0**-12), 2.0**-12)]
    low, high = (end.draw(rho, logits).bits for end in ends)
    smoothing = OverlappingExponential(3.0, trainable=True).double()
    bits = smoothing.draw(rho, logits).bits
    for index in range(0, 200, 10):
        (got,) = torch.autograd.grad(bits[index], smoothing.beta, retain_graph=True)
        assert float(got) == pytest.approx(float(high[index] - low[index]) * 2**11, rel=1e-5, abs=1e-7)


def test_rounding_leaves_bits_of_ramps_in_the_unit_interval():
    zeta, logits = torch.tensor([[12750691 / 2**24]]), torch.tensor([[16.0]])  # 1 + 2^-23 before
    assert MixtureOfRamps().bits(zeta, logits).item() <= 1


@pytest.mark.parametrize("kind", OVERLAPPING)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits_have_finite_values_and_gradients(kind, dtype):
    ends = torch.tensor([-math.inf, -1000.0, -200.0, -104.0, -90.0, -45.0, -30.0, 0.0], dtype=dtype)
    noise = torch.tensor([0.0, 2.0**-25, 1e-3, 0.5, 1 - 2.0**-24], dtype=dtype)
    logits = torch.cat([ends, -ends]).repeat(len(noise)).requires_grad_()
    rho = noise.repeat_interleave(2 * len(ends))
    smoothing = SMOOTHINGS[kind]().to(dtype)
    drawn = smoothing.draw(rho, logits)
    wanted = [logits, *smoothing.parameters()]
    gradients = torch.autograd.grad(drawn.zeta.sum() + drawn.bits.sum(), wanted)
    assert all(bool(value.isfinite().all()) for value in (drawn.zeta, drawn.bits, *gradients))
    assert bool(((drawn.zeta >= 0) & (drawn.zeta <= 1) & (drawn.bits >= 0) & (drawn.bits <= 1)).all())
    sure = (logits.abs() > 150) & (rho > 0) & (rho < 0.9)
    assert torch.equal(drawn.z[sure], (logits > 0).to(dtype)[sure])


def test_float64_arguments_have_all_digits_whatever_beta_is():
    smoothing, (rho, logits) = OverlappingExponential(3.0), noise_and_logits(500)
    exact = {"rtol": 0, "atol": 1e-14}
    torch.testing.assert_close(smoothing.cdf(torch.ones_like(rho), logits), torch.ones_like(rho), **exact)
    torch.testing.assert_close(smoothing.cdf(smoothing.icdf(rho, logits), logits), rho, **exact)


@pytest.mark.parametrize("kind", SMOOTHINGS)
def test_low_precision_never_enters_the_formulas(kind):
    """bfloat16 arguments give what their values give in float32, rounded once."""
    smoothing = SMOOTHINGS[kind]()
    rho, logits = (value.bfloat16() for value in noise_and_logits(500))
    rho = rho.clamp(2.0**-8, 1 - 2.0**-8)
    narrow = [logits, *of_prior(smoothing, logits)]
    law = [value.float() for value in narrow]
    wide = smoothing.icdf(rho.float(), *law)
    assert torch.equal(smoothing.icdf(rho, *narrow), wide.bfloat16())
    rounded = wide.bfloat16()
    assert torch.equal(smoothing.cdf(rounded, *narrow), smoothing.cdf(rounded.float(), *law).bfloat16())
    # networks in bfloat16 beside float32 latents
    mixed = smoothing.icdf(rho.float(), *narrow)
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, wide)


@pytest.mark.parametrize("kind", SMOOTHINGS)
def test_shapes_broadcast_and_second_derivatives_are_refused(kind):
    smoothing = SMOOTHINGS[kind]()
    logits = torch.zeros(3, requires_grad=True)
    law = of_prior(smoothing, logits.detach())
    assert smoothing.rsample(torch.zeros(5, 4, 3), *law).shape == (5, 4, 3)
    zeta = smoothing.icdf(torch.tensor([[0.2], [0.8]], dtype=torch.float64), logits, *law)
    assert (zeta.dtype, zeta.shape) == (torch.float64, (2, 3))
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.autograd.grad(zeta.square().sum(), logits, create_graph=True)
    (gradient,) = torch.autograd.grad(zeta.sum(), logits)
    assert (gradient.dtype, gradient.shape) == (torch.float32, (3,))


@pytest.mark.parametrize("kind", OVERLAPPING)
def test_noise_that_was_drawn_before_is_taken_for_z(kind):
    smoothing, mean = SMOOTHINGS[kind](), torch.tensor([0.3, 0.3])
    logits = torch.zeros(2)
    bits = float(smoothing.bits(mean, logits)[0].detach())
    noise = DrawnNoise([torch.tensor([bits - 0.01, bits + 0.01])])
    assert smoothing.sample_z(mean, logits, generator=noise).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("kind", [OverlappingExponential, SpikeExponential])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # float32 may be compiled
def test_the_bound_of_beta_holds_and_stops_the_gradient_that_leads_out(kind, dtype):
    rho, logits = (value.to(dtype).clamp_min(1e-6) for value in noise_and_logits(500))
    for trainable in (True, False):
        smoothing = kind(5.0, trainable, max_beta=3.0).to(dtype)
        used = 3.0 if trainable else 5.0
        assert torch.equal(smoothing.draw(rho, logits).zeta, kind(used).to(dtype).draw(rho, logits).zeta)
    found = []
    for sign in (-1.0, 1.0):
        smoothing = kind(5.0, trainable=True, max_beta=3.0).to(dtype)
        drawn = smoothing.draw(rho, logits)
        (sign * (drawn.zeta - 0.5).square().sum()).backward()
        found.append(float(smoothing.beta.grad))
        smoothing.project_()
        assert smoothing.beta.item() == 3.0
    assert found[0] == 0  # zeta moves outward as beta grows, and descent would let it
    assert found[1] != 0
    constant = kind(5.0, trainable=False, max_beta=3.0).to(dtype)
    constant.project_()
    assert constant.beta.item() == 5.0


def test_errors():
    assert refused_argument(OverlappingPower, b=1.0) == refused_argument(OverlappingPower, b=101.0) == "b"
    assert refused_argument(OverlappingExponential, beta=0.0) == "beta"
    assert repr(OverlappingPower(b=20)) == "OverlappingPower(b=20)"
