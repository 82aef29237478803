"""Configs of training (sampler, optimizer, gradient), of evaluation, and of a whole experiment."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, NonNegativeFloat, field_validator, model_validator

from discrete_vae.config.base import ComponentConfig, Count, Factor, Interval, Record, Repetitions, Seed
from discrete_vae.config.data import DataConfig
from discrete_vae.config.model import ModelConfig, NoHierarchyConfig
from discrete_vae.errors import InvalidInputError

# Samplers that draw from a Boltzmann prior.


class BlockGibbsConfig(ComponentConfig):
    """Persistent block-Gibbs chains (paper section architecture)."""

    target = "discrete_vae.samplers.gibbs:BlockGibbs"
    references = ("tieleman2008",)
    kind: Literal["block-gibbs"] = "block-gibbs"
    num_chains: Count = Field(
        default=2000, description="Persistent chains; the paper has 20 per example of the batch."
    )


class ParallelTemperingConfig(ComponentConfig):
    """Persistent chains of replicas at several temperatures (paper section log-partition-function)."""

    target = "discrete_vae.samplers.tempering:ParallelTempering"
    references = ("swendsen1986",)
    kind: Literal["parallel-tempering"] = "parallel-tempering"
    num_chains: Count = Field(
        default=200, description="Persistent chains; a sweep of one costs one sweep per replica."
    )
    inverse_temperatures: tuple[float, ...] | None = Field(
        default=None,
        description="Inverse temperatures of the replicas, rising to 1; none tunes them to exchange rates near 0.5.",
    )


class TrajectoryTemperingConfig(ComponentConfig):
    """Persistent chains led by states of machines that training has passed; tells log Z (Béreux et al. 2024)."""

    target = "discrete_vae.samplers.trajectory:TrajectoryTempering"
    references = ("bereux2024",)
    kind: Literal["trajectory-tempering"] = "trajectory-tempering"
    num_chains: Count = Field(
        default=2000, ge=2, description="Persistent chains; their spread is the error of log Z."
    )
    sweeps_per_swap: Count = Field(
        default=100,
        description="Sweeps of a training step after which chains may change to states of the last rung once more.",
    )


class DimodSamplerConfig(ComponentConfig):
    """Samples of a dimod solver, such as an annealer, corrected for its temperature (extra dwave)."""

    target = "discrete_vae.interop.dimod.negative_phase:DimodSampler"
    references = ("raymond2016",)
    kind: Literal["dimod"] = "dimod"
    solver: str = Field(
        default="simulated-annealing",
        description="Name of the solver: simulated-annealing, qpu, block-gibbs, parallel-tempering, or one that was "
        "registered in Python.",
    )
    num_chains: Count = Field(default=500, description="Reads per training step.")
    parameters: dict[str, JsonValue] = Field(
        default={},
        description="Further keywords of the solver, as a JSON object: '{\"annealing_time\": 20}'.",
    )
    correct_temperature: bool = Field(
        default=True, description="Follow the solver's temperature and scale the energies that it gets by it."
    )
    num_gibbs_sweeps: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="Sweeps of block Gibbs that each sample makes after the solver.",
    )


SamplerConfig = Annotated[
    BlockGibbsConfig | ParallelTemperingConfig | TrajectoryTemperingConfig | DimodSamplerConfig,
    Field(discriminator="kind", description="Sampler of the prior, for the negative phase of its gradient."),
]


# The optimizer, its step size along a run, and averaged weights.


FinalFraction = Annotated[
    float, Field(le=1.0, description="Share of Adam's step size that is left at the end of training.")
]


class ConstantRateConfig(ComponentConfig):
    """One step size throughout."""

    target = "discrete_vae.training.schedules:ConstantRate"
    kind: Literal["constant"] = "constant"


class ExponentialRateConfig(ComponentConfig):
    """A step size that falls geometrically."""

    target = "discrete_vae.training.schedules:ExponentialRate"
    kind: Literal["exponential"] = "exponential"
    final_fraction: FinalFraction = Field(default=0.03, gt=0.0)


class CosineRateConfig(ComponentConfig):
    """A step size that falls as half a cosine: slowly at first and at the end."""

    target = "discrete_vae.training.schedules:CosineRate"
    references = ("loshchilov2017",)
    kind: Literal["cosine"] = "cosine"
    final_fraction: FinalFraction = Field(default=0.03, ge=0.0)


class StepRateConfig(ComponentConfig):
    """A step size that drops at some points of the run."""

    target = "discrete_vae.training.schedules:StepRate"
    kind: Literal["steps"] = "steps"
    at: tuple[float, ...] = Field(
        default=(0.6, 0.75, 0.95), description="Shares of the run after which Adam's step size drops, rising."
    )
    factor: float = Field(
        default=0.3, gt=0.0, le=1.0, description="Share of Adam's step size that is left after each drop."
    )

    @field_validator("at")
    @classmethod
    def _check_rising(cls, at: tuple[float, ...]) -> tuple[float, ...]:
        if not all(a < b for a, b in pairwise((0.0, *at, 1.0))):
            raise InvalidInputError("at", "must rise, each between 0 and 1", at, "For example 0.6 0.75 0.95.")
        return at


RateConfig = Annotated[
    ConstantRateConfig | ExponentialRateConfig | CosineRateConfig | StepRateConfig,
    Field(discriminator="kind", description="Course of Adam's step size along the run."),
]


class OptimizerConfig(Record):
    """Adam with a decaying step size (paper section architecture)."""

    learning_rate: Factor = Field(default=3e-3, gt=0.0, description="Adam's step size at its largest.")
    rate: RateConfig = CosineRateConfig()
    rise: float = Field(
        default=0.0,
        ge=0.0,
        lt=1.0,
        description="Share of the run over which Adam's step size rises linearly from 0.",
    )
    prior_learning_rate_factor: Factor = Field(
        default=1.0, gt=0.0, description="Step size of the Boltzmann machine in units of the networks'."
    )
    layers_weight_decay: Factor = Field(
        default=0.0,
        ge=0.0,
        description="Decay of the weights of the Gaussian layers' prior networks, per step in units of the step size.",
    )
    decoder_weight_decay: Factor = Field(
        default=0.0, ge=0.0, description="Decay of the decoder's weights, per step in units of the step size."
    )
    eps: Factor = Field(default=1e-8, gt=0.0, description="Adam's epsilon, which keeps its divisions finite.")


class AugmentationConfig(Record):
    """Training images moved at random in each step, so that few images overfit less.

    The ELBO that training logs is that of the moved images, which lies below that of validation.
    """

    max_shift: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Pixels by which a training image is shifted at most, in each direction; 0 moves in at its edges.",
    )
    horizontal_flip: bool = Field(
        default=False,
        description="Whether a training image is also mirrored left to right with probability one half.",
    )
    end: float = Field(
        default=1.0,
        gt=0.0,
        le=1.0,
        description="Share of the run after which training images stay where they are.",
    )

    @property
    def moves(self) -> bool:
        """True if any image is moved."""
        return self.max_shift > 0 or self.horizontal_flip


class AveragingConfig(Record):
    """Averaged weights, which are validated, saved as the model and evaluated in place of those that train."""

    decay: float = Field(
        default=0.0,
        ge=0.0,
        lt=1.0,
        description="Decay per step of the running average of all weights that is the run's model; 0 is no average.",
    )


# Estimators of the bound's gradient, and baselines of those by the score function.


SignalDecay = Annotated[
    float, Field(ge=0.0, lt=1.0, description="Decay per step of the running averages of the signal.")
]


class NoBaselineConfig(ComponentConfig):
    """The signal as it is."""

    target = "discrete_vae.objectives.gradients:NoBaseline"
    kind: Literal["none"] = "none"


class RunningMeanConfig(ComponentConfig):
    """The signal less its running mean."""

    target = "discrete_vae.objectives.gradients:RunningMean"
    kind: Literal["running-mean"] = "running-mean"
    decay: SignalDecay = 0.9


class LearnedBaselineConfig(ComponentConfig):
    """The signal less what networks of x and the earlier groups expect (paper eq. REINFORCE-equation)."""

    target = "discrete_vae.objectives.gradients:LearnedBaseline"
    references = ("mnih2014",)
    kind: Literal["learned"] = "learned"
    hidden: tuple[Count, ...] = Field(
        default=(100,), description="Widths of the hidden layers of each group's baseline network."
    )
    decay: SignalDecay = 0.9


BaselineConfig = Annotated[
    NoBaselineConfig | RunningMeanConfig | LearnedBaselineConfig,
    Field(discriminator="kind", description="Baseline that is taken from REINFORCE's signal."),
]


class ReparameterizedConfig(ComponentConfig):
    """Through zeta, as the smoothing makes it possible (paper eqs. discrete-VAE-approx-zeta, J-term-gradient)."""

    target = "discrete_vae.objectives.gradients:Reparameterized"
    kind: Literal["reparameterized"] = "reparameterized"


class ReinforceConfig(ComponentConfig):
    """The score function with a baseline (paper eq. REINFORCE-equation)."""

    target = "discrete_vae.objectives.gradients:Reinforce"
    references = ("williams1992",)
    kind: Literal["reinforce"] = "reinforce"
    baseline: BaselineConfig = RunningMeanConfig()


class LeaveOneOutConfig(ComponentConfig):
    """The score function of several draws, each with the others' mean as baseline."""

    target = "discrete_vae.objectives.gradients:LeaveOneOut"
    references = ("salimans2014", "kool2019")
    kind: Literal["leave-one-out"] = "leave-one-out"
    num_samples: Count = Field(default=2, ge=2, description="Draws per example of a leave-one-out estimate.")


