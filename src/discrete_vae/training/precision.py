"""In which precision a run computes the products of its networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from discrete_vae.config import ExperimentConfig
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.precision import DTYPES, gains_by_bfloat16, has_fast_bfloat16

KEY = "precision"
"""Where ``environment.json`` says which one a run began with."""


@dataclass(frozen=True)
class Precision:
    """A choice and its ground.

    Attributes:
        name: ``float32`` or ``bfloat16``.
        reason: Why, in words that go on after "products in float32: ".
    """

    name: str
    reason: str

    @property
    def dtype(self) -> torch.dtype:
        """What products are computed in."""
        return DTYPES[self.name]


def choose_precision(
    config: ExperimentConfig, *, device: torch.device | str, begun: Mapping[str, Any] | None = None
) -> Precision:
    """What ``training.precision`` means for a run on a device.

    ``auto`` is bfloat16 where the device has instructions for it and networks and minibatches are large enough to gain,
    else float32. A run that has begun goes on in the precision that it began with, wherever that is.

    Args:
        config: The experiment.
        device: Where it computes.
        begun: The ``environment.json`` of a run that has begun; empty or None for a new run.
    """
    asked = config.training.precision
    fast = has_fast_bfloat16(device)
    if asked != "auto":
        slow = asked == "bfloat16" and not fast
        return Precision(asked, "as asked for" + (", though this processor is slow at it" if slow else ""))
    if begun:
        name = begun.get(KEY, "float32")  # what runs had before there was a choice
        return Precision(name, "as the run began")
    if not fast:
        return Precision("float32", "this processor has no instructions for bfloat16")
    with torch.device("meta"):
        gains = gains_by_bfloat16(DiscreteVAE.from_config(config.model), config.training.batch_size)
    if gains:
        return Precision("bfloat16", "the products are large, and the processor has instructions for it")
    return Precision("float32", "products as small as these gain nothing by bfloat16")
