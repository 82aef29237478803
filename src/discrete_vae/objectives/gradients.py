"""Estimators of the gradient of the loss: reparameterized, score function with baselines, DisARM, naive KL.

Draws of z whose law, not whose value, depends on the logits: what all score-function estimators share.

**The model is the same.** z is drawn group by group, z_i = 1 where u_i < q_i, u_i uniform; zeta ~ r(zeta|z), made of z
and of noise e that knows nothing of the logits; the Gaussian layers h of zeta and of noise of their own, as ever. So
(z, zeta, h) has the law that it has in the reparameterized gradient (of a transformation that depends on x, with
q(zeta | z, x) for r throughout), and the expectation of the loss per example

    l(z, e) = w KL + w_h KL_h - log p(x | zeta, h)

is the same function of all parameters, and so is its gradient. Given all noise e but u, z has the law q(z | e) = prod_j
q(z_j | zeta_<j, x), zeta a function of (z, e) and of the smoothing's parameters. Hence, with theta for all parameters,

    d E l / d theta = E [ l d log q(z | e) / d theta + d l / d theta ],

both with z and e held fixed. The second term is what backpropagation gives: decoder, layers, prior, the smoothing's
parameters through zeta, and the places of the logits in the KL. The first is the score function's; it holds the
smoothing's parameters too, since the logits of later groups read zeta. What an estimator makes of the first is in its
own class.

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

DisARM: pairs of antithetic draws, one pair per group of the posterior.

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

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from discrete_vae.boltzmann.base import BoltzmannMachine
from discrete_vae.checks import check_number, check_positive_int, check_tensor
from discrete_vae.config import BaselineConfig, ComponentConfig, NoBaselineConfig, instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.nets.mlp import MLP
from discrete_vae.numerics import bernoulli_entropy, bernoulli_log_prob, replace_gradient
from discrete_vae.objectives.elbo import (
    Batch,
    GradOutputs,
    LossTerms,
    loss_terms,
    loss_terms_at,
    weighted_sum,
)
from discrete_vae.posterior import PosteriorSample
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import NoiseSource, open_uniform

if TYPE_CHECKING:
    from discrete_vae.model import DiscreteVAE

# What an estimator of the gradient is, and what it gives.


@dataclass(frozen=True, eq=False, repr=False)
class GradientEstimate(ShowsShapes):
    """One estimate of the gradient of a weighted loss, as tensors to be differentiated.

    Attributes:
        reconstruction: As in `Elbo`, (batch,), nats, a mean over draws, with the gradient that a draw held fixed gives.
        kl_relative: Likewise.
        kl_continuous: Likewise.
        score: (batch,), of value 0, with the rest of the gradient: what parameters do through the law of the draws.
            None where there is no rest.
        grad_outputs: The gradients of the loss by these terms, with which the estimate was made.
        num_evaluations: Draws per example that were decoded.
    """

    reconstruction: Tensor
    kl_relative: Tensor
    kl_continuous: Tensor
    score: Tensor | None
    grad_outputs: GradOutputs
    num_evaluations: int

    @property
    def terms(self) -> LossTerms:
        """The terms of the loss, each (batch,), nats."""
        return LossTerms(self.reconstruction, self.kl_relative, self.kl_continuous)

    @property
    def loss(self) -> Tensor:
        """A scalar, nats, whose gradient is the estimate and whose value is that of the weighted loss less log Z."""
        loss = weighted_sum(self.terms, self.grad_outputs)
        return loss if self.score is None else loss + self.score.mean()

    def outputs(self) -> list[tuple[Tensor, Tensor]]:
        """The parts of `loss` that carry a gradient, each with that of `loss` by it, for `torch.autograd.grad`."""
        pairs = list(zip(self.terms, self.grad_outputs, strict=True))
        if self.score is not None:
            pairs.append((self.score, torch.full_like(self.score, 1 / max(len(self.score), 1))))
        return [(term, weight) for term, weight in pairs if term.requires_grad]


class GradientEstimator(nn.Module, ABC):
    """A way to estimate the gradient of w KL + w_h KL_h - log p(x | zeta, h), averaged over q.

    All estimators target the same model p(z) r(zeta|z) p(h|zeta) p(x|zeta,h), the same posterior and the same bound, so
    all have the same expectation; they differ in their variance and in their cost. An estimator that is a module with
    state learns in training mode and stays as it is in evaluation mode.

    Args:
        group_of_unit: (unit,) int64, the position of each unit's group in the posterior's order of sampling.
        num_features: Length of the last axis of the encoder's features.
    """

    takes_importance_samples: ClassVar[bool] = False
    """True for one that takes bounds with several importance samples, see `objectives.importance`."""

    takes_labels: ClassVar[bool] = False
    """True for one that takes models with classes, see `objectives.elbo`."""

    group_of_unit: Tensor

    def __init__(self, *, group_of_unit: Tensor, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.num_groups = int(group_of_unit.max()) + 1
        # constants of the posterior that it is for, no part of the state
        self.register_buffer("group_of_unit", group_of_unit.clone(), persistent=False)

    @classmethod
    def of(cls, model: DiscreteVAE, **settings: Any) -> Self:
        """Make an estimator with its settings for a model."""
        posterior = model.posterior
        made = cls(**settings, group_of_unit=posterior.group_of_unit, num_features=posterior.num_features)
        return made.to(model.prior.bias)

    @property
    def num_evaluations(self) -> int:
        """Draws per example that an estimate decodes: what it costs in units of the reparameterized one."""
        return 1

    def estimate(self, model: DiscreteVAE, batch: Batch, grad_outputs: GradOutputs) -> GradientEstimate:
        """Estimate the gradient of a loss from the gradients of that loss by its terms.

        Arguments are checked before, but for several importance samples, which not every estimator takes; no value is
        looked at, so that a step can be recorded.
        """
        if batch.num_importance_samples > 1 and not self.takes_importance_samples:
            rule = f"must be 1 with {type(self).__name__}, whose loss is that of single draws"
            repair = "Leave it out, or take the reparameterized gradient."
            raise InvalidInputError("num_importance_samples", rule, batch.num_importance_samples, repair)
        if model.posterior.num_classes and not self.takes_labels:
            rule, repair = "must be reparameterized for a model with classes", "Take Reparameterized."
            raise InvalidInputError("gradient", rule, type(self).__name__, repair)
        return self._estimate(model, batch, grad_outputs)

    @abstractmethod
    def _estimate(self, model: DiscreteVAE, batch: Batch, grad_outputs: GradOutputs) -> GradientEstimate:
        """`estimate`, without the check."""


class Reparameterized(GradientEstimator):
    """The gradient of the smoothing transformation: that of `DiscreteVAE.elbo`, one draw, nothing kept.

    Source: Rolfe 2017, eqs. discrete-VAE-approx-zeta, J-term-gradient and J-gradient-z-0; see `kl_to_boltzmann`.
    """

    takes_importance_samples = takes_labels = True

    def _estimate(self, model: DiscreteVAE, batch: Batch, grad_outputs: GradOutputs) -> GradientEstimate:
        return GradientEstimate(*loss_terms(model, batch), None, grad_outputs, batch.num_importance_samples)


# Draws for score functions, see the module.


@dataclass(frozen=True, eq=False, repr=False)
class DiscreteDraws(ShowsShapes):
    """Draws of the latents with the terms of the loss at them."""

    grad_outputs: GradOutputs  # gradients of the loss, a mean over the batch, by the terms, (batch,) each
    features: Tensor  # (batch, feature), what the encoder makes of x
    sample: PosteriorSample  # (draw, batch, unit)
    terms: LossTerms  # (draw, batch) each, nats

    def log_prob(self) -> Tensor:
        """log q(z | e) of each unit, (draw, batch, unit), nats."""
        return bernoulli_log_prob(self.sample.z, self.sample.logits)

    def losses(self) -> Tensor:
        """l of each draw, (draw, batch), nats, without gradient."""
        shares = [term.detach() * weight for term, weight in zip(self.terms, self.grad_outputs, strict=True)]
        total = torch.stack(shares).sum(0)
        return total * total.shape[-1]

    def signals(self, energy: BoltzmannMachine, order: nn.Module, up_to: Tensor) -> Tensor:
        """The signal of each group, (draw, batch, group), nats, without gradient; up_to is `groups_up_to`."""
        with torch.no_grad():
            wide = torch.promote_types(self.sample.logits.dtype, torch.float32)
            z, logits = self.sample.z.to(wide), self.sample.logits.to(wide)
            kept = up_to.to(z.dtype)[:, None, None]
            known = energy.expected_energy(z * kept, torch.sigmoid(logits) * kept, order).movedim(0, -1)
            of_units, kl_of_zeta = -bernoulli_entropy(logits), self.sample.kl_of_zeta()
            if kl_of_zeta is not None:
                of_units = of_units + kl_of_zeta
            known = known + of_units @ up_to.to(z.dtype).T
            weight = self.grad_outputs[1] * len(self.grad_outputs[1])
            return self.losses().unsqueeze(-1) - weight.unsqueeze(-1) * known

    def estimate(self, surrogate: Tensor) -> GradientEstimate:
        """The estimate whose score has the gradient of a surrogate, (batch,), averaged over draws elsewhere."""
        first, second, third = (term.mean(0) for term in self.terms)
        score = _gradient_of(surrogate)
        return GradientEstimate(first, second, third, score, self.grad_outputs, len(self.terms[0]))


def _gradient_of(surrogate: Tensor) -> Tensor:
    return replace_gradient(torch.zeros_like(surrogate), surrogate)


def _surrogate(
    baseline: Baseline, features: Tensor, sample: PosteriorSample, signals: Tensor, group_of_unit: Tensor
) -> Tensor:
    """(draw, batch), with the gradient of the score at signals less a baseline, and that of the baseline's own loss."""
    advantages, error = baseline(features.detach(), sample.zeta.detach(), signals)
    check_tensor("the baseline's signals", advantages, signals.shape)
    of_unit = advantages.index_select(-1, group_of_unit)
    surrogate = (of_unit * bernoulli_log_prob(sample.z, sample.logits)).sum(-1)
    return surrogate if error is None else surrogate + error


