"""Importance weights: log p(x) by many samples, and the bounds of training with several under one logarithm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.checks import check_positive_int, check_tensor
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.base import Hierarchy
from discrete_vae.numerics import bernoulli_entropy, replace_gradient, softplus
from discrete_vae.posterior import PosteriorSample, rows_of_labels
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import draw_key, generator_of, key_to_seed

if TYPE_CHECKING:
    from discrete_vae.kernels.importance import Draws
    from discrete_vae.model import DiscreteVAE
    from discrete_vae.objectives.elbo import Batch
    from discrete_vae.smoothing.overlapping import OverlappingSmoothing

# Importance-weighted estimates of log p(x).


@dataclass(frozen=True, eq=False, repr=False)
class LogLikelihood(ShowsShapes):
    """Estimates of log p(x), one per example.

    Attributes:
        value: log (1/K) sum_k w_k, (batch,), nats; a lower bound of log p(x) in expectation, and consistent.
        std_error: Monte-Carlo standard error by the delta method, (batch,), nats; too small where ess is small.
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

    The logarithms, log p(x, z, zeta) - log q(z, zeta | x), are (sample, batch), nats. One sample gives NaN for
    std_error and doubling_gain.

    Source: Rolfe 2017, section results (10^4 importance samples); Burda, Grosse & Salakhutdinov 2016.
    """
    num_samples = check_tensor("log_weights", log_weights, ("sample", "batch")).shape[0]
    if num_samples == 0:
        raise InvalidInputError("log_weights", "must hold at least one sample", 0, "Draw more samples.")
    # an example's own row, added up alike wherever it stands
    log_weights = log_weights.double().T.contiguous()
    value = torch.logsumexp(log_weights, 1) - math.log(num_samples)
    relative = torch.exp(log_weights - value[:, None])  # w / mean w
    ess = num_samples**2 / relative.square().sum(1)
    std_error = doubling_gain = torch.full_like(value, math.nan)
    if num_samples > 1:
        std_error = relative.std(1) / math.sqrt(num_samples)
        size = num_samples // 2
        halves = (log_weights[:, :size], log_weights[:, num_samples - size :])
        doubling_gain = value - sum(torch.logsumexp(half, 1) - math.log(size) for half in halves) / 2
    return LogLikelihood(value, std_error, ess, doubling_gain, num_samples)


@dataclass(frozen=True, eq=False, repr=False)
class ClassProbabilities(ShowsShapes):
    """Estimates of p(y | x), one row per example.

    Attributes:
        value: (batch, class), rows of sum 1; consistent.
        log_value: Its logarithm, (batch, class), nats, finite where value rounds to 0.
        std_error: Monte-Carlo standard error of value by the delta method, (batch, class); NaN of one sample, and too
            small where ess is.
        ess: Effective number of samples of log p(x, y), (batch, class), between 1 and their number.
        approximate: q(y | x), by which the encoder classifies without sampling, (batch, class).
    """

    value: Tensor
    log_value: Tensor
    std_error: Tensor
    ess: Tensor
    approximate: Tensor


def class_probabilities(log_weights: Tensor, log_q: Tensor) -> ClassProbabilities:
    """Estimate p(y | x) from importance weights for p(x, y), independent between classes.

    With W_y the mean weight and s_y its relative standard error, p_y = W_y / sum W and
    var p_y = p_y^2 sum_k (1[k = y] - p_k)^2 s_k^2. The logarithms of weights, (sample, batch, class), nats, are known
    up to a constant of each example; log q(y | x) is (batch, class).
    """
    shape = check_tensor("log_weights", log_weights, ("sample", "batch", "class")).shape[1:]
    found = importance_weighted(log_weights.flatten(1))
    log_value = torch.log_softmax(found.value.view(shape), -1)
    value = log_value.exp()
    jacobian = torch.eye(shape[-1], dtype=value.dtype, device=value.device) - value[:, None, :]
    variance = jacobian.square() @ found.std_error.view(shape).square()[..., None]
    std_error = value * variance[..., 0].sqrt()
    return ClassProbabilities(value, log_value, std_error, found.ess.view(shape), log_q.exp())


# Means by weights, and weights that are more even.


def weighted_mean(log_weights: Tensor, values: Tensor) -> tuple[Tensor, Tensor, float]:
    """The self-normalized mean sum_k w_k f_k / sum_k w_k of draws f_k, (draw, ...), by log w_k, (draw,) float64.

    It is consistent, with a bias of the order of 1 / effective samples. With it come its standard error
    sqrt(sum_k w_k^2 (f_k - mean)^2) / sum_k w_k by the delta method, too small where effective samples are few, and
    these, (sum w)^2 / sum w^2, between 1 and the number of draws.

    Source: Owen 2013, "Monte Carlo theory, methods and examples", section 9.2.
    """
    weights = torch.softmax(log_weights, 0)
    away = (values - values[0]).double()  # sums about a value that occurs lose no digits
    mean = torch.tensordot(weights, away, 1)
    squares = weights.square()
    error = torch.tensordot(squares, (away - mean).square(), 1).sqrt()
    return values[0] + mean, error, float(1 / squares.sum())


def truncated(log_weights: Tensor) -> Tensor:
    """Weights no larger than the root of their number times their mean, which lets no few of them decide alone.

    The bias goes to zero as draws grow; the variance is finite whatever the law of the weights.

    Source: Ionides 2008, "Truncated importance sampling".

    Examples:
        >>> truncated(torch.tensor([0.0, 0.0, 0.0, 9.0])).exp().round().tolist()  # mean 2026.5, root 2
        [1.0, 1.0, 1.0, 4053.0]
    """
    return log_weights.minimum(_log_mean_exp(log_weights) + math.log(len(log_weights)) / 2)


def tempered(log_weights: Tensor, least: float) -> Tensor:
    """Log-weights times the largest power up to 1 with ``least`` effective draws; times 0 if there are fewer draws.

    Source: Jasra, Stephens, Doucet & Tsagaris 2011, "Inference for Levy-driven stochastic volatility models via
    adaptive sequential Monte Carlo" (the power by effective samples).

    Examples:
        >>> tempered(torch.tensor([0.0, 0.0, -40.0]), 2.0)
        tensor([  0.,   0., -40.])
    """
    low, high = 0.0, 1.0
    power = high
    for _ in range(30):
        squares = torch.softmax(power * log_weights, 0).square().sum()
        low, high = (power, high) if 1 / float(squares) >= least else (low, power)
        if low == high:
            break
        power = (low + high) / 2
    return low * log_weights


# Weights of draws from a model's posterior.


@dataclass(frozen=True, eq=False, repr=False)
class WeightedDraws(ShowsShapes):
    """Draws of the latents, by what the decoder makes of them."""

    log_weights: Tensor  # log p(x, z, h | zeta) - log q(z, h | zeta, .), (sample, example), float64, nats
    parameters: Tensor  # the decoder's output at the exposure of x, (sample, example, *parameter_shape)


class ImportanceSampler:
    """Importance weights of a model in evaluation mode with folded networks, from `DiscreteVAE.importance_sampler`.

    Where the model's parts and the processor allow it the latents are drawn by compiled passes, see
    `discrete_vae.kernels.importance`; elsewhere by the modules, example after example.
    """

    def __init__(self, model: DiscreteVAE, log_partition: Tensor) -> None:
        from discrete_vae.kernels.importance import compiled_draws

        self._model, self._log_partition = model, log_partition
        self._compiled = compiled_draws(model.posterior, model.hierarchy, model.decoder)

    @property
    def takes_batches(self) -> bool:
        """True if several examples at a time are faster than one after the other."""
        return self._compiled is not None

    def log_weights(self, batch: Batch, num_samples: int, chunk_size: int) -> Tensor:
        """log p(x, z, h | zeta) - log q(z, h | zeta, x) of draws from the posterior, (sample, example), float64, nats.

        The batch is what `DiscreteVAE.check_batch` gives of exact values; chunk_size draws of an example are in memory
        at a time. Where a label is not known a sample is one draw of each class, whose weights are added.
        """
        if batch.labels is not None:
            return torch.logsumexp(self.log_weights_of_classes(batch, num_samples, chunk_size), -1)
        features = self._model.read(batch.x, batch.observed, batch.condition)
        chunks = self.draws(features, batch, num_samples, chunk_size)
        return torch.cat([chunk.log_weights for chunk in chunks])

    def log_weights_of_classes(self, batch: Batch, num_samples: int, chunk_size: int) -> Tensor:
        """`log_weights` for p(x, y) of each class y, (sample, example, class); -inf where a known label excludes it.

        Draws of different classes are independent.
        """
        model, num_classes = self._model, self._model.posterior.num_classes
        example, label = rows_of_labels(model.check_labels(batch.labels, len(batch.x)), num_classes)
        of_x, rows = model.features_of(batch.x, batch.observed, batch.condition), batch.rows(example)
        if rows.keys is not None:
            rows = replace(rows, keys=[*map(key_to_seed, rows.keys, label.tolist())])
        chunks = self.draws(model.with_label(of_x[example], label), rows, num_samples, chunk_size)
        found = torch.cat([chunk.log_weights for chunk in chunks])
        of_classes = found.new_full((num_samples, len(batch.x), num_classes), -math.inf)
        of_classes[:, example, label] = found
        return of_classes

    def draws(
        self, features: Tensor, batch: Batch, num_samples: int, chunk_size: int
    ) -> Iterator[WeightedDraws]:
        """Draw from q(. | features), weighted for p(. | x); the features need not be those of x itself.

        Features, (example, feature), are from `DiscreteVAE.read`, with the condition of x, which the decoder reads of
        them; the rest is as in `log_weights`. At most chunk_size draws per example are given at a time.
        """
        from discrete_vae.kernels.importance import draw, joined

        check_positive_int("num_samples", num_samples)
        check_positive_int("chunk_size", chunk_size)
        compiled, posterior, hierarchy = self._compiled, self._model.posterior, self._model.hierarchy
        keys, generator, sources = batch.keys, batch.generator, None
        if compiled is not None:
            features = features.float()  # of any encoder; here, since the passes know a tensor again
        if compiled is not None and keys is None:
            keys = [draw_key(generator) for _ in range(len(batch.x))]
        if compiled is None and keys is not None:
            sources = [generator_of(key, device=batch.x.device) for key in keys]
        for first in range(0, num_samples, chunk_size):
            count = min(chunk_size, num_samples - first)
            if compiled is not None and keys is not None:
                drawn = compiled(features, keys, first, count)
            elif sources is None:
                drawn = draw(posterior, hierarchy, features, count, generator=generator)
            else:
                drawn = joined(
                    draw(posterior, hierarchy, features[row : row + 1], count, generator=own)
                    for row, own in enumerate(sources)
                )
            yield self._weigh(batch.x, batch.observed, drawn)

    def _weigh(self, x: Tensor, observed: Tensor | None, drawn: Draws) -> WeightedDraws:
        model = self._model
        log_prior = -model.prior.compute_energy(drawn.z).double() - self._log_partition
        parameters = model.parameters_of(drawn.decoder_input)
        log_joint = model.likelihood.log_prob(parameters, x, observed).double() + log_prior
        log_weights = model._check_finite("the model's log weights", log_joint - drawn.log_ratio)
        return WeightedDraws(log_weights, model.likelihood.at_exposure(parameters, x, observed))


# The evidence bound with importance weights over the Gaussian layers alone.
#
# For k samples h_1, ..., h_k of the Gaussian layers below one draw of (z, zeta),
#
#     L_k = E_q(z, zeta | x) [ R_k(zeta) ] - KL[ q(z, zeta | x) || p(z, zeta) ],
#     R_k(zeta) = E_(h_1..h_k) log (1/k) sum_j w_j,    w_j = p(x, h_j | zeta) / q(h_j | zeta, x).
#
# The mean weight is an unbiased estimate of p(x | zeta), so by Jensen's inequality R_k <= log p(x | zeta), and R_k
# rises in k (Burda et al. 2016, theorem 1, given zeta). R_1 is the ELBO's E log p(x | zeta, h) - KL of the layers. Then
# E log p(x | zeta) - KL <= log p(x) is the ELBO of the binary latents with the layers integrated out, so
#
#     ELBO = L_1 <= L_2 <= ... <= E log p(x | zeta) - KL <= log p(x).
#
# The KL of the binary latents stays outside of the logarithm, so its gradient is as it is in the ELBO.
#
# **Gradient of R_k.** Let v_j = w_j / sum_i w_i, held fixed wherever it multiplies; h_j = g(epsilon_j; phi, zeta, x),
# with all parameters of q(h | zeta, x) in phi. In log w_j = log p(x, h_j | zeta) - log q(h_j | zeta, x) the argument
# h_j stands in all of its places: as a layer's value and as what the networks of later layers read.
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


def partial_bound(
    hierarchy: Hierarchy,
    features: Tensor,
    zeta: Tensor,
    log_likelihood: Callable[[Tensor], Tensor],
    num_samples: int,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Estimate R_k(zeta) = E log (1/k) sum_j p(x, h_j | zeta) / q(h_j | zeta, x), in two parts as the ELBO has them.

    There is one draw of zeta per example, (batch, latent). The log likelihood is log p(x | zeta, h), (sample, batch),
    of what the decoder reads, (sample, batch, decoder_size).

    Returns:
        Two tensors, (batch,), nats. First the reconstruction, the mean over samples of log p(x | zeta, h_j), without
        gradient; then, with the whole gradient, that less log (1/k) sum_j w_j: the KL of the layers less what k samples
        bring. Value and, given the statistics of the norms, gradient are unbiased.
    """
    draws = hierarchy.rsample_many(features, zeta, num_samples, generator=generator)
    # what is evaluated; its gradient is weighted on the way to what is drawn
    h = draws.h.view_as(draws.h)
    repeated = zeta.to(h.dtype).expand(num_samples, *zeta.shape)
    log_likelihoods = log_likelihood(hierarchy.decoder_input(repeated, h))
    log_joint = log_likelihoods + hierarchy.prior_at(repeated, h).log_prob(h).sum((-2, -1))
    log_weights = log_joint.detach() - draws.log_prob
    value = _log_mean_exp(log_weights)
    reconstruction = log_likelihoods.detach().mean(0)
    kl = reconstruction - value
    if not log_joint.requires_grad:
        return reconstruction, kl
    weights = torch.softmax(log_weights, 0)
    surrogate = (weights * log_joint).sum(0)
    if h.requires_grad:
        of_row = weights[..., None, None]
        h.register_hook(lambda gradient: gradient * of_row)
        of_log_q = of_row * draws.path_gradient(weights)
        surrogate = surrogate - (of_log_q * draws.h).sum((0, 2, 3))
    return reconstruction, replace_gradient(kl, -surrogate)