class DisARMConfig(ComponentConfig):
    """Antithetic draws, a pair for each group of the posterior."""

    target = "discrete_vae.objectives.gradients:DisARM"
    references = ("dong2020",)
    kind: Literal["disarm"] = "disarm"


class NaiveKLConfig(ComponentConfig):
    """The score function for the energies of pairs alone (paper eq. naive-kl-grad-reinforce)."""

    target = "discrete_vae.objectives.gradients:NaiveKL"
    kind: Literal["naive-kl"] = "naive-kl"


GradientConfig = Annotated[
    ReparameterizedConfig | ReinforceConfig | LeaveOneOutConfig | DisARMConfig | NaiveKLConfig,
    Field(discriminator="kind", description="Estimator of the bound's gradient."),
]


# Training and evaluation.


class WarmUpConfig(Record):
    """Warm-up of the KL (paper section architecture).

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
        description="Precision of the networks' matrix products; auto is bfloat16 where they gain by it.",
    )
    record: bool = Field(
        default=True,
        description="Repeat the recorded operations of a step on the CPU, bit for bit, in place of calling the "
        "modules; false calls the modules at each step, which is slower.",
    )
    augmentation: AugmentationConfig = AugmentationConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    averaging: AveragingConfig = AveragingConfig()
    gradient: GradientConfig = ReparameterizedConfig()
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
    label_weight: Factor = Field(
        default=1.0,
        ge=0,
        description="Weight in the loss of the mean of -log q(y | x) over the examples whose label is known, for a "
        "model with classes.",
    )
    warm_up: WarmUpConfig = WarmUpConfig()
    beta_bound: BetaBoundConfig = BetaBoundConfig()
    schedule_unit: Literal["epoch", "run"] = Field(
        default="epoch",
        description="What the epochs of warm_up and beta_bound are: epochs, or whole runs, so that both follow the "
        "length of the run.",
    )
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
    patience: Count | None = Field(
        default=None,
        description="Validations in a row without a better bound, after warm-up and the first importance samples, at "
        "which training ends; none takes all steps.",
    )
    independent_start: bool = Field(
        default=False,
        description="Save a model of independent features as the checkpoint of step 0, so that the best checkpoint is "
        "at least as good on the validation part; others must be better by more than chance, by Student's t at 0.95.",
    )

    def in_epochs(self, count: float) -> float:
        """A number of epochs of warm_up or beta_bound, which may count in runs, as epochs."""
        return count * (self.num_epochs if self.schedule_unit == "run" else 1)

    @property
    def last_warm_up(self) -> float:
        """Epochs until the weights of all KL terms are 1."""
        warm_up = self.warm_up
        terms = ((warm_up.epochs, warm_up.strength), (warm_up.prior_epochs, warm_up.prior_strength))
        return self.in_epochs(max(epochs if strength > 1 else 0.0 for epochs, strength in terms))

    @model_validator(mode="after")
    def _check_gradient(self) -> Self:
        if self.num_importance_samples > 1 and not isinstance(self.gradient, ReparameterizedConfig):
            rule = f"must be 1 with the gradient {self.gradient.kind!r}, whose loss is that of single draws"
            repair = "Leave it out, or take the gradient 'reparameterized'."
            raise InvalidInputError("num_importance_samples", rule, self.num_importance_samples, repair)
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
        description="Precision of the networks' matrix products in evaluation; auto is bfloat16 where it gains.",
    )
    sharp_limit: bool = Field(
        default=True,
        description="Whether the model is evaluated in the limit zeta = z, too, which takes as long again.",
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


# A whole experiment.


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
        training, samples = self.training, self.training.num_importance_samples
        decay = training.optimizer.layers_weight_decay
        warm_up = training.in_epochs(training.warm_up.epochs) if training.warm_up.strength > 1 else 0.0
        layers = "or give the model layers: --model.hierarchy gaussian"
        if isinstance(self.model.hierarchy, NoHierarchyConfig):
            if samples > 1 and self.model.smoothing.has_spike:
                rule = "must be 1 without Gaussian layers where the smoothing has a spike, which fixes z"
                repair = f"Leave it out, {layers}, or no spike: --model.smoothing ramps."
                raise InvalidInputError("training.num_importance_samples", rule, samples, repair)
            if decay > 0:
                rule = "must be 0 without Gaussian layers, whose prior networks decay"
                repair = f"Leave it out, {layers}."
                raise InvalidInputError("training.optimizer.layers_weight_decay", rule, decay, repair)
        elif samples > 1:
            if warm_up >= training.num_epochs:
                rule = f"must be below num_epochs, {training.num_epochs}, with importance samples"
                repair = "They come after it: shorten it, or set training.num_importance_samples to 1."
                raise InvalidInputError("training.warm_up.epochs", rule, warm_up, repair)
            if training.importance_start * training.num_epochs < warm_up:
                least = math.ceil(1000 * warm_up / training.num_epochs) / 1000
                rule = f"must be at least {least:g}, where the layers' warm-up ends"
                repair = "Importance weights hold the whole KL of the layers: start later, or shorten warm_up.epochs."
                raise InvalidInputError("training.importance_start", rule, training.importance_start, repair)
        return self
