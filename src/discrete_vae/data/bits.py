"""Data sets of bits: published ones, and images whose intensities are probabilities of bits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from discrete_vae.data.dataset import PARTS, DatasetDescription, DataSplits
from discrete_vae.data.parts import evaluation_part, of_part, training_part


def dataset_of_bits(
    name: str,
    parts: Mapping[str, np.ndarray],
    *,
    event_shape: tuple[int, ...],
    source: str,
    version: str,
    split: str,
    sha256: str | None,
    binarization_seed: int | None = None,
    labels: Mapping[str, np.ndarray] | None = None,
) -> DataSplits:
    """Make a data set of rows of bits, or of probabilities of bits.

    Probabilities to train on are binarized afresh in each step, those of the validation and test parts once. These two
    stand in a fixed random order.

    Args:
        name: The data set's name.
        parts: (example, feature) arrays "train", "valid" and "test", in {0, 1}, or in [0, 1] with a seed.
        event_shape: Shape of an example.
        source: Where the values come from.
        version: Which version of them this is.
        split: How the parts were made, behind their sizes.
        sha256: Sum of the file that was read; None if there is none.
        binarization_seed: Seed of the bits that the validation and test parts keep; None for bits.
        labels: (example,) of the parts that have some, in the order of `parts`.

    Returns:
        The data set; dynamic if it has a seed.
    """
    drawn = f"train binarized afresh in each step, valid and test once with seed {binarization_seed}"
    return DataSplits(
        name=name,
        train=training_part(parts["train"]),
        valid=evaluation_part(parts["valid"], "valid", binarization_seed=binarization_seed),
        test=evaluation_part(parts["test"], "test", binarization_seed=binarization_seed),
        event_shape=event_shape,
        dynamic=binarization_seed is not None,
        description=DatasetDescription(
            source=source,
            version=version,
            split=f"{'/'.join(str(len(parts[part])) for part in PARTS)}{split}",
            values="bits as published" if binarization_seed is None else drawn,
            sha256=sha256,
        ),
        labels={part: of_part(part, found) for part, found in (labels or {}).items()},
    )
