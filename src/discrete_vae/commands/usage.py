"""The parser of the command line, whose messages have the house's form."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from discrete_vae.errors import DiscreteVAEError


class UsageError(DiscreteVAEError):
    """The command line does not have the form that its verb asks for."""


class HouseParser(argparse.ArgumentParser):
    """A parser that raises `UsageError` where argparse would print its usage and exit.

    Attributes:
        takes_settings: Whether the verb takes settings of an experiment too, which messages may then suggest.
    """

    takes_settings = False

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] (argparse has overloads)
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse, and refuse what is left over here, where the verb is known."""
        for word in args or ():
            if re.fullmatch(r"--?[\w-]+=--", word):  # which argparse would take for no value at all
                option = word.partition("=")[0]
                raise UsageError(
                    f"{option} must be followed by a value; received '--'. See {self.prog} --help."
                )
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Raise the message in the house's form: what, the rule, what came, the repair."""
        raise UsageError(self._reworded(message))

    def _reworded(self, message: str) -> str:
        see = f"See {self.prog} --help."
        if found := re.fullmatch(r"the following arguments are required: (\w+).*", message):
            return f"{found[1]} must be given; received nothing. {see}"
        if found := re.fullmatch(r"argument (\S+): expected .*", message):
            return f"{found[1]} must be followed by a value; received nothing. {see}"
        if found := re.fullmatch(r"argument (\S+): invalid (?:int|float) value: (.*)", message):
            return f"{found[1]} must be a number; received {found[2]}. {see}"
        if found := re.fullmatch(
            r"argument (\S+): (must .*)", message
        ):  # what `whole_number` and `one_of` say
            return f"{found[1]} {found[2]}"
        if found := re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message):
            names = re.findall(r"[\w-]+", found[3])
            return f"{found[1]} {_not_one_of(names, found[2])}"
        if found := re.fullmatch(r"argument (\S+): ignored explicit argument (.*)", message):
            return f"{found[1]} takes no value; received {found[2]}. Leave the value out."
        if found := re.fullmatch(r"unrecognized arguments: (.*)", message):
            return self._unknown(found[1].split())
        return f"{message[:1].upper()}{message[1:]}. {see}"

    def _unknown(self, words: list[str]) -> str:
        options = [word for word in words if word.startswith("-")]
        if not options:
            return f"{self.prog} takes no further word; received {words[0]!r}. See {self.prog} --help."
        known = list(self._option_string_actions)
        word = options[0].partition("=")[0]
        # a word that is no near miss of an option here may be part of a setting's name
        longer = [name for name in known if name.startswith(word) and len(word) > 3]
        close = longer[:1] or get_close_matches(word, known, n=1, cutoff=0.75 if self.takes_settings else 0.6)
        repair = f"Did you mean {close[0]}?" if close else f"See {self.prog} --help."
        if self.takes_settings and not close:
            from discrete_vae.commands.suggestions import suggest_setting  # here, since it loads the configs

            repair = suggest_setting(word.removeprefix("--"))
        return f"{word} must be an option of {self.prog}; received an unknown name. {repair}"


def whole_number(*, at_least: int, at_most: int = 10**18) -> Callable[[str], int]:
    """A reader of integers for `add_argument`.

    Examples:
        >>> whole_number(at_least=1)("20")
        20
        >>> whole_number(at_least=1)("0")
        Traceback (most recent call last):
        argparse.ArgumentTypeError: must be a whole number of at least 1; received '0'. Give one such as 1.
    """

    def read(text: str) -> int:
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,30}", text) else None
        rule = None
        if number is None or number < at_least:
            rule = f"must be a whole number of at least {at_least}"
        elif number > at_most:
            rule = f"must be a whole number of at most {at_most}"
        if number is None or rule is not None:
            received = repr(text)[:80]
            raise argparse.ArgumentTypeError(f"{rule}; received {received}. Give one such as {at_least}.")
        return number

    return read


def one_of(*names: str) -> Callable[[str], str]:
    """A reader of names for `add_argument`.

    Examples:
        >>> one_of("smoke", "short")("smok")
        Traceback (most recent call last):
        argparse.ArgumentTypeError: must be one of smoke, short; received 'smok'. Did you mean smoke?
    """

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(_not_one_of(names, text))
        return text

    return read


def _not_one_of(names: Sequence[str], text: str) -> str:
    close = get_close_matches(text, names, n=1)
    repair = f"Did you mean {close[0]}?" if close else f"Give one such as {names[0]}."
    return f"must be one of {', '.join(names)}; received {text!r}. {repair}"
