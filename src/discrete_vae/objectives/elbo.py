"""The evidence lower bound, the loss of training, and the KL from the posterior to the prior.

    bound = log p(x | zeta, h) - KL[q(z, zeta | x) || p(z, zeta)] - KL[q(h | zeta, x) || p(h | zeta)],
    loss = w KL + w_h KL_h - log p(x | zeta, h), averaged over the batch,

with weights w and w_h of the KL terms, 1 but for the warm-up. `loss_terms` draws from the posterior and evaluates
the three terms there, for `DiscreteVAE.elbo` and the reparameterized gradient; `loss_terms_at` does so at given draws,
for every estimator of the gradient. `weighted_sum` with the weights of `loss_gradients` is the loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import (
    BoltzmannMachine,
    check_chains,
    enumerate_log_partition,
    num_enumerated_units,
)
from discrete_vae.checks import check_log_partition, check_number, check_unit_interval
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import mean_and_entropy, replace_gradient
from discrete_vae.objectives.importance import partial_bound, relaxed_bound
from discrete_vae.posterior import UNKNOWN, LatentGroup, PosteriorSample, rows_of_labels
from discrete_vae.records import ShowsShapes

if TYPE_CHECKING:
    from discrete_vae.model import DiscreteVAE

# The bound and the loss.


class LossTerms(NamedTuple):
    """The terms of the bound and of the loss, see `Elbo`; each (..., batch), nats."""

    reconstruction: Tensor
    kl_relative: Tensor
    kl_continuous: Tensor


GradOutputs = tuple[Tensor, Tensor, Tensor]
"""The gradients of the loss by its terms, each (batch,)."""


def loss_gradients(num_examples: int, discrete: float, continuous: float, *, like: Tensor) -> GradOutputs:
    """Gradients of the loss by reconstruction, kl_relative and kl_continuous: -1/n, w/n and w_h/n, each (n,)."""

    def constant(weight: float) -> Tensor:
        return like.new_full((num_examples,), weight / max(num_examples, 1))

    return constant(-1.0), constant(discrete), constant(continuous)


def weighted_sum(terms: LossTerms, grad_outputs: GradOutputs) -> Tensor:
    """The loss less the weighted log Z, a scalar in nats, whose gradients by the terms are the given ones."""
    sums = [(term * weight).sum() for term, weight in zip(terms, grad_outputs, strict=True)]
    return torch.stack(sums).sum()


@dataclass(frozen=True, eq=False, repr=False)
class Elbo(ShowsShapes):
    """One-sample estimates of the evidence lower bound, one per example.

    Source: Rolfe 2017, eq. vae-loss-input-dependent-zeta-hierarchical.

    Attributes:
        reconstruction: log p(x | zeta, h), (batch,), nats. Importance weights of zeta put their
            gradient here, those of h into kl_continuous.
        kl_relative: KL of the binary latents less the value of log Z, (batch,), nats; with that of zeta given z where
            the transformation depends on x. Its gradient is that of the KL if trains_prior.
        kl_continuous: KL of the Gaussian layers, (batch,), nats; zero where there are none. Importance samples lower it
            by what they bring.
        log_partition: Value of log Z, nats; None where it was not given.
        trains_prior: True if kl_relative carries the gradient of log Z, or the prior's parameters want none.
        num_importance_samples: Samples under one logarithm, see `discrete_vae.objectives.importance`; 1 is the ELBO.
        weighs_binary_latents: True if they are samples of zeta, False if they are of the Gaussian layers.
    """

    reconstruction: Tensor
    kl_relative: Tensor
    kl_continuous: Tensor
    log_partition: Tensor | float | None
    trains_prior: bool
    num_importance_samples: int = 1
    weighs_binary_latents: bool = False

    @property
    def kl_discrete(self) -> Tensor:
        """KL of the binary latents, (batch,), nats; NaN where log Z was not given, with the right gradient."""
        return self.kl_relative + (math.nan if self.log_partition is None else self.log_partition)

    @property
    def value(self) -> Tensor:
        """reconstruction - kl_discrete - kl_continuous, (batch,), nats; below log p(x) in expectation.

        NaN where log Z was not given.
        """
        return self.reconstruction - self.kl_discrete - self.kl_continuous

    @property
    def loss(self) -> Tensor:
        """The loss of training: minus the mean of value, a scalar in nats.

        Where log Z was not given the loss is lower by it, with the same gradient.

        Raises:
            InvalidInputError: If the prior trains and nothing gives log Z a gradient.
        """
        return self.weighted_loss()

    def weighted_loss(self, *, discrete: float = 1.0, continuous: float = 1.0) -> Tensor:
        """`loss` with weights on the KLs of the binary latents and of the Gaussian layers, as warm-up wants them.

        Raises:
            InvalidInputError: As `loss`, and if a weight is no finite number, or the one whose KL is part of importance
                weights is not 1.
        """
        check_kl_weights(discrete, continuous, self.num_importance_samples, self.weighs_binary_latents)
        check_trains_prior(self.trains_prior)
        terms = LossTerms(self.reconstruction, self.kl_relative, self.kl_continuous)
        weights = loss_gradients(len(terms.reconstruction), discrete, continuous, like=terms.reconstruction)
        loss, value = weighted_sum(terms, weights), self.log_partition
        if value is None:
            return loss
        return loss + discrete * (value.to(loss.dtype) if isinstance(value, Tensor) else value)


MAX_SILENTLY_ENUMERATED_UNITS = 12
"""Units outside the largest block up to which log Z is enumerated unasked: milliseconds."""


def gradient_and_value(
    energy: BoltzmannMachine, negative_phase: Tensor | None, log_partition: Tensor | SupportsFloat | None
) -> tuple[Tensor | None, Tensor | float | None]:
    """The gradient of log Z, as that of a scalar of value 0, and its value; None for what is not known.

    Samples give the gradient, and so does a value that carries one. Where neither is given, log Z is enumerated if at
    most 12 units lie outside the energy's largest block.
    """
    if negative_phase is None and log_partition is None:
        if num_enumerated_units(energy) > MAX_SILENTLY_ENUMERATED_UNITS:
            return None, None
        log_partition = enumerate_log_partition(energy)
    value = None if log_partition is None else check_log_partition(log_partition)
    gradient = None
    if negative_phase is not None:
        states = check_chains("negative_phase", negative_phase, energy)
        gradient = energy.compute_negative_phase(states.detach())
    if isinstance(value, Tensor) and value.requires_grad:
        if gradient is not None:
            repair = "Give the negative phase, or a log Z that carries a gradient, not both."
            raise InvalidInputError("log_partition", "must carry no gradient here", "one that does", repair)
        value, gradient = value.detach(), _GradientOf.apply(value)
    return gradient, value


class _GradientOf(torch.autograd.Function):
    """0, with the gradient of a scalar, whose own value may be unknown, NaN."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return torch.zeros_like(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradients[0]