def draw_discretely(
    model: DiscreteVAE, batch: Batch, grad_outputs: GradOutputs, uniforms: Tensor
) -> DiscreteDraws:
    """Draw z from uniforms, (draw, batch, unit), zeta and h from noise that all draws of an example share."""
    features = model.read(batch.x, batch.observed, batch.condition)
    sample = model.posterior.sample_discretely(features, uniforms, generator=batch.generator)
    source: Any = SharedNoise(batch.generator)
    terms = loss_terms_at(model, sample, features, replace(batch, generator=source))
    return DiscreteDraws(grad_outputs, features, sample, terms)


class SharedNoise(NoiseSource):
    """Gives all draws of an example the same noise, so that differences between them are those of z."""

    def __init__(self, generator: torch.Generator | NoiseSource | None) -> None:
        self._generator = generator

    def take(self, draw: Callable[..., Tensor], like: Tensor, shape: Sequence[int]) -> Tensor:
        return draw(like, shape=tuple(shape)[1:], generator=self._generator).expand(tuple(shape))


def groups_up_to(group_of_unit: Tensor) -> Tensor:
    """(group, unit) bool, True where a unit's group is that group or one before."""
    groups = torch.arange(int(group_of_unit.max()) + 1, device=group_of_unit.device)
    return group_of_unit <= groups[:, None]


