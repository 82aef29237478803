"""The record of a data set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from torch import Tensor

from discrete_vae.data.summaries import summarize
from discrete_vae.domains import ValueSummary
from discrete_vae.errors import InvalidInputError
from discrete_vae.records import ShowsShapes

PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class DatasetDescription:
    """Where a data set comes from and how it was cut, in words that a report can print.

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
    """A data set in three parts, on the CPU. NaN marks a missing value.

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
        labels: Labels of the examples by part, (example, ...) arrays, for parts that have some; not used in training.

    Raises:
        InvalidInputError: If a part has no example, or the training part only one, or the event shape has another
            number of values.
    """

    name: str
    train: Tensor
    valid: Tensor
    test: Tensor
    event_shape: tuple[int, ...]
    dynamic: bool
    description: DatasetDescription
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = {part: len(getattr(self, part)) for part in PARTS}
        if sizes["train"] < 2 or min(sizes.values()) < 1:  # batch normalization needs the spread of two
            rule = "must have at least two examples to train on, and one each for validation and test"
            received = ", ".join(f"{count} in {part}" for part, count in sizes.items())
            repair = "Add examples, or divide them otherwise."
            raise InvalidInputError(f"data set {self.name}", rule, received, repair)
        if math.prod(self.event_shape) != self.num_features:
            rule = f"must have {self.num_features} values, as the examples have"
            raise InvalidInputError("event_shape", rule, self.event_shape, "For a table: (feature,).")

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
        """What each part's values are; those to train on are the bits that are drawn, if the data set is dynamic."""
        found = {part: summarize(getattr(self, part)) for part in PARTS}
        if self.dynamic:
            drawn = found["train"]
            found["train"] = ValueSummary(drawn.low, drawn.high, True, drawn.num_missing, drawn.num_values)
        return found


def picture_shape(event_shape: tuple[int, ...]) -> tuple[int, int] | None:
    """(height, width) of the picture of an example, channels one below the other; None for a row of a table.

    Examples:
        >>> picture_shape((3, 28, 20)), picture_shape((12,))
        ((84, 20), None)
    """
    if len(event_shape) != 3:
        return None
    channels, height, width = event_shape
    return channels * height, width