def check_trains_prior(trains_prior: bool) -> None:
    """Refuse a loss that lacks the gradient of log Z."""
    if not trains_prior:
        repair = "Give states of the prior, for example elbo(x, negative_phase=chains.step(30))."
        raise InvalidInputError("negative_phase", "must be given to train the prior", "None", repair)


def check_kl_weights(
    discrete: float, continuous: float, num_importance_samples: int, weighs_binary_latents: bool
) -> None:
    """Check that weights of the KL terms are finite, and 1 where the KL is part of importance weights."""
    if not torch.compiler.is_compiling():
        for name, weight in (("discrete", discrete), ("continuous", continuous)):
            check_number(name, weight, repair="Give 1 for the bound itself.")
    weighed = discrete if weighs_binary_latents else continuous
    if num_importance_samples > 1 and weighed != 1.0:
        name = "discrete" if weighs_binary_latents else "continuous"
        rule, repair = "must be 1 with several importance samples", "Take them after the warm-up."
        raise InvalidInputError(name, rule, weighed, repair)


# The terms at draws from a model's posterior.


@dataclass(frozen=True, eq=False, repr=False)
class Batch(ShowsShapes):
    """A checked batch, as `DiscreteVAE.check_batch` gives it, with all else that its terms depend on beside the model.

    Attributes:
        x: (batch, *event), in the likelihood's domain.
        observed: As `Likelihood.observed_mask` gives it.
        log_partition_gradient: A scalar of value 0 with the gradient of log Z; None for none.
        num_importance_samples: As in `DiscreteVAE.elbo`.
        discrete_weight: w, a number or (batch,); for importance weights of zeta, whose gradient is not linear in w.
        generator: Source of the noise; None means torch's global generator.
        condition: c of p(x | c), (batch, column), as `DiscreteVAE.check_condition` gives it; None for a model without.
        labels: (batch,) int64, as `DiscreteVAE.check_labels` gives it; None for a model without classes.
        label_weight: Weight of -log q(y | x) of known labels in the loss, see below on labels.
        keys: One per example, for importance sampling: its noise then depends on its key alone.
    """

    x: Tensor
    observed: Tensor | None
    log_partition_gradient: Tensor | None = None
    num_importance_samples: int = 1
    discrete_weight: Tensor | float = 1.0
    generator: torch.Generator | None = None
    condition: Tensor | None = None
    labels: Tensor | None = None
    label_weight: float = 1.0
    keys: Sequence[int] | None = None

    def rows(self, places: Tensor) -> Batch:
        """Rows of the batch, (row,) int64 of its examples, which may repeat, without their labels."""
        observed, c = (None if part is None else part[places] for part in (self.observed, self.condition))
        keys = None if self.keys is None else [self.keys[place] for place in places.tolist()]
        return replace(self, x=self.x[places], observed=observed, condition=c, labels=None, keys=keys)


