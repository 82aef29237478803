"""The command line: from words to a verb, and from errors to one line and an exit status."""

from __future__ import annotations

import io
import logging
import os
import platform
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

import click
from click.shell_completion import shell_complete

from discrete_vae import __version__
from discrete_vae.cli.options import CONTEXT, Verbs, loud_stream, note
from discrete_vae.errors import DiscreteVAEError, InvalidInputError, printable
from discrete_vae.system import is_allocation_failure, out_of_memory, torch_is_loading, yielding_threads


def entry_point() -> None:
    """Run the command line of this process; beside other programs its threads give way."""
    with ended_by_interrupts(), yielding_threads():
        status = main()
    sys.exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, of these words or the process's own; returns the exit status, which `dvae --help` explains."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings(), _safe_output(), _compiling_is_said():
            warnings.showwarning = _show_warning
            return _ended(words)
    except KeyboardInterrupt:  # before the command or after it
        return 130


def _ended(words: list[str]) -> int:
    """The exit status of a command, which says what ended it."""
    try:
        with ended_by_sigterm(), signals_first():
            status = _run(words)
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
        note("Ended by SIGTERM.")
        return 143
    except KeyboardInterrupt:
        note("Interrupted.")
        return 130
    except Exception as error:
        if is_allocation_failure(error):
            return _fail(str(out_of_memory()), 2)
        return _fail(_report_fault(words, error), 70)


@click.version_option(__version__, "-V", "--version", message="dvae %(version)s")
@click.group(
    "dvae",
    cls=Verbs,
    no_args_is_help=False,
    subcommand_metavar="VERB ...",
    context_settings=CONTEXT,
    epilog="""\b
To start (under a minute), and for your own table:
  dvae train digits --size smoke
  dvae train --data table.csv

\b
Help on a verb: dvae VERB --help
Completion by the Tab key, in bash (zsh: zsh_source):
  eval "$(_DVAE_COMPLETE=bash_source dvae)"
and in fish:
  _DVAE_COMPLETE=fish_source dvae | source

Exit status: 0 success; 1 training met a value that is not finite, or a solver or another process of torchrun failed; 2
wrong input, a damaged file, a full disk or too little memory; 70 a fault of dvae itself; 130 interrupted (Ctrl-C); 143
ended by SIGTERM.""",
)
def dvae() -> None:
    """Discrete variational autoencoders with a Boltzmann machine as prior.

    Train a model on images or a table; then get binary codes, log-likelihoods, missing values and new examples.
    """


def _run(words: list[str]) -> int:
    if instruction := os.environ.get(_COMPLETE):
        return shell_complete(dvae, {}, "dvae", _COMPLETE, instruction)
    if not words or words[0] == "help":  # dvae help VERB is dvae VERB --help
        words = [*words[1:], "--help"]
    try:
        with dvae.make_context("dvae", list(words)) as context:
            return dvae.invoke(context) or 0
    except click.exceptions.Exit as stop:  # click has printed help or the version
        return stop.exit_code


_COMPLETE = "_DVAE_COMPLETE"  # the variable by which a shell asks for completions


# What is printed besides the results: errors, warnings, faults of dvae itself.


_KEPT = "\n\t\N{NO-BREAK SPACE}"
_LONGEST = 300  # characters of an unexpected error


def _fail(message: str, status: int) -> int:
    """Print an error as one line, whatever a file's name or a library's message holds."""
    note(f"error: {printable(message)}")
    return status


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    # the processes of torchrun all do the same; the first one speaks for them
    if os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0":
        text = f"warning: {printable(str(message), keep=_KEPT)}"
        note(text, loud_stream())  # a bar of rich may stand before the stream


