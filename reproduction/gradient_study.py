"""What each gradient estimator costs in variance: against units, against beta, before and after training."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from discrete_vae.figures.results import KeptRows, columns_of
from discrete_vae.system import in_words
from reproduction.gradient_measurements import CostUnit, GradientRow, measure_case, study_cases
from reproduction.gradient_methods import METHODS, OURS, PriorName, StateName, StudySettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from discrete_vae.figures.style import Picture

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


@dataclass(frozen=True, eq=False)
class GradientStudy:
    """The study.

    Attributes:
        rows: Its measurements.
        settings: What was asked for.
    """

    rows: tuple[GradientRow, ...]
    settings: StudySettings

    def columns(self) -> dict[str, np.ndarray]:
        """A row per measurement."""
        return columns_of(self.rows)

    def costs(
        self,
        prior: str,
        state: str,
        method: str,
        num_units: int,
        beta: float,
        unit: CostUnit = "evaluations",
    ) -> np.ndarray:
        """`GradientRow.cost` of each repeat of a case, (repeat,); beta is ignored where the method has none."""
        case = (prior, state, method, num_units)
        found = [row for row in self.rows if (row.prior, row.state, row.method, row.num_units) == case]
        return np.array([row.cost(unit) for row in found if math.isnan(row.beta) or row.beta == beta])

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


def gradient_study_table(
    settings: StudySettings,
    *,
    seed: int = 0,
    table_path: Path | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> GradientStudy:
    """Measure every method on 8x8 digits.

    A gradient is that of the mean loss of a batch of test examples by the parameters that make the posterior's logits,
    in evaluation mode, where examples know nothing of each other. Under the factorial prior the posterior is factorial,
    under the Boltzmann machine it has four groups. All score-function methods, and the paper's naive gradient of the
    KL, are for the model with the spike-and-exponential transformation, whose own gradient has the same expectation;
    every other transformation is a model of its own.

    Args:
        settings: How much is computed.
        seed: Seed of the models and of all noise.
        table_path: A .csv file; rows that it has of the same settings are not measured again. Runs of trained models
            are kept in the folder of that name without its ending. None keeps nothing.
        report: Takes a line per model.

    Returns:
        The study.

    Raises:
        InvalidInputError: If the file holds another table, or cannot be written.
    """
    kept = KeptRows(GradientRow, table_path)
    cases = list(study_cases(settings))
    wanted = [case.key(name, settings, seed) for case in cases for name in case.methods]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if table_path is None else table_path.with_suffix("")
        for number, case in enumerate(cases, 1):
            if all(case.key(name, settings, seed) in kept.rows for name in case.methods):
                continue
            start = time.monotonic()
            kept.add(measure_case(case, settings, seed, folder))
            report(f"{number}/{len(cases)}  {case}: {in_words(time.monotonic() - start)}")
    return GradientStudy(tuple(kept.rows[key] for key in wanted), settings)


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Geometric mean of positive numbers, and the standard error of its logarithm; NaN where one is not positive."""
    if len(values) == 0 or values.min() <= 0:
        return math.nan, math.nan
    logs = np.log(values)
    error = float(logs.std(ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
    return math.exp(float(logs.mean())), error


_PRIORS = {"factorial": "factorial prior and posterior", "rbm": "Boltzmann machine, four groups"}
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")  # Okabe and Ito's
_MARKERS = "osD^vXP"


def draw_gradient_study(table: GradientStudy) -> Picture:
    """Draw variance times decodings over units and over beta, on logarithmic axes.

    Solid lines are gradients through zeta, dashed ones use the score function. Bars are standard errors over repeats.

    Args:
        table: What `gradient_study_table` returned.

    Returns:
        The figure.
    """
    from discrete_vae.figures.style import Picture

    settings, priors, states = table.settings, get_args(PriorName), get_args(StateName)
    figure = Picture((11.0, 6.6), layout="constrained")
    grid = figure.subplots(len(priors), 2 * len(states), sharey="row", squeeze=False)
    for prior, row in zip(priors, grid, strict=True):
        for place, state in enumerate(states):
            units = [(units, settings.unit_beta) for units in settings.num_units]
            _draw_sweep(row[place], table, prior, state, units, list(settings.num_units))
            row[place].set(
                xlabel=f"units of the prior (\N{GREEK SMALL LETTER BETA} = {settings.unit_beta:g})"
            )
            betas = [(settings.beta_units, beta) for beta in settings.betas]
            axes = row[len(states) + place]
            _draw_sweep(axes, table, prior, state, betas, list(settings.betas), of_beta=True)
            axes.set(xlabel=f"\N{GREEK SMALL LETTER BETA} ({settings.beta_units} units)")
            for each in (row[place], axes):
                each.set_title(f"{_PRIORS[prior]},\n{state}", fontsize=8.5, loc="left")
        row[0].set_ylabel("variance x decodings / |gradient|\N{SUPERSCRIPT TWO}", fontsize=9)
    handles = {
        label: line
        for axes in grid.flat
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels = [name for name in METHODS if name in handles]
    lines = [handles[name] for name in labels]
    figure.legend(lines, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    return figure


def _draw_sweep(
    axes: Axes,
    table: GradientStudy,
    prior: str,
    state: str,
    points: Sequence[tuple[int, float]],
    places: Sequence[float],
    *,
    of_beta: bool = False,
) -> None:
    """One panel: a line per method, over the places of its points."""
    for name, method in METHODS.items():
        if of_beta and not method.has_beta:
            continue
        found = [mean_and_error(table.costs(prior, state, name, units, beta)) for units, beta in points]
        value, error = (np.array(each) for each in zip(*found, strict=True))
        bars = [value * (1 - np.exp(-error)), value * (np.exp(error) - 1)]
        look = _look(name)
        axes.errorbar(places, value, bars, label=name, markersize=4, capsize=2, **look)
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.minorticks_off()
    axes.grid(color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def _look(name: str) -> dict[str, Any]:
    """How a method's line looks: solid through zeta, dashed by the score function, in between dash and dot."""
    method = METHODS[name]
    own = [other for other, each in METHODS.items() if each.gradient.kind == "reparameterized"]
    if name in own:
        number, line, fill = own.index(name), "-", None
    else:
        others = [other for other in METHODS if other not in own]
        number, line, fill = -1 - others.index(name), "--" if method.is_score_function else "-.", "white"
    look = {"color": _COLORS[number], "marker": _MARKERS[number], "linestyle": line}
    return look | {"linewidth": 2.4 if name == OURS else 1.2, "markerfacecolor": fill}


def make_gradient_study(
    size: str, *, seed: int, table_path: Path, report: Callable[[str], None]
) -> tuple[GradientStudy, Picture]:
    """The study of a size; says by how much the best score-function method costs more."""
    settings = SIZES[size]
    table = gradient_study_table(settings, seed=seed, table_path=table_path, report=report)
    points = [(units, settings.unit_beta) for units in settings.num_units]
    points += [(settings.beta_units, beta) for beta in settings.betas if beta != settings.unit_beta]
    for prior, state, (units, beta) in product(get_args(PriorName), get_args(StateName), points):
        words = []
        for unit in get_args(CostUnit):
            name, ratio, error = table.rival(prior, state, units, beta, unit)
            low, high = ratio * math.exp(-error), ratio * math.exp(error)
            words.append(f"{ratio:.3g} ({low:.3g} to {high:.3g}) times the {unit} with {name}")
        case = f"{prior}, {state}, {units} units, beta {beta:g}"
        report(f"{case}: the best score function takes {', '.join(words)}")
    return table, draw_gradient_study(table)
