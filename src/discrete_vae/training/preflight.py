"""Threads of a training run, and the checks of an experiment before anything large is made."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from discrete_vae.boltzmann.base import FactorialBernoulli
from discrete_vae.checks import check_gradients_are_recorded
from discrete_vae.config import (
    ExperimentConfig,
    ParallelTemperingConfig,
    TrajectoryTemperingConfig,
    instantiate,
)
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.splits import DataSplits, check_compatible, training_subset
from discrete_vae.errors import InvalidInputError
from discrete_vae.model import check_model_memory, count_weights
from discrete_vae.samplers.gibbs import UsesSolver
from discrete_vae.samplers.tempering import start_ladder
from discrete_vae.samplers.trajectory import SETS
from discrete_vae.system import check_memory
from discrete_vae.training.data_parallel import check_divisible

SMALLEST_SHARED = 20_000_000
"""Weights times examples of a batch from which a training step is divided among threads.

Below it, the operations of a step are so short that waking a second thread takes what it gains.
"""


@contextmanager
def training_threads(config: ExperimentConfig, environment: dict[str, Any]) -> Iterator[None]:
    """Within the block, torch has the number of threads of the run; afterwards the number that it had.

    A small model trains on one thread. A resumed run goes on with the number that it began with, since sums round
    differently for another one. ``OMP_NUM_THREADS`` is the user's word and goes before both.

    Args:
        config: The experiment.
        environment: The resumed run's ``environment.json``; empty for a new run.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(_choose(config, environment.get("platform", {}).get("torch_threads"), before))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _choose(config: ExperimentConfig, begun: int | None, own: int) -> int:
    if "OMP_NUM_THREADS" in os.environ:
        chosen = own
    elif begun is not None:
        chosen = min(begun, own)
    else:
        chosen = 1 if own > 1 and _is_small(config) else own
    if begun is not None and begun != chosen:
        print(
            f"The run began with {_count(begun)} and goes on with {chosen}: the same up to rounding, not bit for bit.",
            file=sys.stderr,
        )
    return chosen


def _is_small(config: ExperimentConfig) -> bool:
    return count_weights(config.model) * config.training.batch_size < SMALLEST_SHARED


def _count(threads: int) -> str:
    return f"{threads} thread{'s' * (threads != 1)}"


# Least bytes. A parameter has its value, its gradient and two moments of Adam, and may have its average.
_PER_PARAMETER, _PER_AVERAGE = 16, 4
_PER_SPIN = 16  # while chains are made


def check_experiment(config: ExperimentConfig, dataset: DataSplits) -> int:
    """Check that an experiment can be run on its data, before anything large is made.

    Networks are counted without being made, on torch's meta device.

    Returns:
        Steps of the whole run.
    """
    check_gradients_are_recorded("train")
    if dataset.num_features != config.model.num_values:
        rule = f"must have the data's {dataset.num_features} values"
        repair = "Leave it out, or use the data that the model was made for."
        name = "model.num_features" if config.model.event_shape is None else "model.event_shape"
        raise InvalidInputError(name, rule, config.model.num_values, repair)
    check_compatible(config.model, dataset)
    num_examples = config.evaluation.num_examples
    if num_examples is not None and num_examples > len(dataset.test):
        rule, repair = (
            f"must be at most the {len(dataset.test)} test examples",
            "Leave it out for all of them.",
        )
        raise InvalidInputError("evaluation.num_examples", rule, num_examples, repair)
    # two chains of one unit: what the chains' settings have to obey does not depend on their number
    few = config.training.sampler.model_copy(update={"num_chains": 2})
    sampler = instantiate(few, energy=FactorialBernoulli(1), seed=config.seed)
    check_model_memory(
        config.model,
        _PER_PARAMETER + (_PER_AVERAGE if config.training.averaging.decay > 0 else 0),
        "for weights, gradients and Adam",
        gradient=config.training.gradient,
    )
    _check_chains_memory(config)
    if isinstance(sampler, UsesSolver):
        prior = instantiate(config.model.prior)
        instantiate(config.training.sampler, energy=prior, seed=config.seed).connect()
    check_divisible(config)
    chosen = training_subset(dataset, config.training)
    batches = TrainingBatches(chosen, config.training.batch_size, seed=config.seed)
    return config.training.num_epochs * batches.steps_per_epoch


def _check_chains_memory(config: ExperimentConfig) -> None:
    units, sampler = config.model.prior.num_units, config.training.sampler
    states = 1
    if isinstance(sampler, ParallelTemperingConfig):
        states = len(sampler.inverse_temperatures or start_ladder())
    elif isinstance(sampler, TrajectoryTemperingConfig):
        states = 1 + SETS
    for argument, count in (
        ("training.sampler.num_chains", states * sampler.num_chains),
        ("evaluation.num_annealed_chains", config.evaluation.num_annealed_chains),
    ):
        check_memory(argument, _PER_SPIN * units * count, "Use fewer chains, or fewer units of the prior.")
