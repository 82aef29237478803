"""L1 batch norm: the paper's formula, its bounds, its running statistics."""

import pytest
import torch

from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.registry import Kernel
from discrete_vae.nets.mlp import L1BatchNorm


def test_training_formula():
    norm = L1BatchNorm(3).double()
    x = torch.randn(50, 3, dtype=torch.float64)
    with torch.no_grad():
        norm.scale.copy_(torch.tensor([1.0, 2.0, 3.0]))
        norm.offset.copy_(torch.tensor([0.5, -1.0, 0.0]))
    y = x - x.mean(0)
    torch.testing.assert_close(norm(x), y / (y.abs().mean(0) + 1e-3) * norm.scale + norm.offset)


def test_running_statistics_are_exponential_averages():
    norm = L1BatchNorm(1, momentum=0.25)
    norm(torch.tensor([[0.0], [2.0]]))
    assert norm.running_mean.item() == pytest.approx(0.25 * 1.0)
    assert norm.running_deviation.item() == pytest.approx(0.75 * 1.0 + 0.25 * 1.0)
    norm(torch.tensor([[0.0], [4.0]]))
    assert norm.running_mean.item() == pytest.approx(0.75 * 0.25 + 0.25 * 2.0)
    assert norm.running_deviation.item() == pytest.approx(0.75 + 0.25 * 2.0)


def test_evaluation_does_not_depend_on_the_rest_of_the_batch():
    norm = L1BatchNorm(4).eval()
    x = torch.randn(10, 4)
    before = norm.running_mean.clone()
    torch.testing.assert_close(norm(x)[:3], norm(x[:3]))
    assert torch.equal(norm.running_mean, before)


def test_any_leading_axes():
    norm = L1BatchNorm(4)
    x = torch.randn(5, 6, 4)
    torch.testing.assert_close(norm(x).reshape(30, 4), L1BatchNorm(4)(x.reshape(30, 4)))


def test_a_constant_column_has_modest_gradients():
    x = torch.full((20, 1), 3.0, requires_grad=True)
    L1BatchNorm(1)(x).square().sum().backward()
    assert float(x.grad.abs().max()) < 1e4


def test_projection_brings_the_scale_first():
    norm = L1BatchNorm(4, bounded=True)
    with torch.no_grad():
        norm.scale.copy_(torch.tensor([1.0, 2.5, 9.0, 2.0]))
        norm.offset.copy_(torch.tensor([-5.0, 1.0, 3.5, 2.5]))
    norm.project_()
    assert norm.scale.tolist() == [2.0, 2.5, 3.0, 2.0]
    assert norm.offset.tolist() == [-2.0, 1.0, 3.0, 2.0]


def test_projection_leaves_an_unbounded_norm_alone():
    norm = L1BatchNorm(1)
    with torch.no_grad():
        norm.scale.fill_(50.0)
    norm.project_()
    assert norm.scale.item() == 50.0


def test_training_needs_two_rows():
    with pytest.raises(InvalidInputError, match="x must have at least two rows in training; received 1 rows"):
        L1BatchNorm(3)(torch.zeros(1, 3))
    L1BatchNorm(3).eval()(torch.zeros(1, 3))


@pytest.mark.parametrize(
    "arguments", [{"num_features": 0}, {"num_features": 1, "eps": 0.0}, {"num_features": 1, "momentum": 1.5}]
)
def test_wrong_settings(arguments):
    with pytest.raises(InvalidInputError, match=r"(num_features|eps|momentum) must be"):
        L1BatchNorm(**arguments)


@pytest.mark.parametrize("width", [1, 31, 100])
def test_the_compiled_projection_is_the_plain_one(width, monkeypatch):
    generator = torch.Generator().manual_seed(width)
    found = []
    scale, offset = (4 * torch.randn(width, generator=generator) for _ in range(2))
    scale[0], offset[-1] = torch.inf, torch.nan
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(Kernel, "is_usable", lambda self: False)
        norm = L1BatchNorm(width, bounded=True)
        with torch.no_grad():
            norm.scale.copy_(scale)
            norm.offset.copy_(offset)
        norm.project_()
        found.append((norm.scale.detach(), norm.offset.detach()))
    for mine, plain in zip(*found, strict=True):
        torch.testing.assert_close(mine, plain, rtol=0, atol=0, equal_nan=True)
