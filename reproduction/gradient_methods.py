"""The estimators that the gradient study compares, and the models that it measures them on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from torch import Tensor, nn

from discrete_vae.config import (
    BlockGibbsConfig,
    ComponentConfig,
    DigitsConfig,
    DisARMConfig,
    ExperimentConfig,
    FactorialBernoulliConfig,
    GradientConfig,
    HierarchicalPosteriorConfig,
    LearnedBaselineConfig,
    LeaveOneOutConfig,
    MLPDecoderConfig,
    ModelConfig,
    NaiveKLConfig,
    NoBaselineConfig,
    OptimizerConfig,
    RBMConfig,
    Record,
    ReinforceConfig,
    ReparameterizedConfig,
    RunningMeanConfig,
    SmoothingConfig,
    TrainingConfig,
    WarmUpConfig,
    instantiate,
    members,
)
from discrete_vae.data.splits import DataSplits
from discrete_vae.load import initial_model, load_run
from discrete_vae.model import DiscreteVAE
from discrete_vae.objectives.gradients import GradientEstimator
from discrete_vae.posterior import HierarchicalPosterior
from discrete_vae.rng import DrawsFrom, key_to_seed, keyed_generator
from discrete_vae.runs.results import digest
from discrete_vae.training.logging import TrainingProgress
from discrete_vae.training.run import train

PriorName = Literal["factorial", "rbm"]
StateName = Literal["untrained", "trained"]
_GROUPS = {"factorial": 1, "rbm": 4}
_SETTLE_STREAM, _BASELINE_STREAM = 0x736574746C65, 0x62617365
_SETTLING_BATCHES = 40  # running averages with a momentum of 0.1 forget their start
_LEARNING_RATE = 3e-3


class StudySettings(Record):
    """How much the gradient study computes.

    Attributes:
        num_units: Units of the prior, at `unit_beta`.
        betas: beta of the smoothing, at `beta_units` units.
        unit_beta: See there.
        beta_units: See there.
        num_repeats: Models per case, each with initial weights, training and noise of its own.
        num_draws: Draws of each gradient.
        num_epochs: Passes of the training of a trained model.
        num_baseline_steps: Batches that a baseline learns from, while the model stays as it is.
        batch_size: Test examples that a gradient is of.
        hidden: Widths of the hidden layers of posterior and decoder.
    """

    num_units: tuple[int, ...]
    betas: tuple[float, ...]
    unit_beta: float = 3.0
    beta_units: int = 32
    num_repeats: int = 3
    num_draws: int = 100
    num_epochs: int = 20
    num_baseline_steps: int = 200
    batch_size: int = 100
    hidden: tuple[int, ...] = (200,)


_OWN = ReparameterizedConfig()


@dataclass(frozen=True)
class Method:
    """One way to train.

    Attributes:
        smoothing: The transformation's config class.
        gradient: The estimator's config.
    """

    smoothing: type[ComponentConfig]
    gradient: GradientConfig = _OWN

    @property
    def kind(self) -> str:
        """Name of the smoothing."""
        return self.smoothing.model_fields["kind"].default

    @property
    def has_beta(self) -> bool:
        """Whether its smoothing has a beta."""
        return "beta" in self.smoothing.model_fields

    @property
    def is_score_function(self) -> bool:
        """Whether no gradient passes through zeta."""
        return not isinstance(self.gradient, ReparameterizedConfig | NaiveKLConfig)

    def smoothing_config(self, beta: float) -> ComponentConfig:
        """The smoothing, at that beta where it has one."""
        return self.smoothing(beta=beta, trainable=False) if self.has_beta else self.smoothing()  # pyright: ignore[reportCallIssue]


_KINDS = {config.model_fields["kind"].default: config for config in members(SmoothingConfig) if config.trains}
OURS = "spike-exponential"
_SCORES: dict[str, GradientConfig] = {
    "naive KL": NaiveKLConfig(),
    "REINFORCE": ReinforceConfig(baseline=NoBaselineConfig()),
    "REINFORCE, running mean": ReinforceConfig(baseline=RunningMeanConfig()),
    "REINFORCE, learned baseline": ReinforceConfig(baseline=LearnedBaselineConfig()),
    "leave-one-out": LeaveOneOutConfig(),
    "DisARM": DisARMConfig(),
}
METHODS = {kind: Method(config) for kind, config in _KINDS.items()}
METHODS |= {name: Method(_KINDS[OURS], gradient) for name, gradient in _SCORES.items()}
"""All methods by name: each transformation by its own gradient, then others for the spike-and-exponential model."""


def study_config(
    prior: PriorName, num_units: int, smoothing: ComponentConfig, settings: StudySettings, seed: int
) -> ExperimentConfig:
    """The experiment that a model of the study belongs to: 8x8 digits, a few hundred steps."""
    is_rbm, left = prior == "rbm", num_units // 2
    machine = RBMConfig(num_left=left, num_right=num_units - left)
    return ExperimentConfig(
        name="gradient-study",
        seed=seed,
        data=DigitsConfig(),
        model=ModelConfig(
            event_shape=(1, 8, 8),
            prior=machine if is_rbm else FactorialBernoulliConfig(num_units=num_units),
            smoothing=smoothing,  # pyright: ignore[reportArgumentType]
            posterior=HierarchicalPosteriorConfig(groups=_GROUPS[prior], hidden=settings.hidden),
            decoder=MLPDecoderConfig(hidden=settings.hidden),
        ),
        training=TrainingConfig(
            num_epochs=settings.num_epochs,
            batch_size=100,
            precision="float32",
            optimizer=OptimizerConfig(learning_rate=_LEARNING_RATE),
            warm_up=WarmUpConfig(epochs=settings.num_epochs / 8, prior_epochs=settings.num_epochs / 4),
            sampler=BlockGibbsConfig(num_chains=200 if is_rbm else 20),
            num_sweeps=10 if is_rbm else 1,
            log_every=10**6,
            validate_every=10**6,
        ),
    )


def study_model(config: ExperimentConfig, state: StateName, dataset: DataSplits, folder: Path) -> DiscreteVAE:
    """The model at the first step, its norms' running statistics settled, or after training.

    Args:
        config: Its experiment.
        state: Which of the two.
        dataset: The data.
        folder: Where runs are kept; a run that is there is not trained again, one that was stopped goes on.

    Returns:
        The model, in evaluation mode.
    """
    if state == "trained":
        path = (
            folder
            / f"{config.model.prior.kind}-{config.model.smoothing.kind}-{digest(config.model_dump(mode='json'))}"
        )
        train(config, dataset, path, progress=TrainingProgress(0, 0, Console(quiet=True)))
        return load_run(path, "last").model
    model = initial_model(config)
    model.initialize_(dataset.train)
    with torch.no_grad():
        for x, generator in _batches(dataset, _SETTLING_BATCHES, config.seed, _SETTLE_STREAM):
            model.elbo(x, log_partition=0.0, generator=generator)
    return model.eval()


def study_estimator(
    model: DiscreteVAE, gradient: GradientConfig, dataset: DataSplits, num_steps: int, seed: int
) -> GradientEstimator:
    """An estimator for a model, which stays as it is while a baseline learns from batches of training examples.

    Args:
        model: The model.
        gradient: The estimator's config.
        dataset: The data.
        num_steps: Batches to learn from.
        seed: Seed of the noise.

    Returns:
        The estimator, in evaluation mode.
    """
    posterior = model.posterior
    sizes = {"group_of_unit": posterior.group_of_unit, "num_features": posterior.num_features}
    with DrawsFrom(torch.Generator("cpu").manual_seed(key_to_seed(seed, _BASELINE_STREAM) >> 1)):
        estimator: GradientEstimator = instantiate(gradient, **sizes)
    learned = list(estimator.parameters())
    optimizer = torch.optim.Adam(learned, _LEARNING_RATE) if learned else None
    if estimator.state_dict():  # others have nothing to learn
        for x, generator in _batches(dataset, num_steps, seed, _BASELINE_STREAM):
            loss = model.estimate_gradient(estimator, x, log_partition=0.0, generator=generator).loss
            if optimizer is not None:
                for parameter, found in zip(learned, torch.autograd.grad(loss, learned), strict=True):
                    parameter.grad = found
                optimizer.step()
    return estimator.eval()


def logit_parameters(model: DiscreteVAE) -> list[nn.Parameter]:
    """The parameters that make the posterior's logits; no others of the model want gradients after this call."""
    posterior = model.posterior
    assert isinstance(posterior, HierarchicalPosterior)
    model.requires_grad_(False)
    chosen = [*posterior.networks.parameters(), *posterior.norms.parameters()]
    for parameter in chosen:
        parameter.requires_grad_()
    return chosen


def _batches(
    dataset: DataSplits, count: int, seed: int, stream: int
) -> Iterable[tuple[Tensor, torch.Generator]]:
    """Batches of bits drawn of training examples, each with a generator that goes on."""
    for number in range(count):
        generator = keyed_generator(seed, stream, number)
        chosen = torch.randint(len(dataset.train), (100,), generator=generator)
        yield torch.bernoulli(dataset.train[chosen], generator=generator), generator
