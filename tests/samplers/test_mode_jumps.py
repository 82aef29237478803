"""Jumps between modes: their exact law, invariance, and a fault in the acceptance that is caught."""

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, ParallelTempering
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import softplus_sum
from discrete_vae.samplers.modes import local_minima
from discrete_vae.samplers.tempering import ModeJumps
from discrete_vae.testing.enumeration import all_states
from tests.log_partition.machines import random_rbm, two_far_modes
from tests.oracles.transitions import check_transitions, invariance_error, sweep_matrix

MODES = torch.tensor([[0, 0, 0, 0, 1], [1, 1, 0, 1, 0], [0, 1, 1, 0, 0]]).float()


def jump_matrix(rbm, masks, t, block, free_energy=None):
    """The exact matrix: flip outside the block, accept by free energies, draw the block given the others."""
    states = all_states(rbm.num_units)
    free = (free_energy or rbm.free_energy)(states, block, t).detach()
    matrix = torch.zeros(len(states), len(states), dtype=torch.float64)
    others = torch.ones(rbm.num_units, dtype=torch.bool)
    others[rbm.blocks[block]] = False
    here = torch.arange(len(states))
    for mask in masks:
        code = int(((mask & others).long() << torch.arange(rbm.num_units)).sum())
        accept = (free - free[here ^ code]).clamp(max=0).exp()
        matrix[here, here ^ code] += accept / len(masks)
        matrix[here, here] += (1 - accept) / len(masks)
    return matrix @ sweep_matrix(rbm, inverse_temperature=t, clamped=others)


@pytest.mark.parametrize("block", [0, 1])
@pytest.mark.parametrize("t", [1.0, 0.4])
def test_moves_follow_the_exact_matrix_which_leaves_p_invariant(block, t):
    rbm = random_rbm(3, 2, 1.5)
    jumps = ModeJumps(rbm, MODES, seed=3)
    matrix = jump_matrix(rbm, jumps.masks, t, block)
    law = (-t * rbm.energy(all_states(5)).detach()).softmax(0)
    assert invariance_error(law, matrix) < 1e-12
    check_transitions(
        lambda z: jumps(z, torch.full((len(z),), t), sweep=1, block=block)[0], matrix, 5, repeats=2000
    )


def test_accepting_by_the_free_energy_of_another_temperature_is_a_fault_that_is_caught():
    rbm = random_rbm(3, 2, 1.5)
    masks = ModeJumps(rbm, MODES).masks
    law = (-0.4 * rbm.energy(all_states(5)).detach()).softmax(0)
    fault = jump_matrix(rbm, masks, 0.4, 1, lambda z, block, t: 0.4 * rbm.free_energy(z, block))
    assert invariance_error(law, fault) > 1e-3


def test_replicas_cross_between_far_modes_at_once():
    rbm = two_far_modes()
    chains = ParallelTempering(rbm, 2000, [1.0], seed=0)
    chains.jumps = ModeJumps(rbm, local_minima(rbm, 4), seed=0)
    share = (chains.step(400).mean(1) > 0.5).double().mean()
    expected = torch.sigmoid(torch.tensor(4.0))
    assert abs(float(share) - float(expected)) < 5 * float((expected * (1 - expected) / 2000).sqrt())
    assert chains.jumped > 1000


def test_pairs_of_equal_states_give_no_masks():
    assert ModeJumps(RBM(2, 1), torch.ones(3, 3)).masks.shape == (0, 3)
    prior = FactorialBernoulli(2)
    z, accepted = ModeJumps(prior, torch.eye(2))(torch.zeros(4, 2), torch.ones(4), sweep=1, block=0)
    assert z.shape == (4, 2)
    assert not bool(accepted.any())  # all units are in the block that is drawn
    with pytest.raises(InvalidInputError, match="modes must hold only the values 0 and 1"):
        ModeJumps(RBM(2, 1), torch.full((2, 3), 0.5))


@pytest.mark.parametrize("width", [1, 64, 65, 300])
def test_softplus_sum(width):
    x = 40 * torch.randn(5, width, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.softplus(x.double()).sum(-1)
    torch.testing.assert_close(softplus_sum(x).double(), expected, rtol=1e-5, atol=1e-4)
