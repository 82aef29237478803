"""The paper's tables, and its results that are tables here: ours beside the paper's."""

from __future__ import annotations

from statistics import fmean

from discrete_vae.config import ExperimentConfig, GaussianHierarchyConfig, GroupSharingConfig
from reproduction import paper
from reproduction.display import (
    MINUS,
    OTHER,
    OURS,
    PAPER,
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
    spread,
)
from reproduction.sizes import WITH_LARGE, Size, load_sized
from reproduction.sweep import Sweep

# What tables of many runs make smaller in size short, and figures 6 and 9 in size paper.


_BRIEF = {
    "training.num-epochs": [64],
    "training.beta-bound.slope": [5 / 64],
    "training.validate-every": [320],
    "training.num-importance-samples": [1],
}
_NARROW_POSTERIOR = {"model.posterior.hidden": [100, 100], "model.hierarchy.posterior-hidden": [100, 100]}
_NARROW = _NARROW_POSTERIOR | {"model.decoder.hidden": [400]}

TEN_LAYERS = Scale(
    "ten-layers", as_changes({"model.hierarchy.num-layers": [10], "model.hierarchy.sharing": ["none"]})
)
"""Figures 6 and 9 in the paper."""

BRIEF = Scale("brief", as_changes(_BRIEF))
"""Half of size short's steps, all of the ELBO as in the paper, for both MNISTs."""

SMALL = Scale("small", as_changes(_BRIEF | _NARROW))
"""The same with narrow networks."""

NARROW = {
    "mnist-dynamic": Scale("narrow", as_changes(_NARROW)),
    "mnist-static": Scale("narrow", as_changes(_NARROW)),
    "omniglot": Scale("narrow", as_changes(_NARROW | {"model.hierarchy.prior-hidden": [100]})),
    "caltech101-silhouettes": Scale("narrow", as_changes(_NARROW_POSTERIOR)),
}
"""Size short with narrow networks, by experiment: the models that come with the library."""


# Table 1: test log-likelihoods on the four data sets.


MAIN = "the four main runs"
DATA_SETS = {"data sets": tuple(paper.MAIN_RESULTS)}
"""What may be asked for alone of the main runs."""


def plan_main_runs(options: Options) -> list[PlannedRun]:
    """The runs of the four data sets, seed after seed, which most tables and figures share."""
    names = options.chosen(DATA_SETS["data sets"])
    return [options.run(name, seed) for seed in options.seeds for name in names]


def find_main_runs(options: Options, sweep: Sweep) -> dict[str, list[StoredRun]]:
    """The runs of each data set that is asked for, or complete besides."""
    planned = {name: [options.run(name, seed) for seed in options.seeds] for name in paper.MAIN_RESULTS}
    return {name: sweep.of(runs) for name, runs in planned.items() if sweep.find(runs)}


def _make_table_1(options: Options, sweep: Sweep) -> Result:
    rows: list[tuple[Cell, ...]] = []
    differences: list[Value] = []
    runs = []
    for name, ours in find_main_runs(options, sweep).items():
        papers = paper.MAIN_RESULTS[name]
        found, log_partition = mean_log_likelihood(ours), ours[0].record.log_partition
        differences.append(Value(found.value - papers.log_likelihood, found.std_error))
        rows.append(
            (
                name,
                found,
                papers.log_likelihood,
                differences[-1],
                f"{papers.next_best[0]} {papers.next_best[1]:.2f}".replace("-", MINUS),
                mean_limit(ours),
                mean_elbo(ours),
                papers.elbo,
                Value(log_partition.value, log_partition.std_error or 0.0),
                max(run.record.doubling_gain for run in ours),
                spread(ours),
            )
        )
        runs += ours
    columns = (
        Column("data set", "data_set"),
        Column("ours", "log_likelihood"),
        Column("paper", "paper"),
        Column("ours less paper", "difference", signed=True),
        Column("next best of the paper", "next_best"),
        Column("sharp limit", "log_likelihood_limit"),
        Column("ELBO", "elbo"),
        Column("paper's ELBO", "paper_elbo"),
        Column("log Z", "log_partition", digits=3),
        Column("last doubling", "doubling_gain"),
        Column("spread over seeds", "spread"),
    )
    names = [str(row[0]) for row in rows]
    results = [paper.MAIN_RESULTS[name] for name in names]
    others = [found.next_best[1] - found.log_likelihood for found in results]
    picture = draw_rows(
        names,
        [
            Series("ours, ± over test examples", OURS, differences),
            Series("paper, ± over its 16 runs", PAPER, [Value(0.0, found.spread) for found in results]),
            Series("next best model in the paper", OTHER, others),
        ],
        title=f"Test log-likelihood beside the paper's discrete VAE, {options.in_words}",
        xlabel="difference from the paper, nats per test example (right is better)",
    )
    means = "means over the seeds, " if options.num_seeds > 1 else "of one run each, "
    note = (
        f"The paper's values are means of 16 runs ({paper.TABLE_1}); ours are {means}with zeta sampled as in training; "
        "the sharp limit has zeta = z. log Z is that of seed 0."
    )
    title = "Table 1: test log-likelihood, nats per example"
    return Result(title, [note, *notes_of(runs)], Table(columns, rows), picture, ending=".svg")


