"""Probabilities of bits, read from a file, as a data set of bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from discrete_vae.data.dataset import DataSplits
from discrete_vae.data.parts import evaluation_part


def binarized(dataset: DataSplits, *, seed: int) -> DataSplits:
    """Draw the bits of the validation and test parts; those of the training part are drawn afresh in each step.

    Missing values stay missing, and a part of bits stays as it is.

    Args:
        dataset: Probabilities, (example, *event) or (example, feature).
        seed: Seed of the bits that the validation and test parts keep.

    Returns:
        The data set; dynamic if there are bits to draw in training.
    """
    parts = {"train": dataset.train, "valid": dataset.valid, "test": dataset.test}
    of_bits = {part: bool((torch.isnan(x) | (x == 0) | (x == 1)).all()) for part, x in parts.items()}
    train = "as in the file" if of_bits["train"] else "binarized afresh in each step"
    others = "as in the file" if of_bits["valid"] and of_bits["test"] else f"once with seed {seed}"
    return replace(
        dataset,
        valid=_drawn(dataset.valid, "valid", seed),
        test=_drawn(dataset.test, "test", seed),
        dynamic=not of_bits["train"],
        description=replace(dataset.description, values=f"train {train}, valid and test {others}"),
    )


def _drawn(x: Tensor, part: Literal["valid", "test"], seed: int) -> Tensor:
    values = x.numpy()
    bits = evaluation_part(values, part, binarization_seed=seed, shuffled=False).numpy()
    return torch.from_numpy(np.where(np.isnan(values), np.float32(np.nan), bits))
