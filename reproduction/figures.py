"""The paper's figures, and the studies: of records, of trained models, of transformations and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from discrete_vae import load_run
from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.build import count_weights
from discrete_vae.config import ExperimentConfig, MLPDecoderConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.diagnostics import repeat_log_partition
from discrete_vae.figures.curves import LogPartitionHistogram, log_partition_histogram_table
from discrete_vae.figures.run import make_evolution
from discrete_vae.figures.style import BLUE, VERMILION, FigureRequest, FigureRun, Picture, tidy
from discrete_vae.log_partition.bridge import bennett_log_partition
from discrete_vae.presets import load_experiment
from discrete_vae.runs.io import read_json, write_json
from discrete_vae.training.schedules import first_importance_step
from reproduction import paper
from reproduction.display import (
    OURS,
    PAPER,
    Cell,
    Column,
    Options,
    Reproduction,
    Result,
    Series,
    Table,
    draw_curves,
    legend_below,
    notes_of,
)
from reproduction.gradient_study import SIZES, draw_gradient_study, gradient_study_table
from reproduction.records import (
    PlannedRun,
    RunRecord,
    Scale,
    StoredRun,
    Value,
    mean_log_likelihood,
    paired_difference,
    read_record,
    spread,
)
from reproduction.sizes import WITH_LARGE
from reproduction.sweep import Sweep
from reproduction.tables import BRIEF, DATA_SETS, MAIN, SMALL, TEN_LAYERS, find_main_runs, plan_main_runs
from reproduction.transformations import (
    draw_inverse_cdfs,
    draw_shifted_spike_gaussian,
    inverse_cdfs,
    shifted_spike_gaussian_table,
)

# The training of the main runs: bounds against time, the gap between them, and how much more size paper computes.


_SHOWN_FROM = 0.05  # of a run; before, bounds rise by more than all that follows


def _make_training(options: Options, sweep: Sweep) -> Result:
    runs = {name: stored[0] for name, stored in find_main_runs(options, sweep).items()}
    rows: list[tuple[Cell, ...]] = []
    for name, run in runs.items():
        minutes, valid = _points(run, "validation_elbo")
        half, later = np.interp([0.5 * minutes[-1], 0.75 * minutes[-1]], minutes, valid)
        ours = mean_log_likelihood([run])
        rows.append(
            (
                name,
                run.record.seconds / 60,
                float(half),
                float(later),
                float(valid[-1]),
                _gap(run),
                ours,
                Value(ours.value - paper.MAIN_RESULTS[name].log_likelihood, ours.std_error),
                _work(load_experiment(name, "paper")) / _work(run.record.config),
            )
        )
    columns = (
        Column("data set", "data_set"),
        Column("minutes", "minutes", digits=0),
        Column("validation ELBO at half of them", "validation_elbo_half"),
        Column("at three quarters", "validation_elbo_three_quarters"),
        Column("at the end", "validation_elbo"),
        Column("training less validation ELBO", "gap", signed=True),
        Column("test log-likelihood", "log_likelihood"),
        Column("less the paper's", "difference", signed=True),
        Column("products of size paper", "work_of_paper", digits=0),
    )
    note = (
        "ELBOs in nats per example, with one sample per example; validation ELBOs between validations are "
        "interpolated, and a training ELBO is a mean over the steps of a line of the log. Where the picture has a "
        "dotted line, training counts the bound of several importance samples from there on, which is another quantity "
        "and is not drawn; the difference of training and validation is that before it, of other runs that at the end. "
        "The last column says how many times the multiplications of ours size paper takes, counted as weights times "
        "training examples that pass through them, those of a convolution as if it had one place; further importance "
        "samples are not counted."
    )
    title = "Training of the main runs: bounds against time"
    notes = [note, *notes_of(list(runs.values()))]
    return Result(title, notes, Table(columns, rows), _draw_training(runs, options), ending=".svg")


def _points(run: StoredRun, quantity: str) -> tuple[np.ndarray, np.ndarray]:
    """Minutes and values where a run's history has the quantity."""
    found = run.history.dropna(subset=[quantity])
    return found["seconds"].to_numpy() / 60, found[quantity].to_numpy()


