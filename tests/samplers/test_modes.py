"""Local minima by greedy descent: the lowest first, far modes among them."""

import torch

from discrete_vae import RBM, FactorialBernoulli
from discrete_vae.samplers.modes import local_minima
from tests.log_partition.machines import random_rbm, two_far_modes, wide_and_deep_mode


def test_no_block_can_go_lower():
    rbm = random_rbm(7, 6, 2.0)
    z = local_minima(rbm, 20)
    energies = rbm.energy(z).detach()
    for unit in range(13):
        flipped = z.clone()
        flipped[:, unit] = 1 - flipped[:, unit]
        assert bool((rbm.energy(flipped) >= energies - 1e-6).all())
    assert bool((energies[: len(z.unique(dim=0))].diff() >= 0).all())


def test_both_far_modes_are_found():
    for rbm in (two_far_modes(), two_far_modes(20, 4.0)):
        assert local_minima(rbm, 2).mean(1).tolist() == [1.0, 0.0]


def test_the_deep_mode_comes_first():
    state = local_minima(wide_and_deep_mode(10, 16, 2.0, 14.0), 1)[0]
    assert state.tolist() == [1.0] * 20 + [0.0] * 16


def test_states_are_repeated_where_there_are_few():
    prior = FactorialBernoulli(3)
    with torch.no_grad():
        prior.bias.copy_(torch.tensor([1.0, -1.0, 2.0]))
    assert local_minima(prior, 3).tolist() == [[1.0, 0.0, 1.0]] * 3
    assert local_minima(RBM(2, 2), 5).shape == (5, 4)
