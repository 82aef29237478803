"""Gaussians against torch.distributions."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from discrete_vae.hierarchy.base import Gaussian
from discrete_vae.hierarchy.gaussian import GaussianNetwork
from discrete_vae.kernels.registry import load
from discrete_vae.testing import check_mean


def pair(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [
        Gaussian(*(1.5 * torch.randn(2, 500, 7, generator=generator, dtype=torch.float64)).to(dtype))
        for _ in range(2)
    ]


def normal(gaussian):
    return Normal(gaussian.mean, gaussian.log_std.exp())


def test_kl_its_gradient_and_density_are_those_of_torch():
    q, p = pair()
    leaves = [value.requires_grad_() for value in (q.mean, q.log_std, p.mean, p.log_std)]
    values = q.kl_to(p), kl_divergence(normal(q), normal(p))
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-10)
    gradients = (torch.autograd.grad(value.sum(), leaves) for value in values)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)
    value = torch.randn(500, 7, dtype=torch.float64)
    torch.testing.assert_close(q.log_prob(value), normal(q).log_prob(value), rtol=1e-10, atol=1e-10)


def test_a_small_kl_keeps_its_digits_in_float32():
    q = Gaussian(torch.tensor([1e-3]), torch.tensor([2e-3]))
    p = Gaussian(torch.zeros(1), torch.zeros(1))
    exact = 0.5 * (torch.tensor(4e-3, dtype=torch.float64).expm1() - 4e-3 + 1e-6)
    assert abs(float(q.kl_to(p)) - float(exact)) < 2e-9
    assert float(p.kl_to(p)) == 0


@pytest.mark.parametrize("shape", [(100, 4, 32), (2, 3, 5, 7), (3, 50)])
def test_the_joint_kl_in_float32(monkeypatch, shape):
    """Compiled, against the sums of the elements' divergences and their gradients in float64."""
    start = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    weights = torch.randn(shape[:-2], generator=torch.Generator().manual_seed(1))
    found, calls = [], []
    monkeypatch.setattr(load("distributions.joint_kl"), "is_usable", lambda: calls.append(1) or True)
    for dtype in (torch.float32, torch.float64):
        leaves = [value.to(dtype).requires_grad_() for value in start]
        kl = Gaussian(*leaves[:2]).joint_kl_to(Gaussian(*leaves[2:]), 2)
        found.append([kl, *torch.autograd.grad((weights * kl).sum(), leaves)])
    assert len(calls) == 1
    for mine, exact in zip(*found, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=3e-6, atol=1e-5)


def test_the_joint_kl_of_near_layers_and_of_broken_ones():
    near = torch.full((1, 2, 8), 2e-3)
    q, p = Gaussian(near / 2, near), Gaussian(torch.zeros(1, 2, 8), torch.zeros(1, 2, 8))
    exact = 16 * 0.5 * (torch.tensor(4e-3, dtype=torch.float64).expm1() - 4e-3 + 1e-6)
    assert abs(float(q.joint_kl_to(p, 2)) - float(exact)) < 3e-8
    assert float(p.joint_kl_to(p, 2)) == 0
    broken = Gaussian(torch.full((1, 2, 8), torch.nan), torch.zeros(1, 2, 8))
    assert bool(broken.joint_kl_to(p, 2).isnan())
    rows = [value[None].expand(6, 4, 5) for value in torch.randn(4, 4, 5)]  # shared by samples
    torch.testing.assert_close(
        Gaussian(*rows[:2]).joint_kl_to(Gaussian(*rows[2:]), 2),
        Gaussian(*rows[:2]).kl_to(Gaussian(*rows[2:])).sum((-2, -1)),
    )


def test_samples_have_the_moments_and_the_gradients():
    mean, log_std = (torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in (0.7, -0.5))
    generator = torch.Generator().manual_seed(1)
    rows = []
    for _ in range(100):
        h = Gaussian(mean.expand(1000), log_std.expand(1000)).rsample(generator=generator)
        # E[h^2] = mean^2 + exp(2 log_std)
        square = h.square().mean()
        slopes = torch.autograd.grad(square, (mean, log_std))
        rows.append(torch.stack([h.mean(), square, slopes[0].sum(), slopes[1].sum()]).detach())
    variance = torch.exp(2 * log_std.detach())
    expected = torch.cat([mean, mean**2 + variance, 2 * mean, 2 * variance]).detach()
    check_mean(torch.stack(rows), expected, resolution=0.02)


def test_autocast_leaves_the_layers_in_the_precision_of_the_parameters():
    network = GaussianNetwork([4], (), 3, log_std_bound=5.0)
    with torch.autocast("cpu", torch.bfloat16):
        layer = network(torch.ones(2, 4))
        assert {layer.mean.dtype, layer.log_std.dtype, layer.rsample().dtype} == {torch.float32}
    assert network.bfloat16()(torch.ones(2, 4, dtype=torch.bfloat16)).mean.dtype == torch.bfloat16
