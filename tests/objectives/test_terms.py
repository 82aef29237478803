"""Reconstruction and KL of one draw, and the loss, with all gradients, against quadrature; faults are rejected."""

from dataclasses import replace

import pytest
import torch

from discrete_vae import (
    RBM,
    FactorialBernoulli,
    GraphBoltzmann,
    LatentGroup,
    MixtureOfRamps,
    SpikeGaussian,
    SpikeSlab,
    kl_to_boltzmann,
)
from discrete_vae.numerics import replace_gradient
from discrete_vae.objectives.elbo import Elbo, loss_gradients
from discrete_vae.testing import check_mean, enumerate_machine
from tests.boltzmann.graphs import randomize, with_parameters
from tests.exact_paths import log_prior
from tests.oracles import planted_faults
from tests.oracles.polynomial_posterior import PolynomialPosterior
from tests.oracles.quadrature import exact_kl
from tests.transformations import OVERLAPPING, SMOOTHINGS, spike

TAIL = (4, [[1, 0], [1, 2], [2, 0], [2, 3]])
TRIANGLE = (3, "complete")
OFFSET = [0.3, -0.8, 0.5]
OF_X = ([0.4, -0.3, 0.6], [0.5, 0.4, 0.3])  # loc and scale of each unit
X, STEEP = "depends on x, three groups", ([1.0, -0.5], [0.4, 0.25])

# name -> (sizes of an RBM or a graph, groups, offsets of the logits, smoothing, what it has of x)
CASES = {
    "three groups": ((2, 1), [[0], [1], [2]], OFFSET, spike(3.0)),
    "a group across both sides": ((2, 1), [[0, 2], [1]], [0.1, 0.6, -0.5], spike(1.0)),
    "interleaved groups": ((2, 2), [[2], [0, 3], [1]], [0.4, -0.3, 0.2, -0.6], spike(2.5)),
    "one group": ((2, 1), [[0, 1, 2]], [0.7, -1.0, 0.2], spike(3.0)),
    "saturated logits": ((1, 1), [[0], [1]], [7.5, -1.0], spike(2.0)),
    "logits of nine": ((1, 1), [[0], [1]], [9.0, -9.0], spike(1.0)),
    "large beta": ((1, 1), [[0], [1]], [0.3, -0.5], spike(8.0)),
    "slab": ((2, 1), [[0], [1], [2]], [-0.2, 0.8, 0.1], SpikeSlab),
    **{f"{kind}, three groups": ((2, 1), [[0], [1], [2]], OFFSET, SMOOTHINGS[kind]) for kind in OVERLAPPING},
    "ramps, a group across both sides": ((2, 1), [[0, 2], [1]], [0.2, 2.4, -1.6], MixtureOfRamps),
    "triangle, three groups": (TRIANGLE, [[1], [0], [2]], OFFSET, spike(3.0)),
    "triangle and a tail, interleaved": (TAIL, [[3, 1], [2], [0]], [0.4, -0.3, 0.2, -0.6], spike(2.5)),
    "triangle, saturated logits, slab": (TRIANGLE, [[2], [1], [0]], [7.5, -1.0, 0.5], SpikeSlab),
    "triangle, ramps": (TRIANGLE, [[1], [2, 0]], OFFSET, MixtureOfRamps),
    X: ((2, 1), [[0], [1], [2]], OFFSET, SpikeGaussian, OF_X),
    "depends on x, two in a group": ((2, 1), [[0, 1], [2]], OFFSET, lambda: SpikeGaussian(1.0), OF_X),
    "depends on x, steep": ((1, 1), [[0], [1]], [2.5, -1.5], lambda: SpikeGaussian(0.3), STEEP),
}


def build(name, kind=GraphBoltzmann):
    """A machine with random parameters and a posterior."""
    (size, other), groups, offset, make, *of_x = CASES[name]
    machine = RBM(size, other) if isinstance(other, int) else kind(size, other)
    posterior = PolynomialPosterior(groups, make(), offset, 0, *of_x)
    return randomize(machine.double(), scale=1.5, seed=1), posterior


