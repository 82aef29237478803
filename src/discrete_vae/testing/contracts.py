"""Laws of transformations, energies, posteriors, Gaussian layers and networks; run them on your own before training.

Each function raises AssertionError where a law is broken, and says which. Networks are tried in their own dtype and on
their own device, and stay as they were, as does torch's global generator.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.gaussian import AutoregressiveGaussianPrior
from discrete_vae.nets.mlp import NetworkFactory
from discrete_vae.numerics import softplus
from discrete_vae.posterior import Posterior, PosteriorSample
from discrete_vae.smoothing.base import CERTAIN, InputDependentSmoothing, Smoothing
from discrete_vae.smoothing.spike import SpikeAtZero
from discrete_vae.testing.reference import (
    all_states,
    check_frequencies,
    check_mean,
    conditional_logits,
    enumerate_machine,
)

# Smoothing transformations.

# networks reach the outer ones: the bounded norm lets an outlier of a batch of n rows be 1.5 n
_BELOW = (-1000.0, -110.0, -60.0, -30.0, -17.5, -9.0, -3.0, -0.4, 0.0)
_LOGITS = (*_BELOW, 0.7, 2.5, 8.0, 16.0, 30.0, 60.0, 110.0, 1000.0)


def rho_grid(stride: int = 9973) -> Tensor:
    """The float32 numbers that uniform draws can take: all near both ends, every stride-th between."""
    edge, end = 4096, 1 << 24
    near = torch.arange(1, edge)
    ticks = torch.cat([near, torch.arange(edge, end - edge, stride), end - near]).unique()
    return torch.cat([torch.tensor([2.0**-25]), ticks.float() / end])


def check_smoothing(smoothing: Smoothing, *, tolerance: float = 1e-5) -> None:
    """Check a transformation for `HierarchicalPosterior(smoothing=)`: draws in float32, gradients and the joint law.

    A copy is tried. It is float32, with a moderate slope; ``tolerance`` is the largest |F(zeta) - rho| where zeta is
    not at an atom of its law.

    Examples:
        >>> from discrete_vae import SpikeSlab
        >>> check_smoothing(SpikeSlab())
    """
    check_float32(copy.deepcopy(smoothing), tolerance=tolerance)
    for check in (check_pointwise_gradient, check_joint_law, check_pair_gradient):
        check(copy.deepcopy(smoothing))


def check_float32(
    smoothing: Smoothing, *, tolerance: float, rho: Tensor | None = None, num_ulps: int = 0
) -> None:
    """Check draws in float32 as training makes them: finite, as are all gradients, and zeta the same as from icdf.

    zeta increases in ``rho`` (None is `rho_grid`) as far as F tells, and F(zeta) is rho within the tolerance, where
    zeta is not at an atom. Where F is so steep that it jumps by more than that from one float32 number to the next,
    zeta may be off by ``num_ulps`` units in its last place, and F is taken in float64.
    """
    rho = rho_grid() if rho is None else rho
    low, high = smoothing.support
    raws = product((-4.0, 0.0, 1.5), repeat=len(smoothing.parameter_names))
    for raw, value in product(raws, _LOGITS):
        law = f"at logit {value}" + (f" and numbers {raw}" if raw else "")
        logits = torch.full_like(rho, value).requires_grad_()
        parameters = _parameters(smoothing, [torch.full_like(rho, each) for each in raw])
        zeta = smoothing.icdf(rho, logits, *parameters)
        drawn = smoothing.draw(rho, logits, *parameters)
        own = {name: p for name, p in smoothing.named_parameters() if p.requires_grad}
        names, inputs = ("logits", *smoothing.parameter_names, *own), (logits, *parameters, *own.values())
        assert zeta.requires_grad, "zeta carries no gradient"
        gradients = torch.autograd.grad(zeta.sum(), inputs, allow_unused=True)
        missed = [name for name, gradient in zip(names, gradients, strict=True) if gradient is None]
        assert not missed, f"no gradient passes from zeta to {', '.join(missed)}"
        for name, value in (("zeta", drawn.zeta), ("bits", drawn.bits)):
            assert value.requires_grad, f"{name} of a draw carry no gradient"
            gradients += torch.autograd.grad(value.sum(), inputs, retain_graph=True, allow_unused=True)
        assert bool(zeta.isfinite().all()), f"zeta is not finite {law}"
        assert torch.equal(drawn.zeta, zeta), f"a draw has another zeta than icdf {law}"
        assert bool(((drawn.z == 0) | (drawn.z == 1)).all()), f"z is not in {{0, 1}} {law}"
        assert bool(((drawn.bits >= 0) & (drawn.bits <= 1)).all()), f"bits leave [0, 1] {law}"
        finite = all(g is None or bool(g.isfinite().all()) for g in gradients)
        assert finite, f"a gradient is not finite {law}"
        assert bool(((zeta >= low) & (zeta <= high)).all()), f"zeta leaves [{low:g}, {high:g}] {law}"
        with torch.no_grad():
            fall = _largest_fall(smoothing, zeta, [logits, *parameters])
            assert fall < tolerance, f"zeta decreases in rho {law}, F(zeta) by {fall:.2g}"
            error = _inversion_error(smoothing, rho, zeta, [logits, *parameters], num_ulps)
        worst = float(error.max()) if len(error) else 0.0
        assert worst < tolerance, f"|F(zeta) - rho| is {worst:.2g} {law}, above {tolerance:.2g}"


def _parameters(smoothing: Smoothing, raw: list[Tensor]) -> list[Tensor]:
    """Parameters that can be differentiated by, one per tensor of raw numbers."""
    if not isinstance(smoothing, InputDependentSmoothing):
        return []
    return [value.detach().requires_grad_() for value in smoothing.constrain(*raw)]


def _largest_fall(smoothing: Smoothing, zeta: Tensor, law: list[Tensor]) -> float:
    """By how much F(zeta) falls where zeta does, by more than 1e-6, from one rho to the next."""
    falls = (zeta.diff() < -1e-6).nonzero().flatten()
    before, after = (_wide_cdf(smoothing, zeta[at], [each[at] for each in law]) for at in (falls, falls + 1))
    return float((before - after).max()) if len(falls) else 0.0


def _wide_cdf(smoothing: Smoothing, zeta: Tensor, law: list[Tensor]) -> Tensor:
    return copy.deepcopy(smoothing).double().cdf(zeta.double(), *(each.double() for each in law))


def _inversion_error(
    smoothing: Smoothing, rho: Tensor, zeta: Tensor, law: list[Tensor], num_ulps: int
) -> Tensor:
    """By how much rho lies outside of F(zeta), zeta being known up to its last digits."""
    if num_ulps == 0:
        return (smoothing.cdf(zeta, *law) - rho).abs()[zeta != 0]
    low, high = zeta, zeta
    for _ in range(num_ulps):
        low, high = torch.nextafter(low, torch.tensor(0.0)), torch.nextafter(high, torch.tensor(1.0))
    high = high.clamp_min(torch.finfo(zeta.dtype).tiny)  # smaller ones may count as 0
    low, high = (_wide_cdf(smoothing, end, law) for end in (low, high))
    # smaller numbers are rounded to these
    low, high = low.masked_fill(zeta == 0, 0), high.masked_fill(zeta == 1, 1)
    return torch.maximum(low - rho.double(), rho.double() - high).clamp_min(0)


def check_pointwise_gradient(smoothing: Smoothing) -> None:
    """d zeta / d l = -(dF/dl) / (dF/d zeta), the same for the transformation's parameters, and the density dF/d zeta.

    All are in float64; the density is that of `log_prob`, where there is one.
    The statistical test of a correct gradient fails for narrow transformations, whose mean gradient sits in a
    sliver of rho that sampling does not reach; point by point there is no such trouble.
    """
    smoothing, num_draws, generator = smoothing.double(), 2000, _seeded(0)
    rho = torch.rand(num_draws, generator=generator, dtype=torch.float64)
    normal = torch.randn(1 + len(smoothing.parameter_names), num_draws, generator=generator, dtype=rho.dtype)
    logits, *raw = normal.unbind()
    logits = (8 * logits).requires_grad_()
    of_draw = [logits, *_parameters(smoothing, raw)]
    zeta = smoothing.icdf(rho, *of_draw)
    # near 0 and 1 the rounding of zeta itself is all of a steep F's slope
    low, high = smoothing.support
    away_from_atoms = (zeta.abs() > 1e-9) & (zeta > low + 1e-9) & (zeta < high - 1e-9)
    assert int(away_from_atoms.sum()) > num_draws // 8, "too few draws away from the atoms"
    zeta = zeta[away_from_atoms]
    fixed = zeta.detach().requires_grad_()
    value = smoothing.cdf(fixed, *(each[away_from_atoms] for each in of_draw))
    (density,) = torch.autograd.grad(value.sum(), fixed, retain_graph=True)
    for each in of_draw:
        got, slope = (
            torch.autograd.grad(y.sum(), each, retain_graph=True)[0][away_from_atoms] for y in (zeta, value)
        )
        with _naming("the slope of zeta"):
            torch.testing.assert_close(got, -slope / density, rtol=1e-6, atol=1e-12)
    with suppress(InvalidInputError):  # it may have no log_prob
        stated = smoothing.log_prob(fixed, *(each[away_from_atoms] for each in of_draw)).exp()
        with _naming("log_prob is not that of cdf"):
            torch.testing.assert_close(stated, density, rtol=1e-6, atol=1e-12)
    for name, parameter in ((n, p) for n, p in smoothing.named_parameters() if p.requires_grad):
        for index in range(0, len(zeta), max(1, len(zeta) // 20)):
            got = torch.autograd.grad(zeta[index], parameter, retain_graph=True)[0]
            slope = torch.autograd.grad(value[index], parameter, retain_graph=True)[0]
            with _naming(f"the slope of zeta by {name}"):
                torch.testing.assert_close(got, -slope / density[index], rtol=1e-6, atol=1e-9)


def check_pair_gradient(smoothing: Smoothing) -> None:
    """The gradient of E[z f(zeta)] by the logit that passes through the bits and zeta of draws, in float64.

    Pair terms of the prior's energy need it, where f is the probability of a later unit. It is q (1 - q) E[f | z=1] for
    any smooth f, at each logit; draws are those at equally spaced rho. It may deviate by 1e-3 and six standard errors
    of as many independent draws.
    """
    smoothing, num_draws = smoothing.double(), 100_000
    rho = (torch.arange(num_draws, dtype=torch.float64) + 0.5) / num_draws
    for logit, function in product((-1.5, 0.4, 2.0), (torch.ones_like, torch.cos, torch.sin)):
        logits = torch.full_like(rho, logit).requires_grad_()
        raw = [torch.full_like(rho, 0.7) for _ in smoothing.parameter_names]
        parameters = _parameters(smoothing, raw)
        drawn = smoothing.draw(rho, logits, *parameters)
        (found,) = torch.autograd.grad((drawn.bits * function(drawn.zeta)).sum(), logits)
        q = torch.sigmoid(logits.detach()[0])
        right = q * (1 - q) * function(smoothing.draw_zeta(rho, torch.ones_like(rho), *parameters)).mean()
        allowed = 1e-3 + 6 * float(found.std()) / num_draws**0.5
        error = float((found.mean() - right.detach()).abs())
        assert error < allowed, f"the gradient of E[z f(zeta)] is off by {error:.2g} at logit {logit}"


def check_joint_law(smoothing: Smoothing) -> None:
    """rsample, sample_z, bits and sample_zeta describe one joint law of (z, zeta), and repeat draws of a generator.

    q(z=1) is sigmoid(l); given z, both the posterior's zeta and r(zeta|z) spread over equally likely bins of the
    CDF at saturated logits, of a transformation that depends on x with the parameters of either; and bits is
    E[z | zeta, l].
    """
    smoothing, num_draws, generator = smoothing.double(), 200_000, _seeded(0)
    with torch.no_grad():
        logits = torch.full((num_draws,), 0.4, dtype=torch.float64)
        zero = torch.zeros(1, dtype=torch.float64)
        of_prior, of_x = (
            _parameters(smoothing, [zero + raw for _ in smoothing.parameter_names]) for raw in (0.0, 0.7)
        )
        zeta = smoothing.rsample(logits, *of_x, generator=generator)
        rho = torch.rand(num_draws, generator=generator, dtype=torch.float64)
        z = smoothing.sample_z(zeta, logits, generator=generator)
        q = torch.sigmoid(logits[:1])
        with _naming("z is not 1 with probability q"):
            check_frequencies(torch.stack([(z == 0).sum(), (z == 1).sum()]), torch.cat([1 - q, q]))
        bits = smoothing.bits(zeta, logits)
        assert float((bits - z).mean().abs()) < 6 / num_draws**0.5, "bits is not E[z | zeta]"
        for value in (0.0, 1.0):
            again = smoothing.sample_zeta(torch.full_like(logits, value), generator=generator)
            sources = {"rsample": (zeta[z == value], of_x), "sample_zeta": (again, of_prior)}
            for name, (draws, parameters) in sources.items():
                if bool((draws == 0).all()):  # the spike itself
                    continue
                saturated = torch.full_like(draws, CERTAIN if value else -CERTAIN)
                with _naming(f"zeta of {name} at z = {value:g} does not follow cdf"):
                    _check_uniform(smoothing.cdf(draws, saturated, *parameters))
        repeated: dict[str, Callable[[torch.Generator], Tensor]] = {
            "rsample": lambda source: smoothing.rsample(logits, *of_x, generator=source),
            "sample_z": lambda source: smoothing.sample_z(zeta, logits, generator=source),
            "sample_zeta": lambda source: smoothing.sample_zeta(z, generator=source),
            "draw": lambda source: smoothing.draw(rho, logits, *of_x, generator=source).z,
        }
        for name, draw in repeated.items():
            assert torch.equal(draw(_seeded(1)), draw(_seeded(1))), f"{name} does not heed its generator"


def _check_uniform(levels: Tensor) -> None:
    counts = torch.histc(levels, bins=20, min=0, max=1)
    check_frequencies(counts, torch.full_like(counts, 0.05))


# Energies.


def check_energy(energy: BoltzmannMachine) -> None:
    """Check blocks, conditionals, energies and gradients of a machine of at most 12 units by enumeration.

    A copy is tried, in float64; results of narrower ones must be float32. The tolerance is 1e-10; an AssertionError
    says which deviates.
    """
    energy = copy.deepcopy(energy).double().requires_grad_()  # those that are frozen, too
    machine = enumerate_machine(energy)
    covered = torch.cat(list(energy.blocks)).sort().values
    assert torch.equal(covered, torch.arange(energy.num_units)), "the blocks do not cover each unit once"
    parameters = list(energy.parameters())
    exact = torch.autograd.grad(machine.log_partition, parameters, retain_graph=True)
    for index, block in enumerate(energy.blocks):
        logits = energy.block_logits(machine.states, index)
        for place, unit in enumerate(block.tolist()):
            exact_logits = conditional_logits(energy, unit)
            _assert_close(f"log-odds of unit {unit}", logits[:, place], exact_logits)
        negative = -energy.energy(machine.states)
        for t, tolerance in ((1.0, 1e-10), (torch.full((len(machine.states),), 0.3), 1e-6)):
            free = energy.free_energy(machine.states, index, t)
            summed = _sum_out(machine.states, t * negative, block)
            _assert_close(f"free energies of block {index}", -free, summed, tolerance)
    last = len(energy.blocks) - 1
    for scale in (1.0, 0.3):
        free = energy.free_energy(machine.states, inverse_temperature=scale)
        same = energy.free_energy(machine.states, last, scale)
        _assert_close("free energies without a block", free, same, 1e-7)
    # the gradient of log Z is -E_p[d(marginal energy)/dtheta], with the law of z held fixed
    negative = -(machine.prob.detach() * energy.free_energy(machine.states)).sum()
    for got, want in zip(torch.autograd.grad(negative, parameters), exact, strict=True):
        _assert_close("the gradient of free energies", got, want)
    _check_expected_energy(energy, machine.states)
    for dtype in (torch.bfloat16, torch.float32):
        narrow, z = copy.deepcopy(energy).to(dtype), machine.states.to(dtype)
        for name, value in (("energies", narrow.energy(z)), ("log-odds", narrow.block_logits(z, 0))):
            assert value.dtype == torch.float32, f"{name} of a machine in {dtype} are {value.dtype}"


def _check_expected_energy(energy: BoltzmannMachine, states: Tensor) -> None:
    """Compare its mean over a posterior of one group or two with that of the energy, in value and gradient.

    Gradients by the logits are those of units that depend on no others: without smoothing none passes between groups.
    """
    n = energy.num_units
    weight = torch.randn(n, n, generator=_seeded(0), dtype=torch.float64)
    odd = torch.arange(n) % 2
    for group, coupled in product((0 * odd, odd, 1 - odd), (True, False)):
        own = weight[0].clone().requires_grad_()
        logits = own + coupled * ((states * (group == 0)) @ weight * (group == 1))
        probabilities, slope = torch.sigmoid(logits), softplus(logits)
        law = torch.where(states == 1, probabilities, 1 - probabilities).prod(1)
        bits = states + (1 - states) * (slope - slope.detach())  # as `Smoothing.bits`
        found = law.detach() @ energy.expected_energy(bits, probabilities, energy.pair_order(group))
        exact = law @ energy.energy(states)
        _assert_close("the mean of expected_energy", found, exact)
        inputs = [*energy.parameters(), *([] if coupled else [own])]
        gradients = (
            torch.autograd.grad(value, inputs, retain_graph=True, materialize_grads=True)
            for value in (found, exact)
        )
        for got, want in zip(*gradients, strict=True):
            _assert_close("the gradient of expected_energy", got, want)


def _assert_close(what: str, got: Tensor, want: Tensor, tolerance: float = 1e-10) -> None:
    with _naming(what):
        torch.testing.assert_close(got, want, rtol=0, atol=tolerance)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Say in front of an AssertionError what deviates."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error


def _sum_out(states: Tensor, negative_energy: Tensor, block: Tensor) -> Tensor:
    """log sum over a block's states of exp(-E), for each full state."""
    keep = torch.ones(states.shape[1], dtype=torch.float64)
    keep[block] = 0
    codes = (states * keep) @ (2.0 ** torch.arange(states.shape[1], dtype=torch.float64))
    _, group = codes.unique(return_inverse=True)
    peak = negative_energy.max()
    sums = torch.zeros(int(group.max()) + 1, dtype=torch.float64)
    return sums.index_add(0, group, (negative_energy - peak).exp()).log()[group] + peak


