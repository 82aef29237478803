"""The record of a data set."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from discrete_vae.errors import InvalidInputError


@dataclass(frozen=True)
class DatasetDescription:
    """Where a data set comes from and how it was cut, in words that a report can print.

    Attributes:
        source: Where the values come from.
        version: Which version of them this is.
        split: How the three parts were made.
        binarisation: How the values became bits.
        sha256: Sum of the file that was read; None if there is none.
    """

    source: str
    version: str
    split: str
    binarisation: str
    sha256: str | None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in three parts, on the CPU.

    Attributes:
        name: The data set's name.
        train: (example, feature) float32. If `dynamic`, probabilities in [0, 1] to be binarised afresh in
            each step, as `discrete_vae.data.batches.TrainingBatches` does; otherwise bits in {0, 1}.
        valid: (example, feature) float32 bits in {0, 1}, the same in every run.
        test: (example, feature) float32 bits in {0, 1}, the same in every run.
        image_shape: (height, width) of an example, whose features go row by row from the top left; None if
            the examples are no images.
        dynamic: Whether `train` holds probabilities.
        description: Source, version, split and binarisation.

    Raises:
        InvalidInputError: If a part has no example, or the training part only one.
    """

    name: str
    train: Tensor
    valid: Tensor
    test: Tensor
    image_shape: tuple[int, int] | None
    dynamic: bool
    description: DatasetDescription

    def __post_init__(self) -> None:
        sizes = {part: len(getattr(self, part)) for part in ("train", "valid", "test")}
        if sizes["train"] < 2 or min(sizes.values()) < 1:  # batch normalisation needs the spread of two
            rule = "must have at least two examples to train on, and one each for validation and test"
            received = ", ".join(f"{count} in {part}" for part, count in sizes.items())
            repair = "Add examples, or divide them otherwise."
            raise InvalidInputError(f"data set {self.name}", rule, received, repair)

    @property
    def num_features(self) -> int:
        """Features of one example."""
        return self.train.shape[1]
