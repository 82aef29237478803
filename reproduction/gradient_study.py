"""A study of the variance of gradient estimators: against units, against beta, before and after training.

The models, on 8x8 digits, come first, then what is measured on them, then the study and its picture.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from rich.console import Console
from torch import Tensor, nn

from discrete_vae import load_run, train
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
    TrainingConfig,
    WarmUpConfig,
    instantiate,
)
from discrete_vae.data.splits import DataSplits
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.style import BLUE, GREEN, VERMILION, Picture, tidy
from discrete_vae.model import DiscreteVAE
from discrete_vae.objectives.gradients import GradientEstimator
from discrete_vae.posterior import HierarchicalPosterior
from discrete_vae.rng import DrawsFrom, key_to_seed, keyed_generator
from discrete_vae.runs.io import write_text
from discrete_vae.runs.load import initial_model
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.runs.results import digest
from discrete_vae.system import in_words
from reproduction.gradient_variance import GradientVariance, gradient_variance
from reproduction.transformations import SMOOTHINGS

# Sizes and methods.


PriorName = Literal["factorial", "rbm"]
StateName = Literal["untrained", "trained"]
CostUnit = Literal["evaluations", "seconds"]
_GROUPS = {"factorial": 1, "rbm": 4}
_SETTLE_STREAM, _BASELINE_STREAM = 0x736574746C65, 0x62617365
_CASE_STREAM, _DRAW_STREAM = 0x73747564, 0x64726177
_SETTLING_BATCHES = 40  # running averages with a momentum of 0.1 forget their start
_LEARNING_RATE = 3e-3


class StudySettings(Record):
    """Extent of the gradient study."""

    num_units: tuple[int, ...]  # of the prior, at `unit_beta`
    betas: tuple[float, ...]  # of the smoothing, at `beta_units` units
    unit_beta: float = 3.0
    beta_units: int = 32
    num_repeats: int = 3  # models per case, each with initial weights, training and noise of its own
    num_draws: int = 100  # of each gradient
    num_epochs: int = 20  # of a trained model
    num_baseline_steps: int = 200  # batches that a baseline learns from, while the model stays as it is
    batch_size: int = 100  # test examples that a gradient is of
    hidden: tuple[int, ...] = (200,)  # widths of the hidden layers of posterior and decoder


SIZES = {
    "smoke": StudySettings(
        num_units=(4, 8),
        betas=(3.0, 5.0),
        beta_units=4,
        num_repeats=2,
        num_draws=4,
        num_epochs=1,
        num_baseline_steps=3,
        batch_size=20,
        hidden=(8,),
    ),
    "short": StudySettings(num_units=(8, 32, 128, 256), betas=(1.0, 3.0, 8.0), num_repeats=2, num_draws=40),
    "paper": StudySettings(
        num_units=(8, 16, 32, 64, 128, 256),
        betas=(0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 12.0),
        num_repeats=5,
        num_draws=200,
        num_epochs=100,
    ),
}

_OWN = ReparameterizedConfig()


@dataclass(frozen=True)
class Method:
    """One way to train."""

    smoothing: type[ComponentConfig]  # of `SMOOTHINGS`, since a biased gradient has no cost at equal error
    gradient: GradientConfig = _OWN

    @property
    def kind(self) -> str:
        """Name of the smoothing."""
        return self.smoothing.model_fields["kind"].default

    @property
    def has_beta(self) -> bool:
        """True if its smoothing has a beta."""
        return "beta" in self.smoothing.model_fields

    @property
    def is_score_function(self) -> bool:
        """True if no gradient passes through zeta."""
        return not isinstance(self.gradient, ReparameterizedConfig | NaiveKLConfig)

    def smoothing_config(self, beta: float) -> ComponentConfig:
        """The smoothing, at that beta where it has one."""
        return self.smoothing(beta=beta, trainable=False) if self.has_beta else self.smoothing()  # pyright: ignore[reportCallIssue]


OURS = "spike-exponential"
_SCORES: dict[str, GradientConfig] = {
    "naive KL": NaiveKLConfig(),
    "REINFORCE": ReinforceConfig(baseline=NoBaselineConfig()),
    "REINFORCE, running mean": ReinforceConfig(baseline=RunningMeanConfig()),
    "REINFORCE, learned baseline": ReinforceConfig(baseline=LearnedBaselineConfig()),
    "leave-one-out": LeaveOneOutConfig(),
    "DisARM": DisARMConfig(),
}
METHODS = {kind: Method(config) for kind, config in SMOOTHINGS.items()}
METHODS |= {name: Method(SMOOTHINGS[OURS], gradient) for name, gradient in _SCORES.items()}
"""All methods by name: each transformation by its own gradient, then others for the spike-and-exponential model."""


# The models.


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
    """The model at the first step, its norms' running statistics settled, or after training; in evaluation mode.

    A run that is in the folder is not trained again, one that was stopped goes on.
    """
    if state == "trained":
        kinds = f"{config.model.prior.kind}-{config.model.smoothing.kind}"
        path = folder / f"{kinds}-{digest(config.model_dump(mode='json'))}"
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

    The baseline takes ``num_steps`` of them. The estimator is in evaluation mode.
    """
    posterior = model.posterior
    sizes = {"group_of_unit": posterior.group_of_unit, "num_features": posterior.num_features}
    with DrawsFrom(torch.Generator("cpu").manual_seed(key_to_seed(seed, _BASELINE_STREAM) >> 1)):
        estimator: GradientEstimator = instantiate(gradient, **sizes)
    learned = list(estimator.parameters())
    unused = torch.zeros(1, model.prior.num_units)  # the baseline's gradient alone is taken
    optimizer = torch.optim.Adam(learned, _LEARNING_RATE) if learned else None
    if estimator.state_dict():  # others have nothing to learn
        for x, generator in _batches(dataset, num_steps, seed, _BASELINE_STREAM):
            loss = model.estimate_gradient(estimator, x, negative_phase=unused, generator=generator).loss
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


