"""Every prior that a config can name, and several shapes of machines, against enumeration."""

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, GraphBoltzmann
from discrete_vae.config import PriorConfig, instantiate, members
from discrete_vae.errors import InvalidInputError
from discrete_vae.testing.contracts import check_energy
from discrete_vae.testing.enumeration import enumerate_machine

SMALL = {
    "rbm": {"num_left": 3, "num_right": 4},
    "factorial": {"num_units": 5},
    # a cycle of five with a chord, a unit with one neighbor, and one with none
    "graph": {"num_units": 7, "edges": ((0, 1), (2, 1), (2, 3), (4, 3), (0, 4), (0, 2), (5, 3))},
}


def randomize(energy, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in energy.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return energy


@pytest.mark.parametrize("config", members(PriorConfig))
def test_every_prior_obeys_the_contract(config):
    kind = config.model_fields["kind"].default
    check_energy(randomize(instantiate(config(**SMALL[kind]))))


@pytest.mark.parametrize(("left", "right"), [(1, 1), (1, 5), (5, 1), (4, 2)])
def test_rbm_shapes(left, right):
    check_energy(randomize(RBM(left, right), seed=left))


class TransposedRBM(RBM):
    def compute_block_logits(self, z, block):
        logits = super().compute_block_logits(z, block)
        if block == 0:
            return z[..., self.num_left :] @ self.weight + self.bias[: self.num_left]
        return logits


class BiaslessRBM(RBM):
    def compute_block_logits(self, z, block):
        return super().compute_block_logits(z, block) - self.bias[self.blocks[block]]


class DetachedRBM(RBM):
    def compute_free_energy(self, z, block=None, inverse_temperature=1.0):
        right = super().compute_free_energy(z, block, inverse_temperature)
        return (right + right.detach()) / 2


@pytest.mark.parametrize("fault", [TransposedRBM, BiaslessRBM, DetachedRBM])
def test_planted_faults_are_rejected(fault):
    with pytest.raises(AssertionError):
        check_energy(randomize(fault(3, 3)))


def test_energy_by_hand():
    rbm = RBM(2, 1).double()
    with torch.no_grad():
        rbm.weight.copy_(torch.tensor([[0.5], [-1.0]]))
        rbm.bias.copy_(torch.tensor([0.1, 0.2, 0.3]))
    z = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
    assert rbm.energy(z).item() == pytest.approx(-(0.5 - 1.0 + 0.1 + 0.2 + 0.3))
    assert rbm(z).item() == rbm.energy(z).item()


def test_float64_states_are_computed_in_float64():
    rbm = randomize(RBM(3, 3))
    z = torch.ones(1, 6)
    assert rbm.energy(z).dtype == torch.float32
    assert rbm.energy(z.double()).dtype == torch.float64
    assert rbm.free_energy(z[:, :3].double()).dtype == torch.float64


def test_expected_energy_is_the_mean_for_a_factorial_posterior():
    rbm = randomize(RBM(2, 3)).double()
    machine = enumerate_machine(rbm)
    q = torch.rand(5, dtype=torch.float64)
    weights = (machine.states * q + (1 - machine.states) * (1 - q)).prod(-1)
    expected = (weights * rbm.energy(machine.states)).sum()
    order = rbm.pair_order(torch.zeros(5, dtype=torch.int64))
    torch.testing.assert_close(
        rbm.expected_energy(torch.zeros(5).double(), q, order), expected, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    "build", [lambda: RBM(0, 3), lambda: RBM(3, -1), lambda: RBM(2.5, 1), lambda: RBM(True, 1)]
)
def test_wrong_sizes(build):
    with pytest.raises(InvalidInputError, match=r"num_(left|right) must be a positive integer"):
        build()


def test_wrong_number_of_units():
    with pytest.raises(InvalidInputError, match="num_units must be a positive integer; received 0"):
        FactorialBernoulli(0)


@pytest.mark.parametrize("energy", [RBM(2, 3), FactorialBernoulli(5), GraphBoltzmann(5, "complete")])
class TestStates:
    def test_shape(self, energy):
        with pytest.raises(
            InvalidInputError, match=r"z must have shape \(\.\.\., 5\); received shape \(2, 4\)"
        ):
            energy.energy(torch.zeros(2, 4))

    def test_dtype(self, energy):
        with pytest.raises(
            InvalidInputError, match=r"z must have a floating-point dtype; received torch\.bool"
        ):
            energy.block_logits(torch.zeros(2, 5, dtype=torch.bool), 0)

    def test_not_a_tensor(self, energy):
        with pytest.raises(InvalidInputError, match=r"(z|left) must be a torch\.Tensor"):
            energy.free_energy([[0.0] * 5])


def test_free_energy_takes_the_left_side():
    with pytest.raises(InvalidInputError, match=r"left must have shape \(\.\.\., 2\)"):
        RBM(2, 3).free_energy(torch.zeros(1, 3))
