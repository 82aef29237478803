"""The config of a whole experiment: model, data, training, evaluation."""

from __future__ import annotations

from pydantic import Field

from discrete_vae.config.base import Record
from discrete_vae.config.data import DataConfig
from discrete_vae.config.model import ModelConfig
from discrete_vae.config.numbers import Seed
from discrete_vae.config.training import EvaluationConfig, TrainingConfig


class ExperimentConfig(Record):
    """Everything that a run needs; written to the run directory as config.json."""

    name: str = Field(description="The experiment's name.")
    size: str = Field(default="short", description="The experiment's size that the settings started from.")
    seed: Seed = Field(default=0, description="Seed of the initial weights and of all noise.")
    data: DataConfig
    model: ModelConfig
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