def weighs_binary_latents(model: DiscreteVAE) -> bool:
    """Tell whether importance weights are those of zeta, from which z is summed out."""
    return model.hierarchy.num_layers == 0 and model.posterior.smoothing.has_densities


def loss_terms(model: DiscreteVAE, batch: Batch) -> LossTerms:
    """Evaluate the terms at draws from the posterior; without labels it looks at no value, so it can be recorded."""
    if batch.labels is not None:
        return _terms_over_labels(model, batch, batch.labels)
    features, count = model.read(batch.x, batch.observed, batch.condition), batch.num_importance_samples
    if count == 1 or not weighs_binary_latents(model):
        sample = model.posterior.rsample(features, generator=batch.generator)
        return loss_terms_at(model, sample, features, batch)
    reconstruction, relative = relaxed_bound(
        model.prior,
        model.posterior.smoothing,  # pyright: ignore[reportArgumentType]
        model.posterior.rsample(features, num_samples=count, generator=batch.generator),
        lambda zeta: _log_likelihood(
            model, model.hierarchy.with_condition(zeta.to(model.dtype), features), batch
        ),
        weight=batch.discrete_weight,
    )
    continuous = torch.zeros_like(relative)
    return LossTerms(reconstruction, _with_gradient_of_log_z(relative, batch), continuous)


def loss_terms_at(model: DiscreteVAE, sample: PosteriorSample, features: Tensor, batch: Batch) -> LossTerms:
    """Evaluate the terms at given draws of the binary latents, which the posterior drew of features.

    The draws are (..., batch, unit); several importance samples take one per example, (batch, unit).
    """
    zeta = model.hierarchy.with_condition(sample.zeta, features)
    if batch.num_importance_samples == 1:
        below = model.hierarchy.rsample(features, zeta, generator=batch.generator)
        reconstruction = _log_likelihood(model, below.decoder_input, batch)
        kl_continuous = below.kl()
    else:
        reconstruction, kl_continuous = partial_bound(
            model.hierarchy,
            features,
            zeta,
            lambda latents: _log_likelihood(model, latents, batch),
            batch.num_importance_samples,
            generator=batch.generator,
        )
    relative = kl_without_log_partition(model.prior, sample.logits, sample.bits, model.pair_order)
    kl_of_zeta = sample.kl_of_zeta()
    if kl_of_zeta is not None:
        relative = relative + kl_of_zeta.sum(-1)
    relative = _with_gradient_of_log_z(relative, batch)
    return LossTerms(reconstruction, relative.to(reconstruction.dtype), kl_continuous)


def _log_likelihood(model: DiscreteVAE, latents: Tensor, batch: Batch) -> Tensor:
    return model.likelihood.log_prob(model.parameters_of(latents), batch.x, batch.observed)


def _with_gradient_of_log_z(relative: Tensor, batch: Batch) -> Tensor:
    gradient = batch.log_partition_gradient
    return relative if gradient is None else relative + gradient


