"""Pictures, one per file: model, data or a run's metrics -> table -> matplotlib figure -> file.

The file NAME.py has two functions: NAME_table makes a frozen record of the numbers, which `save_table` writes, and
draw_NAME makes a figure of it, which `save_figure` writes. Neither uses pyplot: drawing changes nothing but what it
returns, and a notebook shows the figure. What `dvae figure` draws by name is in `registry`, each made by make_NAME.
Public names load their modules on first use, so that a list of the figures costs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from discrete_vae.figures.evolution import EvolutionTable, draw_evolution, evolution_table
    from discrete_vae.figures.feature_statistics import (
        FeatureStatistics,
        draw_feature_statistics,
        feature_statistics_table,
    )
    from discrete_vae.figures.generated import generated_examples
    from discrete_vae.figures.gradient_study import GradientStudy, draw_gradient_study, gradient_study_table
    from discrete_vae.figures.inverse_cdfs import InverseCDFs, draw_inverse_cdfs, inverse_cdfs_table
    from discrete_vae.figures.log_partition_histogram import (
        LogPartitionHistogram,
        draw_log_partition_histogram,
        log_partition_histogram_table,
    )
    from discrete_vae.figures.reconstructions import (
        ReconstructionTable,
        draw_reconstructions,
        reconstructions_table,
    )
    from discrete_vae.figures.registry import FigureEntry
    from discrete_vae.figures.request import Drawing, FigureRequest, FigureRun
    from discrete_vae.figures.saving import save_figure, save_table
    from discrete_vae.figures.shifted_spike_gaussian import (
        ShiftedSpikeGaussian,
        draw_shifted_spike_gaussian,
        shifted_spike_gaussian_table,
    )
    from discrete_vae.figures.training_curves import (
        TrainingCurves,
        draw_training_curves,
        training_curves_table,
    )

_LAZY_EXPORTS = {
    "Drawing": "request",
    "EvolutionTable": "evolution",
    "FeatureStatistics": "feature_statistics",
    "FigureEntry": "registry",
    "FigureRequest": "request",
    "FigureRun": "request",
    "GradientStudy": "gradient_study",
    "InverseCDFs": "inverse_cdfs",
    "LogPartitionHistogram": "log_partition_histogram",
    "ReconstructionTable": "reconstructions",
    "ShiftedSpikeGaussian": "shifted_spike_gaussian",
    "TrainingCurves": "training_curves",
    "draw_evolution": "evolution",
    "draw_feature_statistics": "feature_statistics",
    "draw_gradient_study": "gradient_study",
    "draw_inverse_cdfs": "inverse_cdfs",
    "draw_log_partition_histogram": "log_partition_histogram",
    "draw_reconstructions": "reconstructions",
    "draw_shifted_spike_gaussian": "shifted_spike_gaussian",
    "draw_training_curves": "training_curves",
    "evolution_table": "evolution",
    "feature_statistics_table": "feature_statistics",
    "generated_examples": "generated",
    "gradient_study_table": "gradient_study",
    "inverse_cdfs_table": "inverse_cdfs",
    "log_partition_histogram_table": "log_partition_histogram",
    "reconstructions_table": "reconstructions",
    "save_figure": "saving",
    "save_table": "saving",
    "shifted_spike_gaussian_table": "shifted_spike_gaussian",
    "training_curves_table": "training_curves",
}

__all__ = [
    "Drawing",
    "EvolutionTable",
    "FeatureStatistics",
    "FigureEntry",
    "FigureRequest",
    "FigureRun",
    "GradientStudy",
    "InverseCDFs",
    "LogPartitionHistogram",
    "ReconstructionTable",
    "ShiftedSpikeGaussian",
    "TrainingCurves",
    "draw_evolution",
    "draw_feature_statistics",
    "draw_gradient_study",
    "draw_inverse_cdfs",
    "draw_log_partition_histogram",
    "draw_reconstructions",
    "draw_shifted_spike_gaussian",
    "draw_training_curves",
    "evolution_table",
    "feature_statistics_table",
    "generated_examples",
    "gradient_study_table",
    "inverse_cdfs_table",
    "log_partition_histogram_table",
    "reconstructions_table",
    "save_figure",
    "save_table",
    "shifted_spike_gaussian_table",
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
