"""Closed forms, limits and the bound of beta."""

import math

import pytest
import torch

from discrete_vae import SpikeExponential, SpikeSlab
from discrete_vae.errors import InvalidInputError
from discrete_vae.smoothing.spike import SharpLimit


def published_icdf(rho, logits, beta):
    """Eq. probabilistic-encoder as printed, in float64."""
    q = torch.sigmoid(logits)
    inside = torch.log(((rho + q - 1) / q).clamp_min(0) * math.expm1(beta) + 1) / beta
    return torch.where(rho >= 1 - q, inside, 0.0)


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0, 5.0])
def test_equals_the_published_formula(beta):
    generator = torch.Generator().manual_seed(0)
    rho = torch.rand(10_000, generator=generator, dtype=torch.float64)
    logits = 3 * torch.randn(10_000, generator=generator, dtype=torch.float64)
    got = SpikeExponential(beta=beta).double().icdf(rho, logits)
    torch.testing.assert_close(got, published_icdf(rho, logits, beta), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rho", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("beta", [1.0, 3.0, 5.0])
def test_figure_inverse_cdf_rectifies_below_one_minus_rho(rho, beta):
    q = torch.tensor([1 - rho - 1e-4, 1 - rho + 1e-4, 1.0 - 1e-6], dtype=torch.float64)
    smoothing = SpikeExponential(beta=beta, trainable=False).double()
    zeta = smoothing.icdf(torch.full_like(q, rho), torch.logit(q))
    assert zeta[0] == 0
    assert 0 < zeta[1] < 0.02
    assert zeta[2] == pytest.approx(math.log(rho * math.expm1(beta) + 1) / beta, abs=1e-5)


def test_small_beta_is_the_slab():
    rho, logits = torch.rand(1000, dtype=torch.float64), torch.randn(1000, dtype=torch.float64)
    narrow = SpikeExponential(beta=0.01).double().icdf(rho, logits)
    torch.testing.assert_close(narrow, SpikeSlab().icdf(rho, logits), rtol=0, atol=2e-3)


def test_large_beta_is_z():
    rho, logits = torch.rand(10_000, dtype=torch.float64), torch.randn(10_000, dtype=torch.float64)
    zeta = SpikeExponential(beta=200.0, trainable=False).double().icdf(rho, logits)
    z = (zeta != 0).double()
    assert float((z - zeta).mean()) == pytest.approx(float(z.mean()) / 200, rel=0.1)


def test_gradient_for_beta_is_the_closed_form_and_bounded():
    beta = 3.0
    smoothing = SpikeExponential(beta=beta).double()
    rho = torch.rand(200, dtype=torch.float64)
    zeta = smoothing.icdf(rho, torch.zeros(200, dtype=torch.float64))
    got = torch.stack([torch.autograd.grad(value, smoothing.beta, retain_graph=True)[0] for value in zeta])
    expected = ((1 - torch.exp(-beta * zeta)) / -math.expm1(-beta) - zeta) / beta
    torch.testing.assert_close(got, torch.where(zeta > 0, expected, 0.0), rtol=1e-9, atol=1e-12)
    assert 0 <= float(got.min()) <= float(got.max()) <= 1 / 8


@pytest.mark.parametrize("beta", [3.0, 60.0, 200.0])
def test_z_is_read_back_from_zeta_even_where_it_rounds_to_zero(beta):
    smoothing = SpikeExponential(beta=beta)
    logits = torch.full((1 << 20,), 12.0)
    rho = torch.rand(1 << 20, generator=torch.Generator().manual_seed(0))
    threshold = torch.sigmoid(-logits)
    zeta = smoothing.icdf(rho, logits)
    assert bool((zeta[rho > threshold * (1 + 1e-5)] > 0).all())
    assert bool((zeta[rho < threshold * (1 - 1e-5)] == 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits_have_finite_gradients(dtype):
    logits = torch.tensor([-1000.0, -90.0, 90.0, 1000.0], dtype=dtype, requires_grad=True)
    smoothing = SpikeExponential(beta=200.0).to(dtype)
    zeta = smoothing.icdf(torch.full((4,), 0.5, dtype=dtype), logits)
    (zeta.sum() + smoothing.bits(zeta, logits).sum()).backward()
    assert bool(logits.grad.isfinite().all())
    assert zeta.tolist()[:2] == [0, 0]


def test_bits_are_z_with_the_published_gradient():
    logits = torch.tensor([-1.0, 0.5, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
    smoothing = SpikeExponential(beta=3.0)
    bits = smoothing.bits(torch.tensor([0.0, 0.0, 0.3, 0.0], dtype=torch.float64), logits)
    assert bits.tolist() == [0, 0, 1, 0]
    bits.sum().backward()
    q = torch.sigmoid(logits.detach())
    dq = q * (1 - q)
    torch.testing.assert_close(logits.grad, (1 - bits.detach()) / (1 - q) * dq, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("smoothing", [SpikeExponential(beta=3.0), SpikeSlab(), SharpLimit()])
def test_a_nan_in_zeta_comes_out(smoothing):
    zeta, logits = torch.tensor([0.0, math.nan, 0.5]), torch.zeros(3)
    for z in (smoothing.bits(zeta, logits), smoothing.sample_z(zeta, logits)):
        assert z.isnan().tolist() == [False, True, False]
        assert z[::2].tolist() == [0.0, 1.0]
    broken = smoothing.rsample(torch.tensor([0.0, math.nan]))
    assert smoothing.bits(broken, torch.zeros(2)).isnan().tolist() == [False, True]


class TestBound:
    def test_project_brings_beta_under_the_bound(self):
        smoothing = SpikeExponential(beta=5.0, max_beta=4.0)
        smoothing.project_()
        assert smoothing.beta.item() == 4.0
        smoothing.bound_sharpness_(3.0)
        smoothing.project_()
        assert smoothing.beta.item() == 3.0

    def test_project_keeps_beta_positive(self):
        smoothing = SpikeExponential(beta=1.0)
        with torch.no_grad():
            smoothing.beta.fill_(-2.0)
        smoothing.project_()
        assert smoothing.beta.item() == pytest.approx(0.01)

    def test_trainable_decides_whether_beta_is_a_parameter(self):
        assert len(list(SpikeExponential(beta=2.0, trainable=True).parameters())) == 1
        fixed = SpikeExponential(beta=2.0, trainable=False)
        assert len(list(fixed.parameters())) == 0
        assert fixed.state_dict()["beta"].item() == 2.0

    @pytest.mark.parametrize("beta", [0.0, -1.0, math.nan, math.inf, "3"])
    def test_wrong_beta(self, beta):
        with pytest.raises(InvalidInputError, match="beta must be a finite number of at least 0.01"):
            SpikeExponential(beta=beta)

    def test_wrong_bound(self):
        with pytest.raises(InvalidInputError, match="max_beta must be"):
            SpikeExponential(beta=1.0).bound_sharpness_(-1.0)
