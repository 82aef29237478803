r"""The evidence bound with importance weights over the Gaussian layers alone.

For k samples h_1, ..., h_k of the Gaussian layers below one draw of (z, zeta),

    L_k = E_q(z, zeta | x) [ R_k(zeta) ] - KL[ q(z, zeta | x) || p(z, zeta) ],
    R_k(zeta) = E_(h_1..h_k) log (1/k) sum_j w_j,    w_j = p(x, h_j | zeta) / q(h_j | zeta, x).

The mean weight is an unbiased estimate of p(x | zeta), so by Jensen's inequality R_k <= log p(x | zeta), and R_k rises
in k (Burda et al. 2016, theorem 1, given zeta). R_1 is the ELBO's E log p(x | zeta, h) - KL of the layers. Then
E log p(x | zeta) - KL <= log p(x) is the ELBO of the binary latents with the layers integrated out, so

    ELBO = L_1 <= L_2 <= ... <= E log p(x | zeta) - KL <= log p(x).

The KL of the binary latents stays outside of the logarithm, so its gradient is as it is in the ELBO.

**Gradient of R_k.** Let v_j = w_j / sum_i w_i, held fixed wherever it multiplies; h_j = g(epsilon_j; phi, zeta, x),
with all parameters of q(h | zeta, x) in phi. In log w_j = log p(x, h_j | zeta) - log q(h_j | zeta, x) the argument h_j
stands in all of its places: as a layer's value and as what the networks of later layers read.

1. Parameters of p(x | zeta, h) and p(h | zeta), theta: q does not have them, so the gradient is
   E sum_j v_j d log p(x, h_j | zeta) / d theta. **Weights v.**
2. phi: by the chain rule E sum_j v_j (d log w_j / d h_j . d h_j / d phi - s_j), where s_j = d log q(h_j) / d phi at
   fixed h_j. The v_j of the score s_j depends on h_j. Reparameterizing once more, with
   d v_j / d h_j = v_j (1 - v_j) d log w_j / d h_j,

       E v_j s_j = E d v_j / d h_j . d h_j / d phi = E v_j (1 - v_j) d log w_j / d h_j . d h_j / d phi,

   so that the sum is E sum_j v_j^2 d log w_j / d h_j . d h_j / d phi. **Weights v^2, on the path through h alone**; the
   explicit phi inside log q gets no gradient. Where q is the exact posterior it is zero for each draw.
3. zeta is a parameter of both: **v** on what p(h | zeta) and p(x | zeta, h) read of it directly, **v^2** on h_j's path
   through the posterior's networks, which read it too, none on its explicit place in log q. Then on to the posterior of
   the binary latents by d zeta / d (their parameters), as in the ELBO.
4. The encoder, and any network that makes the features, is part of phi where the layers read it, and as in the ELBO
   where the binary latents do.

All of it is exact in expectation where an example's w_j depends on its own h_j: with the running statistics of batch
normalization. In training mode the statistics are those of all rows of a network, samples and examples together and
unweighted, like the running averages, which thus belong to h drawn from q. What flows back through a statistic then
carries the weight of the row that it reaches as well as that of the row that it comes from; this is the one
approximation.

Source: Tucker et al. 2019 (doubly reparameterized gradients), section 4, for fixed zeta; the bound and the division of
the weights are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.hierarchy.base import Hierarchy
from discrete_vae.numerics import replace_gradient
from discrete_vae.records import ShowsShapes


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