# Baselines of REINFORCE.


class Baseline(nn.Module, ABC):
    """An estimate of each group's signal from what is known before it is drawn: x, zeta of earlier groups, the past.

    What it takes away from the signal of group j must not depend on z_j nor on anything drawn later, its own signal
    above all: a baseline that sees its own sample biases the gradient. The arguments are those of `GradientEstimator`.
    """

    def __init__(self, *, group_of_unit: Tensor, num_features: int) -> None:
        super().__init__()
        self.num_features, self.num_groups = num_features, int(group_of_unit.max()) + 1

    @abstractmethod
    def forward(self, features: Tensor, zeta: Tensor, signals: Tensor) -> tuple[Tensor, Tensor | None]:
        """Take the baseline away; in training mode then learn from these signals.

        Args:
            features: (batch, feature), what the encoder makes of x, without gradient.
            zeta: (draw, batch, unit), without gradient.
            signals: (draw, batch, group), nats, without gradient.

        Returns:
            The signals less the baseline, (draw, batch, group), without gradient; and a loss, (draw, batch), whose
            gradient trains the baseline's own parameters and reaches no others, None where there are none.
        """


def build_baseline(
    baseline: BaselineConfig | Baseline | None, group_of_unit: Tensor, num_features: int
) -> Baseline:
    """A baseline as it is, or built from its config; None is none."""
    if isinstance(baseline, Baseline):
        return baseline
    if baseline is not None and not isinstance(baseline, ComponentConfig):
        repair = "Make one of your own for the estimator's group_of_unit and num_features."
        raise InvalidInputError("baseline", "must be a Baseline or its config", repr(baseline)[:80], repair)
    return instantiate(baseline or NoBaselineConfig(), group_of_unit=group_of_unit, num_features=num_features)


