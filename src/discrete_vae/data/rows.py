"""Examples that a trained model is to be used on: a part of its data set, or a file that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from discrete_vae.config import ModelConfig
from discrete_vae.data.dataset import PARTS, DataSplits
from discrete_vae.data.fixed_draws import fixed_bits
from discrete_vae.data.float32 import as_float32
from discrete_vae.data.own_arrays import WHOLE, OwnArrays, read_own_arrays
from discrete_vae.data.summaries import summarize
from discrete_vae.data.table import NoFeatures, shown_names
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import allocating, check_memory
from discrete_vae.paths import user_path
from discrete_vae.records import ShowsShapes

_BITS_KEY = 2  # that of the test part: a file of the test examples alone gives the same bits
_REPAIR = "Give fewer examples, or use a machine with more memory."


@dataclass(frozen=True, eq=False, repr=False)
class Rows(ShowsShapes):
    """Examples on the CPU, which the model that they are for can read.

    Attributes:
        name: What messages call them.
        x: (row, feature) float32; NaN marks missing values.
        index: Numbers of the rows in their file or part, (row,) int64, ascending; they key the noise.
        columns: Names of the features; empty where they have none.
        labels: (row, ...); None where there are none.
        binarized: Whether x are bits that were drawn from probabilities.
    """

    name: str
    x: Tensor
    index: np.ndarray
    columns: tuple[str, ...] = ()
    labels: np.ndarray | None = None
    binarized: bool = False

    def __len__(self) -> int:
        return len(self.x)

    def chosen(self, places: np.ndarray) -> Rows:
        """Some of the rows.

        Args:
            places: Which, (row,) int64.
        """
        labels = None if self.labels is None else self.labels[places]
        return replace(self, x=self.x[places], index=self.index[places], labels=labels)


def rows_of_part(dataset: DataSplits, part: str = "test") -> Rows:
    """A part of a data set.

    Args:
        dataset: The data set.
        part: "train", "valid" or "test". Of probabilities to train on bits are drawn, as they are for the others.

    Raises:
        InvalidInputError: If there is no such part.

    Examples:
        >>> from discrete_vae.data.load import load_dataset
        >>> rows_of_part(load_dataset("digits")).x.shape
        torch.Size([250, 64])
    """
    if part not in PARTS:
        raise InvalidInputError("part", f"must be one of {', '.join(PARTS)}", repr(part), "Take test.")
    x, draws = getattr(dataset, part), part == "train" and dataset.dynamic
    return Rows(
        name=f"{dataset.description.source}, part {part!r},",
        x=_bits(x, 0) if draws else x,
        index=np.arange(len(x)),
        columns=dataset.description.columns,
        labels=dataset.labels.get(part),
        binarized=draws,
    )


def read_rows(
    path: str | Path,
    model: ModelConfig,
    *,
    part: str | None = None,
    columns: Sequence[str] = (),
    without: NoFeatures | None = None,
    binarization_seed: int = 0,
    missing: bool | None = None,
    argument: str = "path",
) -> Rows:
    """Read examples for a trained model, as training reads its own.

    Columns of a table are found by their names where the model's are known, in whatever order they stand. Where the
    likelihood takes bits, values between 0 and 1 are their probabilities, and bits are drawn once.

    Args:
        path: A .npy, .npz, .csv or .parquet file, see `discrete_vae.data.from_file.load_file`.
        model: The model's config: shape of an example, likelihood, whether values may be missing.
        part: Which part of a .npz file that has parts, "train", "valid" or "test"; None is test. A file without parts
            takes None alone, and is read whole.
        columns: Names of the features that the model knows, in its order; none where it knows none.
        without: Which columns of a table are no features; None means all are.
        binarization_seed: Seed of the bits.
        missing: Whether values may be missing; None is what the model says.
        argument: What messages call the path.

    Returns:
        The rows.

    Raises:
        InvalidInputError: If the file cannot be read, has no such part, or holds examples that the model cannot read.

    Examples:
        >>> import tempfile
        >>> from discrete_vae.config import RBMConfig
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/new.npy", np.eye(3))
        ...     rows = read_rows(f"{folder}/new.npy", ModelConfig(num_features=3, prior=RBMConfig()))
        >>> rows.x.shape, rows.index
        (torch.Size([3, 3]), array([0, 1, 2]))
    """
    file = user_path(argument, path)
    with allocating(str(file), _REPAIR):
        found = read_own_arrays(file, without)
        key, shape = _part(found, part, str(file)), found.event_shape
        array, name = found.examples[key], found.names[key]
        if found.columns and columns:  # what is too much or too little is said by its name
            array = array[:, _places(str(file), found.columns, columns)]
        else:
            _check_shape(name, shape, model)
            columns = columns or found.columns
        check_memory(str(file), 8 * array.size, _REPAIR, what="for its values in float32")
        x = torch.from_numpy(as_float32(name, array, columns))
        drawn = _check_values(model, x, name, missing=model.missing if missing is None else missing)
        return Rows(
            name=name,
            x=_bits(x, binarization_seed) if drawn else x,
            index=np.arange(len(x)),
            columns=tuple(columns),
            labels=found.labels.get(key),
            binarized=drawn,
        )


def _part(found: OwnArrays, part: str | None, name: str) -> str:
    """Which of a file's arrays is meant."""
    if WHOLE in found.examples:
        if part is None:
            return WHOLE
        repair = "Leave it out: all of its rows are taken."
        raise InvalidInputError(
            "part", f"must be left out for {name}, which has no parts", repr(part), repair
        )
    wanted = part or "test"
    if wanted not in found.examples:
        known = " or ".join(found.examples)
        raise InvalidInputError("part", f"must be {known} for {name}", repr(wanted), "Take one of them.")
    return wanted


