"""Verbs about a run: evaluate, log-partition, sample, figure, report, refit, release, cite."""

from __future__ import annotations

import math
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discrete_vae.cli.options import (
    Outcome,
    completion,
    data_dir_option,
    further_data_dir,
    json_option,
    number,
    option,
    print_rows,
    verb,
    weighted_means,
    whole_number,
    worth,
    wrapped,
)
from discrete_vae.cli.trained import (
    EXPLAINED,
    RUN_OPTIONS,
    TrainedRun,
    open_run,
    say_written,
    takes_run,
    trained_run,
)
from discrete_vae.errors import InvalidInputError, NonFiniteLossError, not_one_of
from discrete_vae.figures.registry import FIGURES
from discrete_vae.records import digits_of, with_error
from discrete_vae.runs.io import check_replaces_none, check_writable, is_stream
from discrete_vae.system import allocating, check_memory, in_words, user_path

if TYPE_CHECKING:
    from discrete_vae.boltzmann.base import LogPartition
    from discrete_vae.figures import Drawing, FigureRequest
    from discrete_vae.inference.evaluate_run import Evaluation
    from discrete_vae.samplers.gibbs import Sampler


@verb(
    "cite",
    "NAME is an experiment or the folder of a run; without it, the paper of the model is cited.",
    typed={"run_dir": "NAME"},
)
@click.argument("name", required=False, shell_complete=completion("DIR"))
def run_cite(name: str | None) -> None:
    """Print BibTeX of the library and of the papers whose parts are in use."""
    from discrete_vae.presets import cite, experiment_names, load_experiment

    if name is None:
        print(cite(None))
    elif name in experiment_names() and not (user_path("NAME", name) / "config.json").exists():
        print(cite(load_experiment(name)))  # also beside a folder of that name which is no run
    elif user_path("NAME", name).exists():
        print(cite(open_run(name).read_experiment()))
    else:
        raise not_one_of("NAME", ["the folder of a run", *experiment_names()], name)


@verb("evaluate", EXPLAINED, divides=True)
@takes_run
@option("--num-samples K", "importance samples per example; default: the experiment's", whole_number())
@option(
    "--num-examples N", "a fixed random choice of N test examples; default: the experiment's", whole_number()
)
@option("--precision auto|float32|bfloat16", "of the networks' matrix products; default: the experiment's")
@option(
    "--sharp-limit true|false", "whether at zeta = z, too: takes as long again; default: the experiment's"
)
@option("--out FILE.json", "write the result there and leave the run as it is; default: RUN/evaluations")
@option("--per-example FILE", "write the log-likelihood of each example to this .csv or .npz file")
@data_dir_option
@json_option
def run_evaluate(
    run: TrainedRun, out: str | None, per_example: str | None, data_dir: Path | None, **settings: Any
) -> Outcome:
    """Evaluate a run on its test data."""
    from discrete_vae.config import EvaluationConfig
    from discrete_vae.data.splits import subset_indices
    from discrete_vae.distributed import world_size
    from discrete_vae.inference.evaluate_run import evaluate_run, num_modes
    from discrete_vae.runs.results import evaluation_store

    # what cannot be written is found before the hours that it would cost
    results = run.results(out, evaluation_store)
    rows = run.output(per_example, argument="--per-example", endings=(".csv", ".npz"))
    given = {name: value for name, value in settings.items() if value is not None}
    given |= {} if run.given_seed is None else {"seed": run.given_seed}
    config = EvaluationConfig(**run.loaded.config.evaluation.model_dump() | given)
    dataset = run.dataset(data_dir)
    indices = subset_indices(len(dataset.test), config.num_examples, argument="--num-examples")
    parts_folder = run.directory.evaluation_parts_path if out is None and world_size() == 1 else None
    run.say_device()
    total = num_modes(run.loaded.model, config) * len(indices)

    with run.progress(total, "log-likelihood") as progress:

        def report(done: int, mean: float) -> None:
            progress(done, f"{mean:.2f} nats")

        found = evaluate_run(run.loaded, dataset, config, indices, parts_folder=parts_folder, report=report)
    if not run.is_first_process:
        return None
    print(f"{run.title}, {dataset.name}: {len(indices)} test examples")
    print(_evaluation_table(found.result, run.loaded.model.hierarchy.num_layers > 0), flush=True)
    try:
        record = run.keep(results, found.fields)
        if found.parts is not None:
            found.parts.discard()
    finally:  # one file that cannot be written leaves the other
        if rows is not None:
            say_written(rows.write(found.result.columns()))
    if run.loaded.step == 0:
        print("This checkpoint is the model of independent columns itself.")
    else:
        print(_worth(found.result))
    print(f"Next: dvae report {run.directory.quoted}{further_data_dir(data_dir)}")
    return record


