r"""REINFORCE: the score of one draw times its signal, less a baseline."""

from __future__ import annotations

from torch import Tensor

from discrete_vae.config import BaselineConfig
from discrete_vae.noise import open_uniform
from discrete_vae.objectives.bound import Batch, BoundedModel
from discrete_vae.objectives.gradients.base import GradientEstimate, GradientEstimator, Seeds
from discrete_vae.objectives.gradients.baseline import Baseline, build_baseline
from discrete_vae.objectives.gradients.discrete_draws import draw_discretely, groups_up_to


class Reinforce(GradientEstimator):
    """sum_j (s_j - B_j) d log q(z_j | zeta_<j, x), with s_j the signal of group j and B_j a baseline; one draw.

    E [ B_j d log q_j ] = 0, as B_j depends on nothing that is drawn from group j on, so every baseline leaves the
    expectation as it is.

    Source: Rolfe 2017, eq. REINFORCE-equation; Williams 1992; Mnih & Gregor 2014 (baselines, signals of layers).
    Deviation: the signal leaves out what is known before a group is drawn, see `discrete_draws`.

    Args:
        baseline: Its config, or a baseline of your own; None is none.
        group_of_unit: See `GradientEstimator`.
        num_features: Likewise.
    """

    up_to: Tensor

    def __init__(
        self,
        baseline: BaselineConfig | Baseline | None = None,
        *,
        group_of_unit: Tensor,
        num_features: int,
    ) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        self.register_buffer("up_to", groups_up_to(group_of_unit), persistent=False)
        self.baseline = build_baseline(baseline, group_of_unit, num_features)

    @property
    def num_evaluations(self) -> int:
        """1."""
        return 1

    def _estimate(self, model: BoundedModel, batch: Batch, seeds: Seeds) -> GradientEstimate:
        shape = (1, len(batch.x), len(self.group_of_unit))
        uniforms = open_uniform(model.prior.bias, shape=shape, generator=batch.generator)
        draws = draw_discretely(model, batch, seeds, uniforms)
        signals = draws.signals(model.prior, model.pair_order, self.up_to)
        advantages, error = self.baseline(draws.features.detach(), draws.sample.zeta.detach(), signals)
        of_unit = advantages.index_select(-1, self.group_of_unit)
        surrogate = (of_unit * draws.log_prob()).sum(-1)
        return draws.estimate((surrogate if error is None else surrogate + error).mean(0))
