"""The base of the scikit-learn estimators, and a density over bits by an RBM."""

from __future__ import annotations

import copy
import numbers
import sys
import time
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from rich.console import Console
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from discrete_vae import checks
from discrete_vae.boltzmann.base import MAX_ENUMERATED_UNITS, LogPartition, num_enumerated_units
from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_states, check_unit_interval
from discrete_vae.data.batches import binarize, epoch_order
from discrete_vae.data.splits import check_weights
from discrete_vae.errors import InvalidInputError, LogPartitionWarning
from discrete_vae.interop.sklearn.reading import (
    check_readable,
    dense,
    dense_blocks,
    numbers_of,
    quantile,
    weighted_rows,
)
from discrete_vae.log_partition.estimate import comparable_log_partition, quick_exact_log_partition
from discrete_vae.rng import generator_of, key_to_seed, keyed_generator
from discrete_vae.runs.progress import TrainingProgress
from discrete_vae.samplers.gibbs import BlockGibbs
from discrete_vae.system import check_memory, in_words, yielding_threads

_STD_ERROR = 0.01  # of log Z, nats, where it is not enumerated
_CHAINS = 500
_SWEEPS = 200
_SILENT_SECONDS = 5.0
_FITTED = ("machine_", "model_")  # what a fit sets when it has trained
_ROUNDING = 1e-9  # of float64 scores in batches of other sizes, more than enough
_STATES_A_SECOND = 5e7  # times units: enumerating log Z on one core, about


def _judges(estimator: Any) -> bool:
    return estimator.contamination is not None


def no_score_of_probabilities(contamination: Any) -> InvalidInputError:
    """The error for an estimator that is to judge rows of probabilities of bits."""
    rule = "must be None for probabilities of bits, which have no score"
    return InvalidInputError("contamination", rule, contamination, "Leave it out, or give bits.")


class PriorMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """An estimator whose `fit` trains a Boltzmann machine and keeps the last states of its chains."""

    _numbers: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Keywords of `check_number` for each numeric parameter."""
    random_state: Any
    contamination: float | None
    offset_: float
    log_partition_sweeps: int
    _states: Tensor
    _seed: int
    _log_partition: LogPartition | None

    @property
    @abstractmethod
    def _prior(self) -> RBM: ...

    @abstractmethod
    def _rows_of_states(self, z: Tensor, seed: int) -> np.ndarray:
        """Rows that belong to draws of the machine, (row, unit) -> (row, feature)."""

    @abstractmethod
    def score_samples(self, X: Any) -> np.ndarray:  # noqa: N803 (scikit-learn's name)
        """log p(x) of each row, (row,), nats."""

    def __sklearn_is_fitted__(self) -> bool:
        return not vars(self).keys().isdisjoint(_FITTED)

    def __dir__(self) -> list[str]:
        """Names without log_partition_ until it is known: scikit-learn reads all attributes to list and show them."""
        unknown = {"log_partition_"} if vars(self).get("_log_partition") is None else set()
        return [name for name in object.__dir__(self) if name not in unknown and hasattr(self, name)]

    def _begin_fit(self) -> SimpleNamespace:
        """Forget an earlier fit; the numeric parameters, checked, and a seed drawn as random_state says."""
        rules = self._numbers.items()
        found = {name: check_number(name, getattr(self, name), **rule) for name, rule in rules}
        check_number("log_partition_sweeps", self.log_partition_sweeps, at_least=1)
        if self.contamination is not None:
            check_number("contamination", self.contamination, whole=False, above=0, at_most=0.5)
        for name in (*_FITTED, "offset_", "elbo_", "likelihood_", "schema_", "_log_partition"):
            vars(self).pop(name, None)
        return SimpleNamespace(**found, seed=draw_seed(self.random_state))

    def _validated(self, X: Any, *, reset: bool, **checks: Any) -> Any:  # noqa: N803
        """X as an array or a CSR matrix, as scikit-learn checks it."""
        check_readable(X)
        X = numbers_of(X)  # noqa: N806
        return validate_data(self, X, reset=reset, dtype="numeric", accept_sparse="csr", **checks)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Mean of `score_samples`, weighted where there are weights, nats per row; larger is better."""
        scores = self.score_samples(X)
        if sample_weight is None:
            return float(scores.mean())
        weights = check_weights("sample_weight", sample_weight, len(scores))
        return float(np.average(scores, weights=weights))

    # Outliers, where `contamination` says how many there are.

    @available_if(_judges)
    def decision_function(self, X: Any) -> np.ndarray:  # noqa: N803
        """`score_samples` less `offset_`, (row,), nats: below 0 for outliers."""
        check_is_fitted(self, "offset_")
        return self.score_samples(X) - self.offset_

    @available_if(_judges)
    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """-1 for outliers, rows less probable than the share `contamination` of those of `fit`, and 1 for others."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    @available_if(_judges)
    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:  # noqa: N803
        """Fit, and judge the same rows."""
        return self.fit(X, sample_weight=sample_weight).predict(X)  # pyright: ignore[reportAttributeAccessIssue]

    def _set_offset(self, X: Any, sample_weight: Any) -> None:  # noqa: N803
        if self.contamination is not None:
            found = quantile(self.score_samples(X), float(self.contamination), sample_weight)
            # rows equal to the one there are judged alike
            self.offset_ = found - _ROUNDING * max(1.0, abs(found))

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> np.ndarray:
        """Draw rows, (row, feature), the noise of features included; other ones at each call without a random_state.

        Chains start where those of training ended, so in modes that the machine has, and are swept on.
        """
        check_is_fitted(self)
        count = check_number("n_samples", n_samples, at_least=1)
        seed = draw_seed(random_state)
        generator = generator_of(key_to_seed(seed))
        chosen = torch.randint(len(self._states), (count,), generator=generator, device="cpu")
        machine = copy.deepcopy(self._prior).float()  # for which there are compiled kernels
        z = BlockGibbs(machine, count, start=self._states[chosen], seed=seed).step(_SWEEPS)
        return self._rows_of_states(z, seed)

    @property
    def log_partition_(self) -> LogPartition:
        """log Z of the machine, exact or to a hundredth of a nat, with progress on standard error."""
        check_is_fitted(self)
        if self._log_partition is None:
            max_sweeps = check_number("log_partition_sweeps", self.log_partition_sweeps, at_least=1)
            self._log_partition = _estimate_log_partition(self._prior, self._states, self._seed, max_sweeps)
        return self._log_partition

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = True
        if _judges(self):
            tags.estimator_type = "outlier_detector"
        return tags


def _estimate_log_partition(machine: RBM, states: Tensor, seed: int, max_sweeps: int) -> LogPartition:
    bits, last = num_enumerated_units(machine), time.monotonic()
    seconds = machine.num_units * 2.0 ** min(bits, MAX_ENUMERATED_UNITS) / _STATES_A_SECOND
    if bits <= MAX_ENUMERATED_UNITS and seconds > _SILENT_SECONDS:
        _say(f"log Z: 2^{bits} states of the smaller side are enumerated once, about {in_words(seconds)}")
    exact = quick_exact_log_partition(machine, MAX_ENUMERATED_UNITS)
    if exact is not None:
        return exact

    def report(num_sweeps: int, found: LogPartition) -> None:
        nonlocal last
        if time.monotonic() - last > _SILENT_SECONDS:
            last = time.monotonic()
            done = f"{num_sweeps} of at most {max_sweeps} sweeps"
            _say(f"log Z, {done}: {found.value:.2f} ± {found.std_error:.2f} nats, {_STD_ERROR:g} is wanted")

    found = comparable_log_partition(
        copy.deepcopy(machine).float(),  # for which there are compiled kernels
        chains=states,
        max_enumerated=0,
        std_error=_STD_ERROR,
        max_sweeps=max_sweeps,
        num_chains=_CHAINS,
        annealing=(100, 1000),
        seed=seed,
        report=report,
    )
    if not found.converged:
        more = 10 * max(max_sweeps, found.num_sweeps or 0)
        warnings.warn(
            f"log Z = {found.value:.2f} ± {found.std_error:.2f} nats after {found.num_sweeps} sweeps, where "
            f"{_STD_ERROR:g} is wanted: all scores are off by the same number. Fit with log_partition_sweeps={more}, "
            "or train a machine that mixes faster: fewer hidden units or epochs.",
            LogPartitionWarning,
            stacklevel=3,
        )
    return found


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr)


# Checks, which scikit-learn wants in fit; numbers of NumPy are numbers, too.


def check_number(name: str, value: Any, *, whole: bool = True, **bounds: float) -> Any:
    """A number of any library, as int if whole, else as float, if `checks.check_number` accepts it."""
    if not isinstance(value, numbers.Integral if whole else numbers.Real):
        rule = f"must be a {'whole' if whole else 'finite'} number"
        raise InvalidInputError(name, rule, repr(value)[:80], "Change the parameter.")
    number: Any = value
    found = int(number) if whole else float(number)
    checks.check_number(name, found, repair="Change the parameter.", **bounds)
    return found


def draw_seed(random_state: int | np.random.RandomState | np.random.Generator | None) -> int:
    """A seed for keyed noise, as scikit-learn reads a random_state: None draws another one at each call."""
    try:
        source = check_random_state(random_state)
    except ValueError:
        rule, repair = "must be None, an integer or a RandomState", "Give an integer from 0 to 2^32 - 1."
        raise InvalidInputError("random_state", rule, repr(random_state)[:80], repair) from None
    return int(source.randint(np.iinfo(np.int32).max))


def dtype_of(X: Any) -> np.dtype:  # noqa: N803
    """float32 for float32, else float64."""
    return np.dtype(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64)


def states_of(X: Any, num_units: int) -> Tensor:  # noqa: N803
    """States of units or their probabilities, (row, unit), of a list, a data frame or an array."""
    checked: Any = check_array(X, dtype="numeric", input_name="X")
    return check_states("X", torch.from_numpy(np.array(checked, np.float64)), ("row", num_units))


# A density over bits.


_LEAST_ROWS = 2
_INIT_STREAM, _BITS_STREAM = 0x72626D30, 0x72626D31
_LEAST_FREQUENCY = 0.01
_FIRST_SCALE = 0.01
_PER_WEIGHT = 16  # bytes: the weight, its gradient, Adam's moments
_SHOWN = 20  # lines of a run


@dataclass(kw_only=True, eq=False, repr=False)
class BoltzmannDensity(  # pyright: ignore[reportIncompatibleMethodOverride]  # the mixin's score gives None
    PriorMixin, DensityMixin, BaseEstimator
):
    """A restricted Boltzmann machine of bits, whose log-likelihood is known: it has log Z.

    The left side of the machine holds the bits of a row, the right side is hidden. It is trained by persistent chains,
    as docs/train-an-rbm.md does by hand. With the hidden side summed out, log p(x) = -F(x) - log Z, where F is exact
    and log Z is enumerated where a side has at most 24 units, else estimated to 0.01 nats; a warning says where it was
    not reached. BernoulliRBM of scikit-learn, whose place it can take in a pipeline, has a pseudo-likelihood instead.

    Args:
        num_hidden: Hidden units.
        binarize: Values above it count as 1, others as 0. None takes values as they are: bits, or in `fit` and
            `transform` also probabilities of bits, which each step of training draws anew.
        num_epochs: Passes over the rows.
        batch_size: Rows per step, at most.
        learning_rate: Step size of Adam at the start; it falls to 0 along the run.
        num_chains: Persistent chains of the negative phase.
        num_sweeps: Sweeps of these chains per step.
        log_partition_sweeps: Sweeps of bridge sampling for log Z, at most, where it is not enumerated.
        contamination: Share of the rows of `fit`, up to 1/2, that `predict` calls outliers; None has no `predict`.
        random_state: Seed of the first weights and all noise, as scikit-learn reads it.
        verbose: 1 shows the training curves on standard error.

    Attributes:
        machine_: The trained `discrete_vae.RBM`, in float64, bits on its left side.
        log_partition_: log Z with a standard error, estimated when it is first asked for.
        components_: (hidden, feature), the weights, as BernoulliRBM has them.
        intercept_hidden_: (hidden,).
        intercept_visible_: (feature,).
        offset_: The score below which rows are outliers, nats; only with `contamination`.
        n_features_in_: Features of a row.
        feature_names_in_: Their names, where X was a data frame.

    Examples:
        >>> x = np.repeat(np.random.default_rng(0).integers(0, 2, (200, 1)), 4, 1)
        >>> density = BoltzmannDensity(num_hidden=2, num_epochs=200, random_state=0).fit(x)
        >>> bool(density.score_samples([[1, 1, 1, 1]]) > density.score_samples([[1, 0, 1, 0]]) + 2)
        True
    """

    _numbers: ClassVar = {
        name: {"at_least": 1}
        for name in ("num_hidden", "num_epochs", "batch_size", "num_chains", "num_sweeps")
    } | {"learning_rate": {"whole": False, "above": 0}, "verbose": {"at_least": 0}}

    num_hidden: int = 64
    binarize: float | None = 0.5
    num_epochs: int = 100
    batch_size: int = 100
    learning_rate: float = 0.03
    num_chains: int = 200
    num_sweeps: int = 5
    log_partition_sweeps: int = 1000
    contamination: float | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803 (scikit-learn's name)
        """Train the machine on X, (row, feature), numbers, see `binarize`; returns the estimator.

        Weights are (row,), from 0: whole numbers count copies of a row, of floating-point numbers the ratios count.
        """
        settings = self._begin_fit()
        read = self._validated(X, reset=True, ensure_min_samples=_LEAST_ROWS)
        given, settings.weights = weighted_rows(self._bits(dense(read)).astype(np.float32), sample_weight)
        rows = torch.from_numpy(given)
        if self.contamination is not None and not bool(((rows == 0) | (rows == 1)).all()):
            raise no_score_of_probabilities(self.contamination)
        self.machine_, states = fit_rbm(rows, settings)
        self._states, self._seed, self._log_partition = states, settings.seed, None
        self._set_offset(X, sample_weight)
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Probabilities of the hidden units, (row, hidden), as BernoulliRBM gives them, in the dtype of X."""
        check_is_fitted(self)
        with torch.no_grad():
            blocks = [self.machine_.hidden_given_visible(rows) for rows in self._blocks(X)]
        return torch.cat(blocks).numpy().astype(dtype_of(X), copy=False)

    def inverse_transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """Probabilities of the bits, (row, feature), given hidden units, (row, hidden), in [0, 1]."""
        check_is_fitted(self)
        hidden = states_of(X, self.machine_.num_right)
        with torch.no_grad():
            return self.machine_.visible_given_hidden(hidden).numpy()

    def score_samples(self, X: Any) -> np.ndarray:  # noqa: N803
        """log p(x) of each row, (row,), nats: -F(x) - log Z; the standard error of log Z is common to all rows.

        Without `binarize`, X holds bits alone.
        """
        check_is_fitted(self)
        energies = []
        for rows in self._blocks(X):
            if not bool(((rows == 0) | (rows == 1)).all()):
                rule = "must hold only the values 0 and 1 to have a score"
                repair = "Give binarize=0.5, or draw bits of the probabilities."
                raise InvalidInputError("X", rule, "others", repair)
            with torch.no_grad():
                energies.append(self.machine_.free_energy(rows))
        return -torch.cat(energies).numpy() - self.log_partition_.value

    @property
    def components_(self) -> np.ndarray:
        """A copy of the weights, (hidden, feature)."""
        return self.machine_.weight.detach().numpy().T.copy()

    @property
    def intercept_hidden_(self) -> np.ndarray:
        """A copy of the biases of the hidden units, (hidden,)."""
        return self.machine_.bias.detach().numpy()[self.machine_.num_left :].copy()

    @property
    def intercept_visible_(self) -> np.ndarray:
        """A copy of the biases of the features, (feature,)."""
        return self.machine_.bias.detach().numpy()[: self.machine_.num_left].copy()

    @property
    def _prior(self) -> RBM:
        return self.machine_

    def _rows_of_states(self, z: Tensor, seed: int) -> np.ndarray:
        return z[:, : self.machine_.num_left].double().numpy()

    @property
    def _n_features_out(self) -> int:
        return self.machine_.num_right

    def _blocks(self, X: Any) -> Iterator[Tensor]:  # noqa: N803
        for rows in dense_blocks(self._validated(X, reset=False)):
            yield torch.from_numpy(self._bits(rows))

    def _bits(self, rows: np.ndarray) -> np.ndarray:
        """Checked values as float64, in [0, 1]."""
        values = np.array(rows, np.float64)
        if self.binarize is not None:
            return (values > check_number("binarize", self.binarize, whole=False)).astype(np.float64)
        repair = "Give binarize a threshold, or scale the values."
        check_unit_interval("X", torch.from_numpy(values), repair=repair)
        return values