def _worth(result: Evaluation) -> str:
    """What the model is worth; its error holds that of log Z, which shifts the log-likelihoods of all examples."""
    ours, baseline = result.log_likelihood, result.independent_features
    if baseline is None or baseline.examples is None or ours.examples is None:
        return ""
    error = baseline.examples.std_error_of_gain(ours.examples.value)
    error = math.hypot(error, result.log_partition.std_error)
    count = ours.effective_examples or ours.num_examples
    return wrapped(worth(ours.value, baseline.value, error, count, "test data"))


def _evaluation_table(result: Evaluation, has_layers: bool) -> str:
    """One quantity per line, in nats per example, and below them what the numbers mean."""
    likelihood, elbo, prior = result.log_likelihood, result.elbo, result.log_partition
    limit, baseline = result.log_likelihood_limit, result.independent_features
    rows: list[tuple[str, float, float | None, str]] = [
        ("log-likelihood", likelihood.value, likelihood.std_error, "the model as trained"),
        ("ELBO", elbo.elbo, elbo.elbo_std_error, f"lower bound, {elbo.num_samples} samples per example"),
        ("  reconstruction", elbo.reconstruction, elbo.reconstruction_std_error, ""),
        ("  KL discrete", elbo.kl_discrete, elbo.kl_discrete_std_error, ""),
    ]
    if limit is not None:
        rows.insert(1, ("  sharp limit", limit.value, limit.std_error, "with binary codes in place of zeta"))
    if has_layers:
        rows.append(("  KL continuous", elbo.kl_continuous, elbo.kl_continuous_std_error, ""))
    if baseline is not None:
        rows.append(("independent columns", baseline.value, baseline.std_error, "without any dependence"))
    exact = prior.best.std_error == 0
    for name, found in (("log Z", prior.best), ("  check", prior.forward), ("  check", prior.reverse)):
        if found is not None:
            rows.append((name, found.value, None if exact else found.std_error, found.method))
    notes = (
        f"± is the standard error over examples{'.' if exact else ', without that of log Z, which shifts all alike.'} "
        f"{likelihood.num_samples} importance samples per example estimate the log-likelihood from below"
    )
    if likelihood.num_samples > 1:
        notes += f"; the last doubling of their number raised it by {likelihood.doubling_gain:.2f} nats"
    notes += f". Half of the examples have an effective number of samples above {likelihood.median_ess:.1f}."
    if likelihood.effective_examples is not None:
        notes += f" {weighted_means(likelihood.num_examples, likelihood.effective_examples)}"
    return "\n".join(["  nats per example", *(_row(*row) for row in rows), "", wrapped(notes, "  ")])


def _row(name: str, value: float, error: float | None, note: str) -> str:
    """A line of the table, with an error of None for what is exact."""
    shown = "(exact)"
    if error is not None:
        shown = "± unknown" if math.isnan(error) else f"± {error:.{digits_of(error, 3)}f}"
    return f"  {name:20} {value:9.3f} {shown:9}  {note}".rstrip()


