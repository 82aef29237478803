"""The command line: from words to a verb, and from errors to one line and an exit status."""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO

from discrete_vae.commands.crash_report import one_line, report_crash
from discrete_vae.commands.parser import TAKES_SETTINGS, VERBS, build_parser
from discrete_vae.commands.usage import UsageError
from discrete_vae.contention import yielding_threads
from discrete_vae.errors import DiscreteVAEError, InvalidInputError
from discrete_vae.memory import is_allocation_failure, out_of_memory


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Its words without the program's name; None means the process's own.

    Returns:
        The exit status: 0; 1 where training stopped on a loss that is not finite; 2 for wrong input, a damaged file,
        a disk that refuses or too little memory; 70 for a fault of dvae itself; 130 after an interrupt, 143 after
        SIGTERM in training.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    with warnings.catch_warnings(), _any_text_can_be_printed():
        warnings.showwarning = _show_warning
        try:
            try:
                status = _run(words)
            except SystemExit as stop:  # argparse has printed help or the version
                status = int(stop.code or 0)
            if sys.stdout is not None:  # as it is where the shell has closed it
                sys.stdout.flush()  # what cannot be written must fail here, not while the interpreter ends
            return status
        except (InvalidInputError, UsageError) as error:
            return _fail(str(error), 2)
        except DiscreteVAEError as error:
            return _fail(str(error), 1)
        except BrokenPipeError:  # the reader, head say, has seen enough
            _discard_output()
            return 0
        except OSError as error:
            place = error.filename or "Standard output, or the disk,"  # files that dvae writes have a name
            repair = "Free space or check permissions; what was saved before is intact."
            _discard_output()
            return _fail(f"{place} must be usable; received {error.strerror or error}. {repair}", 2)
        except KeyboardInterrupt:
            _say("Interrupted.")
            return 130
        except Exception as error:
            if is_allocation_failure(error):
                return _fail(str(out_of_memory()), 2)
            return _fail(report_crash(words, error), 70)


def _run(words: list[str]) -> int:
    parser = build_parser()
    if not words:
        parser.print_help(sys.stderr)
        return 2
    overrides: list[tuple[str, list[str]]] = []
    if words[0] in TAKES_SETTINGS and any(re.match(r"--[^=]*\.", word) for word in words):
        from discrete_vae.commands.overrides import split_overrides

        words, overrides = split_overrides(words)
    arguments = parser.parse_args(words)
    module, _, function = VERBS[arguments.verb][0].partition(":")
    run = getattr(importlib.import_module(f"discrete_vae.commands.{module}"), function)
    return run(arguments, overrides)


def _fail(message: str, status: int) -> int:
    """Print an error as one line, whatever a file's name or a library's message holds."""
    _say(f"error: {one_line(message)}")
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


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    # the processes of torchrun all do the same; the first one speaks for them
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or os.environ.get("RANK", "0") == "0":
        _say(f"warning: {message}")


def entry_point() -> None:
    """What the installed command calls; beside other programs its threads give way."""
    with yielding_threads():
        status = main()
    sys.exit(status)
