"""The KL's value and gradients against quadrature, and wrong estimators that the same check must reject."""

from dataclasses import replace

import pytest
import torch

from discrete_vae import RBM, FactorialBernoulli, LatentGroup, SpikeSlab, kl_to_boltzmann
from discrete_vae.numerics import replace_gradient
from discrete_vae.testing.enumeration import enumerate_machine
from discrete_vae.testing.goodness_of_fit import check_mean
from tests.oracles import planted_faults
from tests.oracles.polynomial_posterior import PolynomialPosterior
from tests.oracles.quadrature import exact_kl
from tests.transformations import OVERLAPPING, SMOOTHINGS, spike

# name -> (left, right, groups, offsets of the logits, smoothing)
CASES = {
    "three units, three groups": (2, 1, [[0], [1], [2]], [0.3, -0.8, 0.5], spike(3.0)),
    "two units in one group": (2, 1, [[0, 1], [2]], [0.5, -0.4, 0.2], spike(2.0)),
    "a group across both sides": (2, 1, [[0, 2], [1]], [0.1, 0.6, -0.5], spike(1.0)),
    "interleaved groups": (2, 2, [[2], [0, 3], [1]], [0.4, -0.3, 0.2, -0.6], spike(2.5)),
    "one group": (2, 1, [[0, 1, 2]], [0.7, -1.0, 0.2], spike(3.0)),
    "right side first": (1, 2, [[2], [1], [0]], [0.2, 0.4, -0.3], spike(4.0)),
    "saturated logits": (1, 1, [[0], [1]], [7.5, -1.0], spike(2.0)),
    "logits of nine": (1, 1, [[0], [1]], [9.0, -9.0], spike(1.0)),
    "large beta": (1, 1, [[0], [1]], [0.3, -0.5], spike(8.0)),
    "slab": (2, 1, [[0], [1], [2]], [-0.2, 0.8, 0.1], SpikeSlab),
}
for kind in OVERLAPPING:
    CASES[f"{kind}, three groups"] = (2, 1, [[0], [1], [2]], [0.3, -0.8, 0.5], SMOOTHINGS[kind])
CASES["ramps, a group across both sides"] = (2, 1, [[0, 2], [1]], [0.1, 0.6, -0.5], SMOOTHINGS["ramps"])


def build(name):
    left, right, groups, offset, make = CASES[name]
    rbm = RBM(left, right).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        rbm.weight.copy_(1.5 * torch.randn(left, right, generator=generator, dtype=torch.float64))
        rbm.bias.copy_(torch.randn(left + right, generator=generator, dtype=torch.float64))
    return rbm, PolynomialPosterior(groups, make(), offset)


def parameters(rbm, posterior):
    return [*rbm.parameters(), *posterior.parameters()]


def flat_gradient(value, wrt):
    grads = torch.autograd.grad(value, wrt, allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(wrt, grads, strict=True)]
    )


def exact_value_and_gradient(rbm, posterior, num_nodes=None):
    num_nodes = num_nodes or (12 if rbm.num_units > 3 else 24)
    machine = enumerate_machine(rbm)
    powers = 2 ** torch.arange(rbm.num_units)

    def log_prior(z):
        return machine.log_prob[(z.long() * powers).sum(-1)]

    value = exact_kl(posterior.quadrature(num_nodes), log_prior)
    return torch.cat([value.detach()[None], flat_gradient(value, parameters(rbm, posterior))])


def estimates(rbm, posterior, estimator, num_batches=60, batch_size=4000):
    generator = torch.Generator().manual_seed(2)
    log_partition = enumerate_machine(rbm).log_partition
    rows = []
    for _ in range(num_batches):
        groups, _ = posterior.rsample(batch_size, generator)
        value = estimator(rbm, groups, log_partition, generator).mean()
        rows.append(torch.cat([value.detach()[None], flat_gradient(value, parameters(rbm, posterior))]))
        log_partition = enumerate_machine(rbm).log_partition
    return torch.stack(rows)


def ours(rbm, groups, log_partition, generator):
    return kl_to_boltzmann(rbm, groups, log_partition=log_partition)


def second_draw(rbm, groups, log_partition, generator):
    redrawn = planted_faults.second_draw_of_z(groups, generator)
    return kl_to_boltzmann(rbm, redrawn, log_partition=log_partition)


def with_pair_term(pair_term):
    def estimator(rbm, groups, log_partition, generator):
        return planted_faults.faulty_kl(rbm, groups, log_partition, pair_term)

    return estimator