# The evidence bound with importance weights over the binary latents, for transformations without a spike.
#
# **The relaxed model.** With densities r(zeta|0) and r(zeta|1) on the same interval z can be summed out of prior and
# posterior. Let g_i(zeta_i) = log r(zeta_i|1) - log r(zeta_i|0) and R0(zeta) = sum_i log r(zeta_i|0). Then
#
#     log p(zeta) = log sum_z p(z) prod_i r(zeta_i|z_i) = R0(zeta) + log Z(b + g(zeta)) - log Z(b),
#
# since g adds to the biases of the machine; and, with the logits l_i that the posterior gives at the earlier zeta,
#
#     log q(zeta | x) = R0(zeta) + D,    D = sum_i softplus(l_i + g_i) - softplus(l_i).
#
# R0 cancels. For k draws zeta_1, ..., zeta_k from q(zeta | x)
#
#     L_k = E log (1/k) sum_j w_j,    log w = log Z(b + g) - log Z(b) - D + log p(x | zeta).
#
# A spike leaves no such densities: z is a function of zeta there, and nothing is to be summed out. For ramps g reaches
# infinity, but only at the ends of the interval, where log w has a finite limit: they are as good as the others.
#
# **The bound of log Z(b + g)** is mean field's, M(m) = -E(m) + g^T m + H(m) <= log Z(b + g) for every m
# (`mean_field_bound`), started at the posterior's m_i = E[z_i | zeta_i, l_i] = sigmoid(l_i + g_i). There
#
#     M(m) - D = E_q(z | zeta, x) [log p(z) - log q(z | zeta_<, x)] + log Z(b),
#
# as H(m_i) = softplus(l_i + g_i) - (l_i + g_i) m_i and E is linear in each m_i: the integrand of the ELBO, z averaged
# out. Sweeps only raise it. With weights w' of M in place of log Z, and L'_k made of them, this orders
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
# All of it is exact in expectation where an example's w_j depends on its own draws, with the running statistics of
# batch normalization, see above on those of training. m is held fixed, which is exact where mean field has converged.
#
# Source: Vahdat et al. 2018, DVAE#, section 3.1 and 3.4; Tucker et al. 2019 (doubly reparameterized
# gradients). The start of mean field at the posterior, and the order that follows from it, are ours.


