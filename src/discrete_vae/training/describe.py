"""Sizes, parameters, memory and the time of a step of an experiment, without training it."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from discrete_vae.config import ExperimentConfig
from discrete_vae.data.batches import TrainingBatches
from discrete_vae.data.splits import PARTS, DataSplits, training_subset
from discrete_vae.nets.mlp import MLP, ConcatLinear
from discrete_vae.system import check_device
from discrete_vae.training.loop import training_step
from discrete_vae.training.preflight import check_experiment
from discrete_vae.training.state import TrainingState

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ParameterRow:
    """A network, or a tensor that belongs to none."""

    part: str  # the part of the model: prior, posterior, hierarchy.prior, hierarchy.posterior, likelihood
    name: str  # its dotted name
    shape: str  # widths from input to output, or the tensor's shape
    count: int  # its parameters


def parameter_rows(model: nn.Module) -> list[ParameterRow]:
    """The rows of a model; each parameter is counted in exactly one of them."""
    networks = {name: module for name, module in model.named_modules() if isinstance(module, MLP)}
    rows: dict[str, ParameterRow] = {}
    for name, parameter in model.named_parameters():
        owner = next((network for network in networks if name.startswith(f"{network}.")), name)
        if owner in rows:
            continue
        if (network := networks.get(owner)) is not None:
            widths = [layer.out_features for layer in network.modules() if isinstance(layer, ConcatLinear)]
            shape = " -> ".join([" + ".join(map(str, network.input_sizes)), *map(str, widths)])
            count = sum(each.numel() for each in network.parameters())
        else:
            shape, count = " x ".join(map(str, parameter.shape)) or "scalar", parameter.numel()
        first, second = name.split(".")[:2]
        part = f"{first}.{second}" if first == "hierarchy" else first
        rows[owner] = ParameterRow(part, owner, shape, count)
    return list(rows.values())


TIMED_STEPS = 3
_WITH_ADAM = 16  # bytes per parameter: weight, gradient and two moments in float32


@dataclass(frozen=True)
class ExperimentDescription:
    """Sizes, parameters, memory and pace of an experiment."""

    num_examples: tuple[int, int]  # examples that training and validation see
    num_steps: int  # steps of the whole run
    steps_per_epoch: int  # steps of an epoch
    num_chains: int
    num_units: int
    num_groups: int
    num_layers: int  # continuous layers
    units_per_layer: int
    decoder_size: int  # values that the decoder reads
    parameters: tuple[ParameterRow, ...]  # the model's networks and tensors
    weight_bytes: int  # memory of weights, gradients and Adam
    data_bytes: int  # memory of the data
    peak_bytes: int | None  # most that the process, or the CUDA device, has taken; None where it is not told
    seconds_per_step: float  # the shortest time of a few real steps


def describe_experiment(
    config: ExperimentConfig, dataset: DataSplits, *, device: torch.device | str = "cpu"
) -> ExperimentDescription:
    """Build the model of an experiment and take a few steps; nothing is written."""
    where, num_steps = check_device(device), check_experiment(config, dataset)
    chosen = training_subset(dataset, config.training)
    batches = TrainingBatches(chosen, config.training.batch_size, seed=config.seed, device=where)
    state = TrainingState.initial(config, chosen.train, device=where)
    model, parts = state.model, [getattr(dataset, part) for part in PARTS]
    seconds = math.inf
    for step in range(TIMED_STEPS):
        start = time.perf_counter()
        training_step(state, config, batches.batch(step), 0.0, 0.0)
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        seconds = min(seconds, time.perf_counter() - start)
        state.step += 1
    return ExperimentDescription(
        num_examples=(len(chosen.train), len(chosen.valid)),
        num_steps=num_steps,
        steps_per_epoch=batches.steps_per_epoch,
        num_chains=state.chains.num_chains,
        num_units=model.prior.num_units,
        num_groups=model.posterior.num_groups,
        num_layers=model.hierarchy.num_layers,
        units_per_layer=model.hierarchy.num_units,
        decoder_size=model.hierarchy.decoder_size,
        parameters=tuple(parameter_rows(model)),
        weight_bytes=_WITH_ADAM * sum(parameter.numel() for parameter in model.parameters()),
        data_bytes=sum(part.numel() * part.element_size() for part in parts),
        peak_bytes=_peak_bytes(where),
        seconds_per_step=seconds,
    )


def _peak_bytes(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
