"""The command line: from words to a verb, and from errors to one line and an exit status."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import click

from discrete_vae._version import __version__
from discrete_vae.commands.crash_report import report_crash
from discrete_vae.commands.interrupts import Terminated, ended_by_interrupts, ended_by_sigterm
from discrete_vae.commands.verbs import Verbs
from discrete_vae.contention import yielding_threads
from discrete_vae.errors import DiscreteVAEError, InvalidInputError
from discrete_vae.memory import is_allocation_failure, out_of_memory
from discrete_vae.shown import printable

_KEPT = "\n\t\N{NO-BREAK SPACE}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Its words without the program's name; None means the process's own.

    Returns:
        The exit status: 0; 1 where training stopped on a loss that is not finite; 2 for wrong input, a damaged file,
        a disk that refuses or too little memory; 70 for a fault of dvae itself; 130 after an interrupt, 143 after
        SIGTERM.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    with warnings.catch_warnings(), _any_text_can_be_printed(), _nothing_moves_the_terminal():
        warnings.showwarning = _show_warning
        try:
            with ended_by_sigterm():
                status = _run(words)
            if sys.stdout is not None:  # as it is where the shell has closed it
                sys.stdout.flush()  # what cannot be written must fail here, not while the interpreter ends
            return status
        except DiscreteVAEError as error:
            status = 2 if isinstance(error, InvalidInputError) else 1
            return status if error.is_said else _fail(str(error), status)
        except BrokenPipeError:  # the reader, head say, has seen enough
            _discard_output()
            return 0
        except OSError as error:
            place = error.filename or "Standard output, or the disk,"  # files that dvae writes have a name
            repair = "Free space or check permissions; what was saved before is intact."
            _discard_output()
            return _fail(f"{place} must be usable; received {error.strerror or error}. {repair}", 2)
        except Terminated:
            _say("Ended by SIGTERM.")
            return 143
        except KeyboardInterrupt:
            _say("Interrupted.")
            return 130
        except Exception as error:
            if is_allocation_failure(error):
                return _fail(str(out_of_memory()), 2)
            return _fail(report_crash(words, error), 70)


@click.version_option(__version__, message="dvae %(version)s")
@click.group(
    "dvae",
    cls=Verbs,
    no_args_is_help=False,
    subcommand_metavar="VERB ...",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To start: dvae train digits --size smoke (under a minute), then what its last line says. "
    "dvae VERB --help explains a verb. Exit status: 0; 1 if a loss is not finite; 2 for wrong input, a damaged "
    "file, a full disk or too little memory; 70 for a fault of dvae itself; 130 after an interrupt (Ctrl-C); 143 "
    "after a request to end (SIGTERM).",
)
def dvae() -> None:
    """Variational autoencoders with a Boltzmann-machine prior.

    From data to a trained model, its log-likelihood and its samples.
    """


def _run(words: list[str]) -> int:
    if not words:
        _say(dvae.get_help(click.Context(dvae, info_name="dvae")))
        return 2
    try:
        with dvae.make_context("dvae", list(words)) as context:
            return dvae.invoke(context)
    except click.exceptions.Exit as stop:  # click has printed help or the version
        return stop.exit_code


def _fail(message: str, status: int) -> int:
    """Print an error as one line, whatever a file's name or a library's message holds."""
    _say(f"error: {printable(message)}")
    return status


def _say(text: str) -> None:
    with suppress(OSError):  # there may be no place left to say it
        print(text, file=sys.stderr)


def _discard_output() -> None:
    """Let what is left of the output go nowhere, so that the interpreter does not try it again at its end."""
    with suppress(OSError):  # where it arrives after all
        sys.stdout.flush()
        return
    with suppress(OSError):  # a stream that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _any_text_can_be_printed() -> Iterator[None]:
    """Let output escape what its encoding lacks, ASCII say, rather than fail after hours of work."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, io.TextIOWrapper)]
    before = [stream.errors for stream in streams]
    for stream in streams:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for stream, errors in zip(streams, before, strict=True):
            with suppress(OSError):
                stream.reconfigure(errors=errors)


class _Printable:
    """A stream that escapes control characters in text; rich, which moves bars by them, takes the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(printable(text, keep=_KEPT))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _nothing_moves_the_terminal() -> Iterator[None]:
    """Let nothing that a file or a label is called reach the terminal as a command to it."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream if stream is None else _Printable(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    # the processes of torchrun all do the same; the first one speaks for them
    if os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0":
        _say(f"warning: {printable(str(message), keep=_KEPT)}")  # a bar of rich may stand before the stream


def entry_point() -> None:
    """What the installed command calls; beside other programs its threads give way."""
    with ended_by_interrupts(), yielding_threads():
        status = main()
    sys.exit(status)