def _gap(run: StoredRun) -> float:
    """Training less validation ELBO where training counts the ELBO for the last time; NaN if none is known by then."""
    first = first_importance_step(run.record.config.training, run.record.num_steps)
    counted = run.history["step"] <= (run.record.num_steps if first is None else first)
    last = run.history.loc[counted, ["elbo", "validation_elbo"]].ffill().tail(1).to_numpy()
    return float(last[0, 0] - last[0, 1]) if len(last) else math.nan


def _work(config: ExperimentConfig) -> float:
    """Weights times training examples, up to a factor of the data set; what costs a run its time."""
    return float(count_weights(config.model)) * config.training.num_epochs


def _draw_training(runs: Mapping[str, StoredRun], options: Options) -> Picture:
    lines = math.ceil(len(runs) / 2)
    figure = Picture((7.2, 0.8 + 2.4 * lines), layout="constrained")
    figure.suptitle(f"ELBO of the main runs against time, {options.in_words}", fontsize=10, x=0.01, ha="left")
    panels = list(figure.subplots(lines, 2, squeeze=False, sharex=True).flat)
    for axes in panels[len(runs) :]:
        axes.set_visible(False)
    for axes, (name, run) in zip(panels, runs.items(), strict=False):
        _draw_run(axes, run)
        axes.set_title(name, fontsize=9, loc="left")
    for axes in panels[max(0, len(runs) - 2) : len(runs)]:  # the lowest of each column
        axes.set_xlabel("minutes of training", fontsize=9)
        axes.tick_params(labelbottom=True)
    for axes in panels[::2]:
        axes.set_ylabel("ELBO (nats per example)", fontsize=9)
    legend_below(figure, 3)
    return figure


def _draw_run(axes: Axes, run: StoredRun) -> None:
    first = first_importance_step(run.record.config.training, run.record.num_steps)
    turn = math.inf if first is None else float(np.interp(first, run.history.step, run.history.seconds / 60))
    shown = []
    for quantity, color, label in (("elbo", BLUE, "training"), ("validation_elbo", VERMILION, "validation")):
        minutes, values = _points(run, quantity)
        counted = minutes <= (turn if quantity == "elbo" else math.inf)  # later it is another bound
        axes.plot(minutes[counted], values[counted], color=color, linewidth=1.3, label=label)
        shown.append(values[counted & (minutes >= _SHOWN_FROM * minutes[-1])])
    if first is not None:
        axes.axvline(turn, color="0.45", linewidth=1.2, linestyle=":", label="importance samples begin")
    low, high = min(map(np.min, shown)), max(map(np.max, shown))
    margin = max(0.06 * (high - low), 0.5)
    axes.set(xlim=(0, None), ylim=(low - margin, high + margin))
    tidy(axes)


# Figures 5, 11, 12 and 13: samples of a main run along the chains of its prior.


_SAMPLE_ROWS, _SMOKE_SAMPLE_ROWS = 20, 3


def _make_samples(number: int, options: Options, sweep: Sweep) -> Result:
    ((planned, stored),) = sweep.stored.items()
    folder = sweep.folder(planned)
    load = partial(load_run, folder, device=sweep.places.device)
    num_rows = _SMOKE_SAMPLE_ROWS if options.size == "smoke" else _SAMPLE_ROWS
    run = FigureRun(folder, load, data_dir=sweep.places.data_dir)
    drawing = make_evolution(FigureRequest(run), num_rows=num_rows)
    note = (
        "Chains start where training left them and take 100 sweeps from row to row; the five images of a group share "
        "one state of the RBM and differ in their continuous layers, as in the paper."
    )
    title = f"Figure {number}: samples along the chains, {planned.experiment}"
    return Result(title, [note, *notes_of([stored])], picture=drawing.picture)


def _samples(number: int, experiment: str, about: str) -> Reproduction:
    return Reproduction(
        f"samples along the chains, {about}",
        partial(_make_samples, number),
        lambda options: [options.run(experiment, 0)],
        "one main run",
        needs_model=lambda planned, sweep: True,
        sizes=WITH_LARGE,
    )


# Figures 6 and 9: the log-likelihood against one setting.


