"""Latents in use: active units, effects of flips, agreement with labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_examples, check_tensor
from discrete_vae.data.splits import rescaled
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import positive_weights, standard_error
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.modes import eval_mode
from discrete_vae.numerics import bernoulli_entropy
from discrete_vae.records import ShowsShapes, ShowsTable
from discrete_vae.rng import keyed_generator

UNUSED = 0.01  # nats; a unit of less information is inactive
_BATCH_SIZE = 500
_STREAM = 0x75736167


@dataclass(frozen=True, eq=False, repr=False)
class LatentUsage(ShowsShapes):
    """Activity and information of each latent, means over examples.

    Attributes:
        activity: Share of the examples that switch a unit on, (unit,) float64, in [0, 1].
        entropy: Mean entropy of a unit given x and the groups before it, (unit,) float64, nats, from 0 to log 2.
        information: Mutual information of a unit with x and the groups before it: the entropy of its activity less
            `entropy`, (unit,) float64, nats, from 0 to log 2. 0 is an inactive unit.
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
def latent_usage(
    model: DiscreteVAE,
    x: Tensor,
    *,
    condition: Tensor | None = None,
    weights: np.ndarray | Tensor | None = None,
    seed: int = 0,
) -> LatentUsage:
    """Look at the posteriors of examples, with the networks' running statistics.

    ``x`` is (example, feature) or in the event's shape, with NaN for missing values, ``condition`` c of p(x | c),
    (example, column) or (1, column); ``weights``, (example,) above 0, are those of the means; ``seed`` is that of the
    draws that later groups and layers are conditioned on.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> latent_usage(model, torch.zeros(50, 6)).dead_units  # one x alone: no unit can tell it from another
        [0, 1, 2, 3]
    """
    check_examples("x", x)
    found = []
    c = model.check_condition(condition, len(x))
    given = positive_weights(weights, len(x))
    given = torch.ones(len(x), dtype=torch.float64, device="cpu") if given is None else rescaled(given)
    with eval_mode(model) as model:
        for first in range(0, len(x), _BATCH_SIZE):
            part = slice(first, first + _BATCH_SIZE)
            rows, observed = model.preprocess(x[part])
            generator = keyed_generator(seed, _STREAM, first, device=rows.device)
            of_rows = None if c is None else c[part]
            features = model.features_of(rows, observed, of_rows)
            features, log_q = model.with_drawn_label(features, generator=generator)
            drawn = model.posterior.rsample(features, generator=generator)
            zeta = model.hierarchy.with_condition(drawn.zeta, features)
            below = model.hierarchy.rsample(features, zeta, generator=generator)
            logits = drawn.logits.double()
            if log_q is not None:
                logits[:, : log_q.shape[1]] = torch.logit(log_q.double().exp(), eps=1e-12)
            kl = below.posterior.kl_to(below.prior).double()
            values, own = (torch.sigmoid(logits), bernoulli_entropy(logits), kl), given[part].to(kl.device)
            found.append([torch.tensordot(own, each, 1) for each in values])
    sums = (reduce(torch.add, parts) for parts in zip(*found, strict=True))
    activity, entropy, layer_kl = (total.cpu() / given.sum() for total in sums)
    of_activity = bernoulli_entropy(torch.logit(activity, eps=1e-12))
    information = (of_activity - entropy).clamp(min=0)
    return LatentUsage(activity, entropy, information, layer_kl, len(x))


# Effects of flips of binary units.


_CODES, _FLIPS, _LAYERS = 0x666C6970, 0x666C7A65, 0x666C6C61


@dataclass(frozen=True, eq=False, repr=False)
class FlipEffects(ShowsShapes):
    """Changes of the mean of x by switching each unit on, over the codes of examples.

    Attributes:
        change: Mean over codes of E[x | unit on] - E[x | unit off], (unit, feature) float64.
        std_error: Its standard error over codes, (unit, feature) float64; NaN of one code.
        size: Mean over codes of the sum over features of the absolute change, (unit,) float64.
        size_std_error: Its standard error over codes, (unit,) float64; NaN of one code.
        num_codes: Codes.
    """

    change: Tensor
    std_error: Tensor
    size: Tensor
    size_std_error: Tensor
    num_codes: int

    @property
    def order(self) -> list[int]:
        """Units, those with the largest size first."""
        return self.size.argsort(descending=True, stable=True).tolist()


