r"""The paper's naive gradient of the KL: the score function for the energies of pairs, ours for all else."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.config import BaselineConfig
from discrete_vae.noise import open_uniform
from discrete_vae.numerics import bernoulli_log_prob, replace_gradient
from discrete_vae.objectives.bound import Batch, BoundedModel, bound_parts_at
from discrete_vae.objectives.gradients.base import GradientEstimate, GradientEstimator, Seeds
from discrete_vae.objectives.gradients.baseline import Baseline, build_baseline


class NaiveKL(GradientEstimator):
    """d E[W_ij z_i z_j] = E[ (W_ij z_i z_j - B) sum_k d log q_k ] for each pair; other terms as in `Reparameterized`.

    It isolates what the paper's gradient of the pair energies brings (eq. low-var-J-grad, here `kl_to_boltzmann`):
    reconstruction, Gaussian layers, entropies and linear energies are reparameterized through zeta or in closed form.
    For the pairs z is drawn once more, group by group with zeta ~ r(zeta|z) below, so that nothing passes through zeta
    to the logits but what the smoothing's own parameters do; the decoder does not read that draw. For the score of
    group k pairs within the groups before k are dropped, as the paper says.

    Source: Rolfe 2017, eq. naive-kl-grad-reinforce, and the baseline after it.

    Args:
        baseline: Its config, or a baseline of your own; None is none.
        group_of_unit: See `GradientEstimator`.
        num_features: Likewise.
    """

    before: Tensor

    def __init__(
        self,
        baseline: BaselineConfig | Baseline | None = None,
        *,
        group_of_unit: Tensor,
        num_features: int,
    ) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        groups = torch.arange(self.num_groups, device=group_of_unit.device)
        self.register_buffer("before", group_of_unit < groups[:, None], persistent=False)
        self.baseline = build_baseline(baseline, group_of_unit, num_features)

    @property
    def num_evaluations(self) -> int:
        """1; the second draw costs the posterior's networks once more."""
        return 1

    def _estimate(self, model: BoundedModel, batch: Batch, seeds: Seeds) -> GradientEstimate:
        prior, features = model.prior, model.read(batch.x, batch.observed)
        sample = model.posterior.rsample(features, generator=batch.generator)
        reconstruction, relative, continuous = bound_parts_at(model, sample, features, batch)
        mean = torch.sigmoid(sample.logits)
        closed = prior.expected_energy(sample.bits, mean, model.pair_order) + (mean * prior.bias).sum(-1)
        uniforms = open_uniform(prior.bias, shape=(1, *sample.logits.shape), generator=batch.generator)
        again = model.posterior.sample_discretely(features, uniforms, generator=batch.generator)
        pairs = self._pairs(model, again.z)
        weight = (seeds[1] * len(batch.x)).unsqueeze(-1)
        with torch.no_grad():
            dropped = self._pairs(model, again.z * self.before.to(again.z.dtype)[:, None, None])
            signals = weight * (pairs.unsqueeze(-1) - dropped.movedim(0, -1))
        advantages, error = self.baseline(features.detach(), again.zeta.detach(), signals)
        of_unit = advantages.index_select(-1, self.group_of_unit)
        surrogate = (of_unit * bernoulli_log_prob(again.z, again.logits)).sum(-1)
        surrogate = (surrogate if error is None else surrogate + error).squeeze(0)
        relative = relative - closed + pairs.squeeze(0)
        score = replace_gradient(torch.zeros_like(surrogate), surrogate)
        return GradientEstimate(
            reconstruction, relative.to(reconstruction.dtype), continuous, score, seeds, 1
        )

    @staticmethod
    def _pairs(model: BoundedModel, z: Tensor) -> Tensor:
        """The energy of all pairs, (...), nats."""
        return model.prior.compute_energy(z) + (z * model.prior.bias).sum(-1)
