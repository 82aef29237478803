"""Gradients measured for the gradient study, one row each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from discrete_vae.config import instantiate
from discrete_vae.evaluation.gradient_variance import GradientVariance, gradient_variance
from discrete_vae.rng import key_to_seed
from reproduction.gradient_methods import (
    METHODS,
    PriorName,
    StateName,
    StudySettings,
    logit_parameters,
    study_config,
    study_estimator,
    study_model,
)

CostUnit = Literal["evaluations", "seconds"]
_STREAM, _DRAW_STREAM = 0x73747564, 0x64726177


@dataclass(frozen=True)
class GradientRow:
    """One gradient, measured on one model.

    Attributes:
        prior: Of the model.
        state: Whether it was trained.
        num_units: Units of its prior.
        beta: Of its smoothing; NaN where that has none.
        method: Name of the method.
        repeat: Number of the model.
        num_draws: Draws of the gradient.
        batch_size: Examples that it is of.
        num_epochs: Passes of a trained model's training.
        num_baseline_steps: Batches that baselines learned from.
        hidden: Widths of the networks.
        seed: Seed of the study.
        variance: Trace of the covariance of one draw, (nats per example)^2.
        std_error: Its standard error.
        squared_norm: Squared norm of the expectation, of the model's method with the least variance.
        distance: Squared distance of the draws' mean from that method's, in units of what chance makes of it.
        evaluations: Times that a draw decodes each example.
        seconds: Time of the processor per draw.
    """

    prior: str
    state: str
    num_units: int
    beta: float
    method: str
    repeat: int
    num_draws: int
    batch_size: int
    num_epochs: int
    num_baseline_steps: int
    hidden: str
    seed: int
    variance: float
    std_error: float
    squared_norm: float
    distance: float
    evaluations: int
    seconds: float

    @property
    def key(self) -> tuple[object, ...]:
        """All that stands before the results."""
        values = tuple(vars(self).values())[:12]
        return tuple(None if isinstance(value, float) and math.isnan(value) else value for value in values)

    def cost(self, unit: CostUnit = "evaluations") -> float:
        """Variance times what a draw takes, in units of the squared gradient.

        So much an estimate takes whose error is as large as the gradient itself: averaging n draws divides the variance
        by n and multiplies what they take by it, so the product stays.

        Args:
            unit: Which cost of a draw.
        """
        return self.variance * getattr(self, unit) / self.squared_norm


@dataclass(frozen=True)
class StudyCase:
    """One model, and the methods that are measured on it, its own gradient first."""

    prior: PriorName
    state: StateName
    num_units: int
    beta: float
    repeat: int
    smoothing: str
    methods: tuple[str, ...]

    def __str__(self) -> str:
        """The case in words."""
        beta = "" if math.isnan(self.beta) else f", beta {self.beta:g}"
        model = f"{self.prior}, {self.state}, {self.num_units} units"
        return f"{model}, {self.smoothing}{beta}, repeat {self.repeat + 1}"

    def key(self, method: str, settings: StudySettings, seed: int) -> tuple[object, ...]:
        """The key of a method's row."""
        beta = None if math.isnan(self.beta) else self.beta
        return (
            *(self.prior, self.state, self.num_units, beta, method, self.repeat),
            *(settings.num_draws, settings.batch_size, settings.num_epochs, settings.num_baseline_steps),
            *(" ".join(map(str, settings.hidden)), seed),
        )


def study_cases(settings: StudySettings) -> Iterator[StudyCase]:
    """The models of the study, repeat after repeat, so that what was stopped has something of each."""
    points = [(units, settings.unit_beta, False) for units in settings.num_units]
    points += [(settings.beta_units, beta, True) for beta in settings.betas]
    if settings.beta_units in settings.num_units:  # both sweeps have this point
        points = [point for point in points if point != (settings.beta_units, settings.unit_beta, True)]
    for repeat in range(settings.num_repeats):
        for prior in get_args(PriorName):
            for state in get_args(StateName):
                for num_units, beta, needs_beta in points:
                    for kind in (name for name, method in METHODS.items() if name == method.kind):
                        if METHODS[kind].has_beta or not needs_beta:
                            own = tuple(name for name, method in METHODS.items() if method.kind == kind)
                            value = beta if METHODS[kind].has_beta else math.nan
                            yield StudyCase(prior, state, num_units, value, repeat, kind, own)


def measure_case(case: StudyCase, settings: StudySettings, seed: int, folder: Path) -> list[GradientRow]:
    """Measure all methods of a model.

    Args:
        case: The model and its methods.
        settings: How much is computed.
        seed: Of the study.
        folder: Where runs of trained models are kept.
    """
    own_seed = key_to_seed(seed, _STREAM, case.repeat)
    smoothing = METHODS[case.smoothing].smoothing_config(case.beta)
    config = study_config(case.prior, case.num_units, smoothing, settings, own_seed)
    dataset = instantiate(config.data)
    model = study_model(config, case.state, dataset, folder)
    x, parameters = dataset.test[: settings.batch_size], logit_parameters(model)
    steps = settings.num_baseline_steps
    measured: list[tuple[str, int, GradientVariance]] = []
    for number, name in enumerate(case.methods):
        estimator = study_estimator(model, METHODS[name].gradient, dataset, steps, own_seed)
        draw = partial(model.estimate_gradient, estimator, x, log_partition=0.0)
        found = gradient_variance(
            lambda noise, draw=draw: draw(generator=noise).loss,
            parameters,
            num_draws=settings.num_draws,
            seed=key_to_seed(own_seed, _DRAW_STREAM, number),
        )
        measured.append((name, estimator.num_evaluations, found))
    best = min((found for _, _, found in measured), key=lambda found: found.variance)
    return [
        GradientRow(
            *(case.prior, case.state, case.num_units, case.beta, name, case.repeat),
            *(settings.num_draws, settings.batch_size, settings.num_epochs, steps),
            *(" ".join(map(str, settings.hidden)), seed),
            found.variance,
            found.std_error,
            best.squared_norm,
            found.distance(best),
            evaluations,
            found.seconds,
        )
        for name, evaluations, found in measured
    ]
