"""dimod solvers as chains: the law after correction, state, runs, refusals, a process without the extra."""

import importlib
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from discrete_vae import (
    RBM,
    BlockGibbs,
    DiscreteVAE,
    FactorialBernoulli,
    GraphBoltzmann,
    load_dataset,
    load_experiment,
    load_run,
    train,
)
from discrete_vae.config.overrides import apply_overrides
from discrete_vae.errors import SolverError
from discrete_vae.interop.dimod import DimodSampler, from_bqm, negative_phase, places, register_solver, to_bqm
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.testing import check_frequencies, enumerate_machine
from discrete_vae.training.refit import RunRefit
from tests.boltzmann.graphs import ODD_CYCLE, randomize, small_graph, state_counts
from tests.refusals import refused, refused_argument

dimod = pytest.importorskip("dimod", reason="dimod is not installed (extra dwave)")
samplers = pytest.importorskip("dwave.samplers", reason="dwave-samplers is not installed (extra dwave)")


class ExactDraws(dimod.Sampler):
    """Independent draws of exp(-c E_bqm) by enumeration, as an annealer at inverse temperature c would make them."""

    def __init__(self, inverse_temperature=1.0, *, sign=1.0, most_reads=None, breaks=None):
        self.inverse_temperature, self.sign, self.breaks = inverse_temperature, sign, breaks
        self.most_reads = most_reads
        self.calls = []

    @property
    def parameters(self):
        return {"num_reads": [], "seed": []}

    @property
    def properties(self):
        return {} if self.most_reads is None else {"num_reads_range": [1, self.most_reads]}

    def sample(self, bqm, *, num_reads, seed):
        self.calls.append((num_reads, seed, dict(bqm.linear)))
        n = bqm.num_variables
        states = 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(np.int8) - 1
        logits = -self.sign * self.inverse_temperature * bqm.energies((states, list(bqm.variables)))
        weights = np.exp(logits - logits.max())
        drawn = np.random.default_rng(seed).choice(2**n, num_reads, p=weights / weights.sum())
        kept, counts = np.unique(drawn, return_counts=True)  # states that were read twice come back once
        order = np.random.default_rng(0).permutation(n)  # in an order of its own
        labels = [list(bqm.variables)[index] for index in order]
        more = {} if self.breaks is None else {"chain_break_fraction": self.breaks_of(kept)}
        found = dimod.SampleSet.from_samples_bqm(
            (states[kept][:, order], labels), bqm, num_occurrences=counts
        )
        return dimod.append_data_vectors(found, **more) if more else found

    def breaks_of(self, states):
        return np.full(len(states), self.breaks)


class Seedless(ExactDraws):
    """The same without a seed, as a device is."""

    @property
    def parameters(self):
        return {"num_reads": []}

    def sample(self, bqm, *, num_reads):
        return super().sample(bqm, num_reads=num_reads, seed=len(self.calls))


def make_machine():
    return randomize(GraphBoltzmann(5, [*ODD_CYCLE, [0, 2]]), seed=3)


@pytest.mark.parametrize("c", [0.4, 2.5])
def test_the_law_is_right_once_the_temperature_is_known(c):
    machine = make_machine()
    chains = DimodSampler(machine, 3000, solver=ExactDraws(c), seed=0)
    exact = enumerate_machine(machine).prob.detach()
    with pytest.raises(AssertionError):  # planted: the first samples are those of another temperature
        check_frequencies(state_counts(chains.step(1)), exact)
    assert chains.sampled_at == pytest.approx(c, rel=0.1)
    for _ in range(7):
        chains.step(1)
    assert chains.solver_inverse_temperature == pytest.approx(c, rel=0.04)
    check_frequencies(state_counts(chains.step(1)), exact, alpha=1e-6)


def test_weights_of_zero_and_one_read_tell_no_temperature_and_without_correction_it_is_measured_alone():
    for machine, num_chains in ((GraphBoltzmann(5, ODD_CYCLE), 100), (make_machine(), 1)):
        chains = DimodSampler(machine, num_chains, solver=ExactDraws(0.4, breaks=0.9))
        assert chains.step(1).shape == (num_chains, 5)
        assert chains.solver_inverse_temperature == 1
        assert "sampled_at_inverse_temperature" not in chains.metrics()
    chains = DimodSampler(make_machine(), 3000, solver=ExactDraws(0.4), correct_temperature=False)
    for _ in range(3):
        chains.step(1)
    assert chains.solver_inverse_temperature == 1
    assert chains.metrics() == {
        "solver_inverse_temperature": 1.0,
        "sampled_at_inverse_temperature": pytest.approx(0.4, rel=0.1),
    }


