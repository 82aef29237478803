"""What sections are made of: the run with its data and what several need, verdicts, numbers as readers want them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.config import ExperimentConfig
from discrete_vae.data.batches import binarize
from discrete_vae.data.rows import labels_of_part, read_label_file
from discrete_vae.data.splits import fixed_permutation, subset_indices, training_subset
from discrete_vae.evaluation.diagnostics import PriorModes, find_prior_modes
from discrete_vae.evaluation.evaluate import MeanElbo
from discrete_vae.evaluation.latents import LatentUsage, latent_usage
from discrete_vae.figures.style import FigureRun
from discrete_vae.model import DiscreteVAE, Encoding
from discrete_vae.rng import keyed_generator
from discrete_vae.runs.io import read_json
from discrete_vae.runs.load import LoadedRun
from discrete_vae.runs.results import ResultStore, evaluation_store, log_partition_store
from discrete_vae.runs.run_directory import RunDirectory

_BITS, _CODES, _CHOSEN = 0x72657062, 0x72657063, 0x72657074
_SETTLING = 100  # sweeps of the chains of training before modes are looked for


class ReportSource(FigureRun):
    """A run with its data; everything is loaded and computed once, when a section wants it.

    The arguments are those of `make_report`.
    """

    def __init__(
        self,
        directory: RunDirectory,
        load: Callable[[], LoadedRun],
        *,
        data_dir: str | None = None,
        labels: np.ndarray | str | Path | None = None,
        num_examples: int = 2000,
        seed: int = 0,
    ) -> None:
        super().__init__(directory, load, data_dir=data_dir)
        self.seed, self.num_examples = seed, num_examples
        self._labels = labels
        self.label_file = str(labels) if isinstance(labels, str | Path) else None

    @property
    def model(self) -> DiscreteVAE:
        return self.loaded.model

    @property
    def config(self) -> ExperimentConfig:
        return self.loaded.config

    @property
    def device(self) -> torch.device:
        return self.model.prior.bias.device

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(height, width) of an example; None for a table."""
        return self.dataset.image_shape

    @property
    def shown_places(self) -> list[int] | None:
        """Places of what is shown of a table among the statistics of its likelihood; None for other data."""
        return None if self._statistics is None else [place for place, *_ in self._statistics]

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of what `shown` gives: of a word of a table its column and the word."""
        if self._statistics is not None:
            return tuple(name for *_, name in self._statistics)
        given = self.dataset.description.columns
        return given or tuple(f"feature {index}" for index in range(self.dataset.num_features))

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self.directory.read_environment()

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return self.directory.metrics().read()

    @cached_property
    def importance_epoch(self) -> float:
        """The epoch from which lines of training hold the bound of importance samples in place of the ELBO."""
        training = self.config.training
        late = training.importance_start if training.num_importance_samples > 1 else math.inf
        return late * training.num_epochs

    def last_line(self, *names: str, until: float = math.inf) -> dict[str, Any] | None:
        """The last line of the log that has entries of these names, up to the checkpoint, and to an epoch."""
        lines = [line for line in self.metrics if {*names} <= line.keys() and line["epoch"] <= until]
        return next((line for line in reversed(lines) if line["step"] <= self.loaded.step), None)

    @cached_property
    def evaluation(self) -> dict[str, Any] | None:
        """The most complete evaluation of this checkpoint."""
        return self._kept(evaluation_store(self.directory))

    @cached_property
    def refit(self) -> MeanElbo | None:
        """The bound on validation examples after `dvae refit`; None for a run whose posterior is that of training."""
        path = self.directory.refit_path
        return MeanElbo(**read_json(path)["after"]) if path.exists() else None

    @cached_property
    def log_partitions(self) -> dict[str, Any] | None:
        """The most complete repeats of log Z of this checkpoint."""
        return self._kept(log_partition_store(self.directory))

    def _kept(self, results: ResultStore) -> dict[str, Any] | None:
        found = results.of_checkpoint(self.loaded.step, self.loaded.sums)
        return None if found is None else found[1]

    @cached_property
    def indices(self) -> np.ndarray:
        """Numbers of the training examples that are looked at, (example,) int64.

        They are shuffled, so that the first are a random choice of data in the order of their classes.
        """
        return fixed_permutation(len(self.dataset.train), 0, _CHOSEN)[: self.num_examples]

    @cached_property
    def train(self) -> Tensor:
        """Training examples as the model meets them, bits where the data set has probabilities, (example, feature)."""
        rows = self.dataset.train[torch.from_numpy(self.indices)]
        if self.dataset.dynamic:
            rows = binarize(rows, missing=True, generator=keyed_generator(self.seed, _BITS))
        return rows.to(self.device)

    @cached_property
    def test_indices(self) -> np.ndarray:
        """Numbers of the test examples that are looked at, (example,) int64, shuffled likewise."""
        count = len(self.dataset.test)
        chosen = subset_indices(count, min(count, self.num_examples))
        return chosen[fixed_permutation(len(chosen), 0, _CHOSEN)]

    @cached_property
    def test(self) -> Tensor:
        """Test examples, (example, feature)."""
        return self.dataset.test[torch.from_numpy(self.test_indices)].to(self.device)

    @cached_property
    def train_condition(self) -> Tensor | None:
        """c of `train`; None for a model without a condition."""
        return self.condition_of("train", self.indices)

    @cached_property
    def train_weights(self) -> np.ndarray:
        """Weights of `train` in shares of it, (example,); 1 where the data have none."""
        given = self.dataset.weights.get("train")
        return np.ones(len(self.indices)) if given is None else given[self.indices]

    @cached_property
    def labels(self) -> np.ndarray | None:
        """The labels of `train`, (example,)."""
        given = self._labels
        if given is None:
            known = self.dataset.labels.get("train")
            return known[self.indices] if known is not None and known.ndim == 1 else None
        found = read_label_file(given) if isinstance(given, str | Path) else np.asarray(given)
        if len(found) != len(self.dataset.train):
            found = labels_of_part(found, self.whole_dataset, self.config.data)
            labeled = replace(self.whole_dataset, labels={"train": found})
            found = training_subset(labeled, self.config.training).labels["train"]
        return found[self.indices]

    @cached_property
    def codes(self) -> Encoding:
        """Codes of `train`, one draw of the posterior each."""
        noise = keyed_generator(self.seed, _CODES, device=self.device)
        return self.model.encode(self.train, condition=self.train_condition, generator=noise)

    @cached_property
    def usage(self) -> LatentUsage:
        """Activity and information of each latent over `train`."""
        of_train = {"condition": self.train_condition, "weights": self.train_weights}
        return latent_usage(self.model, self.train, **of_train, seed=self.seed)

    @cached_property
    def modes(self) -> PriorModes:
        """The modes of the prior, found from the chains of training after some sweeps."""
        states = self.loaded.chains.step(_SETTLING)
        return find_prior_modes(self.model.prior, states, seed=self.seed)


@dataclass(frozen=True)
class Verdict:
    """A section's judgement of the run's health: one sentence, with the number that it rests on."""

    healthy: bool
    text: str


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    key: str  # its name in links, and of the macro of ``sections.html.j2`` that shows it
    title: str  # its heading
    values: dict[str, Any] = field(default_factory=dict)  # what the macro shows
    verdict: Verdict | None = None  # its judgement, if it judges


# Numbers as readers want them.


_MOST_DIGITS = 4


def shown(value: float, digits: int = 2) -> str:
    r"""A number with so many digits behind the point, thousands apart, and a true minus sign.

    Examples:
        >>> ascii(shown(-1234.567)), shown(math.nan), shown(3, 0)
        ("'\\u22121,234.57'", 'unknown', '3')
    """
    if math.isnan(value):
        return "unknown"
    rounded = round(float(value), digits) + 0.0  # where -0.0 becomes 0.0
    return f"{rounded:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def percent(share: float) -> str:
    """A share of a whole, which no line end divides.

    Examples:
        >>> [percent(share).split() for share in (0.0312, 0.4, 1.0)]
        [['3.1', '%'], ['40', '%'], ['100', '%']]
    """
    digits = 1 if 0 < abs(share) < 0.0995 else 0
    return f"{shown(100 * share, digits)}\N{NO-BREAK SPACE}%"


def error_digits(std_error: float | None) -> int:
    """Digits behind the point that an error leaves worth showing: two of its own, at most four.

    Examples:
        >>> error_digits(0.7), error_digits(0.0028), error_digits(0.0), error_digits(None)
        (2, 4, 4, 2)
    """
    if std_error is None or math.isnan(std_error):
        return 2
    digits = 1 - math.floor(math.log10(std_error)) if std_error > 0 else _MOST_DIGITS
    return min(_MOST_DIGITS, max(0, digits))


def plus_minus(value: float, std_error: float | None) -> str:
    """A value with its standard error, if that is known."""
    if std_error is None or math.isnan(std_error):
        return shown(value)
    digits = error_digits(std_error)
    return f"{shown(value, digits)} \N{PLUS-MINUS SIGN} {shown(std_error, digits)}"
