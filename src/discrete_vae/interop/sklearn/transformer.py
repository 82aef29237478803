"""The discrete VAE as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.data.float32 import as_float32
from discrete_vae.errors import InvalidInputError
from discrete_vae.interop.sklearn import arguments
from discrete_vae.interop.sklearn.codes import best_codes, decode_codes, log_likelihoods, sample_rows
from discrete_vae.interop.sklearn.prior_mixin import PriorMixin, dtype_of
from discrete_vae.interop.sklearn.training import Settings, Trained, fit_model

_LIKELIHOODS = ("auto", "bernoulli", "gaussian", "negative-binomial", "categorical")
_OUTPUTS = ("bits", "probabilities")
_LEAST_ROWS = 3  # two to train on and one to choose the checkpoint


class DiscreteVAETransformer(PriorMixin, BaseEstimator):
    """Binary codes of rows by a discrete VAE with an RBM prior, trained by the library's own loop.

    A row's code is the most probable one, group after group: each unit is 1 where q(z = 1 | x, earlier groups) is above
    1/2. Codes of new rows need no noise, so a row has one code whatever rows stand beside it.

    NaN is a missing value: it enters no likelihood, and the networks read which values are there. Leave gaps in the
    rows of `fit` if other rows have some.

    Args:
        num_left: Units of the left side of the prior; codes have num_left + num_right bits.
        num_right: Units of the right side. log Z is exact where a side has at most 24 units.
        hidden: Widths of the hidden layers of posterior and decoder.
        likelihood: How values are read: "bernoulli" for bits, or probabilities of bits, which each step draws anew;
            "gaussian" for real values; "negative-binomial" for counts; "categorical" for codes 0, 1, ...; "auto" takes
            the first where all values are 0 or 1, counts where all are whole and none is negative, else Gaussian.
        output: What `transform` gives: "bits", 0 or 1, or "probabilities" of their being 1.
        num_epochs: Passes over the rows to train on.
        batch_size: Rows per step, at most.
        learning_rate: Step size of Adam at the start.
        validation_fraction: Share of the rows that choose the best checkpoint, at least one row; training does not see
            them.
        num_samples: Importance samples per row in `score_samples`.
        log_partition_sweeps: Sweeps of bridge sampling for log Z, at most, where it is not enumerated; they bound the
            time of the first score.
        random_state: Seed of the split, the first weights and all noise, as scikit-learn reads it.
        verbose: 1 shows the course of training on standard error.

    Attributes:
        model_: The trained `discrete_vae.DiscreteVAE`, in float64 and evaluation mode.
        likelihood_: How values were read.
        log_partition_: log Z of its prior with a standard error, estimated when it is first asked for.
        elbo_: Its ELBO on the rows for validation, nats per row.
        n_features_in_: Features of a row.
        feature_names_in_: Their names, where X was a data frame.

    Examples:
        >>> import numpy as np
        >>> kind = np.random.default_rng(0).integers(0, 2, 40)
        >>> coder = DiscreteVAETransformer(num_left=2, num_right=2, hidden=(8,), num_epochs=5, random_state=0)
        >>> coder.fit_transform(np.repeat(kind[:, None], 6, 1)).shape
        (40, 4)
    """

    model_: Any
    likelihood_: str

    def __init__(
        self,
        *,
        num_left: int = 16,
        num_right: int = 16,
        hidden: tuple[int, ...] = (200,),
        likelihood: str = "auto",
        output: str = "bits",
        num_epochs: int = 100,
        batch_size: int = 100,
        learning_rate: float = 0.003,
        validation_fraction: float = 0.1,
        num_samples: int = 100,
        log_partition_sweeps: int = 1000,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.num_left = num_left
        self.num_right = num_right
        self.hidden = hidden
        self.likelihood = likelihood
        self.output = output
        self.num_epochs = num_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.num_samples = num_samples
        self.log_partition_sweeps = log_partition_sweeps
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803 (scikit-learn's name)
        """Train the model.

        Args:
            X: (row, feature), numbers; NaN is a missing value.
            y: Ignored.

        Returns:
            The estimator.

        Raises:
            InvalidInputError: If a parameter breaks its rule, or the values cannot be read by the likelihood.
            NonFiniteLossError: If training diverges; a smaller learning_rate may help.
        """
        settings = self._settings()
        rows = self._rows(X, reset=True)
        trained: Trained = fit_model(rows, settings)
        self.model_, self.likelihood_ = trained.model, trained.likelihood
        self.elbo_ = trained.elbo
        self._keep_chains(trained.states, settings.seed)
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The codes of rows.

        Args:
            X: (row, feature).

        Returns:
            (row, unit), the left side first: bits, or the probabilities of their being 1, in X's dtype.

        Raises:
            InvalidInputError: If the values cannot be read by the likelihood.
        """
        check_is_fitted(self)
        output = arguments.choice("output", self.output, _OUTPUTS, "Take 'bits' for codes.")
        with arguments.in_words_of_estimators():
            codes = best_codes(self.model_, self._tensor(X))
        found = codes.bits if output == "bits" else codes.probabilities
        return found.numpy().astype(dtype_of(X), copy=False)

    def inverse_transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """Rows of codes: the mean of x given the code, which for bits are probabilities; codes of names have a mode.

        Args:
            X: (row, unit), bits or probabilities, which count as 1 above 1/2.

        Returns:
            (row, feature).

        Raises:
            InvalidInputError: If X has another number of units, or values outside [0, 1].
        """
        check_is_fitted(self)
        codes = arguments.numbers_of(X, "Give codes.")
        num_units = self._n_features_out
        if codes.ndim != 2 or codes.shape[1] != num_units:
            rule = f"must have shape (row, {num_units}), as transform gives it"
            repair = "Give codes of this estimator."
            raise InvalidInputError("X", rule, f"shape {codes.shape}", repair)
        if not bool(((codes >= 0) & (codes <= 1)).all()):
            raise InvalidInputError("X", "must hold values in [0, 1]", "others", "Give codes, not rows.")
        bits = torch.from_numpy((codes > 0.5).astype(np.float64))
        return decode_codes(self.model_, bits).numpy().astype(dtype_of(X), copy=False)

    def score_samples(self, X: Any) -> np.ndarray:  # noqa: N803
        """log p(x) of each row by importance sampling, a low value where the model finds the row strange.

        The noise is a function of random_state and of the row's values, so a row has one score whatever rows stand
        beside it, but for the rounding of products, which depends on how many rows there are. Of a row with gaps it is
        the probability of what is there.

        Args:
            X: (row, feature); values that the likelihood can draw: of probabilities of bits there is no likelihood.

        Returns:
            (row,), nats. On average a little too low, the less so the larger num_samples is.

        Raises:
            InvalidInputError: If the values are not such.
        """
        check_is_fitted(self)
        num_samples = arguments.whole("num_samples", self.num_samples)
        log_partition = self.log_partition_
        with arguments.in_words_of_estimators():
            x = self._tensor(X)
            return log_likelihoods(self.model_, x, num_samples, log_partition, self._seed).numpy()

    @property
    def _prior(self) -> RBM:
        return self.model_.prior

    def _rows_of_states(self, z: Tensor, seed: int) -> np.ndarray:
        return sample_rows(self.model_, z, seed).numpy()

    @property
    def _n_features_out(self) -> int:
        """Bits of a code, for `get_feature_names_out`."""
        return self.model_.prior.num_units

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _settings(self) -> Settings:
        hidden, repair = self.hidden, "The default is 0.003."
        share = arguments.number(
            "validation_fraction", self.validation_fraction, at_most=0.9, repair="Give a share such as 0.1."
        )
        return Settings(
            num_left=arguments.whole("num_left", self.num_left),
            num_right=arguments.whole("num_right", self.num_right),
            hidden=arguments.whole_numbers("hidden", hidden),
            likelihood=arguments.choice(
                "likelihood", self.likelihood, _LIKELIHOODS, "Take 'auto' to have the values tell."
            ),
            num_epochs=arguments.whole("num_epochs", self.num_epochs),
            batch_size=arguments.whole("batch_size", self.batch_size, at_least=2),
            learning_rate=arguments.number("learning_rate", self.learning_rate, repair=repair),
            validation_fraction=share,
            seed=arguments.draw_seed(self.random_state),
            shows=arguments.verbosity(self.verbose) > 0,
        )

    def _rows(self, X: Any, *, reset: bool) -> np.ndarray:  # noqa: N803
        """Checked rows as float32."""
        least = _LEAST_ROWS if reset else 1
        values = validate_data(
            self,
            X,
            reset=reset,
            dtype="numeric",
            ensure_all_finite="allow-nan",
            ensure_min_samples=least,
        )
        return as_float32("X", np.asarray(values), tuple(getattr(self, "feature_names_in_", ())))

    def _tensor(self, X: Any) -> Tensor:  # noqa: N803
        rows = self._rows(X, reset=False)
        if not self.model_.missing and bool(np.isnan(rows).any()):
            rule, repair = (
                "must hold no NaN, as the rows of fit did",
                "Fill them, or leave gaps in the rows of fit.",
            )
            raise InvalidInputError("X", rule, "some", repair)
        return torch.from_numpy(rows).double()