@verb("figure", "Without NAME it lists the figures. RUN is the folder of a run.")
@click.argument("name", required=False, shell_complete=completion("", lambda: FIGURES))
@click.argument("run", required=False, shell_complete=completion("DIR"))
@option("--out FILE", "the picture, .png, .pdf or .svg, with its table; default: RUN/figures/NAME.png")
@RUN_OPTIONS
@data_dir_option
def run_figure(
    name: str | None, run: str | None, out: str | None, data_dir: Path | None, **named: Any
) -> None:
    """Draw a figure and write its table."""
    if name is None:
        print("Figures of a run: dvae figure NAME RUN")
        print_rows({name: entry.about for name, entry in FIGURES.items()})
        return
    if name not in FIGURES:
        raise not_one_of("NAME", FIGURES, name)
    of_run = trained_run(run, **named)

    from discrete_vae.figures.style import FigureRequest, FigureRun, picture_file, save_figure, save_table

    if out is None:
        picture, table = of_run.figure_path(f"{name}.png"), of_run.figure_path(f"{name}.csv")
    else:
        picture = picture_file(out, argument="--out").path
        table = None if is_stream(picture) else picture.with_suffix(".csv")
    repair = "Give another place: --out FILE.png."
    check_writable(picture, repair=repair)
    if table is not None:
        check_writable(table, repair=repair)
        check_replaces_none(table, of_run.sources, argument=f"--out {picture}, whose table is {table},")
        if out is not None and table.exists() and not picture.exists():  # no table of an earlier picture
            rule = f"must leave room for the table {table}"
            raise InvalidInputError("--out", rule, "one that is there", repair)
    source = FigureRun(of_run.directory, lambda: of_run.loaded, data_dir=data_dir)
    drawing = FIGURES[name].make(FigureRequest(source, of_run.seed))
    if table is not None:
        print(f"Table:   {save_table(drawing.table, table)}")
    print(f"Picture: {save_figure(drawing.picture, picture, note=drawing.note)}")


@verb("log-partition", EXPLAINED)
@takes_run
@option("--repeats R", "number of independent estimates", whole_number(), default="1")
@option("--std-error S", "standard error to reach, in nats; default: the run's config", number)
@option("--health-sweeps N", "sweeps of the training chains to look at", whole_number(20), default="500")
@option("--out FILE", "the picture, or a .json file for the results instead; default: in RUN/figures")
@json_option
def run_log_partition(
    run: TrainedRun, repeats: int, std_error: float | None, health_sweeps: int, out: str | None
) -> Outcome:
    """Estimate log Z by bridge sampling as often as asked for."""
    from discrete_vae.checks import check_number
    from discrete_vae.evaluation.diagnostics import evaluate_prior
    from discrete_vae.figures import draw_log_partition_histogram
    from discrete_vae.figures.curves import histogram_of_result
    from discrete_vae.figures.style import picture_file
    from discrete_vae.runs.results import log_partition_store

    # what cannot be written is found before the work
    to_json = out is not None and (Path(out).suffix.lower() == ".json" or is_stream(Path(out)))
    if std_error is not None:
        check_number("std_error", std_error, at_least=1e-6, repair="Give nats, for example 0.01.")
    results = run.results(out if to_json or run.pretrained else None, log_partition_store)
    picture = None
    if not to_json:
        place = run.figure_path("log-partition.png") if out is None else out
        picture = picture_file(place, argument="--out").path
    settings = run.loaded.config.evaluation
    given = {"seed": run.seed, "log_partition_std_error": std_error or settings.log_partition_std_error}
    settings = settings.model_copy(update=given)
    run.say_device()
    print(f"{run.title}: prior of {run.loaded.model.prior.num_units} units", flush=True)

    def report(number: int, found: LogPartition) -> None:
        print(f"{number}/{repeats}  {found}, {in_words(found.seconds or 0)}" if number else found, flush=True)

    chains = run.loaded.chains
    found = evaluate_prior(chains, settings, repeats=repeats, health_sweeps=health_sweeps, report=report)
    last = found.estimates[-1]
    rates, ladder = last.swap_rates or (), last.inverse_temperatures or ()
    exchanged = f"{len(ladder)} replicas, exchange rates {min(rates):.2f} to {max(rates):.2f}"
    effective = f"{last.effective_samples:.0f} effective samples per replica in {last.num_sweeps} sweeps"
    words = f"{exchanged}, {last.round_trips:.0f} round trips per chain, {effective}"
    print(wrapped(words, "tempering: "))
    print(wrapped(str(found.chains), "training chains: ", indent=11))
    table = histogram_of_result(found.to_json())
    if repeats > 1:
        digits = digits_of(table.stated, 4)
        spread = f"spread {table.value.std(ddof=1):.{digits}f} nats over {repeats} repeats"
        print(f"mean {table.value.mean():.{digits}f}, {spread} (stated errors {table.stated:.{digits}f})")
    config = {"std_error": settings.log_partition_std_error, "seed": settings.seed}
    config |= {"max_sweeps": settings.max_tempered_sweeps, "num_chain_sweeps": settings.num_chain_sweeps}
    try:
        record = run.keep(results, {"config": config | {"health_sweeps": health_sweeps}} | found.to_json())
    finally:  # one file that cannot be written leaves the other
        if picture is not None:
            run.save_picture(draw_log_partition_histogram(table, name=run.loaded.config.name), picture)
    return record