@pytest.mark.parametrize("c", [0.5, 1.0, 5.0])
def test_reads_that_tell_little_do_not_drive_the_temperature_away(c):
    machine = randomize(GraphBoltzmann(5, ODD_CYCLE), seed=3)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.mul_(0.1)
    chains = DimodSampler(machine, 50, solver=ExactDraws(c), seed=0)
    for _ in range(400):
        chains.step(1)
        assert 0.1 < chains.solver_inverse_temperature < 20


def test_sweeps_after_the_solver_lead_to_the_law():
    machine = make_machine()
    chains = DimodSampler(
        machine, 4000, solver=ExactDraws(0.2), correct_temperature=False, num_gibbs_sweeps=30, seed=0
    )
    check_frequencies(state_counts(chains.step(1)), enumerate_machine(machine).prob.detach())


@pytest.mark.parametrize("depth", [0, 2])
def test_reads_beyond_the_solvers_limit_come_in_parts(depth):
    solver = composed = ExactDraws(most_reads=40)
    for _ in range(depth):
        composed = dimod.TrackingComposite(composed)
    register_solver("limited", lambda: composed)
    z = DimodSampler(make_machine(), 100, solver="limited", seed=0).step(1)
    assert z.shape == (100, 5)
    assert [reads for reads, _, _ in solver.calls] == [40, 40, 20]
    assert len({seed for _, seed, _ in solver.calls}) == 3


class Discards(ExactDraws):
    """An embedding that throws some of its reads away."""

    def __init__(self, share=0.5, **settings):
        super().__init__(**settings)
        self.share = share

    def sample(self, bqm, *, num_reads, seed):
        return super().sample(bqm, num_reads=num_reads - int(self.share * num_reads), seed=seed)

    def breaks_of(self, states):
        return self.breaks * (1 + states % 2)  # twice as much where the first unit is on


def test_reads_that_an_embedding_discards_are_asked_for_again():
    solver = Discards(breaks=0.02)
    chains = DimodSampler(make_machine(), 100, solver=solver)
    z = chains.step(1)
    assert z.shape == (100, 5)
    assert chains.chain_break_fraction == pytest.approx(0.02 * (1 + float(z[:, 0].mean())))
    assert [reads for reads, _, _ in solver.calls] == [50, 25, 13, 6, 3, 2, 1]
    assert len({seed for _, seed, _ in solver.calls}) == 7


def test_going_on_is_bit_for_bit_and_steps_have_seeds_of_their_own():
    def fresh(seed=9):
        return DimodSampler(make_machine(), 30, solver=ExactDraws(0.5), seed=seed, num_gibbs_sweeps=1)

    chains = fresh()
    chains.step(3)
    state, before = chains.state_dict(), chains.z
    local = chains.local_chains()
    assert isinstance(local, BlockGibbs)
    assert torch.equal(local.z, before)
    wanted = [chains.step(3) for _ in range(2)]
    assert not torch.equal(*wanted)
    other = fresh(seed=0)
    other.load_state_dict(state)
    assert torch.equal(other.z, before)
    assert all(torch.equal(other.step(3), z) for z in wanted)
    assert other.solver_inverse_temperature == chains.solver_inverse_temperature


@pytest.mark.parametrize(
    ("solver", "said"),
    [
        (Seedless(), "seed"),
        (ExactDraws(breaks=0.25), "25%"),
        (ExactDraws(sign=-1.0), "energies"),
        (ExactDraws(100.0), "optimizes"),
    ],
    ids=["no seed", "broken chains", "a reversed sign", "no temperature"],
)
def test_what_is_wrong_with_a_solver_is_reported(solver, said):
    chains = DimodSampler(make_machine(), 500, solver=solver)
    with pytest.warns(UserWarning, match=said):
        chains.step(1)
    if said == "seed":
        chains.step(1)  # warnings are errors: once is enough
    elif said in ("energies", "optimizes"):
        assert chains.solver_inverse_temperature == 1
    else:
        assert chains.metrics()["chain_break_fraction"] == 0.25
        quiet = DimodSampler(make_machine(), 30, solver=ExactDraws(breaks=0.02))
        quiet.step(1)
        assert quiet.metrics()["chain_break_fraction"] == pytest.approx(0.02)


class Device(ExactDraws):
    """One that scales each problem to its range, unless told not to."""

    @property
    def parameters(self):
        return super().parameters | {"auto_scale": []}

    def sample(self, bqm, *, num_reads, seed, auto_scale=True):
        scaled = bqm.copy()
        if auto_scale:
            scaled.scale(5 / max(map(abs, [*bqm.linear.values(), *bqm.quadratic.values()])))
        return super().sample(scaled, num_reads=num_reads, seed=seed)


