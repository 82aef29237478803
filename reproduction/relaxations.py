"""The relaxations' table: bits trained through each smoothing and by each score function, under one prior.

Models have bits alone, no Gaussian layers. All ways share the prior, the four groups of the posterior, the networks and
the batches; differences are from spike-and-exponential, the default. Score functions and the straight-through estimator
train zeta = z. Each way first trains for a sixth of the length, two minutes of a budget at least, with three step sizes
and then with three sharpnesses where its smoothing has one: a factor of beta, b or the mean of a Gaussian. The value
whose validation bound is best is taken; one whose loss is not finite is worst, and while the best is the smallest or
the largest, one beyond it is tried. With a budget the short runs of a way take the same steps, and all long ones the
same time, by the speed of the best short run; without one all take the same steps. A part of the grid may be made
first; the table has every row whose first seeds are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product, takewhile
from pathlib import Path

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from discrete_vae import load_run
from discrete_vae.config import ExperimentConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.figures.style import BLUE, GREEN, VERMILION
from discrete_vae.runs.io import read_json, write_json
from discrete_vae.system import in_words
from reproduction.display import (
    Cell,
    Column,
    Options,
    Reproduction,
    Result,
    Series,
    Table,
    draw_rows,
    notes_of,
)
from reproduction.gradient_study import study_estimator
from reproduction.gradient_variance import GradientVariance, gradient_variance
from reproduction.records import (
    PlannedRun,
    Scale,
    StoredRun,
    Value,
    as_changes,
    mean_elbo,
    mean_limit,
    mean_log_likelihood,
    paired_difference,
    plan_run,
    read_record,
    spread,
)
from reproduction.sizes import load_sized
from reproduction.sweep import FailedRunError, Sweep

Settings = Mapping[str, Sequence[object]]

_DATA = {"mnist-static": "mnist-static-rbm200", "omniglot": "omniglot"}
_PRIORS: dict[str, Settings] = {
    "rbm": {"model.prior": ["rbm"], "model.prior.num-left": [100], "model.prior.num-right": [100]},
    "independent": {"model.prior": ["factorial"], "model.prior.num-units": [200]},
}
_WIDTHS: dict[str, Settings] = {
    f"width-{width}": {"model.posterior.hidden": [width, width], "model.decoder.hidden": [width]}
    for width in (200, 400)
}
_SAME: Settings = {
    "model.hierarchy": ["none"],
    "model.posterior.groups": [4],
    "training.batch-size": [100],
    "training.num-sweeps": [10],
    "training.num-importance-samples": [1],
    "training.optimizer.rise": [0.01],
    "evaluation.num-samples": [1000],
    "evaluation.num-examples": [1000],
}
_SMOKE: Settings = {  # seconds a run
    "training.num-examples": [500],
    "training.num-validation-examples": [100],
    "training.sampler.num-chains": [100],
    "training.log-every": [5],
    "training.validate-every": [5],
    "evaluation.num-samples": [50],
    "evaluation.num-examples": [50],
}
_OF_A_SCREEN: Settings = {  # only its validations count
    "evaluation.num-samples": [10],
    "evaluation.num-examples": [20],
    "evaluation.log-partition-std-error": [0.5],
    "evaluation.num-annealed-chains": [20],
    "evaluation.num-temperatures": [100],
    "evaluation.num-chain-sweeps": [50],
}
_WAYS: dict[str, Settings] = {
    "spike-exponential": {},
    "spike-slab": {"model.smoothing": ["spike-slab"]},
    "spike-gaussian": {
        "model.smoothing": ["spike-gaussian"],
        "model.smoothing.prior-loc": [2],
        "model.smoothing.max-ratio": [3],
    },
    "ramps": {"model.smoothing": ["ramps"]},
    "straight-through": {"model.smoothing": ["straight-through"]},
    "disarm": {"model.smoothing": ["straight-through"], "training.gradient": ["disarm"]},
    "leave-one-out": {"model.smoothing": ["straight-through"], "training.gradient": ["leave-one-out"]},
    "reinforce": {
        "model.smoothing": ["straight-through"],
        "training.gradient": ["reinforce"],
        "training.gradient.baseline": ["learned"],
    },
}
_OVERLAPS: dict[str, Settings] = {
    "overlapping-exponential": {"model.smoothing.beta": [8]},
    "overlapping-power": {"model.smoothing.b": [30]},
}
for _kind, _k in product(_OVERLAPS, (1, 5, 20)):
    _WAYS[f"{_kind}-{_k}"] = {
        "model.smoothing": [_kind],
        "training.num-importance-samples": [_k],
        "training.importance-start": [0.25],  # after the warm-up
        **_OVERLAPS[_kind],
    }
_FIRST = next(iter(_WAYS))
_RATES = (3e-3, 9e-3, 27e-3)
_SHARPNESSES = (0.5, 1.0, 2.0)
_MOST_BEYOND = 3  # values beyond these
_SHARPNESS_OF = {  # the settings that it multiplies; other ways have none
    _FIRST: ("training.beta-bound.start", "training.beta-bound.slope"),
    "spike-gaussian": ("model.smoothing.prior-loc", "model.smoothing.max-ratio"),
    **{way: tuple(_OVERLAPS[way.rpartition("-")[0]]) for way in _WAYS if way.startswith("overlapping")},
}
_BASELINE_STEPS = 200  # as in the gradient study
_SCREEN = 6  # a screen is so many times shorter than a run
_LEAST_MINUTES = 2.0  # of a screen under a budget
_STRETCH = 100  # runs longer than any budget allows, which then shortens all in proportion
_NUM_DRAWS = {"smoke": 4}  # of a gradient; else 40
_COLORS = dict(zip(product(_DATA, _PRIORS), (BLUE, VERMILION, GREEN, "0.35"), strict=True))
_MARKERS = dict(zip(_WIDTHS, "os", strict=True))


@dataclass(frozen=True)
class Case:
    """What all ways share."""

    data: str  # name of the data set
    prior: str  # rbm or independent, 200 units
    width: str  # of the hidden layers of posterior and decoder

    def __str__(self) -> str:
        return f"{self.data}, {self.prior}, {self.width}"

    def runs(self, options: Options, way: str, rate: float, sharpness: float = 1.0) -> list[PlannedRun]:
        """The runs of a way, a seed each."""
        return [self._run(options, way, rate, sharpness, seed=seed) for seed in options.seeds]

    def screen(self, options: Options, way: str, rate: float, sharpness: float = 1.0) -> PlannedRun:
        """A short run of a way, as long as that of the smallest step size."""
        run = self._run(options, way, rate, sharpness, part=_SCREEN)
        first = self._run(options, way, _RATES[0], 1.0, part=_SCREEN)
        return run if run == first else replace(run, like=first)

    def _run(
        self, options: Options, way: str, rate: float, sharpness: float, *, seed: int = 0, part: int = 1
    ) -> PlannedRun:
        """Plan one run, or a part of its length."""
        experiment = _DATA[self.data]
        usual = load_sized(experiment, options.size).training
        stretch = 1 if options.budget is None else _STRETCH
        epochs = stretch * max(1, (6 if options.size == "smoke" else usual.num_epochs) // part)
        rise, start = (5.0, 3.0) if self.prior == "rbm" else (2.0, 1.5)
        length = {
            "training.num-epochs": [epochs],
            "training.beta-bound.start": [start],
            "training.beta-bound.slope": [rise / epochs],
            "training.warm-up.epochs": [0.25 * epochs],
            "training.warm-up.prior-epochs": [0.25 * epochs],
            "training.validate-every": [stretch * usual.validate_every],
        }
        same = {**_SAME, **_PRIORS[self.prior], **_WIDTHS[self.width], **length, **_WAYS[way]}
        if options.size == "smoke":
            same |= _SMOKE
        if part > 1:
            same |= _OF_A_SCREEN
        changes: Settings = {"training.optimizer.learning-rate": [rate]}
        if sharpness != 1:
            changes |= {path: [float(same[path][0]) * sharpness] for path in _SHARPNESS_OF[way]}
        name = f"bits-{self.prior}-{self.width}-{way}" + (f"-part-{part}" if part > 1 else "")
        budget, scale = options.budget, Scale(name, as_changes(same))
        if budget is not None and part > 1:
            budget = _of_screen(budget)
        return plan_run(experiment, options.size, seed=seed, changes=changes, budget=budget, scale=scale)


def _of_screen(budget: float) -> float:
    """Minutes of a short run, which must have room for an epoch of the slowest way."""
    return min(budget, max(budget / _SCREEN, _LEAST_MINUTES))


_PARTS = {
    "data sets": tuple(_DATA),
    "priors": tuple(_PRIORS),
    "widths": tuple(_WIDTHS),
    "ways": tuple(_WAYS),
}
Grid = list[tuple[Case, str]]


def _grid(options: Options) -> Grid:
    """Cases and ways, those that are asked for alone."""
    chosen = product(*map(options.chosen, _PARTS.values()))
    return [(Case(data, prior, width), way) for data, prior, width, way in chosen]


def _plan(options: Options) -> list[PlannedRun]:
    return [case.screen(options, way, rate) for case, way in _grid(options) for rate in _RATES]


def _chosen(options: Options, sweep: Sweep, case: Case, way: str, *, trains: bool) -> list[PlannedRun] | None:
    """The runs with the best step size, and the best sharpness with that, at the speed of their short run.

    None where nothing is to be trained and a short run is missing, or the loss of none was finite.

    Raises:
        FailedRunError: If the loss of no short run was finite, of what is to be trained.
    """
    screen = partial(case.screen, options, way)
    rate = _best(sweep, screen, _RATES, trains=trains)
    if rate is None:
        return None
    sharpness: float | None = 1.0
    if way in _SHARPNESS_OF:
        sharpness = _best(sweep, partial(screen, rate), _SHARPNESSES, trains=trains)
    if sharpness is None:
        return None
    return [replace(run, like=screen(rate, sharpness)) for run in case.runs(options, way, rate, sharpness)]


def _best(
    sweep: Sweep, screen: Callable[[float], PlannedRun], values: Sequence[float], *, trains: bool
) -> float | None:
    """The value whose short run has the best bound of validation examples.

    While that is the smallest or the largest, one beyond it is tried, by the ratio of the given ones, up to three and
    as far as the setting goes.
    None and errors as in `_chosen`.
    """
    tried, ratio = list(values), values[1] / values[0]
    while True:
        runs = [screen(value) for value in tried]
        if trains:
            sweep.extend(runs, may_diverge=True)
        elif not sweep.find(runs):
            return None
        found = [sweep.stored.get(run) for run in runs]
        bounds = [-math.inf if run is None else run.history.validation_score.max() for run in found]
        if max(bounds) == -math.inf:
            if not trains:
                return None
            raise FailedRunError(f"{runs[0]}: the loss is not finite, nor is it with {tried[1:]}.")
        best = int(np.argmax(bounds))
        if 0 < best < len(tried) - 1 or len(tried) == len(values) + _MOST_BEYOND:
            return tried[best]
        beyond = float(f"{tried[best] * ratio if best else tried[best] / ratio:g}")
        try:
            screen(beyond).config  # noqa: B018
        except InvalidInputError:
            return tried[best]
        tried.insert(best + 1 if best else 0, beyond)


def _complete(options: Options, sweep: Sweep) -> dict[Case, dict[str, list[PlannedRun]]]:
    """Complete the runs that are asked for; returns them with those that are there besides, by case and way."""
    asked = {key: _chosen(options, sweep, *key, trains=True) or [] for key in _grid(options)}
    runs = [run for of_way in asked.values() for run in of_way]
    sweep.extend(runs, needs_model=_lacks_variance, may_diverge=True)
    for first in [run for run in runs if run.seed == 0 and run in sweep.stored]:
        _variance(sweep.stored[first], sweep)
    found: dict[Case, dict[str, list[PlannedRun]]] = {}
    for case, way in _grid(replace(options, only=())):
        runs = asked.get((case, way))
        if runs is None:
            runs = _chosen(options, sweep, case, way, trains=False) or []
            runs = list(takewhile(lambda run: sweep.find([run]), runs))
        if runs and all(run in sweep.stored for run in runs) and not _lacks_variance(runs[0], sweep):
            found.setdefault(case, {})[way] = runs
    return found


def _make(options: Options, sweep: Sweep) -> Result:
    rows: list[tuple[Cell, ...]] = []
    differences: dict[Case, list[Value]] = {}
    stored: list[StoredRun] = []
    complete = _complete(options, sweep)
    drawn = {way for chosen in complete.values() for way in chosen}
    for case, chosen in complete.items():
        found = {way: sweep.of(runs) for way, runs in chosen.items()}
        means = {way: mean_log_likelihood(runs) for way, runs in found.items()}
        of_case = {way: _of_both(found[_FIRST], runs) for way, runs in found.items() if _FIRST in found}
        if of_case:
            of_case[_FIRST] = Value(0.0)  # without an error: it is of the same runs
        differences[case] = [of_case.get(way, Value(math.nan)) for way in _WAYS if way in drawn]
        above: list[StoredRun] | None = None
        for way in sorted(found, key=lambda each: -means[each].value):
            runs = found[way]
            records, noise = [run.record for run in runs], _variance(runs[0], sweep)
            steps, seconds = (sum(getattr(r, name) for r in records) for name in ("num_steps", "seconds"))
            config = records[0].config
            row = (
                way,
                str(case),
                len(runs),
                means[way],
                spread(runs),
                max(record.doubling_gain for record in records),
                None if way == _FIRST else of_case.get(way),
                *_from_above(above, runs),
                means[way] if config.model.smoothing.kind == "straight-through" else mean_limit(runs),
                mean_elbo(runs),
                Value(noise["variance"], noise["std_error"]),
                f"{config.training.optimizer.learning_rate:g}",
                _sharpest(config),
                round(steps / len(records)),
                steps / seconds,
                seconds / (60 * len(records)),
            )
            rows.append(row)
            above = runs
            stored += runs
    columns = (
        Column("way", "way"),
        Column("data set, prior, width", "case"),
        Column("seeds", "num_seeds"),
        Column("log-likelihood", "log_likelihood"),
        Column("spread over seeds", "spread"),
        Column("last doubling", "doubling_gain"),
        Column(f"less {_FIRST}", "difference", signed=True),
        Column("less the row above", "difference_from_above", signed=True),
        Column("apart", "apart"),
        Column("sharp limit", "log_likelihood_limit"),
        Column("ELBO", "elbo"),
        Column("variance of the gradient", "gradient_variance", digits=3, form="g"),
        Column("step size", "learning_rate"),
        Column("sharpness", "sharpness"),
        Column("steps", "num_steps"),
        Column("steps per second", "steps_per_second", digits=1),
        Column("minutes", "minutes", digits=1),
    )
    series = [
        Series(str(case), (_COLORS[case.data, case.prior], _MARKERS[case.width]), values)
        for case, values in differences.items()
    ]
    title = f"Bits alone, 200 units, {options.in_words}"
    xlabel = f"test log-likelihood less that of {_FIRST} (nats per image, right is better)"
    picture = draw_rows([way for way in _WAYS if way in drawn], series, title=title, xlabel=xlabel)
    title = "Ways to train bits: test log-likelihood, nats per image"
    notes = [*_notes(options, stored), *notes_of(stored)]
    if lost := [f"{way} ({case})" for case, way in _grid(options) if way not in complete.get(case, {})]:
        notes.append(f"Not in the table, since their loss was not finite: {', '.join(lost)}.")
    return Result(title, notes, Table(columns, rows), picture, ending=".svg")


def _from_above(above: list[StoredRun] | None, runs: list[StoredRun]) -> tuple[Value | None, str]:
    """Difference from the row above, and whether it is more than errors and too few samples may have made."""
    if above is None:
        return None, ""
    found = _of_both(above, runs)
    gain = max(0.0, *(run.record.doubling_gain for run in (*above, *runs)))
    count = min(len(above), len(runs))
    # of few seeds the error is uncertain itself
    quantile = 2.0 if count == 1 else float(stdtrit(count - 1, 0.975))
    return found, "yes" if abs(found.value) > quantile * found.std_error + gain else "no"


def _of_both(first: list[StoredRun], second: list[StoredRun]) -> Value:
    """The paired difference over the seeds that both have, of which 0 is one."""
    count = min(len(first), len(second))
    return paired_difference(first[:count], second[:count])


def _sharpest(config: ExperimentConfig) -> str:
    """The last bound of a trained beta, or what `_SHARPNESS_OF` names of another smoothing; empty without."""
    smoothing, settings = config.model.smoothing, config.training
    if smoothing.kind == _FIRST:
        return f"{settings.beta_bound.start + settings.beta_bound.slope * settings.num_epochs:g}"
    values = [getattr(smoothing, name, None) for name in ("beta", "b", "prior_loc")]
    return "".join(f"{value:g}" for value in values if value is not None)


def _notes(options: Options, stored: Sequence[StoredRun]) -> list[str]:
    records = [run.record for run in stored]
    seconds = [record.seconds for record in records]
    screen = "a sixth of the steps" if options.budget is None else f"{_of_screen(options.budget):g} minutes"
    return [
        f"Equal {'steps' if options.budget is None else 'time, as the short runs foretell it,'} for all; training "
        f"took {in_words(min(seconds))} to "
        f"{in_words(max(seconds))} a run, log lines and validations included, as they are in the steps per second. "
        "Numbers after a way are importance samples of zeta under one logarithm, from a quarter of the run on, where "
        "the warm-up of the KL ends. A width is that of the hidden layers: two of the posterior, one of the decoder.",
        f"Each step size is that of {', '.join(f'{rate:g}' for rate in _RATES)} whose run of {screen} has "
        "the best bound of validation examples, the bound that the way trains. Then the sharpness is chosen likewise, "
        "among the usual one, half and twice of it: the last bound of a trained β, the β of overlapping-exponential, "
        "the b of overlapping-power, the mean of spike-gaussian's prior. While the best is the smallest or largest, "
        "one beyond it is tried too, three times the step size or twice the sharpness away, up to "
        f"{_MOST_BEYOND} of them. The short runs of a way have the same number of steps.",
        "Differences are paired by test image. Apart: the difference from the row above is more than two standard "
        "errors, of several seeds as many as Student's t has at 95 %, and the last doubling of the importance samples "
        "together; no means that the two are not separated. Where a row has fewer seeds, differences are over these. "
        "One seed says nothing of the spread over seeds, which may change the order.",
        "Sharp limit: log p(x) where zeta is z; empty where the smoothing has none; for ways that train zeta = z it is "
        "the log-likelihood. The variance is that of one gradient of 100 validation images by the posterior's "
        "parameters, summed over them, of the loss that the way trains, at its own trained model of seed 0. A baseline "
        f"that is learned has learned anew there, from {_BASELINE_STEPS} batches.",
    ]


# The variance of the gradient at a trained model, kept beside its record.


def _variance_path(planned: PlannedRun, sweep: Sweep) -> Path:
    return sweep.records / f"{planned.name}.gradient.json"


def _lacks_variance(planned: PlannedRun, sweep: Sweep) -> bool:
    """True of a first seed whose gradient was not measured, or at another model than that of its record."""
    path, stored = _variance_path(planned, sweep), read_record(sweep.records, planned)
    return planned.seed == 0 and not (path.exists() and stored and stored.record.is_of(_read_variance(path)))


def _read_variance(path: Path) -> dict[str, float]:
    return read_json(path, repair="Move the file away to have the gradient measured anew.")


def _variance(stored: StoredRun, sweep: Sweep) -> dict[str, float]:
    """Trace of the covariance of a gradient, its error, the squared norm of its mean, and seconds of a draw."""
    planned, record = stored.planned, stored.record
    path = _variance_path(planned, sweep)
    if _lacks_variance(planned, sweep):
        sweep.check()
        found = asdict(_measure(planned, sweep))
        found |= {"step": record.step, "validation_elbo": record.validation_elbo}
        del found["mean"]
        write_json(path, found)
    return _read_variance(path)


def _measure(planned: PlannedRun, sweep: Sweep) -> GradientVariance:
    """Of bits drawn once of validation images; a baseline first learns at the trained model."""
    loaded, dataset = load_run(sweep.folder(planned), device="cpu"), sweep.dataset(planned)  # a small model
    model, settings, seed = loaded.model, loaded.config.training, planned.config.seed
    model.prior.requires_grad_(False)  # gradients of the posterior alone are taken
    estimator = study_estimator(model, settings.gradient, dataset, _BASELINE_STEPS, seed)
    valid = dataset.valid
    assert isinstance(valid, Tensor)
    x = torch.bernoulli(valid[:100], generator=torch.Generator().manual_seed(seed))
    count = settings.num_importance_samples
    draw = partial(model.estimate_gradient, estimator, x, log_partition=0.0, num_importance_samples=count)
    parameters, num_draws = list(model.posterior.parameters()), _NUM_DRAWS.get(planned.size, 40)
    return gradient_variance(lambda noise: draw(generator=noise).loss, parameters, num_draws=num_draws)


RELAXATIONS = {
    "relaxations": Reproduction(
        "ways to train bits alone, beside each other under one prior",
        _make,
        _plan,
        f"{len(_grid(Options('cpu')))} runs, each after three to eleven of a sixth of its length; --only makes a part",
        num_seeds=1,
        may_diverge=True,
        sizes=("short", "smoke", "cpu"),
        parts=_PARTS,
    )
}
"""The table by its name."""
