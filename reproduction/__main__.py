"""`python -m reproduction`: a table or a figure of the paper, with the paper's values beside ours."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Sequence

import click

from discrete_vae.cli import stop_on_signals
from discrete_vae.cli.options import choose_device, data_dir_option, device_option, hanging, width
from discrete_vae.errors import DiscreteVAEError, InvalidInputError, printable
from discrete_vae.runs.io import check_writable
from discrete_vae.system import unicode_path, user_path, yielding_threads
from reproduction.campaign import Places, StoppedError
from reproduction.registry import REPRODUCTIONS, ReproductionEntry
from reproduction.reproduce import reproduce
from reproduction.wanted import Wanted

_PROGRAM = "python -m reproduction"


@click.command(
    _PROGRAM,
    help="Make a table or a figure of the paper, with the paper's values beside ours. NAME is one of those that it "
    "lists without one. It trains what runs are missing, one after the other, goes on with those that were "
    "interrupted, evaluates them, and writes table and picture. A run is done once OUT/runs has its record, made with "
    "the settings that are asked for now; its folder is not needed any more then, but for pictures of samples and for "
    "estimates of log Z that are still to be made.",
)
@click.argument("name", required=False)
@click.option(
    "--size",
    type=click.Choice(["smoke", "short", "cpu", "paper"]),
    help="Of the experiments; default: cpu, an hour or two per run on two cores; smoke: minutes in all, to try it. The "
    "gradient study has no cpu, and short by default.",
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
    size: str | None,
    budget: float | None,
    seeds: int | None,
    seed: int | None,
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
    _check_options(name, entry, size=size, budget=budget, seeds=seeds, seed=seed)
    where = choose_device(device)
    places = Places(unicode_path("--runs", runs), user_path("--out", out), data_dir, where)
    folders = {"--out": places.out} | ({"--runs": places.runs} if entry.needs else {})
    for argument, folder in folders.items():
        check_writable(folder / f"{name}.md", repair=f"Give another {argument}.")
    wanted = Wanted(size or entry.default_size, seeds or entry.num_seeds, budget, seed or 0)  # pyright: ignore[reportArgumentType]
    with stop_on_signals() as stop:
        try:
            done = reproduce(name, wanted, places, stop=stop, say=_say)
        except (StoppedError, KeyboardInterrupt):
            print(f"\nInterrupted; what is done is saved. Continue: {_words_again()}", file=sys.stderr)
            return stop.status
    result = done.result
    print(result.title)
    if result.table is not None:
        print(result.table.terminal(width()))
    for note in result.notes:
        print(hanging(note))
    for written in done.paths:
        print(f"Written to {written}")
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


def _words_again() -> str:
    """The command line that goes on: what differs from the defaults."""
    context = click.get_current_context()
    words = [_PROGRAM]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if value is None or value == parameter.default:
            continue
        word = shlex.quote(f"{value:g}" if isinstance(value, float) else str(value))
        words += [word] if isinstance(parameter, click.Argument) else [parameter.opts[-1], word]
    return " ".join(words)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_options(name: str, entry: ReproductionEntry, **given: object) -> None:
    """Refuse options that say nothing of what is asked for."""
    takes = {"budget": bool(entry.needs), "seeds": entry.has_seeds, "seed": entry.has_noise}
    for option, value in given.items():
        if value is not None and not takes.get(option, True):
            raise click.BadParameter(
                f"must not be given for {name}; received {value}", param_hint=f"--{option}"
            )
    if given["size"] == "cpu" and entry.default_size == "short":
        raise click.BadParameter(
            f"must be smoke, short or paper for {name}; received cpu", param_hint="--size"
        )


def _print_list() -> None:
    print(f"Tables and figures of the paper: {_PROGRAM} NAME, and what is trained for each")
    for name, entry in REPRODUCTIONS.items():
        needs = f" ({entry.needs})" if entry.needs else " (no run)"
        print(hanging(entry.about + needs, f"  {name:22} "))


if __name__ == "__main__":
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    with yielding_threads():
        status = main()
    sys.exit(status)