# Measurements.


_SETTINGS: dict[str, type] = {
    **{"num_draws": int, "batch_size": int, "num_epochs": int, "num_baseline_steps": int},
    **{"hidden": str, "seed": np.uint64},
}
_KEY: dict[str, type] = {
    **{"prior": str, "state": str, "num_units": int, "beta": float, "method": str, "repeat": int},
    **_SETTINGS,
}
_RESULTS: dict[str, type] = {
    **{"variance": float, "std_error": float, "squared_norm": float, "distance": float},
    **{"evaluations": int, "seconds": float},
}
"""Columns of the table: what tells a row from others, and what is measured.

`variance` is the trace of the covariance of one draw, (nats per example)^2; `squared_norm` that of the expectation, of
the model's method with the least variance; `distance` the squared distance of the draws' mean from that method's, in
units of what chance makes of it; `evaluations` the times that a draw decodes each example, `seconds` of the processor.
"""


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
        beta = "" if math.isnan(self.beta) else f", beta {self.beta:g}"
        model = f"{self.prior}, {self.state}, {self.num_units} units"
        return f"{model}, {self.smoothing}{beta}, repeat {self.repeat + 1}"

    def row(self, method: str, settings: StudySettings, seed: int) -> dict[str, Any]:
        """The row of a method, without results."""
        own = {name: getattr(self, name) for name in ("prior", "state", "num_units", "beta", "repeat")}
        asked = {name: getattr(settings, name) for name in _SETTINGS if name != "seed"}
        row = {**own, "method": method, **asked, "hidden": " ".join(map(str, settings.hidden)), "seed": seed}
        return {name: row[name] for name in _KEY}


def study_cases(settings: StudySettings) -> Iterator[StudyCase]:
    """The models of the study, repeat after repeat, so that what was stopped has something of each."""
    points = [(units, settings.unit_beta, False) for units in settings.num_units]
    points += [(settings.beta_units, beta, True) for beta in settings.betas]
    if settings.beta_units in settings.num_units:  # both sweeps have this point
        points = [point for point in points if point != (settings.beta_units, settings.unit_beta, True)]
    models = product(range(settings.num_repeats), get_args(PriorName), get_args(StateName), points)
    for repeat, prior, state, (num_units, beta, needs_beta) in models:
        for kind in (name for name, method in METHODS.items() if name == method.kind):
            if METHODS[kind].has_beta or not needs_beta:
                own = tuple(name for name, method in METHODS.items() if method.kind == kind)
                value = beta if METHODS[kind].has_beta else math.nan
                yield StudyCase(prior, state, num_units, value, repeat, kind, own)


