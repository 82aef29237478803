"""The record of a data set, its parts, the fixed choices of examples, and the likelihoods that can read it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import Domain, ValueSummary
from discrete_vae.config import (
    ExperimentConfig,
    FileDataConfig,
    LikelihoodConfig,
    ModelConfig,
    TableLikelihoodConfig,
    TrainingConfig,
    instantiate,
)
from discrete_vae.config.base import by_kind
from discrete_vae.errors import InvalidInputError, not_one_of
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import key_to_seed
from discrete_vae.sparse import Examples, SparseRows, select

if TYPE_CHECKING:
    from discrete_vae.data.schema import TableSchema
    from discrete_vae.runs.run_directory import RunDirectory

PARTS = ("train", "valid", "test")
_ROWS = 4096

_Weights = TypeVar("_Weights", np.ndarray, Tensor)


@dataclass(frozen=True)
class DatasetDescription:
    """Source of a data set and its split, in words that a report can print.

    Attributes:
        source: Where the values come from.
        version: Which version of them this is.
        split: How the three parts were made.
        values: How the values are read, and what was drawn from them.
        sha256: Sum of the file that was read; None if there is none.
        columns: Names of the features; empty where they have none.
    """

    source: str
    version: str
    split: str
    values: str
    sha256: str | None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class DataSplits(ShowsShapes):
    """A data set in three parts, read to the CPU; parts of a sparse matrix are `SparseRows`. NaN marks a missing value.

    Attributes:
        name: The data set's name.
        train: (example, feature) float32. If `dynamic`, probabilities in [0, 1] of bits that
            `discrete_vae.data.batches.TrainingBatches` draws afresh in each step; otherwise the values themselves.
        valid: (example, feature) float32, the same in every run; bits if the data set is dynamic.
        test: (example, feature) float32, the same in every run; bits if the data set is dynamic.
        event_shape: Shape of an example: (feature,) for a table, (channel, row, column) for images, whose features go
            channel by channel and row by row from the top left.
        dynamic: Whether `train` holds probabilities.
        description: Source, version, split and how values are read.
        labels: Labels of the examples by part, (example, ...) arrays, for parts that have some. A model with classes
            learns from those of the training part: words with `ModelConfig.class_names`, "" where a label is not known,
            else integers, -1 where it is not.
        schema: How the columns of a table became numbers; None for values as they stand in a file.
        weights: How often the population has each example, by part, (example,) from 0, up to a common factor; parts
            without weights count each example alike. Examples of weight 0 are left out of the part.
        conditions: c of p(x | c) by part, (example, column) float32 with NaN for missing values, the columns those of
            `ModelConfig.condition`; empty where nothing is conditioned on.
    """

    name: str
    train: Examples
    valid: Examples
    test: Examples
    event_shape: tuple[int, ...]
    dynamic: bool
    description: DatasetDescription
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    schema: TableSchema | None = None
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    conditions: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.weights:
            self._leave_out_weightless()
        sizes = {part: len(getattr(self, part)) for part in PARTS}
        if sizes["train"] < 2 or min(sizes.values()) < 1:  # batch normalization needs the spread of two
            rule = "must have at least two examples to train on, and one each for validation and test"
            received = ", ".join(f"{count} in {part}" for part, count in sizes.items())
            raise InvalidInputError(f"data set {self.name}", rule, received, "Divide them otherwise.")
        if math.prod(self.event_shape) != self.num_features:
            rule = f"must have {self.num_features} values, as the examples have"
            raise InvalidInputError("event_shape", rule, self.event_shape, "For a table: (feature,).")

    def _leave_out_weightless(self) -> None:
        weights: dict[str, np.ndarray] = {}
        for part, given in self.weights.items():
            if part not in PARTS:
                rule = f"must be of {', '.join(PARTS)}"
                raise InvalidInputError("weights", rule, repr(part)[:80], "Rename it.")
            weights[part] = check_weights(f"weights of the part {part!r}", given, len(getattr(self, part)))
        object.__setattr__(self, "weights", weights)  # of a frozen record
        kept = {part: np.flatnonzero(own) for part, own in weights.items() if not own.all()}
        for name, value in self._some_of(kept).items():
            object.__setattr__(self, name, value)

    def _some_of(self, kept: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Fields with some examples of parts, in `kept` by their places, (example,), and what goes with them."""
        fields: dict[str, Any] = {part: select(getattr(self, part), rows) for part, rows in kept.items()}
        for name in ("weights", "labels", "conditions"):
            of_parts = getattr(self, name).items()
            fields[name] = {part: own[kept[part]] if part in kept else own for part, own in of_parts}
        return fields

    @property
    def num_features(self) -> int:
        """Features of one example."""
        return self.train.shape[1]

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(height, width) of the picture of an example, channels one below the other; None for a table."""
        return picture_shape(self.event_shape)

    @cached_property
    def summaries(self) -> dict[str, ValueSummary]:
        """Summary of each part's values; of the bits that are drawn to train on, if the data set is dynamic."""
        found = {part: summarize(getattr(self, part)) for part in PARTS}
        if self.dynamic:
            found["train"] = replace(found["train"], whole=True)
        return found


