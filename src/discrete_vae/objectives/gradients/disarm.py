r"""DisARM: pairs of antithetic draws, one pair per group of the posterior.

**One unit.** With z = 1[u < q] and z~ = 1[1 - u < q] from one uniform u, p = 1 - q, and f a function of z,

    g = 1/2 (f(z) - f(z~)) (z - z~) sigmoid(|l|).

If q <= 1/2 then (z, z~) is (1, 0) for u < q and (0, 1) for u > 1 - q, each with probability q; if q > 1/2 it is (1, 0)
for u < p and (0, 1) for u > q, each with probability p; otherwise z = z~ and g = 0. So with m = min(q, p),
E g = 1/2 (m + m) (f(1) - f(0)) sigmoid(|l|), and m sigmoid(|l|) = q p: E g = q p (f(1) - f(0)) = d E f / d l.

**One group of many units**, with a z~ whose units are all antithetic. For unit i, given the uniforms of all others, let
F(a) be f at z with z_i = a, and F~(a) be f at z~ with z~_i = a. As above
E_(u_i) g_i = 1/2 q_i p_i [F(1) - F~(0) - F(0) + F~(1)] = 1/2 q_i p_i [(F(1) - F(0)) + (F~(1) - F~(0))], and as 1 - u is
uniform too, F and F~ have the same mean over the others: E g_i = q_i p_i E [F(1) - F(0)], the right one.

**Groups one after another.** Antithetic uniforms for all groups at once leave the pair different logits from the second
group on, and then f(z) - f(z~), which is what makes the variance small, does not come out: the scores of the two draws
are of different logits, and so is their derivative by parameters. So each group gets a pair of its own that shares all
that lies before: the *trunk*, drawn from u, and for each group j a *branch* whose uniforms are those of the trunk with
1 - u in group j alone. Branch j equals the trunk before group j; from j on it differs, also in later groups, whose
logits read zeta_j. Given the uniforms before j the argument for one group holds with f averaged over later groups,
whose uniforms have the same law in both, so

    g = sum_(i in group j) 1/2 (l(trunk) - l(branch j)) (z_i - z~_i) sigmoid(|l_i|) d l_i,     summed over j,

is unbiased. That takes 1 + (number of groups) draws; with one group it is the published estimator and its pair. Each
draw alone has the law of the posterior, so all else of the gradient is averaged over all of them.

Source: Dong, Mnih & Tucker 2020 (DisARM); Yin, Ho, Yan, Qian & Zhou 2020 (U2G), the same estimator. The division among
groups, with uniforms shared after the group too, is derived here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.noise import open_uniform
from discrete_vae.objectives.bound import Batch, BoundedModel
from discrete_vae.objectives.gradients.base import GradientEstimate, GradientEstimator, Seeds
from discrete_vae.objectives.gradients.discrete_draws import draw_discretely


class DisARM(GradientEstimator):
    """Half the difference of the loss between antithetic draws, times sigmoid(|l|), for units in which they differ.

    Source: Dong, Mnih & Tucker 2020; see the module for the formula, its derivation and groups one after another.

    Args:
        group_of_unit: See `GradientEstimator`.
        num_features: Likewise.
    """

    flipped: Tensor

    def __init__(self, *, group_of_unit: Tensor, num_features: int) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        groups = torch.arange(-1, self.num_groups, device=group_of_unit.device)
        # row 0 is the trunk, in which nothing is flipped
        self.register_buffer("flipped", (group_of_unit == groups[:, None])[:, None], persistent=False)

    @property
    def num_evaluations(self) -> int:
        """1 + the number of groups."""
        return 1 + self.num_groups

    def _estimate(self, model: BoundedModel, batch: Batch, seeds: Seeds) -> GradientEstimate:
        shape = (len(batch.x), len(self.group_of_unit))
        u = open_uniform(model.prior.bias, shape=shape, generator=batch.generator)
        uniforms = torch.where(self.flipped, 1 - u, u)
        draws = draw_discretely(model, batch, seeds, uniforms)
        losses, z, logits = draws.losses(), draws.sample.z, draws.sample.logits[0]
        differences = (losses[0] - losses[1:]).T.index_select(-1, self.group_of_unit)  # (batch, unit)
        antithetic = (z[1:] * self.flipped[1:]).sum(0)  # each unit's bit in the branch of its group
        slopes = 0.5 * differences * (z[0] - antithetic) * torch.sigmoid(logits.detach().abs())
        return draws.estimate((slopes * logits).sum(-1))
