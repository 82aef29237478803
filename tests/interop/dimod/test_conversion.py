"""Machines as binary quadratic models and back: energies by enumeration, weights to the last bit."""

import numpy as np
import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, GraphBoltzmann
from discrete_vae.interop.dimod import from_bqm, to_bqm
from discrete_vae.interop.dimod.conversion import pairs_of
from discrete_vae.testing import all_states
from tests.boltzmann.graphs import ODD_CYCLE, randomize, small_graph
from tests.refusals import refused_argument

dimod = pytest.importorskip("dimod", reason="dimod is not installed (extra dwave)")

MACHINES = {
    "rbm": lambda: randomize(RBM(3, 4)),
    "rbm of one unit a side": lambda: randomize(RBM(1, 1)),
    "factorial": lambda: randomize(FactorialBernoulli(5)),
    "graph": lambda: small_graph("odd cycle, chord, end and loner"),
    "cell": lambda: small_graph("Chimera cell"),
}


def energies_of(bqm, z):
    """E_bqm of bits, in the order of the model's variables."""
    states = z if bqm.vartype is dimod.BINARY else 2 * z - 1
    return torch.from_numpy(bqm.energies((states.numpy().astype(np.int8), list(bqm.variables))))


def weights_by_pair(machine):
    weights = machine.weight.flatten().tolist() if hasattr(machine, "weight") else []
    return {frozenset(pair): weight for pair, weight in zip(pairs_of(machine).tolist(), weights, strict=True)}


def check_energies(bqm, machine, t):
    z = all_states(machine.num_units)
    torch.testing.assert_close(energies_of(bqm, z), t * machine.energy(z).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("vartype", "t"), [("BINARY", 0.37), ("SPIN", 1.0)])
def test_energies_of_all_states_are_equal_and_planted_faults_are_seen(make, vartype, t):
    machine = make()
    bqm = to_bqm(machine, vartype=vartype, inverse_temperature=t)
    check_energies(bqm, machine, t)
    assert to_bqm(machine, vartype=getattr(dimod, vartype), inverse_temperature=t) == bqm
    shifted, turned = bqm.copy(), bqm.copy()
    shifted.offset += 1e-3
    turned.scale(-1.0)
    for fault, temperature in ((shifted, t), (turned, t), (bqm, 2 * t)):
        with pytest.raises(AssertionError):
            check_energies(fault, machine, temperature)


@pytest.mark.parametrize("make", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("vartype", ["BINARY", "SPIN"])
def test_round_trip_to_the_last_bit(make, vartype):
    machine = make()
    back = from_bqm(to_bqm(machine, vartype=vartype))
    is_cell = machine.num_units == 8  # one cell of Chimera is a whole RBM
    assert type(back.energy) is (RBM if is_cell else type(machine))
    assert back.labels == tuple(range(machine.num_units))
    assert back.offset == pytest.approx(0, abs=1e-12)
    assert torch.equal(back.energy.bias, machine.bias)
    assert weights_by_pair(back.energy) == weights_by_pair(machine)


@pytest.mark.parametrize("kind", [dimod.Float32BQM, dimod.Float64BQM, dimod.DictBQM])
@pytest.mark.parametrize("vartype", ["BINARY", "SPIN"])
def test_models_of_others(kind, vartype):
    linear = {"b": 0.5, (1, 2): -1.0, 7: 0.25, "lone": 2.0}
    quadratic = {("b", 7): 1.5, (7, (1, 2)): -0.75, ((1, 2), "b"): 2.0}
    bqm = kind(linear, quadratic, 3.5, vartype)
    found = from_bqm(bqm, inverse_temperature=0.5)
    assert isinstance(found.energy, GraphBoltzmann)
    assert set(found.labels) == set(linear)
    z = all_states(4)
    states = z if vartype == "BINARY" else 2 * z - 1
    wanted = torch.tensor(
        [float(bqm.energy(dict(zip(found.labels, row, strict=True)))) for row in states.tolist()]
    )
    torch.testing.assert_close(found.energy.energy(z).float() + found.offset, 0.5 * wanted, rtol=0, atol=1e-5)


def test_bipartite_models_become_machines_of_two_sides_and_labels_follow():
    pairs = {("x", "a"): 1.0, ("a", "y"): -2.0, ("y", "b"): 3.0}
    bqm = dimod.BinaryQuadraticModel({}, pairs, 0.0, "BINARY")
    assert isinstance(from_bqm(bqm).energy, GraphBoltzmann)
    found = from_bqm(bqm, min_density=0.5)
    assert isinstance(found.energy, RBM)
    assert found.labels == ("x", "y", "a", "b")  # not in alphabetical order
    assert found.energy.weight.tolist() == [[-1.0, 0.0], [2.0, -3.0]]
    graph = GraphBoltzmann(3, [[0, 1], [1, 2]], nodes=[30, 4, 17])
    assert list(to_bqm(graph).variables) == [30, 4, 17]
    assert list(to_bqm(graph, labels="abc").variables) == ["a", "b", "c"]
    nodes = (7, 30, 4, 5, 17)
    back = from_bqm(to_bqm(GraphBoltzmann(5, ODD_CYCLE, nodes=nodes)))
    assert back.labels == back.energy.nodes == nodes
    assert from_bqm(to_bqm(back.energy, labels=np.array(nodes))).energy.nodes == nodes
    assert from_bqm(to_bqm(back.energy, labels=range(-1, 4))).energy.nodes == (0, 1, 2, 3, 4)


def test_what_does_not_fit_is_named():
    machine, bqm = RBM(1, 1), dimod.BinaryQuadraticModel
    for name, values in {
        "vartype": ["QUBO"],
        "labels": ["aa", 2, [[1], [2]]],
        "inverse_temperature": [float("nan")],
    }.items():
        for value in values:
            assert refused_argument(to_bqm, machine, **{name: value}) == name
    for name, value in (("dtype", "f"), ("dtype", torch.int64), ("min_density", "all")):
        assert refused_argument(from_bqm, to_bqm(machine), **{name: value}) == name
    assert refused_argument(to_bqm, 3) == "energy"
    assert refused_argument(to_bqm, randomize(machine, scale=torch.nan)) == "energy.bias"
    for model in ({}, bqm("SPIN"), bqm({0: 1e300}, {}, 0.0, "SPIN")):
        assert refused_argument(from_bqm, model) == "bqm"