_LINES = 10


@verb(
    "refit",
    f"{EXPLAINED} RUN stays as it is. A refit takes seconds to minutes and writes its folder at the end, so one "
    "that is interrupted leaves nothing.",
)
@takes_run
@option("--out DIR", "new folder for the run with the new posterior; default: RUN-refit")
@option("--num-steps N", "steps of Adam", whole_number(), default="2000")
@option("--batch-size B", "examples per step; default: as in the run's training", whole_number(2))
@option("--model-share S", "share of them that the model draws, 0 to 1; default: 0.5", number)
@option("--learning-rate R", "largest step size, which falls to a hundredth; default: 0.0003", number)
@data_dir_option
def run_refit(run: TrainedRun, out: str | None, num_steps: int, data_dir: Path | None, **given: Any) -> None:
    """Fit encoder and posteriors on training examples and draws of the model."""
    from discrete_vae.runs.progress import TrainingProgress
    from discrete_vae.training.refit import RunRefit
    from discrete_vae.training.run import training_threads

    dataset = run.dataset(data_dir)
    settings = {name: value for name, value in given.items() if value is not None}
    if out is None:
        path = run.directory.path if run.pretrained is None else Path(run.pretrained)
        out = f"{path if path.name not in ('', '..') else path.resolve()}-refit"
    refit = RunRefit(run.directory, run.loaded, dataset, out, num_steps=num_steps, seed=run.seed, **settings)
    run.say_device()
    with training_threads(run.loaded.config, {}), TrainingProgress(0, num_steps, what="refitting") as shown:
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
            raise NonFiniteLossError(error.step, error.term, error.value, run.loaded.step) from None
    print(f"{run.title}, {num_steps} steps")
    before, after = (with_error(each.elbo, each.total_std_error, 2) for each in (found.before, found.after))
    print(f"Validation ELBO {before} before, {after} after.")
    print(f"Gain: {with_error(found.gain, found.gain_std_error, 3)} nats.")
    print("The generative model is the same, so the difference is KL to the true posterior.")
    if found.gain + 2 * found.gain_std_error < 0:
        print("The posterior of training was better: try more steps or a smaller --learning-rate.")
    print(f"{'Written to' if refit.made is None else 'It was there:'} {refit.folder}")
    print(f"Next: dvae evaluate {shlex.quote(str(refit.folder))}{further_data_dir(data_dir)}")


