"""Block Gibbs: its law, clamped units, temperatures; packed states; running moments."""

import math

import pytest
import torch
from scipy import special

from discrete_vae import RBM, BlockGibbs, FactorialBernoulli, GraphBoltzmann
from discrete_vae.boltzmann import graph
from discrete_vae.kernels.gibbs import run_sweeps
from discrete_vae.rng import key_to_seed
from discrete_vae.samplers import gibbs
from discrete_vae.samplers.gibbs import RunningMoments, pack_bits, unpack_bits
from discrete_vae.testing import all_states, enumerate_machine
from discrete_vae.testing.reference import ALPHA
from tests.boltzmann.graphs import FIVE_UNITS, small_graph, with_parameters
from tests.log_partition.machines import random_rbm
from tests.oracles.transitions import check_transitions, invariance_error, sweep_matrix
from tests.refusals import refused_argument

CLAMPED = torch.tensor([True, False, False, True, False])


@pytest.mark.parametrize("clamped", [None, CLAMPED], ids=["free", "clamped"])
def test_independent_units_end_where_all_sweeps_would(clamped):
    energy = with_parameters(FactorialBernoulli(5), bias=torch.linspace(-2, 2, 5))
    whole, single = (BlockGibbs(energy, 6, seed=4, start=torch.ones(6, 5), clamped=clamped) for _ in range(2))
    mask = None if clamped is None else whole.clamped
    expected = run_sweeps(energy, whole.z, 30, key=key_to_seed(4), first_sweep=1, clamped=mask)
    found = whole.step(30)
    for _ in range(30):
        last = single.step(1)
    assert torch.equal(found, expected)
    assert torch.equal(found, last)
    assert whole.sweep == single.sweep == 30


@pytest.mark.parametrize("machine", FIVE_UNITS)
@pytest.mark.parametrize(("scale", "clamped"), [(1.0, None), (0.4, None), (2.0, CLAMPED)])
def test_a_sweep_from_given_states_has_the_exact_matrix(machine, scale, clamped):
    """Which leaves the machine's law at this temperature invariant, given the clamped units."""
    machine = FIVE_UNITS[machine]()

    def step(z):
        options = {"start": z, "clamped": clamped, "inverse_temperature": scale}
        return BlockGibbs(machine, len(z), seed=5, **options).step(1)

    matrix = sweep_matrix(machine, inverse_temperature=scale, clamped=clamped)
    check_transitions(step, matrix, 5, repeats=2000)
    law = scale * enumerate_machine(machine).log_prob.detach()
    if clamped is not None:
        law[(all_states(5)[:, clamped] != torch.tensor([1.0, 0.0])).any(1)] = -torch.inf
    assert invariance_error(law.softmax(0), matrix) < 1e-12
    wrong = sweep_matrix(machine, inverse_temperature=1.3 * scale, clamped=clamped)
    with pytest.raises(AssertionError):  # planted fault: another temperature
        check_transitions(step, wrong, 5, repeats=2000)


def test_each_chain_has_its_own_mask_and_temperature():
    rbm, start = FIVE_UNITS["rbm"](), torch.tensor([[1.0, 0, 1, 0, 1]]).repeat(3, 1)
    masks = torch.stack([CLAMPED, torch.ones(5, dtype=torch.bool), ~CLAMPED])
    scale = torch.tensor([0.0, 1.0, 2.0])
    chains = BlockGibbs(rbm, 3, seed=1, start=start, clamped=masks, inverse_temperature=scale)
    single = BlockGibbs(rbm, 1, seed=1, start=start[:1], clamped=CLAMPED, inverse_temperature=0.0)
    assert torch.equal(chains.z, start)
    z = chains.step(5)
    assert torch.equal(z[1], start[1])
    assert torch.equal(z[masks], start[masks])
    assert torch.equal(z[:1], single.step(5))


def test_start_is_copied_and_a_resumed_run_goes_on():
    rbm, start = FIVE_UNITS["rbm"](), torch.ones(4, 5)
    chains = BlockGibbs(rbm, 4, seed=1, start=start, clamped=CLAMPED)
    start.zero_()
    assert bool((chains.step(3)[:, CLAMPED] == 1).all())
    resumed = BlockGibbs(rbm, 4, start=start, clamped=CLAMPED)
    resumed.load_state_dict(chains.state_dict())
    assert torch.equal(resumed.step(3), chains.step(3))