def _check_shape(name: str, shape: tuple[int, ...], model: ModelConfig) -> None:
    """Check that examples have the model's shape; rows of as many values are images to a model of images."""
    wanted = model.shape
    flat = len(shape) == 1 or len(wanted) == 1
    if shape == wanted or (flat and math.prod(shape) == model.num_values):
        return
    rule = f"must have examples of {model.num_values} values, as the run's have, {wanted}"
    repair = "Give rows made as those that the run was trained on."
    raise InvalidInputError(name, rule, f"examples of shape {shape}", repair)


def _places(name: str, found: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where a table has the columns that a model reads."""
    places, known = {column: place for place, column in enumerate(found)}, set(wanted)
    lacks = [column for column in wanted if column not in places]
    if lacks:
        rule = f"must have the {len(wanted)} columns that the run was trained on"
        received = f"none of the name {lacks[0][:40]!r}"
        if len(lacks) > 1:
            received += f", and {len(lacks) - 1} more are missing"
        repair = f"Add or rename columns; those of the file are {shown_names(found)}."
        raise InvalidInputError(name, rule, received, repair)
    more = [column for column in found if column not in known]
    if more:
        rule, repair = "must have no columns but those that the run was trained on", "Leave them out"
        if len(more) == 1:
            repair = "Leave it out; if it holds labels, name it: --label-column"
        raise InvalidInputError(name, rule, shown_names(more), f"{repair}.")
    return [places[column] for column in wanted]


def _check_values(model: ModelConfig, x: Tensor, name: str, *, missing: bool) -> bool:
    """Check that a model reads these values; returns whether they are probabilities of what it reads."""
    values, domain = summarize(x), model.likelihood.domain()
    if not domain.holds(values):
        rule = f"{domain.rule}, which the run's {model.likelihood.kind} likelihood reads"
        raise InvalidInputError(name, rule, values, domain.repair_of(values))
    if values.num_missing and not missing:
        received = f"{values.num_missing} of {values.num_values}"
        repair = "Fill them, as dvae impute does, or train with gaps: --model.missing true."
        raise InvalidInputError(
            name, "must have no missing values, since the run has learned of none", received, repair
        )
    return not model.likelihood.domain(exact=True).holds(values)


def _bits(x: Tensor, seed: int) -> Tensor:
    """Bits drawn once from probabilities; missing values stay missing."""
    values = x.numpy()
    bits = fixed_bits(values, seed, _BITS_KEY)
    return torch.from_numpy(np.where(np.isnan(values), np.float32(np.nan), bits))
