"""The KL to a machine on a graph: quadrature where there are odd cycles, the RBM where there are none."""

import pytest
import torch

from discrete_vae import GraphBoltzmann, MixtureOfRamps, SpikeSlab, kl_to_boltzmann
from discrete_vae.testing.goodness_of_fit import check_mean
from tests.boltzmann.graphs import randomize, rbm_and_its_graph
from tests.objectives.test_kl_boltzmann import estimates, exact_value_and_gradient, flat_gradient, ours
from tests.oracles.polynomial_posterior import PolynomialPosterior
from tests.transformations import spike

FOUR_WITH_A_TRIANGLE = [[1, 0], [1, 2], [2, 0], [2, 3]]

# name -> (units, edges, groups, offsets of the logits, smoothing)
CASES = {
    "triangle, three groups": (3, "complete", [[1], [0], [2]], [0.3, -0.8, 0.5], spike(3.0)),
    "triangle, an edge inside a group": (3, "complete", [[0, 2], [1]], [0.5, -0.4, 0.2], spike(2.0)),
    "triangle, one group": (3, "complete", [[2, 0, 1]], [0.5, -0.4, 0.2], spike(2.0)),
    "triangle and a tail, interleaved": (
        4,
        FOUR_WITH_A_TRIANGLE,
        [[3, 1], [2], [0]],
        [0.4, -0.3, 0.2, -0.6],
        spike(2.5),
    ),
    "saturated logits, slab": (3, "complete", [[2], [1], [0]], [7.5, -1.0, 0.5], SpikeSlab),
    "triangle, ramps": (3, "complete", [[1], [2, 0]], [0.3, -0.8, 0.5], MixtureOfRamps),
}


def build(name, kind=GraphBoltzmann):
    num_units, edges, groups, offset, make = CASES[name]
    machine = randomize(kind(num_units, edges).double(), scale=1.5)
    return machine, PolynomialPosterior(groups, make(), offset)


@pytest.mark.parametrize("name", CASES)
def test_value_and_every_gradient_are_unbiased(name):
    machine, posterior = build(name)
    expected = exact_value_and_gradient(machine, posterior)
    check_mean(estimates(machine, posterior, ours), expected, resolution=0.02)


class FirstUnitsBits(GraphBoltzmann):
    """Takes the bit of the unit that an edge lists first, whichever is sampled earlier."""

    def expected_energy(self, bits, probabilities, order):
        one, other = self.edges.T
        pairs = (bits[..., one] * probabilities[..., other]) @ self.weight
        return -pairs - probabilities @ self.bias


class EarlierUnitsGradient(GraphBoltzmann):
    """Only the earlier unit of a pair sends a gradient: eq. low-var-J-grad read with a triangular W."""

    def expected_energy(self, bits, probabilities, order):
        fixed = probabilities.detach()
        return super().expected_energy(bits, fixed, order) - (probabilities - fixed) @ self.bias


@pytest.mark.parametrize("kind", [FirstUnitsBits, EarlierUnitsGradient])
def test_faults_are_rejected(kind):
    name = "triangle, three groups"
    expected = exact_value_and_gradient(*build(name))
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(estimates(*build(name, kind), ours), expected)


@pytest.mark.parametrize(
    ("groups", "make"),
    [
        ([[0], [1], [2], [3]], spike(2.0)),
        ([[3, 0], [2, 1]], SpikeSlab),
        ([[0, 1, 2, 3]], MixtureOfRamps),
        ([[2], [1, 0], [3]], MixtureOfRamps),
    ],
)
def test_bipartite_graph_gives_the_values_and_gradients_of_the_rbm(groups, make):
    rbm, graph = (machine.double() for machine in rbm_and_its_graph(2, 2))
    posterior = PolynomialPosterior(groups, make(), [0.4, -0.3, 0.2, -0.6])
    rows = []
    for machine in (rbm, graph):
        sample, _ = posterior.rsample(500, torch.Generator().manual_seed(0))
        value = kl_to_boltzmann(machine, sample, log_partition=0.7)
        gradient = flat_gradient(value.square().sum(), [*machine.parameters(), *posterior.parameters()])
        rows.append(torch.cat([value.detach(), gradient]))
    torch.testing.assert_close(rows[0], rows[1], rtol=1e-11, atol=1e-9)