@pytest.mark.parametrize("num_units", [1, 8, 9, 128])
def test_packed_states_come_back_and_other_devices_pack_as_the_cpu_does(num_units):
    z = torch.randint(0, 2, (5, num_units), generator=torch.Generator().manual_seed(num_units)).float()
    packed = pack_bits(z)
    assert (packed.dtype, packed.shape) == (torch.uint8, (5, (num_units + 7) // 8))
    assert torch.equal(unpack_bits(packed, num_units), z)
    assert torch.equal(gibbs._pack_anywhere(z), packed)
    assert torch.equal(gibbs._unpack_anywhere(packed, num_units), z)


def test_bit_order_is_fixed():
    z = torch.zeros(1, 16)
    z[0, 1] = z[0, 15] = 1
    assert pack_bits(z).tolist() == [[2, 128]]


# Running moments.


FIELDS = ("mean", "mean_std_error", "pair", "pair_std_error")


def same(first, second):
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in FIELDS)


@pytest.mark.parametrize(
    "energy", [random_rbm(5, 3, 1.0, seed=3), FactorialBernoulli(4)], ids=["rbm", "factorial"]
)
@pytest.mark.parametrize("num_chains", [1, 70])
def test_moments_are_those_of_kept_samples(energy, num_chains):
    chains, twin = BlockGibbs(energy, num_chains, seed=1), BlockGibbs(energy, num_chains, seed=1)
    moments = RunningMoments(energy, num_chains, every=2)
    chains.step(3)
    twin.step(3)
    returned = chains.step(8, moments=moments)
    kept = torch.stack([twin.step(1) for _ in range(8)])[0::2].double()
    assert torch.equal(returned, twin.z)
    value = moments.value()
    first = energy.blocks[0]
    others = [unit for unit in range(energy.num_units) if unit not in first]
    pairs = torch.einsum("sci,scj->ij", kept[..., first], kept[..., others]) / (4 * num_chains)
    torch.testing.assert_close(value.mean, kept.mean((0, 1)))
    torch.testing.assert_close(value.pair, pairs)
    assert (value.num_chains, value.num_draws) == (num_chains, 4)
    assert bool(value.mean_std_error.isnan().all()) == (num_chains == 1)


@pytest.mark.parametrize("name", ["odd cycle", "Chimera cell", "no edges"])
def test_pair_moments_of_a_graph_are_those_of_its_edges(name, monkeypatch):
    energy, num_chains = small_graph(name), 70
    for dense in (0, 8):  # whether a whole matrix is made
        monkeypatch.setattr(graph, "_DENSE", dense)
        chains, twin = BlockGibbs(energy, num_chains, seed=1), BlockGibbs(energy, num_chains, seed=1)
        moments = RunningMoments(energy, num_chains)
        chains.step(6, moments=moments)
        kept = torch.stack([twin.step(1) for _ in range(6)]).double()
        expected = (kept[..., energy.edges[:, 0]] * kept[..., energy.edges[:, 1]]).mean((0, 1))
        torch.testing.assert_close(moments.value().pair, expected)


def test_two_chains_that_agree_by_chance_have_an_error():
    energy = FactorialBernoulli(200)  # fair coins: half of the units agree
    moments = RunningMoments(energy, 2)
    BlockGibbs(energy, 2, seed=1).step(1, moments=moments)
    assert float(moments.value().mean_std_error.min()) > 0.1


def test_the_memory_of_a_large_graph_grows_with_its_edges():
    energy = GraphBoltzmann(8 * 20 * 20, "chimera")
    sums = RunningMoments(energy, 100).state_dict()
    assert sums["pairs"].nbytes <= 256 * len(energy.edges)  # 600 MiB for all pairs of the two blocks
    assert sums["units"].nbytes <= 256 * energy.num_units


def test_a_divided_and_a_resumed_run_have_the_very_numbers_of_an_unbroken_one():
    rbm = random_rbm(5, 4, 0.5, seed=3)
    whole, parts, resumed = (RunningMoments(rbm, 9, every=3) for _ in range(3))
    one, many, again = (BlockGibbs(rbm, 9, seed=seed) for seed in (2, 2, 0))
    one.step(20, moments=whole)
    for num_sweeps in (1, 7, 2, 10):
        many.step(num_sweeps, moments=parts)
        if many.sweep == 8:
            states = many.state_dict(), parts.state_dict()
    again.load_state_dict(states[0])
    resumed.load_state_dict(states[1])
    again.step(12, moments=resumed)
    for chains, moments in ((many, parts), (again, resumed)):
        assert same(whole.value(), moments.value())
        assert torch.equal(one.z, chains.z)


def worst_score(value, mean, pair):
    """The largest deviation in standard errors, as a fraction of its limit at alpha = 1e-6 (Bonferroni)."""
    deviation = torch.cat([value.mean - mean, (value.pair - pair).flatten()]).abs()
    error = torch.cat([value.mean_std_error, value.pair_std_error.flatten()])
    limit = -float(special.stdtrit(31, ALPHA / (2 * len(error))))
    return float((deviation / error).max()) / limit


def test_moments_of_a_small_machine_agree_with_enumeration():
    rbm = random_rbm(10, 8, 0.6, seed=3)
    exact = enumerate_machine(rbm).pair_moments().detach()
    mean, pair = exact.diagonal(), exact[:10, 10:]
    chains, moments = BlockGibbs(rbm, 3200, seed=2**63), RunningMoments(rbm, 3200)
    chains.step(60)
    chains.step(100, moments=moments)
    value = moments.value()
    assert float(value.mean_std_error.max()) < 2e-3
    assert worst_score(value, mean, pair) < 1
    # planted faults: a machine whose weights are 3 % too large, and sides exchanged
    with torch.no_grad():
        rbm.weight.mul_(1.03)
    wrong = RunningMoments(rbm, 3200)
    chains.step(60)
    chains.step(100, moments=wrong)
    assert worst_score(wrong.value(), mean, pair) > 1
    assert worst_score(value, mean.roll(8), pair) > 1


def test_the_error_of_chains_that_mix_slowly_is_the_spread_of_repeated_runs():
    """Of 60 runs the logarithm of the ratio has a spread of 0.08: the band is left once in ten million."""
    rbm, found = with_parameters(RBM(1, 1), weight=8.0, bias=-4.0), []  # stays in a mode for some 50 sweeps
    for seed in range(60):
        moments = RunningMoments(rbm, 64)
        BlockGibbs(rbm, 64, seed=seed).step(40, moments=moments)
        found.append(moments.value())
    for name in ("mean", "pair"):
        spread = torch.stack([getattr(each, name) for each in found]).std(0)
        stated = torch.stack([getattr(each, f"{name}_std_error") for each in found]).square().mean(0).sqrt()
        assert bool(((stated / spread).log().abs() < math.log(1.6)).all())


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("moments", lambda rbm, moments: moments.value()),
        ("z", lambda rbm, moments: BlockGibbs(rbm, 5).step(2, moments=moments)),
        ("z", lambda rbm, moments: BlockGibbs(RBM(3, 3), 4).step(2, moments=moments)),
        ("z", lambda rbm, moments: moments.add(torch.full((4, 5), 0.5))),
        ("num_chains", lambda rbm, moments: RunningMoments(rbm, 0)),
        ("every", lambda rbm, moments: RunningMoments(rbm, 4, every=0)),
        *(
            (f"state['{key}']", lambda rbm, moments, key=key, wrong=wrong: load(moments, {key: wrong}))
            for key, wrong in (
                ("units", torch.zeros(4, 5)),
                ("pairs", torch.zeros(4, 2, 3, dtype=torch.int64)),
                ("num_chains", 5),
                ("every", 2),
                ("num_draws", -1),
            )
        ),
        ("state", lambda rbm, moments: moments.load_state_dict({"units": torch.zeros(4, 5)})),
    ],
)
def test_what_does_not_fit_is_named(name, call):
    rbm = RBM(3, 2)
    assert refused_argument(call, rbm, RunningMoments(rbm, 4)) == name


def load(moments, change):
    moments.load_state_dict(moments.state_dict() | change)
