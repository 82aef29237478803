"""Whether this machine can do what an experiment asks for, found before anything large is made."""

from __future__ import annotations

import torch
from torch import Tensor

from discrete_vae.boltzmann.factorial import FactorialBernoulli
from discrete_vae.config import (
    ExperimentConfig,
    GaussianHierarchyConfig,
    GraphBoltzmannConfig,
    ParallelTemperingConfig,
    SamplerConfig,
    TrajectoryTemperingConfig,
    instantiate,
)
from discrete_vae.data.dataset import DataSplits
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import check_memory, is_allocation_failure
from discrete_vae.model import DiscreteVAE
from discrete_vae.posteriors.base import Posterior
from discrete_vae.posteriors.hierarchical import HierarchicalPosterior
from discrete_vae.samplers.ladder import start_ladder
from discrete_vae.samplers.protocol import UsesSolver
from discrete_vae.samplers.rungs import SETS

# Least bytes. A parameter has its value, its gradient and two moments of Adam, and may have its average.
_PER_PARAMETER, _PER_AVERAGE = 16, 4
_PER_SPIN = 16  # while chains are made
_PER_UNIT, _PER_NETWORK = 100, 10_000  # objects of Python
_PER_EDGE = 100  # of a graph, while it is colored
_UNCOUNTABLE = 2**63


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
    check_chains_memory(config)
    check_model_memory(config)
    if isinstance(sampler, UsesSolver):
        prior = instantiate(config.model.prior)
        instantiate(config.training.sampler, energy=prior, seed=config.seed).connect()


def check_chains_memory(config: ExperimentConfig) -> None:
    """Check that the units and the chains of training and of evaluation fit the memory.

    Raises:
        InvalidInputError: If they do not; names the larger of what asks for it.
    """
    units = config.model.prior.num_units
    sampler, hierarchy = config.training.sampler, config.model.hierarchy
    groups = config.model.posterior.groups
    networks = groups if isinstance(groups, int) else 1 if groups == "colors" else len(groups)
    networks += hierarchy.num_layers if isinstance(hierarchy, GaussianHierarchyConfig) else 0
    prior = config.model.prior
    edges = 0
    if isinstance(prior, GraphBoltzmannConfig) and prior.edges == "complete":
        edges = units * (units - 1) // 2
    fewer = "Use fewer {}, or fewer units of the prior."
    for argument, needed, repair in (
        ("model.prior", _PER_UNIT * units + _PER_EDGE * edges, "Use fewer units."),
        ("model", _PER_NETWORK * networks, "Use fewer groups of the posterior, or fewer layers."),
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


def _even_groups(posterior: Posterior) -> Tensor:
    """Groups of units as large as the posterior's on average; those of a model on the meta device have no values."""
    assert isinstance(posterior, HierarchicalPosterior)
    units = posterior.num_units
    return torch.arange(units, device="cpu") * len(posterior.groups) // units


def check_model_memory(config: ExperimentConfig) -> None:
    """Check that the model can be built and that its weights, gradients and Adam's moments fit the memory.

    Raises:
        InvalidInputError: If its parts do not fit each other, or the memory; names the largest part.
    """
    part, needed = "model", _UNCOUNTABLE
    try:
        with torch.device("meta"):
            model = DiscreteVAE.from_config(config.model)
            gradient = instantiate(
                config.training.gradient,
                group_of_unit=_even_groups(model.posterior),
                num_features=model.posterior.num_features,
            )
    except RuntimeError as error:
        if not is_allocation_failure(error):
            raise
    else:
        counts = {
            f"model.{name}": sum(p.numel() for p in child.parameters())
            for name, child in model.named_children()
        }
        counts["training.gradient"] = sum(p.numel() for p in gradient.parameters())
        part = max(counts, key=lambda name: counts[name])
        bytes_each = _PER_PARAMETER + (_PER_AVERAGE if config.training.averaging.decay > 0 else 0)
        needed = bytes_each * sum(counts.values())
    repair = "Make the networks narrower (the settings called hidden), or use fewer units."
    check_memory(part, needed, repair, what="for weights, gradients and Adam")
