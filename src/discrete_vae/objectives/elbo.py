"""The evidence lower bound and its parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discrete_vae.checks import check_number
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes


@dataclass(frozen=True, eq=False, repr=False)
class Elbo(ShowsShapes):
    """One-sample estimates of the evidence lower bound, one per example.

    Source: Rolfe 2017, eq. vae-loss-input-dependent-zeta-hierarchical.

    Attributes:
        reconstruction: log p(x | zeta, h), (batch,), nats; without gradient where importance weights hold it, which
            then is in the KL that they weigh.
        kl_relative: KL of the binary latents less the value of log Z, (batch,), nats; with that of zeta given z where
            the transformation depends on x. Its gradient is that of the KL if trains_prior.
        kl_continuous: KL of the Gaussian layers, (batch,), nats; zero where there are none. Importance samples lower it
            by what they bring.
        log_partition: Value of log Z, nats; None where it was not given.
        trains_prior: Whether kl_relative carries the gradient of log Z, or the prior's parameters want none.
        num_importance_samples: Samples under one logarithm, see `discrete_vae.objectives.partial_bound`; 1 is the ELBO.
        weighs_binary_latents: Whether they are samples of zeta, see `discrete_vae.objectives.relaxed_bound`, and not of
            the Gaussian layers.
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
        """What training minimizes: minus the mean of value, a scalar in nats.

        Where log Z was not given the loss is lower by it, with the same gradient.

        Raises:
            InvalidInputError: If the prior trains and nothing gives log Z a gradient.
        """
        return self.weighted_loss()

    def weighted_loss(self, *, discrete: float = 1.0, continuous: float = 1.0) -> Tensor:
        """`loss` with weights on the KL terms, as warm-up wants them.

        Args:
            discrete: Weight of the KL of the binary latents.
            continuous: Weight of the KL of the Gaussian layers.

        Returns:
            A scalar, nats.

        Raises:
            InvalidInputError: If the prior trains and nothing gives log Z a gradient, a weight is no finite number, or
                the one whose KL is part of importance weights is not 1.
        """
        check_kl_weights(
            discrete,
            continuous,
            num_importance_samples=self.num_importance_samples,
            weighs_binary_latents=self.weighs_binary_latents,
        )
        if not self.trains_prior:
            repair = "Give states of the prior, for example elbo(x, negative_phase=chains.step(30))."
            raise InvalidInputError("negative_phase", "must be given to train the prior", "None", repair)
        parts = self.reconstruction, self.kl_relative, self.kl_continuous
        loss = _WeightedLoss.apply(*parts, discrete, continuous)
        value = self.log_partition
        if value is None:
            return loss
        return loss + discrete * (value.to(loss.dtype) if isinstance(value, Tensor) else value)


def check_kl_weights(
    discrete: float, continuous: float, *, num_importance_samples: int, weighs_binary_latents: bool
) -> None:
    """Check the weights of the KL terms of a bound; see `Elbo.weighted_loss`.

    Args:
        discrete: Of the binary latents.
        continuous: Of the Gaussian layers.
        num_importance_samples: Samples under one logarithm.
        weighs_binary_latents: Whether these are samples of zeta.

    Raises:
        InvalidInputError: If a weight is no finite number, or the one whose KL is part of importance weights is not 1.
    """
    if not torch.compiler.is_compiling():
        for name, weight in (("discrete", discrete), ("continuous", continuous)):
            check_number(name, weight, repair="Give 1 for the bound itself.")
    weighed = discrete if weighs_binary_latents else continuous
    if num_importance_samples > 1 and weighed != 1.0:
        rule = f"must be 1 with {num_importance_samples} importance samples, whose weights hold the whole KL"
        repair = "Take importance samples after the warm-up."
        name = "discrete" if weighs_binary_latents else "continuous"
        raise InvalidInputError(name, rule, weighed, repair)


def loss_gradients(
    num_examples: int, discrete: float, continuous: float, *, like: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `Elbo.weighted_loss` by reconstruction, kl_relative and kl_continuous, each (batch,).

    Args:
        num_examples: Examples of the batch.
        discrete: Weight of the KL of the binary latents.
        continuous: Weight of the KL of the Gaussian layers.
        like: Gives dtype and device.
    """
    weights = (-1.0, discrete, continuous)
    reconstruction, relative, layers = (like.new_full((num_examples,), w / num_examples) for w in weights)
    return reconstruction, relative, layers


class _WeightedLoss(torch.autograd.Function):
    """The mean of v KL + w KL_h - log p(x | zeta, h) over the examples, whose gradients are v/n, w/n and -1/n."""

    @staticmethod
    def forward(
        ctx: Any, reconstruction: Tensor, discrete: Tensor, continuous: Tensor, v: float, w: float
    ) -> Tensor:
        """The mean."""
        ctx.shape, ctx.weights = discrete.shape, (-1.0, v, w)
        return torch.add(discrete * v, continuous, alpha=w).sub_(reconstruction).mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """One number for all examples of each part."""
        of_example = gradients[0] / max(ctx.shape.numel(), 1)
        return *((of_example * weight).expand(ctx.shape) for weight in ctx.weights), None, None