class NoBaseline(Baseline):
    """B = 0."""

    def forward(self, features: Tensor, zeta: Tensor, signals: Tensor) -> tuple[Tensor, None]:
        return signals, None


class RunningMean(Baseline):
    """B_j = the exponential average of the mean signal of group j over **earlier** batches, 0 before the first.

    It is bias-corrected as in Adam: weights of batches sum to 1 from the second batch on. The batch's own signals
    enter only after they were used.

    Source: Mnih & Gregor 2014, section 2.3; Williams 1992.

    Args:
        decay: Weight of the past per batch, from 0 to below 1.

    Examples:
        >>> baseline = RunningMean(0.5, group_of_unit=torch.tensor([0, 0]), num_features=1)
        >>> [baseline(None, None, torch.full((1, 2, 1), s))[0].mean().item() for s in (3.0, 6.0, 6.0)]
        [3.0, 3.0, 1.0]
    """

    total: Tensor
    weight: Tensor

    def __init__(self, decay: float = 0.9, *, group_of_unit: Tensor, num_features: int) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        repair = "The default is 0.9."
        self.decay = check_number("decay", decay, at_least=0, repair=repair)
        check_number("1 - decay", 1 - decay, above=0, repair=repair)
        self.register_buffer("total", torch.zeros(self.num_groups))
        self.register_buffer("weight", torch.zeros(()))

    def forward(self, features: Tensor, zeta: Tensor, signals: Tensor) -> tuple[Tensor, None]:
        """Take away the mean of earlier batches, then note this one's."""
        advantages = signals - self.mean()
        if self.training:
            self.note(signals)
        return advantages, None

    def mean(self) -> Tensor:
        """B, (group,), nats."""
        return self.total / self.weight.clamp_min(torch.finfo(self.weight.dtype).tiny)

    @torch.no_grad()
    def note(self, signals: Tensor) -> None:
        """Let the signals of a batch, (draw, batch, group), enter the mean, if it has examples."""
        if signals.numel() == 0:
            return
        self.total.lerp_(signals.mean((0, 1)).to(self.total.dtype), 1 - self.decay)
        self.weight.lerp_(torch.ones_like(self.weight), 1 - self.decay)


class LearnedBaseline(Baseline):
    """B_j = m_j + s_j b_j(features of x, zeta_<j), with a small network b_j per group, trained by squared error.

    m_j is the running mean of the signal and s_j^2 is 1 + the running mean of its variance within a batch, both of
    earlier batches, so that networks learn numbers of the size 1 whatever the model's likelihood. They start at 0, that
    is, at `RunningMean`. Their loss is ((signal - m_j) / s_j - b_j)^2, averaged over groups; its gradient reaches their
    parameters alone. From the first batch, which m and s do not know, networks learn nothing.

    Source: Mnih & Gregor 2014, section 2.3. Deviation: it reads the encoder's features, which for the default encoder
    are x, and the scale is that of the signal instead of the learning rate's.

    Args:
        hidden: Widths of the hidden layers of each network.
        decay: Weight of the past per batch in m and s, from 0 to below 1.
    """

    by_group: Tensor

    def __init__(
        self, hidden: Sequence[int] = (100,), decay: float = 0.9, *, group_of_unit: Tensor, num_features: int
    ) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        sizes = {"group_of_unit": group_of_unit, "num_features": num_features}
        self.level, self.variance = RunningMean(decay, **sizes), RunningMean(decay, **sizes)
        self.register_buffer("by_group", group_of_unit.argsort(stable=True), persistent=False)
        self._sizes = torch.bincount(group_of_unit).tolist()
        networks = [MLP([num_features, *self._sizes[:index]], 1, hidden) for index in range(self.num_groups)]
        for network in networks:
            network.initialize_output_(0.0, scale=0.0)
        self.networks = nn.ModuleList(networks)

    def forward(self, features: Tensor, zeta: Tensor, signals: Tensor) -> tuple[Tensor, Tensor]:
        """Take away what the networks expect of what is known before each group; then note the signals."""
        own = next(self.parameters()).dtype
        features, zeta = features.to(own), zeta.to(own)
        groups = zeta.index_select(-1, self.by_group).split(self._sizes, -1)
        found = [
            network(features, *groups[:index]).expand(*zeta.shape[:-1], 1)
            for index, network in enumerate(self.networks)
        ]
        level, scale = self.level.mean(), torch.sqrt(1 + self.variance.mean())
        predicted = torch.cat(found, -1).to(signals.dtype)
        # the first batch has no scale yet: Adam would remember its huge gradient for a thousand steps
        begun = (self.level.weight > 0).to(signals.dtype)
        error = ((signals - level) / scale - predicted).square().mean(-1) * begun
        advantages = signals - (level + scale * predicted.detach())
        if self.training:
            self.level.note(signals)
            self.variance.note((signals - signals.mean((0, 1))).square())
        return advantages, error


