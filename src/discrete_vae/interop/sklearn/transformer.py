"""Binary codes by a discrete VAE, as a scikit-learn transformer."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from rich.console import Console
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from discrete_vae.boltzmann.base import LogPartition
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
from discrete_vae.errors import InvalidInputError, not_one_of
from discrete_vae.evaluation.evaluate import samples_in_memory
from discrete_vae.inference.encode import most_probable
from discrete_vae.interop.sklearn.boltzmann_density import (
    PriorMixin,
    check_number,
    dtype_of,
    no_score_of_probabilities,
    states_of,
)
from discrete_vae.interop.sklearn.reading import (
    FrameColumns,
    check_readable,
    dense,
    dense_blocks,
    has_words,
    is_frame,
    naming_x,
    weighted_places,
    weighted_rows,
)
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.modes import eval_mode
from discrete_vae.objectives.importance import importance_weighted
from discrete_vae.own_data import own_experiment_of
from discrete_vae.rng import generator_of, key_to_seed
from discrete_vae.runs.load import LoadedRun, load_run
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.training.run import train

_CHOICES = {
    "likelihood": ("auto", "bernoulli", "gaussian", "negative-binomial", "categorical", "table"),
    "output": ("bits", "probabilities"),
}
_LEAST_ROWS = 3  # two to train on and one to choose the checkpoint
_DECODED = 4096  # rows at a time


@dataclass(kw_only=True, eq=False, repr=False)
class DiscreteVAETransformer(PriorMixin, BaseEstimator):
    """Binary codes of rows by a discrete VAE with an RBM prior, trained by the library's own loop.

    A row's code is the most probable one, group after group: each unit is 1 where q(z = 1 | x, earlier groups) is above
    1/2. NaN is a missing value, which enters no likelihood; leave gaps in the rows of `fit` if other rows have some.

    Args:
        num_left: Units of the left side of the prior; codes have num_left + num_right bits.
        num_right: Units of the right side. log Z is exact where a side has at most 24 units.
        hidden: Widths of the hidden layers of posterior and decoder.
        likelihood: Reading of the values: "bernoulli" for bits, or probabilities of bits, which each step draws anew;
            "gaussian" for real values; "negative-binomial" for counts; "categorical" for codes 0, 1, ...; "auto" takes
            the first where all values are 0 or 1, counts where all are whole and none is negative, else Gaussian.
            "table" reads a data frame with a kind of its own for each column, as "auto" does where one holds words.
        kinds: Kinds of some columns of a table, by name, see `discrete_vae.data.infer_schema`; the others are
            inferred. Anything but None, {} for example, reads a data frame as a table.
        output: Result of `transform`: "bits", 0 or 1, or "probabilities" of their being 1.
        num_epochs: Passes over the rows to train on.
        batch_size: Rows per step, at most.
        learning_rate: Step size of Adam at the start.
        validation_fraction: Share of the rows that choose the best checkpoint, at least one; it trains nothing. A
            row of an integer weight k is k rows, some of which may train.
        num_samples: Importance samples per row in `score_samples`.
        log_partition_sweeps: Sweeps of bridge sampling for log Z, at most, where it is not enumerated.
        contamination: Share of the rows of `fit`, up to 1/2, that `predict` calls outliers; None has no `predict`.
        random_state: Seed of the split, the first weights and all noise, as scikit-learn reads it.
        verbose: 1 shows the training curves on standard error.

    Attributes:
        model_: The trained `discrete_vae.DiscreteVAE`, in float64 and evaluation mode.
        likelihood_: The likelihood in use.
        log_partition_: log Z of its prior with a standard error, estimated when it is first asked for.
        elbo_: Its ELBO on the rows for validation, nats per row.
        schema_: The kinds of a table's columns, a line for each where it is printed; None where X was no table.
        offset_: The score below which rows are outliers, nats; only with `contamination`.
        n_features_in_: Features of a row.
        feature_names_in_: Their names, where X was a data frame.

    Examples:
        >>> kind = np.random.default_rng(0).integers(0, 2, 40)
        >>> coder = DiscreteVAETransformer(num_left=2, num_right=2, hidden=(8,), num_epochs=5, random_state=0)
        >>> coder.fit_transform(np.repeat(kind[:, None], 6, 1)).shape
        (40, 4)
    """

    _numbers: ClassVar = {
        "num_left": {"at_least": 1},
        "num_right": {"at_least": 1},
        "num_epochs": {"at_least": 1},
        "batch_size": {"at_least": 2},
        "learning_rate": {"whole": False, "above": 0},
        "validation_fraction": {"whole": False, "above": 0, "at_most": 0.9},
        "num_samples": {"at_least": 1},
        "verbose": {"at_least": 0},
    }

    num_left: int = 16
    num_right: int = 16
    hidden: tuple[int, ...] = (200,)
    likelihood: str = "auto"
    kinds: Mapping[str, str] | None = None
    output: str = "bits"
    num_epochs: int = 100
    batch_size: int = 100
    learning_rate: float = 0.003
    validation_fraction: float = 0.1
    num_samples: int = 100
    log_partition_sweeps: int = 1000
    contamination: float | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803 (scikit-learn's name)
        """Train the model on X, (row, feature): numbers, or a data frame with words; returns the estimator.

        Weights are (row,), from 0: whole numbers count copies of a row, of floating-point numbers the ratios count.

        Raises:
            InvalidInputError: If a parameter breaks its rule, or the values cannot be read by the likelihood.
            NonFiniteLossError: If training diverges; a smaller learning_rate may help.
        """
        settings = self._begin_fit()
        settings.likelihood = self._choice("likelihood")
        self._choice("output")
        settings.contamination = self.contamination
        if not isinstance(self.hidden, list | tuple | np.ndarray):
            repair = "Give (200,) for one hidden layer, () for none."
            raise InvalidInputError("hidden", "must be a list of widths", repr(self.hidden)[:80], repair)
        settings.hidden = tuple(
            check_number(f"hidden[{index}]", width, at_least=1) for index, width in enumerate(self.hidden)
        )
        table = X
        if sample_weight is not None and is_frame(X):
            # kinds and words of columns are those of rows that count, as often as they do
            places, sample_weight = weighted_places(sample_weight, len(X))
            table = X.iloc[places]
        rows = self._rows_of_fit(table)
        settings.schema = None if self._frame is None else self._frame.schema
        run, self.elbo_ = fit_model(*weighted_rows(rows, sample_weight), settings)
        # in float64 a row's result does not depend on the rows beside it, to more digits than anybody compares
        self.model_, self.likelihood_ = run.model.double(), run.config.model.likelihood.kind
        self._states, self._seed, self._log_partition = run.chains.z, settings.seed, None
        self.schema_ = settings.schema
        self._set_offset(table, sample_weight)
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The codes of rows, (row, unit), the left side first, as `output` says, in the dtype of X."""
        check_is_fitted(self)
        output = self._choice("output")
        rows = self._read(X)
        # in the limit of sharp smoothing, where nothing is random
        with naming_x(), torch.no_grad(), eval_mode(self.model_.discretized()) as sharp:
            parts = self._blocks(rows)
            found = (most_probable(sharp, sharp.features_of(*sharp.preprocess(part, None))) for part in parts)
            codes = [each.z if output == "bits" else torch.sigmoid(each.logits) for each in found]
        return torch.cat(codes).numpy().astype(dtype_of(X), copy=False)

    def inverse_transform(self, X: Any) -> Any:  # noqa: N803
        """Rows of codes, which count as 1 above 1/2: the mean of x, of categories and of tables the mode.

        Of a table they are a data frame with its names, words and dtypes.
        """
        check_is_fitted(self)
        bits = (states_of(X, self._n_features_out) > 0.5).double()
        takes_mode = self.likelihood_ in ("categorical", "table")
        sharp, statistic = self.model_.discretized(), "mode" if takes_mode else "mean"
        rows = torch.cat([sharp.decode(part, statistic=statistic) for part in bits.split(_DECODED)])
        if self._frame is not None:
            return self._frame.decode(rows.numpy(), X.index if is_frame(X) else None)
        return rows.flatten(1).numpy().astype(dtype_of(X), copy=False)

    def score_samples(self, X: Any) -> np.ndarray:  # noqa: N803
        """log p(x) of each row by importance sampling, a low value where the model finds the row strange.

        The noise is a function of random_state and of the row's values, so a row has one score whatever rows stand
        beside it, but for rounding. Of a row with gaps it is the probability of what is there; of probabilities of bits
        there is none. Scores are (row,), nats, on average a little too low, the less so the larger num_samples is.
        """
        check_is_fitted(self)
        num_samples = check_number("num_samples", self.num_samples, at_least=1)
        rows, log_partition = self._read(X), self.log_partition_
        with naming_x():
            found = [
                log_likelihoods(self.model_, x, num_samples, log_partition, self._seed)
                for x in self._blocks(rows)
            ]
        return torch.cat(found).numpy()

    @property
    def _prior(self) -> Any:
        return self.model_.prior

    def _rows_of_states(self, z: Tensor, seed: int) -> Any:
        generator = generator_of(key_to_seed(seed, 1))  # another than that of the states
        with torch.no_grad():
            zeta = self.model_.smoothing.sample_zeta(z.to(self.model_.dtype), generator=generator)
            keywords = {"statistic": "sample", "generator": generator}
            parts = [self.model_.decode(part, **keywords) for part in zeta.split(_DECODED)]
        rows = torch.cat(parts).flatten(1).numpy()
        return rows if self._frame is None else self._frame.decode(rows)

    @property
    def _n_features_out(self) -> int:
        return self.model_.prior.num_units

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _choice(self, name: str) -> str:
        value, words = getattr(self, name), _CHOICES[name]
        if not isinstance(value, str) or value not in words:
            raise not_one_of(name, words, value, f"The default is {words[0]!r}.")
        return value

    def _rows_of_fit(self, X: Any) -> np.ndarray:  # noqa: N803
        """Rows as the model reads them, (row, feature) float32; keeps how a table became these."""
        check_readable(X)
        is_table = self.likelihood == "table" or self.kinds is not None
        if is_table and self.likelihood not in ("auto", "table"):
            rule, repair = "must be None unless the likelihood is auto or table", "Leave one of them out."
            raise InvalidInputError("kinds", rule, f"likelihood={self.likelihood!r} as well", repair)
        self._frame = None
        if is_table or (self.likelihood == "auto" and has_words(X)):
            frame = FrameColumns.of(X, self.kinds)
            validate_data(self, X, reset=True, skip_check_array=True)
            if len(X) < _LEAST_ROWS:
                repair = "Give two rows to train on and one to choose the checkpoint."
                raise InvalidInputError("X", f"must have at least {_LEAST_ROWS} rows", len(X), repair)
            self._frame = frame
            return frame.encode(X, fitted=False)
        read = self._validated(X, reset=True, ensure_all_finite="allow-nan", ensure_min_samples=_LEAST_ROWS)
        return as_float32("X", dense(read), tuple(getattr(self, "feature_names_in_", ())))

    def _read(self, X: Any) -> Any:  # noqa: N803
        """Rows of features, an array or a CSR matrix."""
        if self._frame is None:
            return self._validated(X, reset=False, ensure_all_finite="allow-nan")
        check_readable(X)
        return self._frame.encode(X, fitted=True)

    def _blocks(self, read: Any) -> Iterator[Tensor]:
        """Blocks of rows as the model reads them, (row, feature) float64."""
        given = getattr(self, "feature_names_in_", ()) if self._frame is None else self._frame.schema.names
        names = tuple(given)
        for block in dense_blocks(read):
            rows = as_float32("X", block, names, fitted=True)
            gaps = np.isnan(rows).any(0)
            if not self.model_.missing and bool(gaps.any()):
                rule, repair = "must have no gaps, as in fit", "Fill them, or leave gaps in the rows of fit."
                place = int(gaps.argmax())
                received = f"NaN in column {repr(names[place]) if names else place}"
                raise InvalidInputError("X", rule, received, repair)
            yield torch.from_numpy(rows).double()


