"""The compiled draw against the plain formulas in float64, in value and in gradient."""

import math

import pytest
import torch

from discrete_vae import SpikeExponential
from discrete_vae.kernels.registry import Kernel

EPS = 2.0**-24


def draw_twice(beta, rho, logits, *, trainable=True, max_beta=math.inf):
    """zeta, bits and the gradients of a weighted sum, compiled and by plain formulas of the same numbers in float64."""
    found = []
    weights = torch.randn(2, *rho.shape, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float32, torch.float64):
        smoothing = SpikeExponential(beta, trainable, max_beta).to(dtype)
        leaf = logits.detach().to(dtype).requires_grad_()
        drawn = smoothing.draw(rho.to(dtype), leaf)
        used = type(drawn.zeta.grad_fn).__name__
        assert used == ("_FusedDrawBackward" if dtype == torch.float32 else "PlainDrawBackward")
        total = (weights[0] * drawn.zeta + weights[1] * drawn.bits).sum()
        wanted = [leaf, *smoothing.parameters()]
        found.append((drawn.zeta.detach(), drawn.bits.detach(), *torch.autograd.grad(total, wanted)))
    return found


def noise_and_logits(*shape):
    generator = torch.Generator().manual_seed(0)
    rho = torch.rand(*shape, generator=generator).clamp_min(2.0**-25)
    return rho, 4 * torch.randn(*shape, generator=generator)


@pytest.mark.parametrize(
    ("beta", "shape"),
    [(0.01, (100, 32)), (1.0, (5,)), (3.0, (7, 45)), (30.0, (3, 2, 33)), (200.0, (100, 32))],
)
def test_values_and_gradients(beta, shape):
    """Within some roundings, as far as these are magnified: d zeta / dv holds 1 / (1 - v c), up to e^beta."""
    rho, logits = noise_and_logits(*shape)
    mine, exact = draw_twice(beta, rho, logits)
    v = (1 - rho.double()) / torch.sigmoid(logits.double())
    magnified = 1 / (1 + v.clamp(max=1) * math.expm1(-beta))
    of_zeta = 16 * EPS * (1 + magnified / beta)
    same = mine[1] == exact[1]
    assert bool((same | ((v - 1).abs() < 4 * EPS)).all())
    assert bool(((mine[0] > 0) == (mine[1] == 1)).all())
    assert bool(((mine[0] - exact[0]).abs() <= of_zeta)[same].all())
    assert bool(((mine[2] - exact[2]).abs() <= 1e-6 + 32 * EPS * magnified * exact[2].abs())[same].all())
    of_beta = 3 * (of_zeta + 4 * EPS * exact[0] / beta).sum()
    assert float((mine[3] - exact[3]).abs()) <= float(of_beta)


def test_a_fixed_beta_and_absent_gradients():
    rho, logits = noise_and_logits(20, 9)
    mine, exact = draw_twice(3.0, rho, logits, trainable=False)
    torch.testing.assert_close(mine[2].double(), exact[2], rtol=1e-4, atol=1e-5)
    for index in (0, 1):
        found = []
        for dtype in (torch.float32, torch.float64):
            leaf = logits.to(dtype).requires_grad_()
            drawn = SpikeExponential(3.0, trainable=False).to(dtype).draw(rho.to(dtype), leaf)
            part = (drawn.zeta, drawn.bits)[index]
            found.append(torch.autograd.grad(part.sum(), leaf)[0].double())
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_extremes():
    """NaN comes out and is no spike, saturated logits give 0 and 1, every zeta of z = 1 is above 0."""
    nan, inf = math.nan, math.inf
    logits = torch.tensor([nan, -inf, inf, -200.0, 200.0, -88.5, 0.0]).requires_grad_()
    rho = torch.full((7,), 0.75)
    drawn = SpikeExponential(3.0).draw(rho, logits)
    assert bool(drawn.zeta[0].isnan() & drawn.bits[0].isnan() & drawn.z[0].isnan())
    assert drawn.bits[1:].tolist() == [0, 1, 0, 1, 0, 1]
    assert drawn.zeta[[1, 3, 5]].tolist() == [0, 0, 0]
    (gradient,) = torch.autograd.grad((drawn.zeta + drawn.bits)[1:].sum(), logits)
    assert bool(gradient[1:].isfinite().all())
    near = torch.linspace(0.5 - 3e-7, 0.5 + 3e-7, 64)
    drawn = SpikeExponential(3.0).draw(near, torch.zeros(64))
    assert bool(((drawn.zeta > 0) == (drawn.bits == 1)).all())
    assert 0 < float(drawn.z.mean()) < 1
    smoothing = SpikeExponential()
    with torch.no_grad():
        smoothing.beta.fill_(inf)  # a diverged step must be found
    assert bool(smoothing.draw(torch.tensor([0.9]), torch.zeros(1)).zeta.isnan())


def test_layouts_are_read_where_they_are():
    """Logits shared by samples, noise that is a part of wider rows, gradients with strides: all as copies give."""
    wide = torch.rand(6, 40, generator=torch.Generator().manual_seed(2)).clamp(1e-3, 1 - 1e-3)
    rho, logits = wide[:, 8:27], torch.randn(19, 6).t().requires_grad_()
    weights = torch.randn(6, 50)[:, 5:24]
    found = []
    for own in (lambda value: value, torch.clone):
        smoothing = SpikeExponential(2.0)
        drawn = smoothing.draw(own(rho), own(logits))
        total = (drawn.zeta * own(weights) + drawn.bits * own(weights)).sum()
        found.append([drawn.zeta, *torch.autograd.grad(total, (logits, smoothing.beta))])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_a_failing_self_test_leaves_plain_torch(monkeypatch):
    monkeypatch.setattr(Kernel, "is_usable", lambda self: False)
    logits = torch.zeros(4, requires_grad=True)
    drawn = SpikeExponential(3.0).draw(torch.full((4,), 0.7), logits)
    assert type(drawn.zeta.grad_fn).__name__ == "PlainDrawBackward"
