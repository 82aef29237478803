"""The number of threads of a training run on the CPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from discrete_vae.model import count_weights

if TYPE_CHECKING:
    from discrete_vae.config import ExperimentConfig

SMALLEST_SHARED = 20_000_000
"""Weights times examples of a batch from which a training step is divided among threads.

Below it, the operations of a step are so short that waking a second thread takes what it gains.
"""


@contextmanager
def training_threads(config: ExperimentConfig, environment: dict[str, Any]) -> Iterator[None]:
    """Within the block, torch has the number of threads of the run; afterwards the number that it had.

    A small model trains on one thread. A resumed run goes on with the number that it began with, since sums round
    differently for another one. ``OMP_NUM_THREADS`` is the user's word and goes before both.

    Args:
        config: The experiment.
        environment: The resumed run's ``environment.json``; empty for a new run.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(_choose(config, environment.get("platform", {}).get("torch_threads"), before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _choose(config: ExperimentConfig, begun: int | None, own: int) -> int:
    if "OMP_NUM_THREADS" in os.environ:
        chosen = own
    elif begun is not None:
        chosen = min(begun, own)
    else:
        chosen = 1 if own > 1 and _is_small(config) else own
    if begun is not None and begun != chosen:
        print(
            f"The run began with {_count(begun)} and goes on with {chosen}: the same up to rounding, not bit for bit.",
            file=sys.stderr,
        )
    return chosen


def _is_small(config: ExperimentConfig) -> bool:
    return count_weights(config.model) * config.training.batch_size < SMALLEST_SHARED


def _count(threads: int) -> str:
    return f"{threads} thread{'s' * (threads != 1)}"
