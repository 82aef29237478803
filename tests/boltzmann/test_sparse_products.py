"""Sparse products against dense ones, with derivatives of first and second order."""

import pytest
import torch

from discrete_vae.boltzmann import graph
from discrete_vae.boltzmann.graph import sparse_product

ROWS = torch.tensor([0, 0, 2, 3, 3, 1])
COLUMNS = torch.tensor([1, 4, 0, 2, 1, 1])


def arguments(lead=(3,), seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(6, generator=generator, dtype=torch.float64, requires_grad=True)
    z = torch.randn(*lead, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    return values, z


def product(values, z):
    return sparse_product(values, z, torch.stack([ROWS, COLUMNS]), 4)


@pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 3), (0,)], ids=str)
def test_value_equals_the_dense_product(lead):
    values, z = arguments(lead)
    dense = torch.zeros(4, 5, dtype=torch.float64).index_put((ROWS, COLUMNS), values)
    torch.testing.assert_close(product(values, z), z @ dense.T, rtol=0, atol=1e-14)


@pytest.mark.parametrize("part", [1 << 24, 7])
def test_derivatives_of_first_and_second_order(part, monkeypatch):
    monkeypatch.setattr(graph, "_LARGEST_PART", part)
    values, z = arguments()
    torch.autograd.gradcheck(product, (values, z))
    torch.autograd.gradgradcheck(product, (values, z))


@pytest.mark.parametrize("wanted", [0, 1])
def test_one_gradient_alone(wanted):
    inputs = list(arguments())
    both = torch.autograd.grad(product(*inputs).square().sum(), inputs)
    inputs[1 - wanted] = inputs[1 - wanted].detach()
    (alone,) = torch.autograd.grad(product(*inputs).square().sum(), inputs[wanted])
    torch.testing.assert_close(alone, both[wanted], rtol=0, atol=0)


def test_no_entries():
    empty = torch.empty(0, dtype=torch.int64)
    values = torch.empty(0, requires_grad=True)
    z = torch.ones(2, 3, requires_grad=True)
    got = sparse_product(values, z, torch.stack([empty, empty]), 4)
    assert torch.equal(got, torch.zeros(2, 4))
    got.sum().backward()
    assert values.grad.shape == (0,)
    assert torch.equal(z.grad, torch.zeros(2, 3))