def relaxed_bound(
    energy: BoltzmannMachine,
    smoothing: OverlappingSmoothing,
    sample: PosteriorSample,
    log_likelihood: Callable[[Tensor], Tensor],
    *,
    weight: Tensor | float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Estimate L'_k of a model without Gaussian layers, in two parts as the ELBO has them.

    The sample is k draws per example, (sample, batch, unit). The log likelihood is log p(x | zeta), (sample, batch), of
    zeta, (sample, batch, unit); the weight is c, a number or (batch,).

    Returns:
        Two tensors, (batch,), nats. The first is the reconstruction, the mean over samples of log p(x | zeta_j). Its
        gradient is that of log (1/k) sum_j exp(c (M_j - D_j) + log p(x | zeta_j)), all but that of log Z(b). The
        second, without gradient, is the first less log (1/k) sum_j exp(M_j - D_j + log p(x | zeta_j)): the KL less
        log Z(b), and less what k samples and mean field bring. Value and, given the norms' statistics and a converged
        mean field, gradient are unbiased.
    """
    if sample.paths is None:
        rule, repair = "must be 1 for a posterior whose draws have no paths", "Leave it out."
        raise InvalidInputError("num_importance_samples", rule, "more", repair)
    # what is evaluated; its gradient is weighted on the way to what is drawn
    zeta = sample.zeta.view_as(sample.zeta)
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
        return reconstruction, reconstruction - value
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
    return replace_gradient(reconstruction, surrogate), reconstruction - value


def path_weights(weights: Tensor, weight: Tensor | float) -> Tensor:
    """Weights of the path through zeta, c v^2 + (1 - c) v, over the v, (sample, batch), that all else has."""
    return weight * weights + (1 - weight)


def _log_mean_exp(log_weights: Tensor) -> Tensor:
    return torch.logsumexp(log_weights, 0) - math.log(len(log_weights))


def mean_field_bound(
    energy: BoltzmannMachine, fields: Tensor, start: Tensor, *, num_sweeps: int = 5
) -> Tensor:
    """log Z(b + g) >= -E(m) + g^T m + H(m), (...), nats, with m from sweeps of mean field over all blocks.

    A sweep sets each block of units that do not act on each other to m_i = sigmoid(its log-odds at m), which is the
    best m of that block: the bound never falls below that of the start, (..., unit) in [0, 1]. The fields g, (...,
    unit), nats, add to the machine's biases. Gradients by g and by the machine's parameters hold m fixed: exact where m
    has converged, since there the bound does not change with it; elsewhere they lack the part through m.

    Source: Vahdat et al. 2018, DVAE#, section 3.1.
    """
    with torch.no_grad():
        mean, logits = start.detach().clone(), torch.logit(start.detach(), eps=1e-6)
        for _ in range(num_sweeps):
            for block in range(len(energy.blocks)):
                place = energy.block_place(block)
                found = energy.compute_block_logits(mean, block) + fields[..., place]
                logits[..., place] = found.to(logits.dtype)
                mean[..., place] = torch.sigmoid(logits[..., place])
        entropy = bernoulli_entropy(logits).sum(-1)
    return (fields * mean).sum(-1) - energy.compute_energy(mean) + entropy