# Score-function estimators.


class Reinforce(GradientEstimator):
    """sum_j (s_j - B_j) d log q(z_j | zeta_<j, x), with s_j the signal of group j and B_j a baseline; one draw.

    E [ B_j d log q_j ] = 0, as B_j depends on nothing that is drawn from group j on, so every baseline leaves the
    expectation as it is.

    Source: Rolfe 2017, eq. REINFORCE-equation; Williams 1992; Mnih & Gregor 2014 (baselines, signals of layers).
    Deviation: the signal leaves out what is known before a group is drawn, see `discrete_vae.objectives.gradients`.

    Args:
        baseline: Its config, or a baseline of your own; None is none.
    """

    up_to: Tensor

    def __init__(
        self, baseline: BaselineConfig | Baseline | None = None, *, group_of_unit: Tensor, num_features: int
    ) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        self.register_buffer("up_to", groups_up_to(group_of_unit), persistent=False)
        self.baseline = build_baseline(baseline, group_of_unit, num_features)

    def _estimate(self, model: DiscreteVAE, batch: Batch, grad_outputs: GradOutputs) -> GradientEstimate:
        shape = (1, len(batch.x), len(self.group_of_unit))
        uniforms = open_uniform(model.prior.bias, shape=shape, generator=batch.generator)
        draws = draw_discretely(model, batch, grad_outputs, uniforms)
        signals = draws.signals(model.prior, model.pair_order, self.up_to)
        surrogate = _surrogate(self.baseline, draws.features, draws.sample, signals, self.group_of_unit)
        return draws.estimate(surrogate.mean(0))


class LeaveOneOut(GradientEstimator):
    """(1/K) sum_k sum_j (s_j^k - mean_(i != k) s_j^i) d log q(z_j^k | zeta_<j^k, x), of K draws z^1, ..., z^K.

    Given the noise that they share the draws are independent, so the signals of the others, which stand for a baseline,
    know nothing of the draw whose score they multiply. Its own signal is left out of the mean: with it the estimate
    would shrink by 1 - 1/K.

    Source: Kool, van Hoof & Welling 2019; Salimans & Knowles 2014. The noise of r(zeta|z) and of the Gaussian layers is
    shared by the draws, which is ours: it makes their signals alike.

    Args:
        num_samples: K, at least 2.
    """

    up_to: Tensor

    def __init__(self, num_samples: int = 2, *, group_of_unit: Tensor, num_features: int) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        self.num_samples = check_positive_int("num_samples", num_samples)
        check_number("num_samples", num_samples, at_least=2, repair="One draw is left out: take another one.")
        self.register_buffer("up_to", groups_up_to(group_of_unit), persistent=False)

    @property
    def num_evaluations(self) -> int:
        return self.num_samples

    def _estimate(self, model: DiscreteVAE, batch: Batch, grad_outputs: GradOutputs) -> GradientEstimate:
        shape = (self.num_samples, len(batch.x), len(self.group_of_unit))
        uniforms = open_uniform(model.prior.bias, shape=shape, generator=batch.generator)
        draws = draw_discretely(model, batch, grad_outputs, uniforms)
        signals = draws.signals(model.prior, model.pair_order, self.up_to)
        advantages = self.advantages(signals).index_select(-1, self.group_of_unit)
        return draws.estimate((advantages * draws.log_prob()).sum(-1).mean(0))

    def advantages(self, signals: Tensor) -> Tensor:
        """s^k - mean_(i != k) s^i, of (draw, ...)."""
        return (signals - signals.mean(0)) * (self.num_samples / (self.num_samples - 1))


