"""Machines over bits and Ising models over spins have one law."""

import copy
import pickle

import numpy as np
import pytest
import torch

from discrete_vae import RBM, BlockGibbs, GraphBoltzmann
from discrete_vae.boltzmann.ising import IsingModel
from discrete_vae.errors import InvalidInputError
from discrete_vae.testing.enumeration import all_states, enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_frequencies

EDGES = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [1, 3]]


def numbers(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rbm_case():
    couplings, fields = numbers(3, 2, seed=0), numbers(5, seed=1)
    pairs = [((i, 3 + j), couplings[i, j]) for i in range(3) for j in range(2)]
    return RBM.from_ising(couplings, fields, dtype=torch.float64), couplings, fields, pairs


def graph_case():
    couplings, fields = numbers(6, seed=2), numbers(5, seed=3)
    machine = GraphBoltzmann.from_ising(5, EDGES, couplings, fields, dtype=torch.float64)
    return machine, couplings, fields, list(zip(EDGES, couplings, strict=True))


def ising_energies(spins, fields, pairs):
    """The definition, term by term."""
    return -(sum(j * spins[:, a] * spins[:, b] for (a, b), j in pairs) + spins @ fields)


@pytest.mark.parametrize("case", [rbm_case, graph_case])
class TestBothWays:
    def test_energies_agree_up_to_the_offset(self, case):
        machine, _, fields, pairs = case()
        z = all_states(5)
        energies = ising_energies(2 * z - 1, fields, pairs)
        model = machine.to_ising()
        torch.testing.assert_close(machine.energy(z), energies + model.offset, rtol=0, atol=1e-13)
        assert model.offset != 0

    def test_the_laws_are_one(self, case):
        machine, _, fields, pairs = case()
        law = (-ising_energies(2 * all_states(5) - 1, fields, pairs)).softmax(0)
        torch.testing.assert_close(enumerate_machine(machine).prob.detach(), law, rtol=0, atol=1e-14)

    def test_the_round_trip_gives_the_numbers_back(self, case):
        machine, couplings, fields, _ = case()
        model = machine.to_ising()
        torch.testing.assert_close(model.couplings, couplings, rtol=0, atol=1e-15)
        torch.testing.assert_close(model.fields, fields, rtol=0, atol=1e-14)
        assert not model.couplings.requires_grad

    def test_a_wrong_conversion_is_seen(self, case):
        """The planted fault: fields that forget what the couplings add to the biases."""
        machine, _, fields, pairs = case()
        z = all_states(5)
        with torch.no_grad():
            machine.bias.copy_(2 * fields)
        gap = machine.energy(z) - ising_energies(2 * z - 1, fields, pairs)
        assert float(gap.detach().std()) > 0.1


def test_chains_sample_the_spins():
    machine, _, fields, pairs = rbm_case()
    machine = machine.float()
    law = (-ising_energies(2 * all_states(5) - 1, fields, pairs)).softmax(0)
    spins = 2 * BlockGibbs(machine, 20_000, seed=0).step(200) - 1
    codes = ((spins > 0).long() * 2 ** torch.arange(5)).sum(1)
    order = (all_states(5).long() * 2 ** torch.arange(5)).sum(1)
    check_frequencies(torch.bincount(codes, minlength=32)[order], law)
    reversed_law = (ising_energies(2 * all_states(5) - 1, fields, pairs)).softmax(0)  # signs of dimod
    with pytest.raises(AssertionError):
        check_frequencies(torch.bincount(codes, minlength=32)[order], reversed_law)


def test_arrays_and_lists_of_whole_numbers():
    machine = RBM.from_ising(np.array([[1, -1]]), [0, 0, 0])
    assert machine.weight.dtype == torch.float32
    assert machine.weight.tolist() == [[4.0, -4.0]]
    assert machine.bias.tolist() == [0.0, -2.0, 2.0]


def test_the_record_pickles_and_compares_by_identity():
    model = rbm_case()[0].to_ising()
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert isinstance(other, IsingModel)
        assert torch.equal(other.couplings, model.couplings)
        assert other != model


@pytest.mark.parametrize(
    ("couplings", "fields", "message"),
    [
        ([1.0, 2.0], [0.0] * 3, r"couplings must have shape \(left, right\); received shape \(2,\)"),
        ([[1.0], [2.0, 3.0]], [0.0] * 3, "couplings must hold numbers; received a list"),
        ([["a"]], [0.0] * 2, "couplings must hold numbers"),
        ([[1.0, 2.0]], [0.0] * 2, r"fields must have shape \(3\); received shape \(2,\)"),
        ([[1.0, float("nan")]], [0.0] * 3, "couplings must be finite; received a value of nan"),
        ([[1.0, 2.0]], [0.0, 0.0, float("inf")], "fields must be finite; received a value of inf"),
    ],
)
def test_wrong_numbers(couplings, fields, message):
    with pytest.raises(InvalidInputError, match=message):
        RBM.from_ising(couplings, fields)


def test_one_coupling_an_edge():
    with pytest.raises(InvalidInputError, match=r"couplings must have shape \(6\); received shape \(5,\)"):
        GraphBoltzmann.from_ising(5, EDGES, [1.0] * 5, [0.0] * 5)
