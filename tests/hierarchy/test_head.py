"""The head of a Gaussian layer and its KL: written-out gradients against finite differences, in float64."""

import math

import pytest
import torch

from discrete_vae.hierarchy.gaussian import GaussianNetwork, _Head
from discrete_vae.kernels.registry import Kernel


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