# Labels as units of the prior: bounds of log p(x, y) and log sum_y p(x, y), and p(y | x).
#
# A label y of K classes is the state e_y, one-hot, of the prior's first K units. With z' for the other units
#
#     p(x, y) = sum_z' p(e_y, z') p(x | e_y, z'),
#     q(y, z', zeta | x) = q(y | x) r(zeta_label | e_y) q(z', zeta' | x, y).
#
# **A label that is known** clamps its units: they have neither entropy nor logits with a gradient, zeta_label is drawn
# from r as every zeta, and their part of the energy is that of e_y. What is left of the ELBO,
#
#     L(x, y) = E_q(z' | x, y) [log p(x | zeta, h)] - KL[q(z' | x, y) || p(z', e_y)] - KL_h <= log p(x, y),
#
# where KL stands for E log q(z' | x, y) - log p(z', e_y), though p(z', e_y) is not normalized over z'.
#
# **A label that is not known** is summed over, which is exact where a draw of y would need a score function:
#
#     U(x) = sum_y q(y | x) (L(x, y) - log q(y | x)) <= log sum_y exp L(x, y) <= log sum_y p(x, y) <= log p(x),
#
# by Jensen's inequality for q(y | x), then for each L. The last difference is the prior's mass on states of the label's
# units that are no class. A row of the networks for each y, with its own noise, estimates L(x, y) without bias; q(y |
# x) is a function of x alone, so U and its gradients by all parameters are linear in these estimates and unbiased too.
# In training mode norms count the rows of an example alike, whatever q(y | x) is, as they do with importance samples.
#
# **q(y | x) itself** learns from U alone. So the loss, never a bound that is reported, has a term -a log q(y | x) for
# each row with a label. `DiscreteVAE.elbo` takes a from the caller, 1 by default, since a batch does not tell how many
# examples of the data have labels. Training knows, and takes a = s N / N_labeled for N examples, N_labeled of which
# have labels: s times the mean of -log q(y | x) over these. The source has s = 0.1; s is 1 by default, so that a
# few labels are not outvoted by what the others say of q(y | x) before the decoder has learned what classes look like.
#
# **p(y | x)** = p(x, y) / sum_y' p(x, y') is a ratio of importance-sampling estimates, one per class, in which log Z
# cancels.
#
# Source: Kingma, Mohamed, Rezende & Welling 2014, "Semi-supervised learning with deep generative models", eqs. 6 to 9
# (L, -U and the term with the weight alpha, for a prior in which y and z are independent); Larochelle & Bengio 2008,
# "Classification using discriminative restricted Boltzmann machines" (a label among the units of an RBM). Deviation
# from the latter: the label's units are ordinary units, whose states need not be one-hot, so that samplers and
# annealers need not know of them.


def _terms_over_labels(model: DiscreteVAE, batch: Batch, labels: Tensor) -> LossTerms:
    """The terms of L(x, y) of examples whose label is known, and of U(x) of others."""
    if batch.num_importance_samples > 1:
        rule, repair = "must be 1 for a model with classes", "Leave it out."
        raise InvalidInputError("num_importance_samples", rule, batch.num_importance_samples, repair)
    of_x = model.features_of(batch.x, batch.observed, batch.condition)
    log_q = model.posterior.log_prob_of_classes(of_x)
    example, label = rows_of_labels(labels, model.posterior.num_classes)
    features = model.with_label(of_x[example], label)
    sample = model.posterior.rsample(features, generator=batch.generator)
    terms = loss_terms_at(model, sample, features, batch.rows(example))
    known = labels != UNKNOWN
    log_weight = log_q[example, label].masked_fill(known[example], 0)
    terms = terms._replace(kl_relative=terms.kl_relative + log_weight.to(terms.kl_relative.dtype))

    def summed(term: Tensor) -> Tensor:
        return term.new_zeros(len(labels)).index_add(0, example, log_weight.exp().to(term.dtype) * term)

    reconstruction, relative, continuous = map(summed, terms)
    of_known = log_q.gather(1, labels.clamp(min=0)[:, None])[:, 0].masked_fill(~known, 0)
    surrogate = reconstruction + batch.label_weight * of_known.to(reconstruction.dtype)
    return LossTerms(replace_gradient(reconstruction, surrogate), relative, continuous)


# The Kullback-Leibler divergence from a hierarchical posterior to a Boltzmann prior.


