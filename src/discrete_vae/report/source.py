"""What the sections of a report are made of: a run, its data, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.data.chosen import chosen_test_examples
from discrete_vae.data.fixed_draws import fixed_permutation
from discrete_vae.data.label_file import labels_of_part, read_label_file
from discrete_vae.evaluation.latent_usage import LatentUsage, latent_usage
from discrete_vae.evaluation.prior_modes import PriorModes, find_prior_modes
from discrete_vae.figures.request import FigureRun
from discrete_vae.noise import keyed_generator
from discrete_vae.runs.kept_results import KeptResults
from discrete_vae.runs.results import is_of, kept_evaluations, kept_log_partitions

if TYPE_CHECKING:
    from discrete_vae.config import ExperimentConfig
    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.draws import Encoding
    from discrete_vae.model import DiscreteVAE
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.load import LoadedRun

_BITS, _CODES, _CHOSEN = 0x72657062, 0x72657063, 0x72657074
_SETTLING = 100  # sweeps of the chains of training before anything is made of them


class ReportSource:
    """A run with its data; everything is loaded and computed once, when a section wants it.

    Args:
        directory: The run.
        load: Gives the model.
        data_dir: The folder of the data sets, if one was given.
        labels: A label per training example, or per row of a file that was cut into parts, or a file of them; None
            takes those of the data set, if it has some.
        num_examples: Training examples whose codes are looked at, at most; and test examples.
        seed: Seed of all noise.
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
        self.directory, self.seed, self.num_examples = directory, seed, num_examples
        self._run = FigureRun(directory, load, data_dir=data_dir)
        self._labels = labels

    @property
    def loaded(self) -> LoadedRun:
        """The model with its chains."""
        return self._run.loaded

    @property
    def model(self) -> DiscreteVAE:
        """The model."""
        return self._run.loaded.model

    @property
    def config(self) -> ExperimentConfig:
        """The experiment."""
        return self._run.loaded.config

    @property
    def dataset(self) -> DataSplits:
        """The data of the run's config."""
        return self._run.dataset

    @property
    def title(self) -> str:
        """What was trained."""
        return self._run.title

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """(height, width) of an example; None for a table."""
        return self.dataset.image_shape

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        given = self.dataset.description.columns
        return given or tuple(f"feature {index}" for index in range(self.dataset.num_features))

    @cached_property
    def environment(self) -> dict[str, Any]:
        """What the run ran on."""
        return self.directory.read_environment()

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The log of training."""
        return self.directory.metrics().read()

    @cached_property
    def evaluation(self) -> dict[str, Any] | None:
        """The fullest evaluation of the run, if it is of this checkpoint."""
        return self._kept(kept_evaluations(self.directory))

    @cached_property
    def log_partitions(self) -> dict[str, Any] | None:
        """The fullest repeats of log Z, if they are of this checkpoint."""
        return self._kept(kept_log_partitions(self.directory))

    @cached_property
    def indices(self) -> np.ndarray:
        """Which training examples are looked at, (example,) int64."""
        count = len(self.dataset.train)
        return np.sort(fixed_permutation(count, 0, _CHOSEN)[: min(count, self.num_examples)])

    @cached_property
    def train(self) -> Tensor:
        """Training examples as the model meets them, bits where the data set has probabilities, (example, feature)."""
        rows = self.dataset.train[torch.from_numpy(self.indices)]
        if self.dataset.dynamic:
            rows = torch.bernoulli(rows, generator=keyed_generator(self.seed, _BITS))
        return rows.to(self.device)

    @cached_property
    def test(self) -> Tensor:
        """Test examples, (example, feature)."""
        count = len(self.dataset.test)
        chosen = chosen_test_examples(count, min(count, self.num_examples))
        return self.dataset.test[torch.from_numpy(chosen)].to(self.device)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.model.prior.bias.device

    @cached_property
    def labels(self) -> np.ndarray | None:
        """The labels of `train`, (example,)."""
        given = self._labels
        if given is None:
            known = self.dataset.labels.get("train")
            return known[self.indices] if known is not None and known.ndim == 1 else None
        found = read_label_file(given) if isinstance(given, str | Path) else np.asarray(given)
        return labels_of_part(found, self.dataset, self.config.data)[self.indices]

    @cached_property
    def codes(self) -> Encoding:
        """Codes of `train`, one draw of the posterior each."""
        return self.model.encode(self.train, generator=keyed_generator(self.seed, _CODES, device=self.device))

    @cached_property
    def usage(self) -> LatentUsage:
        """How much each latent is used over `train`."""
        return latent_usage(self.model, self.train, seed=self.seed)

    @cached_property
    def chain_states(self) -> Tensor:
        """States of the chains of training after some sweeps, (chain, unit)."""
        return self.loaded.chains.step(_SETTLING)

    @cached_property
    def modes(self) -> PriorModes:
        """The modes of the prior."""
        return find_prior_modes(self.model.prior, self.chain_states, seed=self.seed)

    def _kept(self, results: KeptResults) -> dict[str, Any] | None:
        fields = results.fullest()
        return fields if fields is not None and is_of(fields, self.loaded.step, self.loaded.sums) else None
