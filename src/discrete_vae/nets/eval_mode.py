"""Evaluation mode for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Norms use their running statistics inside the block; every module has its own mode back after it.

    Args:
        module: What to switch, with all of its parts.
    """
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