# Table 2: the sizes of the four models, of the configs alone.


def architecture_of(config: ExperimentConfig) -> paper.Architecture:
    """Row of table 2 for a model with Gaussian layers whose prior networks have one hidden layer."""
    layers = config.model.hierarchy
    assert isinstance(layers, GaussianHierarchyConfig)
    (hidden,) = layers.prior_hidden
    groups = layers.sharing.num_groups if isinstance(layers.sharing, GroupSharingConfig) else None
    return paper.Architecture(layers.num_layers, layers.num_units, hidden, layers.sharing.kind, groups)


def _make_table_2(options: Options, sweep: Sweep) -> Result:
    rows: list[tuple[Cell, ...]] = []
    same = True
    for name, papers in paper.ARCHITECTURES.items():
        sizes: dict[Size, None] = dict.fromkeys(["paper", options.size])
        ours = {f"size {size}": architecture_of(load_sized(name, size)) for size in sizes}
        same &= ours["size paper"] == papers
        for whose, found in {"paper": papers, **ours}.items():
            sharing = found.sharing if found.num_groups is None else f"{found.num_groups} groups"
            rows.append((name, whose, found.num_layers, found.num_units, found.prior_hidden, sharing))
    columns = (
        Column("data set", "data_set"),
        Column("whose", "whose"),
        Column("layers", "num_layers"),
        Column("units", "num_units"),
        Column("prior hidden", "prior_hidden"),
        Column("sharing", "sharing"),
    )
    verdict = "is the paper's" if same else "is not the paper's"
    note = f"The paper's rows are {paper.TABLE_2}. Every number of size paper {verdict}. Nothing is trained for it."
    return Result("Table 2: sizes of the four models", [note], Table(columns, rows))


# The main runs beside the same with independent binary latents.


def _plan_pair(name: str, seed: int, options: Options) -> tuple[PlannedRun, PlannedRun]:
    """A main run, narrower in size short, and the same without couplings."""
    scale = NARROW[name] if options.size == "short" else None
    without = options.run(name, seed, {"model.prior": ["factorial"]}, scale)
    return options.run(name, seed, scale=scale), without


def _plan_without_rbm(options: Options) -> list[PlannedRun]:
    pairs = [_plan_pair(name, seed, options) for seed in options.seeds for name in paper.MAIN_RESULTS]
    return [run for pair in pairs for run in pair]


def _make_without_rbm(options: Options, sweep: Sweep) -> Result:
    rows: list[tuple[Cell, ...]] = []
    differences: list[Value] = []
    for name, result in paper.MAIN_RESULTS.items():
        pairs = [_plan_pair(name, seed, options) for seed in options.seeds]
        with_rbm, without = (sweep.of(each) for each in zip(*pairs, strict=True))
        found, papers = paired_difference(with_rbm, without), -result.without_rbm
        differences.append(found)
        apart = Value(found.value - papers, found.std_error)
        rows.append((name, mean_log_likelihood(with_rbm), mean_log_likelihood(without), found, papers, apart))
    columns = (
        Column("data set", "data_set"),
        Column("with RBM", "with_rbm"),
        Column("without", "without_rbm"),
        Column("without less with", "difference", signed=True),
        Column("paper's", "paper_difference", signed=True),
        Column("difference of the two", "difference_from_paper", signed=True),
    )
    picture = draw_rows(
        list(paper.MAIN_RESULTS),
        [
            Series("ours, with standard error", OURS, differences),
            Series("paper", PAPER, [-result.without_rbm for result in paper.MAIN_RESULTS.values()]),
        ],
        title=f"What removing the RBM changes, {options.in_words}",
        xlabel="change of the test log-likelihood (nats per example)",
    )
    # with a budget the epochs differ
    unchanged = " and nothing else changed" if options.budget is None else ""
    note = (
        f"The runs without RBM have --model.prior factorial{unchanged}. The paper's values: {paper.RESULTS}."
    )
    title = "Without the RBM: test log-likelihood, nats per example"
    notes = [note, *notes_of(list(sweep.stored.values()))]
    return Result(title, notes, Table(columns, rows), picture, ending=".svg")


