"""The tables and figures of the paper that `python -m reproduction` makes, by name. Nothing here imports torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reproduction.wanted import Reproduction


@dataclass(frozen=True)
class ReproductionEntry:
    """One table or figure.

    Attributes:
        place: Where it is: module of this package, colon, name of its `Reproduction`.
        about: What it shows, one line.
        needs: What is trained for it, in words; empty where nothing is.
        num_seeds: Seeds of each run unless others are asked for.
        has_seeds: Whether it can be made of several seeds.
        has_noise: Whether it has noise of its own.
        default_size: How much is computed unless another size is asked for.
    """

    place: str
    about: str
    needs: str = ""
    num_seeds: int = 1
    has_seeds: bool = False
    has_noise: bool = False
    default_size: str = "cpu"

    def load(self) -> Reproduction:
        """What makes it."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(f"reproduction.{module}"), name)


def _runs(place: str, about: str, needs: str, num_seeds: int = 1) -> ReproductionEntry:
    return ReproductionEntry(place, about, needs, num_seeds, has_seeds=True)


_MAIN = "the four main runs"
REPRODUCTIONS = {
    "table-1": _runs("table_1:TABLE_1_REPRODUCTION", "test log-likelihood on the four data sets", _MAIN),
    "table-2": ReproductionEntry("table_2:TABLE_2_REPRODUCTION", "sizes of the four models"),
    "without-rbm": _runs(
        "without_rbm:WITHOUT_RBM_REPRODUCTION",
        "what removing the RBM does, paired by test image",
        f"{_MAIN} and four without couplings",
    ),
    "training": ReproductionEntry(
        "training_figure:TRAINING_REPRODUCTION", "bounds of the main runs against time", _MAIN
    ),
    "simplified-models": _runs(
        "simplified_models:SIMPLIFIED_REPRODUCTION",
        "six models of static MNIST with binary latents alone (supplement)",
        "six runs",
    ),
    "figure-2": ReproductionEntry(
        "transformation_figures:FIGURE_2", "inverse CDF of spike-and-exponential, and rectifiers with noise"
    ),
    "figure-5": ReproductionEntry(
        "sample_figures:FIGURE_5", "samples along the chains, dynamic MNIST", "one main run"
    ),
    "figure-6a": _runs(
        "sweeps:FIGURE_6A", "log-likelihood against Gibbs iterations, dynamic MNIST", "nine runs", 3
    ),
    "figure-6b": _runs("sweeps:FIGURE_6B", "log-likelihood against units of the RBM", "nine runs", 3),
    "figure-6c": _runs("sweeps:FIGURE_6C", "log-likelihood against groups of the posterior", "nine runs", 3),
    "figure-7": ReproductionEntry("transformation_figures:FIGURE_7", "inverse CDF of the mixture of ramps"),
    "figure-8": ReproductionEntry("transformation_figures:FIGURE_8", "inverse CDF of spike-and-slab"),
    "figure-9a": _runs(
        "sweeps:FIGURE_9A", "log-likelihood against the width of the prior, static MNIST", "three runs"
    ),
    "figure-9b": _runs("sweeps:FIGURE_9B", "log-likelihood against the width of the posterior", "three runs"),
    "figure-10": ReproductionEntry(
        "log_partition_figure:FIGURE_10", "50 estimates of log Z for each data set", _MAIN
    ),
    "figure-11": ReproductionEntry(
        "sample_figures:FIGURE_11", "samples along the chains, static MNIST", "one main run"
    ),
    "figure-12": ReproductionEntry(
        "sample_figures:FIGURE_12", "samples along the chains, Omniglot", "one main run"
    ),
    "figure-13": ReproductionEntry(
        "sample_figures:FIGURE_13", "samples along the chains, Caltech-101 Silhouettes", "one main run"
    ),
    "inverse-cdfs": ReproductionEntry(
        "transformation_figures:INVERSE_CDFS",
        "inverse CDFs of all transformations, and rectifiers with noise",
    ),
    "shifted-spike-gaussian": ReproductionEntry(
        "transformation_figures:SHIFTED",
        "bias of the shifted spike-and-Gaussian's gradients, beside the unshifted form",
        has_noise=True,
    ),
    "gradient-study": ReproductionEntry(
        "transformation_figures:GRADIENT_STUDY",
        "variance of every gradient estimator at equal cost; takes minutes, and goes on where it was stopped",
        has_noise=True,
        default_size="short",
    ),
}
"""All of them, in the order of the paper but for the tables first."""
