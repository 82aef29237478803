"""Binary codes by a discrete VAE, as a scikit-learn transformer."""

from __future__ import annotations

import hashlib
import io
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from rich.console import Console
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.config import (
    BetaBoundConfig,
    BlockGibbsConfig,
    ExperimentConfig,
    FileDataConfig,
    HierarchicalPosteriorConfig,
    MLPDecoderConfig,
    NoHierarchyConfig,
    OptimizerConfig,
    RBMConfig,
    TrainingConfig,
    WarmUpConfig,
)
from discrete_vae.data.arrays import as_float32
from discrete_vae.data.rows import binarized
from discrete_vae.data.splits import DatasetDescription, DataSplits
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.log_likelihood import samples_in_memory
from discrete_vae.interop.sklearn import base
from discrete_vae.interop.sklearn import base as base_module
from discrete_vae.interop.sklearn.base import PriorMixin, dtype_of
from discrete_vae.load import load_run
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.evaluation_mode import eval_mode
from discrete_vae.objectives.importance import importance_weighted
from discrete_vae.own_data import own_experiment_of
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import generator_of, key_to_seed
from discrete_vae.training.logging import TrainingProgress
from discrete_vae.training.run import train

# What a trained model says of rows, each row's result a function of that row alone.


_ROWS = 4096  # that are read together
_SCORED_ROWS, _CHUNK = (
    32,
    100,
)  # rows whose weights are in memory together, at most, and their samples at a time
_MAX_MEMORY = 256.0  # MiB of the networks' intermediate values


@dataclass(frozen=True, eq=False, repr=False)
class Codes(ShowsShapes):
    """The most probable codes of rows, both (row, unit).

    Attributes:
        bits: In {0,1}.
        probabilities: Of their being 1, given the row and the bits of earlier groups.
    """

    bits: Tensor
    probabilities: Tensor


@torch.no_grad()
def best_codes(model: DiscreteVAE, x: Tensor) -> Codes:
    """The most probable bits of rows, group after group, in the limit of sharp smoothing, where nothing is random.

    Args:
        model: The model; its smoothing has such a limit.
        x: (row, feature); NaN is a missing value.
    """
    bits, logits = [], []
    with eval_mode(model.discretized()) as sharp:
        for part in x.split(_ROWS):
            features = sharp.read(*sharp._open(part, None))
            half = torch.full((1, len(part), sharp.prior.num_units), 0.5, dtype=features.dtype)
            found = sharp.posterior.sample_discretely(features, half)
            bits.append(found.z[0])
            logits.append(found.logits[0])
    return Codes(torch.cat(bits), torch.sigmoid(torch.cat(logits)))


def decode_codes(model: DiscreteVAE, bits: Tensor) -> Tensor:
    """E[x | code], or for codes of names the mode, in the limit of sharp smoothing.

    Args:
        model: The model.
        bits: (row, unit) in {0,1}.

    Returns:
        (row, feature).
    """
    names = model.config is not None and model.config.likelihood.kind == "categorical"
    return model.discretized().decode(bits, statistic="mode" if names else "mean").flatten(1)


