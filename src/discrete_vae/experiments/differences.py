"""Where two experiments differ, in the words of the command line."""

from __future__ import annotations

from typing import Any

from discrete_vae.config import ExperimentConfig


def first_difference(before: ExperimentConfig, after: ExperimentConfig) -> tuple[str, object, object]:
    """The option of the first value that differs, and the two values.

    Args:
        before: One experiment.
        after: Another one, not the same.

    Examples:
        >>> from discrete_vae.experiments import load_experiment
        >>> first_difference(load_experiment("digits", "smoke"), load_experiment("digits", "short"))
        ('--size', 'smoke', 'short')
    """
    return _first(before.model_dump(), after.model_dump())


def _first(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, object, object]:
    name = next(name for name in after if before.get(name) != after[name])
    one, other = before.get(name), after[name]
    if isinstance(one, dict) and isinstance(other, dict):
        option, one, other = _first(one, other)
        return f"--{name.replace('_', '-')}.{option.removeprefix('--')}", one, other
    return "EXPERIMENT" if name == "name" else f"--{name.replace('_', '-')}", one, other