# Training of a model on an array in memory, by the library's own loop.


_GROUPS = 4
_LEAST_BETWEEN_VALIDATIONS, _VALIDATIONS = 100, 5
_CHAINS, _SWEEPS = 200, 10


def fit_model(
    rows: np.ndarray, weights: np.ndarray | None, settings: SimpleNamespace
) -> tuple[LoadedRun, float]:
    """Train a model of (row, feature) float32 in a temporary folder; the best checkpoint and its validation ELBO."""
    dataset = _split(rows, weights, settings)
    with naming_x():
        config = _config(dataset, settings)
    if isinstance(config.data, FileDataConfig) and config.data.binarize:
        if settings.contamination is not None:
            raise no_score_of_probabilities(settings.contamination)
        dataset = binarized(dataset, seed=settings.seed)
    num_steps = config.training.num_epochs * (len(dataset.train) // config.training.batch_size)
    console = None if settings.verbose else Console(quiet=True)
    folders = tempfile.TemporaryDirectory(prefix="discrete-vae-")
    with folders as folder, torch.device("cpu"), torch.enable_grad():  # whatever is set outside
        result = train(config, dataset, folder, progress=TrainingProgress(0, num_steps, console))
        run = load_run(folder)
    assert result.best_elbo is not None  # the last step validates
    return run, result.best_elbo


def read_as(rows: np.ndarray) -> str:
    """The likelihood that values suggest: bits, counts, or real numbers.

    Examples:
        >>> [read_as(np.array(values)) for values in ([0, 1], [0, 7], [0.5, 1.0], [-1, 1], [0.5, np.nan, 3])]
        ['bernoulli', 'negative-binomial', 'gaussian', 'gaussian', 'gaussian']
    """
    seen = rows[~np.isnan(rows)]
    if bool(((seen == 0) | (seen == 1)).all()):
        return "bernoulli"
    return "negative-binomial" if seen.min() >= 0 and bool((seen == np.trunc(seen)).all()) else "gaussian"


def _split(rows: np.ndarray, weights: np.ndarray | None, settings: SimpleNamespace) -> DataSplits:
    """The rows by part; the test part, which training does not use, is that for validation."""
    num_valid = max(1, int(len(rows) * settings.validation_fraction))
    if len(rows) - num_valid < 2:
        rule = "must leave at least 2 rows to train on"
        received = f"{settings.validation_fraction:g} of {len(rows)}"
        raise InvalidInputError("validation_fraction", rule, received, "Make it smaller, or give more rows.")
    order = np.random.default_rng(settings.seed).permutation(len(rows))
    of_train, of_valid = np.split(order, [len(rows) - num_valid])
    train_rows, valid = torch.from_numpy(rows[of_train]), torch.from_numpy(rows[of_valid])
    of_parts = {"train": of_train, "valid": of_valid, "test": of_valid}
    parts = {} if weights is None else {part: weights[places] for part, places in of_parts.items()}
    words = f"{len(train_rows)}/{num_valid} after a shuffle with seed {settings.seed}"
    description = DatasetDescription("X", "an array in memory", words, "as in the array", None)
    more = {"schema": settings.schema, "weights": parts}
    return DataSplits("X", train_rows, valid, valid, (rows.shape[1],), False, description, **more)


def _config(dataset: DataSplits, settings: SimpleNamespace) -> ExperimentConfig:
    """`own_experiment` of these data, with the settings in place of the size's."""
    likelihood = settings.likelihood
    if likelihood == "auto":
        likelihood = read_as(torch.cat([dataset.train[:], dataset.valid[:]]).numpy())
    experiment = own_experiment_of(dataset, Path("X.npy"), likelihood=likelihood, size="short")
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
    changed = {"model": experiment.model.model_copy(update=model), "training": training}
    return experiment.model_copy(update=changed | {"seed": settings.seed})


# Scores, each a function of its row alone.


_SCORED_ROWS = 32  # rows whose weights are in memory together, at most
_CHUNK = 100  # their samples at a time
_MAX_MEMORY = 256.0  # MiB of the networks' intermediate values


@torch.no_grad()
def log_likelihoods(
    model: DiscreteVAE, x: Tensor, num_samples: int, log_partition: LogPartition, seed: int
) -> Tensor:
    """log p(x) of rows (row, feature), nats, with noise keyed by the seed and the row's values."""
    values, at_once = [], samples_in_memory(model, _MAX_MEMORY / 2)  # of float32
    chunk_size = min(_CHUNK, at_once)
    rows = max(1, min(_SCORED_ROWS, at_once // min(chunk_size, num_samples)))
    with model.importance_sampler(log_partition) as sampler:
        for part in x.split(rows):
            keys = [key_to_seed(seed, row_key(row)) for row in part]
            batch = model.check_batch(part, exact=True, keys=keys)
            weights = sampler.log_weights(batch, num_samples, chunk_size)
            values.append(importance_weighted(weights).value)
    return torch.cat(values)


def row_key(row: Tensor) -> int:
    """An integer that a row's values determine."""
    content = (row.double() + 0.0).masked_fill(row.isnan(), math.nan)  # one zero, and one NaN
    return int.from_bytes(hashlib.blake2b(content.numpy().tobytes(), digest_size=8).digest(), "little")
