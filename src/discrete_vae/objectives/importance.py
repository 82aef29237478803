"""Importance weights, and the bounds with several samples under one logarithm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.checks import check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.gaussian import Hierarchy
from discrete_vae.likelihoods.base import Likelihood
from discrete_vae.numerics import replace_gradient, softplus
from discrete_vae.objectives.elbo import kl_without_log_partition, mean_field_bound
from discrete_vae.posterior import Posterior, PosteriorSample
from discrete_vae.records import ShowsShapes
from discrete_vae.smoothing.overlapping import OverlappingSmoothing

# Importance-weighted estimates of log p(x).


@dataclass(frozen=True, eq=False, repr=False)
class LogLikelihood(ShowsShapes):
    """Estimates of log p(x), one per example.

    Attributes:
        value: log (1/K) sum_k w_k, (batch,), nats; a lower bound of log p(x) in expectation, and consistent.
        std_error: Monte-Carlo standard error of value by the delta method, (batch,), nats; too small where ess is.
        ess: Effective number of samples, (sum w)^2 / sum w^2, (batch,), between 1 and K.
        doubling_gain: value minus the mean of the estimates from either half of the samples, (batch,), nats: what
            doubling them brought. A bias remains that is about as large or larger, and is not part of std_error.
        num_samples: K.
    """

    value: Tensor
    std_error: Tensor
    ess: Tensor
    doubling_gain: Tensor
    num_samples: int


def importance_weighted(log_weights: Tensor) -> LogLikelihood:
    """Average importance weights in the log domain, in float64.

    Source: Rolfe 2017, section results (10^4 importance samples); Burda, Grosse & Salakhutdinov 2016.

    Args:
        log_weights: log p(x, z, zeta) - log q(z, zeta | x), (sample, batch), nats.

    Returns:
        The estimate; with one sample std_error and doubling_gain are NaN.

    Raises:
        InvalidInputError: If log_weights is not a floating-point tensor with two axes and a sample at least.

    Examples:
        >>> importance_weighted(torch.zeros(10, 1)).value.item()
        0.0
    """
    num_samples = check_tensor("log_weights", log_weights, ("sample", "batch")).shape[0]
    if num_samples == 0:
        raise InvalidInputError("log_weights", "must hold at least one sample", 0, "Draw more samples.")
    log_weights = (
        log_weights.double().T.contiguous()
    )  # an example's own row, added up alike wherever it stands
    value = torch.logsumexp(log_weights, 1) - math.log(num_samples)
    relative = torch.exp(log_weights - value[:, None])  # w / mean w
    std_error = (
        relative.std(1) / math.sqrt(num_samples) if num_samples > 1 else torch.full_like(value, math.nan)
    )
    ess = num_samples**2 / relative.square().sum(1)
    size = num_samples // 2
    halves = (log_weights[:, :size], log_weights[:, num_samples - size :])
    doubling_gain = (
        value - sum(torch.logsumexp(half, 1) - math.log(size) for half in halves) / 2
        if size
        else value * math.nan
    )
    return LogLikelihood(value, std_error, ess, doubling_gain, num_samples)


# The parts of the bound of a batch, at draws of a model's posterior.


class BoundedModel(Protocol):
    """What the bound needs of a model; `DiscreteVAE` has it. Arguments are checked, and no value is looked at."""

    prior: BoltzmannMachine
    posterior: Posterior
    hierarchy: Hierarchy
    likelihood: Likelihood
    pair_order: nn.Module

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the networks."""
        ...

    def read(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """What the posterior and the Gaussian layers read of x, (batch, feature)."""
        ...

    def parameters_of(self, latents: Tensor) -> Tensor:
        """The likelihood's parameters, (..., *parameter_shape), at what the decoder reads, (..., latent)."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Batch(ShowsShapes):
    """What the bound of a batch is evaluated of; checked.

    Attributes:
        x: (batch, *event), in the likelihood's domain.
        observed: As `Likelihood.observed_mask` gives it.
        log_partition_gradient: A scalar of value 0 with the gradient of log Z; None for none.
        num_importance_samples: As in `DiscreteVAE.elbo`.
        discrete_weight: Weight of the KL of the binary latents in the loss, a number or (batch,), of which the
            gradient of importance weights that hold this KL is not a linear function.
        generator: Source of the noise; None means torch's global generator.
    """

    x: Tensor
    observed: Tensor | None
    log_partition_gradient: Tensor | None
    num_importance_samples: int = 1
    discrete_weight: Tensor | float = 1.0
    generator: torch.Generator | None = None


class LossTerms(NamedTuple):
    """The parts of the bound, as in `Elbo`, (..., batch), nats."""

    reconstruction: Tensor
    kl_relative: Tensor
    kl_continuous: Tensor


def weighs_binary_latents(model: BoundedModel) -> bool:
    """Whether importance weights are those of zeta, from which z is summed out."""
    return model.hierarchy.num_layers == 0 and isinstance(model.posterior.smoothing, OverlappingSmoothing)


def loss_terms(model: BoundedModel, batch: Batch) -> LossTerms:
    """The parts at draws from the posterior; no value is looked at, so that a step can be recorded."""
    features = model.read(batch.x, batch.observed)
    if batch.num_importance_samples > 1 and weighs_binary_latents(model):
        return _relaxed_parts(model, features, batch)
    sample = model.posterior.rsample(features, generator=batch.generator)
    return loss_terms_at(model, sample, features, batch)


def loss_terms_at(model: BoundedModel, sample: PosteriorSample, features: Tensor, batch: Batch) -> LossTerms:
    """`loss_terms` at draws of the binary latents that are made.

    Args:
        model: The model.
        sample: The draws, (..., batch, unit); several importance samples take one per example, (batch, unit).
        features: What the posterior drew them of, (batch, feature).
        batch: What the bound is evaluated of.
    """

    def log_prob(latents: Tensor) -> Tensor:
        return model.likelihood.log_prob(model.parameters_of(latents), batch.x, batch.observed)

    if batch.num_importance_samples == 1:
        below = model.hierarchy.rsample(features, sample.zeta, generator=batch.generator)
        reconstruction, kl_continuous = log_prob(below.decoder_input), below.kl()
    else:
        bound = partial_bound(
            model.hierarchy,
            features,
            sample.zeta,
            log_prob,
            batch.num_importance_samples,
            generator=batch.generator,
        )
        reconstruction, kl_continuous = bound.reconstruction, bound.kl_continuous
    relative = kl_without_log_partition(model.prior, sample.logits, sample.bits, model.pair_order)
    kl_of_zeta = sample.kl_of_zeta()
    if kl_of_zeta is not None:
        relative = relative + kl_of_zeta.sum(-1)
    relative = _with_gradient_of_log_z(relative, batch)
    return LossTerms(reconstruction, relative.to(reconstruction.dtype), kl_continuous)


def _relaxed_parts(model: BoundedModel, features: Tensor, batch: Batch) -> LossTerms:
    """The parts of the bound whose weights are those of zeta."""
    smoothing = model.posterior.smoothing
    assert isinstance(smoothing, OverlappingSmoothing)
    drawn = model.posterior.rsample(
        features, num_samples=batch.num_importance_samples, generator=batch.generator
    )
    relaxed = relaxed_bound(
        model.prior,
        smoothing,
        drawn,
        lambda zeta: model.likelihood.log_prob(
            model.parameters_of(zeta.to(model.dtype)), batch.x, batch.observed
        ),
        weight=batch.discrete_weight,
    )
    relative = _with_gradient_of_log_z(relaxed.kl_relative, batch)
    return LossTerms(relaxed.reconstruction, relative, torch.zeros_like(relaxed.kl_relative))


def _with_gradient_of_log_z(relative: Tensor, batch: Batch) -> Tensor:
    gradient = batch.log_partition_gradient
    return relative if gradient is None else relative + gradient


# The evidence bound with importance weights over the Gaussian layers alone.
#
# For k samples h_1, ..., h_k of the Gaussian layers below one draw of (z, zeta),
#
#     L_k = E_q(z, zeta | x) [ R_k(zeta) ] - KL[ q(z, zeta | x) || p(z, zeta) ],
#     R_k(zeta) = E_(h_1..h_k) log (1/k) sum_j w_j,    w_j = p(x, h_j | zeta) / q(h_j | zeta, x).
#
# The mean weight is an unbiased estimate of p(x | zeta), so by Jensen's inequality R_k <= log p(x | zeta),
# and R_k rises in k (Burda et al. 2016, theorem 1, given zeta). R_1 is the ELBO's E log p(x | zeta, h) - KL
# of the layers. Then E log p(x | zeta) - KL <= log p(x) is the ELBO of the binary latents with the layers
# integrated out, so
#
#     ELBO = L_1 <= L_2 <= ... <= E log p(x | zeta) - KL <= log p(x).
#
# The KL of the binary latents stays outside of the logarithm, so its gradient is as it is in the ELBO.
#
# **Gradient of R_k.** Let v_j = w_j / sum_i w_i, held fixed wherever it multiplies; h_j = g(epsilon_j; phi,
# zeta, x), with all parameters of q(h | zeta, x) in phi. In log w_j = log p(x, h_j | zeta) - log q(h_j |
# zeta, x) the argument h_j stands in all of its places: as a layer's value and as what the networks of later
# layers read.
#
# 1. Parameters of p(x | zeta, h) and p(h | zeta), theta: q does not have them, so the gradient is
#    E sum_j v_j d log p(x, h_j | zeta) / d theta. **Weights v.**
# 2. phi: by the chain rule E sum_j v_j (d log w_j / d h_j . d h_j / d phi - s_j), where s_j = d log q(h_j) / d phi at
#    fixed h_j. The v_j of the score s_j depends on h_j. Reparameterizing once more, with
#    d v_j / d h_j = v_j (1 - v_j) d log w_j / d h_j,
#
#        E v_j s_j = E d v_j / d h_j . d h_j / d phi = E v_j (1 - v_j) d log w_j / d h_j . d h_j / d phi,
#
#    so that the sum is E sum_j v_j^2 d log w_j / d h_j . d h_j / d phi. **Weights v^2, on the path through h alone**;
#    the explicit phi inside log q gets no gradient. Where q is the exact posterior it is zero for each draw.
# 3. zeta is a parameter of both: **v** on what p(h | zeta) and p(x | zeta, h) read of it directly, **v^2** on
#    h_j's path through the posterior's networks, which read it too, none on its explicit place in log q. Then on to the
#    posterior of the binary latents by d zeta / d (their parameters), as in the ELBO.
# 4. The encoder, and any network that makes the features, is part of phi where the layers read it, and as in the ELBO
#    where the binary latents do.
#
# All of it is exact in expectation where an example's w_j depends on its own h_j: with the running statistics
# of batch normalization. In training mode the statistics are those of all rows of a network, samples and
# examples together and unweighted, like the running averages, which thus belong to h drawn from q. What flows
# back through a statistic then carries the weight of the row that it reaches as well as that of the row that
# it comes from; this is the one approximation.
#
# Source: Tucker et al. 2019 (doubly reparameterized gradients), section 4, for fixed zeta; the bound and the
# division of the weights are ours.


@dataclass(frozen=True, eq=False, repr=False)
class PartialBound(ShowsShapes):
    """One estimate of R_k(zeta) per example, in two parts as the ELBO has them.

    Attributes:
        reconstruction: Mean over samples of log p(x | zeta, h_j), (batch,), nats; without gradient.
        kl_continuous: reconstruction - log (1/k) sum_j w_j, (batch,), nats, with the whole gradient: the KL of the
            layers less what k samples bring.
    """

    reconstruction: Tensor
    kl_continuous: Tensor


def partial_bound(
    hierarchy: Hierarchy,
    features: Tensor,
    zeta: Tensor,
    log_likelihood: Callable[[Tensor], Tensor],
    num_samples: int,
    *,
    generator: torch.Generator | None = None,
) -> PartialBound:
    """Estimate R_k(zeta) = E log (1/k) sum_j p(x, h_j | zeta) / q(h_j | zeta, x), see the module.

    Args:
        hierarchy: The Gaussian layers.
        features: (batch, feature), what the encoder makes of x.
        zeta: (batch, latent), one draw per example.
        log_likelihood: log p(x | zeta, h), (sample, batch), of what the decoder reads, (sample, batch, decoder_size).
        num_samples: k.
        generator: Source of the noise; None means torch's global generator.

    Returns:
        The estimate; its value and, given the statistics of the norms, its gradient are unbiased.

    Raises:
        InvalidInputError: If the hierarchy has no Gaussian layers, or draws one sample at a time.
    """
    draws = hierarchy.rsample_many(features, zeta, num_samples, generator=generator)
    h = draws.h.view_as(draws.h)  # what is evaluated; its gradient is weighted on the way to what is drawn
    repeated = zeta.to(h.dtype).expand(num_samples, *zeta.shape)
    log_likelihoods = log_likelihood(hierarchy.decoder_input(repeated, h))
    log_joint = log_likelihoods + hierarchy.prior_at(repeated, h).log_prob(h).sum((-2, -1))
    log_weights = log_joint.detach() - draws.log_prob
    value = torch.logsumexp(log_weights, 0) - math.log(num_samples)
    reconstruction = log_likelihoods.detach().mean(0)
    kl = reconstruction - value
    if not log_joint.requires_grad:
        return PartialBound(reconstruction, kl)
    weights = torch.softmax(log_weights, 0)
    surrogate = (weights * log_joint).sum(0)
    if h.requires_grad:
        of_row = weights[..., None, None]
        h.register_hook(lambda gradient: gradient * of_row)
        of_log_q = of_row * draws.path_gradient(weights)
        surrogate = surrogate - (of_log_q * draws.h).sum((0, 2, 3))
    return PartialBound(reconstruction, replace_gradient(kl, -surrogate))


# The evidence bound with importance weights over the binary latents, for transformations without a spike.
#
# **The relaxed model.** With densities r(zeta|0) and r(zeta|1) on the same interval z can be summed out of
# prior and posterior. Let g_i(zeta_i) = log r(zeta_i|1) - log r(zeta_i|0) and R0(zeta) = sum_i log
# r(zeta_i|0). Then
#
#     log p(zeta) = log sum_z p(z) prod_i r(zeta_i|z_i) = R0(zeta) + log Z(b + g(zeta)) - log Z(b),
#
# since g adds to the biases of the machine; and, with the logits l_i that the posterior gives at the earlier
# zeta,
#
#     log q(zeta | x) = R0(zeta) + D,    D = sum_i softplus(l_i + g_i) - softplus(l_i).
#
# R0 cancels. For k draws zeta_1, ..., zeta_k from q(zeta | x)
#
#     L_k = E log (1/k) sum_j w_j,    log w = log Z(b + g) - log Z(b) - D + log p(x | zeta).
#
# A spike leaves no such densities: z is a function of zeta there, and nothing is to be summed out. For ramps
# g reaches infinity, but only at the ends of the interval, where log w has a finite limit: they are as good
# as the others.
#
# **The bound of log Z(b + g)** is mean field's, M(m) = -E(m) + g^T m + H(m) <= log Z(b + g) for every m
# (`discrete_vae.objectives.elbo`), started at the posterior's m_i = E[z_i | zeta_i, l_i] = sigmoid(l_i
# + g_i). There
#
#     M(m) - D = E_q(z | zeta, x) [log p(z) - log q(z | zeta_<, x)] + log Z(b),
#
# as H(m_i) = softplus(l_i + g_i) - (l_i + g_i) m_i and E is linear in each m_i: the integrand of the ELBO, z
# averaged out. Sweeps only raise it. With weights w' of M in place of log Z, and L'_k made of them, this
# orders
#
#     ELBO <= L'_1 <= L'_2 <= ... <= log E[w'] <= log p(x)    and    L'_k <= L_k <= log p(x),
#
# the middle by Burda et al. 2016, theorem 1, which holds for any positive independent weights. L'_k has not
# log p(x) for its limit but log E[w'], which falls short of it by what mean field misses.
#
# **Gradient.** Let c be the warm-up's weight of the KL, log w = c (M - log Z(b) - D) + log p(x | zeta), and
# v_j = w_j / sum_i w_i, held fixed where it multiplies.
#
# 1. theta, the parameters of p(z) and p(x | zeta): E sum_j v_j d log w_j / d theta. **Weights v.**
# 2. phi, those of q(zeta | x). By the chain rule E sum_j v_j (d log w_j / d zeta_j . d zeta_j / d phi - c s_j), where
#    s_j = d log q(zeta_j | x) / d phi at fixed zeta_j, and zeta_j in log w_j stands for all of its places: in g, in the
#    decoder, and, in D, in the networks of later groups. Reparameterizing the score once more, with
#    d v_j / d zeta_j = v_j (1 - v_j) d log w_j / d zeta_j,
#
#        E v_j s_j = E v_j (1 - v_j) d log w_j / d zeta_j . d zeta_j / d phi;
#
#    zeta stays in the same interval whatever phi is, and v_j is bounded, so nothing is left at the ends. Together
#
#        E sum_j (c v_j^2 + (1 - c) v_j) d log w_j / d zeta_j . d zeta_j / d phi,
#
#    **on the path through zeta alone**; the explicit phi inside log q gets no gradient. c = 1 is Tucker et al.'s v^2.
# 3. A parameter beta of r belongs to both. As theta it has the weights v on log p(zeta) at fixed zeta, which is
#    c (dR0/d beta + m^T dg/d beta): R0 cancels in the value and not here. As phi it has 2., through zeta alone.
# Models with Gaussian layers take the partial bound, whatever the transformation is.
#
# All of it is exact in expectation where an example's w_j depends on its own draws, with the running
# statistics of batch normalization; see `discrete_vae.objectives.importance` on the statistics of
# training. m is held fixed, which is exact where mean field has converged.
#
# Source: Vahdat et al. 2018, DVAE#, section 3.1 and 3.4; Tucker et al. 2019 (doubly reparameterized
# gradients). The start of mean field at the posterior, and the order that follows from it, are ours.


@dataclass(frozen=True, eq=False, repr=False)
class RelaxedBound(ShowsShapes):
    """One estimate of L'_k per example, in parts as the ELBO has them.

    Attributes:
        reconstruction: Mean over samples of log p(x | zeta_j), (batch,), nats, with the whole gradient but that of
            log Z(b): that of log (1/k) sum_j exp(c (M_j - D_j) + log p(x | zeta_j)).
        kl_relative: reconstruction - log (1/k) sum_j exp(M_j - D_j + log p(x | zeta_j)), (batch,), nats, without
            gradient: the KL less log Z(b), and less what k samples and mean field bring.
    """

    reconstruction: Tensor
    kl_relative: Tensor


def relaxed_bound(
    energy: BoltzmannMachine,
    smoothing: OverlappingSmoothing,
    sample: PosteriorSample,
    log_likelihood: Callable[[Tensor], Tensor],
    *,
    weight: Tensor | float = 1.0,
) -> RelaxedBound:
    """Estimate L'_k of a model without Gaussian layers, see the module.

    Args:
        energy: The prior.
        smoothing: The posterior's transformation.
        sample: k draws per example, (sample, batch, unit).
        log_likelihood: log p(x | zeta), (sample, batch), of zeta, (sample, batch, unit).
        weight: c, a number or (batch,).

    Returns:
        The estimate; its value and, given the statistics of the norms and a mean field that has converged, its gradient
        are unbiased.

    Raises:
        InvalidInputError: If the posterior does not tell how logits depend on earlier draws.
    """
    if sample.paths is None:
        rule, repair = "must be 1 for a posterior whose draws have no paths", "Leave it out."
        raise InvalidInputError("num_importance_samples", rule, "more", repair)
    zeta = sample.zeta.view_as(
        sample.zeta
    )  # what is evaluated; its gradient is weighted on the way to the draw
    logits = sample.logits.detach()
    fields, held = smoothing.log_ratio(zeta), smoothing.log_ratio(zeta, fixed=True)
    mean = torch.sigmoid(logits + held.detach())
    of_prior = mean_field_bound(energy, fields, mean)
    of_posterior = (softplus(logits + held) - softplus(logits)).sum(-1)
    ratio = of_prior - of_posterior
    log_likelihoods = log_likelihood(zeta)
    ratio = ratio.to(log_likelihoods.dtype)
    reconstruction = log_likelihoods.detach().mean(0)
    value = _log_mean_exp(ratio.detach() + log_likelihoods.detach())
    log_weights = weight * ratio + log_likelihoods
    if not log_weights.requires_grad:
        return RelaxedBound(reconstruction, reconstruction - value)
    weights = torch.softmax(log_weights.detach(), 0)
    surrogate = (weights * log_weights).sum(0)
    density = smoothing.log_density_of_zero(sample.zeta.detach()).sum(-1)
    if density.requires_grad:  # a parameter of the transformation is one of log p(zeta) too
        surrogate = surrogate + (weights * weight * density).sum(0)
    if zeta.requires_grad:
        of_path = path_weights(weights, weight)
        zeta.register_hook(lambda gradient: gradient * of_path[..., None])
        pull = (-weight * weights * of_path)[..., None] * (mean - torch.sigmoid(logits))
        surrogate = surrogate + (sample.paths.gradient(pull) * sample.zeta).sum((0, 2))
    return RelaxedBound(replace_gradient(reconstruction, surrogate), reconstruction - value)


def path_weights(weights: Tensor, weight: Tensor | float) -> Tensor:
    """Weights of the path through zeta, c v^2 + (1 - c) v, over the v that all else has.

    Args:
        weights: v, (sample, batch).
        weight: c, a number or (batch,).
    """
    return weight * weights + (1 - weight)


def _log_mean_exp(log_weights: Tensor) -> Tensor:
    """log (1/k) sum_j w_j over the first axis."""
    return torch.logsumexp(log_weights, 0) - math.log(len(log_weights))
