"""Machines on graphs against enumeration and against the RBM, with wrong ones that must be rejected."""

import io
import pickle
import time

import numpy as np
import pytest
import torch

from discrete_vae import GraphBoltzmann, exact_log_partition
from discrete_vae.boltzmann import graph as graph_module
from discrete_vae.errors import InvalidInputError
from discrete_vae.testing.contracts import check_energy
from discrete_vae.testing.enumeration import all_states, enumerate_machine
from tests.boltzmann.graphs import (
    ODD_CYCLE,
    SMALL_GRAPHS,
    random_graph,
    randomize,
    rbm_and_its_graph,
    small_graph,
)


@pytest.mark.parametrize("name", SMALL_GRAPHS)
def test_small_graphs_obey_the_contract(name):
    check_energy(small_graph(name))


def test_energy_by_hand():
    machine = GraphBoltzmann(3, [[2, 0], [0, 1]]).double()
    with torch.no_grad():
        machine.weight.copy_(torch.tensor([0.5, -1.0]))
        machine.bias.copy_(torch.tensor([0.1, 0.2, 0.3]))
    z = torch.tensor(
        [[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.5, 0.0, 1.0]], dtype=torch.float64
    )
    expected = [-(0.5 + 0.1 + 0.3), -(-1.0 + 0.1 + 0.2), -(0.2 + 0.3), -(0.25 + 0.05 + 0.3)]
    assert machine.energy(z).tolist() == pytest.approx(expected)
    assert machine(z[0]).item() == pytest.approx(expected[0])


@pytest.mark.parametrize("name", [name for name in SMALL_GRAPHS if name != "one unit"])
def test_energy_is_the_sum_over_a_dense_triangle(name):
    machine = small_graph(name).double()
    weight = torch.zeros(machine.num_units, machine.num_units, dtype=torch.float64)
    weight[machine.edges[:, 0], machine.edges[:, 1]] = machine.weight
    z = torch.rand(2, 9, machine.num_units, dtype=torch.float64)
    expected = -torch.einsum("...i,ij,...j->...", z, weight, z) - z @ machine.bias
    torch.testing.assert_close(machine.energy(z), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 3), (4, 4), (1, 5), (6, 2)], ids=str)
class TestSameAsTheRBM:
    def test_blocks(self, shape):
        rbm, graph = rbm_and_its_graph(*shape)
        assert [block.tolist() for block in graph.blocks] == [block.tolist() for block in rbm.blocks]

    def test_energies_conditionals_and_free_energies(self, shape):
        rbm, graph = (machine.double() for machine in rbm_and_its_graph(*shape))
        z = all_states(rbm.num_units)
        exact = {"rtol": 0, "atol": 1e-12}
        torch.testing.assert_close(graph.energy(z), rbm.energy(z), **exact)
        for block in range(2):
            torch.testing.assert_close(graph.block_logits(z, block), rbm.block_logits(z, block), **exact)
            torch.testing.assert_close(
                graph.free_energy(z, block, 0.3), rbm.free_energy(z, block, 0.3), **exact
            )
        torch.testing.assert_close(graph.free_energy(z), rbm.free_energy(z), **exact)

    def test_gradients(self, shape):
        rbm, graph = (machine.double() for machine in rbm_and_its_graph(*shape))
        z = all_states(rbm.num_units)
        for values in ((rbm.energy(z), graph.energy(z)), (rbm.free_energy(z), graph.free_energy(z))):
            weights = torch.linspace(-1, 2, len(z), dtype=torch.float64)
            of_rbm, of_graph = (
                torch.autograd.grad((value * weights).sum(), list(machine.parameters()))
                for value, machine in zip(values, (rbm, graph), strict=True)
            )
            for a, b in zip(of_rbm, of_graph, strict=True):
                torch.testing.assert_close(a.flatten(), b, rtol=0, atol=1e-10)

    def test_log_partition(self, shape):
        rbm, graph = rbm_and_its_graph(*shape)
        assert exact_log_partition(graph).value == pytest.approx(exact_log_partition(rbm).value, abs=1e-12)

    @pytest.mark.parametrize("order", ["left first", "right first", "mixed", "one group"])
    def test_expected_energy(self, shape, order):
        rbm, graph = (machine.double() for machine in rbm_and_its_graph(*shape))
        n, generator = rbm.num_units, torch.Generator().manual_seed(1)
        rank = {
            "left first": torch.arange(n),
            "right first": torch.arange(n).flip(0),
            "mixed": torch.randint(3, (n,), generator=generator),
            "one group": torch.zeros(n, dtype=torch.int64),
        }[order]
        bits, q = (
            torch.rand(4, n, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)
        )
        inputs = [(bits, q, *machine.parameters()) for machine in (rbm, graph)]
        values = [machine.expected_energy(bits, q, machine.pair_order(rank)) for machine in (rbm, graph)]
        torch.testing.assert_close(values[0], values[1], rtol=0, atol=1e-12)
        of_rbm, of_graph = (
            torch.autograd.grad(value.square().sum(), wrt, allow_unused=True, materialize_grads=True)
            for value, wrt in zip(values, inputs, strict=True)
        )
        for a, b in zip(of_rbm, of_graph, strict=True):
            torch.testing.assert_close(a.reshape(b.shape), b, rtol=0, atol=1e-11)