# The simplified models of the supplement: static MNIST, binary latents alone.


_SIMPLIFIED_IN_WORDS = {
    "mnist-static-factorial": "200 independent units, factorial posterior, linear decoder",
    "mnist-static-factorial-prior": "200 independent units, linear decoder",
    "mnist-static-rbm128-linear": "RBM 128, linear decoder",
    "mnist-static-rbm200-linear": "RBM 200, linear decoder",
    "mnist-static-rbm128": "RBM 128, deep decoder",
    "mnist-static-rbm200": "RBM 200, deep decoder",
}


def _plan_simplified(options: Options) -> list[PlannedRun]:
    return [options.run(name, seed) for seed in options.seeds for name in paper.SIMPLIFIED]


def _make_simplified(options: Options, sweep: Sweep) -> Result:
    rows: list[tuple[Cell, ...]] = []
    means: list[Value] = []
    before = None
    for name, papers in paper.SIMPLIFIED.items():
        runs = sweep.of([options.run(name, seed) for seed in options.seeds])
        means.append(mean_log_likelihood(runs))
        rows.append(
            (
                name,
                means[-1],
                papers,
                Value(means[-1].value - papers, means[-1].std_error),
                None if before is None else paired_difference(before[0], runs),
                None if before is None else papers - before[1],
                mean_limit(runs),
                mean_elbo(runs),
                max(run.record.doubling_gain for run in runs),
                round(fmean(run.record.num_steps for run in runs)),
                fmean(run.record.seconds for run in runs) / 60,
            )
        )
        before = runs, papers
    columns = (
        Column("model", "experiment"),
        Column("ours", "log_likelihood"),
        Column("paper", "paper"),
        Column("ours less paper", "difference", signed=True),
        Column("gap to the row above", "gap", signed=True),
        Column("paper's gap", "paper_gap", signed=True),
        Column("sharp limit", "log_likelihood_limit"),
        Column("ELBO", "elbo"),
        Column("last doubling", "doubling_gain"),
        Column("steps", "num_steps"),
        Column("minutes", "minutes", digits=0),
    )
    picture = draw_rows(
        [_SIMPLIFIED_IN_WORDS[name] for name in paper.SIMPLIFIED],
        [
            Series("ours, with standard error", OURS, means),
            Series("paper", PAPER, list(paper.SIMPLIFIED.values())),
        ],
        title=f"Binary latents alone, static MNIST, {options.in_words}",
        xlabel="test log-likelihood (nats per image)",
    )
    note = f"The paper's values: {paper.SUPPLEMENT}, which gives neither widths nor lengths."
    note += " Gaps are paired by test image."
    title = "Simplified models: test log-likelihood on static MNIST, nats per example"
    notes = [note, *notes_of(list(sweep.stored.values()))]
    return Result(title, notes, Table(columns, rows), picture, ending=".svg")


TABLES = {
    "table-1": Reproduction(
        "test log-likelihood on the four data sets",
        _make_table_1,
        plan_main_runs,
        MAIN,
        num_seeds=1,
        sizes=WITH_LARGE,
        parts=DATA_SETS,
    ),
    "table-2": Reproduction("sizes of the four models", _make_table_2, sizes=WITH_LARGE),
    "without-rbm": Reproduction(
        "what removing the RBM does, paired by test image",
        _make_without_rbm,
        _plan_without_rbm,
        f"{MAIN} and four without couplings",
        num_seeds=1,
    ),
    "simplified-models": Reproduction(
        "six models of static MNIST with binary latents alone (supplement)",
        _make_simplified,
        _plan_simplified,
        "six runs",
        num_seeds=1,
    ),
}
"""The tables by name."""
