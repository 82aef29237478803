"""Gaussians against torch.distributions; the head of a layer, whose gradients are written out."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from discrete_vae.hierarchy.base import Gaussian
from discrete_vae.hierarchy.gaussian import GaussianNetwork, _Head
from discrete_vae.kernels.registry import Kernel, load
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
        kl = Gaussian(*leaves[:2]).joint_kl_to(Gaussian(*leaves[2:]))
        found.append([kl, *torch.autograd.grad((weights * kl).sum(), leaves)])
    assert len(calls) == 1
    for mine, exact in zip(*found, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=3e-6, atol=1e-5)


def test_the_joint_kl_of_near_layers_and_of_broken_ones():
    near = torch.full((1, 2, 8), 2e-3)
    q, p = Gaussian(near / 2, near), Gaussian(torch.zeros(1, 2, 8), torch.zeros(1, 2, 8))
    exact = 16 * 0.5 * (torch.tensor(4e-3, dtype=torch.float64).expm1() - 4e-3 + 1e-6)
    assert abs(float(q.joint_kl_to(p)) - float(exact)) < 3e-8
    assert float(p.joint_kl_to(p)) == 0
    broken = Gaussian(torch.full((1, 2, 8), torch.nan), torch.zeros(1, 2, 8))
    assert bool(broken.joint_kl_to(p).isnan())
    rows = [value[None].expand(6, 4, 5) for value in torch.randn(4, 4, 5)]  # shared by samples
    torch.testing.assert_close(
        Gaussian(*rows[:2]).joint_kl_to(Gaussian(*rows[2:])),
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


# The head of a Gaussian layer.


@pytest.mark.parametrize("bound", [5.0, 0.5, None])
def test_a_draw_and_its_gaussian(bound):
    network = GaussianNetwork([3], (), 2, log_std_bound=bound).double()
    network.network.initialize_output_(0.0, 100.0)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    noise = torch.randn(4, 2, dtype=torch.float64)

    def draw(x):
        gaussian, h = network.rsample(x, noise=noise)
        return gaussian.mean, gaussian.log_std, h

    mean, log_std, h = draw(x)
    raw_mean, raw = network.output(x).chunk(2, -1)
    torch.testing.assert_close(mean, raw_mean)
    torch.testing.assert_close(log_std, raw if bound is None else bound * torch.tanh(raw / bound))
    torch.testing.assert_close(h, mean + log_std.exp() * noise)
    assert torch.equal(network(x).log_std, log_std)
    torch.autograd.gradcheck(draw, x)
    for output in draw(x):  # each alone
        (got,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
        assert bool((got != 0).all())


@pytest.mark.parametrize(
    ("bound", "shape"),
    [(5.0, (6,)), (0.5, (100, 64)), (None, (100, 64)), (5.0, (7, 3, 90)), (None, (7, 3, 90))],
)
def test_the_compiled_head(bound, shape):
    """In float32 it has one pass each way; every choice of outputs that carry a gradient, against float64."""
    generator = torch.Generator().manual_seed(0)
    output = 3 * torch.randn(shape, generator=generator)
    half = (*shape[:-1], shape[-1] // 2)
    noise, *weights = (torch.randn(half, generator=generator) for _ in range(4))
    for chosen in ((0, 1, 2), (0, 1), (2,), (1,), (0,)):
        found = []
        for dtype in (torch.float32, torch.float64):
            leaf = output.to(dtype).requires_grad_()
            given = noise.to(dtype) if 2 in chosen else None
            parts = _Head.apply(leaf, given, bound)
            total = torch.stack([(weights[index] * parts[index]).sum() for index in chosen]).sum()
            found.append([*(part for part in parts if part is not None), *torch.autograd.grad(total, leaf)])
        for mine, exact in zip(*found, strict=True):
            # h and its gradient hold e^s, whose relative error is that of s
            torch.testing.assert_close(mine.double(), exact, rtol=5e-6, atol=2e-6)


def test_the_compiled_head_is_used_and_keeps_nan(monkeypatch):
    calls = []
    monkeypatch.setattr(Kernel, "is_usable", lambda self: calls.append(1) or True)
    output = torch.tensor([[math.nan, 1.0, 1.0, math.nan]], requires_grad=True)
    mean, log_std, h = _Head.apply(output, torch.ones(1, 2), 5.0)
    assert mean.isnan().tolist() == [[True, False]]
    assert log_std.isnan().tolist() == [[False, True]]
    assert h.isnan().tolist() == [[True, True]]
    h.sum().backward()
    assert len(calls) == 2
    monkeypatch.setattr(Kernel, "is_usable", lambda self: False)
    plain = _Head.apply(output, torch.ones(1, 2), 5.0)
    for mine, other in zip((mean, log_std, h), plain, strict=True):
        torch.testing.assert_close(mine, other, equal_nan=True)
