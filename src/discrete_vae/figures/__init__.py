"""Pictures: model, data or a run's metrics -> table -> matplotlib figure -> file.

A picture has two functions: NAME_table makes a frozen record of the numbers, which `save_table` writes, and
draw_NAME makes a figure of it, which `save_figure` writes. Neither uses pyplot: drawing changes nothing but what it
returns, and a notebook shows the figure. What `dvae figure` draws by name is in `registry`, each made by make_NAME.
Public names load their modules on first use, so that a list of the figures costs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discrete_vae.figures.curves import (
        LogPartitionHistogram,
        TrainingCurves,
        draw_log_partition_histogram,
        draw_training_curves,
        log_partition_histogram_table,
        training_curves_table,
    )
    from discrete_vae.figures.registry import FigureEntry
    from discrete_vae.figures.run import (
        EvolutionTable,
        FeatureStatistics,
        ReconstructionTable,
        draw_evolution,
        draw_feature_statistics,
        draw_reconstructions,
        evolution_table,
        feature_statistics_table,
        generated_examples,
        reconstructions_table,
    )
    from discrete_vae.figures.style import Drawing, FigureRequest, FigureRun, save_figure, save_table

_LAZY_EXPORTS = {
    "Drawing": "style",
    "EvolutionTable": "run",
    "FeatureStatistics": "run",
    "FigureEntry": "registry",
    "FigureRequest": "style",
    "FigureRun": "style",
    "LogPartitionHistogram": "curves",
    "ReconstructionTable": "run",
    "TrainingCurves": "curves",
    "draw_evolution": "run",
    "draw_feature_statistics": "run",
    "draw_log_partition_histogram": "curves",
    "draw_reconstructions": "run",
    "draw_training_curves": "curves",
    "evolution_table": "run",
    "feature_statistics_table": "run",
    "generated_examples": "run",
    "log_partition_histogram_table": "curves",
    "reconstructions_table": "run",
    "save_figure": "style",
    "save_table": "style",
    "training_curves_table": "curves",
}

__all__ = [
    "Drawing",
    "EvolutionTable",
    "FeatureStatistics",
    "FigureEntry",
    "FigureRequest",
    "FigureRun",
    "LogPartitionHistogram",
    "ReconstructionTable",
    "TrainingCurves",
    "draw_evolution",
    "draw_feature_statistics",
    "draw_log_partition_histogram",
    "draw_reconstructions",
    "draw_training_curves",
    "evolution_table",
    "feature_statistics_table",
    "generated_examples",
    "log_partition_histogram_table",
    "reconstructions_table",
    "save_figure",
    "save_table",
    "training_curves_table",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module 'discrete_vae.figures' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"discrete_vae.figures.{_LAZY_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