@dataclass(frozen=True)
class Variation:
    """One setting at several values."""

    title: str  # of the figure
    experiment: str
    short: str  # what is varied, in a word or two
    setting: str  # the same for the axis
    points: Mapping[str, Sequence[int]]  # its values by size; those for all other sizes stand under ""
    reference: Mapping[str, int]  # the value that all others are compared with, by size likewise
    changes: Callable[[int], dict[str, Sequence[object]]]  # settings of a point
    scale: Mapping[str, Scale]  # by size, what makes all runs smaller than the experiment
    curve: Callable[[Options], paper.Curve]  # the paper's points, for the decoder that the experiment has

    def points_of(self, options: Options) -> Sequence[int]:
        """The values in a size."""
        return self.points.get(options.size, self.points[""])

    def runs(self, options: Options, point: int) -> list[PlannedRun]:
        """The runs of a point, a seed each."""
        changes, scale = self.changes(point), self.scale.get(options.size)
        return [options.run(self.experiment, seed, changes, scale) for seed in options.seeds]

    def plan(self, options: Options) -> list[PlannedRun]:
        """All runs, seed after seed, so that a break leaves whole seeds."""
        points = self.points_of(options)
        return [self.runs(options, point)[seed] for seed in options.seeds for point in points]

    def make(self, options: Options, sweep: Sweep) -> Result:
        """The table and the picture."""
        points, curve = self.points_of(options), self.curve(options)
        reference = self.reference.get(options.size, self.reference[""])
        base = sweep.of(self.runs(options, reference))
        papers = dict(zip(curve.x, curve.log_likelihood, strict=True))
        anchor = papers.get(reference)
        rows: list[tuple[Cell, ...]] = []
        effects: list[Value] = []
        for point in points:
            runs, known = sweep.of(self.runs(options, point)), papers.get(point)
            effects.append(Value(0.0) if point == reference else paired_difference(base, runs))
            papers_effect = None if known is None or anchor is None else known - anchor
            mean = mean_log_likelihood(runs)
            rows.append((str(point), mean, spread(runs), effects[-1], known, papers_effect))
        columns = (
            Column(self.short, "point"),
            Column("ours", "log_likelihood"),
            Column("spread", "spread"),
            Column("change", "effect", signed=True),
            Column("paper", "paper"),
            Column("its change", "paper_effect", signed=True),
        )
        papers_origin = max(curve.log_likelihood) if anchor is None else anchor
        papers_effects = [value - papers_origin for value in curve.log_likelihood]
        ours_drawn = Series("ours, with standard error", OURS, effects), points
        papers_drawn = Series("paper", PAPER, papers_effects), curve.x
        less = f"log-likelihood less that at {reference} (nats)"
        if anchor is None:
            panels = [(less, [ours_drawn]), ("log-likelihood less the highest (nats)", [papers_drawn])]
        else:
            panels = [(less, [ours_drawn, papers_drawn])]
        title = f"{self.title}: {self.experiment}, {options.in_words}"
        picture = draw_curves(panels, title=title, xlabel=self.setting)
        several = options.num_seeds > 1
        pairing = "test example and seed" if several else "test example"
        single = "" if several else " A single seed leaves out how far another one shifts a run."
        notes = notes_of(
            [run for point in points for run in sweep.of(self.runs(options, point))],
            paper_scale=self.scale.get("paper"),
            varied=[setting.replace("-", "_") for setting in self.changes(reference)],
        )
        note = f"Paper: {curve.label}, {curve.about}. Changes are from {reference}, those of ours paired by {pairing}."
        title = f"{self.title}: test log-likelihood on {self.experiment}, nats per example"
        return Result(title, [note + single, *notes], Table(columns, rows), picture, ending=".svg")

    def reproduction(self, about: str, trains: str, num_seeds: int) -> Reproduction:
        """The figure as one of those that there are."""
        return Reproduction(about, self.make, self.plan, trains, num_seeds)


def _curve_of_prior_width(options: Options) -> paper.Curve:
    decoder = options.run("mnist-static", 0).config.model.decoder
    linear = isinstance(decoder, MLPDecoderConfig) and not decoder.hidden
    return paper.PRIOR_WIDTH_LINEAR if linear else paper.PRIOR_WIDTH_DEEP


