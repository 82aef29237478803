"""The modes of priors whose modes are known."""

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, GraphBoltzmann
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.diagnostics import find_prior_modes


def wells(share=0.5):
    """An RBM of 6 + 6 units: all on or all off, and what its chains look like."""
    rbm = RBM(6, 6)
    with torch.no_grad():
        rbm.weight.fill_(2.0)
        rbm.bias.fill_(-6.0)
    start = torch.zeros(200, 12)
    start[: int(200 * share)] = 1.0
    return rbm, start


def test_two_wells_are_two_modes_with_the_shares_of_their_chains():
    rbm, start = wells(0.7)
    modes = find_prior_modes(rbm, start)
    assert len(modes) == 2
    assert modes.share.tolist() == pytest.approx([0.7, 0.3], abs=0.02)
    assert modes.share_std_error.tolist() == pytest.approx([(0.21 / 200) ** 0.5] * 2, rel=0.1)
    assert bool((modes.stay > 0.99).all())
    assert modes.num_states == 200 * 41
    noisy = torch.tensor([[1.0] * 11 + [0.0], [0.0] * 11 + [1.0]])
    assert modes.assign(noisy).tolist() == [0, 1]


def test_maxima_are_local_maxima():
    rbm, start = wells()
    modes = find_prior_modes(rbm, start)
    for flipped in range(12):
        other = modes.maxima.clone()
        other[:, flipped] = 1 - other[:, flipped]
        assert bool((rbm.energy(other) >= rbm.energy(modes.maxima)).all())


def test_a_prior_without_couplings_has_one_mode():
    prior = FactorialBernoulli(5)
    with torch.no_grad():
        prior.bias.copy_(torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0]))
    modes = find_prior_modes(prior, torch.bernoulli(torch.full((50, 5), 0.5)), num_sweeps=5)
    assert len(modes) == 1
    assert modes.maxima.tolist() == [[1.0, 0.0, 1.0, 0.0, 1.0]]
    assert modes.share.tolist() == [1.0]


def test_a_graph_and_one_chain_do():
    machine = GraphBoltzmann(3, [(0, 1), (1, 2), (0, 2)])
    modes = find_prior_modes(machine, torch.zeros(1, 3), num_sweeps=3)
    assert float(modes.share.sum()) == pytest.approx(1.0)
    assert bool(modes.share_std_error.isnan().all())


def test_more_maxima_than_are_grouped_belong_to_the_nearest(monkeypatch):
    monkeypatch.setattr("discrete_vae.evaluation.diagnostics._MAX_MAXIMA", 1)
    rbm, start = wells(0.7)
    modes = find_prior_modes(rbm, start)
    assert len(modes) == 1
    assert modes.num_visited >= 2
    assert modes.share.tolist() == [1.0]


@pytest.mark.parametrize("start", [torch.zeros(3, 11), torch.full((3, 12), 0.5)])
def test_wrong_states_are_refused(start):
    with pytest.raises(InvalidInputError, match="start must"):
        find_prior_modes(wells()[0], start)
