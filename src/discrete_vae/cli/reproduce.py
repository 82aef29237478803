"""dvae reproduce: a table or a figure of the paper, with the paper's values beside ours."""

from __future__ import annotations

import shlex
import sys

import click

from discrete_vae.cli.options import (
    data_dir_option,
    device_option,
    not_one_of,
    number,
    option,
    size,
    verb,
    whole_number,
    width,
    wrapped,
)
from discrete_vae.errors import InvalidInputError
from discrete_vae.reproduction.registry import REPRODUCTIONS, ReproductionEntry

_MORE = (
    "NAME is one of those that it lists without one. It trains what runs are missing, one after the other, goes on "
    "with those that were interrupted, evaluates them, and writes table and picture. A run is done once OUT/runs has "
    "its record, made with the settings that are asked for now; its folder is not needed any more then, but for "
    "pictures of samples and for estimates of log Z that are still to be made."
)
_DEFAULT_SIZE, _RUNS, _OUT = "cpu", "runs/reproductions", "reproductions"


def _minutes(name: str, word: str) -> float:
    """Read a number of minutes.

    Raises:
        InvalidInputError: If it is none.
    """
    minutes = number(name, word)
    if not 0.0 < minutes <= 1e6:
        raise InvalidInputError(name, "must be a number of minutes above 0", repr(word)[:80], "Give 90, say.")
    return minutes


@verb("reproduce", _MORE)
@click.argument("name", required=False)
@option(
    "--size smoke|short|cpu|paper",
    "of the experiments; default: cpu, an hour or two per run on two cores; smoke: minutes in all, to try it",
    size,
    default=_DEFAULT_SIZE,
)
@option(
    "--budget MINUTES",
    "of training per run, on this machine: its steps are timed before the first one and its length is set by that; "
    "default: the experiment's length",
    _minutes,
)
@option(
    "--seeds N",
    "runs of each kind, with seeds from 0; default: 3 for figure 6, else 1",
    whole_number(at_most=1000),
)
@option("--runs DIR", f"folder of the runs; default: {_RUNS}", default=_RUNS)
@option("--out DIR", f"folder of records, tables and pictures; default: {_OUT}", default=_OUT)
@data_dir_option
@device_option
def run_reproduce(
    name: str | None,
    size: str,
    budget: float | None,
    seeds: int | None,
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
        raise not_one_of("NAME", list(REPRODUCTIONS), name)
    entry = REPRODUCTIONS[name]
    _check_options(name, entry, budget, seeds)

    from discrete_vae.cli import stop_on_signals
    from discrete_vae.cli.options import choose_device
    from discrete_vae.reproduction.campaign import Places, StoppedError
    from discrete_vae.reproduction.reproduce import reproduce
    from discrete_vae.reproduction.wanted import Wanted
    from discrete_vae.runs.io import check_writable
    from discrete_vae.system import unicode_path, user_path

    where = choose_device(device)
    places = Places(unicode_path("--runs", runs), user_path("--out", out), data_dir, where)
    folders = {"--out": places.out} | ({"--runs": places.runs} if entry.needs else {})
    for argument, folder in folders.items():
        check_writable(folder / f"{name}.md", repair=f"Give another {argument}.")
    wanted = Wanted(size, seeds or entry.num_seeds, budget)  # pyright: ignore[reportArgumentType] (a Size was read)
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
        print(wrapped(note))
    for written in done.paths:
        print(f"Written to {written}")
    return 0


def _words_again() -> str:
    """The command line that goes on: what differs from the defaults."""
    context = click.get_current_context()
    words = ["dvae", str(context.command.name)]
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if value is None or value == parameter.default:
            continue
        word = f"{value:g}" if isinstance(value, float) else str(value)
        words += [word] if isinstance(parameter, click.Argument) else [parameter.opts[-1], word]
    return shlex.join(words)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_options(name: str, entry: ReproductionEntry, budget: float | None, seeds: int | None) -> None:
    """Refuse options that say nothing of what is asked for."""
    for argument, given, takes in (
        ("--budget", budget, bool(entry.needs)),
        ("--seeds", seeds, entry.has_seeds),
    ):
        if given is not None and not takes:
            rule = f"must not be given for {name}, which is made of {'one seed' if entry.needs else 'no run'}"
            raise InvalidInputError(argument, rule, f"{given:g}", "Leave it out.")


def _print_list() -> None:
    print("Tables and figures of the paper: dvae reproduce NAME, and what is trained for each")
    for name, entry in REPRODUCTIONS.items():
        needs = f" ({entry.needs})" if entry.needs else " (no run)"
        print(wrapped(entry.about + needs, f"  {name:18} "))