@pytest.mark.parametrize("ranks", [[0, 0, 0, 0, 0], [0, 1, 2, 3, 4], [1, 0, 1, 0, 2], [2, 2, 0, 1, 1]])
def test_expected_energy_is_unbiased_for_a_posterior_without_hierarchy(ranks):
    """With independent units the average over bits drawn from q is the exact mean, whatever the order."""
    machine = small_graph("odd cycle").double()
    states, q = all_states(5), torch.rand(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    prob = (states * q + (1 - states) * (1 - q)).prod(-1)
    order = machine.pair_order(torch.tensor(ranks))
    value = prob @ machine.expected_energy(states, q.expand_as(states), order)
    torch.testing.assert_close(value, prob @ machine.energy(states), rtol=0, atol=1e-12)


class TestFaultsAreRejected:
    def test_two_neighbors_in_one_block(self, monkeypatch):
        monkeypatch.setattr(
            graph_module, "color_blocks", lambda n, edges: [np.array([0, 1, 3]), np.array([2, 4])]
        )
        with pytest.raises(AssertionError):
            check_energy(randomize(GraphBoltzmann(5, ODD_CYCLE)))

    def test_a_unit_in_two_blocks(self):
        machine = small_graph("odd cycle")
        machine.blocks = (*machine.blocks, machine.blocks[0][:1])
        with pytest.raises(AssertionError, match="cover each unit once"):
            check_energy(machine)

    @pytest.mark.parametrize("seen_from", ["energy", "block_logits"])
    def test_an_edge_counted_twice(self, seen_from):
        class Twice(GraphBoltzmann):
            def compute_energy(self, z):
                extra = z[..., 0] * z[..., 1] * self.weight[0].to(z.dtype)
                return super().compute_energy(z) - extra * (seen_from == "energy")

            def compute_block_logits(self, z, block):
                extra = z[..., 1:2] * self.weight[0].to(z.dtype) * (self.blocks[block] == 0)
                return super().compute_block_logits(z, block) + extra * (seen_from == "block_logits")

        with pytest.raises(AssertionError):
            check_energy(randomize(Twice(5, ODD_CYCLE)))

    def test_weights_in_another_order(self):
        machine = small_graph("odd cycle")
        machine.neighbor_edge = machine.neighbor_edge.roll(1)
        with pytest.raises(AssertionError):
            check_energy(machine)


def test_many_weights_and_their_gradient():
    """A machine that is too large to enumerate, against dense products."""
    machine = random_graph(300, 2000).double()
    weight = torch.zeros(300, 300, dtype=torch.float64)
    weight[machine.edges[:, 0], machine.edges[:, 1]] = machine.weight.detach()
    weight = (weight + weight.T).requires_grad_()
    z = (torch.rand(11, 300, generator=torch.Generator().manual_seed(1)) < 0.5).double()
    fields = z @ weight + machine.bias
    for index, block in enumerate(machine.blocks):
        torch.testing.assert_close(machine.block_logits(z, index), fields[:, block], rtol=0, atol=1e-11)
    dense = -((z @ weight) * z).sum(-1) / 2 - z @ machine.bias
    torch.testing.assert_close(machine.energy(z), dense, rtol=0, atol=1e-10)
    (of_dense,) = torch.autograd.grad(dense.square().sum(), weight)
    (of_graph,) = torch.autograd.grad(machine.energy(z).square().sum(), machine.weight)
    both = (
        of_dense[machine.edges[:, 0], machine.edges[:, 1]]
        + of_dense[machine.edges[:, 1], machine.edges[:, 0]]
    )
    torch.testing.assert_close(of_graph, both, rtol=1e-10, atol=1e-8)


def test_the_state_holds_parameters_only_and_survives_copies():
    machine = small_graph("odd cycle")
    assert set(machine.state_dict()) == {"weight", "bias"}
    copy = pickle.loads(pickle.dumps(machine))
    z = all_states(5)
    assert torch.equal(copy.energy(z), machine.energy(z))
    assert torch.equal(machine.double().edges, copy.edges)


def test_float64_states_are_computed_in_float64():
    machine = small_graph("odd cycle")
    assert machine.energy(torch.ones(1, 5)).dtype == torch.float32
    assert machine.energy(torch.ones(1, 5).double()).dtype == torch.float64
    assert machine.block_logits(torch.ones(1, 5).double(), 0).dtype == torch.float64


def test_log_partition_of_an_odd_cycle():
    machine = small_graph("odd cycle")
    expected = float(enumerate_machine(machine).log_partition.detach())
    estimate = exact_log_partition(machine)
    assert estimate.value == pytest.approx(expected, abs=1e-12)
    assert estimate.num_samples == 2 ** (5 - max(len(block) for block in machine.blocks))


@pytest.mark.parametrize("num_units", [0, -1, 2.0, True])
def test_wrong_sizes(num_units):
    with pytest.raises(InvalidInputError, match="num_units must be a positive integer"):
        GraphBoltzmann(num_units, [])


@pytest.mark.slow
def test_a_hundred_thousand_units_and_a_million_edges():
    """Construction, energies and both phases of the gradient, in seconds and without a dense matrix."""
    begin = time.perf_counter()
    machine = random_graph(100_000, 1_000_000, scale=0.1)
    assert len(machine.blocks) < 12
    z = (torch.rand(20, 100_000, generator=torch.Generator().manual_seed(1)) < 0.5).float()
    (machine.energy(z).mean() - machine.free_energy(z).mean()).backward()
    assert bool(machine.weight.grad.isfinite().all())
    first, second = machine.edges[:3].T
    pairs = (z[:, first] * z[:, second]).mean(0)
    assert machine.weight.grad[:3].tolist() != pairs.tolist()  # the negative phase is in it
    assert time.perf_counter() - begin < 120


def test_weights_of_other_edges_are_refused():
    """As many edges, so that the shapes fit."""
    first, other = GraphBoltzmann(4, [[0, 1], [1, 2]]), GraphBoltzmann(4, [[0, 1], [2, 3]])
    module = torch.nn.Sequential(first)
    for load, machine in (
        (other.load_state_dict, first),
        (torch.nn.Sequential(other).load_state_dict, module),
    ):
        with pytest.raises(InvalidInputError, match="state_dict must be of a machine with these edges"):
            load(machine.state_dict())
    turned = GraphBoltzmann(4, [[1, 0], [2, 1]])
    file = io.BytesIO()
    torch.save(randomize(first).state_dict(), file)
    file.seek(0)
    turned.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(turned.weight, first.weight)
    other.load_state_dict(dict(first.state_dict()))  # of before, or from a file without metadata
    assert torch.equal(other.weight, first.weight)
