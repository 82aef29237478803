"""The law of a sweep over a graph: the exact matrix leaves p(z) invariant, and the kernels draw from it."""

import numpy as np
import pytest
import torch

from discrete_vae import GraphBoltzmann
from discrete_vae.boltzmann import graph as graph_module
from discrete_vae.kernels import gibbs_graph, gibbs_torch
from discrete_vae.kernels.gibbs import kernel_for, run_sweeps
from discrete_vae.testing import check_mean, enumerate_machine
from tests.boltzmann.graphs import ODD_CYCLE, random_graph, randomize, small_graph
from tests.oracles.transitions import check_sweeps, check_transitions, invariance_error, sweep_matrix

REPEATS = 1000  # chains out of each state
KERNELS = {"torch": gibbs_torch.run, "compiled": gibbs_graph.run}
GRAPHS = ["one unit", "no edges", "triangle", "odd cycle", "star", "complete"]


def one_sweep(energy, kernel, *, key=7, first_sweep=1, **options):
    return lambda z: run_sweeps(energy, z, 1, key=key, first_sweep=first_sweep, kernel=kernel, **options)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_keep_the_law(name, kernel):
    energy = small_graph(name, scale=1.5)
    check_sweeps(energy, one_sweep(energy, KERNELS[kernel]), repeats=REPEATS)


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1])
@pytest.mark.parametrize("first_sweep", [1, 2**32])
def test_law_holds_for_hostile_keys_and_sweeps(seed, first_sweep):
    energy = small_graph("odd cycle")
    check_sweeps(energy, one_sweep(energy, None, key=seed, first_sweep=first_sweep), repeats=REPEATS)


@pytest.mark.parametrize("inverse_temperature", [0.0, 0.3, 2.0])
def test_law_holds_at_other_temperatures(inverse_temperature):
    energy = small_graph("odd cycle")
    cold = torch.full((32 * REPEATS,), inverse_temperature)
    step = one_sweep(energy, None, inverse_temperature=cold)
    check_transitions(step, sweep_matrix(energy, inverse_temperature=inverse_temperature), 5, repeats=REPEATS)
    with pytest.raises(AssertionError):
        check_transitions(step, sweep_matrix(energy), 5, repeats=REPEATS)


@pytest.mark.parametrize("per_chain", [False, True])
def test_law_holds_with_clamped_units(per_chain):
    energy = small_graph("odd cycle")
    clamped = torch.tensor([False, True, False, True, False])
    step = one_sweep(energy, None, clamped=clamped.expand(32 * REPEATS, 5) if per_chain else clamped)
    check_transitions(step, sweep_matrix(energy, clamped=clamped), 5, repeats=REPEATS)
    with pytest.raises(AssertionError):
        check_transitions(step, sweep_matrix(energy), 5, repeats=REPEATS)


class StaleField(GraphBoltzmann):
    """All blocks see the state as it was before this sweep."""

    def compute_block_logits(self, z, block):
        if block == 0:
            self.old = z.clone()
        return super().compute_block_logits(self.old, block)


def with_an_entry_twice():
    """The first unit of the first block counts its first edge twice; the other end counts it once."""
    energy = small_graph("odd cycle")
    energy.start[1:] += 1
    energy.neighbor = torch.cat([energy.neighbor[:1], energy.neighbor])
    energy.neighbor_edge = torch.cat([energy.neighbor_edge[:1], energy.neighbor_edge])
    return energy


def with_rows_of_other_units():
    energy = small_graph("odd cycle")
    energy.order = energy.order.roll(1)
    return energy


def with_weights_of_other_edges():
    energy = small_graph("odd cycle")
    energy.neighbor_edge = energy.neighbor_edge.roll(1)
    return energy


@pytest.mark.parametrize("make", [with_an_entry_twice, with_rows_of_other_units, with_weights_of_other_edges])
def test_counted_transitions_reject_a_compiled_kernel_with_wrong_lists(make):
    step, matrix = one_sweep(make(), gibbs_graph.run), sweep_matrix(small_graph("odd cycle"))
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(step, matrix, 5, repeats=REPEATS)


def test_counted_transitions_reject_stale_fields():
    stale = randomize(StaleField(5, ODD_CYCLE))
    assert kernel_for(stale) is gibbs_torch.run
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(one_sweep(stale, None), sweep_matrix(small_graph("odd cycle")), 5, repeats=REPEATS)


@pytest.mark.parametrize("kernel", KERNELS)
def test_two_neighbors_in_one_block_are_rejected(kernel, monkeypatch):
    """Drawn together, neighbors change p(z); one after the other they keep it, but follow another matrix."""
    right = sweep_matrix(small_graph("odd cycle"))
    blocks = [np.array([0, 1, 3]), np.array([2, 4])]
    monkeypatch.setattr(graph_module, "color_blocks", lambda num_units, edges: blocks)
    wrong = randomize(GraphBoltzmann(5, ODD_CYCLE))
    assert invariance_error(enumerate_machine(wrong).prob, sweep_matrix(wrong)) > 1e-3
    with pytest.raises(AssertionError, match="changes the probability"):
        check_sweeps(wrong, one_sweep(wrong, KERNELS[kernel]), repeats=REPEATS)
    with pytest.raises(AssertionError, match="chi-square"):
        check_transitions(one_sweep(wrong, KERNELS[kernel]), right, 5, repeats=REPEATS)


@pytest.fixture(scope="module")
def long_run():
    """16 units, 40 edges and independent states, 40 batches of 5,000 chains after 60 sweeps."""
    energy = random_graph(16, 40, scale=0.6)
    return energy, run_sweeps(energy, torch.zeros(200_000, 16), 60, key=11, first_sweep=1)


def moments(z):
    batches = z.view(40, -1, z.shape[1]).double()
    return torch.einsum("bci,bcj->bij", batches, batches) / batches.shape[1]


def test_moments_of_a_larger_machine(long_run):
    energy, z = long_run
    check_mean(moments(z), enumerate_machine(energy).pair_moments().detach(), resolution=2e-3)


def test_moments_reject_a_slightly_colder_machine(long_run):
    energy, z = long_run
    cold = run_sweeps(energy, z, 20, key=12, first_sweep=1, inverse_temperature=torch.full((len(z),), 1.03))
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(moments(cold), enumerate_machine(energy).pair_moments().detach())
