"""Types of options, and the options that several verbs share."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import click

from discrete_vae.commands.verbs import not_one_of
from discrete_vae.errors import InvalidInputError

Decorator = Callable[[Callable[..., int]], Callable[..., int]]


class _Read(click.ParamType):
    """A type that a function of the option's name and its word reads."""

    name = "value"

    def __init__(self, read: Callable[[str, str], Any]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a word; a default is taken as it is."""
        return self._read(param.opts[0] if param else "", value) if isinstance(value, str) else value


def whole_number(*, at_least: int = 1, at_most: int = 10**18) -> click.ParamType:
    """Integers.

    Examples:
        >>> option = click.Option(["--repeats"])
        >>> whole_number().convert("20", option, None)
        20
        >>> whole_number().convert("0", option, None)
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: --repeats must be a whole number of at least 1; received '0'. ...
    """

    def read(option: str, word: str) -> int:
        number = int(word) if re.fullmatch(r"[+-]?[0-9]{1,30}", word) else None
        if number is not None and at_least <= number <= at_most:
            return number
        bound = f"at most {at_most}" if number is not None and number > at_most else f"at least {at_least}"
        repair = f"Give one such as {at_least}."
        raise InvalidInputError(option, f"must be a whole number of {bound}", repr(word)[:80], repair)

    return _Read(read)


def number() -> click.ParamType:
    """Numbers with a fraction."""

    def read(option: str, word: str) -> float:
        try:
            return float(word)
        except ValueError:
            raise InvalidInputError(option, "must be a number", repr(word)[:80], "Give 0.01, say.") from None

    return _Read(read)


def one_of(*names: str) -> click.ParamType:
    """Names."""

    def read(option: str, word: str) -> str:
        if word not in names:
            raise not_one_of(option, names, word)
        return word

    return _Read(read)


def together(*decorators: Any) -> Decorator:
    """Several options as one decorator, in the order of the help."""
    return lambda function: reduce(lambda made, each: each(made), reversed(decorators), function)


SEED = whole_number(at_least=0, at_most=2**64 - 1)
device_option = click.option(
    "--device",
    default="auto",
    metavar="auto|cpu|cuda|cuda:N",
    help="where to compute; default: auto, a CUDA device where there is one, else the CPU",
)
data_dir_option = click.option(
    "--data-dir",
    metavar="DIR",
    help="folder of the data sets; default: the variable DISCRETE_VAE_DATA, else the user's cache",
)
accept_changed_config_option = click.option(
    "--accept-changed-config",
    is_flag=True,
    help="use the run's config.json though it is not the one that the run was trained with",
)