@torch.no_grad()
def log_likelihoods(
    model: DiscreteVAE, x: Tensor, num_samples: int, log_partition: LogPartition, seed: int
) -> Tensor:
    """log p(x) of rows, with noise keyed by the seed and the row's values.

    Args:
        model: The model.
        x: (row, feature); NaN is a missing value.
        num_samples: Importance samples per row.
        log_partition: log Z of the prior.
        seed: Seed of the noise.

    Returns:
        (row,), nats.
    """
    values, at_once = [], samples_in_memory(model, _MAX_MEMORY / 2)  # of float32
    chunk_size = min(_CHUNK, at_once)
    rows = max(1, min(_SCORED_ROWS, at_once // min(chunk_size, num_samples)))
    with model.weigher(log_partition) as weigher:
        for part in x.split(rows):
            keys = [key_to_seed(seed, row_key(row)) for row in part]
            weights = weigher.log_weights(part, num_samples, chunk_size, keys=keys)
            values.append(importance_weighted(weights).value)
    return torch.cat(values)


def row_key(row: Tensor) -> int:
    """An integer that a row's values determine.

    Examples:
        >>> row_key(torch.tensor([0.0, 1.0])) == row_key(torch.tensor([-0.0, 1.0]))
        True
    """
    content = (row.double() + 0.0).numpy().tobytes()  # the sum makes one zero of both
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


@torch.no_grad()
def sample_rows(model: DiscreteVAE, z: Tensor, seed: int) -> Tensor:
    """Draws of x from the model.

    Args:
        model: The model.
        z: (row, unit), draws of the prior.
        seed: Seed of all other noise.

    Returns:
        (row, feature).
    """
    generator = generator_of(key_to_seed(seed))
    zeta = model.smoothing.sample_zeta(z.to(model.dtype), generator=generator)
    return model.decode(zeta, statistic="sample", generator=generator).flatten(1)


# From an array in memory to a trained model, by the library's own training.


_GROUPS = 4
_LEAST_BETWEEN_VALIDATIONS, _VALIDATIONS = 100, 5
_CHAINS, _SWEEPS = 200, 10


@dataclass(frozen=True)
class Settings:
    """What an estimator says of its model and its training, checked.

    Attributes:
        num_left: Units of the left side of the prior.
        num_right: Units of the right side.
        hidden: Widths of the hidden layers of posterior and decoder.
        likelihood: How values are read, or "auto".
        num_epochs: Passes over the training rows.
        batch_size: Rows per step, at most.
        learning_rate: Step size of Adam.
        validation_fraction: Share of the rows that choose the best checkpoint.
        seed: Seed of the split, the first weights and all noise.
        shows: Whether to print the course.
    """

    num_left: int
    num_right: int
    hidden: tuple[int, ...]
    likelihood: str
    num_epochs: int
    batch_size: int
    learning_rate: float
    validation_fraction: float
    seed: int
    shows: bool


@dataclass(frozen=True, eq=False, repr=False)
class Trained(ShowsShapes):
    """What training leaves.

    Attributes:
        model: The best checkpoint, in evaluation mode.
        likelihood: How values were read.
        states: (chain, unit), where the prior's chains ended.
        elbo: Validation ELBO of the model, nats.
    """

    model: DiscreteVAE
    likelihood: str
    states: Tensor
    elbo: float


def fit_model(rows: np.ndarray, settings: Settings) -> Trained:
    """Train a model of an array in a temporary folder.

    Args:
        rows: (row, feature) float32; NaN is a missing value.
        settings: The model and its training.

    Raises:
        InvalidInputError: If the values cannot be read by the likelihood.
        NonFiniteLossError: If training diverges.
    """
    dataset = _split(rows, settings)
    with base_module.in_words_of_estimators():
        config = _config(dataset, settings)
    if isinstance(config.data, FileDataConfig) and config.data.binarize:
        dataset = binarized(dataset, seed=settings.seed)
    num_steps = config.training.num_epochs * (len(dataset.train) // config.training.batch_size)
    console = None if settings.shows else Console(file=io.StringIO())
    with tempfile.TemporaryDirectory(prefix="discrete-vae-") as folder:
        result = train(config, dataset, folder, progress=TrainingProgress(0, num_steps, console))
        run = load_run(folder)
    assert result.best_elbo is not None  # the last step validates
    # in float64 a row's result does not depend on the rows beside it, to more digits than anybody compares
    model = run.model.double()
    return Trained(model, config.model.likelihood.kind, run.chains.z, result.best_elbo)


def read_as(rows: np.ndarray) -> str:
    """The likelihood that values suggest: bits, counts, or real numbers.

    Args:
        rows: (row, feature); NaN is a missing value.

    Examples:
        >>> [read_as(np.array(values)) for values in ([0, 1], [0, 7], [0.5, 1.0], [-1, 1], [0.5, np.nan, 3])]
        ['bernoulli', 'negative-binomial', 'gaussian', 'gaussian', 'gaussian']
    """
    seen = rows[~np.isnan(rows)]
    if bool(((seen == 0) | (seen == 1)).all()):
        return "bernoulli"
    return "negative-binomial" if seen.min() >= 0 and bool((seen == np.trunc(seen)).all()) else "gaussian"


def _split(rows: np.ndarray, settings: Settings) -> DataSplits:
    """The rows by part; the test part, of which training makes nothing, is the one for validation."""
    num_valid = max(1, int(len(rows) * settings.validation_fraction))
    if len(rows) - num_valid < 2:
        rule = "must leave at least 2 rows to train on"
        received = f"{settings.validation_fraction:g} of {len(rows)}"
        raise InvalidInputError("validation_fraction", rule, received, "Make it smaller, or give more rows.")
    order = np.random.default_rng(settings.seed).permutation(len(rows))
    train_rows, valid = (torch.from_numpy(rows[part]) for part in np.split(order, [len(rows) - num_valid]))
    words = f"{len(train_rows)}/{num_valid} after a shuffle with seed {settings.seed}"
    description = DatasetDescription("X", "an array in memory", words, "as in the array", None)
    return DataSplits("X", train_rows, valid, valid, (rows.shape[1],), False, description)


def _config(dataset: DataSplits, settings: Settings) -> ExperimentConfig:
    """`own_experiment` of these data, with the settings in place of the size's."""
    likelihood = settings.likelihood
    if likelihood == "auto":
        likelihood = read_as(np.concatenate([dataset.train.numpy(), dataset.valid.numpy()]))
    base = own_experiment_of(dataset, Path("X.npy"), likelihood=likelihood, size="short")
    batch_size = min(settings.batch_size, len(dataset.train))
    num_steps = settings.num_epochs * (len(dataset.train) // batch_size)
    every = max(_LEAST_BETWEEN_VALIDATIONS, math.ceil(num_steps / _VALIDATIONS))
    num_units = settings.num_left + settings.num_right
    model = {
        "prior": RBMConfig(num_left=settings.num_left, num_right=settings.num_right),
        "hierarchy": NoHierarchyConfig(),  # a code is all that a row is given back from
        "posterior": HierarchicalPosteriorConfig(groups=min(_GROUPS, num_units), hidden=settings.hidden),
        "decoder": MLPDecoderConfig(hidden=settings.hidden),
    }
    training = TrainingConfig(
        num_epochs=settings.num_epochs,
        batch_size=batch_size,
        optimizer=OptimizerConfig(learning_rate=settings.learning_rate),
        warm_up=WarmUpConfig(epochs=0.05 * settings.num_epochs, prior_epochs=0.1 * settings.num_epochs),
        beta_bound=BetaBoundConfig(start=3.0, slope=3.0 / settings.num_epochs),
        sampler=BlockGibbsConfig(num_chains=_CHAINS),
        num_sweeps=_SWEEPS,
        log_every=every,  # a line takes an estimate of log Z
        validate_every=every,
    )
    changed = {"seed": settings.seed, "model": base.model.model_copy(update=model), "training": training}
    return base.model_copy(update=changed)


# The discrete VAE as a scikit-learn transformer.


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
        output = base.choice("output", self.output, _OUTPUTS, "Take 'bits' for codes.")
        with base.in_words_of_estimators():
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
        codes = base.numbers_of(X, "Give codes.")
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
        num_samples = base.whole("num_samples", self.num_samples)
        log_partition = self.log_partition_
        with base.in_words_of_estimators():
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
        share = base.number(
            "validation_fraction", self.validation_fraction, at_most=0.9, repair="Give a share such as 0.1."
        )
        return Settings(
            num_left=base.whole("num_left", self.num_left),
            num_right=base.whole("num_right", self.num_right),
            hidden=base.whole_numbers("hidden", hidden),
            likelihood=base.choice(
                "likelihood", self.likelihood, _LIKELIHOODS, "Take 'auto' to have the values tell."
            ),
            num_epochs=base.whole("num_epochs", self.num_epochs),
            batch_size=base.whole("batch_size", self.batch_size, at_least=2),
            learning_rate=base.number("learning_rate", self.learning_rate, repair=repair),
            validation_fraction=share,
            seed=base.draw_seed(self.random_state),
            shows=base.verbosity(self.verbose) > 0,
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