def test_a_device_scales_no_problem_and_one_that_does_keeps_a_state_that_can_be_restored():
    chains = DimodSampler(make_machine(), 2000, solver=Device(2.0))
    chains.step(1)
    assert chains.sampled_at == pytest.approx(2, rel=0.1)
    for level in (9.9, 99.9):
        chains = DimodSampler(make_machine(), 200, solver=Device(), parameters={"auto_scale": True})
        near = torch.tensor([level, 1.0], dtype=torch.float64)
        chains.load_state_dict(chains.state_dict() | {"temperature": near})
        with pytest.warns(UserWarning, match="scale of its problems"):
            chains.step(1)
        chains.load_state_dict(chains.state_dict())


NODES = (3, 10, 11, 20, 21)
RING = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]]
EDGES = tuple((NODES[a], NODES[b]) for a, b in RING)


def structured(edges=EDGES):
    return dimod.StructureComposite(ExactDraws(), list(NODES), list(edges))


def test_a_native_machine_is_not_embedded():
    machine, solver = randomize(GraphBoltzmann(5, RING, nodes=NODES)), structured()
    chains = DimodSampler(machine, 2000, solver=solver, correct_temperature=False, seed=0)
    check_frequencies(state_counts(chains.step(1)), enumerate_machine(machine).prob.detach())
    assert list(solver.child.calls[0][2]) == list(NODES)  # each unit is its own qubit


@pytest.mark.parametrize(
    ("machine", "edges", "words"),
    [
        (GraphBoltzmann(5, RING, nodes=NODES), EDGES[1:], ("0 units and 1 pairs", "edge (3, 10)")),
        (GraphBoltzmann(2, [], nodes=[3, 5]), EDGES, ("1 units and 0 pairs", "node 5")),
    ],
)
def test_what_the_graph_of_a_solver_lacks_is_counted(machine, edges, words):
    error = refused(DimodSampler(machine, 10, solver=structured(edges)).connect, 1)
    assert error.argument == "energy"
    assert all(word in str(error) for word in words)


class Lists(ExactDraws):
    def sample(self, bqm, *, num_reads, seed):
        return super().sample(bqm, num_reads=num_reads + 1, seed=seed)


class Spoils(ExactDraws):
    """One whose first read is no state."""

    def sample(self, bqm, *, num_reads, seed):
        found = super().sample(bqm, num_reads=num_reads, seed=seed)
        found.record.sample[0, 0] = 3
        return found


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"solver": "anneal"}, "solver"),
        ({"solver": 3}, "solver"),
        ({"solver": dimod.ExactSolver()}, "parameters['num_reads']"),
        ({"parameters": {"annealing_time": 5}}, "parameters['annealing_time']"),
        ({"parameters": {"num_reads": 5}}, "parameters['num_reads']"),
        ({"parameters": {"beta_range": "cold"}}, "parameters"),
        ({"solver": Lists()}, "samples of Lists"),
        ({"solver": Spoils()}, "samples of Spoils"),
        ({"solver": Discards()}, "samples of Discards"),  # which says nothing of chains
        ({"solver": Discards(1.0, breaks=0.0)}, "samples of Discards"),
        ({"solver": "qpu"}, "the library dwave.system"),
    ],
)
def test_what_does_not_fit_is_named(settings, name):
    assert refused_argument(DimodSampler(make_machine(), 10, **settings).step, 1) == name


SETTINGS = {
    "model.prior": "graph",
    "model.prior.edges": "chimera",
    "model.posterior.groups": "colors",
    "training.sampler": "dimod",
    "training.sampler.num-chains": "20",
    "training.sampler.parameters": '{"beta_range": [0.2, 1.0], "num_sweeps_per_beta": 3}',
    "training.num-sweeps": "6",
    "training.num-epochs": "1",
    "training.num-examples": "300",
    "training.num-validation-examples": "50",
    "training.log-every": "2",
    "training.validate-every": "2",
}


def configured(**changed):
    settings = [(name, [value]) for name, value in (SETTINGS | changed).items()]
    return apply_overrides(load_experiment("digits", "smoke"), settings)