def _report_fault(words: Sequence[str], error: Exception) -> str:
    """Write what is known about an unexpected error to a file; returns a sentence that names the file."""
    short = " ".join(f"{type(error).__name__}: {error}".split())
    short = short if len(short) <= _LONGEST else f"{short[:_LONGEST]}..."
    about = f"dvae {__version__}, Python {platform.python_version()}, {platform.platform()}"
    lines = [about, f"command line: {list(words)!r}", "", *traceback.format_exception(error)]
    try:
        descriptor, path = tempfile.mkstemp(prefix="dvae-error-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(lines))
    except OSError:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"this line ({last.filename}, line {last.lineno})"
    else:
        where = f"the file {path}"
    yours = (
        f"This is a fault of dvae, not yours: please report it with {where}. What was saved before is intact."
    )
    return f"dvae {words[0] if words else ''} must not end like this; received {short}. {yours}"


def _discard_output() -> None:
    """Let what is left of the output go nowhere, so that the interpreter does not try it again at its end."""
    with suppress(OSError):  # where it arrives after all
        sys.stdout.flush()
        return
    with suppress(OSError):  # a stream that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _compiling_is_said() -> Iterator[None]:
    """Say once that kernels are compiled, which takes some seconds and is kept for later commands."""
    handler, log = _SaysOnce(), logging.getLogger("discrete_vae.kernels")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class _SaysOnce(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger("discrete_vae.kernels").removeHandler(self)
        note("Compiling for this machine; later commands find it done.")


class _Printable:
    """A stream that escapes control characters in text; rich, which moves bars by them, takes the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(printable(text, keep=_KEPT))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _safe_output() -> Iterator[None]:
    """Let nothing that a file or a label is called fail, for want of a letter, or command the terminal."""
    before = sys.stdout, sys.stderr
    encoded = {stream: stream.errors for stream in before if isinstance(stream, io.TextIOWrapper)}
    for stream in encoded:
        stream.reconfigure(errors="backslashreplace")
    # a stream that the shell has closed is None: what goes there is dropped, and not printed on the other one
    sys.stdout, sys.stderr = (_Printable(stream or io.StringIO()) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream, errors in encoded.items():
            with suppress(OSError):
                stream.reconfigure(errors=errors)


# Ctrl-C and SIGTERM: either ends a command with all that cleans up; while a run trains the first asks to stop.


_STOPPING = "\nStopping after the step in progress; once more{later} ends at once.\n"


class Terminated(KeyboardInterrupt):
    """SIGTERM, which takes the way of Ctrl-C."""


def ended_by_sigterm() -> AbstractContextManager[None]:
    """Let SIGTERM raise `Terminated` inside the block, so that nothing half-written stays; a second one kills.

    Where somebody else handles it, or in another thread than the main one, nothing is changed.
    """
    return _raised(Terminated, signal.SIGTERM, b"Ended by SIGTERM.\n", instead_of=signal.SIG_DFL)


def ended_by_interrupts() -> AbstractContextManager[None]:
    """Let Ctrl-C inside the block end a process that is still importing torch, and else raise as ever.

    An exception inside that import can meet C++ that cannot pass it on, which aborts the process.
    """
    return _raised(KeyboardInterrupt, signal.SIGINT, b"Interrupted.\n", instead_of=signal.default_int_handler)


@contextmanager
def _raised(error: type[BaseException], number: int, words: bytes, *, instead_of: Any) -> Iterator[None]:
    """Let a signal raise an error inside the block, once, if what handled it before was this, in the main thread."""

    def receive(*_: object) -> None:
        _received.append(error)
        signal.signal(number, instead_of)
        if torch_is_loading():
            with suppress(OSError):
                os.write(2, words)
            os._exit(128 + number)
        raise error

    is_ours = threading.current_thread() is threading.main_thread() and signal.getsignal(number) == instead_of
    if is_ours:
        signal.signal(number, receive)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(number, instead_of)


_received: list[type[BaseException]] = []  # errors of signals


@contextmanager
def signals_first() -> Iterator[None]:
    """Raise the error of a signal where other code has made another of it: torch turns some into a ValueError."""
    _received.clear()
    try:
        yield
    except Exception:
        if _received:
            raise _received[0] from None
        raise


ONE_REQUEST = 5.0
"""Seconds in which signals to a process of torchrun are one request: a scheduler signals it, and torchrun once more."""


class StopRequest:
    """A call that tells if a signal has asked to stop; `signal` is its number."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._ends_at = 0.0  # when a further signal is another request

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def status(self) -> int:
        """The exit status that tells the shell of the signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Take note of a signal; a second one raises KeyboardInterrupt, among processes once `ONE_REQUEST` is over."""
        now, repeated = time.monotonic(), self.signal is not None
        if repeated and now < self._ends_at:
            return
        self.signal = number
        if repeated:
            raise KeyboardInterrupt
        is_repeated = "TORCHELASTIC_RUN_ID" in os.environ or os.environ.get("WORLD_SIZE", "1") != "1"
        self._ends_at = now + (ONE_REQUEST if is_repeated else 0.0)
        later = f" after {ONE_REQUEST:g} seconds" if is_repeated else ""
        with suppress(OSError):  # not print: a handler may have interrupted another print
            os.write(2, _STOPPING.format(later=later).encode())


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Let signals ask to stop inside the block; in another thread than the main one nothing is changed."""
    request, is_main = StopRequest(), threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if is_main else ()
    # those that are ignored stay so, as nohup and background jobs of a shell ask
    heard = [each for each in signals if signal.getsignal(each) != signal.SIG_IGN]
    before = {each: signal.signal(each, request.receive) for each in heard}
    try:
        yield request
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