class DisARM(GradientEstimator):
    """Half the difference of the loss between antithetic draws, times sigmoid(|l|), for units in which they differ.

    Biased where networks of the posterior draw noise of their own, such as dropout: both draws of a pair have to have
    the same logits in their group.

    Source: Dong, Mnih & Tucker 2020; see the module for the formula, its derivation and groups one after another.
    """

    flipped: Tensor

    def __init__(self, *, group_of_unit: Tensor, num_features: int) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        groups = torch.arange(-1, self.num_groups, device=group_of_unit.device)
        # row 0 is the trunk, in which nothing is flipped
        self.register_buffer("flipped", (group_of_unit == groups[:, None])[:, None], persistent=False)

    @property
    def num_evaluations(self) -> int:
        return 1 + self.num_groups

    def _estimate(self, model: DiscreteVAE, batch: Batch, grad_outputs: GradOutputs) -> GradientEstimate:
        shape = (len(batch.x), len(self.group_of_unit))
        u = open_uniform(model.prior.bias, shape=shape, generator=batch.generator)
        uniforms = torch.where(self.flipped, 1 - u, u)
        draws = draw_discretely(model, batch, grad_outputs, uniforms)
        losses, z, logits = draws.losses(), draws.sample.z, draws.sample.logits[0]
        differences = (losses[0] - losses[1:]).T.index_select(-1, self.group_of_unit)  # (batch, unit)
        antithetic = (z[1:] * self.flipped[1:]).sum(0)  # each unit's bit in the branch of its group
        slopes = 0.5 * differences * (z[0] - antithetic) * torch.sigmoid(logits.detach().abs())
        return draws.estimate((slopes * logits).sum(-1))


class NaiveKL(GradientEstimator):
    """d E[W_ij z_i z_j] = E[ (W_ij z_i z_j - B) sum_k d log q_k ] for each pair; other terms as in `Reparameterized`.

    It isolates what the paper's gradient of the pair energies brings (eq. low-var-J-grad, here `kl_to_boltzmann`):
    reconstruction, Gaussian layers, entropies and linear energies are reparameterized through zeta or in closed form.
    For the pairs z is drawn once more, group by group with zeta ~ r(zeta|z) below, so that nothing passes through zeta
    to the logits but what the smoothing's own parameters do; the decoder does not read that draw. For the score of
    group k pairs within the groups before k are dropped, as the paper says.

    Source: Rolfe 2017, eq. naive-kl-grad-reinforce, and the baseline after it.

    Args:
        baseline: As in `Reinforce`.
    """

    before: Tensor

    def __init__(
        self, baseline: BaselineConfig | Baseline | None = None, *, group_of_unit: Tensor, num_features: int
    ) -> None:
        super().__init__(group_of_unit=group_of_unit, num_features=num_features)
        groups = torch.arange(self.num_groups, device=group_of_unit.device)
        self.register_buffer("before", group_of_unit < groups[:, None], persistent=False)
        self.baseline = build_baseline(baseline, group_of_unit, num_features)

    def _estimate(self, model: DiscreteVAE, batch: Batch, grad_outputs: GradOutputs) -> GradientEstimate:
        prior, features = model.prior, model.read(batch.x, batch.observed, batch.condition)
        sample = model.posterior.rsample(features, generator=batch.generator)
        reconstruction, relative, continuous = loss_terms_at(model, sample, features, batch)
        mean = torch.sigmoid(sample.logits)
        closed = prior.expected_energy(sample.bits, mean, model.pair_order) + (mean * prior.bias).sum(-1)
        uniforms = open_uniform(prior.bias, shape=(1, *sample.logits.shape), generator=batch.generator)
        again = model.posterior.sample_discretely(features, uniforms, generator=batch.generator)
        pairs = self._pairs(model, again.z)
        weight = (grad_outputs[1] * len(batch.x)).unsqueeze(-1)
        with torch.no_grad():
            dropped = self._pairs(model, again.z * self.before.to(again.z.dtype)[:, None, None])
            signals = weight * (pairs.unsqueeze(-1) - dropped.movedim(0, -1))
        surrogate = _surrogate(self.baseline, features, again, signals, self.group_of_unit).squeeze(0)
        relative = relative - closed + pairs.squeeze(0)
        relative, score = relative.to(reconstruction.dtype), _gradient_of(surrogate)
        return GradientEstimate(reconstruction, relative, continuous, score, grad_outputs, 1)

    @staticmethod
    def _pairs(model: DiscreteVAE, z: Tensor) -> Tensor:
        """The energy of all pairs, (...), nats."""
        return model.prior.compute_energy(z) + (z * model.prior.bias).sum(-1)