def test_a_run_goes_on_bit_for_bit_and_opens_without_the_solver(tmp_path, monkeypatch):
    config, dataset = configured(), load_dataset("digits")
    assert config.training.sampler.parameters == {"beta_range": [0.2, 1.0], "num_sweeps_per_beta": 3}
    train(config, dataset, tmp_path / "whole")
    answers = iter([False, False, True])
    train(config, dataset, tmp_path / "parts", stop=lambda: next(answers))
    train(config, dataset, tmp_path / "parts")
    whole, parts = (load_run(tmp_path / name, "last") for name in ("whole", "parts"))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, parts.model.state_dict()[name]), name
    assert torch.equal(whole.chains.z, parts.chains.z)
    run = RunDirectory.open(tmp_path / "whole")
    lines = run.metrics().read()
    assert all(0.1 < line["solver_inverse_temperature"] < 10 for line in lines if "elbo" in line)
    refuse = AssertionError("the solver was asked for")
    monkeypatch.setattr(negative_phase, "open_solver", Mock(side_effect=refuse))
    loaded = load_run(tmp_path / "whole")
    assert isinstance(loaded.chains, BlockGibbs)
    assert loaded.chains.step(2).shape == (20, 32)
    assert loaded.model.prior.edges.shape == (80, 2)
    groups = loaded.model.posterior.groups
    assert [len(group) for group in groups] == [16, 16]
    RunRefit(run, loaded, dataset, tmp_path / "refit", num_steps=2).run()
    assert torch.equal(load_run(tmp_path / "refit").chains.z, loaded.chains.z)
    saved = DiscreteVAE.from_pretrained(loaded.model.save_pretrained(tmp_path / "saved"))
    assert torch.equal(saved.prior.weight, loaded.model.prior.weight)
    assert saved.prior.nodes == loaded.model.prior.nodes


def test_a_solver_that_fails_ends_a_run_that_goes_on_bit_for_bit(tmp_path, monkeypatch):
    config, dataset = configured(**{"training.validate-every": "50"}), load_dataset("digits")
    train(config, dataset, tmp_path / "whole")
    failures = ConnectionError("no route"), Exception("timeout"), ValueError("no embedding")
    # each in the third step, after the read that tries the solver
    answers = iter([None, None, *(each for failure in failures for each in (None, failure))])
    annealer = samplers.SimulatedAnnealingSampler
    sample = annealer.sample

    def failing(*arguments, **keywords):
        if error := next(answers, None):
            raise error
        return sample(*arguments, **keywords)

    monkeypatch.setattr(annealer, "sample", failing)
    for failure in failures:
        with pytest.raises(SolverError, match=rf"simulated-annealing gave no samples: .*{failure}"):
            train(config, dataset, tmp_path / "parts")
        assert RunDirectory.open(tmp_path / "parts").checkpoints().steps() == (2,)
    train(config, dataset, tmp_path / "parts")
    whole, parts = (load_run(tmp_path / name, "last").model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"solver": "quantum"}, "solver"),
        ({"parameters": '{"speed": 1}'}, "parameters"),
        ({"parameters": "cold"}, "parameters"),
        ({"num-gibbs-sweeps": "-1"}, "num-gibbs-sweeps"),
    ],
)
def test_what_the_solver_does_not_take_is_found_before_anything_is_written(tmp_path, changed, name):
    settings = {f"training.sampler.{key}": value for key, value in changed.items()}
    error = refused(lambda: train(configured(**settings), load_dataset("digits"), tmp_path / "run"))
    assert name in str(error)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda: to_bqm(RBM(1, 1)),
        lambda: from_bqm(None),
        lambda: DimodSampler(RBM(1, 1), 2).step(1),
        lambda: places(small_graph("Chimera cell")),
    ],
)
def test_a_missing_extra_is_named(call, monkeypatch):
    for name in ("dimod", "dwave", "dwave.graphs", "dwave.samplers"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "discrete-vae[dwave]" in str(refused(call))


def test_samples_of_before_are_there_without_dimod(monkeypatch):
    monkeypatch.setitem(sys.modules, "dimod", None)
    chains = DimodSampler(RBM(2, 1), 3)
    assert chains.z.shape == chains.local_chains().step(1).shape == (3, 3)
    monkeypatch.delitem(sys.modules, "discrete_vae.interop.dimod.samplers", raising=False)
    with pytest.raises(ImportError, match=r"discrete-vae\[dwave\]"):
        importlib.import_module("discrete_vae.interop.dimod.samplers")


class AllDown(ExactDraws):
    """Every spin down in every read."""

    def sample(self, bqm, *, num_reads, seed):
        states = -np.ones((num_reads, bqm.num_variables), np.int8)
        return dimod.SampleSet.from_samples_bqm((states, list(bqm.variables)), bqm)


def test_reads_of_the_highest_energy_alone_are_reported():
    machine = FactorialBernoulli(5)
    with torch.no_grad():
        machine.bias.fill_(3.0)
    with pytest.warns(UserWarning, match="energies"):
        DimodSampler(machine, 50, solver=AllDown()).step(1)
    DimodSampler(machine, 3, solver=AllDown()).step(1)  # of so few it may be chance
