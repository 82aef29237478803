r"""Draws of z whose law, not whose value, depends on the logits: what all score-function estimators share.

**The model is the same.** z is drawn group by group, z_i = 1 where u_i < q_i, u_i uniform; zeta ~ r(zeta|z), made of z
and of noise e that knows nothing of the logits; the Gaussian layers h of zeta and of noise of their own, as ever. So
(z, zeta, h) has the law that it has in the reparameterized gradient (of a transformation that depends on x, with
q(zeta | z, x) for r throughout), and the expectation of the loss per example

    l(z, e) = w KL + w_h KL_h - log p(x | zeta, h)

is the same function of all parameters, and so is its gradient. Given all noise e but u, z has the law
q(z | e) = prod_j q(z_j | zeta_<j, x), zeta a function of (z, e) and of the smoothing's parameters. Hence, with theta
for all parameters,

    d E l / d theta = E [ l d log q(z | e) / d theta + d l / d theta ],

both with z and e held fixed. The second term is what backpropagation gives: decoder, layers, prior, the smoothing's
parameters through zeta, and the places of the logits in the KL. The first is the score function's; it holds the
smoothing's parameters too, since the logits of later groups read zeta. What an estimator makes of the first is in its
own file.

**The KL inside l** is that of `kl_to_boltzmann` with z for the bits: entropies of groups in closed form, q in place of
z in linear terms and for the later unit of a pair. It is the expectation of log q(z | .) + E(z) over the last unit of
each term, so its own expectation is the KL, and log Z, a constant, plays no part.

**The signal of a group.** For a function c of x, e and z of groups before j, E [ c d log q_j ] = 0. So from l, what
multiplies the score of group j may be taken away that is known before z_j is drawn: the entropies of groups up to j,
their KL of zeta where the transformation depends on x, and the energies of terms whose units all lie in groups up to j
(the last unit of each in closed form). With one group that is the whole KL, and the signal is
w_h KL_h - log p(x | zeta, h). Likewise any baseline that reads x, zeta of earlier groups, other draws or earlier steps,
but nothing that depends on z_j itself: **not its own sample**.

All of this is exact where an example's loss depends on its own draw, that is, with the running statistics of batch
normalization. In training mode the statistics of a batch are functions of all its draws, and the score of an example
is not multiplied by what its draw does to the losses of others: the one approximation.

Source: Rolfe 2017, appendices REINFORCE-appendix and naive-approach-section, which names the terms that can be dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.machine import BoltzmannMachine
from discrete_vae.numerics import bernoulli_entropy, bernoulli_log_prob, replace_gradient
from discrete_vae.objectives.bound import Batch, BoundedModel, bound_parts_at
from discrete_vae.objectives.gradients.base import GradientEstimate, Seeds
from discrete_vae.posteriors.base import PosteriorSample
from discrete_vae.prepared_noise import NoiseSource
from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, eq=False, repr=False)
class DiscreteDraws(ShowsShapes):
    """Draws of the latents with the parts of the bound at them, see the module.

    Attributes:
        seeds: Gradients of the loss, a mean over the batch, by the parts, each (batch,).
        features: (batch, feature), what the encoder makes of x.
        sample: (draw, batch, unit).
        reconstruction: (draw, batch), nats.
        kl_relative: (draw, batch), nats.
        kl_continuous: (draw, batch), nats.
    """

    seeds: Seeds
    features: Tensor
    sample: PosteriorSample
    reconstruction: Tensor
    kl_relative: Tensor
    kl_continuous: Tensor

    def log_prob(self) -> Tensor:
        """log q(z | e) of each unit, (draw, batch, unit), nats."""
        return bernoulli_log_prob(self.sample.z, self.sample.logits)

    def losses(self) -> Tensor:
        """l of each draw, (draw, batch), nats, without gradient."""
        parts = (self.reconstruction, self.kl_relative, self.kl_continuous)
        total = torch.stack([part.detach() * seed for part, seed in zip(parts, self.seeds, strict=True)]).sum(
            0
        )
        return total * total.shape[-1]

    def signals(self, energy: BoltzmannMachine, order: nn.Module, up_to: Tensor) -> Tensor:
        """The signal of each group, (draw, batch, group), nats, without gradient.

        Args:
            energy: The prior.
            order: What its `pair_order` gives for the posterior's groups.
            up_to: (group, unit), 1 where a unit's group is that group or one before.
        """
        with torch.no_grad():
            z, logits = self.sample.z, self.sample.logits
            kept = up_to.to(z.dtype)[:, None, None]
            known = energy.expected_energy(z * kept, torch.sigmoid(logits) * kept, order).movedim(0, -1)
            of_units, kl_of_zeta = -bernoulli_entropy(logits), self.sample.kl_of_zeta()
            if kl_of_zeta is not None:
                of_units = of_units + kl_of_zeta
            known = known + of_units @ up_to.to(z.dtype).T
            weight = self.seeds[1] * len(self.seeds[1])
            return self.losses().unsqueeze(-1) - weight.unsqueeze(-1) * known

    def estimate(self, surrogate: Tensor) -> GradientEstimate:
        """The estimate whose score has the gradient of a surrogate, (batch,), averaged over draws elsewhere."""
        parts = (self.reconstruction, self.kl_relative, self.kl_continuous)
        score = replace_gradient(torch.zeros_like(surrogate), surrogate)
        first, second, third = (part.mean(0) for part in parts)
        return GradientEstimate(first, second, third, score, self.seeds, len(self.reconstruction))


def draw_discretely(model: BoundedModel, batch: Batch, seeds: Seeds, uniforms: Tensor) -> DiscreteDraws:
    """Draw z from uniforms, zeta and h from noise that all draws of an example share, and evaluate the bound.

    Args:
        model: The model.
        batch: What it is evaluated of.
        seeds: As in `DiscreteDraws`.
        uniforms: (draw, batch, unit), each uniform on the open unit interval.
    """
    features = model.read(batch.x, batch.observed)
    sample = model.posterior.sample_discretely(features, uniforms, generator=batch.generator)
    source: Any = SharedNoise(batch.generator)
    parts = bound_parts_at(model, sample, features, replace(batch, generator=source))
    return DiscreteDraws(seeds, features, sample, *parts)


class SharedNoise(NoiseSource):
    """Gives all draws of an example the same noise, so that differences between them are those of z.

    Args:
        generator: Source of the noise; None means torch's global generator.
    """

    def __init__(self, generator: torch.Generator | NoiseSource | None) -> None:
        self._generator = generator

    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        """One draw without the first axis, repeated along it."""
        return draw(like, shape=tuple(shape)[1:], generator=self._generator).expand(tuple(shape))


def groups_up_to(group_of_unit: Tensor) -> Tensor:
    """(group, unit) bool, whether a unit's group is that group or one before.

    Examples:
        >>> groups_up_to(torch.tensor([0, 1, 0])).int().tolist()
        [[1, 0, 1], [1, 1, 1]]
    """
    groups = torch.arange(int(group_of_unit.max()) + 1, device=group_of_unit.device)
    return group_of_unit <= groups[:, None]
