"""The reparameterized gradient: through zeta, and in closed form where that is known."""

from __future__ import annotations

from discrete_vae.objectives.bound import Batch, BoundedModel, bound_parts
from discrete_vae.objectives.gradients.base import GradientEstimate, GradientEstimator, Seeds


class Reparameterized(GradientEstimator):
    """The gradient of the smoothing transformation: that of `DiscreteVAE.elbo`, one draw, nothing kept.

    Source: Rolfe 2017, eqs. discrete-VAE-approx-zeta, J-term-gradient and J-gradient-z-0; see `kl_to_boltzmann`.
    """

    takes_importance_samples = True

    @property
    def num_evaluations(self) -> int:
        """1."""
        return 1

    def _estimate(self, model: BoundedModel, batch: Batch, seeds: Seeds) -> GradientEstimate:
        parts = bound_parts(model, batch)
        return GradientEstimate(*parts, None, seeds, batch.num_importance_samples)
