"""Exceptions of the library, and text from outside made fit to be shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

# Text from outside, made fit for terminals, pages, pictures and spreadsheets.

_FORMULA = re.compile("'*\\s*[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-].", re.DOTALL)  # and their wide forms
_QUOTED = re.compile("'" + _FORMULA.pattern, re.DOTALL)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def printable(text: str, *, keep: str = "") -> str:
    r"""Escape what a terminal would obey or could not show: control characters and codes, halves of surrogates.

    Examples:
        >>> print(printable("bad \x1b[2J name\n"))
        bad \x1b[2J name\n
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else ascii(each)[1:-1] for each in text)


def plot_text(text: str) -> str:
    """Let matplotlib show text as it is: a dollar sign begins no TeX."""
    return printable(text, keep="\n").replace("$", r"\$")


def spreadsheet_cell(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would compute, and one more before such apostrophes.

    Computed is what begins with = + - @ or the end of a cell or line, blanks before it or not, and is no number.

    Examples:
        >>> [spreadsheet_cell(text) for text in ("=1+1", "-1.5", "-a", "-", "'=1+1")]
        ["'=1+1", '-1.5', "'-a", '-', "''=1+1"]
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def text_of_cell(cell: str) -> str:
    """Take away the apostrophe of `spreadsheet_cell`."""
    return cell[1:] if _QUOTED.match(cell) else cell


# Exceptions. Their `args` are the constructor's, from which `__str__` builds the message: so they pickle and copy.

_LONGEST = 1000  # characters of one part of a message


class DiscreteVAEError(Exception):
    """Base class of every exception that the library raises on purpose.

    Attributes:
        is_said: Whether another process of the same command reports it.
    """

    is_said: bool = False


class InvalidInputError(DiscreteVAEError, ValueError):
    """An argument, a file or a setting breaks a rule.

    Args:
        argument: Name of the argument, key or file, as the caller wrote it.
        rule: The rule, as the end of a sentence that starts with the argument's name ("must be ...").
        received: What came instead; kept as text.
        repair: What to do about it, as a sentence.

    Examples:
        >>> raise InvalidInputError("num_left", "must be a positive integer", "-3", "Give at least 1.")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: num_left must be a positive integer; received -3. Give at least 1.
    """

    def __init__(self, argument: str, rule: str, received: object, repair: str) -> None:
        self.argument, self.rule, self.repair = argument, rule, repair
        self.received = str(received)  # not every object that is wrong can be pickled
        super().__init__(argument, rule, self.received, repair)

    def __str__(self) -> str:
        received = _on_one_line(self.received)
        return f"{_on_one_line(self.argument)} {self.rule}; received {received}. {_on_one_line(self.repair)}"


def not_one_of(
    argument: str, names: Iterable[str], received: object, repair: str = "Choose one of them."
) -> InvalidInputError:
    """The error about a name that is none of those there are; the nearest takes the place of the repair.

    Examples:
        >>> raise not_one_of("size", ("smoke", "short"), "smok")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: size must be one of smoke, short; received 'smok'. Did you mean smoke?
    """
    known = list(names)
    close = get_close_matches(str(received)[:80], known, n=1)
    repair = f"Did you mean {close[0]}?" if close else repair
    return InvalidInputError(argument, f"must be one of {', '.join(known)}", repr(received)[:80], repair)


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Put the name of a file or a folder before the arguments that errors name.

    Examples:
        >>> with naming("runs/digits/checkpoints/step-10"):
        ...     raise InvalidInputError("step", "must be a whole number", "-1", "Restore it.")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: runs/digits/checkpoints/step-10: step must be a whole number; ...
    """
    try:
        yield
    except InvalidInputError as error:
        argument = f"{source}: {error.argument}"
        raise InvalidInputError(argument, error.rule, error.received, error.repair) from None


def _on_one_line(text: str) -> str:
    """Escape what cannot be shown, such as codes in a strange file's names, and leave out the middle if long."""
    words = text if "\n" not in text else " ".join(text.split())
    shown = printable(words)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST // 2]} ... {shown[-_LONGEST // 2 :]}"


class NonFiniteLossError(DiscreteVAEError):
    """Training met a loss that is not finite, at a step counted from 0; all tensors of the last checkpoint are."""

    def __init__(self, step: int, term: str, value: float, last_checkpoint: int | None) -> None:
        self.step, self.term, self.value, self.last_checkpoint = step, term, value, last_checkpoint
        super().__init__(step, term, value, last_checkpoint)

    def __str__(self) -> str:
        last = self.last_checkpoint
        none = "There is no checkpoint yet"
        rest = none if last is None else f"The last good checkpoint is that of step {last}"
        return (
            f"{self.term} is {self.value} at step {self.step}; the run has stopped. {rest}. A smaller learning rate, a "
            "longer warm-up or a lower bound of beta usually help."
        )


class PeerLostError(DiscreteVAEError):
    """Another process of the same command has ended, or cannot be reached."""

    def __init__(self, rank: int, num_processes: int, reason: str) -> None:
        self.rank, self.num_processes, self.reason = rank, num_processes, reason
        super().__init__(rank, num_processes, reason)

    def __str__(self) -> str:
        return (
            f"one of the {self.num_processes} processes has ended, or cannot be reached any more (process {self.rank}: "
            f"{_on_one_line(self.reason)}). What was saved before is intact; of a run in training that is the last "
            "checkpoint: go on with --resume, with as many processes or another number."
        )


class SolverError(DiscreteVAEError):
    """A solver that samples for the library, such as an annealer, gave no samples."""

    def __init__(self, solver: str, reason: str) -> None:
        self.solver, self.reason = solver, reason
        super().__init__(solver, reason)

    def __str__(self) -> str:
        return (
            f"{self.solver} gave no samples: {_on_one_line(self.reason).rstrip('.')}. A run that was training is saved "
            "after its last step: go on with --resume if the cause has passed. A solver that refuses these weights "
            "will again."
        )


class KernelWarning(UserWarning):
    """A compiled sampler works, but slower or later than it could; the message says why and what to do."""


class LogPartitionWarning(UserWarning):
    """log Z may be off by more than was asked for; the message has the numbers and what to do."""
