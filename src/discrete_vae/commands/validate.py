"""dvae validate: everything but training."""

from __future__ import annotations

import math
import sys
import textwrap
import time
from itertools import groupby
from typing import TYPE_CHECKING

from discrete_vae.commands.layout import hanging, width
from discrete_vae.commands.options import device_option
from discrete_vae.commands.request import EPILOG, EXPLAINED, Request, takes_experiment
from discrete_vae.commands.verbs import verb
from discrete_vae.durations import in_words

if TYPE_CHECKING:
    import torch

    from discrete_vae.config import ExperimentConfig
    from discrete_vae.data.batches import TrainingBatches
    from discrete_vae.model import DiscreteVAE
    from discrete_vae.training.state import TrainingState

_TIMED_STEPS = 3


@verb("validate", EXPLAINED, takes_settings=True, epilog=EPILOG)
@takes_experiment
@device_option
def run_validate(request: Request, device: str) -> int:
    """Print the resolved experiment, its shapes, parameter counts, memory and pace; returns the exit status."""
    from discrete_vae.commands.device import choose_device, say_device
    from discrete_vae.commands.threads import training_threads
    from discrete_vae.data.batches import TrainingBatches
    from discrete_vae.data.chosen import chosen_examples
    from discrete_vae.training.state import TrainingState, check_experiment

    config, load = request.resolve()
    where, dataset = choose_device(device), load()
    num_steps = check_experiment(config, dataset)
    chosen = chosen_examples(dataset, config.training)
    batches = TrainingBatches(chosen, config.training.batch_size, seed=config.seed, device=where)
    state = TrainingState.initial(config, chosen.train, device=where)
    print(f"Experiment {config.name}, size {config.size}, seed {config.seed}")
    parts = (dataset.train, dataset.valid, dataset.test)
    sizes = " / ".join(str(len(part)) for part in parts)
    _print(
        "Data",
        f"{dataset.name}: {sizes} examples (train / valid / test) of {dataset.num_features} features",
    )
    _print("", f"{dataset.description.version}; {dataset.description.values}")
    if len(chosen.train) < len(dataset.train) or len(chosen.valid) < len(dataset.valid):
        _print("", f"of which training sees {len(chosen.train)} and validation {len(chosen.valid)}")
    _print(
        "Training",
        f"{_counted(num_steps, 'step')} in {_counted(config.training.num_epochs, 'epoch')}, batches of "
        f"{config.training.batch_size}, {_counted(state.chains.num_chains, 'chain')}",
    )
    hierarchy = state.model.hierarchy
    _print(
        "Latents",
        f"{state.model.prior.num_units} binary units in {_counted(state.model.posterior.num_groups, 'group')}; "
        f"{_counted(hierarchy.num_layers, 'continuous layer')} of {hierarchy.num_units} units; the decoder reads "
        f"{hierarchy.decoder_size} values",
    )
    _print_parameters(state.model)
    with training_threads(config, {}):
        say_device(where)
        seconds = _seconds_per_step(state, config, batches)
    total = sum(parameter.numel() for parameter in state.model.parameters())
    # weights, gradient and Adam's two moments in float32
    data = sum(part.numel() * part.element_size() for part in parts)
    print()
    _print(
        "Memory",
        f"{16 * total / 2**20:,.0f} MiB for weights, gradients and Adam; {data / 2**20:,.0f} MiB of data"
        f"{_peak(where)}",
    )
    epoch = seconds * batches.steps_per_epoch
    _print(
        "Time",
        f"{1000 * seconds:,.0f} ms per step, {in_words(epoch)} per epoch, "
        f"{in_words(epoch * config.training.num_epochs)} in all without validation (best of {_TIMED_STEPS} steps here)",
    )
    print("The experiment can be trained; nothing was written.")
    return 0


def _print(name: str, text: str) -> None:
    print(hanging(text, f"{name:10} "))


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def _print_parameters(model: DiscreteVAE) -> None:
    """A line per network, by part; names leave out their part's."""
    from discrete_vae.commands.parameter_table import parameter_rows

    print("\nParameters")
    rows = parameter_rows(model)
    names = {row: row.name.removeprefix(f"{row.part}.") for row in rows}
    longest = max(map(len, names.values()))
    room = min(max(len(row.shape) for row in rows), max(20, width() - longest - 20))
    for part, members in groupby(rows, key=lambda row: row.part):
        of_part = list(members)
        print(f"  {part:{longest + room + 4}} {sum(row.count for row in of_part):>13,}")
        for row in of_part:
            first, *others = textwrap.wrap(row.shape, room)
            print(f"    {names[row]:{longest}}  {first:{room}} {row.count:>13,}")
            for line in others:
                print(" " * (longest + 8) + line)
    print(f"  {'total':{longest + room + 4}} {sum(row.count for row in rows):>13,}")


def _seconds_per_step(state: TrainingState, config: ExperimentConfig, batches: TrainingBatches) -> float:
    """Shortest time of a few real steps; the state is of no use afterwards."""
    import torch

    from discrete_vae.training.loop import training_step

    best = math.inf
    for step in range(_TIMED_STEPS):
        start = time.perf_counter()
        x = batches.batch(step)
        training_step(state, config, x, 0.0, 0.0)
        if x.is_cuda:
            torch.cuda.synchronize(x.device)
        best = min(best, time.perf_counter() - start)
        state.step += 1
    return best


def _peak(device: torch.device) -> str:
    """What the steps took at most, where the system tells."""
    import torch

    if device.type == "cuda":
        return f"; peak on {device} {torch.cuda.max_memory_allocated(device) / 2**20:,.0f} MiB"
    try:
        import resource
    except ImportError:  # Windows
        return ""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (20 if sys.platform == "darwin" else 10)
    return f"; peak of this process, with its libraries, after {_TIMED_STEPS} steps {peak:,.0f} MiB"