def check_weights(name: str, weights: object, num_examples: int) -> np.ndarray:
    """Check weights of examples: finite, none negative, not all 0; returns them as (example,) float64."""
    repair = "Give one number from 0 for each example; those of weight 0 are left out."
    try:
        found = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(name, "must be numbers", f"{weights!r}"[:80], repair) from None
    if found.shape != (num_examples,):
        rule = f"must be ({num_examples},), one for each example"
        raise InvalidInputError(name, rule, f"shape {found.shape}", repair)
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        place = int(wrong.argmax())
        received = f"{found[place]:g} for example {place}"
        raise InvalidInputError(name, "must be finite weights of at least 0", received, repair)
    if not found.any():
        raise InvalidInputError(name, "must hold a weight that is not zero", "zeros alone", repair)
    return found


def effective_number(weights: _Weights) -> float:
    """The number of equally weighted examples whose mean is as uncertain: (sum w)^2 / sum w^2.

    It lies between 1 and the number of examples.

    Source: Kish 1965, "Survey Sampling".

    Examples:
        >>> effective_number(np.array([1.0, 1.0, 2.0]))
        2.6666666666666665
    """
    weights = rescaled(weights)
    return float(weights.sum() ** 2 / (weights**2).sum())


def rescaled(weights: _Weights) -> _Weights:
    """Weights over the power of two that brings the largest to [1, 2): of the same digits, with squares in range."""
    return weights / 2.0 ** (math.frexp(float(weights.max()))[1] - 1)


def summarize(x: Examples) -> ValueSummary:
    """Range of the observed values of x, (example, ...), whether all are whole, and how many are missing (NaN)."""
    total = ValueSummary(math.inf, -math.inf, True)
    if isinstance(x, SparseRows):
        stored = x.values
        num_zeros = x.size - len(stored)
        zeros = ValueSummary(0.0, 0.0, True, 0, num_zeros) if num_zeros else total
        return summarize(stored) + zeros
    for rows in x.split(_ROWS):
        missing = rows.isnan()
        count = int(missing.sum())
        seen = rows[~missing] if count else rows
        if seen.numel():
            low, high = (float(value) for value in torch.aminmax(seen))
            whole = bool((seen == seen.trunc()).all()) and math.isfinite(high - low)
            total += ValueSummary(low, high, whole)
        total += ValueSummary(math.inf, -math.inf, True, count, rows.numel())
    return total


def picture_shape(event_shape: tuple[int, ...]) -> tuple[int, int] | None:
    """(height, width) of the picture of an example, channels one below the other; None for a row of a table."""
    return (event_shape[0] * event_shape[1], event_shape[2]) if len(event_shape) == 3 else None


# Draws that stay the same on every machine and in every release: splits, epochs and evaluation bits. They read the raw
# words of Philox4x64, whose stream NumPy keeps fixed for good, unlike the distributions on top of it.

BIT_KEYS = {"train": 0, "valid": 1, "test": 2}
"""Keys of `fixed_bits` by part."""


def fixed_permutation(length: int, seed: int, *key: int) -> np.ndarray:
    """A permutation of the numbers from 0 to length - 1, (length,) int64, that depends on its arguments alone.

    Examples:
        >>> fixed_permutation(5, 0).tolist()
        [3, 2, 0, 4, 1]
    """
    return np.argsort(_words(seed, *key).random_raw(length), kind="stable")


def shuffled_rows(num_examples: int, num_test: int, num_valid: int, seed: int) -> list[np.ndarray]:
    """Rows of the test, the validation and the training examples of an array that is cut, in this order."""
    return np.split(fixed_permutation(num_examples, seed), [num_test, num_test + num_valid])


