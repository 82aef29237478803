"""Replica exchange leaves the joint law of all replicas invariant; a marginal acceptance does not."""

import pytest
import torch

from discrete_vae import RBM
from discrete_vae.samplers.tempering import exchanged_order, swap_probabilities
from tests.oracles.replica_exchange import joint_law, joint_swap_matrix, joint_sweep_matrix
from tests.oracles.transitions import invariance_error


def make_rbm(left, right, seed=0):
    rbm = RBM(left, right)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        rbm.weight.normal_(0, 2.0, generator=generator)
        rbm.bias.normal_(0, 1.0, generator=generator)
    return rbm


CASES = [
    (make_rbm(1, 1), [0.0, 0.3, 0.6, 1.0]),
    (make_rbm(2, 1), [0.0, 0.4, 1.0]),
    (make_rbm(2, 2), [0.2, 1.0]),
    (make_rbm(3, 3), [1.0]),
]


@pytest.mark.parametrize(
    ("rbm", "ladder"), CASES, ids=["4 replicas", "3 replicas", "2 replicas", "1 replica"]
)
@pytest.mark.parametrize("parity", [0, 1])
def test_sweeps_and_swaps_leave_the_joint_law_invariant(rbm, ladder, parity):
    ladder = torch.tensor(ladder, dtype=torch.float64)
    law = joint_law(rbm, ladder)
    assert float(law.sum()) == pytest.approx(1, abs=1e-12)
    swap = joint_swap_matrix(rbm, ladder, parity)
    torch.testing.assert_close(swap.sum(1), torch.ones(len(law), dtype=torch.float64))
    assert invariance_error(law, swap) < 1e-12
    assert invariance_error(law, joint_sweep_matrix(rbm, ladder) @ swap) < 1e-12


def test_swapping_with_free_energies_is_a_fault_that_is_caught():
    rbm, ladder = make_rbm(2, 1), torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)
    fault = joint_swap_matrix(rbm, ladder, 0, lambda z: rbm.free_energy(z[:, :2]))
    assert invariance_error(joint_law(rbm, ladder), fault) > 1e-3


def test_probabilities_against_the_ratio_of_joint_laws():
    energies = torch.tensor([[3.0, 1.0, 2.5, -1.0]], dtype=torch.float64)
    ladder = torch.tensor([0.0, 0.2, 0.7, 1.0], dtype=torch.float64)
    got = swap_probabilities(energies, ladder)[0]
    for r in range(3):
        before = -(ladder[r] * energies[0, r] + ladder[r + 1] * energies[0, r + 1])
        after = -(ladder[r] * energies[0, r + 1] + ladder[r + 1] * energies[0, r])
        assert float(got[r]) == pytest.approx(min(1.0, float((after - before).exp())))


@pytest.mark.parametrize(("parity", "expected"), [(0, [1, 0, 3, 2, 4]), (1, [0, 2, 1, 4, 3])])
def test_each_parity_moves_its_own_pairs(parity, expected):
    order = torch.arange(5)[None]
    assert exchanged_order(order, torch.ones(1, 4, dtype=torch.bool), parity).tolist() == [expected]
    assert exchanged_order(order, torch.zeros(1, 4, dtype=torch.bool), parity).tolist() == order.tolist()
