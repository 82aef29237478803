"""The figures that `dvae figure` draws, by name. Nothing here imports torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discrete_vae.figures.style import Drawing, FigureRequest


@dataclass(frozen=True)
class FigureEntry:
    """One figure.

    Attributes:
        place: Where the function is that makes it of a `FigureRequest`: module of this package, colon, name.
        about: What it shows, one line.
        min_runs: The fewest runs that it is drawn of.
        max_runs: The most; None is any number.
        has_sizes: Whether --size says how much is computed for it.
    """

    place: str
    about: str
    min_runs: int = 0
    max_runs: int | None = 0
    has_sizes: bool = False

    def make(self, request: FigureRequest) -> Drawing:
        """Make the table and the picture.

        Raises:
            InvalidInputError: If what the figure is drawn of is missing or damaged.
        """
        module, _, function = self.place.partition(":")
        return getattr(importlib.import_module(f"discrete_vae.figures.{module}"), function)(request)


def _of_a_run(place: str, about: str) -> FigureEntry:
    return FigureEntry(place, about, min_runs=1, max_runs=1)


FIGURES = {
    "training-curves": _of_a_run(
        "curves:make_training_curves", "ELBO, KL and beta in the course of training"
    ),
    "evolution": _of_a_run(
        "run:make_evolution", "samples along the chains of the prior (paper: figures 5, 11, 12, 13)"
    ),
    "reconstructions": _of_a_run(
        "run:make_reconstructions", "test examples beside what the model makes of them"
    ),
    "feature-statistics": _of_a_run(
        "run:make_feature_statistics",
        "means and correlations of features, in samples against test data",
    ),
    "log-partition-histogram": _of_a_run(
        "curves:make_log_partition_histogram",
        "spread of the estimates of log Z that dvae log-partition left (paper: figure 10)",
    ),
}
"""All figures, those of a run first."""
