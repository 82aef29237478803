"""Configs of training and of evaluation."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from discrete_vae.config.base import Record
from discrete_vae.config.gradient import GradientConfig, ReparameterizedConfig
from discrete_vae.config.numbers import Count, Factor, Interval, Repetitions, Seed
from discrete_vae.config.optimizer import AveragingConfig, OptimizerConfig
from discrete_vae.config.sampler import BlockGibbsConfig, SamplerConfig
from discrete_vae.errors import InvalidInputError


class WarmUpConfig(Record):
    """How the KL is turned on (paper section architecture).

    The weight of every KL rises linearly from 1 / strength to 1; the discrete KL carries a further factor of its own.
    """

    strength: float = Field(
        default=20.0, ge=1.0, description="Warm-up: the weight of every KL starts at 1 / this number."
    )
    epochs: NonNegativeFloat = Field(
        default=5.0, description="Warm-up: epochs until the weight of every KL is 1."
    )
    prior_strength: float = Field(
        default=2.0,
        ge=1.0,
        description="Warm-up: the discrete KL's further factor starts at 1 / this number.",
    )
    prior_epochs: NonNegativeFloat = Field(
        default=20.0, description="Warm-up: epochs until the discrete KL's further factor is 1."
    )


class BetaBoundConfig(Record):
    """The upper bound of a trained beta, a line in the epoch (paper section architecture)."""

    start: Factor = Field(
        default=3.0, ge=0.01, description="Upper bound of a trained beta at the first step."
    )
    slope: float = Field(
        default=0.1, ge=0.0, le=1e20, description="Rise of the upper bound of a trained beta, per epoch."
    )


class TrainingConfig(Record):
    """One training run."""

    num_epochs: Repetitions = Field(default=100, description="Passes over the training part.")
    batch_size: Count = Field(
        default=100, ge=2, description="Examples per training step; batch normalization compares them."
    )
    num_examples: Count | None = Field(
        default=None, description="Training examples, a fixed random choice; none means all."
    )
    num_validation_examples: Count | None = Field(
        default=None, description="Validation examples, a fixed random choice; none means all."
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="Of the networks' matrix products; auto is bfloat16 where processor and networks gain by it.",
    )
    compile: bool = Field(
        default=False,
        description="Compile the loss and its gradient by torch.compile, which takes a C++ compiler and a minute "
        "or two before the first step; steps with importance samples run uncompiled.",
    )
    record: bool = Field(
        default=True,
        description="Repeat the recorded operations of a step on the CPU, bit for bit, in place of calling the "
        "modules; false calls the modules at each step, which is slower.",
    )
    optimizer: OptimizerConfig = OptimizerConfig()
    averaging: AveragingConfig = AveragingConfig()
    gradient: GradientConfig = Field(
        default=ReparameterizedConfig(), description="How the gradient of the bound is estimated."
    )
    num_importance_samples: Count = Field(
        default=1,
        description="Samples under one logarithm, of the Gaussian layers per draw of the binary latents, or without "
        "layers of smoothed latents that have no spike; 1 is the ELBO.",
    )
    importance_start: float = Field(
        default=0.75,
        ge=0.0,
        lt=1.0,
        description="Share of the run after which importance samples are taken; before it is the ELBO.",
    )
    warm_up: WarmUpConfig = WarmUpConfig()
    beta_bound: BetaBoundConfig = BetaBoundConfig()
    sampler: SamplerConfig = BlockGibbsConfig()
    num_sweeps: Repetitions = Field(
        default=100, description="Sweeps of the persistent chains per training step."
    )
    log_every: Interval = Field(
        default=100, description="Training steps between two lines of the run's metrics.jsonl."
    )
    validate_every: Interval = Field(
        default=1000, description="Training steps between two validations, each with a checkpoint."
    )

    @model_validator(mode="after")
    def _check_gradient(self) -> Self:
        if isinstance(self.gradient, ReparameterizedConfig):
            return self
        rule, repair = f"with the gradient {self.gradient.kind!r}", "or take the gradient 'reparameterized'."
        if self.num_importance_samples > 1:
            raise InvalidInputError(
                "num_importance_samples",
                f"must be 1 {rule}, whose loss is that of single draws",
                self.num_importance_samples,
                f"Leave it out, {repair}",
            )
        if self.compile:
            raise InvalidInputError("compile", f"must be false {rule}", "true", f"Leave it out, {repair}")
        return self


class EvaluationConfig(Record):
    """One evaluation of a trained model."""

    num_samples: Repetitions = Field(default=10_000, description="Importance samples per test example.")
    num_examples: Count | None = Field(default=None, description="Test examples; none means all.")
    max_memory: Factor = Field(
        default=512.0,
        gt=0.0,
        description="Memory that evaluation may take for the networks' intermediate values, MiB.",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="float32",
        description="Of the networks' matrix products in evaluation; auto is bfloat16 where it gains.",
    )
    log_partition_std_error: Factor = Field(
        default=0.003, ge=1e-6, description="Standard error of log Z that bridge sampling goes for, nats."
    )
    max_tempered_sweeps: Repetitions = Field(
        default=50_000, description="Most sweeps of bridge sampling for log Z."
    )
    num_annealed_chains: Count = Field(
        default=500, ge=2, description="Chains of annealed importance sampling, the check of log Z."
    )
    num_temperatures: Repetitions = Field(
        default=2000, description="Temperatures of annealed importance sampling, the check of log Z."
    )
    num_chain_sweeps: Repetitions = Field(
        default=1000, description="Sweeps of the training chains before annealing starts from them."
    )
    seed: Seed = Field(default=0, description="Seed of the importance samples and of the annealing.")