# Approximating posteriors over the binary latents.

_MAX_POSTERIOR_UNITS = 12  # all subsets of them are looked at


def check_posterior(posterior: Posterior, features: Tensor) -> None:
    """Check a posterior for `DiscreteVAE(posterior=)`: its draws, its groups, its law and its gradients.

    The law is that which its logits and the smoothing's parameters state, with false-alarm rate 1e-6. Discrete draws
    are tried where the posterior has `sample_discretely`. It has at most 12 units; a copy is tried, in float64 and
    evaluation mode. Features are (batch, feature), at least two rows.

    Examples:
        >>> from discrete_vae import HierarchicalPosterior, SpikeSlab
        >>> check_posterior(HierarchicalPosterior(3, [[0, 1], [2]], (5,), SpikeSlab()), torch.rand(4, 3))
    """
    if posterior.num_units > _MAX_POSTERIOR_UNITS:
        rule, repair = f"must have at most {_MAX_POSTERIOR_UNITS} units", "Build it with fewer."
        raise InvalidInputError("posterior", rule, posterior.num_units, repair)
    posterior, features = copy.deepcopy(posterior).double().eval(), features.double()
    for check in (check_sample, check_groups, check_law, check_gradients):
        check(posterior, features)
    if type(posterior).sample_discretely is not Posterior.sample_discretely:
        check_discrete_draws(posterior, features)


