"""The base of the scikit-learn estimators: checked parameters, log Z, a score, draws from the chains of training."""

from __future__ import annotations

import copy
import math
import numbers
import operator
import sys
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.errors import InvalidInputError
from discrete_vae.log_partition.bridge import LogPartitionWarning
from discrete_vae.log_partition.estimate import comparable_log_partition
from discrete_vae.log_partition.exact import MAX_ENUMERATED_UNITS, quick_exact_log_partition
from discrete_vae.rng import generator_of, key_to_seed
from discrete_vae.samplers.gibbs import BlockGibbs

_STD_ERROR = 0.01  # of log Z, nats, where it is not enumerated
_CHAINS = 500
_SWEEPS = 200
_SILENT_SECONDS = 5.0


class PriorMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """An estimator whose `fit` trains a Boltzmann machine and keeps the last states of its chains."""

    _numbers: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Keywords of `check_number` for each numeric parameter."""
    random_state: Any
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

    def _parameters(self) -> SimpleNamespace:
        """The numeric parameters, checked, and a seed drawn as random_state says."""
        found = {
            name: check_number(name, getattr(self, name), **rule) for name, rule in self._numbers.items()
        }
        return SimpleNamespace(**found, seed=draw_seed(self.random_state))

    def _keep_chains(self, states: Tensor, seed: int) -> None:
        """Keep the last states of the chains of training, (chain, unit), and the seed of it."""
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
        """
        check_is_fitted(self)
        count = check_number("n_samples", n_samples, at_least=1)
        seed = draw_seed(random_state)
        chosen = torch.randint(len(self._states), (count,), generator=generator_of(key_to_seed(seed)))
        z = BlockGibbs(self._prior, count, start=self._states[chosen], seed=seed).step(_SWEEPS)
        return self._rows_of_states(z, seed)

    @property
    def log_partition_(self) -> LogPartition:
        """log Z of the machine, exact or to a hundredth of a nat, with progress on standard error."""
        if self._log_partition is None:
            max_sweeps = check_number("log_partition_sweeps", self.log_partition_sweeps, at_least=1)
            self._log_partition = _estimate_log_partition(self._prior, self._states, self._seed, max_sweeps)
        return self._log_partition

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _estimate_log_partition(machine: RBM, states: Tensor, seed: int, max_sweeps: int) -> LogPartition:
    exact = quick_exact_log_partition(machine, MAX_ENUMERATED_UNITS)
    if exact is not None:
        return exact
    found = comparable_log_partition(
        copy.deepcopy(machine).float(),  # for which there are compiled kernels
        chains=states,
        max_enumerated=0,
        std_error=_STD_ERROR,
        max_sweeps=max_sweeps,
        num_chains=_CHAINS,
        annealing=(100, 1000),
        seed=seed,
        report=_progress(max_sweeps),
    )
    if not found.converged:
        more = 10 * max(max_sweeps, found.num_sweeps or 0)
        warnings.warn(
            f"log Z = {found.value:.2f} +- {found.std_error:.2f} nats after {found.num_sweeps} sweeps, where "
            f"{_STD_ERROR:g} is wanted: all scores are off by the same number of about that size. Give "
            f"log_partition_sweeps={more}, or train a machine that mixes faster: fewer hidden units or epochs.",
            LogPartitionWarning,
            stacklevel=3,
        )
    return found


def _progress(max_sweeps: int) -> Callable[[int, LogPartition], None]:
    """Prints the estimates along a run that takes its time."""
    last = time.monotonic()

    def report(num_sweeps: int, found: LogPartition) -> None:
        nonlocal last
        if time.monotonic() - last > _SILENT_SECONDS and sys.stderr is not None:
            last = time.monotonic()
            done = f"{num_sweeps} of at most {max_sweeps} sweeps"
            print(f"log Z, {done}: {found.value:.2f} +- {found.std_error:.2f} nats", file=sys.stderr)

    return report


# Checks; scikit-learn wants those of parameters in fit, and numbers of NumPy are numbers, too.


_BOUNDS = {
    "at_least": (operator.ge, "of at least"),
    "above": (operator.gt, "above"),
    "at_most": (operator.le, "of at most"),
}


def check_number(name: str, value: Any, *, whole: bool = True, **bounds: float) -> Any:
    """Return a number if it is finite, whole unless told otherwise, and inside its bounds."""
    kind = numbers.Integral if whole else numbers.Real
    if (
        not isinstance(value, kind)
        or not math.isfinite(value)
        or not all(_BOUNDS[bound][0](value, limit) for bound, limit in bounds.items())
    ):
        limits = " and ".join(f"{_BOUNDS[bound][1]} {limit:g}" for bound, limit in bounds.items())
        rule = f"must be a {'whole' if whole else 'finite'} number {limits}".rstrip()
        raise InvalidInputError(name, rule, repr(value)[:80], "Change the parameter.")
    return (int if whole else float)(value)  # pyright: ignore[reportArgumentType]


def draw_seed(random_state: int | np.random.RandomState | np.random.Generator | None) -> int:
    """A seed for keyed noise, as scikit-learn reads a random_state: None draws another one at each call."""
    try:
        source = check_random_state(random_state)
    except ValueError:
        rule, repair = "must be None, an integer or a RandomState", "Give an integer from 0 to 2^32 - 1."
        raise InvalidInputError("random_state", rule, repr(random_state)[:80], repair) from None
    return int(source.randint(np.iinfo(np.int32).max))


@contextmanager
def naming_x() -> Iterator[None]:
    """Name X and the parameters of the estimator, not a part of a file and options of the command line."""
    try:
        yield
    except InvalidInputError as error:
        rule, repair = (
            text.replace("--model.likelihood", "likelihood") for text in (error.rule, error.repair)
        )
        raise InvalidInputError("X", rule, error.received, repair) from None


def dtype_of(X: Any) -> np.dtype:  # noqa: N803
    """float32 for float32, else float64."""
    return np.dtype(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64)


def states_of(X: Any) -> Tensor:  # noqa: N803
    """States of units or their probabilities, (row, unit), of a list, a data frame or an array."""
    checked: Any = check_array(X, dtype="numeric", input_name="X")
    return torch.from_numpy(np.asarray(checked, np.float64))
