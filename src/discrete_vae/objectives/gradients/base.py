"""What every estimator of the bound's gradient is, what it needs of a model, and what it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from discrete_vae.errors import InvalidInputError
from discrete_vae.objectives.bound import Batch, BoundedModel
from discrete_vae.records import ShowsShapes

Seeds = tuple[Tensor, Tensor, Tensor]
"""The gradients of the loss by reconstruction, kl_relative and kl_continuous, each (batch,); see `loss_gradients`."""


@dataclass(frozen=True, eq=False, repr=False)
class GradientEstimate(ShowsShapes):
    """One estimate of the gradient of a weighted loss, as tensors to be differentiated.

    Attributes:
        reconstruction: As in `Elbo`, (batch,), nats, a mean over draws, with the gradient that a draw held fixed gives.
        kl_relative: Likewise.
        kl_continuous: Likewise.
        score: (batch,), of value 0, with the rest of the gradient: what parameters do through the law of the draws.
            None where there is no rest.
        seeds: The gradients of the loss by the parts, with which the estimate was made.
        num_evaluations: Draws per example that were decoded.
    """

    reconstruction: Tensor
    kl_relative: Tensor
    kl_continuous: Tensor
    score: Tensor | None
    seeds: Seeds
    num_evaluations: int

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of the bound, each (batch,), nats."""
        return self.reconstruction, self.kl_relative, self.kl_continuous

    def outputs(self) -> list[tuple[Tensor, Tensor]]:
        """What to differentiate, and with which gradients to start; what carries no gradient is left out."""
        pairs = list(zip(self.parts, self.seeds, strict=True))
        if self.score is not None:
            pairs.append((self.score, torch.full_like(self.score, 1 / max(len(self.score), 1))))
        return [(part, seed) for part, seed in pairs if part.requires_grad]

    @property
    def loss(self) -> Tensor:
        """A scalar, nats, whose gradient is the estimate and whose value is that of the weighted loss less log Z."""
        parts = torch.stack([(part * seed).sum() for part, seed in zip(self.parts, self.seeds, strict=True)])
        return parts.sum() if self.score is None else parts.sum() + self.score.mean()


class GradientEstimator(nn.Module, ABC):
    """A way to estimate the gradient of w KL + w_h KL_h - log p(x | zeta, h), averaged over q.

    All estimators target the same model p(z) r(zeta|z) p(h|zeta) p(x|zeta,h), the same posterior and the same bound, so
    all have the same expectation; they differ in their variance and in their cost. An estimator that is a module with
    state learns in training mode and stays as it is in evaluation mode.

    Args:
        group_of_unit: (unit,) int64, the position of each unit's group in the posterior's order of sampling.
        num_features: Length of the last axis of the encoder's features.

    Attributes:
        group_of_unit: (unit,) int64.
        num_groups: Groups of units.
    """

    takes_importance_samples: ClassVar[bool] = False
    """Whether it takes the bound with several samples of the Gaussian layers, see `objectives.partial_bound`."""

    group_of_unit: Tensor

    def __init__(self, *, group_of_unit: Tensor, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.num_groups = int(group_of_unit.max()) + 1
        # constants of the posterior that it is for, no part of the state
        self.register_buffer("group_of_unit", group_of_unit.clone(), persistent=False)

    @classmethod
    def of(cls, model: BoundedModel, **settings: Any) -> Self:
        """An estimator for a model.

        Args:
            model: The model.
            settings: Those of the estimator.
        """
        posterior = model.posterior
        made = cls(**settings, group_of_unit=posterior.group_of_unit, num_features=posterior.num_features)
        return made.to(model.prior.bias)

    @property
    @abstractmethod
    def num_evaluations(self) -> int:
        """Draws per example that an estimate decodes: what it costs in units of the reparameterized one."""

    def estimate(self, model: BoundedModel, batch: Batch, seeds: Seeds) -> GradientEstimate:
        """Estimate the gradient, of checked arguments; no value is looked at, so that a step can be recorded.

        Args:
            model: The model, of the posterior that the estimator was made for.
            batch: What the bound is evaluated of.
            seeds: The gradients of the loss by the parts of the bound.

        Raises:
            InvalidInputError: If several importance samples are asked for and the estimator does not take them.
        """
        if batch.num_importance_samples > 1 and not self.takes_importance_samples:
            rule = f"must be 1 with {type(self).__name__}, whose loss is that of single draws"
            repair = "Leave it out, or take the reparameterized gradient."
            raise InvalidInputError("num_importance_samples", rule, batch.num_importance_samples, repair)
        return self._estimate(model, batch, seeds)

    @abstractmethod
    def _estimate(self, model: BoundedModel, batch: Batch, seeds: Seeds) -> GradientEstimate:
        """`estimate`, without the check."""
