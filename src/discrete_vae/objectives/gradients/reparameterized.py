"""The reparameterized gradient: through zeta, and in closed form where that is known."""

from __future__ import annotations

from discrete_vae.objectives.gradients.base import (
    Batch,
    EstimatedModel,
    GradientEstimate,
    GradientEstimator,
)


class Reparameterized(GradientEstimator):
    """The gradient of the smoothing transformation: that of `DiscreteVAE.elbo`, one draw, nothing kept.

    Source: Rolfe 2017, eqs. discrete-VAE-approx-zeta, J-term-gradient and J-gradient-z-0; see `kl_to_boltzmann`.
    """

    takes_importance_samples = True

    @property
    def num_evaluations(self) -> int:
        """1."""
        return 1

    def _estimate(self, model: EstimatedModel, batch: Batch) -> GradientEstimate:
        parts = model.elbo_parts(
            batch.x,
            batch.observed,
            batch.log_partition_gradient,
            batch.num_importance_samples,
            discrete_weight=batch.seeds[1] * len(batch.x),
            generator=batch.generator,
        )
        return GradientEstimate(*parts, None, batch.seeds, batch.num_importance_samples)
