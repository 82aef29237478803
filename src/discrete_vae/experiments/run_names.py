"""The folder that a run goes to when none is named."""

from __future__ import annotations

import hashlib
import re
from functools import cache

from discrete_vae.experiments.overrides import Override, check_known
from discrete_vae.experiments.settings import settings, slots

_MAX_LENGTH, _DIGEST = 80, 8  # characters


def run_name(base: str, seed: int | None, overrides: list[Override]) -> str:
    """A run's name: what it is based on, then what was set on the command line.

    The same settings give the same name in whatever order they were given. A name that would be long, or would lose
    what a file name cannot hold, ends in a digest of the settings.

    Args:
        base: Experiment and size.
        seed: Its seed, if one was given.
        overrides: Pairs of a setting's path and its values.

    Raises:
        InvalidInputError: If a path is no setting's.

    Examples:
        >>> run_name("digits-short", 3, [("training.num-epochs", ["5"]), ("model.smoothing", ["spike-slab"])])
        'digits-short-smoothing-spike-slab-num-epochs-5-seed-3'
    """
    for path, _ in overrides:
        check_known(path)
    chosen = {
        path: " ".join(values) or "empty" for path, values in overrides
    }  # of a setting given twice the last counts
    parts = [(_short_names()[path], chosen[path]) for path in sorted(chosen)]
    parts += [("seed", str(seed))] if seed is not None else []
    said = "".join(f"-{name}-{_safe(value)}" for name, value in parts)
    complete = all(_safe(value) == value.replace(" ", "-") for _, value in parts)
    if len(base) + len(said) > _MAX_LENGTH or not complete:
        kept = said[: max(0, _MAX_LENGTH - _DIGEST - 1 - len(base))].rstrip("-.")
        exact = repr([(path, chosen[path]) for path in sorted(chosen)] + [seed])
        said = f"{kept}-{hashlib.sha256(exact.encode()).hexdigest()[:_DIGEST]}"
    return base + said


def _safe(value: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+-]+|[.]{2,}", "-", value).strip("-.")


@cache
def _short_names() -> dict[str, str]:
    """For each setting as many of its last parts as tell it from all others."""
    known = sorted({*slots(), *settings()})
    endings = {
        path: ["-".join(path.split(".")[-n:]) for n in range(1, path.count(".") + 2)] for path in known
    }
    counts: dict[str, int] = {}
    for ending in (ending for found in endings.values() for ending in found):
        counts[ending] = counts.get(ending, 0) + 1
    return {
        path: next(end for end in found if counts[end] == 1 or end == found[-1])
        for path, found in endings.items()
    }
