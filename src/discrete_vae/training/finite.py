"""Errors that name what is not finite, and the last good checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence

from discrete_vae.errors import NonFiniteLossError
from discrete_vae.nets.finite_weights import non_finite_weight as _first_of_module
from discrete_vae.runs.checkpoint_store import CheckpointStore
from discrete_vae.training.state import TrainingState


def check_finite(metrics: dict[str, float], step: int, store: CheckpointStore | None) -> None:
    """Check the metrics of a step.

    Raises:
        NonFiniteLossError: If one is not finite.
    """
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise NonFiniteLossError(step, name, value, _last(store))


def non_finite_term(means: Sequence[float], step: int, store: CheckpointStore | None) -> NonFiniteLossError:
    """The error that names the first term that is not finite.

    Args:
        means: Of reconstruction, kl_discrete and kl_continuous over the batch.
        step: The step.
        store: Where the last good checkpoint is.
    """
    terms = zip(("reconstruction", "kl_discrete", "kl_continuous"), means, strict=True)
    name, value = next((name, value) for name, value in terms if not math.isfinite(value))
    return NonFiniteLossError(step, name, value, _last(store))


def non_finite_weight(state: TrainingState, store: CheckpointStore | None) -> NonFiniteLossError | None:
    """The error that names the first weight that is not finite; None if all are."""
    found = _first_of_module(state.model)
    if found is None:
        return None
    name, value = found
    return NonFiniteLossError(state.step, f"the weight {name}", value, _last(store))


def _last(store: CheckpointStore | None) -> int | None:
    steps = [] if store is None else store.steps()
    return steps[-1] if steps else None
