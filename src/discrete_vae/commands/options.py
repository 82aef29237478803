"""How options are declared and read, and the options that several verbs share."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

import click

from discrete_vae.commands.verbs import not_one_of
from discrete_vae.errors import InvalidInputError
from discrete_vae.paths import user_path

Function = Callable[..., int]
Reader = Callable[[str, str], Any]
"""Reads a word, given the option's name, and refuses what is wrong."""


def option(declared: str, meaning: str, read: Reader | None = None, **attributes: Any) -> Any:
    """An option of a verb.

    Args:
        declared: Its name and what its value is called, "--repeats R"; without the latter it is a flag.
        meaning: What its help says.
        read: What reads its value; None leaves it the word that it is.
        attributes: Further keywords of `click.option`.
    """
    name, _, value = declared.partition(" ")
    kind: dict[str, Any] = {"metavar": value} if value else {"is_flag": True}
    if read is not None:
        kind["callback"] = lambda _, parameter, word: None if word is None else read(parameter.opts[0], word)
    return click.option(name, help=meaning, **kind, **attributes)


def together(*decorators: Any) -> Callable[[Function], Function]:
    """Several options as one decorator, in the order of the help."""
    return lambda function: reduce(lambda made, each: each(made), reversed(decorators), function)


def whole_number(at_least: int = 1, at_most: int = 10**18) -> Reader:
    """A reader of integers.

    Examples:
        >>> whole_number()("--repeats", "20")
        20
        >>> whole_number()("--repeats", "0")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: --repeats must be a whole number of at least 1; received '0'. ...
    """

    def read(name: str, word: str) -> int:
        number = int(word) if re.fullmatch(r"[+-]?[0-9]{1,30}", word) else None
        if number is not None and at_least <= number <= at_most:
            return number
        bound = f"at most {at_most}" if number is not None and number > at_most else f"at least {at_least}"
        rule, repair = f"must be a whole number of {bound}", f"Give one such as {at_least}."
        raise InvalidInputError(name, rule, repr(word)[:80], repair)

    return read


def number(name: str, word: str) -> float:
    """Read a number with a fraction.

    Raises:
        InvalidInputError: If it is none.
    """
    try:
        return float(word)
    except ValueError:
        raise InvalidInputError(name, "must be a number", repr(word)[:80], "Give 0.01, say.") from None


def one_of(*words: str) -> Reader:
    """A reader of one of some words.

    Examples:
        >>> one_of("smoke", "short")("--size", "smok")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: --size must be one of smoke, short; received 'smok'. ...
    """

    def read(name: str, word: str) -> str:
        if word not in words:
            raise not_one_of(name, words, word)
        return word

    return read


def path(name: str, word: str) -> str:
    """Read a path; whether there is such a file or folder is asked where it is used.

    Raises:
        InvalidInputError: If it is none.
    """
    user_path(name, word)
    return word


size = one_of("smoke", "short", "cpu", "paper")
seed = whole_number(at_least=0, at_most=2**64 - 1)
device_option = option(
    "--device auto|cpu|cuda|cuda:N",
    "where to compute; default: auto, a CUDA device where there is one, else the CPU",
    default="auto",
)
data_dir_option = option(
    "--data-dir DIR",
    "folder of the data sets; default: the variable DISCRETE_VAE_DATA, else the user's cache",
    path,
)
accept_changed_config_option = option(
    "--accept-changed-config",
    "use the run's config.json though it is not the one that the run was trained with",
)
