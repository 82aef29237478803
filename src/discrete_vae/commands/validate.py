"""dvae validate: everything but training."""

from __future__ import annotations

import math
import resource
import sys
import time
from argparse import Namespace
from itertools import groupby
from typing import TYPE_CHECKING

from discrete_vae.commands.overrides import Override
from discrete_vae.commands.parameter_table import parameter_rows
from discrete_vae.commands.train import resolve_config
from discrete_vae.config import instantiate

if TYPE_CHECKING:
    from discrete_vae.config import ExperimentConfig
    from discrete_vae.data.batches import TrainingBatches
    from discrete_vae.training.state import TrainingState

_TIMED_STEPS = 3


def run_validate(arguments: Namespace, overrides: list[Override]) -> int:
    """Print the resolved experiment, its shapes, parameter counts, memory and pace; returns the exit status."""
    config = resolve_config(arguments, overrides)
    if arguments.settings:
        from discrete_vae.commands.listing import print_settings

        print_settings(config)
        return 0
    from discrete_vae.data.batches import TrainingBatches
    from discrete_vae.training.state import TrainingState, check_experiment

    dataset = instantiate(config.data, data_dir=arguments.data_dir)
    num_steps = check_experiment(config, dataset)
    batches = TrainingBatches(dataset, config.training.batch_size, seed=config.seed)
    state = TrainingState.initial(config, dataset.train.mean(0))
    print(f"Experiment {config.name}, size {config.size}, seed {config.seed}")
    parts = (dataset.train, dataset.valid, dataset.test)
    sizes = " / ".join(str(len(part)) for part in parts)
    print(
        f"Data       {dataset.name}: {sizes} examples (train / valid / test) of {dataset.num_features} features"
    )
    print(f"           {dataset.description.version}; {dataset.description.binarisation}")
    print(
        f"Training   {num_steps} steps in {config.training.num_epochs} epochs, batches of "
        f"{config.training.batch_size}, {state.chains.num_chains} chains"
    )
    hierarchy = state.model.hierarchy
    print(
        f"Latents    {state.model.prior.num_units} binary units in {len(state.model.posterior.groups)} groups; "
        f"{hierarchy.num_layers} continuous layers of {hierarchy.num_units} units; the decoder reads "
        f"{hierarchy.decoder_size} values"
    )
    print("\nParameters")
    rows = parameter_rows(state.model)
    names, shapes = max(len(row.name) for row in rows), max(len(row.shape) for row in rows)
    for part, members in groupby(rows, key=lambda row: row.part):
        of_part = list(members)
        print(f"  {part:{names + shapes + 4}} {sum(row.count for row in of_part):>13,}")
        for row in of_part:
            print(f"    {row.name:{names}}  {row.shape:{shapes}} {row.count:>13,}")
    total = sum(row.count for row in rows)
    print(f"  {'total':{names + shapes + 4}} {total:>13,}")
    seconds = _seconds_a_step(state, config, batches)
    # weights, gradient and Adam's two moments in float32
    data = sum(part.numel() * part.element_size() for part in parts)
    print(
        f"\nMemory     {16 * total / 2**20:,.0f} MiB for weights, gradients and Adam; {data / 2**20:,.0f} MiB of data; "
        f"peak of this process after {_TIMED_STEPS} steps {_peak_mebibytes():,.0f} MiB"
    )
    epoch = seconds * batches.steps_per_epoch
    print(
        f"Time       {1000 * seconds:,.0f} ms a step, {_duration(epoch)} an epoch, "
        f"{_duration(epoch * config.training.num_epochs)} in all without validation (best of {_TIMED_STEPS} steps here)"
    )
    print("Nothing is wrong, and nothing was written.")
    return 0


def _seconds_a_step(state: TrainingState, config: ExperimentConfig, batches: TrainingBatches) -> float:
    """Shortest time of a few real steps; the state is of no use afterwards."""
    from discrete_vae.training.loop import training_step

    best = math.inf
    for step in range(_TIMED_STEPS):
        start = time.perf_counter()
        training_step(state, config, batches.batch(step), 0.0, 0.0)
        best = min(best, time.perf_counter() - start)
        state.step += 1
    return best


def _peak_mebibytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
