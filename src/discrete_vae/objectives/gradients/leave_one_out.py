r"""Leave-one-out: several draws, each with the mean signal of the others as its baseline."""

from __future__ import annotations

from torch import Tensor

from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.noise import open_uniform
from discrete_vae.objectives.bound import Batch, BoundedModel
from discrete_vae.objectives.gradients.base import GradientEstimate, GradientEstimator, Seeds
from discrete_vae.objectives.gradients.discrete_draws import draw_discretely, groups_up_to


class LeaveOneOut(GradientEstimator):
    """(1/K) sum_k sum_j (s_j^k - mean_(i != k) s_j^i) d log q(z_j^k | zeta_<j^k, x), of K draws z^1, ..., z^K.

    Given the noise that they share the draws are independent, so the signals of the others, which stand for a baseline,
    know nothing of the draw whose score they multiply. Its own signal is left out of the mean: with it the estimate
    would shrink by 1 - 1/K.

    Source: Kool, van Hoof & Welling 2019; Salimans & Knowles 2014. The noise of r(zeta|z) and of the Gaussian layers is
    shared by the draws, which is ours: it makes their signals alike.

    Args:
        num_samples: K, at least 2.
        group_of_unit: See `GradientEstimator`.
        num_features: Likewise.

    Raises:
        InvalidInputError: If num_samples is no whole number of at least 2.
    """

    up_to: Tensor

    def __init__(self, num_samples: int = 2, *, group_of_unit: Tensor, num_features: int) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        self.num_samples = check_positive_int("num_samples", num_samples)
        check_number("num_samples", num_samples, at_least=2, repair="One draw is left out: take another one.")
        self.register_buffer("up_to", groups_up_to(group_of_unit), persistent=False)

    @property
    def num_evaluations(self) -> int:
        """K."""
        return self.num_samples

    def _estimate(self, model: BoundedModel, batch: Batch, seeds: Seeds) -> GradientEstimate:
        shape = (self.num_samples, len(batch.x), len(self.group_of_unit))
        uniforms = open_uniform(model.prior.bias, shape=shape, generator=batch.generator)
        draws = draw_discretely(model, batch, seeds, uniforms)
        signals = draws.signals(model.prior, model.pair_order, self.up_to)
        advantages = self.advantages(signals).index_select(-1, self.group_of_unit)
        return draws.estimate((advantages * draws.log_prob()).sum(-1).mean(0))

    def advantages(self, signals: Tensor) -> Tensor:
        """s^k - mean_(i != k) s^i, of (draw, ...)."""
        return (signals - signals.mean(0)) * (self.num_samples / (self.num_samples - 1))
