"""`python -m reproduction`: a table or a figure of the paper, with the paper's values beside ours."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Sequence

import click

from discrete_vae.cli import stop_on_signals
from discrete_vae.cli.options import choose_device, data_dir_option, device_option, width, wrapped
from discrete_vae.errors import DiscreteVAEError, InvalidInputError, printable
from discrete_vae.runs.io import check_writable
from discrete_vae.system import unicode_path, user_path, yielding_threads
from reproduction.display import Options
from reproduction.figures import FIGURES
from reproduction.relaxations import RELAXATIONS
from reproduction.sizes import SIZES, Size
from reproduction.sweep import Places, StoppedError, Sweep
from reproduction.tables import TABLES

REPRODUCTIONS = TABLES | FIGURES | RELAXATIONS
_PROGRAM = "python -m reproduction"


@click.command(
    _PROGRAM,
    help="Make a table or a figure of the paper, with the paper's values beside ours. NAME is one of those that it "
    "lists without one. It trains what runs are missing, one after the other, goes on with those that were "
    "interrupted, evaluates them, and writes table and picture. A run is done once OUT/runs has its record, made with "
    "the settings that are asked for now; its folder is not needed any more then, but for pictures of samples, "
    "estimates of log Z and variances of gradients that are still to be made.",
)
@click.argument("name", required=False)
@click.option(
    "--size",
    type=click.Choice(SIZES),
    help="Of the experiments; default: cpu, an hour or two per run on two cores, of relaxations and the gradient "
    "study short; smoke: minutes in all, to try it; large, of the four main runs: two to three hours of training each.",
)
@click.option(
    "--budget",
    type=click.FloatRange(0, 1e6, min_open=True),
    metavar="MINUTES",
    help="Of training per run, on this machine: its steps are timed before the first one and its length is set by "
    "that; default: the experiment's length.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="Runs of each kind, with seeds from 0; default: 3 for figure 6, else 1.",
)
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Of the noise of a study; default: 0.")
@click.option(
    "--only",
    metavar="NAMES",
    help="A part, such as omniglot for one data set, or mnist-static,rbm,disarm of a grid; of a kind of which none is "
    "named, all. The table also has what is complete in OUT. Default: all.",
)
@click.option("--runs", metavar="DIR", default="runs/reproductions", show_default=True, help="Of the runs.")
@click.option(
    "--out",
    metavar="DIR",
    default="reproduction/results",
    show_default=True,
    help="Of records, tables and pictures.",
)
@data_dir_option
@device_option
def command(
    name: str | None,
    size: Size | None,
    budget: float | None,
    seeds: int | None,
    seed: int | None,
    only: str | None,
    runs: str,
    out: str,
    data_dir: str | None,
    device: str,
) -> int:
    """Make a table or a figure; returns the exit status."""
    if name is None:
        _print_list()
        return 0
    if name not in REPRODUCTIONS:
        raise click.BadParameter(
            f"must be one of {', '.join(REPRODUCTIONS)}; received {name!r}", param_hint="NAME"
        )
    entry = REPRODUCTIONS[name]
    _check_options(name, size=size, budget=budget, seeds=seeds, seed=seed, only=only)
    options = Options(
        size=size or (*entry.sizes, "cpu")[0],
        num_seeds=seeds or entry.num_seeds or 1,
        budget=budget,
        seed=seed or 0,
        only=() if only is None else tuple(only.split(",")),
    )
    places = Places(unicode_path("--runs", runs), user_path("--out", out), data_dir, choose_device(device))
    check_writable(places.out / f"{name}.md", repair="Give another --out.")
    if entry.trains:
        check_writable(places.runs / name, repair="Give another --runs.")
    with stop_on_signals() as stop:
        judged = {"needs_model": entry.needs_model, "may_diverge": entry.may_diverge}
        sweep = Sweep(entry.plan(options), places, stop=stop, say=_say, **judged)
        try:
            sweep.complete()
            result = entry.make(options, sweep)
        except (StoppedError, KeyboardInterrupt):
            _say(f"\nInterrupted; what is done is saved. Continue: {_words_again()}")
            return stop.status
    written = result.write(places.out / _file_name(name, options))
    print(result.title)
    if result.table is not None:
        texts = result.table.texts()
        texts = texts.set_index(texts.columns[0]).rename_axis(None)  # stands before each block of columns
        print(texts.to_string(line_width=width()))
    for note in result.notes:
        print(wrapped(note))
    for path in written:
        print(f"Written to {path}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command on words, by default the process's own; returns the exit status."""
    try:
        return command.main(argv, _PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except DiscreteVAEError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, InvalidInputError) else 1


def _check_options(name: str, **given: object) -> None:
    """Refuse options that change nothing of what is asked for."""
    entry = REPRODUCTIONS[name]
    takes = {
        "size": given["size"] in entry.sizes,
        "budget": bool(entry.trains) and given["budget"] == given["budget"],  # no NaN
        "seeds": entry.num_seeds is not None,
        "seed": entry.has_noise,
        "only": bool(entry.parts),
    }
    for option, value in given.items():
        if value is not None and not takes[option]:
            raise click.BadParameter(f"{name} is not made with {value}.", param_hint=f"--{option}")
    known = [part for names in entry.parts.values() for part in names]
    for part in () if given["only"] is None else str(given["only"]).split(","):
        if part not in known:
            words = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in entry.parts.items())
            raise click.BadParameter(
                f"must name parts of {name}; received {part!r}. {words}", param_hint="--only"
            )


def _file_name(name: str, options: Options) -> str:
    """The name of a result's files, without their ending."""
    entry = REPRODUCTIONS[name]
    parts = [name]
    if entry.sizes:
        parts.append(options.size)
    if options.budget is not None:
        parts.append(f"{options.budget:g}-minutes")
    if options.num_seeds != (entry.num_seeds or 1):
        parts.append(f"{options.num_seeds}-seeds")
    if options.seed:
        parts.append(f"seed-{options.seed}")
    return "-".join(parts)


def _words_again() -> str:
    """The command line that goes on: what differs from the defaults."""
    context = click.get_current_context()
    words = _PROGRAM.split()
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if value is not None and value != parameter.default:
            option = [] if isinstance(parameter, click.Argument) else [parameter.opts[-1]]
            words += [*option, f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def _print_list() -> None:
    print(f"Tables and figures of the paper: {_PROGRAM} NAME, and what is trained for each")
    for name, entry in REPRODUCTIONS.items():
        trains = f" ({entry.trains})" if entry.trains else " (no run)"
        print(wrapped(entry.about + trains, f"  {name:22} "))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    with yielding_threads():
        status = main()
    sys.exit(status)
