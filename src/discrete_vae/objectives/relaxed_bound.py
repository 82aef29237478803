r"""The evidence bound with importance weights over the binary latents, for transformations without a spike.

**The relaxed model.** With densities r(zeta|0) and r(zeta|1) on the same interval z can be summed out of prior and
posterior. Let g_i(zeta_i) = log r(zeta_i|1) - log r(zeta_i|0) and R0(zeta) = sum_i log r(zeta_i|0). Then

    log p(zeta) = log sum_z p(z) prod_i r(zeta_i|z_i) = R0(zeta) + log Z(b + g(zeta)) - log Z(b),

since g adds to the biases of the machine; and, with the logits l_i that the posterior gives at the earlier zeta,

    log q(zeta | x) = R0(zeta) + D,    D = sum_i softplus(l_i + g_i) - softplus(l_i).

R0 cancels. For k draws zeta_1, ..., zeta_k from q(zeta | x)

    L_k = E log (1/k) sum_j w_j,    log w = log Z(b + g) - log Z(b) - D + log p(x | zeta).

A spike leaves no such densities: z is a function of zeta there, and nothing is to be summed out. For ramps g reaches
infinity, but only at the ends of the interval, where log w has a finite limit: they are as good as the others.

**The bound of log Z(b + g)** is mean field's, M(m) = -E(m) + g^T m + H(m) <= log Z(b + g) for every m
(`discrete_vae.objectives.mean_field`), started at the posterior's m_i = E[z_i | zeta_i, l_i] = sigmoid(l_i + g_i).
There

    M(m) - D = E_q(z | zeta, x) [log p(z) - log q(z | zeta_<, x)] + log Z(b),

as H(m_i) = softplus(l_i + g_i) - (l_i + g_i) m_i and E is linear in each m_i: the integrand of the ELBO, z averaged
out. Sweeps only raise it. With weights w' of M in place of log Z, and L'_k made of them, this orders

    ELBO <= L'_1 <= L'_2 <= ... <= log E[w'] <= log p(x)    and    L'_k <= L_k <= log p(x),

the middle by Burda et al. 2016, theorem 1, which holds for any positive independent weights. L'_k has not log p(x) for
its limit but log E[w'], which falls short of it by what mean field misses.

**Gradient.** Let c be the warm-up's weight of the KL, log w = c (M - log Z(b) - D) + log p(x | zeta), and v_j =
w_j / sum_i w_i, held fixed where it multiplies.

1. theta, the parameters of p(z) and p(x | zeta): E sum_j v_j d log w_j / d theta. **Weights v.**
2. phi, those of q(zeta | x). By the chain rule E sum_j v_j (d log w_j / d zeta_j . d zeta_j / d phi - c s_j), where
   s_j = d log q(zeta_j | x) / d phi at fixed zeta_j, and zeta_j in log w_j stands for all of its places: in g, in the
   decoder, and, in D, in the networks of later groups. Reparameterizing the score once more, with
   d v_j / d zeta_j = v_j (1 - v_j) d log w_j / d zeta_j,

       E v_j s_j = E v_j (1 - v_j) d log w_j / d zeta_j . d zeta_j / d phi;

   zeta stays in the same interval whatever phi is, and v_j is bounded, so nothing is left at the ends. Together

       E sum_j (c v_j^2 + (1 - c) v_j) d log w_j / d zeta_j . d zeta_j / d phi,

   **on the path through zeta alone**; the explicit phi inside log q gets no gradient. c = 1 is Tucker et al.'s v^2.
3. A parameter beta of r belongs to both. As theta it has the weights v on log p(zeta) at fixed zeta, which is
   c (dR0/d beta + m^T dg/d beta): R0 cancels in the value and not here. As phi it has 2., through zeta alone.
Models with Gaussian layers take the partial bound, whatever the transformation is.

All of it is exact in expectation where an example's w_j depends on its own draws, with the running statistics of batch
normalization; see `discrete_vae.objectives.partial_bound` on the statistics of training. m is held fixed, which is
exact where mean field has converged.

Source: Vahdat et al. 2018, DVAE#, section 3.1 and 3.4; Tucker et al. 2019 (doubly reparameterized gradients). The start
of mean field at the posterior, and the order that follows from it, are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.errors import InvalidInputError
from discrete_vae.numerics import replace_gradient, softplus
from discrete_vae.objectives.mean_field import mean_field_bound
from discrete_vae.posteriors.base import PosteriorSample
from discrete_vae.records import ShowsShapes
from discrete_vae.smoothing.overlapping import OverlappingSmoothing


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
