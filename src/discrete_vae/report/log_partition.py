"""Estimates of log Z, repeated or by several methods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from discrete_vae.figures.log_partition_histogram import LogPartitionHistogram, histogram_of_result
from discrete_vae.report.charts.axis import Axis
from discrete_vae.report.charts.chart import Frame, chart
from discrete_vae.report.charts.marks import errors, level, steps
from discrete_vae.report.html import Markup, markup
from discrete_vae.report.numbers import shown
from discrete_vae.report.section import Section, Verdict, figure, verdict_line
from discrete_vae.report.source import ReportSource

_FEWEST_IN_BARS = 20
_FAR = 4.0  # standard errors


@dataclass(frozen=True)
class _Estimate:
    name: str
    value: float
    std_error: float


def log_partition(source: ReportSource) -> Section | None:
    """Repeats that `dvae log-partition` left, or the estimates of an evaluation; None without either."""
    if source.log_partitions is not None:
        return _repeats(histogram_of_result(source.log_partitions))
    if source.evaluation is not None:
        return _methods(source.evaluation["log_partition"])
    return None


def _repeats(found: LogPartitionHistogram) -> Section:
    value, error = found.value, found.std_error
    count, mean, stated = len(value), float(value.mean()), float(np.sqrt(np.square(error).mean()))
    spread = float(value.std(ddof=1)) if count > 1 else float("nan")
    truth = f"; the exact value is {shown(found.exact, 4)}" if found.exact is not None else ""
    words = f"spread {shown(spread, 4)} nats over {count} repeats, where the stated errors promise {shown(stated, 4)}"
    # a spread of n repeats is itself uncertain by about 1 / sqrt(2 (n - 1))
    bound = stated * (1 + _FAR / np.sqrt(2 * max(count - 1, 1)))
    verdict = Verdict(not spread > bound, f"{words}{truth}.") if count > 1 else None
    picture = _dots(found) if count < _FEWEST_IN_BARS else _bars(found, mean)
    reading = (
        f"Independent estimates of log Z, tuning included; the mean is {shown(mean, 4)} nats. Healthy: they "
        "spread as their stated errors say. Sick: far more, or away from the exact value (dashed, where it is "
        f"known). Here {words}{truth}."
    )
    body = markup(verdict_line(verdict) if verdict else None, figure(picture, reading))
    return Section("log-partition", "log Z", body, verdict)


def _dots(found: LogPartitionHistogram) -> Markup:
    number = np.arange(1, len(found.value) + 1)
    ends = [*(found.value - found.std_error), *(found.value + found.std_error)]
    y = Axis.around([*ends, *([] if found.exact is None else [found.exact])], "log Z (nats)")

    def draw(frame: Frame) -> Iterator[Markup]:
        if found.exact is not None:
            yield level(frame, found.exact, "s3 dash")
        yield from errors(frame, number, found.value.tolist(), found.std_error.tolist(), "s1")

    x = Axis(0.5, len(number) + 0.5, "repeat", whole=True)
    label = (
        f"{len(number)} estimates of log Z with standard errors, mean {shown(float(found.value.mean()), 4)}"
    )
    return chart(x, y, draw, label=label, legend=_legend(found), height=190)


def _bars(found: LogPartitionHistogram, mean: float) -> Markup:
    edges = np.histogram_bin_edges(found.value, bins=min(20, round(1.3 * len(found.value) ** 0.5)))
    shares = np.histogram(found.value, edges)[0] / len(found.value)
    margin = 0.5 * float(edges[1] - edges[0])
    x = Axis(float(edges[0]) - margin, float(edges[-1]) + margin, "log Z (nats)")

    def draw(frame: Frame) -> Iterator[Markup]:
        yield steps(frame, edges, shares, "s1")

    label = f"Histogram of {len(found.value)} estimates of log Z, mean {shown(mean, 4)}"
    return chart(x, Axis.around(shares, "share of the estimates", zero=True), draw, label=label, height=190)


def _methods(found: dict[str, Any]) -> Section:
    given = [found[name] for name in ("best", "forward", "reverse") if found.get(name) is not None]
    methods = [_Estimate(each["method"], each["value"], each["std_error"]) for each in given]
    best, verdict, words = methods[0], None, ""
    if len(methods) > 1:
        apart = max(
            abs(each.value - best.value) / (np.hypot(each.std_error, best.std_error) or 1.0)
            for each in methods[1:]
        )
        words = f"annealing differs from {best.name} by at most {shown(float(apart), 1)} standard errors"
        verdict = Verdict(bool(apart <= _FAR), f"{words}.")
    ends = [each.value + sign * each.std_error for each in methods for sign in (-1, 1)]
    y = Axis.around(ends, "log Z (nats)", span=0.01)
    number = np.arange(1, len(methods) + 1)

    def draw(frame: Frame) -> Iterator[Markup]:
        yield from errors(frame, number, [m.value for m in methods], [m.std_error for m in methods], "s1")

    said = "; ".join(
        f"{n}: {m.name}, {shown(m.value, 4)} ± {shown(m.std_error, 4)}" for n, m in enumerate(methods, 1)
    )
    reading = (
        f"log Z by independent methods, with standard errors. {said}. Healthy: the bars overlap. Sick: far "
        f"apart, as where chains miss a mode{f'; here {words}' if words else ''}. dvae log-partition RUN "
        "--repeats 20 adds a histogram."
    )
    x = Axis(0.5, len(methods) + 0.5, "method", whole=True)
    picture = chart(x, y, draw, label=f"Estimates of log Z. {said}", height=190)
    body = markup(verdict_line(verdict) if verdict else None, figure(picture, reading))
    return Section("log-partition", "log Z", body, verdict)


def _legend(found: LogPartitionHistogram) -> list[tuple[str, str]]:
    exact = [("s3 dash", "exact value")] if found.exact is not None else []
    return [("s1 round", "estimate with standard error"), *exact] if exact else []
