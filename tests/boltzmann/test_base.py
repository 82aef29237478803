"""Every machine against enumeration, and the arguments that its methods refuse."""

from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from discrete_vae import (
    RBM,
    BlockGibbs,
    FactorialBernoulli,
    GraphBoltzmann,
    HierarchicalPosterior,
    LatentGroup,
    ParallelTempering,
    SpikeSlab,
    kl_to_boltzmann,
)
from discrete_vae.config import PriorConfig, instantiate, members
from discrete_vae.log_partition.estimate import log_partition_surrogate
from discrete_vae.testing.contracts import check_energy
from tests.boltzmann.graphs import randomize
from tests.refusals import refused_argument

SMALL = {
    "rbm": {"num_left": 3, "num_right": 4},
    "factorial": {"num_units": 5},
    # a cycle of five with a chord, a unit with one neighbor, and one with none
    "graph": {"num_units": 7, "edges": ((0, 1), (2, 1), (2, 3), (4, 3), (0, 4), (0, 2), (5, 3))},
}


@pytest.mark.parametrize("config", members(PriorConfig))
def test_every_prior_obeys_the_contract(config):
    kind = config.model_fields["kind"].default
    check_energy(randomize(instantiate(config(**SMALL[kind]))))


def test_sides_of_one_unit():
    for shape in ((1, 1), (1, 5), (5, 1)):
        check_energy(randomize(RBM(*shape)))


def test_a_machine_that_was_checked_stays_as_it_was():
    machine = randomize(RBM(3, 2)).float()
    check_energy(machine)
    assert {parameter.dtype for parameter in machine.parameters()} == {torch.float32}
    check_energy(machine.requires_grad_(False))
    assert not machine.bias.requires_grad


def test_blocks_are_buffers_outside_the_state():
    for machine in (RBM(2, 3), randomize(GraphBoltzmann(5, "complete"))):
        assert len([name for name, _ in machine.named_buffers() if "block" in name]) == len(machine.blocks)
        assert set(machine.state_dict()) == {"weight", "bias"}
        twin = deepcopy(machine)
        assert all(torch.equal(a, b) for a, b in zip(machine.blocks, twin.blocks, strict=True))


class TransposedRBM(RBM):
    def compute_block_logits(self, z, block):
        logits = super().compute_block_logits(z, block)
        if block == 0:
            return z[..., self.num_left :] @ self.weight + self.bias[: self.num_left]
        return logits


class DetachedRBM(RBM):
    def compute_free_energy(self, z, block=None, inverse_temperature=1.0):
        right = super().compute_free_energy(z, block, inverse_temperature)
        return (right + right.detach()) / 2


class OneBlockRBM(RBM):
    """Neighbors are in one block."""

    def __init__(self, left, right):
        super().__init__(left, right)
        self.blocks = (torch.arange(left + right),)

    def compute_block_logits(self, z, block):
        return torch.cat([super(OneBlockRBM, self).compute_block_logits(z, side) for side in (0, 1)], -1)


class MeansAloneRBM(RBM):
    """The bit of the unit that is sampled earlier counts with its mean."""

    def expected_energy(self, bits, probabilities, order):
        return self.compute_energy(probabilities)


class DetachedBitsRBM(RBM):
    """Its values are right; the logits of units that are sampled earlier miss a gradient."""

    def expected_energy(self, bits, probabilities, order):
        return super().expected_energy(bits.detach(), probabilities, order)


class DetachedMeansRBM(RBM):
    def expected_energy(self, bits, probabilities, order):
        return super().expected_energy(bits, probabilities.detach(), order)


class NarrowRBM(RBM):
    """In bfloat16 its energies are rounded to whole nats."""

    def compute_energy(self, z):
        return super().compute_energy(z).to(self.bias.dtype)


@pytest.mark.parametrize(
    "fault",
    [
        TransposedRBM,
        DetachedRBM,
        OneBlockRBM,
        MeansAloneRBM,
        DetachedBitsRBM,
        DetachedMeansRBM,
        NarrowRBM,
    ],
)
def test_planted_faults_are_rejected(fault):
    with pytest.raises(AssertionError):
        check_energy(randomize(fault(3, 3)))