def check_sample(posterior: Posterior, features: Tensor) -> None:
    """Shapes, dtypes and domains of a draw, and that z, zeta, logits and bits are of one and the same draw."""
    shape = (len(features), posterior.num_units)
    for num_samples in (None, 1, 3):
        sample = posterior.rsample(features, num_samples=num_samples, generator=_seeded(0))
        front = () if num_samples is None else (num_samples,)
        _check_parts(posterior, sample, (*front, *shape), features.dtype)
        assert bool(((sample.z == 0) | (sample.z == 1)).all()), "z holds more than 0 and 1"
        assert not sample.z.requires_grad, "z carries a gradient"
        expected = posterior.smoothing.bits(sample.zeta, sample.logits)
        torch.testing.assert_close(sample.bits, expected, msg="bits are not those of zeta and logits")
        assert torch.equal(sample.group_of_unit, posterior.group_of_unit), "the sample has other groups"
        given = posterior.smoothing if isinstance(posterior.smoothing, InputDependentSmoothing) else None
        assert sample.smoothing is given, "the sample does not say whether its smoothing depends on x"
        names = posterior.smoothing.parameter_names
        assert len(sample.parameters) == len(names), f"the sample has not the parameters {names}"
        for value in sample.parameters:
            assert value.shape == sample.z.shape[-2:], "a parameter of the smoothing is not (batch, unit)"
    first, again, other = (posterior.rsample(features, generator=_seeded(seed)) for seed in (1, 1, 0))
    assert torch.equal(first.zeta, again.zeta), "the generator does not govern the noise"
    same = map(torch.equal, first.parameters, other.parameters)
    assert all(same), "the smoothing's parameters depend on more than the features"


