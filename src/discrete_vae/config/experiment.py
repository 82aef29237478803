"""The config of a whole experiment: model, data, training, evaluation."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from discrete_vae.config.base import ComponentConfig, Record, Seed
from discrete_vae.config.data import DataConfig
from discrete_vae.config.model import OVERLAPPING, ModelConfig, NoHierarchyConfig
from discrete_vae.config.training import EvaluationConfig, TrainingConfig
from discrete_vae.errors import InvalidInputError


class ExperimentConfig(Record):
    """Everything that a run needs; written to the run directory as config.json."""

    name: str = Field(description="The experiment's name.")
    size: str = Field(default="short", description="The experiment's size that the settings started from.")
    seed: Seed = Field(default=0, description="Seed of the initial weights and of all noise.")
    data: DataConfig
    model: ModelConfig
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _check_trainable(self) -> Self:
        for slot in type(self.model).model_fields:
            part = getattr(self.model, slot)
            if isinstance(part, ComponentConfig) and not part.trains:
                rule = "must pass the gradients that training needs"
                repair = "Train with another kind, then take model.discretized()."
                raise InvalidInputError(f"model.{slot}", rule, part.model_dump()["kind"], repair)
        return self

    @model_validator(mode="after")
    def _check_layers(self) -> Self:
        repair = "Leave it out, or give the model layers: --model.hierarchy gaussian."
        if isinstance(self.model.hierarchy, NoHierarchyConfig):
            spike = not isinstance(self.model.smoothing, OVERLAPPING)
            if self.training.num_importance_samples > 1 and spike:
                rule = "must be 1 without Gaussian layers where the smoothing has a spike, which fixes z"
                given = self.training.num_importance_samples
                more = repair.removesuffix(".") + ", or no spike: --model.smoothing ramps."
                raise InvalidInputError("training.num_importance_samples", rule, given, more)
            if self.training.optimizer.layers_weight_decay > 0:
                rule = "must be 0 without Gaussian layers, whose prior networks decay"
                given = self.training.optimizer.layers_weight_decay
                raise InvalidInputError("training.optimizer.layers_weight_decay", rule, given, repair)
        elif self.training.num_importance_samples > 1:
            if self.training.warm_up.epochs >= self.training.num_epochs:
                rule = f"must be below num_epochs, {self.training.num_epochs}, with importance samples"
                given = self.training.warm_up.epochs
                more = "They come after it: shorten it, or set training.num_importance_samples to 1."
                raise InvalidInputError("training.warm_up.epochs", rule, given, more)
            start = self.training.importance_start * self.training.num_epochs
            if start < self.training.warm_up.epochs:
                least = self.training.warm_up.epochs / self.training.num_epochs
                rule = f"must be at least {least:.3g}, where the layers' warm-up ends"
                given = self.training.importance_start
                raise InvalidInputError(
                    "training.importance_start",
                    rule,
                    given,
                    "Importance weights hold the whole KL of the layers: start later, or shorten warm_up.epochs.",
                )
        return self
