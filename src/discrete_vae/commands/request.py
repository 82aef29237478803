"""The experiment that dvae train and dvae validate are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discrete_vae.commands.options import data_dir_option, option, seed, size, together
from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    from discrete_vae.config import ExperimentConfig
    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.experiments import Size
    from discrete_vae.experiments.overrides import Override

EXPLAINED = "EXPERIMENT is a name that dvae list shows."
EPILOG = (
    "Settings: every value of the experiment has an option with its dotted name. --training.num-epochs 50 sets "
    "a value, --model.smoothing spike-slab swaps a component and leaves the rest as it is, "
    "--model.posterior.hidden 200 200 gives a list. --settings shows them all."
)
TYPED = {"path": "--data", "FileDataConfig.path": "--data"}


@dataclass(frozen=True)
class Request:
    """What the command line says of the experiment.

    Attributes:
        verb: The verb, for messages.
        experiment: Its name, if one was given.
        data: The user's own file, if one was given.
        size: "smoke", "short", "cpu" or "paper", if one was given.
        seed: The seed, if one was given.
        data_dir: The folder of the data sets, if one was given.
        overrides: Pairs of a setting's path and its values.
    """

    verb: str
    experiment: str | None
    data: str | None
    size: Size | None
    seed: int | None
    data_dir: str | None
    overrides: list[Override]

    def resolve(self) -> tuple[ExperimentConfig, Callable[[], DataSplits]]:
        """The config, and what gives its data; a file of the user's is read once.

        Raises:
            InvalidInputError: If there is neither an experiment nor a file, or a value breaks its rule.
        """
        from discrete_vae.config import FileDataConfig
        from discrete_vae.experiments import load_experiment
        from discrete_vae.experiments.overrides import apply_overrides
        from discrete_vae.experiments.own_data import own_data

        if (self.experiment is None) == (self.data is None):
            received = "neither" if self.data is None else "both"
            repair = f"For example: dvae {self.verb} digits, or dvae {self.verb} --data FILE.npy."
            raise InvalidInputError("EXPERIMENT", "or --data FILE must be given", received, repair)
        of_size = self.size or "short"
        given: list[Override] = [] if self.seed is None else [("seed", [str(self.seed)])]
        given += self.overrides
        if self.experiment is not None:
            config = apply_overrides(load_experiment(self.experiment, of_size), given)
            return config, lambda: self.load(config)
        assert self.data is not None
        from discrete_vae.data.binarized import binarized  # these two need torch
        from discrete_vae.experiments.own_experiment import own_experiment_of, warn_of_index

        # how the file is split comes before the sizes that the experiment has from it
        path = FileDataConfig(path=Path(self.data)).path
        unsized = own_data(path, event_shape=(1,), num_train=2, num_valid=1, num_test=1, size=of_size)
        split = apply_overrides(unsized, [entry for entry in given if entry[0].startswith("data.")])
        dataset = self.load(split)
        warn_of_index(dataset)
        kinds = [values[0] for name, values in given if name == "model.likelihood" and len(values) == 1]
        sized = own_experiment_of(dataset, path, likelihood=kinds[-1] if kinds else "bernoulli", size=of_size)
        config = apply_overrides(sized, given)

        def data() -> DataSplits:
            if config.data == split.data:
                return dataset
            # what is a probability of a bit only the values have told, and they are there
            assert isinstance(split.data, FileDataConfig)
            if config.data == split.data.model_copy(update={"binarize": True}):
                return binarized(dataset, seed=split.data.binarization_seed)
            return self.load(config)

        return config, data

    def load(self, config: ExperimentConfig) -> DataSplits:
        """The data of a config.

        Raises:
            InvalidInputError: If they cannot be loaded.
        """
        from discrete_vae.config import instantiate

        return instantiate(config.data, data_dir=self.data_dir)


_OPTIONS = together(
    click.argument("experiment", required=False, metavar="EXPERIMENT | --data FILE"),
    option(
        "--data FILE",
        "your own array or table instead: a .npy, .npz, .csv or .parquet file; --model.likelihood says what its values "
        "are",
    ),
    option(
        "--size smoke|short|cpu|paper",
        "smoke: under a minute; short (default): minutes to an hour on two cores; cpu: an hour or two; paper: as "
        "published",
        size,
    ),
    option("--seed S", "seed of the initial weights and of all noise; default: 0", seed),
    option("--settings", "show every setting with its value and its meaning, and exit"),
    data_dir_option,
)


def takes_experiment(function: Callable[..., int]) -> Callable[..., int]:
    """Give a verb the options that name an experiment, as its first argument `request`; --settings is done here."""

    @wraps(function)
    def run(settings: bool, **given: Any) -> int:
        names = Request.__dataclass_fields__.keys() - {"verb"}
        verb = click.get_current_context().info_name or ""
        request = Request(verb, **{name: given.pop(name) for name in names})
        if settings:
            from discrete_vae.commands.listing import print_settings

            print_settings(request.resolve()[0])
            return 0
        return function(request, **given)

    return _OPTIONS(run)