def fixed_bits(probabilities: np.ndarray, seed: int, *key: int) -> np.ndarray:
    """Binarize once and for all: each value, in [0, 1], becomes 1 with the probability that it states; NaN stays.

    Examples:
        >>> fixed_bits(np.array([0.0, 0.5, 0.5, 1.0]), 0).tolist()
        [0.0, 0.0, 1.0, 1.0]
    """
    flat, words = probabilities.reshape(-1), _words(seed, *key)
    bits = np.empty(flat.shape, np.float32)
    for first in range(0, flat.size, _BLOCK):
        p = flat[first : first + _BLOCK]
        bits[first : first + _BLOCK] = np.where(np.isnan(p), np.nan, _uniforms(words, len(p)) < p)
    return bits.reshape(probabilities.shape)


def fixed_uniforms(count: int, seed: int, *key: int) -> np.ndarray:
    """Uniform numbers in [0, 1), (count,) float64, that depend on the arguments alone."""
    return _uniforms(_words(seed, *key), count)


_BLOCK = 1 << 22  # bits that are drawn at a time


def _uniforms(words: np.random.Philox, count: int) -> np.ndarray:
    return (words.random_raw(count) >> np.uint64(11)) * 2.0**-53


def _words(seed: int, *key: int) -> np.random.Philox:
    return np.random.Philox(key=key_to_seed(seed, *key))


# Fixed random choices of examples.


_TRAINING_STREAM = 0x63686F73656E


def training_subset(dataset: DataSplits, training: TrainingConfig) -> DataSplits:
    """The data set with the `num_examples` and `num_validation_examples` of a config; None takes all.

    The choice depends on the numbers alone, so a resumed run sees the same examples; their order is kept, choosing
    again changes nothing, and the test part stays.
    """
    kept: dict[str, np.ndarray] = {}
    for part, setting in (("train", "num_examples"), ("valid", "num_validation_examples")):
        length, count = len(getattr(dataset, part)), getattr(training, setting)
        if count not in (None, length):
            kept[part] = _choice(f"training.{setting}", length, count, _TRAINING_STREAM)
    return replace(dataset, **dataset._some_of(kept))


def subset_indices(length: int, number: int | None, *, argument: str = "num_examples") -> np.ndarray:
    """The numbers of the examples of a part to look at: all, or a choice that no seed changes.

    So evaluations with other seeds differ in their noise alone. A smaller choice is part of every larger one.

    Examples:
        >>> subset_indices(100, 3).tolist()
        [30, 33, 45]
    """
    return _choice(argument, length, number)


def _choice(argument: str, length: int, number: int | None, *key: int) -> np.ndarray:
    if number is not None and number > length:
        rule = f"must be at most the {length} examples that there are"
        raise InvalidInputError(argument, rule, number, "Leave it out for all of them.")
    return np.sort(fixed_permutation(length, 0, *key)[:number])


@dataclass(frozen=True)
class DataMetadata:
    """Facts of its data that a run keeps, so that its pictures are drawn where the data are not."""

    event_shape: tuple[int, ...]  # shape of an example, as `DataSplits` has it
    low: float  # the least value of the test part; 0 if none is observed
    high: float  # the greatest; 1 if none is observed

    @classmethod
    def of(cls, dataset: DataSplits) -> Self:
        """Metadata of a data set."""
        test = dataset.summaries["test"]
        return cls(dataset.event_shape, *((test.low, test.high) if test.low <= test.high else (0.0, 1.0)))

    @classmethod
    def read(cls, environment: Mapping[str, Any]) -> Self | None:
        """Metadata in a run's environment; None where there is none, as in runs of earlier versions."""
        fields = environment.get("data", {}).get("picture")
        if fields is None:
            return None
        return cls(tuple(fields["event_shape"]), float(fields["low"]), float(fields["high"]))

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(height, width) of the picture of an example; None for a table."""
        return picture_shape(self.event_shape)

    @property
    def num_features(self) -> int:
        """Features of one example."""
        return math.prod(self.event_shape)


def describe_data(dataset: DataSplits) -> dict[str, Any]:
    """Entry of ``environment.json`` about a run's data, as JSON can express it."""
    picture = asdict(DataMetadata.of(dataset)) | {"event_shape": list(dataset.event_shape)}
    weighted = {part: effective_number(weights) for part, weights in dataset.weights.items()}
    more = {"effective_examples": weighted} if weighted else {}
    return {"name": dataset.name, **asdict(dataset.description), **more, "picture": picture}


def data_sum(run: RunDirectory) -> str | None:
    """SHA-256 of the file that a run was trained on, if that is known."""
    return run.read_environment().get("data", {}).get("sha256")


def load_run_data(
    run: RunDirectory, config: ExperimentConfig, data_dir: str | Path | None = None
) -> DataSplits:
    """Read the data of a run, of which this is the config; warns if they are not those that it was trained on."""
    dataset = load_data(config, data_dir)
    warn_of_other_data(run, dataset)
    return dataset