def log_likelihood(zeta):
    """A curved, smooth log p(x | zeta)."""
    first = torch.randn(zeta.shape[-1], 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    pairs = (zeta.roll(1, -1) * zeta).sum(-1)
    return torch.nn.functional.logsigmoid(torch.tanh(zeta @ first).sum(-1) + pairs)


def row(machine, posterior, reconstruction, kl):
    """Both values, then the gradients of the former by the posterior's parameters, of the latter by all."""
    of_posterior = list(posterior.parameters())
    wanted = [*machine.parameters(), *of_posterior]
    found = torch.autograd.grad(reconstruction, of_posterior, retain_graph=True)
    found += torch.autograd.grad(kl, wanted, allow_unused=True, materialize_grads=True)
    return torch.cat([torch.stack([reconstruction, kl]).detach(), *(each.flatten() for each in found)])


def exact(machine, posterior, num_nodes=None):
    num_nodes = num_nodes or (32 if len(posterior.of_x) else 12 if machine.num_units > 3 else 24)
    quadrature = posterior.quadrature(num_nodes)
    kl = exact_kl(quadrature, log_prior(machine))
    return row(machine, posterior, quadrature.expectation(log_likelihood(quadrature.nodes.zeta)), kl)


def ours(machine, groups, log_partition, generator):
    return kl_to_boltzmann(machine, groups, log_partition=log_partition)


def as_drawn(groups, zeta, generator):
    return zeta


def estimates(machine, posterior, kl=ours, zeta_of=as_drawn, num_batches=32, batch_size=2000):
    """The same of one draw, a row per batch."""
    generator, rows = torch.Generator().manual_seed(2), []
    for _ in range(num_batches):
        groups, zeta = posterior.rsample(batch_size, generator)
        reconstruction = log_likelihood(zeta_of(groups, zeta, generator)).mean()
        divergence = kl(machine, groups, enumerate_machine(machine).log_partition, generator).mean()
        rows.append(row(machine, posterior, reconstruction, divergence))
    return torch.stack(rows)


MANY = {"num_batches": 60, "batch_size": 4000}


@pytest.mark.parametrize("name", CASES)
def test_values_and_every_gradient_are_unbiased(name):
    model = build(name)
    rare = name.endswith(("saturated logits", "slab", "of nine"))  # some bits hardly ever turn
    found = estimates(*model, **(MANY if rare else {}))
    check_mean(found, exact(*model), resolution=0.01, rounding=1e-8)


CONVERGENT = ["three groups", "logits of nine", "large beta", "overlapping-power, three groups"]


@pytest.mark.parametrize("name", CONVERGENT)
def test_quadrature_has_converged(name):
    coarse, fine = (exact(*build(name), num_nodes) for num_nodes in (12, 24))
    torch.testing.assert_close(coarse, fine, rtol=1e-7, atol=1e-8)


def test_quadrature_of_what_depends_on_x_has_converged():
    torch.testing.assert_close(exact(*build(X)), exact(*build(X), 40), rtol=1e-7, atol=1e-7)


# Faults.


def second_draw(machine, groups, log_partition, generator):
    redrawn = planted_faults.second_draw_of_z(groups, generator)
    return kl_to_boltzmann(machine, redrawn, log_partition=log_partition)


def with_pair_term(pair_term):
    return lambda machine, groups, log_z, _: planted_faults.faulty_kl(machine, groups, log_z, pair_term)


def with_bits(change):
    def estimator(machine, groups, log_partition, generator):
        changed = [replace(group, bits=change(group, group.bits.detach())) for group in groups]
        return kl_to_boltzmann(machine, changed, log_partition=log_partition)

    return estimator


def bits_of_a_spike(group, bits):
    """The value is right, the gradient that of a transformation whose zeta determines z."""
    return replace_gradient(bits, (1 - bits) * torch.nn.functional.softplus(group.logits))


def logits_alone(group, bits):
    """E[z | zeta, l] is differentiated at fixed zeta."""
    return replace_gradient(bits, bits * (1 - bits) * group.logits)


def without_the_term(machine, groups, log_partition, generator):
    """As if prior and posterior shared r."""
    bare = [replace(group, kl_of_zeta=None) for group in groups]
    return kl_to_boltzmann(machine, bare, log_partition=log_partition)


def fixed_q(machine, groups, log_partition, generator):
    """The term has the right value, and sends no gradient to q."""
    kl = without_the_term(machine, groups, log_partition, generator)
    for group in groups:
        q = torch.sigmoid(group.logits)
        kl = kl + (group.kl_of_zeta / q * q.detach()).sum(-1)
    return kl


FAULTS = [
    (with_pair_term(planted_faults.triangular_weight_alone), "three groups"),
    (with_pair_term(planted_faults.straight_through_bits), "three groups"),
    (with_pair_term(planted_faults.factor_missing), "three groups"),
    (with_pair_term(planted_faults.clamped_probability), "saturated logits"),
    (second_draw, "three groups"),
    (with_bits(lambda _, bits: bits), "overlapping-power, three groups"),
    (with_bits(bits_of_a_spike), "ramps, three groups"),
    (with_bits(logits_alone), "overlapping-exponential, three groups"),
    (with_bits(lambda group, _: group.zeta), "ramps, three groups"),
    (without_the_term, X),
    (fixed_q, X),
]


@pytest.mark.parametrize(("estimator", "name"), FAULTS)
def test_planted_faults_are_rejected(estimator, name):
    model = build(name)
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(estimates(*model, estimator), exact(*model), rounding=1e-8)


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
def test_faults_of_graphs_are_rejected(kind):
    name = "triangle, three groups"
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(estimates(*build(name, kind)), exact(*build(name)))


def zeta_of_a_second_draw(groups, zeta, generator):
    """zeta keeps its slope but takes its on-off pattern from an independent draw of z."""
    order = torch.cat([group.units for group in groups]).argsort()
    logits = torch.cat([group.logits for group in groups], -1)[:, order]
    return zeta * torch.bernoulli(torch.sigmoid(logits.detach()), generator=generator)


def test_a_second_draw_of_z_is_rejected():
    model = build("three groups")
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(estimates(*model, zeta_of=zeta_of_a_second_draw), exact(*model))


# Without quadrature.


def test_factorial_prior_and_posterior_give_the_closed_form():
    prior = with_parameters(FactorialBernoulli(3).double(), bias=[0.3, -1.0, 2.0])
    logits = torch.tensor([[0.5, 1.5, -30.0]], dtype=torch.float64)
    zeta = SpikeSlab().rsample(logits)
    group = LatentGroup(logits=logits, zeta=zeta, bits=SpikeSlab().bits(zeta, logits))
    got = kl_to_boltzmann(prior, [group], log_partition=torch.nn.functional.softplus(prior.bias).sum())
    q, p = (torch.distributions.Bernoulli(logits=each) for each in (logits, prior.bias[None]))
    torch.testing.assert_close(got, torch.distributions.kl_divergence(q, p).sum(-1), rtol=1e-9, atol=1e-9)


def test_unit_indices_and_their_absence_agree():
    rbm, posterior = build("three groups")
    groups, _ = posterior.rsample(5, torch.Generator().manual_seed(0))
    plain = [replace(group, units=None) for group in groups]
    assert torch.equal(kl_to_boltzmann(rbm, groups, 1.0), kl_to_boltzmann(rbm, plain, 1.0))


def test_float32_agrees_with_float64_at_saturated_logits():
    logits = torch.tensor([[-30.0, 17.0, 30.0, 9.0]], requires_grad=True)
    rbm, found = with_parameters(RBM(2, 2), weight=1.3), []
    for dtype in (torch.float32, torch.float64):
        cast = logits.to(dtype)
        zeta = SpikeSlab().icdf(torch.full_like(cast, 0.7).detach(), cast)
        bits = SpikeSlab().bits(zeta, cast)
        parts = zip(*(value.split(1, -1) for value in (cast, zeta, bits)), strict=True)
        groups = [LatentGroup(logits=of_group, zeta=own, bits=bit) for of_group, own, bit in parts]
        value = kl_to_boltzmann(rbm.to(dtype), groups, log_partition=3.0)
        found.append((value.double(), torch.autograd.grad(value.sum(), logits, retain_graph=True)[0]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-9)


# The loss with weights on its KL terms.


@pytest.mark.parametrize("log_partition", [None, 3.0, torch.tensor(3.0, dtype=torch.float64)])
def test_value_and_gradients_of_the_loss(log_partition):
    parts = [torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in range(3)]

    def loss(*parts):
        return Elbo(*parts, log_partition, True).weighted_loss(discrete=0.3, continuous=0.7)

    shift = 0.0 if log_partition is None else 0.3 * 3.0
    plain = (0.3 * parts[1] + 0.7 * parts[2] - parts[0]).mean() + shift
    torch.testing.assert_close(loss(*parts), plain)
    torch.autograd.gradcheck(loss, parts)
    torch.autograd.gradgradcheck(lambda *p: loss(*p) ** 2, parts)
    exact = torch.autograd.grad(loss(*parts), parts)
    torch.testing.assert_close(loss_gradients(5, 0.3, 0.7, like=parts[0]), exact, rtol=1e-15, atol=0)