def _check_parts(
    posterior: Posterior, sample: PosteriorSample, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    for name in ("z", "zeta", "logits", "bits"):
        part = getattr(sample, name)
        assert part.shape == shape, f"{name} has shape {tuple(part.shape)}"
        assert part.dtype == dtype, f"{name} is {part.dtype}"
        assert bool(part.isfinite().all()), f"{name} is not finite"
    posterior.smoothing.check_zeta(sample.zeta, shape)
    if isinstance(posterior.smoothing, SpikeAtZero):
        assert torch.equal(sample.z, (sample.zeta != 0).to(sample.z.dtype)), "z does not belong to zeta"


def check_discrete_draws(posterior: Posterior, features: Tensor) -> None:
    """Check that z is where the uniforms say, zeta is of r(zeta|z), and no gradient passes through zeta to the logits.

    For posteriors that have `sample_discretely`.
    """
    shape = (3, len(features), posterior.num_units)
    uniforms = torch.rand(shape, dtype=features.dtype, generator=_seeded(6))
    uniforms[2] = uniforms[0]
    given = features.detach().clone().requires_grad_()
    sample = posterior.sample_discretely(given, uniforms, generator=_seeded(7))
    _check_parts(posterior, sample, shape, features.dtype)
    on = (uniforms < torch.sigmoid(sample.logits)).to(sample.z.dtype)
    assert torch.equal(sample.z, on), "z is not 1 where the uniform is below q"
    assert torch.equal(sample.bits, sample.z), "bits are not z"
    torch.testing.assert_close(sample.zeta[2], sample.zeta[0], msg="samples do not share the noise of zeta")
    if sample.zeta.requires_grad and not sample.parameters:
        (reached,) = torch.autograd.grad(sample.zeta.sum(), given, retain_graph=True, allow_unused=True)
        assert reached is None or not bool(reached.any()), "a gradient passes through zeta to the logits"


def check_groups(posterior: Posterior, features: Tensor) -> None:
    """Check that each unit's logits depend on zeta of earlier groups alone, as `group_of_unit` says."""
    group = posterior.group_of_unit
    positions = sorted(set(group.tolist()))
    assert group.shape == (posterior.num_units,), "group_of_unit has another length than num_units"
    assert positions == list(range(len(positions))), "positions of groups are not 0, 1, ..."
    rows = features[:1].expand(400, -1)
    with torch.no_grad():
        sample = posterior.rsample(rows, generator=_seeded(2))
    for position in positions:
        # rows with the same earlier latents must have the same logits; where there is a spike many have
        earlier, logits = sample.zeta[:, group < position], sample.logits[:, group == position]
        _, index = torch.nn.functional.pad(earlier, (0, 1)).unique(dim=0, return_inverse=True)
        for row in range(int(index.max()) + 1):
            alike = logits[index == row]
            message = f"logits of group {position} differ where all earlier groups agree"
            assert torch.allclose(alike, alike[:1].expand_as(alike)), message


def check_law(posterior: Posterior, features: Tensor) -> None:
    """Check that z has the law that the logits state, and zeta that of the smoothing's parameters; alpha 1e-6 each.

    q(z | x) is the product of the stated conditionals exactly if, over all subsets of units, the product of the
    residuals z_i - q_i has mean 0: the residual of the unit that is drawn last has mean 0 given all others.
    """
    subsets = all_states(posterior.num_units)[1:].bool()
    generator, rows, levels = _seeded(3), [], []
    for _ in range(50):
        with torch.no_grad():
            sample = posterior.rsample(features[:1], num_samples=1000, generator=generator)
        residual = (sample.z - torch.sigmoid(sample.logits))[:, 0]
        rows.append(torch.where(subsets, residual[:, None], 1.0).prod(-1).mean(0))
        given_z = torch.where(sample.z == 1, CERTAIN, -CERTAIN)
        level = posterior.smoothing.cdf(sample.zeta, given_z, *sample.parameters)
        levels.append(level[sample.z == 1])
    if posterior.smoothing.parameter_names:  # others were looked at with the transformation
        _check_uniform(torch.cat(levels))
    with _naming("z has not the law that the logits state"):
        check_mean(torch.stack(rows), torch.zeros(len(subsets), dtype=features.dtype))


def check_gradients(posterior: Posterior, features: Tensor) -> None:
    """Check that zeta, logits and bits each carry a gradient, which reaches every parameter and the features."""
    features = features.detach().clone().requires_grad_()
    sample = posterior.rsample(features, num_samples=4, generator=_seeded(5))
    parts = {"zeta": sample.zeta.square(), "logits": sample.logits, "bits": sample.bits}
    for name, part in parts.items():
        assert part.requires_grad, f"{name} of a draw carries no gradient"
        (reached,) = torch.autograd.grad(part.sum(), features, retain_graph=True, allow_unused=True)
        assert reached is not None, f"no gradient passes from {name} to the features"
    total = torch.stack([part.sum() for part in parts.values()]).sum()
    if posterior.num_classes:
        total = total + posterior.log_prob_of_classes(features[:, posterior.num_classes :]).sum()
    total.backward()
    for name, value in (*posterior.named_parameters(), ("features", features)):
        if value.requires_grad:
            _check_reached(name, value.grad)


def _check_reached(name: str, gradient: Tensor | None) -> None:
    assert gradient is not None, f"no gradient reaches {name}"
    assert bool(gradient.isfinite().all()), f"the gradient of {name} is not finite"


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Priors over Gaussian layers.


def check_gaussian_prior(prior: AutoregressiveGaussianPrior, *, seed: int = 0) -> None:
    """Check that all layers at once are the layers one by one, each of zeta and earlier layers alone.

    A copy is tried, in float64 and evaluation mode; running statistics should not be all alike. ``seed`` is that of the
    points where it is tried.
    """
    prior = copy.deepcopy(prior).double().eval()
    generator, layers = _seeded(seed), (3, prior.num_layers, prior.num_units)
    zeta = torch.rand(3, prior.num_latents, generator=generator, dtype=torch.float64).requires_grad_()
    h = torch.randn(layers, generator=generator, dtype=torch.float64).requires_grad_()
    together = prior.layers(zeta, h)
    assert together.mean.shape == together.log_std.shape == h.shape
    for index in range(prior.num_layers):
        alone = prior.next_layer(zeta, h[:, :index])
        for name in ("mean", "log_std"):
            got, want = getattr(together, name)[:, index], getattr(alone, name)
            assert torch.allclose(got, want, rtol=1e-10, atol=1e-12), f"layer {index} alone is another one"
        # either may depend on less than both do
        both = (together.mean + 2 * together.log_std)[:, index].sum()
        from_zeta, from_h = torch.autograd.grad(both, (zeta, h), retain_graph=True, materialize_grads=True)
        size = from_h.abs().amax((0, 2))
        assert bool((size[index:] == 0).all()), f"layer {index} sees its own sample or a later one"
        assert bool((size[:index] > 0).all()), f"layer {index} misses an earlier one"
        assert float(from_zeta.abs().max()) > 0, f"layer {index} does not see zeta"
    read = prior.decoder_input(zeta, h)
    assert read.shape == (3, prior.decoder_size)
    seen = torch.autograd.grad(read.square().sum(), (zeta, h), materialize_grads=True)
    assert all(bool((part != 0).all()) for part in seen), "the decoder does not see all latents"


# Encoders, decoders, and factories of networks.

_ROWS = 6
_FAR = 50.0  # a start of the output that no network has by chance


def check_encoder(module: nn.Module, input_shape: Sequence[int], *, x: Tensor | None = None) -> None:
    """Check a module for `DiscreteVAE(encoder=)`: (batch, *input_shape) -> (batch, feature).

    In evaluation mode, which estimates use, its output is finite, depends on x, is the same at each call, and the
    features of an example do not depend on the rest of the batch. In training mode a gradient reaches every parameter
    that asks for one. A copy is a module of its own, and `state_dict` holds all that the output depends on.

    ``input_shape`` is the likelihood's. It reads ``x``, at least two different rows; None draws from a normal law.

    Examples:
        >>> check_encoder(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), (1, 8, 8))
    """
    read = (_like(module, torch.randn, _ROWS, *input_shape) if x is None else x,)
    features = _check_module(module, read)
    assert features.dim() == 2, f"the output has shape {tuple(features.shape)}, not (batch, feature)"


def check_decoder(module: nn.Module, num_latents: int, parameter_shape: Sequence[int]) -> None:
    """Check a module for `DiscreteVAE(decoder=)`: (row, latent) -> (row, *parameter_shape).

    What `check_encoder` asks for, and that the gradient reaches the latents. Where there is an
    `initialize_output_(start)`, the output is near start after it. ``num_latents`` is the hierarchy's `decoder_size`,
    ``parameter_shape`` the likelihood's.

    Examples:
        >>> check_decoder(nn.Sequential(nn.Linear(10, 64), nn.Unflatten(1, (1, 8, 8))), 10, (1, 8, 8))
    """
    latents = _like(module, torch.rand, _ROWS, num_latents)
    output = _check_module(module, (latents,), to_inputs=True)
    wanted = (_ROWS, *parameter_shape)
    assert output.shape == wanted, f"the output has shape {tuple(output.shape)}, not {wanted}"
    initialize = getattr(module, "initialize_output_", None)
    if initialize is not None:
        twin = copy.deepcopy(module).eval()
        start = _like(module, torch.full, tuple(parameter_shape), _FAR)
        with torch.no_grad():
            twin.initialize_output_(start)  # pyright: ignore[reportCallIssue]
            miss = float((twin(latents) - start).abs().mean())
        assert miss < _FAR / 2, f"after initialize_output_ the output is {miss:.3g} away from the start"


def check_network(factory: NetworkFactory) -> None:
    """Check a factory for `HierarchicalPosterior(network=)` or `GaussianHierarchy(network=)`.

    It is tried with one, two and three inputs. Beside what `check_encoder` asks for: inputs whose leading axes
    broadcast give what they give when expanded, the gradient reaches every input, and each call makes a network with
    parameters of its own.

    Examples:
        >>> from functools import partial
        >>> from discrete_vae.nets.mlp import MLP
        >>> check_network(partial(MLP, hidden=(5,)))
    """
    for sizes in ([5], [5, 3], [5, 3, 2]):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            network, other = factory(sizes, 4), factory(sizes, 4)
        mine, others = ({id(value) for value in each.parameters()} for each in (network, other))
        assert not mine & others, "two networks share a parameter"
        inputs = tuple(_like(network, torch.randn, _ROWS, size) for size in sizes)
        output = _check_module(network, inputs, to_inputs=True)
        assert output.shape == (_ROWS, 4), f"{sizes} give the shape {tuple(output.shape)}, not ({_ROWS}, 4)"
        _check_broadcast(copy.deepcopy(network).eval(), inputs)


@torch.no_grad()
def _check_broadcast(network: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """The features are (batch, size) where the latents are (sample, batch, size)."""
    features, *latents = inputs
    latents = [torch.stack([value, -value, value / 2]) for value in latents]
    front = (3, _ROWS) if latents else (_ROWS,)
    output = network(features, *latents)
    assert output.shape == (*front, 4), f"with samples the shape is {tuple(output.shape)}, not {(*front, 4)}"
    expanded = network(features.expand(*front, -1), *latents)
    assert _close(output, expanded), "inputs that broadcast do not give what they give when expanded"


def _check_module(module: nn.Module, inputs: tuple[Tensor, ...], *, to_inputs: bool = False) -> Tensor:
    """Every law that needs no shape; returns the output in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        output = _check_function(copy.deepcopy(module).eval(), inputs)
        _check_copies(module, inputs)
        _check_gradients(copy.deepcopy(module).train(), inputs, to_inputs)
    return output


@torch.no_grad()
def _check_function(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    state = copy.deepcopy(module.state_dict())
    output = module(*inputs)
    assert isinstance(output, Tensor), f"the output is {type(output).__name__}, not a tensor"
    assert output.is_floating_point(), f"the output is {output.dtype}"
    assert output.dim() > 0, "the output is a single number"
    assert len(output) == len(inputs[0]), (
        f"{len(inputs[0])} rows give an output of shape {tuple(output.shape)}"
    )
    assert bool(output.isfinite().all()), "the output is not finite"
    assert torch.equal(module(*inputs), output), "in evaluation mode, a second call gives something else"
    same = all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert same, "a call in evaluation mode changes the state"
    alone = [module(*(value[row : row + 1] for value in inputs)) for row in range(len(output))]
    assert _close(torch.cat(alone), output), "in evaluation mode, a row depends on the rest of its batch"
    assert not bool((output == output[:1]).all()), "the output does not depend on the input"
    return output


def _check_gradients(module: nn.Module, inputs: tuple[Tensor, ...], to_inputs: bool) -> None:
    inputs = tuple(value.detach().clone().requires_grad_(to_inputs) for value in inputs)
    output = module(*inputs)
    named = [*module.named_parameters(), *((f"input {n}", value) for n, value in enumerate(inputs))]
    wanted = [(name, value) for name, value in named if value.requires_grad]
    if not wanted:
        return
    assert output.requires_grad, "no gradient reaches anything"
    weights = torch.linspace(0.5, 1.5, output.numel(), dtype=output.dtype, device=output.device)
    (output * weights.view_as(output)).sum().backward()
    for name, value in wanted:
        _check_reached(name, value.grad)
        assert not name.startswith("input") or bool((value.grad != 0).any()), f"no gradient reaches {name}"


def _check_copies(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """A copy and a module that has been trained meanwhile, which takes over the state of the other."""
    copies: dict[int, object] = {}
    first, trained = copy.deepcopy(module, copies).eval(), copy.deepcopy(module).train()
    known = {id(value) for value in first.parameters()}
    hidden = [v for v in copies.values() if isinstance(v, nn.Parameter) and id(v) not in known]
    assert not hidden, (
        f"state_dict misses {len(hidden)} parameters: keep layers in an nn.ModuleList, not in a list"
    )
    with torch.no_grad():
        before = first(*inputs)
        for value in trained.parameters():
            value.add_(0.1 * torch.randn_like(value))
        for scale in (1.0, 3.0):
            trained(*(scale * value + 1 for value in inputs))  # what it gathers in training mode
        after = trained.eval()(*inputs)
        changes = any(True for _ in module.parameters())
        assert torch.equal(first(*inputs), before), "training a copy changes the module"
        own = not changes or not torch.equal(after, before)
        assert own, "a copy does not compute with its own parameters"
        first.load_state_dict(trained.state_dict())
        assert torch.equal(first(*inputs), after), "state_dict does not hold all that the output depends on"


def _like(module: nn.Module, draw: Callable[..., Tensor], *arguments: object) -> Tensor:
    """Values from a seed of its own, in the dtype and on the device of a module."""
    weight = next(module.parameters(), torch.zeros(()))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        return draw(*arguments, device="cpu").to(weight)


def _close(one: Tensor, other: Tensor) -> bool:
    """Equal up to the rounding of sums in another order."""
    tolerance = min(1e3 * torch.finfo(one.dtype).eps, 0.1)  # of half precision it would be no bound
    scale = float(other.abs().max())
    return one.shape == other.shape and bool(((one - other).abs() <= tolerance * max(scale, 1e-3)).all())
