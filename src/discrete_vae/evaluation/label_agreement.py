"""How far groups that were found are the classes that are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsTable

_BLOCKS = 20  # of examples, left out one after the other


@dataclass(frozen=True)
class LabelAgreement(ShowsTable):
    """Agreement of groups with labels; errors are over examples.

    Attributes:
        purity: Share of the examples that have the most frequent label of their group; the share of the most frequent
            label where groups tell nothing, and 1 for groups of one example each.
        purity_std_error: Its standard error.
        adjusted_mutual_information: Mutual information less what chance gives, over the most it can be: near 0 for
            groups that tell nothing however many they are, 1 for groups that are the classes.
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

    Standard errors come from a jackknife: the measure of all examples but a twentieth, twenty times.

    Source: Vinh, Epps & Bailey 2010 (adjusted mutual information, normalized by the mean of the entropies).

    Args:
        groups: (example,).
        labels: (example,), numbers or words.

    Raises:
        InvalidInputError: If they are not as many, or fewer than 20.

    Examples:
        >>> groups, labels = np.arange(40) % 2, np.where(np.arange(40) % 2, "odd", "even")
        >>> found = label_agreement(groups, labels)
        >>> found.purity, round(found.adjusted_mutual_information, 6), round(found.mutual_information, 3)
        (1.0, 1.0, 0.693)
    """
    from sklearn.metrics import adjusted_mutual_info_score  # here, since it takes most of a second

    groups, labels = np.asarray(groups), np.asarray(labels)
    if groups.ndim != 1 or groups.shape != labels.shape or len(groups) < _BLOCKS:
        rule, received = f"must be one per example, of at least {_BLOCKS}", f"shape {labels.shape}"
        repair = f"There are {groups.shape} groups; give as many labels."
        raise InvalidInputError("labels", rule, received, repair)
    group = np.unique(groups, return_inverse=True)[1]
    label = np.unique(labels, return_inverse=True)[1]
    block = np.random.default_rng(0).permutation(len(group)) % _BLOCKS  # whatever order the examples have

    def measured(measure: Callable[[np.ndarray, np.ndarray], float]) -> tuple[float, float]:
        without = [measure(group[block != b], label[block != b]) for b in range(_BLOCKS)]
        return measure(group, label), float(np.sqrt((_BLOCKS - 1) * np.var(without)))

    return LabelAgreement(
        *measured(_purity),
        *measured(lambda g, y: float(adjusted_mutual_info_score(y, g))),
        *measured(_mutual_information),
        label_entropy=_mutual_information(label, label),
        num_examples=len(label),
        num_labels=int(label.max()) + 1,
    )


def _table(group: np.ndarray, label: np.ndarray) -> np.ndarray:
    """How many examples each pair of a group and a label has."""
    counts = np.zeros((int(group.max()) + 1, int(label.max()) + 1))
    np.add.at(counts, (group, label), 1)
    return counts


def _purity(group: np.ndarray, label: np.ndarray) -> float:
    return float(_table(group, label).max(1).sum() / len(label))


def _mutual_information(group: np.ndarray, label: np.ndarray) -> float:
    share = _table(group, label) / len(label)
    apart = share.sum(1, keepdims=True) * share.sum(0, keepdims=True)
    there = share > 0
    return float((share[there] * np.log(share[there] / apart[there])).sum())
