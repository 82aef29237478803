"""Errors that name what is not finite, and the last good checkpoint."""

from __future__ import annotations

import math

from discrete_vae.errors import NonFiniteLossError
from discrete_vae.nets.finite_weights import non_finite_weight as _first_of_module
from discrete_vae.objectives.elbo import Elbo
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


def non_finite_term(elbo: Elbo, step: int, store: CheckpointStore | None) -> NonFiniteLossError:
    """The error that names the first term that is not finite."""
    for term in ("reconstruction", "kl_discrete", "kl_continuous"):
        value = float(getattr(elbo, term).detach().mean())
        if not math.isfinite(value):
            return NonFiniteLossError(step, term, value, _last(store))
    return NonFiniteLossError(step, "the sum of the terms", math.inf, _last(store))


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