def fit_rbm(rows: Tensor, settings: SimpleNamespace) -> tuple[RBM, Tensor]:
    """Maximize the log-likelihood of rows, (row, feature) float32, by persistent chains.

    It starts at the frequencies of the bits. Values between 0 and 1 are probabilities of bits, drawn anew in each step.
    Returns the machine in float64, its left side the features, and the last states of its chains, (chain, unit).
    """
    seed, num_features = settings.seed, rows.shape[1]
    check_memory("num_hidden", _PER_WEIGHT * num_features * settings.num_hidden, "Use fewer hidden units.")
    with torch.device("cpu"):
        rbm = RBM(num_features, settings.num_hidden)
    mean = rows.mean(0)
    if settings.weights is not None:
        mean = torch.from_numpy(np.average(rows.numpy(), 0, settings.weights)).float()
    frequency = mean.clamp(_LEAST_FREQUENCY, 1 - _LEAST_FREQUENCY)
    with torch.no_grad():
        rbm.bias[:num_features] = torch.logit(frequency)
        rbm.weight.normal_(0, _FIRST_SCALE, generator=keyed_generator(seed, _INIT_STREAM))
    batch_size = min(settings.batch_size, len(rows))
    per_epoch = len(rows) // batch_size
    num_steps = settings.num_epochs * per_epoch
    orders = (epoch_order(len(rows), seed, epoch, settings.weights) for epoch in range(settings.num_epochs))
    batches = (batch for order in orders for batch in torch.from_numpy(order).split(batch_size)[:per_epoch])
    chains = BlockGibbs(rbm, settings.num_chains, seed=seed)
    optimizer = torch.optim.Adam(rbm.parameters(), lr=settings.learning_rate)
    draws = not bool(((rows == 0) | (rows == 1)).all())
    progress = TrainingProgress(0, num_steps, None if settings.verbose else Console(quiet=True))
    with yielding_threads(), torch.enable_grad(), progress as shown:
        for step, batch in enumerate(batches):
            x = rows[batch]
            if draws:
                x = binarize(x, generator=keyed_generator(seed, _BITS_STREAM, step))
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * (1 - step / num_steps)
            z = chains.step(settings.num_sweeps)
            # the gradient of log Z is that of the mean free energy of its own states, with the sign turned
            loss = rbm.free_energy(x).mean() - rbm.free_energy(z).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            shown.advance(step + 1)
            if (step + 1) % max(1, num_steps // _SHOWN) == 0:
                error = (x.mean(0) - z[:, :num_features].mean(0)).abs().mean()
                shown.show(step + 1, None, {"mean error of frequencies": error.item()})
    return rbm.double(), chains.z
