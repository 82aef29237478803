"""The law of a sweep: the exact matrix leaves p(z) invariant, and kernels draw from the exact matrix.

`test_gibbs` holds the compiled kernels to the reference's states, so the law of one of them is the law of both.
"""

import numpy as np
import pytest
import torch

from discrete_vae import RBM, GraphBoltzmann
from discrete_vae.boltzmann import graph as graph_module
from discrete_vae.kernels import gibbs, gibbs_graph
from discrete_vae.kernels.gibbs import kernel_for, run_sweeps
from discrete_vae.testing import check_mean, enumerate_machine
from tests.boltzmann.graphs import ODD_CYCLE, random_graph, randomize, small_graph
from tests.oracles.transitions import check_sweeps, check_transitions, invariance_error, sweep_matrix

REPEATS = 1000  # chains out of each state


def make_rbm(num_left, num_right, *, scale=1.5):
    rbm = RBM(num_left, num_right)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        rbm.weight.normal_(0, scale, generator=generator)
        rbm.bias.normal_(0, 1, generator=generator)
    return rbm


class TransposedWeight(RBM):
    def compute_block_logits(self, z, block):
        left, right = z[..., : self.num_left], z[..., self.num_left :]
        weight, bias = self.weight.to(z.dtype), self.bias.to(z.dtype).split([self.num_left, self.num_right])
        return (right @ weight if block == 0 else left @ weight.T) + bias[block]


class StaleGraph(GraphBoltzmann):
    """All blocks see the state as it was before this sweep."""

    def compute_block_logits(self, z, block):
        if block == 0:
            self.old = z.clone()
        return super().compute_block_logits(self.old, block)


FIVE_UNITS = {"rbm": lambda: make_rbm(3, 2), "graph": lambda: small_graph("odd cycle")}
MACHINES = pytest.mark.parametrize("name", FIVE_UNITS)


def one_sweep(energy, kernel="own", *, key=7, first_sweep=1, **options):
    run = gibbs.run_reference if kernel == "torch" else kernel_for(energy)
    return lambda z: run_sweeps(energy, z, 1, key=key, first_sweep=first_sweep, kernel=run, **options)


@MACHINES
@pytest.mark.parametrize(("key", "first_sweep"), [(0, 1), (2**63, 2**32), (2**64 - 1, 2**32)])
def test_law_holds_for_hostile_keys_and_sweeps(name, key, first_sweep):
    energy = FIVE_UNITS[name]()
    step = one_sweep(energy, key=key, first_sweep=first_sweep)
    check_transitions(step, sweep_matrix(energy), 5, repeats=REPEATS)


def test_wrong_conditionals_are_rejected():
    rbm, wrong = make_rbm(3, 3), TransposedWeight(3, 3)
    wrong.load_state_dict(rbm.state_dict())
    assert invariance_error(enumerate_machine(rbm).prob, sweep_matrix(wrong)) > 1e-3
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(one_sweep(wrong), sweep_matrix(rbm), 6, repeats=REPEATS)


def test_counted_transitions_reject_stale_fields_of_a_graph():
    stale = randomize(StaleGraph(5, ODD_CYCLE))
    assert kernel_for(stale) is gibbs.run_reference
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(one_sweep(stale), sweep_matrix(small_graph("odd cycle")), 5, repeats=REPEATS)


def test_counted_transitions_reject_a_compiled_kernel_with_wrong_lists():
    """The first unit of the first block counts its first edge twice; the other end counts it once."""
    energy = small_graph("odd cycle")
    matrix = sweep_matrix(energy)
    energy.start[1:] += 1
    energy.neighbor = torch.cat([energy.neighbor[:1], energy.neighbor])
    energy.neighbor_edge = torch.cat([energy.neighbor_edge[:1], energy.neighbor_edge])
    assert kernel_for(energy) is gibbs_graph.run
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(one_sweep(energy), matrix, 5, repeats=REPEATS)


def test_two_neighbors_in_one_block_are_rejected(monkeypatch):
    """Drawn together, neighbors change p(z); one after the other they keep it, but follow another matrix."""
    right = sweep_matrix(small_graph("odd cycle"))
    blocks = [np.array([0, 1, 3]), np.array([2, 4])]
    monkeypatch.setattr(graph_module, "color_blocks", lambda num_units, edges: blocks)
    wrong = randomize(GraphBoltzmann(5, ODD_CYCLE))
    assert invariance_error(enumerate_machine(wrong).prob, sweep_matrix(wrong)) > 1e-3
    with pytest.raises(AssertionError, match="changes the probability"):
        check_sweeps(wrong, one_sweep(wrong), repeats=REPEATS)
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(one_sweep(wrong), right, 5, repeats=REPEATS)


def test_counted_transitions_reject_one_random_number_for_both_sides(monkeypatch):
    words = gibbs.unit_words

    def shared_words(num_chains, num_units, **counter):
        return torch.cat([words(num_chains, num_units, **counter)[:, : num_units // 2]] * 2, 1)

    rbm = make_rbm(3, 3, scale=0.2)
    step = one_sweep(rbm, "torch")
    check_transitions(step, sweep_matrix(rbm), 6, repeats=REPEATS)
    monkeypatch.setattr(gibbs, "unit_words", shared_words)
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(step, sweep_matrix(rbm), 6, repeats=REPEATS)


def test_moments_of_a_larger_graph_and_of_a_slightly_colder_one():
    energy = random_graph(16, 40, scale=0.6)
    exact = enumerate_machine(energy).pair_moments().detach()

    def moments(z):
        batches = z.view(40, -1, energy.num_units).double()  # independent ones
        return torch.einsum("bci,bcj->bij", batches, batches) / batches.shape[1]

    z = run_sweeps(energy, torch.zeros(200_000, energy.num_units), 60, key=11, first_sweep=1)
    check_mean(moments(z), exact, resolution=2e-3)
    cold = run_sweeps(energy, z, 20, key=12, first_sweep=1, inverse_temperature=torch.full((len(z),), 1.03))
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(moments(cold), exact)
