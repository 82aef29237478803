"""The written-out gradients of a bipartite machine against autograd's and finite differences, in float64."""

import pytest
import torch

from discrete_vae import RBM
from discrete_vae.boltzmann.base import BoltzmannMachine

ORDERS = {
    "left first": [0, 0, 0, 1, 1],
    "right first": [1, 1, 1, 0, 0],
    "one group": [0, 0, 0, 0, 0],
    "all cases": [0, 1, 2, 1, 0],
}


def machine():
    torch.manual_seed(0)
    rbm = RBM(3, 2).double()
    for parameter in rbm.parameters():
        torch.nn.init.normal_(parameter)
    return rbm


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("lead", [(4,), (2, 3), ()])
def test_expected_energy(order, lead):
    rbm = machine()
    group = torch.tensor(order)
    pairs = rbm.pair_order(group)
    bits, mean = (torch.rand(*lead, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    got = rbm.expected_energy(bits, mean, pairs)
    plain = -(mean @ rbm.bias)
    for i in range(3):
        for j in range(3, 5):
            left = bits if group[i] < group[j] else mean
            right = bits if group[i] > group[j] else mean
            plain = plain - rbm.weight[i, j - 3] * left[..., i] * right[..., j]
    torch.testing.assert_close(got, plain, rtol=1e-12, atol=1e-12)
    scale = torch.rand(lead, dtype=torch.float64)
    wanted = [bits, mean, rbm.weight, rbm.bias]
    gradients = [
        torch.autograd.grad((scale * value).sum(), wanted, allow_unused=True, materialize_grads=True)
        for value in (got, plain)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_negative_phase():
    """The form of every machine, by autograd through the free energy, has the same gradient."""
    rbm, z = machine(), torch.bernoulli(torch.full((50, 5), 0.5, dtype=torch.float64))
    got, plain = rbm.compute_negative_phase(z), BoltzmannMachine.compute_negative_phase(rbm, z)
    assert got.item() == plain.item() == 0
    gradients = [torch.autograd.grad(3 * value, [rbm.weight, rbm.bias]) for value in (got, plain)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
