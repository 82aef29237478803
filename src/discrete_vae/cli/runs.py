"""Verbs about a run: evaluate, log-partition, sample, figure, report, refit, release, cite."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discrete_vae.cli.options import (
    data_dir_option,
    examples_progress,
    hanging,
    not_one_of,
    number,
    one_of,
    option,
    verb,
    whole_number,
)
from discrete_vae.cli.trained import EXPLAINED, OPTIONS, AskedRun, ask_runs, keep, open_run, takes_run
from discrete_vae.config import ExperimentConfig
from discrete_vae.errors import InvalidInputError, NonFiniteLossError
from discrete_vae.figures.registry import FIGURES
from discrete_vae.presets import cite, experiment_names, load_experiment
from discrete_vae.runs.io import check_replaces_none, check_writable, is_stream
from discrete_vae.system import allocating, check_memory, in_words, user_path

if TYPE_CHECKING:
    from discrete_vae.boltzmann.base import LogPartition
    from discrete_vae.figures import Drawing, FigureRequest, FigureRun
    from discrete_vae.load import LoadedRun
    from discrete_vae.samplers.gibbs import Sampler
    from discrete_vae.training.refit import Refit


# dvae cite: what to cite for a run or an experiment.


@verb(
    "cite",
    "NAME is an experiment or the folder of a run; without it the paper of the model is named.",
    typed={"run_dir": "NAME"},
)
@click.argument("name", required=False)
def run_cite(name: str | None) -> int:
    """Print BibTeX of the library and of the papers whose parts are in use."""
    print(cite(None if name is None else _config_of(name)))
    return 0


def _config_of(name: str) -> ExperimentConfig:
    """The config of a run where there is such a folder, else of an experiment."""
    if Path(name).expanduser().exists():
        return open_run(name).read_experiment()
    if name not in experiment_names():
        raise not_one_of("NAME", ["the folder of a run", *experiment_names()], name)
    return load_experiment(name)


# dvae evaluate: log-likelihood, ELBO and log Z of a trained model.


@verb("evaluate", EXPLAINED, divides=True)
@takes_run
@option("--num-samples K", "importance samples per example; default: the experiment's", whole_number())
@option(
    "--num-examples N",
    "a fixed random choice of N test examples, the same for every seed; default: the experiment's, "
    "all in sizes cpu and paper",
    whole_number(),
)
@option(
    "--precision auto|float32|bfloat16",
    "of the networks' matrix products; auto is bfloat16 where it gains; default: the experiment's",
    one_of("auto", "float32", "bfloat16"),
)
@option(
    "--out FILE.json",
    "write the result there and leave the run as it is, as --pretrained asks for; default: RUN/evaluations, and the "
    "fullest result also to RUN/evaluation.json",
)
@option(
    "--per-example FILE",
    "write the log-likelihood of each example, with its standard error, to this .csv or .npz",
)
@data_dir_option
def run_evaluate(
    asked: AskedRun, out: str | None, per_example: str | None, data_dir: str | None, **settings: Any
) -> int:
    """Evaluate a run on its test data; returns the exit status."""
    from discrete_vae.cli.options import say_device
    from discrete_vae.cli.summaries import evaluation_table
    from discrete_vae.config import EvaluationConfig, instantiate
    from discrete_vae.data.splits import chosen_test_examples
    from discrete_vae.distributed import compute_on_rank_zero, rank, world_size
    from discrete_vae.inference.evaluate_run import evaluate_run
    from discrete_vae.runs.output import check_columns_path, write_columns
    from discrete_vae.runs.results import kept_evaluations
    from discrete_vae.training.run import warn_of_other_data

    run = asked.directory
    # what cannot be written is found before the hours that it would cost
    results = asked.results(out, kept_evaluations)
    compute_on_rank_zero(results.check)
    if per_example is not None:
        compute_on_rank_zero(lambda: check_columns_path("--per-example", per_example, others=asked.sources))
    loaded = asked.load()
    given = {name: value for name, value in settings.items() if value is not None}
    config = EvaluationConfig(**loaded.config.evaluation.model_dump() | given)
    dataset = instantiate(loaded.config.data, data_dir=data_dir)
    warn_of_other_data(run, dataset)
    indices = chosen_test_examples(len(dataset.test), config.num_examples, argument="--num-examples")
    say_device(asked.device)
    with examples_progress(len(indices), "log-likelihood") as progress:
        found = evaluate_run(
            loaded,
            dataset,
            config,
            indices,
            device=asked.device,
            parts_folder=asked.directory.evaluation_parts_path if out is None and world_size() == 1 else None,
            report=lambda done, mean: progress(done, f"{mean:.2f} nats"),
        )
    if rank() > 0:
        return 0
    print(f"{asked.name}, checkpoint of step {loaded.step}, {dataset.name}: {len(indices)} test examples")
    print(evaluation_table(found.result), flush=True)
    try:
        keep(results, loaded, found.fields)
        if found.parts is not None:
            found.parts.discard()
    finally:  # one file that cannot be written leaves the other
        if per_example is not None:
            path = write_columns(per_example, found.result.columns(), argument="--per-example")
            print(f"Written to {path}")
    print(f"Next: dvae sample {asked.words}")
    return 0


# dvae figure: one figure of a run by name, with the table of its numbers beside it.


_REPAIR = "Give another place: --out FILE.png."


@verb("figure", "NAME is one of those that it lists without one; RUN is the folder of a run.")
@click.argument("name", required=False)
@click.argument("run", required=False)
@option(
    "--out FILE",
    "the picture, .png, .pdf or .svg; its table goes beside it as .csv, but for a pipe or a device; default: "
    "RUN/figures/NAME.png, with --pretrained MODEL MODEL-NAME.png here",
)
@OPTIONS
@data_dir_option
def run_figure(
    name: str | None,
    run: str | None,
    out: str | None,
    seed: int | None,
    data_dir: str | None,
    pretrained: str | None,
    **named: Any,
) -> int:
    """Draw a figure and write its table; returns the exit status."""
    if name is None:
        print_figures()
        return 0
    if name not in FIGURES:
        raise not_one_of("NAME", list(FIGURES), name)
    if run is None and pretrained is None:
        repair = f"For example: dvae figure {name} runs/digits-short."
        raise InvalidInputError("RUN", f"must be given for the figure {name}", "nothing", repair)
    (asked,) = ask_runs(() if run is None else (run,), pretrained, **named)

    from discrete_vae.figures import FigureRequest, FigureRun, save_figure, save_table
    from discrete_vae.figures.style import picture_file

    if out is not None:
        picture = picture_file(out, argument="--out").path
    else:
        picture = asked.place(asked.directory.figures_path / f"{name}.png")
    check_writable(picture, repair=_REPAIR)
    table = None if is_stream(picture) else picture.with_suffix(".csv")
    if table is not None:
        if out is None and pretrained is None:
            table = asked.place(table)
        check_writable(table, repair=_REPAIR)
        check_replaces_none(table, asked.sources, argument=f"--out {picture}, whose table is {table},")
    source = FigureRun(asked.directory, asked.load, data_dir=data_dir)
    drawing = FIGURES[name].make(FigureRequest(source, seed or 0))
    if table is not None:
        print(f"Table:   {save_table(drawing.table, table)}")
    print(f"Picture: {save_figure(drawing.picture, picture, note=drawing.note)}")
    return 0


def print_figures() -> None:
    """Print every figure with what it shows."""
    print("Figures of a run: dvae figure NAME RUN")
    for name, entry in FIGURES.items():
        print(hanging(entry.about, f"  {name:25} "))


# dvae log-partition: log Z of a trained prior, repeated, with the health of the chains.


@verb("log-partition", EXPLAINED)
@takes_run
@option("--repeats R", "independent estimates; default: 1", whole_number(), default="1")
@option("--std-error S", "standard error to go for, nats; default: the run's config", number)
@option(
    "--health-sweeps N",
    "sweeps of the training chains to look at; default: 500",
    whole_number(at_least=20),
    default="500",
)
@option(
    "--out FILE",
    "the picture, .png, .pdf or .svg; default: in RUN/figures. With .json, the results instead, without a picture; "
    "the run stays as it is then, as --pretrained asks for",
)
def run_log_partition(
    asked: AskedRun,
    seed: int | None,
    repeats: int,
    std_error: float | None,
    health_sweeps: int,
    out: str | None,
) -> int:
    """Estimate log Z by bridge sampling as often as asked for; returns the exit status."""
    from discrete_vae.checks import check_number
    from discrete_vae.cli.options import say_device
    from discrete_vae.evaluation.evaluate import evaluate_prior
    from discrete_vae.figures import draw_log_partition_histogram, save_figure
    from discrete_vae.figures.curves import histogram_of_result
    from discrete_vae.figures.style import picture_file
    from discrete_vae.runs.io import is_stream
    from discrete_vae.runs.results import kept_log_partitions

    # what cannot be written is found before the work
    to_json = out is not None and (Path(out).suffix.lower() == ".json" or is_stream(Path(out)))
    if std_error is not None:
        check_number("std_error", std_error, at_least=1e-6, repair="Give nats, for example 0.01.")
    kept_in_run = not to_json and asked.pretrained is None
    results = asked.results(None if kept_in_run else out, kept_log_partitions)
    results.check()
    drawn = out or asked.place(asked.directory.figures_path / "log-partition.png")
    place = None if to_json else picture_file(drawn, argument="--out").path
    loaded = asked.load()
    settings = loaded.config.evaluation
    given = {"seed": seed or 0, "log_partition_std_error": std_error or settings.log_partition_std_error}
    settings = settings.model_copy(update=given)
    say_device(asked.device)
    print(
        f"{asked.name}, checkpoint of step {loaded.step}: prior of {loaded.model.prior.num_units} units",
        flush=True,
    )

    def report(number: int, found: LogPartition) -> None:
        print(f"{number}/{repeats}  {found}, {in_words(found.seconds or 0)}" if number else found, flush=True)

    found = evaluate_prior(
        loaded.chains, settings, repeats=repeats, health_sweeps=health_sweeps, report=report
    )
    repeated = found.repeated
    print(hanging(_ladder(repeated.estimates[-1]), "tempering: "))
    print(hanging(str(found.chains), "training chains: ", indent=11))
    if repeats > 1:
        print(
            f"mean {repeated.mean:.4f}, spread {repeated.std:.4f} nats over {repeats} repeats "
            f"(stated errors {repeated.rms_std_error:.4f})"
        )
    config = {"std_error": settings.log_partition_std_error, "seed": settings.seed}
    config |= {"max_sweeps": settings.max_tempered_sweeps, "num_chain_sweeps": settings.num_chain_sweeps}
    try:
        keep(results, loaded, {"config": config | {"health_sweeps": health_sweeps}} | found.to_json())
    finally:  # one file that cannot be written leaves the other
        if place is not None:
            table = histogram_of_result(found.to_json())
            figure = draw_log_partition_histogram(table, name=loaded.config.name)
            print(f"Picture: {save_figure(figure, place, note=loaded.note)}")
    return 0


def _ladder(found: LogPartition) -> str:
    """The ladder of an estimate."""
    rates, ladder = found.swap_rates or (), found.inverse_temperatures or ()
    return (
        f"{len(ladder)} replicas, exchange rates {min(rates):.2f} to {max(rates):.2f}, "
        f"{found.round_trips:.0f} round trips per chain, {found.effective_samples:.0f} effective samples per replica "
        f"in {found.num_sweeps} sweeps"
    )


# dvae refit: the posterior of a trained model fitted anew, as a run of its own.


_LINES = 10
_REFIT_MORE = (
    "RUN stays as it is. A refit takes minutes and writes its folder at the end, so one that is interrupted leaves "
    "nothing."
)


@verb("refit", f"{EXPLAINED} {_REFIT_MORE}")
@takes_run
@option(
    "--out DIR",
    "new folder for the run with the new posterior; default: RUN-refit, with --pretrained NAME-refit here",
)
@option("--num-steps N", "steps of Adam; default: 2000", whole_number(), default="2000")
@option("--batch-size B", "examples per step; default: as in the run's training", whole_number(at_least=2))
@option("--model-share S", "share of them that the model draws, 0 to 1; default: 0.5", number)
@option("--learning-rate R", "largest step size, which falls to a hundredth; default: 0.0003", number)
@data_dir_option
def run_refit(
    asked: AskedRun, out: str | None, num_steps: int, data_dir: str | None, seed: int | None, **given: Any
) -> int:
    """Fit encoder and posteriors on training examples and draws of the model; returns the exit status."""
    from discrete_vae.cli.options import say_device
    from discrete_vae.config import instantiate
    from discrete_vae.training.logging import TrainingProgress
    from discrete_vae.training.preflight import training_threads
    from discrete_vae.training.refit import RunRefit
    from discrete_vae.training.run import warn_of_other_data

    run = asked.directory
    loaded = asked.load()
    dataset = instantiate(loaded.config.data, data_dir=data_dir)
    warn_of_other_data(run, dataset)
    settings = {name: value for name, value in given.items() if value is not None}
    out = out or str(_beside(asked))
    refit = RunRefit(run, loaded, dataset, out, num_steps=num_steps, seed=seed or 0, **settings)
    say_device(asked.device)
    with training_threads(loaded.config, {}), TrainingProgress(0, num_steps, what="refitting") as shown:
        losses: list[float] = []

        def report(step: int, loss: float) -> None:
            losses.append(loss)
            shown.advance(step)
            if step % max(1, num_steps // _LINES) == 0:
                shown.show(step, None, {"elbo": -sum(losses) / len(losses)})
                losses.clear()

        try:
            found = refit.run(report)
        except NonFiniteLossError as error:
            raise NonFiniteLossError(error.step, error.term, error.value, loaded.step) from None
    print(f"{asked.name}, checkpoint of step {loaded.step}, {num_steps} steps")
    print(_outcome(found))
    print(f"{'Written to' if refit.made is None else 'It was there:'} {refit.folder}")
    print(f"Next: dvae evaluate {refit.folder}")
    return 0


def _beside(asked: AskedRun) -> Path:
    """RUN-refit, or that of a model that comes with the library here."""
    path = asked.directory.path if asked.pretrained is None else Path(asked.pretrained)
    named = path if path.name not in ("", "..") else path.resolve()
    return named.with_name(f"{named.name}-refit")


def _outcome(found: Refit) -> str:
    """Both bounds, and what a posterior that got worse asks for."""
    gain = found.after.elbo - found.before.elbo
    lines = [
        f"Validation ELBO {found.before.elbo:.2f} before, {found.after.elbo:.2f} after: {gain:+.3f} nats.",
        "The generative model is the same, so the difference is KL to the true posterior.",
    ]
    if gain < 0:
        lines.append("The posterior of training was better: try more steps or a smaller --learning-rate.")
    return "\n".join(lines)


# dvae release: a trained run made small enough to pass on.


_RELEASE_MORE = (
    "The new folder is a run that every verb takes, of one checkpoint, without what training would need to go on. RUN "
    "must have been evaluated, and stays as it is. The ELBO of validation examples is compared before and after; if it "
    "falls by more than 0.1 nats, nothing is written."
)


@verb("release", f"{EXPLAINED} {_RELEASE_MORE}")
@takes_run
@option("--out DIR", "new folder, after which the model is named", required=True)
@option("--license NAME", "of the weights, for the model card: apache-2.0, mit, cc-by-4.0", required=True)
@option(
    "--precision bfloat16|float32",
    "in which the matrices of the networks are kept; all else keeps every bit; default: bfloat16",
    one_of("bfloat16", "float32"),
    default="bfloat16",
)
@option(
    "--num-examples N",
    "validation examples of the check, at most; default: 1000",
    whole_number(),
    default="1000",
)
@option("--num-samples K", "draws of the posterior for each; default: 10", whole_number(), default="10")
@data_dir_option
def run_release(
    asked: AskedRun,
    seed: int | None,
    out: str,
    license: str,
    precision: Any,
    num_examples: int,
    num_samples: int,
    data_dir: str | None,
) -> int:
    """Write the released run; returns the exit status."""
    from discrete_vae.cli.options import say_device
    from discrete_vae.config import instantiate
    from discrete_vae.interop.release import check_release, release_run
    from discrete_vae.training.run import warn_of_other_data

    loaded = asked.load()
    settings = {
        "license": license,
        "precision": precision,
        "num_examples": num_examples,
        "num_samples": num_samples,
        "seed": seed or 0,
    }
    folder, made = check_release(asked.directory, loaded, out, **settings)
    dataset = instantiate(loaded.config.data, data_dir=data_dir)
    warn_of_other_data(asked.directory, dataset)
    say_device(asked.device)
    with examples_progress(2 * min(num_examples, len(dataset.valid)), "ELBO before and after") as progress:
        found = release_run(asked.directory, loaded, dataset, folder, **settings, report=progress)
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    weights = sum(size for path, size in sizes.items() if path.suffix == ".safetensors")
    print(f"{asked.name}, checkpoint of step {found.step}, in {precision}")
    print(found)
    where = f"{'Written to' if made is None else 'It was there:'} {folder}"
    print(f"{where}: {sum(sizes.values()):,} bytes, {weights:,} of them weights and chains")
    print(f"Next: dvae sample {folder}")
    return 0


# dvae report: one self-contained page about a run.


@verb("report", EXPLAINED)
@takes_run
@option(
    "--out FILE.html",
    "where to write the page; default: RUN/report.html, with --pretrained NAME-report.html here",
)
@option(
    "--labels FILE",
    "a .npy or .csv file of one label per training example, or per row of the user's file, to compare modes with; "
    "default: those of the data set, if it has some",
)
@option(
    "--num-examples N",
    "training and test examples that are looked at; default: 2000",
    whole_number(),
    default="2000",
)
@data_dir_option
def run_report(
    asked: AskedRun,
    seed: int | None,
    out: str | None,
    labels: str | None,
    num_examples: int,
    data_dir: str | None,
) -> int:
    """Write the page about a run; returns the exit status."""
    from discrete_vae.cli.options import say_device
    from discrete_vae.report import make_report
    from discrete_vae.runs.output import OutputFile

    place = asked.place(asked.directory.path / "report.html") if out is None else out
    page = OutputFile(place, endings=(".html", ".htm"))
    with _progress() as shown:

        def report(name: str, number: int, count: int) -> None:
            if number == 1:  # what is wrong has been found by then
                say_device(asked.device)
            shown(name, number, count)

        text = make_report(
            asked.directory,
            labels=labels,
            num_examples=num_examples,
            seed=seed or 0,
            data_dir=data_dir,
            load=asked.load,
            report=report,
        )
    print(f"Report: {page.write_text(text)} ({len(text.encode()) / 2**20:.1f} MiB)")
    return 0


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal, and what moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(file=sys.stderr)
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("loading")
        yield lambda name, number, count: bar.update(
            task, description=name, completed=number - 1, total=count
        )


# dvae sample: pictures of what a trained model generates.


_STARTS = ("training", "fresh")
_PICTURES = ("samples.png", "reconstructions.png", "training.png")
_FRESH_TABLE_CHAINS, _FRESH_SWEEPS = 200, 10_000
_BYTES = 16  # per unit, while chains are made


@dataclass(frozen=True)
class Shown:
    """What is to be shown; the options say what each field is, and None is what suits the data."""

    start: str
    burn_in: int | None
    num_rows: int
    num_sweeps: int
    num_chains: int | None
    num_draws: int
    seed: int


def _start(name: str, word: str) -> str:
    """Read where chains start; what is neither a word nor a file may be a word misspelt.

    Raises:
        InvalidInputError: If it is none of them.
    """
    if word in _STARTS or word.endswith(".npy") or user_path(name, word).exists():
        return word
    close = get_close_matches(word, _STARTS, n=1)
    repair = f"Did you mean {close[0]}?" if close else "Leave it out for where training left them."
    raise InvalidInputError(name, "must be training, fresh or a .npy file", repr(word)[:80], repair)


@verb("sample", EXPLAINED)
@takes_run
@option(
    "--out FILE",
    "write the samples alone to this .png, .pdf or .svg, which takes no data where they are images; default: all to "
    "RUN/figures, with --pretrained the samples alone to NAME-samples.png here",
)
@option(
    "--start training|fresh|FILE.npy",
    "where the chains start: where training left them (default), at random, or at states (chain, unit)",
    _start,
    default="training",
)
@option(
    "--burn-in N", "sweeps before the top row; default: 10,000 when fresh, else 0", whole_number(at_least=0)
)
@option("--num-rows N", "rows of the picture; default: 20", whole_number(), default="20")
@option("--num-sweeps N", "sweeps from row to row; default: 100", whole_number(), default="100")
@option("--num-chains N", "chains side by side; default: 5", whole_number())
@option("--num-draws N", "images per state; default: 5", whole_number(), default="5")
@data_dir_option
def run_sample(
    asked: AskedRun, out: str | None, data_dir: str | None, seed: int | None, **numbers: Any
) -> int:
    """Draw samples along the chains and, unless a file is named, reconstructions and the course of training."""
    from discrete_vae import figures
    from discrete_vae.figures.curves import make_training_curves
    from discrete_vae.figures.run import make_reconstructions
    from discrete_vae.figures.style import picture_file

    run, shown = asked.directory, Shown(seed=seed or 0, **numbers)
    place = None if out is None else picture_file(out, argument="--out").path
    if place is None and asked.pretrained is not None:
        place = asked.place(run.figures_path / _PICTURES[0])
    source = figures.FigureRun(run, asked.load, data_dir=data_dir)
    request = figures.FigureRequest(source, shown.seed)
    is_table = source.recorded.image_shape is None
    if place is None or is_table:  # what is missing, or damaged, is found before all drawing
        _read_data(source, is_table)
    records = run.metrics().read() if place is None else []
    samples, pairs, curves = (
        asked.place(run.figures_path / name) if place is None else place for name in _PICTURES
    )
    drawing = _samples(asked, request, [samples, pairs, curves], shown)

    def save(what: str, drawing: Drawing, path: Path) -> None:
        print(f"{what} {figures.save_figure(drawing.picture, path, note=request.run.loaded.note)}")

    save("Samples against the data:" if is_table else "Samples along the chains:", drawing, samples)
    if place is not None:
        return 0
    save("Reconstructions:         ", make_reconstructions(request), pairs)
    if any("elbo" in record for record in records):
        save("Course of training:      ", make_training_curves(request), curves)
    else:
        warnings.warn(
            f"{run.metrics_path} holds no training ELBO: the course of training is not drawn.", stacklevel=2
        )
    return 0


def _read_data(source: FigureRun, is_table: bool) -> None:
    """Read what samples of a table are compared with, and what is reconstructed.

    Raises:
        InvalidInputError: If the data are missing or damaged; says what takes none.
    """
    try:
        source.dataset  # noqa: B018 (kept there)
    except InvalidInputError as error:
        if is_table:
            raise
        repair = f"{error.repair} Samples alone take no data: --out FILE.png."
        raise InvalidInputError(error.argument, error.rule, error.received, repair) from None


def _samples(asked: AskedRun, request: FigureRequest, paths: list[Path], shown: Shown) -> Drawing:
    """Images along a few chains; of a table draws of x, of as many chains as there are and memory holds.

    What cannot be written, or does not fit the memory, is found before the chains move.
    """
    from discrete_vae.cli.options import say_device
    from discrete_vae.figures.run import (
        DEFAULT_CHAINS,
        make_evolution,
        make_feature_statistics,
        num_chains_that_fit,
    )
    from discrete_vae.figures.style import check_grid

    loaded, recorded = request.run.loaded, request.run.recorded
    num_rows, num_features, num_chains = shown.num_rows, recorded.num_features, shown.num_chains
    if recorded.image_shape is None:
        chains = _chains(loaded, shown, _FRESH_TABLE_CHAINS)
        num_chains = num_chains or num_chains_that_fit(chains.num_chains, num_features, num_rows)
        check_memory("--num-rows", 4 * num_rows * num_chains * num_features, "Ask for fewer rows or chains.")
    else:
        shape = (num_rows, num_chains or DEFAULT_CHAINS, shown.num_draws, num_features)
        check_grid(shape, recorded.image_shape)
        chains = _chains(loaded, shown, DEFAULT_CHAINS)
    if num_chains is not None and num_chains > chains.num_chains:
        rule = f"must be at most {chains.num_chains}, the number of chains"
        raise InvalidInputError("--num-chains", rule, num_chains, "Leave it out, or add --start fresh.")
    for path in paths:
        check_writable(path, repair="Give another place for the samples: --out FILE.png.")
    say_device(asked.device)
    burn_in = shown.burn_in
    if burn_in is None:
        burn_in = _FRESH_SWEEPS if shown.start == "fresh" else 0
    if burn_in:
        chains.step(burn_in)
    sizes: dict[str, Any] = {"num_rows": num_rows, "num_sweeps": shown.num_sweeps, "num_chains": num_chains}
    if recorded.image_shape is None:
        return make_feature_statistics(request, chains, **sizes)
    return make_evolution(request, chains, num_draws=shown.num_draws, **sizes)


def _chains(loaded: LoadedRun, shown: Shown, num_fresh: int) -> Sampler:
    """The chains of training, as many fresh ones, or those that start at the states of a file."""
    from discrete_vae.data.arrays import read_states
    from discrete_vae.samplers.gibbs import BlockGibbs

    if shown.start == "training":
        return loaded.chains
    prior, states = loaded.model.prior, None
    option, count, repair = "--num-chains", shown.num_chains or num_fresh, "Use fewer chains."
    if shown.start != "fresh":
        option, repair = "--start", "Give fewer chains."
        states = read_states(user_path(option, shown.start), prior.num_units, argument=option)
        count = len(states)
    check_memory(option, count * prior.num_units * _BYTES, repair)
    with allocating(option, repair):
        return BlockGibbs(prior, count, seed=shown.seed, start=states)
