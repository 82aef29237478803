"""What the estimators share: a trained Boltzmann machine with its log Z, a score, and draws from its chains."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.interop.sklearn import arguments
from discrete_vae.interop.sklearn.prior import log_partition_of, swept


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
        count = arguments.whole("n_samples", n_samples)
        seed = arguments.draw_seed(random_state)
        return self._rows_of_states(swept(self._prior, self._states, count, seed), seed)

    @property
    def log_partition_(self) -> LogPartition:
        """log Z of the machine."""
        if self._log_partition is None:
            max_sweeps = arguments.whole("log_partition_sweeps", self.log_partition_sweeps)
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