MACHINES = {
    "rbm": lambda: RBM(2, 3),
    "graph": lambda: GraphBoltzmann(5, [[0, 1], [1, 2], [2, 3], [3, 4]]),
    "factorial": lambda: FactorialBernoulli(5),
}
CALLS = {
    "energy": lambda machine, z: machine.energy(z),
    "forward": lambda machine, z: machine(z),
    "block_logits": lambda machine, z: machine.block_logits(z, 0),
    "free_energy of the first block": lambda machine, z: machine.free_energy(z, 0),
    "free_energy": lambda machine, z: machine.free_energy(z),
    "free_energy at t": lambda machine, z: machine.free_energy(z, inverse_temperature=0.5),
}


@pytest.fixture(params=list(MACHINES))
def machine(request):
    return MACHINES[request.param]()


def test_states_blocks_and_temperatures_of_every_right_kind(machine):
    for call in CALLS.values():
        for z in (torch.full((2, 5), 0.3), torch.zeros(0, 5), torch.ones(5), torch.ones(2, 1, 5).half()):
            assert call(machine, z).shape[: z.ndim - 1] == z.shape[:-1]
            assert call(machine, z.double()).dtype == torch.float64
            assert call(machine, z).dtype == torch.float32
    for block in (0, np.int64(0), torch.tensor(0)):
        assert machine.block_logits(torch.zeros(1, 5), block).shape == (1, len(machine.blocks[0]))
    for t in (2, 0.5, torch.tensor(0.5), torch.full((4,), 0.5), torch.ones(1), np.float32(1)):
        assert machine.free_energy(torch.zeros(3, 4, 5), inverse_temperature=t).shape == (3, 4)


@pytest.mark.parametrize("call", list(CALLS))
def test_states_that_are_refused(machine, call):
    spins = torch.tensor([[1.0, -1.0, 1.0, 1.0, -1.0]])
    wrong_values = [spins, *(torch.full((2, 5), value) for value in (float("nan"), 2.0, float("inf")))]
    wrong_types = [torch.zeros(2, 5, dtype=torch.bool), torch.ones(1, 5).to(torch.float8_e4m3fn)]
    for z in (*wrong_values, *wrong_types, torch.zeros(2, 4)):
        assert refused_argument(CALLS[call], machine, z) in ("z", "left")
        assert machine.compute_energy(spins).shape == (1,)  # what inner loops call looks at no values


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("block", (block,)) for block in (5, "0", -1, True, 0.0)),
        *(("inverse_temperature", (None, torch.ones(shape))) for shape in ((10, 1), (3,), (1, 1))),
        *(("inverse_temperature", (0, t)) for t in (torch.nan, torch.tensor([1.0, torch.inf]), "cold")),
    ],
)
def test_blocks_and_temperatures_that_are_refused(machine, name, arguments):
    assert refused_argument(machine.free_energy, torch.zeros(2, 5), *arguments) == name


def test_autocast_does_not_round_energies(machine):
    generator = torch.Generator().manual_seed(0)
    randomize(machine, scale=10.0)
    z = (torch.rand(20, 5, generator=generator) < 0.5).float()
    calls = [*CALLS.values(), lambda machine, z: log_partition_surrogate(machine, z, 1.0)]
    calls += [lambda machine, z: kl_to_boltzmann(machine, [group(z)], 1.0)]
    if isinstance(machine, RBM):
        calls += [lambda machine, z: machine.free_energy(z[:, :2])]
        calls += [lambda machine, z: machine.hidden_given_visible(z[:, :2])]
    for call in calls:
        expected = call(machine, z)
        with torch.autocast("cpu", torch.bfloat16):
            # not bit for bit: a compiled pass takes no part in autocast; rounding costs 1e-2
            torch.testing.assert_close(call(machine, z), expected, rtol=1e-5, atol=1e-5)
    if not isinstance(machine, GraphBoltzmann):  # the planted fault: what is not protected is rounded
        with torch.autocast("cpu", torch.bfloat16):
            assert not torch.equal(type(machine).compute_energy.__wrapped__(machine, z), machine.energy(z))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_energies_of_narrow_numbers_are_rounded_once(machine, dtype):
    machine, z = randomize(deepcopy(machine), scale=3.0).to(dtype), (torch.rand(4, 5) < 0.5).to(dtype)
    for call in CALLS.values():
        wide = call(deepcopy(machine).double(), z.double())
        torch.testing.assert_close(call(machine, z), wide.float(), rtol=1e-5, atol=1e-5)
    narrow = kl_to_boltzmann(machine, [group(z)], 1.0)
    rounded = {name: getattr(group(z), name).double() for name in ("logits", "zeta", "bits")}
    wide = kl_to_boltzmann(deepcopy(machine).double(), [LatentGroup(**rounded)], 1.0)
    torch.testing.assert_close(narrow, wide.float(), rtol=1e-5, atol=1e-5)


