"""Machines refuse spins, blocks that are not there, and temperatures that would broadcast; inner loops skip this."""

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
    SpikeExponential,
    kl_to_boltzmann,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition.bridge import log_partition_surrogate

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


@pytest.mark.parametrize("call", list(CALLS))
class TestStates:
    def test_spins_are_refused_with_the_conversion(self, machine, call):
        spins = torch.tensor([[1.0, -1.0, 1.0, 1.0, -1.0]])
        message = r"z must hold values in \[0, 1\]; received a value of -1\. Spins .* z = \(s \+ 1\) / 2.* from_ising"
        with pytest.raises(InvalidInputError, match=message):
            CALLS[call](machine, spins)

    @pytest.mark.parametrize("wrong", [float("nan"), 2.0, float("inf")])
    def test_other_values(self, machine, call, wrong):
        with pytest.raises(InvalidInputError, match=r"z must hold values in \[0, 1\]; received a value of"):
            CALLS[call](machine, torch.full((2, 5), wrong))

    def test_relaxed_states_and_no_states_are_right(self, machine, call):
        for z in (torch.full((2, 5), 0.3), torch.zeros(0, 5), torch.ones(5), torch.ones(2, 1, 5).half()):
            assert CALLS[call](machine, z).shape[: z.ndim - 1] == z.shape[:-1]


def test_free_energy_refuses_spins():
    with pytest.raises(InvalidInputError, match=r"left must hold values in \[0, 1\].*from_ising"):
        RBM(2, 3).free_energy(torch.tensor([[1.0, -1.0]]))


@pytest.mark.parametrize("block", [5, "0", -1, True, 0.0])
@pytest.mark.parametrize("call", ["block_logits", "free_energy"])
def test_blocks_that_are_not_there(machine, call, block):
    with pytest.raises(InvalidInputError, match=r"block must be an integer from 0 to \d; received"):
        getattr(machine, call)(torch.zeros(1, 5), block)


@pytest.mark.parametrize("block", [0, np.int64(0), torch.tensor(0)])
def test_every_kind_of_integer_is_a_block(machine, block):
    assert machine.block_logits(torch.zeros(1, 5), block).shape == (1, len(machine.blocks[0]))


@pytest.mark.parametrize("shape", [(10, 1), (2, 10), (3,), (1, 1)])
def test_temperatures_that_would_broadcast(machine, shape):
    with pytest.raises(InvalidInputError, match="inverse_temperature must be a number or a tensor that fits"):
        machine.free_energy(torch.zeros(10, 5), inverse_temperature=torch.ones(shape))


@pytest.mark.parametrize("t", [float("nan"), float("inf"), torch.tensor([1.0, float("nan")])])
def test_temperatures_that_are_not_finite(machine, t):
    with pytest.raises(InvalidInputError, match="inverse_temperature must be finite"):
        machine.free_energy(torch.zeros(2, 5), 0, t)


@pytest.mark.parametrize(
    "t", [2, 0.5, torch.tensor(0.5), torch.full((4,), 0.5), torch.ones(1), np.float32(1)]
)
def test_temperatures_of_every_right_kind(machine, t):
    assert machine.free_energy(torch.zeros(4, 5), inverse_temperature=t).shape == (4,)
    assert machine.free_energy(torch.zeros(3, 4, 5), inverse_temperature=t).shape == (3, 4)


def test_what_inner_loops_call_does_not_look_at_values(machine):
    """They say what they are: of their callers' checked states."""
    z = torch.full((1, 5), -1.0)
    assert machine.compute_energy(z).shape == (1,)
    assert machine.compute_block_logits(z, 0).shape == (1, len(machine.blocks[0]))


def test_autocast_does_not_round_energies(machine):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.normal_(0, 10, generator=generator)
    z = (torch.rand(20, 5, generator=generator) < 0.5).float()
    calls = [*CALLS.values(), lambda machine, z: log_partition_surrogate(machine, z, 1.0)]
    calls += [lambda machine, z: kl_to_boltzmann(machine, [group(z)], 1.0)]
    calls += [lambda machine, z: machine.free_energy(z[:, :2])] * isinstance(machine, RBM)
    for call in calls:
        expected = call(machine, z)
        with torch.autocast("cpu", torch.bfloat16):
            # not bit for bit: a compiled pass takes no part in autocast; rounding costs 1e-2
            torch.testing.assert_close(call(machine, z), expected, rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):  # the planted fault: what is not protected is rounded
        assert isinstance(machine, GraphBoltzmann) or not torch.equal(
            type(machine).compute_energy.__wrapped__(machine, z), machine.energy(z)
        )


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
    torch.testing.assert_close(
        torch.compile(machine.energy, fullgraph=True, backend="eager")(z), machine.energy(z)
    )


HUGE = 10**18


@pytest.mark.parametrize(
    "make",
    [
        lambda: RBM(HUGE, HUGE),
        lambda: RBM(10**12, 10**12),
        lambda: FactorialBernoulli(HUGE),
        lambda: GraphBoltzmann(HUGE, "complete"),
        lambda: GraphBoltzmann(HUGE, [[0, 1]]),
        lambda: BlockGibbs(RBM(2, 2), HUGE),
        lambda: ParallelTempering(RBM(2, 2), HUGE),
        lambda: HierarchicalPosterior(HUGE, [[0], [1]], (), SpikeExponential()),
        lambda: HierarchicalPosterior(5, [[0], [1]], (HUGE,), SpikeExponential()),
    ],
)
def test_sizes_that_no_machine_holds_are_refused(make):
    with pytest.raises(InvalidInputError, match="must fit this machine's memory"):
        make()


def test_float8_states_are_refused():
    with pytest.raises(InvalidInputError, match=r"z must have a floating-point dtype of 16 bits or more"):
        RBM(2, 3).energy(torch.ones(1, 5).to(torch.float8_e4m3fn))


def test_a_complex_log_z_and_groups_of_unequal_batches_are_refused():
    def group(batch):
        return LatentGroup(logits=torch.zeros(batch, 2), zeta=torch.ones(batch, 2), bits=torch.ones(batch, 2))

    with pytest.raises(InvalidInputError, match="log_partition must be a finite number"):
        kl_to_boltzmann(FactorialBernoulli(2), [group(3)], torch.tensor(1 + 1j))
    with pytest.raises(InvalidInputError, match="groups must all have one batch"):
        kl_to_boltzmann(FactorialBernoulli(4), [group(3), group(2)], 1.0)