@verb(
    "release",
    f"{EXPLAINED} The new folder is a run that every verb takes, of one checkpoint, without what training would need "
    "to go on. RUN must have been evaluated, and stays as it is. The ELBO of validation examples is compared before "
    "and after; nothing is written unless it falls by less than 0.1 nats, two standard errors included.",
)
@takes_run
@option("--out DIR", "new folder, after which the model is named", required=True)
@option("--license NAME", "of the weights, for the model card: apache-2.0, mit, cc-by-4.0", required=True)
@option(
    "--precision bfloat16|float32", "of the networks' matrices; all else keeps every bit", default="bfloat16"
)
@option("--num-examples N", "validation examples of the check, at most", whole_number(), default="1000")
@option("--num-samples K", "draws of the posterior for each", whole_number(), default="10")
@data_dir_option
def run_release(run: TrainedRun, out: str, num_examples: int, data_dir: Path | None, **settings: Any) -> None:
    """Write the released run."""
    from discrete_vae.interop.hub import check_release, release_run

    settings |= {"num_examples": num_examples, "seed": run.seed}
    folder, made = check_release(run.directory, run.loaded, out, **settings)
    dataset = run.dataset(data_dir)
    run.say_device()
    with run.progress(2 * min(num_examples, len(dataset.valid)), "ELBO before and after") as report:
        found = release_run(run.directory, run.loaded, dataset, folder, **settings, report=report)
    sizes = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    weights = sum(size for path, size in sizes.items() if path.suffix == ".safetensors")
    print(f"{run.title}, in {settings['precision']}")
    print(found)
    where = f"{'Written to' if made is None else 'It was there:'} {folder}"
    print(f"{where}: {sum(sizes.values()):,} bytes, {weights:,} of them weights and chains")
    print(f"Next: dvae sample {shlex.quote(str(folder))}")


@verb("report", EXPLAINED)
@takes_run
@option("--out FILE.html", "where to write the page; default: RUN/report.html")
@option("--labels FILE", "a .npy or .csv file of labels to compare modes with; default: those of the data")
@option("--num-examples N", "training and test examples that are looked at", whole_number(), default="2000")
@data_dir_option
def run_report(run: TrainedRun, out: str | None, **settings: Any) -> None:
    """Write the page about a run."""
    from discrete_vae.report import SECTIONS, make_report
    from discrete_vae.runs.results import OutputFile

    place = run.place(run.directory.path / "report.html") if out is None else out
    page = OutputFile(place, endings=(".html", ".htm"))
    with run.progress(len(SECTIONS), "report") as progress:

        def report(name: str, number: int, count: int) -> None:
            progress(number - 1, name)

        text = make_report(run.directory, seed=run.seed, load=lambda: run.loaded, report=report, **settings)
    content = text.encode()
    print(f"Report: {page.write_bytes(content)} ({len(content) / 2**20:.1f} MiB)")


_STARTS = ("training", "fresh")
_PICTURES = ("samples.png", "reconstructions.png", "training.png")
_FRESH_TABLE_CHAINS, _FRESH_SWEEPS = 200, 10_000
_DRAWS = 5  # images per state
_BYTES = 16  # per unit, while chains are made


def _start(name: str, word: str) -> str:
    """Read where chains start; what is neither a word nor a file may be a word misspelt."""
    if word in _STARTS or word.endswith(".npy") or user_path(name, word).exists():
        return word
    raise not_one_of(name, (*_STARTS, "a .npy file"), word, "Leave it out for where training left them.")


@verb("sample", EXPLAINED)
@takes_run
@option("--out FILE", "write the samples alone to this picture; default: all pictures, to RUN/figures")
@option(
    "--start training|fresh|FILE.npy",
    "where training left the chains (default), at random, or at the states of a file",
    _start,
    default="training",
)
@option("--burn-in N", "sweeps before the top row; default: 10,000 when fresh, else 0", whole_number(0))
@option("--num-rows N", "rows of the picture", whole_number(), default="20")
@option("--num-sweeps N", "sweeps from row to row", whole_number(), default="100")
@option("--num-chains N", "chains side by side; default: 5, of a table as many as fit", whole_number())
@option("--num-draws N", "images per state, of a run of images; default: 5", whole_number())
@data_dir_option
def run_sample(run: TrainedRun, out: str | None, data_dir: Path | None, **sizes: Any) -> None:
    """Draw samples along the chains and, unless a file is named, reconstructions and the course of training."""
    from discrete_vae.figures import FigureRequest, FigureRun
    from discrete_vae.figures.curves import make_training_curves
    from discrete_vae.figures.run import make_reconstructions
    from discrete_vae.figures.style import picture_file

    directory = run.directory
    place = None if out is None else picture_file(out, argument="--out").path
    if place is None and run.pretrained is not None:
        place = run.figure_path(_PICTURES[0])
    source = FigureRun(directory, lambda: run.loaded, data_dir=data_dir)
    request = FigureRequest(source, run.seed)
    is_table = source.recorded.image_shape is None
    if place is None or is_table:  # what is missing, or damaged, is found before all drawing
        try:
            source.dataset  # noqa: B018 (kept there)
        except InvalidInputError as error:
            if not is_table:
                error.repair += " Samples alone take no data: --out FILE.png."
            raise
    records = directory.metrics().read() if place is None else []
    paths = [run.figure_path(name) for name in _PICTURES] if place is None else [place]
    for path in paths:
        check_writable(path, repair="Give another place for the samples: --out FILE.png.")
    drawing = _samples(run, request, **sizes)
    what = "Samples against the data:" if is_table else "Samples along the chains:"
    run.save_picture(drawing.picture, paths[0], what)
    if place is not None:
        return
    run.save_picture(make_reconstructions(request).picture, paths[1], "Reconstructions:         ")
    if any("elbo" in record for record in records):
        run.save_picture(make_training_curves(request).picture, paths[2], "Course of training:      ")
    else:
        text = f"{directory.metrics_path} holds no training ELBO: the course of training is not drawn."
        warnings.warn(text, stacklevel=2)


