"""The relaxations' table: bits trained through each smoothing and by each score function, under one prior.

Models have bits alone, no Gaussian layers. All ways share the prior, the four groups of the posterior, the networks and
the batches; differences are from spike-and-exponential, the default. Score functions and the straight-through estimator
train zeta = z. Each way first trains with three step sizes for a sixth of the length, and then with the one whose
validation bound is best. With a budget all take the same time, without one the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from discrete_vae import load_run
from discrete_vae.figures.style import BLUE, GREEN, VERMILION
from discrete_vae.runs.io import read_json, write_json
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
)
from reproduction.sizes import load_sized
from reproduction.sweep import Sweep

Settings = Mapping[str, Sequence[object]]

_DATA = {"mnist-static": "mnist-static-rbm200", "omniglot": "omniglot"}
_PRIORS: dict[str, Settings] = {
    "rbm": {"model.prior": ["rbm"], "model.prior.num-left": [100], "model.prior.num-right": [100]},
    "independent": {"model.prior": ["factorial"], "model.prior.num-units": [200]},
}
_SAME: Settings = {
    "model.hierarchy": ["none"],
    "model.posterior.groups": [4],
    "model.posterior.hidden": [200, 200],
    "model.decoder.hidden": [200],
    "training.batch-size": [100],
    "training.num-sweeps": [10],
    "training.num-importance-samples": [1],
    "training.optimizer.rise": [0.01],
    "evaluation.num-samples": [1000],
    "evaluation.num-examples": [1000],
}
_WAYS: dict[str, Settings] = {
    "spike-exponential": {},
    "spike-slab": {"model.smoothing": ["spike-slab"]},
    "spike-gaussian": {"model.smoothing": ["spike-gaussian"], "model.smoothing.prior-loc": [2]},
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
for _kind, _k in product(("overlapping-exponential", "overlapping-power"), (1, 5, 20)):
    _WAYS[f"{_kind}-{_k}"] = {
        "model.smoothing": [_kind],
        "training.num-importance-samples": [_k],
        "training.importance-start": [0.25],  # after the warm-up
    }
_FIRST = next(iter(_WAYS))
_RATES = (1e-3, 3e-3, 9e-3)
_BASELINE_STEPS = 200  # as in the gradient study
_SCREEN = 6  # a screen is that many times shorter
_NUM_DRAWS = {"smoke": 4}  # of a gradient; else 40


@dataclass(frozen=True)
class Case:
    """What all ways share.

    Attributes:
        data: Name of the data set.
        prior: rbm or independent, 200 units.
    """

    data: str
    prior: str

    def __str__(self) -> str:
        return f"{self.data}, {self.prior}"

    def run(self, options: Options, way: str, rate: float, *, seed: int = 0, part: int = 1) -> PlannedRun:
        """Plan one run, or a part of its length."""
        experiment = _DATA[self.data]
        epochs = max(1, load_sized(experiment, options.size).training.num_epochs // part)
        rise, start = (5.0, 3.0) if self.prior == "rbm" else (2.0, 1.5)
        length = {
            "training.num-epochs": [epochs],
            "training.beta-bound.start": [start],
            "training.beta-bound.slope": [rise / epochs],
            "training.warm-up.epochs": [0.05 * epochs],
            "training.warm-up.prior-epochs": [0.2 * epochs],
        }
        same = as_changes({**_SAME, **_PRIORS[self.prior], **length, **_WAYS[way]})
        name = f"bits-{self.prior}-{way}" + (f"-part-{part}" if part > 1 else "")
        return plan_run(
            experiment,
            options.size,
            seed=seed,
            changes={"training.optimizer.learning-rate": [rate]},
            budget=None if options.budget is None else options.budget / part,
            scale=Scale(name, same),
        )

    def screens(self, options: Options, way: str) -> list[PlannedRun]:
        """The short runs of a way, a step size each."""
        return [self.run(options, way, rate, part=_SCREEN) for rate in _RATES]

    def best_rate(self, options: Options, sweep: Sweep, way: str) -> float:
        """The step size whose short run has the best bound of validation examples."""
        found = [run.record.validation_elbo for run in sweep.of(self.screens(options, way))]
        return max(
            zip(found, _RATES, strict=True), key=lambda pair: -math.inf if pair[0] is None else pair[0]
        )[1]


_CASES = [Case(data, prior) for data in _DATA for prior in _PRIORS]


def _plan(options: Options) -> list[PlannedRun]:
    return [run for case in _CASES for way in _WAYS for run in case.screens(options, way)]


def _make(options: Options, sweep: Sweep) -> Result:
    rates = {(case, way): case.best_rate(options, sweep, way) for case in _CASES for way in _WAYS}
    chosen = {
        key: [key[0].run(options, key[1], rate, seed=seed) for seed in options.seeds]
        for key, rate in rates.items()
    }
    sweep.extend([run for runs in chosen.values() for run in runs], needs_model=_lacks_variance)
    rows: list[tuple[Cell, ...]] = []
    differences: dict[str, dict[str, Value]] = {}
    for case in _CASES:
        found = {way: sweep.of(chosen[case, way]) for way in _WAYS}
        means = {way: mean_log_likelihood(runs) for way, runs in found.items()}
        differences[str(case)] = {way: paired_difference(found[_FIRST], found[way]) for way in _WAYS}
        above = None
        for way in sorted(_WAYS, key=lambda each: -means[each].value):
            runs, record = found[way], found[way][0].record
            noise = _variance(runs[0], sweep)
            apart = None if above is None else paired_difference(found[above], runs)
            rows.append(
                (
                    str(case),
                    way,
                    means[way],
                    differences[str(case)][way],
                    apart,
                    "" if apart is None else "yes" if abs(apart.value) > 2 * apart.std_error else "no",
                    mean_limit(runs),
                    mean_elbo(runs),
                    Value(noise["variance"], noise["std_error"]),
                    f"{rates[case, way]:g}",
                    record.num_steps,
                    1000 * record.seconds / record.num_steps,
                )
            )
            above = way
    columns = (
        Column("data set, prior", "case"),
        Column("way", "way"),
        Column("log-likelihood", "log_likelihood"),
        Column(f"less {_FIRST}", "difference", signed=True),
        Column("less the row above", "difference_from_above", signed=True),
        Column("apart", "apart"),
        Column("sharp limit", "log_likelihood_limit"),
        Column("ELBO", "elbo"),
        Column("variance of the gradient", "gradient_variance"),
        Column("step size", "learning_rate"),
        Column("steps", "num_steps"),
        Column("ms per step", "ms_per_step", digits=1),
    )
    looks = ((BLUE, "o"), (VERMILION, "D"), (GREEN, "s"), ("0.35", "^"))
    picture = draw_rows(
        list(_WAYS),
        [
            Series(str(case), look, [differences[str(case)][way] for way in _WAYS])
            for case, look in zip(_CASES, looks, strict=True)
        ],
        title=f"Bits alone, 200 units, {options.in_words}",
        xlabel=f"test log-likelihood less that of {_FIRST} (nats per image, right is better)",
    )
    equal = "steps" if options.budget is None else "time"
    notes = [
        f"Equal {equal} for all. Numbers after a way are importance samples of zeta under one logarithm, from a "
        "quarter of the run on. Each step size is that of three whose run of a sixth of the length has the best bound "
        "of validation examples. Differences are paired by test image; apart: by more than two standard errors. The "
        "variance is that of one gradient of 100 validation images by the posterior's parameters, summed over them, at "
        "the trained model of seed 0.",
        *notes_of([run for runs in chosen.values() for run in sweep.of(runs)]),
    ]
    title = "Ways to train bits: test log-likelihood, nats per image"
    return Result(title, notes, Table(columns, rows), picture, ending=".svg")


# The variance of the gradient at a trained model, kept beside its record.


def _variance_path(planned: PlannedRun, sweep: Sweep) -> Path:
    return sweep.records / f"{planned.name}.gradient.json"


def _lacks_variance(planned: PlannedRun, sweep: Sweep) -> bool:
    return planned.seed == 0 and not _variance_path(planned, sweep).exists()


def _variance(stored: StoredRun, sweep: Sweep) -> dict[str, float]:
    """Trace of the covariance of a gradient, its error, the squared norm of its mean, and seconds of a draw."""
    planned, path = stored.planned, _variance_path(stored.planned, sweep)
    if not path.exists():
        found = asdict(_measure(planned, sweep))
        del found["mean"]
        write_json(path, found)
    return read_json(path, repair="Move the file away to have the gradient measured anew.")


def _measure(planned: PlannedRun, sweep: Sweep) -> GradientVariance:
    """Of bits drawn once of validation images; a baseline first learns at the trained model."""
    loaded, dataset = load_run(sweep.folder(planned), device=sweep.places.device), sweep.dataset(planned)
    model, settings, seed = loaded.model, loaded.config.training, planned.config.seed
    estimator = study_estimator(model, settings.gradient, dataset, _BASELINE_STEPS, seed)
    valid = dataset.valid
    assert isinstance(valid, Tensor)
    x = torch.bernoulli(valid[:100].to(model.prior.bias), generator=torch.Generator().manual_seed(seed))
    count = settings.num_importance_samples
    draw = partial(model.estimate_gradient, estimator, x, log_partition=0.0, num_importance_samples=count)
    return gradient_variance(
        lambda noise: draw(generator=noise).loss,
        list(model.posterior.parameters()),
        num_draws=_NUM_DRAWS.get(planned.size, 40),
    )


RELAXATIONS = {
    "relaxations": Reproduction(
        "ways to train bits alone, beside each other under one prior",
        _make,
        _plan,
        f"{len(_CASES) * len(_WAYS)} runs, each after three of a sixth of its length",
        num_seeds=1,
        sizes=("short", "smoke", "cpu"),
    )
}
"""The table by its name."""
