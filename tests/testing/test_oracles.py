"""The oracles against closed forms, so that they may judge the rest."""

import math

import pytest
import torch

from discrete_vae import RBM, SpikeExponential, SpikeSlab
from discrete_vae.errors import InvalidInputError
from discrete_vae.testing import all_states, enumerate_machine
from tests.oracles.quadrature import joint_nodes, posterior_quadrature, unit_nodes


def test_one_pair_by_hand():
    rbm = RBM(1, 1).double()
    with torch.no_grad():
        rbm.weight.fill_(0.7)
        rbm.bias.copy_(torch.tensor([0.2, -0.5], dtype=torch.float64))
    machine = enumerate_machine(rbm)
    total = 1 + math.exp(0.2) + math.exp(-0.5) + math.exp(0.7 + 0.2 - 0.5)
    assert machine.log_partition.detach().item() == pytest.approx(math.log(total), abs=1e-12)
    assert machine.pair_moments().detach()[0, 1].item() == pytest.approx(math.exp(0.4) / total, abs=1e-12)
    assert machine.expectation(machine.states).detach()[1].item() == pytest.approx(
        (math.exp(-0.5) + math.exp(0.4)) / total, abs=1e-12
    )


def test_too_many_units():
    with pytest.raises(InvalidInputError, match="^num_units "):
        all_states(21)


@pytest.mark.parametrize("beta", [0.05, 3.0, 8.0])
def test_moments_of_the_exponential(beta):
    nodes = unit_nodes(SpikeExponential(beta=beta, trainable=False).double(), 24)
    on = nodes.z == 1
    assert nodes.weight[on].sum().item() == pytest.approx(1, abs=1e-12)
    assert nodes.weight[~on].sum().item() == pytest.approx(1, abs=1e-12)
    mean = 1 / -math.expm1(-beta) - 1 / beta
    assert (nodes.weight * nodes.zeta)[on].sum().item() == pytest.approx(mean, abs=1e-10)


def test_weights_of_a_joint_grid_and_posterior_sum_to_one():
    smoothing = SpikeSlab()
    nodes = joint_nodes(smoothing, 2, 8)
    assert nodes.z.shape == (81, 2)
    assert nodes.weight.sum().item() == pytest.approx(4, abs=1e-12)  # once for each z
    posterior = posterior_quadrature(lambda group, zeta: zeta[:, :1] * group + 0.3, [[1], [0]], smoothing, 8)
    assert posterior.expectation(torch.ones(81).double()).item() == pytest.approx(1, abs=1e-12)
    # unit 0 comes second, with logit 0.3 + E over nothing of its own zeta: zeta[:, 0] is hidden from it
    assert posterior.logits[:, 0].unique().tolist() == pytest.approx([0.3])