def warn_of_other_data(run: RunDirectory, dataset: DataSplits) -> None:
    """Warn where data are not those that a run was trained on."""
    trained = data_sum(run)
    if trained is not None and trained != dataset.description.sha256:
        warnings.warn(
            f"the data ({dataset.description.source}) are not those that the run was trained on: their SHA-256 is "
            f"{dataset.description.sha256}, not {trained}. Test examples may be among those trained on.",
            stacklevel=2,
        )


# Likelihoods that can read the values.


def check_domain(name: str, domain: Domain, values: ValueSummary, more: str = "") -> None:
    """Check that values lie in a domain; `more` ends the rule of the message."""
    if not domain.holds(values):
        raise InvalidInputError(name, f"{domain.rule}{more}", values, domain.repair_of(values))


def check_compatible(model: ModelConfig, dataset: DataSplits) -> None:
    """Check that a model's likelihood reads a data set's values, and that the model takes what is missing.

    Training may see more than validation and test, whose values must have a probability: probabilities of bits, say.
    """
    for part in PARTS:
        _check_part(model.likelihood, dataset, part)
        _check_condition(model, dataset, part)
    for part, values in dataset.summaries.items():
        if values.num_missing and not model.missing:
            repair = "Set --model.missing true for a model that reads which values are there."
            received = f"{values.num_missing} of {values.num_values}"
            raise InvalidInputError(_name(dataset, part), "must have no missing values", received, repair)


def _check_condition(model: ModelConfig, dataset: DataSplits, part: str) -> None:
    """Check that a part has the columns of the model's condition, or none as the model."""
    found = dataset.conditions.get(part)
    wanted = (len(getattr(dataset, part)), len(model.condition))
    shape, of_model = None if found is None else tuple(found.shape), wanted if model.condition else None
    if shape != of_model:
        rule = f"must be of shape {wanted}, as the model's condition" if of_model else "must be left out"
        repair = "Give the data and the model the same columns."
        raise InvalidInputError(f"{_name(dataset, part)} conditions", rule, shape or "none", repair)


def likelihood_for(kind: str, dataset: DataSplits) -> LikelihoodConfig:
    """The config of a likelihood for given data: its defaults, with what only the data can tell."""
    known = _likelihoods()
    if not isinstance(kind, str) or kind not in known:
        raise not_one_of("--model.likelihood", known, kind)
    config = known[kind].for_values(_all_values(dataset))
    for part in PARTS:
        _check_part(config, dataset, part, exact=False)
    return config


def _check_part(likelihood: LikelihoodConfig, dataset: DataSplits, part: str, *, exact: bool = True) -> None:
    values = dataset.summaries[part]
    domain = likelihood.domain(exact=exact and part != "train")
    if domain.holds(values):
        return
    others = _others(likelihood, dataset)
    repair = f"{others} {domain.repair_of(values)}"
    if likelihood.domain().holds(values):
        repair = f"If the values are probabilities of bits, draw these: --data.binarize true. {others}"
    rule = f"{domain.rule} to be read by --model.likelihood {likelihood.kind}"
    raise InvalidInputError(_name(dataset, part), rule, values, repair)


def _others(likelihood: LikelihoodConfig, dataset: DataSplits) -> str:
    """A sentence: the other likelihoods that can read the data, and what the rest needs."""
    values = _all_values(dataset)
    others = {kind: member for kind, member in _likelihoods().items() if kind != likelihood.kind}
    can = [kind for kind, member in others.items() if member.for_values(values).domain().holds(values)]
    cannot = [f"{kind} needs {member.reads}" for kind, member in others.items() if kind not in can]
    return "; ".join([f"{' and '.join(can) or 'No likelihood'} can read them", *cannot]) + "."


def _likelihoods() -> dict[str, Any]:
    return {kind: config for kind, config in by_kind(LikelihoodConfig).items() if config.is_choice}


def _all_values(dataset: DataSplits) -> ValueSummary:
    train, *others = dataset.summaries.values()
    return sum(others, train)


def _name(dataset: DataSplits, part: str) -> str:
    return f"{dataset.description.source}, part {part!r},"


def load_data(config: ExperimentConfig, data_dir: str | Path | None = None) -> DataSplits:
    """The data of an experiment; columns of a table are coded as its model reads them."""
    likelihood, given = config.model.likelihood, {}
    if isinstance(config.data, FileDataConfig):
        given["condition_columns"] = config.model.condition
        if isinstance(likelihood, TableLikelihoodConfig):
            given["columns"] = likelihood.columns
    return instantiate(config.data, data_dir=data_dir, **given)
