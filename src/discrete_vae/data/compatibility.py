"""Compatibility of data and likelihoods: which can read which values, and what the others need."""

from __future__ import annotations

import math
from typing import Any

from discrete_vae.checks import FINITE, ValueSummary
from discrete_vae.config import LikelihoodConfig, ModelConfig, members
from discrete_vae.data.splits import PARTS, DataSplits
from discrete_vae.errors import InvalidInputError


def check_compatible(model: ModelConfig, dataset: DataSplits) -> None:
    """Check that a model's likelihood reads a data set's values, and that the model takes what is missing.

    Training may see more than validation and test, whose values must have a probability: probabilities of bits say.

    Args:
        model: The model.
        dataset: The data.
    """
    for part in PARTS:
        _check_part(model.likelihood, dataset, part)
    if model.missing:
        return
    for part, values in dataset.summaries.items():
        if values.num_missing:
            repair = "Set --model.missing true for a model that reads which values are there."
            received = f"{values.num_missing} of {values.num_values}"
            raise InvalidInputError(_name(dataset, part), "must have no missing values", received, repair)


def likelihood_for(kind: str, dataset: DataSplits) -> LikelihoodConfig:
    """The config of a likelihood for given data: its defaults, with what only the data can tell.

    Args:
        kind: The likelihood's name.
        dataset: The data.
    """
    known = _members()
    if not isinstance(kind, str) or kind not in known:
        names = ", ".join(known)
        raise InvalidInputError(
            "--model.likelihood", f"must be one of {names}", repr(kind), "Choose one of them."
        )
    config = known[kind].for_values(_all_values(dataset))
    for part in PARTS:
        _check_part(config, dataset, part, exact=False)
    return config


def _check_part(likelihood: LikelihoodConfig, dataset: DataSplits, part: str, *, exact: bool = True) -> None:
    values = dataset.summaries[part]
    domain = likelihood.domain(exact=exact and part != "train")
    if domain.holds(values):
        return
    repairs = []
    if likelihood.domain().holds(values):
        repairs.append("If the values are probabilities of bits, draw these: --data.binarize true.")
    repairs += [_others(likelihood, dataset)]
    if domain.high == 1 and (repair := _scaling(values)):
        repairs.append(repair)
    elif domain.high != 1:
        repairs.append(domain.repair_of(values))
    rule = f"{domain.rule} to be read by --model.likelihood {likelihood.kind}"
    raise InvalidInputError(_name(dataset, part), rule, values, " ".join(repairs))


def _others(likelihood: LikelihoodConfig, dataset: DataSplits) -> str:
    """A sentence: the other likelihoods that can read the data, and what the rest needs."""
    values = _all_values(dataset)
    can, cannot = [], []
    for kind, member in _members().items():
        if kind == likelihood.kind:
            continue
        fits = member.for_values(values).domain().holds(values)
        (can if fits else cannot).append(kind if fits else f"{kind} needs {member.reads}")
    first = f"{_listed(can)} can read them" if can else "No likelihood can read them"
    return "; ".join([first, *cannot]) + "."


def _listed(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _scaling(values: ValueSummary) -> str:
    """Repair of values of some common kinds; empty for others."""
    if math.isinf(values.low) or math.isinf(values.high):
        return FINITE.repair(math.inf)
    if values.low >= 0 and 1 < values.high <= 255 and values.whole:
        return "Divide 0..255 intensities by 255."
    if -1 <= values.low < 0 and values.high <= 1:
        return "Map -1..1 to 0..1 by (x + 1) / 2."
    return ""


def _members() -> dict[str, Any]:
    return {config.model_fields["kind"].default: config for config in members(LikelihoodConfig)}


def _all_values(dataset: DataSplits) -> ValueSummary:
    train, *others = dataset.summaries.values()
    return sum(others, train)


def _name(dataset: DataSplits, part: str) -> str:
    return f"{dataset.description.source}, part {part!r},"
