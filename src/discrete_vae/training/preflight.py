"""Whether an experiment can be run here: threads, memory, data."""

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
    SamplerConfig,
    TrajectoryTemperingConfig,
    instantiate,
)
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.rows import check_readable
from discrete_vae.data.splits import DataSplits, chosen_examples
from discrete_vae.errors import InvalidInputError
from discrete_vae.model import check_model_memory, count_weights
from discrete_vae.samplers.gibbs import UsesSolver
from discrete_vae.samplers.tempering import start_ladder
from discrete_vae.samplers.trajectory import SETS
from discrete_vae.system import check_memory
from discrete_vae.training.data_parallel import check_divisible

# The number of threads of a training run on the CPU.


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


# Whether this machine can do what an experiment asks for, found before anything large is made.


# Least bytes. A parameter has its value, its gradient and two moments of Adam, and may have its average.
_PER_PARAMETER, _PER_AVERAGE = 16, 4
_PER_SPIN = 16  # while chains are made


def check_feasible(config: ExperimentConfig, dataset: DataSplits) -> None:
    """Check that model and chains can be built, fit the memory and suit the data.

    Networks are counted without being made, on torch's meta device.

    Args:
        config: The experiment.
        dataset: Its data.

    Raises:
        InvalidInputError: If a component refuses its settings, the parts do not fit each other, the evaluation asks for
            more examples than there are, something needs more memory than there is, or a solver that the chains use
            cannot be asked about the prior.
    """
    num_examples = config.evaluation.num_examples
    if num_examples is not None and num_examples > len(dataset.test):
        rule = f"must be at most the {len(dataset.test)} test examples"
        raise InvalidInputError(
            "evaluation.num_examples", rule, num_examples, "Leave it out for all of them."
        )
    # two chains of one unit: what the chains' settings have to obey does not depend on their number
    sampler = instantiate(
        config.training.sampler.model_copy(update={"num_chains": 2}),
        energy=FactorialBernoulli(1),
        seed=config.seed,
    )
    check_model_memory(
        config.model,
        _PER_PARAMETER + (_PER_AVERAGE if config.training.averaging.decay > 0 else 0),
        "for weights, gradients and Adam",
        gradient=config.training.gradient,
    )
    check_chains_memory(config)
    if isinstance(sampler, UsesSolver):
        prior = instantiate(config.model.prior)
        instantiate(config.training.sampler, energy=prior, seed=config.seed).connect()


def check_chains_memory(config: ExperimentConfig) -> None:
    """Check that the chains of training and of evaluation fit the memory.

    Raises:
        InvalidInputError: If they do not; names the larger of what asks for it.
    """
    units, sampler = config.model.prior.num_units, config.training.sampler
    fewer = "Use fewer {}, or fewer units of the prior."
    for argument, needed, repair in (
        (
            "training.sampler.num_chains",
            _PER_SPIN * units * _states_per_chain(sampler) * sampler.num_chains,
            fewer.format("chains"),
        ),
        (
            "evaluation.num_annealed_chains",
            _PER_SPIN * units * config.evaluation.num_annealed_chains,
            fewer.format("chains"),
        ),
    ):
        check_memory(argument, needed, repair)


def _states_per_chain(sampler: SamplerConfig) -> int:
    if isinstance(sampler, ParallelTemperingConfig):
        return len(sampler.inverse_temperatures or start_ladder())
    return 1 + SETS if isinstance(sampler, TrajectoryTemperingConfig) else 1


# Whether an experiment can be run on its data, here and now.


def check_experiment(config: ExperimentConfig, dataset: DataSplits) -> int:
    """Check that an experiment can be run on its data; returns the number of steps of the whole run.

    Raises:
        InvalidInputError: If the model's parts do not fit each other, the data or the memory, a batch is too large,
            or torch records no gradients here.
    """
    check_gradients_are_recorded("train")
    if dataset.num_features != config.model.num_values:
        rule = f"must have the data's {dataset.num_features} values"
        repair = "Leave it out, or use the data that the model was made for."
        name = "model.num_features" if config.model.event_shape is None else "model.event_shape"
        raise InvalidInputError(name, rule, config.model.num_values, repair)
    check_readable(config.model, dataset)
    check_feasible(config, dataset)
    check_divisible(config)
    chosen = chosen_examples(dataset, config.training)
    batches = TrainingBatches(chosen, config.training.batch_size, seed=config.seed)
    return config.training.num_epochs * batches.steps_per_epoch