def group(z):
    return LatentGroup(logits=z - 0.3, zeta=z, bits=z)


@pytest.mark.parametrize("call", list(CALLS))
def test_tensors_without_values_pass(machine, call):
    """vmap and fake tensors have shapes and no values."""
    z = torch.rand(4, 5, generator=torch.Generator().manual_seed(0))
    expected = CALLS[call](machine, z)
    if not isinstance(machine, GraphBoltzmann):  # its sparse product is an operation of its own
        torch.testing.assert_close(torch.func.vmap(lambda row: CALLS[call](machine, row))(z), expected)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert CALLS[call](machine, torch.rand(4, 5)).shape == expected.shape


@pytest.mark.parametrize("machine", ["rbm", "factorial"], indirect=True)
def test_energies_compile_in_one_graph(machine):
    z = torch.rand(4, 5, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(machine.energy, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(z), machine.energy(z))


HUGE = 10**18


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("num_left", lambda: RBM(0, 3)),
        ("num_right", lambda: RBM(3, -1)),
        ("num_units", lambda: FactorialBernoulli(0)),
        ("left", lambda: RBM(2, 3).free_energy(torch.zeros(1, 3))),
        ("left", lambda: RBM(2, 3).free_energy(torch.tensor([[1.0, -1.0]]))),
        ("left", lambda: RBM(2, 3).free_energy([[0.0] * 5])),
        ("visible", lambda: RBM(2, 3).hidden_given_visible(torch.full((4, 2), -1.0))),
        ("visible", lambda: RBM(2, 3).sample_hidden(torch.ones(4, 3))),
        ("hidden", lambda: RBM(2, 3).sample_visible("ones")),
        ("hidden", lambda: RBM(2, 3).visible_given_hidden(torch.ones(4, 2))),
        *(
            (
                "input_sizes, hidden, num_outputs",
                partial(HierarchicalPosterior, x, [[0], [1]], hidden, SpikeSlab()),
            )
            for x, hidden in ((HUGE, ()), (5, (HUGE,)))
        ),
        ("num_left, num_right", lambda: RBM(HUGE, HUGE)),
        ("num_left, num_right", lambda: RBM(10**12, 10**12)),
        ("num_units", lambda: FactorialBernoulli(HUGE)),
        ("num_units", lambda: GraphBoltzmann(HUGE, "complete")),
        ("num_units", lambda: GraphBoltzmann(HUGE, [[0, 1]])),
        ("num_chains", lambda: BlockGibbs(RBM(2, 2), HUGE)),
        ("num_chains", lambda: ParallelTempering(RBM(2, 2), HUGE)),
        ("groups", lambda: kl_to_boltzmann(FactorialBernoulli(4), [coins(3), coins(2)], 1.0)),
        ("log_partition", lambda: kl_to_boltzmann(FactorialBernoulli(2), [coins(3)], torch.tensor(1 + 1j))),
    ],
)
def test_refusals_name_the_argument(name, call):
    assert refused_argument(call) == name


def coins(batch):
    return LatentGroup(logits=torch.zeros(batch, 2), zeta=torch.ones(batch, 2), bits=torch.ones(batch, 2))
