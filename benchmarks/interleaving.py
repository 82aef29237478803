"""Times of several calls that take turns, so that a slow minute hits all of them."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds_of(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def interleaved(calls: dict[str, Callable[[], object]], *, seconds: float) -> dict[str, list[float]]:
    """Seconds of each call; one of each, round after round, after two rounds that do not count."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in [*calls.values()] * 2:
        call()
    end = time.monotonic() + seconds
    while time.monotonic() < end or min(map(len, times.values())) < 5:
        for name, call in calls.items():
            times[name].append(seconds_of(call))
    return times