def measure_case(case: StudyCase, settings: StudySettings, seed: int, folder: Path) -> list[dict[str, Any]]:
    """Measure all methods of a model; returns a row each. Runs of trained models are kept in the folder."""
    own_seed = key_to_seed(seed, _CASE_STREAM, case.repeat)
    smoothing = METHODS[case.smoothing].smoothing_config(case.beta)
    config = study_config(case.prior, case.num_units, smoothing, settings, own_seed)
    dataset = instantiate(config.data)
    model = study_model(config, case.state, dataset, folder)
    x, parameters = dataset.test[: settings.batch_size], logit_parameters(model)
    measured: dict[str, tuple[int, GradientVariance]] = {}
    for number, name in enumerate(case.methods):
        estimator = study_estimator(
            model, METHODS[name].gradient, dataset, settings.num_baseline_steps, own_seed
        )
        draw = partial(model.estimate_gradient, estimator, x, log_partition=0.0)
        found = gradient_variance(
            lambda noise, draw=draw: draw(generator=noise).loss,
            parameters,
            num_draws=settings.num_draws,
            seed=key_to_seed(own_seed, _DRAW_STREAM, number),
        )
        measured[name] = estimator.num_evaluations, found
    best = min((found for _, found in measured.values()), key=lambda found: found.variance)
    return [
        case.row(name, settings, seed)
        | {
            "variance": found.variance,
            "std_error": found.std_error,
            "squared_norm": best.squared_norm,
            "distance": found.distance(best),
            "evaluations": evaluations,
            "seconds": found.seconds,
        }
        for name, (evaluations, found) in measured.items()
    ]


# The study.


@dataclass(frozen=True, eq=False)
class GradientStudy:
    """The study."""

    rows: pd.DataFrame  # its measurements
    settings: StudySettings  # what was asked for

    def costs(
        self, prior: str, state: str, method: str, num_units: int, beta: float, unit: CostUnit = "evaluations"
    ) -> np.ndarray:
        """Variance times the cost of a draw, in units of the squared gradient, of each repeat of a case, (repeat,).

        So much an estimate takes whose error is as large as the gradient itself: averaging n draws divides the variance
        by n and multiplies what they take by it, so the product stays. beta is ignored where the method has none.
        """
        rows = self.rows
        chosen = rows[
            (rows.prior == prior)
            & (rows.state == state)
            & (rows.method == method)
            & (rows.num_units == num_units)
            & (rows.beta.isna() | (rows.beta == beta))
        ]
        return (chosen.variance * chosen[unit] / chosen.squared_norm).to_numpy()

    def rival(
        self, prior: str, state: str, num_units: int, beta: float, unit: CostUnit = "evaluations"
    ) -> tuple[str, float, float]:
        """The score-function method that costs least, and how many times what the reparameterized gradient costs.

        Returns:
            Its name, the ratio, a geometric mean over repeats, and the standard error of its logarithm.
        """
        ours = self.costs(prior, state, OURS, num_units, beta, unit)
        ratios = {
            name: mean_and_error(self.costs(prior, state, name, num_units, beta, unit) / ours)
            for name, method in METHODS.items()
            if method.is_score_function
        }
        best = min(ratios, key=lambda name: ratios[name][0])
        return best, *ratios[best]

    def summary(self) -> list[str]:
        """By how much the best score-function method costs more, a line per prior, state and point."""
        settings = self.settings
        points = [(units, settings.unit_beta) for units in settings.num_units]
        points += [(settings.beta_units, beta) for beta in settings.betas if beta != settings.unit_beta]
        lines = []
        for prior, state, (units, beta) in product(get_args(PriorName), get_args(StateName), points):
            words = []
            for unit in get_args(CostUnit):
                name, ratio, error = self.rival(prior, state, units, beta, unit)
                low, high = ratio * math.exp(-error), ratio * math.exp(error)
                words.append(f"{ratio:.3g} ({low:.3g} to {high:.3g}) times the {unit} with {name}")
            case = f"{prior}, {state}, {units} units, beta {beta:g}"
            lines.append(f"{case}: the best score function takes {', '.join(words)}")
        return lines