FIGURE_6A = Variation(
    "Figure 6a",
    "mnist-dynamic",
    "Gibbs iterations",
    "Gibbs iterations per training step",
    {"": (1, 10, 100)},
    {"": 100},
    lambda sweeps: {"training.num-sweeps": [sweeps]},
    {"short": SMALL, "paper": TEN_LAYERS},
    lambda _: paper.GIBBS_ITERATIONS,
)
FIGURE_6B = Variation(
    "Figure 6b",
    "mnist-dynamic",
    "RBM units",
    "units of the RBM",
    {"": (32, 64, 128)},
    {"": 128},
    lambda units: {"model.prior.num-left": [units // 2], "model.prior.num-right": [units // 2]},
    {"short": SMALL, "paper": TEN_LAYERS},
    lambda _: paper.RBM_UNITS,
)
FIGURE_6C = Variation(
    "Figure 6c",
    "mnist-dynamic",
    "groups",
    "groups of the approximating posterior",
    {"": (1, 2, 4)},
    {"": 4},
    lambda groups: {"model.posterior.groups": [groups]},
    {"short": SMALL, "paper": TEN_LAYERS},
    lambda _: paper.POSTERIOR_GROUPS,
)
FIGURE_9A = Variation(
    "Figure 9a",
    "mnist-static",
    "prior width",
    "hidden units of a prior network",
    {"": (100, 200, 400), "smoke": (25, 50, 100), "paper": (100, 300, 500)},
    {"": 200, "smoke": 50, "paper": 300},
    lambda width: {"model.hierarchy.prior-hidden": [width]},
    {"short": BRIEF, "paper": TEN_LAYERS},
    _curve_of_prior_width,
)
FIGURE_9B = Variation(
    "Figure 9b",
    "mnist-static",
    "posterior width",
    "units of each hidden layer of the posterior networks",
    {"": (200, 400, 800), "smoke": (50, 100, 200), "paper": (500, 1000, 2000)},
    {"": 400, "smoke": 100, "paper": 2000},
    lambda width: {"model.posterior.hidden": [width] * 2, "model.hierarchy.posterior-hidden": [width] * 2},
    {"short": BRIEF, "paper": TEN_LAYERS},
    lambda _: paper.POSTERIOR_WIDTH,
)


# Figure 10: repeated estimates of log Z of the four main runs.


_REPEATS, _SMOKE_REPEATS = 50, 3
_STD_ERROR = 0.01  # nats, of one estimate; a third of it, as evaluations have it, takes ten times as long
_KEPT = ("value", "std_error", "method", "num_samples", "num_sweeps", "seconds", "converged")


def _repeats(planned: PlannedRun) -> int:
    return _SMOKE_REPEATS if planned.size == "smoke" else _REPEATS


def _estimates_path(planned: PlannedRun, sweep: Sweep) -> Path:
    return sweep.records / f"{planned.name}-log-partition.json"


def _std_error(planned: PlannedRun) -> float:
    return max(_STD_ERROR, planned.config.evaluation.log_partition_std_error)


def _known_estimates(planned: PlannedRun, sweep: Sweep, record: RunRecord) -> list[LogPartition]:
    """The estimates that are there, if they are of the recorded run and to the error that today's would have."""
    path = _estimates_path(planned, sweep)
    if not path.exists():
        return []
    repair = "Move the file away to have the estimates made anew."
    fields = read_json(path, repair=repair)
    try:
        found = [LogPartition(**each) for each in fields["estimates"]]
        is_todays = record.is_of(fields) and fields["std_error"] == _std_error(planned)
    except (KeyError, TypeError):
        raise InvalidInputError(str(path), "must hold estimates of log Z", "other fields", repair) from None
    return found if is_todays else []


def _lacks_estimates(planned: PlannedRun, sweep: Sweep) -> bool:
    stored = read_record(sweep.records, planned)
    return stored is None or len(_known_estimates(planned, sweep, stored.record)) < _repeats(planned)


def _estimates(stored: StoredRun, sweep: Sweep) -> list[LogPartition]:
    """All estimates of a run; those that are missing are made, each kept at once, with seeds of their own."""
    planned, record = stored.planned, stored.record
    found = _known_estimates(planned, sweep, record)
    total, std_error = _repeats(planned), _std_error(planned)
    if len(found) >= total:
        return found
    loaded = load_run(sweep.folder(planned), device=sweep.places.device)
    config = loaded.config.evaluation
    start = loaded.chains.step(config.num_chain_sweeps)

    def estimate(seed: int) -> LogPartition:
        sweep.check()
        prior, most = loaded.model.prior, config.max_tempered_sweeps
        return bennett_log_partition(prior, std_error=std_error, max_sweeps=most, start=start, seed=seed)

    def keep(number: int, each: LogPartition) -> None:
        found.append(each)
        sweep.say(f"{planned}: log Z {number} of {total}: {each.value:.4f} ± {each.std_error:.4f} nats")
        about = {"run": planned.name, "step": record.step, "validation_elbo": record.validation_elbo}
        kept = [{name: value for name, value in asdict(one).items() if name in _KEPT} for one in found]
        write_json(_estimates_path(planned, sweep), about | {"std_error": std_error, "estimates": kept})

    repeat_log_partition(estimate, total, done=found, seed=config.seed, report=keep)
    return found


def _make_figure_10(options: Options, sweep: Sweep) -> Result:
    tables = {}
    rows: list[tuple[Cell, ...]] = []
    num_short = 0
    for planned, stored in sweep.stored.items():
        found = _estimates(stored, sweep)
        num_short += sum(each.converged is False for each in found)
        table = log_partition_histogram_table([e.value for e in found], [e.std_error for e in found])
        tables[planned.experiment] = table
        count, deviation = len(table.value), float(table.value.std(ddof=1))
        rows.append(
            (
                planned.experiment,
                Value(float(table.value.mean()), deviation / count**0.5),
                count,
                deviation,
                table.stated,
                float(np.ptp(table.value)),
                paper.LOG_PARTITION_SPREAD,
            )
        )
    columns = (
        Column("data set", "data_set"),
        Column("mean of log Z", "mean", digits=4),
        Column("repeats", "repeats"),
        Column("their spread", "spread", digits=4),
        Column("stated error", "stated_error", digits=4),
        Column("largest less smallest", "range", digits=4),
        Column("paper's, about", "paper_range", digits=1),
    )
    missed = f"{num_short} of them have not reached it" if num_short else "which all have reached"
    note = (
        "Bridge sampling with unrelated seeds, tuning included, of the best checkpoint of each main run, each estimate "
        f"to {_std_error(next(iter(sweep.stored))):g} nats, {missed}. The paper's repeats differ by no more than about "
        "0.1 nats (section log-partition-function)."
    )
    notes = [note, *notes_of(list(sweep.stored.values()))]
    title = "Figure 10: repeated estimates of log Z"
    return Result(title, notes, Table(columns, rows), draw_repeats(tables), ending=".svg")


def draw_repeats(tables: Mapping[str, LogPartitionHistogram]) -> Picture:
    """A row per run: its estimates as dots, piled up where they coincide, over a band of twice the stated error."""
    figure = Picture((7.2, 1.2 + 0.75 * len(tables)), layout="constrained")
    axes = figure.subplots()
    widest = max(float(np.abs(table.value - table.value.mean()).max()) for table in tables.values())
    cell = max(widest, 1e-12) / 20  # the width of a pile
    for row, table in enumerate(tables.values()):
        pile = np.round((table.value - table.value.mean()) / cell).astype(int)
        rank = np.array([np.count_nonzero(pile[:i] == pile[i]) for i in range(len(pile))])
        error, height = 2 * table.stated, row + 0.25 - 0.075 * rank
        band = "\N{PLUS-MINUS SIGN}2 stated errors"
        axes.barh(row - 0.05, 2 * error, 0.75, -error, color="0.9", label=band)
        axes.plot(pile * cell, height, "o", color=BLUE, markersize=3.5, label="one estimate")
    axes.set_yticks(range(len(tables)), list(tables))
    axes.set_ylim(len(tables) - 0.5, -0.6)
    axes.set_xlabel("log Z less the mean of its estimates (nats)", fontsize=9)
    tidy(axes)
    axes.grid(visible=False, axis="y")
    legend_below(figure, 2)
    return figure


# Transformations and gradients: nothing is trained for them but by the study itself.


def _make_inverse_cdf(number: int, kind: str, options: Options, sweep: Sweep) -> Result:
    label = {2: "fig:inverse-cdf", 7: "fig:inverse-cdf-mixture-of-ramps", 8: "fig:inverse-cdf-spike-and-slab"}
    beside = ", and rectifiers with the noise of dropout and of batch normalization" if number == 2 else ""
    return Result(
        f"Figure {number}: inverse CDFs of {kind}{beside}",
        [f"{label[number]} of the paper, with its values of rho{' and beta' * (number == 2)}."],
        picture=draw_inverse_cdfs(inverse_cdfs([kind], rectifiers=number == 2)),
        ending=".svg",
    )


def _make_inverse_cdfs(options: Options, sweep: Sweep) -> Result:
    title = "Inverse CDFs of all transformations, and rectifiers with noise"
    note = (
        "For fixed noise rho, zeta is a function of q(z = 1), a panel per transformation: in the first row those with "
        "a spike at 0, in the second those without. The paper compares them with the rectifiers of the last row, with "
        "the noise of dropout, and of batch normalization: a shift (dashed) or a scale (dotted)."
    )
    return Result(title, [note], picture=draw_inverse_cdfs(inverse_cdfs()), ending=".svg")


def _make_shifted(options: Options, sweep: Sweep) -> Result:
    table = shifted_spike_gaussian_table(seed=options.seed)
    title = "Gradients of both forms of the spike-and-Gaussian, and the exact ones"
    return Result(title, picture=draw_shifted_spike_gaussian(table), numbers=table, ending=".svg")


def _make_gradient_study(options: Options, sweep: Sweep) -> Result:
    path = sweep.places.out / f"gradient-study-{options.size}.csv"
    study = gradient_study_table(
        SIZES[options.size],
        seed=options.seed,
        path=path,
        runs=sweep.places.runs / path.stem,
        report=sweep.say,
        check=sweep.check,
    )
    title = "Cost of every gradient estimator at equal error"
    picture = draw_gradient_study(study)
    return Result(title, study.summary(), picture=picture, ending=".svg")


FIGURES = {
    "training": Reproduction(
        "bounds of the main runs against time",
        _make_training,
        plan_main_runs,
        MAIN,
        sizes=WITH_LARGE,
        parts=DATA_SETS,
    ),
    "figure-2": Reproduction(
        "inverse CDF of spike-and-exponential, and rectifiers with noise",
        partial(_make_inverse_cdf, 2, "spike-exponential"),
        sizes=(),
    ),
    "figure-5": _samples(5, "mnist-dynamic", "dynamic MNIST"),
    "figure-6a": FIGURE_6A.reproduction(
        "log-likelihood against Gibbs iterations, dynamic MNIST", "nine runs", 3
    ),
    "figure-6b": FIGURE_6B.reproduction("log-likelihood against units of the RBM", "nine runs", 3),
    "figure-6c": FIGURE_6C.reproduction("log-likelihood against groups of the posterior", "nine runs", 3),
    "figure-7": Reproduction(
        "inverse CDF of the mixture of ramps", partial(_make_inverse_cdf, 7, "ramps"), sizes=()
    ),
    "figure-8": Reproduction(
        "inverse CDF of spike-and-slab", partial(_make_inverse_cdf, 8, "spike-slab"), sizes=()
    ),
    "figure-9a": FIGURE_9A.reproduction(
        "log-likelihood against the width of the prior, static MNIST", "three runs", 1
    ),
    "figure-9b": FIGURE_9B.reproduction("log-likelihood against the width of the posterior", "three runs", 1),
    "figure-10": Reproduction(
        "50 estimates of log Z for each data set",
        _make_figure_10,
        plan_main_runs,
        MAIN,
        needs_model=_lacks_estimates,
        sizes=WITH_LARGE,
    ),
    "figure-11": _samples(11, "mnist-static", "static MNIST"),
    "figure-12": _samples(12, "omniglot", "Omniglot"),
    "figure-13": _samples(13, "caltech101-silhouettes", "Caltech-101 Silhouettes"),
    "inverse-cdfs": Reproduction(
        "inverse CDFs of all transformations, and rectifiers with noise", _make_inverse_cdfs, sizes=()
    ),
    "shifted-spike-gaussian": Reproduction(
        "bias of the shifted spike-and-Gaussian's gradients, beside the unshifted form",
        _make_shifted,
        sizes=(),
        has_noise=True,
    ),
    "gradient-study": Reproduction(
        "variance of every gradient estimator at equal cost; takes minutes, and goes on where it was stopped",
        _make_gradient_study,
        sizes=("short", "smoke", "paper"),
        has_noise=True,
    ),
}
"""The figures by name, in the order of the paper, and the studies."""
