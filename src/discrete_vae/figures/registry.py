"""The figures that `dvae figure` draws, by name. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discrete_vae.figures.style import Drawing, FigureRequest


@dataclass(frozen=True)
class FigureEntry:
    """One figure of a run.

    Attributes:
        place: The function that makes it of a `FigureRequest`: module of this package, colon, name.
        about: Its content, one line.
    """

    place: str
    about: str

    def make(self, request: FigureRequest) -> Drawing:
        """Make the table and the picture."""
        return resolve_name(f"discrete_vae.figures.{self.place}")(request)


FIGURES = {
    "training-curves": FigureEntry(
        "curves:make_training_curves", "ELBO, KL and beta in the course of training"
    ),
    "evolution": FigureEntry(
        "run:make_evolution", "samples along the chains of the prior (paper: figures 5, 11, 12, 13)"
    ),
    "reconstructions": FigureEntry(
        "run:make_reconstructions", "test examples beside what the model makes of them"
    ),
    "feature-statistics": FigureEntry(
        "run:make_feature_statistics", "means and correlations of features, in samples against test data"
    ),
    "columns": FigureEntry(
        "columns:make_column_distributions",
        "the distribution of each column, generated values beside the data's",
    ),
    "log-partition-histogram": FigureEntry(
        "curves:make_log_partition_histogram",
        "spread of the estimates of log Z that dvae log-partition left (paper: figure 10)",
    ),
}
"""All figures by name."""
