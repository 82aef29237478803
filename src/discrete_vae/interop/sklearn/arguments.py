"""Arguments of estimators, which scikit-learn wants checked by fit: numbers of NumPy are numbers, too."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from sklearn.utils import check_random_state

from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.errors import InvalidInputError


def whole(name: str, value: object, *, at_least: int = 1) -> int:
    """A positive integer, one of NumPy included.

    Raises:
        InvalidInputError: If it is anything else.
    """
    found = check_positive_int(name, int(value) if isinstance(value, np.integer) else value)
    if found < at_least:
        rule, repair = f"must be a whole number of at least {at_least}", "Give a larger one."
        raise InvalidInputError(name, rule, found, repair)
    return found


def whole_numbers(name: str, values: object) -> tuple[int, ...]:
    """Positive integers, or none.

    Raises:
        InvalidInputError: If it is no list of them.
    """
    if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str):
        repair = "Give (200,) for one hidden layer, () for none."
        raise InvalidInputError(name, "must be a list of positive integers", repr(values)[:80], repair)
    return tuple(whole(f"{name}[{index}]", value) for index, value in enumerate(values))


def number(
    name: str, value: object, *, repair: str, above: float = 0.0, at_most: float = float("inf")
) -> float:
    """A finite number inside bounds, one of NumPy included.

    Raises:
        InvalidInputError: If it is anything else.
    """
    if isinstance(value, np.number | np.ndarray) and np.ndim(value) == 0 and np.isrealobj(value):
        value = float(value)
    return check_number(name, value, above=above, at_most=at_most, repair=repair)


def choice(name: str, value: object, choices: Sequence[str], repair: str) -> str:
    """One of some words.

    Raises:
        InvalidInputError: If it is none of them.
    """
    if not isinstance(value, str) or value not in choices:
        rule = f"must be one of {', '.join(choices)}"
        raise InvalidInputError(name, rule, repr(value)[:80], repair)
    return value


def draw_seed(random_state: int | np.random.RandomState | np.random.Generator | None) -> int:
    """A seed for keyed noise, as scikit-learn reads a random_state: None draws another one at each call.

    Raises:
        InvalidInputError: If it is no random_state.
    """
    try:
        source = check_random_state(random_state)
    except ValueError:
        rule, repair = "must be None, an integer or a RandomState", "Give an integer from 0 to 2^32 - 1."
        raise InvalidInputError("random_state", rule, repr(random_state)[:80], repair) from None
    return int(source.randint(np.iinfo(np.int32).max))


def verbosity(value: object) -> int:
    """How much is printed, 0 for nothing.

    Raises:
        InvalidInputError: If it is no number.
    """
    if not isinstance(value, numbers.Integral | np.bool_) or int(value) < 0:
        raise InvalidInputError("verbose", "must be 0 or 1", repr(value)[:80], "Give 0 for no output.")
    return int(value)


@contextmanager
def in_words_of_estimators() -> Iterator[None]:
    """Name a parameter of the estimator, not an option of the command line, and X, not a part of a file."""
    try:
        yield
    except InvalidInputError as error:
        rule, repair = (
            text.replace("--model.likelihood", "likelihood") for text in (error.rule, error.repair)
        )
        raise InvalidInputError("X", rule, error.received, repair) from None


def numbers_of(X: object, repair: str) -> np.ndarray:  # noqa: N803 (scikit-learn's name)
    """An array of float64 of a list, a data frame or an array.

    Raises:
        InvalidInputError: If it holds anything else than numbers.
    """
    try:
        return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        received = f"a {type(X).__name__} of others"
        raise InvalidInputError("X", "must be an array of numbers", received, repair) from None
