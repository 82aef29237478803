"""The gradient that samples give log Z."""

import pytest
import torch

from discrete_vae import BlockGibbs
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition.bridge import log_partition_surrogate
from discrete_vae.testing.enumeration import enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_mean
from tests.log_partition.machines import random_rbm


def gradients_from_chains(rbm, change=lambda z: z, num_chains=100):
    """The gradient of log Z from each of 40 independent sets of chains."""
    z = change(BlockGibbs(rbm, 40 * num_chains, seed=3).step(200))
    rows = []
    for chains in z.split(num_chains):
        value = log_partition_surrogate(rbm, chains, 1.5)
        assert value.item() == 1.5
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(value, list(rbm.parameters()))]))
    return torch.stack(rows)


def exact_gradient(rbm):
    machine = enumerate_machine(rbm)
    return torch.cat(
        [g.flatten() for g in torch.autograd.grad(machine.log_partition, list(rbm.parameters()))]
    )


def test_the_negative_phase_agrees_with_enumeration():
    rbm = random_rbm(6, 5, 0.7)
    check_mean(gradients_from_chains(rbm), exact_gradient(rbm), resolution=0.02)


def test_it_is_rao_blackwellized():
    rbm = random_rbm(6, 5, 0.7)
    z = BlockGibbs(rbm, 4000, seed=3).step(200)
    both = [log_partition_surrogate(rbm, z), -rbm.energy(z).mean()]
    errors = [
        (torch.autograd.grad(v, rbm.weight)[0] - exact_gradient(rbm)[:30].reshape(6, 5)).square().mean()
        for v in both
    ]
    assert errors[0] < errors[1]


def test_chains_with_swapped_sides_are_rejected():
    rbm = random_rbm(5, 5, 0.7)
    rows = gradients_from_chains(rbm, lambda z: torch.cat([z[:, 5:], z[:, :5]], -1))
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(rows, exact_gradient(rbm))


def test_errors():
    with pytest.raises(InvalidInputError, match=r"z must have shape \(chain, 4\)"):
        log_partition_surrogate(random_rbm(2, 2), torch.zeros(5, 3))