def with_bits(change):
    def estimator(rbm, groups, log_partition, generator):
        changed = [replace(group, bits=change(group, group.bits.detach())) for group in groups]
        return kl_to_boltzmann(rbm, changed, log_partition=log_partition)

    return estimator


def bits_of_a_spike(group, bits):
    """The value is right, the gradient that of a transformation whose zeta determines z."""
    return replace_gradient(bits, (1 - bits) * torch.nn.functional.softplus(group.logits))


def logits_alone(group, bits):
    """E[z | zeta, l] is differentiated at fixed zeta."""
    return replace_gradient(bits, bits * (1 - bits) * group.logits)


@pytest.mark.parametrize("name", CASES)
def test_value_and_every_gradient_are_unbiased(name):
    rbm, posterior = build(name)
    expected = exact_value_and_gradient(rbm, posterior)
    num_batches = 32 if name.startswith(OVERLAPPING) else 60  # these are smoother, and cost more
    check_mean(estimates(rbm, posterior, ours, num_batches), expected, resolution=0.02)


CONVERGENT = ["three units, three groups", "logits of nine", "large beta", "overlapping-power, three groups"]


@pytest.mark.parametrize("name", CONVERGENT)
def test_quadrature_has_converged(name):
    rbm, posterior = build(name)
    coarse, fine = (exact_value_and_gradient(rbm, posterior, num_nodes=n) for n in (12, 24))
    torch.testing.assert_close(coarse, fine, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (with_pair_term(planted_faults.triangular_weight_alone), "three units, three groups"),
        (with_pair_term(planted_faults.straight_through_bits), "three units, three groups"),
        (with_pair_term(planted_faults.factor_missing), "three units, three groups"),
        (with_pair_term(planted_faults.clamped_probability), "saturated logits"),
        (second_draw, "three units, three groups"),
        *((with_bits(lambda _, bits: bits), f"{kind}, three groups") for kind in OVERLAPPING),
        (with_bits(bits_of_a_spike), "ramps, three groups"),
        (with_bits(logits_alone), "overlapping-exponential, three groups"),
        (with_bits(lambda group, _: group.zeta), "ramps, three groups"),
    ],
)
def test_planted_faults_are_rejected(estimator, name):
    rbm, posterior = build(name)
    expected = exact_value_and_gradient(rbm, posterior)
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(estimates(rbm, posterior, estimator, num_batches=32), expected)


def test_factorial_prior_and_posterior_give_the_closed_form():
    prior = FactorialBernoulli(3).double()
    with torch.no_grad():
        prior.bias.copy_(torch.tensor([0.3, -1.0, 2.0]))
    logits = torch.tensor([[0.5, 1.5, -30.0]], dtype=torch.float64)
    zeta = SpikeSlab().rsample(logits)
    group = LatentGroup(logits=logits, zeta=zeta, bits=SpikeSlab().bits(zeta, logits))
    got = kl_to_boltzmann(prior, [group], log_partition=torch.nn.functional.softplus(prior.bias).sum())
    q, p = (
        torch.distributions.Bernoulli(logits=logits),
        torch.distributions.Bernoulli(logits=prior.bias[None]),
    )
    torch.testing.assert_close(got, torch.distributions.kl_divergence(q, p).sum(-1), rtol=1e-9, atol=1e-9)


def test_unit_indices_and_their_absence_agree():
    rbm, posterior = build("three units, three groups")
    groups, _ = posterior.rsample(5, torch.Generator().manual_seed(0))
    plain = [LatentGroup(logits=g.logits, zeta=g.zeta, bits=g.bits) for g in groups]
    assert torch.equal(kl_to_boltzmann(rbm, groups, 1.0), kl_to_boltzmann(rbm, plain, 1.0))


def test_float32_agrees_with_float64_at_saturated_logits():
    logits = torch.tensor([[-30.0, 17.0, 30.0, 9.0]], requires_grad=True)
    rbm = RBM(2, 2)
    with torch.no_grad():
        rbm.weight.fill_(1.3)
    values, gradients = [], []
    for dtype in (torch.float32, torch.float64):
        cast = logits.to(dtype)
        zeta = SpikeSlab().icdf(torch.full_like(cast, 0.7).detach(), cast)
        parts = [
            LatentGroup(
                logits=cast[:, i : i + 1],
                zeta=zeta[:, i : i + 1],
                bits=SpikeSlab().bits(zeta, cast)[:, i : i + 1],
            )
            for i in range(4)
        ]
        value = kl_to_boltzmann(rbm.to(dtype), parts, log_partition=3.0)
        values.append(value.double())
        gradients.append(torch.autograd.grad(value.sum(), logits, retain_graph=True)[0])
    torch.testing.assert_close(values[0], values[1], rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-9)