def gradient_study_table(
    settings: StudySettings,
    *,
    seed: int = 0,
    path: Path,
    runs: Path,
    report: Callable[[str], None] = lambda text: None,
    check: Callable[[], None] = lambda: None,
) -> GradientStudy:
    """Measure every method on 8x8 digits.

    A gradient is that of the mean loss of a batch of test examples by the parameters that make the posterior's logits,
    in evaluation mode, where examples know nothing of each other. Under the factorial prior the posterior is factorial,
    under the Boltzmann machine it has four groups. All score-function methods, and the paper's naive gradient of the
    KL, are for the model with the spike-and-exponential transformation, whose own gradient has the same expectation;
    every other transformation is a model of its own.

    ``path`` is a .csv file, written after every model; rows that it has of the same settings are not measured again.
    ``runs`` is the folder of the trained models' runs, so that one that was stopped goes on. ``report`` takes a line
    per model; ``check`` is called before each, and what it raises stops the study.
    """
    kept = _read_rows(path)
    cases = list(study_cases(settings))
    for number, case in enumerate(cases, 1):
        if all(_key(case.row(name, settings, seed)) in kept for name in case.methods):
            continue
        check()
        start = time.monotonic()
        kept |= {_key(row): row for row in measure_case(case, settings, seed, runs)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, pd.DataFrame(kept.values()).to_csv(index=False))
        report(f"{number}/{len(cases)}  {case}: {in_words(time.monotonic() - start)}")
    rows = [kept[_key(case.row(name, settings, seed))] for case in cases for name in case.methods]
    return GradientStudy(pd.DataFrame(rows), settings)


def _key(row: Mapping[str, Any]) -> tuple[object, ...]:
    """The settings of a row, which tell it from others; None for a beta that is NaN, which would equal nothing."""
    return tuple(None if row[name] != row[name] else row[name] for name in _KEY)