@torch.no_grad()
def flip_effects(
    model: DiscreteVAE,
    x: Tensor,
    *,
    condition: Tensor | None = None,
    scale: Tensor | None = None,
    statistics: bool = False,
    seed: int = 0,
    report: Callable[[int], None] | None = None,
) -> FlipEffects:
    """Flip each unit in the codes of examples and decode.

    A code is a draw of z and zeta from the posterior of an example. Of a flipped unit zeta is drawn anew from
    r(zeta|z), the other units keep theirs. Gaussian layers are drawn from p(h | zeta), with the same noise before and
    after the flip.

    Args:
        model: The model; its networks use their running statistics.
        x: (example, feature) or in the event's shape; some hundred examples suffice.
        condition: c of p(x | c), (example, column), or (1, column) for all, of a model that has one.
        scale: Unit of change, (feature,), positive; None is 1. The standard deviations of real features, for example.
        statistics: Changes of E[T(x)] in place of E[x], see `Likelihood.statistics`, for values that are codes; a
            statistic then stands wherever a feature does.
        seed: Seed of all noise.
        report: Called after each unit with the number done.
    """
    device, num_codes = check_examples("x", x).device, len(x)
    shape = model.likelihood.statistic_shape if statistics else model.likelihood.event_shape
    unit = torch.ones(math.prod(shape), dtype=torch.float64, device=device)
    if scale is not None:
        unit = check_tensor("scale", scale, (math.prod(shape),)).to(unit)
        if not bool((unit > 0).all()):
            rule, repair = "must be above 0", "Give 1 for a feature that does not vary."
            raise InvalidInputError("scale", rule, float(unit.min()), repair)
    c = model.check_condition(condition, num_codes)
    code = model.encode(x, condition=condition, generator=keyed_generator(seed, _CODES, device=device))

    def decoded(zeta: Tensor) -> Tensor:
        layers = keyed_generator(seed, _LAYERS, device=device)
        zeta = zeta.to(model.dtype)
        found, _ = model._decode(zeta, None, c, "expected" if statistics else "mean", layers)
        return found.flatten(1).double() / unit

    before = decoded(code.zeta)
    rows = []
    for index in range(model.prior.num_units):
        z = code.z.clone()
        z[:, index] = 1 - z[:, index]
        drawn = model.smoothing.sample_zeta(z, generator=keyed_generator(seed, _FLIPS, index, device=device))
        zeta = code.zeta.clone()
        zeta[:, index] = drawn[:, index]
        change = (decoded(zeta) - before) * (2 * z[:, index, None].double() - 1)
        size = change.abs().sum(1)
        rows.append((change.mean(0), standard_error(change), size.mean(), standard_error(size)))
        if report is not None:
            report(index + 1)
    change, error, size, size_error = (torch.stack(list(part)).cpu() for part in zip(*rows, strict=True))
    return FlipEffects(change, error, size, size_error, num_codes)


# Agreement of groups with known labels.


_BLOCKS = 20  # of examples, left out one after the other


@dataclass(frozen=True)
class LabelAgreement(ShowsTable):
    """Agreement of groups with labels; errors are over examples.

    Attributes:
        purity: Share of the examples that have the most frequent label of their group; 1 for groups of one example.
        purity_std_error: Its standard error.
        adjusted_mutual_information: Mutual information less what chance gives, over the most it can be: near 0 for
            groups that tell nothing, 1 for groups that are the classes.
        adjusted_mutual_information_std_error: Its standard error.
        mutual_information: Mutual information of group and label, nats.
        mutual_information_std_error: Its standard error, nats.
        label_entropy: Entropy of the labels, nats: the most that the mutual information can be.
        num_examples: Examples.
        num_labels: Different labels among them.
    """

    purity: float
    purity_std_error: float
    adjusted_mutual_information: float
    adjusted_mutual_information_std_error: float
    mutual_information: float
    mutual_information_std_error: float
    label_entropy: float
    num_examples: int
    num_labels: int


def label_agreement(groups: np.ndarray, labels: np.ndarray) -> LabelAgreement:
    """Compare groups with labels; neither needs names in common.

    Both are (example,), numbers or words. Standard errors come from a jackknife: the measure of all examples but a
    twentieth, twenty times.

    Source: Vinh, Epps & Bailey 2010 (adjusted mutual information, normalized by the mean of the entropies).

    Examples:
        >>> groups, labels = np.arange(40) % 2, np.where(np.arange(40) % 2, "odd", "even")
        >>> found = label_agreement(groups, labels)
        >>> found.purity, round(found.adjusted_mutual_information, 6), round(found.mutual_information, 3)
        (1.0, 1.0, 0.693)
    """
    from sklearn import metrics  # here, since it takes most of a second

    groups, labels = np.asarray(groups), np.asarray(labels)
    if groups.ndim != 1 or groups.shape != labels.shape or len(groups) < _BLOCKS:
        rule = f"must be one for each of the groups, {groups.shape}, of at least {_BLOCKS}"
        raise InvalidInputError("labels", rule, f"shape {labels.shape}", "Give as many labels.")
    group = np.unique(groups, return_inverse=True)[1]
    label = np.unique(labels, return_inverse=True)[1]
    block = np.random.default_rng(0).permutation(len(group)) % _BLOCKS  # whatever order the examples have

    def measured(measure: Callable[[np.ndarray, np.ndarray], float]) -> tuple[float, float]:
        without = [measure(group[block != b], label[block != b]) for b in range(_BLOCKS)]
        return measure(group, label), float(np.sqrt((_BLOCKS - 1) * np.var(without)))

    def purity(group: np.ndarray, label: np.ndarray) -> float:
        return float(metrics.cluster.contingency_matrix(group, label).max(1).sum() / len(label))

    def information(group: np.ndarray, label: np.ndarray) -> float:
        return float(metrics.mutual_info_score(label, group))

    return LabelAgreement(
        *measured(purity),
        *measured(lambda group, label: float(metrics.adjusted_mutual_info_score(label, group))),
        *measured(information),
        label_entropy=information(label, label),
        num_examples=len(label),
        num_labels=int(label.max()) + 1,
    )
