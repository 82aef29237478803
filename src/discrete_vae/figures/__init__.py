"""Pictures, one per file: model, data or a run's metrics -> table -> matplotlib figure -> file.

The file NAME.py has two functions: NAME_table makes a frozen record of the numbers, which `save_table` writes, and
draw_NAME makes a figure of it, which `save_figure` writes. Neither uses pyplot: drawing changes nothing but what it
returns, and a notebook shows the figure.
"""

from discrete_vae.figures.evolution import EvolutionTable, draw_evolution, evolution_table
from discrete_vae.figures.feature_statistics import (
    FeatureStatistics,
    draw_feature_statistics,
    feature_statistics_table,
)
from discrete_vae.figures.generated import generated_examples
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
from discrete_vae.figures.saving import save_figure, save_table
from discrete_vae.figures.training_curves import (
    TrainingCurves,
    draw_training_curves,
    training_curves_table,
)

__all__ = [
    "EvolutionTable",
    "FeatureStatistics",
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