def _read_rows(path: Path) -> dict[tuple[object, ...], dict[str, Any]]:
    if not path.exists():
        return {}
    types: dict[Hashable, type] = {**_KEY, **_RESULTS}
    try:
        table = pd.read_csv(path, dtype=types)
        if list(table) != list(types):
            raise ValueError("other columns")
    except ValueError as error:
        rule, repair = "must hold the table of this study", "Move it away, or give another --out."
        raise InvalidInputError(str(path), rule, str(error)[:80], repair) from None
    return {_key(row): row for row in table.to_dict("records")}


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Geometric mean of positive numbers, and the standard error of its logarithm; NaN where one is not positive."""
    if len(values) == 0 or values.min() <= 0:
        return math.nan, math.nan
    logs = np.log(values)
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    return math.exp(float(logs.mean())), error


_TITLES = {
    ("factorial", "untrained"): "independent bits,\nuntrained",
    ("factorial", "trained"): "independent bits,\ntrained",
    ("rbm", "untrained"): "Boltzmann prior,\nuntrained",
    ("rbm", "trained"): "Boltzmann prior,\ntrained",
}
_HIGHLIGHTS = {"leave-one-out": VERMILION, "DisARM": GREEN, "naive KL": "black"}
_GRAY, _MARKERS = "0.5", "os^vD"
_FAMILIES = ("other estimators", "other smoothings")


def draw_gradient_study(study: GradientStudy) -> Picture:
    """Draw each method's cost relative to the default's, on logarithmic axes.

    A column is a prior before or after training. Rows are other estimators against units and against beta, and other
    smoothings against units. Bars are standard errors over repeats.
    """
    settings, columns = study.settings, list(product(get_args(PriorName), get_args(StateName)))
    estimators = [name for name, method in METHODS.items() if method.gradient != _OWN]
    smoothings = [name for name, method in METHODS.items() if method.gradient == _OWN and name != OURS]
    units = [(units, settings.unit_beta) for units in settings.num_units]
    betas = [(settings.beta_units, beta) for beta in settings.betas]
    of_units = f"units (\N{GREEK SMALL LETTER BETA} = {settings.unit_beta:g})"
    of_betas = f"\N{GREEK SMALL LETTER BETA} ({settings.beta_units} units)"
    rows = [
        (_FAMILIES[0], estimators, units, settings.num_units, of_units),
        (_FAMILIES[0], estimators, betas, settings.betas, of_betas),
        (_FAMILIES[1], smoothings, units, settings.num_units, of_units),
    ]
    figure = Picture((7.6, 7.2), layout="constrained")
    grid = figure.subplots(len(rows), len(columns), sharey="row", squeeze=False)
    for line, (family, methods, points, places, xlabel) in zip(grid, rows, strict=True):
        for axes, (prior, state) in zip(line, columns, strict=True):
            ends = {
                name: _draw_line(axes, study, (prior, state, name), points, places, _look(name, methods))
                for name in methods
            }
            axes.axhline(1.0, color=BLUE, linewidth=1.8, zorder=1)
            axes.set(xscale="log", yscale="log")
            apart = [place == places[-1] or 2.2 * place <= places[-1] for place in places]
            axes.set_xticks(places, [f"{at:g}" * shown for at, shown in zip(places, apart, strict=True)])
            axes.set_xlabel(xlabel, fontsize=8.5)
            axes.minorticks_off()
            tidy(axes)
            if axes is line[-1]:
                _label_ends(axes, ends, methods)
        line[0].set_ylabel(f"cost of {family}\n(default = 1)", fontsize=8.5)
    for axes, column in zip(grid[0], columns, strict=True):
        axes.set_title(_TITLES[column], fontsize=8.5, loc="left", fontweight="bold")
    return figure


def _draw_line(
    axes: Axes,
    study: GradientStudy,
    case: tuple[str, str, str],
    points: Sequence[tuple[int, float]],
    places: Sequence[float],
    look: Mapping[str, Any],
) -> float:
    """The line of a method's cost in units of the default's over the places of its points; returns its right end."""
    ratios = [study.costs(*case, *point) / study.costs(*case[:2], OURS, *point) for point in points]
    value, error = (np.array(each) for each in zip(*map(mean_and_error, ratios), strict=True))
    bars = [value * (1 - np.exp(-error)), value * (np.exp(error) - 1)]
    axes.errorbar(places, value, bars, label=case[-1], markersize=3.5, capsize=1.5, linewidth=1.2, **look)
    return float(value[-1])


def _look(name: str, methods: Sequence[str]) -> dict[str, Any]:
    """Color and marker of a method's line: its own color if it is compared, gray otherwise."""
    grays = [other for other in methods if other not in _HIGHLIGHTS]
    marker = "D" if name in _HIGHLIGHTS else _MARKERS[grays.index(name)]
    fill = _HIGHLIGHTS.get(name, "white")
    return {"color": _HIGHLIGHTS.get(name, _GRAY), "marker": marker, "markerfacecolor": fill}


def _label_ends(axes: Axes, ends: Mapping[str, float], methods: Sequence[str]) -> None:
    """Write each method's name beside the right end of its line, names a line apart."""
    ends = {name: end for name, end in ends.items() if end == end} | {"default": 1.0}
    low, high = np.log(axes.get_ylim())
    gap = 0.085 * (high - low)
    order = sorted(ends, key=lambda name: -ends[name])
    wanted = np.log([ends[name] for name in order])
    places = np.array(wanted)
    for _ in range(100):  # neighbors that are too close push each other apart
        for upper in range(len(places) - 1):
            lacks = gap - (places[upper] - places[upper + 1])
            if lacks > 0:
                places[upper : upper + 2] += lacks / 2, -lacks / 2
    for name, place in zip(order, np.exp(places), strict=True):
        color = BLUE if name == "default" else _HIGHLIGHTS.get(name, "0.35")
        words = name.replace("REINFORCE, ", "\N{HORIZONTAL ELLIPSIS}, ")
        look: dict[str, Any] = {"color": color, "fontsize": 8, "va": "center", "annotation_clip": False}
        axes.annotate(words, (axes.get_xlim()[1], place), (4, 0), textcoords="offset points", **look)