def _samples(
    run: TrainedRun,
    request: FigureRequest,
    *,
    start: str,
    burn_in: int | None,
    num_draws: int | None,
    **sizes: Any,
) -> Drawing:
    """Images along a few chains; of a table its columns, by draws of as many chains as there are and memory holds.

    What does not fit the memory is found before the chains move.
    """
    from discrete_vae.figures.columns import make_column_distributions
    from discrete_vae.figures.run import DEFAULT_CHAINS, make_evolution, num_chains_that_fit
    from discrete_vae.figures.style import check_grid

    recorded, num_rows, num_chains = request.run.recorded, sizes["num_rows"], sizes["num_chains"]
    num_features, image_shape = recorded.num_features, recorded.image_shape
    if image_shape is None and num_draws is not None:
        raise InvalidInputError("--num-draws", "needs a run of images", num_draws, "Leave it out.")
    num_draws = num_draws or _DRAWS
    if image_shape is not None:
        check_grid((num_rows, num_chains or DEFAULT_CHAINS, num_draws, num_features), image_shape)
    num_fresh = _FRESH_TABLE_CHAINS if image_shape is None else DEFAULT_CHAINS
    chains = _chains(run, start, num_chains or num_fresh, request.seed)
    if image_shape is None:
        num_chains = num_chains or num_chains_that_fit(chains.num_chains, num_features, num_rows)
        check_memory("--num-rows", 4 * num_rows * num_chains * num_features, "Ask for fewer rows or chains.")
    if num_chains is not None and num_chains > chains.num_chains:
        rule = f"must be at most {chains.num_chains}, the number of chains"
        raise InvalidInputError("--num-chains", rule, num_chains, "Leave it out, or add --start fresh.")
    run.say_device()
    if burn_in is None:
        burn_in = _FRESH_SWEEPS if start == "fresh" else 0
    if burn_in:
        chains.step(burn_in)
    sizes["num_chains"] = num_chains
    if image_shape is None:
        return make_column_distributions(request, chains, **sizes)
    return make_evolution(request, chains, num_draws=num_draws, **sizes)


def _chains(run: TrainedRun, start: str, count: int, seed: int) -> Sampler:
    """The chains of training, as many fresh ones, or those that start at the states of a file."""
    from discrete_vae.data.arrays import read_states
    from discrete_vae.samplers.gibbs import BlockGibbs

    if start == "training":
        return run.loaded.chains
    prior, states = run.loaded.model.prior, None
    argument, repair = "--num-chains", "Use fewer chains."
    if start != "fresh":
        argument, repair = "--start", "Give fewer chains."
        states = read_states(user_path(argument, start), prior.num_units, argument=argument)
        count = len(states)
    check_memory(argument, count * prior.num_units * _BYTES, repair)
    with allocating(argument, repair):
        return BlockGibbs(prior, count, seed=seed, start=states)
