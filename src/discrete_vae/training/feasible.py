"""Whether this machine can do what an experiment asks for, found before anything large is made."""

from __future__ import annotations

from discrete_vae.boltzmann.factorial import FactorialBernoulli
from discrete_vae.config import (
    ExperimentConfig,
    ParallelTemperingConfig,
    SamplerConfig,
    TrajectoryTemperingConfig,
    instantiate,
)
from discrete_vae.data.dataset import DataSplits
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import check_memory
from discrete_vae.model import check_model_memory
from discrete_vae.samplers.ladder import start_ladder
from discrete_vae.samplers.protocol import UsesSolver
from discrete_vae.samplers.rungs import SETS

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