def kl_to_boltzmann(
    energy: BoltzmannMachine, groups: Sequence[LatentGroup], log_partition: Tensor | SupportsFloat
) -> Tensor:
    """KL[q(z, zeta | x) || p(z, zeta)] = sum_j E[-H(q_j)] + E[E(z)] + log Z, where r(zeta|z) cancels.

    Of groups whose transformation depends on x, sum_i E[q_i KL[q(zeta_i | z_i, x) || r(zeta_i | z_i)]] is added (eq.
    vae-loss-input-dependent-zeta), which is analytic too.

    An unbiased value, given log Z, and an unbiased gradient for the posterior's and the prior's parameters. The
    entropy of each group is analytic. In the energy a linear term takes q; a pair takes the bit of the unit sampled
    earlier and q of the later one, and two units of one group take both q. The bits carry (1-z)/(1-q) dq, taken in
    logits, so nothing is divided by 1-q and no q is clamped.

    Source: Rolfe 2017, appendix kl-gradient, eqs. KL-component-ELBO, J-term-gradient, J-gradient-z-0. Deviation:
    eq. low-var-J-grad with a triangular W holds one of the two terms of eq. J-term-gradient only and is biased; both
    are used here, and the factor (1-z)/(1-q) only for partners later in the hierarchy, where it is needed.

    Args:
        energy: The prior.
        groups: In the order in which the posterior samples them; their tensors are (batch, unit of the group).
        log_partition: log Z in nats: a number, or a scalar tensor whose gradient is the prior's negative phase, as
            `log_partition_surrogate` and `enumerate_log_partition` give it.

    Returns:
        (batch,), nats. One draw may be negative; its expectation is the KL.

    Raises:
        InvalidInputError: If the groups do not cover each unit of the prior exactly once, a bit lies outside [0, 1], or
            log_partition is no finite number or scalar tensor.

    Examples:
        >>> from discrete_vae import FactorialBernoulli, SpikeSlab
        >>> logits, smoothing = torch.zeros(1, 2), SpikeSlab()
        >>> zeta = smoothing.rsample(logits)
        >>> group = LatentGroup(logits=logits, zeta=zeta, bits=smoothing.bits(zeta, logits))
        >>> kl_to_boltzmann(FactorialBernoulli(2), [group], log_partition=1.3862944).abs().item() < 1e-6
        True
    """
    log_z = check_log_partition(log_partition)
    group_of_unit, to_prior_order = _layout(groups, energy.num_units)
    logits = torch.cat([group.logits for group in groups], -1)[..., to_prior_order]
    bits = torch.cat([group.bits for group in groups], -1)[..., to_prior_order]
    check_unit_interval("bits", bits.detach().nan_to_num(nan=0.5))  # a NaN of a broken network comes out
    order = energy.pair_order(group_of_unit).to(energy.bias.device)
    kl = kl_without_log_partition(energy, logits, bits, order) + log_z
    for group in groups:
        if group.kl_of_zeta is not None:
            kl = kl + group.kl_of_zeta.sum(-1)
    return kl


def kl_without_log_partition(
    energy: BoltzmannMachine, logits: Tensor, bits: Tensor, order: nn.Module
) -> Tensor:
    """`kl_to_boltzmann` less log Z, (...), nats, of logits and bits (..., unit) in the prior's order; that of z alone.

    The order is what the energy's `pair_order` gives for the posterior's groups; it is made once, not per step.
    """
    wide = torch.promote_types(logits.dtype, torch.float32)
    mean, entropy = mean_and_entropy(logits.to(wide))
    return energy.expected_energy(bits.to(wide), mean, order) - entropy


def _layout(groups: Sequence[LatentGroup], num_units: int) -> tuple[Tensor, Tensor]:
    """The position of each unit's group, and the permutation to the prior's order."""

    def error(rule: str, received: object) -> InvalidInputError:
        repair = "Give all groups of one draw, each unit of the prior in exactly one."
        return InvalidInputError("groups", rule, received, repair)

    shapes = sorted({tuple(group.logits.shape[:-1]) for group in groups})
    if len(shapes) != 1:
        raise error("must have one batch, and at least one group", shapes)
    sizes = [group.logits.shape[-1] for group in groups]
    if sum(sizes) != num_units:
        raise error(f"must cover the prior's {num_units} units", f"{sum(sizes)} units")
    device = groups[0].logits.device
    position = torch.arange(len(sizes), device=device).repeat_interleave(torch.tensor(sizes, device=device))
    units = torch.arange(num_units, device=device)
    listed = [group.units for group in groups if group.units is not None]
    if 0 < len(listed) < len(groups):
        raise error("must all have units or all have none", f"{len(listed)} of {len(groups)}")
    order = torch.cat(listed) if listed else units
    to_prior_order = order.argsort()
    if not torch.equal(order[to_prior_order], units):
        raise error("must list each unit of the prior once", order.tolist())
    return position[to_prior_order], to_prior_order
