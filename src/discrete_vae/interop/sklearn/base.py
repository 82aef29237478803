"""What the scikit-learn estimators share: arguments, and the prior in use."""

from __future__ import annotations

import copy
import numbers
import sys
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from discrete_vae.boltzmann.base import BoltzmannMachine, LogPartition
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition.bridge import LogPartitionWarning
from discrete_vae.log_partition.estimate import comparable_log_partition
from discrete_vae.log_partition.exact import MAX_ENUMERATED_UNITS, quick_exact_log_partition
from discrete_vae.rng import generator_of, key_to_seed
from discrete_vae.samplers.gibbs import BlockGibbs

# Arguments of estimators, which scikit-learn wants checked by fit: numbers of NumPy are numbers, too.


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


# log Z and draws of a trained machine, both from where its chains ended in training.


_STD_ERROR = 0.01  # of log Z, nats, where it is not enumerated
_CHAINS = 500
_SWEEPS = 200
_SILENT_SECONDS = 5.0


def log_partition_of(
    machine: BoltzmannMachine, states: Tensor, seed: int, *, max_sweeps: int
) -> LogPartition:
    """log Z, exact or to a hundredth of a nat, with progress on standard error beyond some seconds.

    Args:
        machine: The machine; its chains run in float32, for which there are compiled kernels.
        states: (chain, unit), where its chains ended.
        seed: Seed of all noise.
        max_sweeps: Sweeps of bridge sampling, at most.

    Warns:
        LogPartitionWarning: If these did not reach the standard error; the one that is stated then has the distance
            from annealing in it.
    """
    exact = quick_exact_log_partition(machine, MAX_ENUMERATED_UNITS)
    if exact is not None:
        return exact
    found = comparable_log_partition(
        copy.deepcopy(machine).float(),
        chains=states,
        max_enumerated=0,
        std_error=_STD_ERROR,
        max_sweeps=max_sweeps,
        num_chains=_CHAINS,
        annealing=(100, 1000),
        seed=seed,
        report=_shown(max_sweeps),
    )
    if found.converged:
        return found
    more = 10 * max(max_sweeps, found.num_sweeps or 0)
    warnings.warn(
        f"log Z = {found.value:.2f} +- {found.std_error:.2f} nats after {found.num_sweeps} sweeps, where "
        f"{_STD_ERROR:g} is wanted: all scores are off by the same number of about that size. Give "
        f"log_partition_sweeps={more}, or train a machine that mixes faster: fewer hidden units or epochs.",
        LogPartitionWarning,
        stacklevel=2,
    )
    return found


def _shown(max_sweeps: int) -> Callable[[int, LogPartition], None]:
    """Shows the estimates along a run that takes its time."""
    last = time.monotonic()

    def report(num_sweeps: int, found: LogPartition) -> None:
        nonlocal last
        if time.monotonic() - last > _SILENT_SECONDS and sys.stderr is not None:
            last = time.monotonic()
            done = f"{num_sweeps} of at most {max_sweeps} sweeps"
            print(f"log Z, {done}: {found.value:.2f} +- {found.std_error:.2f} nats", file=sys.stderr)

    return report


def swept(machine: BoltzmannMachine, states: Tensor, count: int, seed: int) -> Tensor:
    """Draws of a machine by chains that start where those of training ended, hence in modes that it has.

    Args:
        machine: The machine.
        states: (chain, unit), where its chains ended.
        count: Number of draws.
        seed: Seed of all noise.

    Returns:
        (draw, unit), in {0,1}.
    """
    chosen = torch.randint(len(states), (count,), generator=generator_of(key_to_seed(seed)))
    return BlockGibbs(machine, count, start=states[chosen], seed=seed).step(_SWEEPS)


# What the estimators share: a trained Boltzmann machine with its log Z, a score, and draws from its chains.


class PriorMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """For an estimator whose `fit` has trained a Boltzmann machine and says so by `_keep_chains`."""

    log_partition_sweeps: int
    _states: Tensor
    _seed: int
    _log_partition: LogPartition | None

    @property
    @abstractmethod
    def _prior(self) -> RBM:
        """The trained machine."""

    @abstractmethod
    def _rows_of_states(self, z: Tensor, seed: int) -> np.ndarray:
        """Rows that belong to draws of the machine, (row, unit) -> (row, feature)."""

    @abstractmethod
    def score_samples(self, X: Any) -> np.ndarray:  # noqa: N803 (scikit-learn's name)
        """log p(x) of each row, (row,), nats."""

    def _keep_chains(self, states: Tensor, seed: int) -> None:
        """Keep where the chains of training ended, (chain, unit), and the seed of it."""
        self._states, self._seed, self._log_partition = states, seed, None

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        """Mean of `score_samples`, nats per row; larger is better.

        Args:
            X: (row, feature).
            y: Ignored.
        """
        return float(self.score_samples(X).mean())

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> np.ndarray:
        """Draw rows, the noise of features included.

        Chains start where those of training ended, so in modes that the machine has, and are swept on.

        Args:
            n_samples: Number of rows.
            random_state: Seed; None draws other rows at each call.

        Returns:
            (row, feature).

        Raises:
            InvalidInputError: If n_samples is not a positive integer.
        """
        check_is_fitted(self)
        count = whole("n_samples", n_samples)
        seed = draw_seed(random_state)
        return self._rows_of_states(swept(self._prior, self._states, count, seed), seed)

    @property
    def log_partition_(self) -> LogPartition:
        """log Z of the machine."""
        if self._log_partition is None:
            max_sweeps = whole("log_partition_sweeps", self.log_partition_sweeps)
            self._log_partition = log_partition_of(
                self._prior, self._states, self._seed, max_sweeps=max_sweeps
            )
        return self._log_partition

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def dtype_of(X: Any) -> np.dtype:  # noqa: N803
    """float32 for float32, else float64."""
    return np.dtype(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64)
