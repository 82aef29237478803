"""From arrays to the three parts of a data set."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from discrete_vae.data.fixed_draws import fixed_bits, fixed_permutation
from discrete_vae.errors import InvalidInputError

_PART_KEYS = {"valid": 1, "test": 2}
_ORDER_SEED = 0


def as_rows(images: np.ndarray) -> np.ndarray:
    """Flatten 8-bit images row by row and divide by 255.

    Args:
        images: (example, ...) uint8.

    Returns:
        (example, feature) float32 in [0, 1].

    Examples:
        >>> as_rows(np.array([[[0, 255], [51, 0]]], dtype=np.uint8)).tolist()
        [[0.0, 1.0, 0.20000000298023224, 0.0]]
    """
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)


def evaluation_part(
    rows: np.ndarray, part: Literal["valid", "test"], *, binarization_seed: int | None, shuffled: bool = True
) -> Tensor:
    """Make a validation or test part: binarized once, in a fixed random order.

    Published files are often sorted by class or by writer, so their first rows are no fair subset; after the
    shuffle (seed 0, whatever the other seeds) they are.

    Args:
        rows: (example, feature) in [0, 1].
        part: Which part; the two draw different bits.
        binarization_seed: Seed of the bits; None if the rows hold bits already.
        shuffled: Whether to shuffle; a user's own order is kept.

    Returns:
        (example, feature) float32 in {0, 1}.

    Examples:
        >>> evaluation_part(np.array([[0.0, 1.0], [1.0, 1.0]]), "test", binarization_seed=0).tolist()
        [[1.0, 1.0], [0.0, 1.0]]
    """
    key = _PART_KEYS[part]
    bits = rows if binarization_seed is None else fixed_bits(rows, binarization_seed, key)
    if shuffled:
        bits = of_part(part, bits)
    return torch.from_numpy(np.ascontiguousarray(bits, dtype=np.float32))


def of_part(part: str, rows: np.ndarray) -> np.ndarray:
    """Bring what belongs to the examples of a part, labels for example, into the order that the part stands in.

    Args:
        part: "train", whose order is kept, "valid" or "test".
        rows: (example, ...).
    """
    key = _PART_KEYS.get(part)
    return rows if key is None else rows[fixed_permutation(len(rows), _ORDER_SEED, key)]


def training_part(rows: np.ndarray) -> Tensor:
    """Make a training part of rows in [0, 1]: (example, feature) float32, in the order given.

    Examples:
        >>> training_part(np.array([[0.5, 1.0]]))
        tensor([[0.5000, 1.0000]])
    """
    return torch.from_numpy(np.ascontiguousarray(rows, dtype=np.float32))


def check_leaves_examples(name: str, held_out: int, available: int) -> None:
    """Refuse to hold out so many examples that none is left to train on.

    Args:
        name: Name of the setting.
        held_out: How many it holds out, with all others.
        available: How many there are.

    Raises:
        InvalidInputError: If none is left.

    Examples:
        >>> check_leaves_examples("num_valid", 10, 10)
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: num_valid must leave examples to train on; received 10 held out
        of 10...
    """
    if held_out >= available:
        received = f"{held_out} held out of {available}"
        raise InvalidInputError(name, "must leave examples to train on", received, "Hold out fewer.")
