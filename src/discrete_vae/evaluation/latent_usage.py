"""How much a model uses each of its latents."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.checks import check_examples
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.noise import keyed_generator
from discrete_vae.numerics import bernoulli_entropy
from discrete_vae.reading import open_batch
from discrete_vae.records import ShowsShapes

UNUSED = 0.01  # nats; what tells less is dead
_BATCH_SIZE = 500
_STREAM = 0x75736167


@dataclass(frozen=True, eq=False, repr=False)
class LatentUsage(ShowsShapes):
    """What each latent does over examples, the means of its posterior.

    Attributes:
        activity: Share of the examples that switch a unit on, (unit,) float64, in [0, 1].
        entropy: Mean entropy of a unit given x and the groups before it, (unit,) float64, nats, from 0 to log 2.
        information: What a unit tells of x and of the groups before it: the entropy of its activity less `entropy`,
            (unit,) float64, nats, from 0 to log 2. 0 is a dead unit.
        layer_kl: Mean KL of each unit of the Gaussian layers, (layer, unit) float64, nats.
        num_examples: Examples.
    """

    activity: Tensor
    entropy: Tensor
    information: Tensor
    layer_kl: Tensor
    num_examples: int

    @property
    def dead_units(self) -> list[int]:
        """Units of the prior whose information is below 0.01 nats."""
        return (self.information < UNUSED).nonzero().flatten().tolist()

    @property
    def num_dead_layer_units(self) -> int:
        """Units of the Gaussian layers whose KL is below 0.01 nats."""
        return int((self.layer_kl < UNUSED).sum())


@torch.no_grad()
def latent_usage(model: DiscreteVAE, x: Tensor, *, seed: int = 0) -> LatentUsage:
    """Look at the posteriors of examples, with the networks' running statistics.

    Args:
        model: The model.
        x: (example, feature) or in the event's shape; NaN marks missing values.
        seed: Seed of the draws that later groups and layers are conditioned on.

    Returns:
        The means over the examples.

    Raises:
        InvalidInputError: If `DiscreteVAE.encode` refuses x.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> latent_usage(model, torch.zeros(50, 6)).dead_units  # one x alone: no unit can tell it from another
        [0, 1, 2, 3]
    """
    check_examples("x", x)
    sums: list[Tensor] = []
    with eval_mode(model) as model:
        for first in range(0, len(x), _BATCH_SIZE):
            rows, observed = open_batch(
                x[first : first + _BATCH_SIZE], None, model.likelihood, like=x, missing=model.missing
            )
            generator = keyed_generator(seed, _STREAM, first, device=rows.device)
            features = model.read(rows.to(model.dtype), observed)
            drawn = model.posterior.rsample(features, generator=generator)
            below = model.hierarchy.rsample(features, drawn.zeta, generator=generator)
            logits = drawn.logits.double()
            kl = below.posterior.kl_to(below.prior).double()
            found = torch.sigmoid(logits).sum(0), bernoulli_entropy(logits).sum(0), kl.sum(0)
            sums = [before + now for before, now in zip(sums, found, strict=True)] if sums else list(found)
    activity, entropy, layer_kl = (total.cpu() / len(x) for total in sums)
    of_activity = bernoulli_entropy(torch.logit(activity, eps=1e-12))
    information = (of_activity - entropy).clamp(min=0)
    return LatentUsage(activity, entropy, information, layer_kl, len(x))
