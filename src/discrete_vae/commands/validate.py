"""dvae validate: everything but training."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from discrete_vae.commands.layout import hanging, width
from discrete_vae.commands.options import device_option
from discrete_vae.commands.request import EPILOG, EXPLAINED, TYPED, Request, takes_experiment
from discrete_vae.commands.verbs import verb
from discrete_vae.durations import in_words

if TYPE_CHECKING:
    from discrete_vae.training.parameter_table import ParameterRow


@verb("validate", EXPLAINED, takes_settings=True, epilog=EPILOG, typed=TYPED)
@takes_experiment
@device_option
def run_validate(request: Request, device: str) -> int:
    """Print the resolved experiment, its shapes, parameter counts, memory and pace; returns the exit status."""
    from discrete_vae.commands.device import choose_device, say_device
    from discrete_vae.training.describe import TIMED_STEPS, describe_experiment
    from discrete_vae.training.experiment_check import check_experiment
    from discrete_vae.training.threads import training_threads

    config, load = request.resolve()
    where, dataset = choose_device(device), load()
    check_experiment(config, dataset)  # before the device is said
    with training_threads(config, {}):
        say_device(where)
        found = describe_experiment(config, dataset, device=where)
    training, about = config.training, dataset.description
    sizes = " / ".join(str(len(part)) for part in (dataset.train, dataset.valid, dataset.test))
    print(f"Experiment {config.name}, size {config.size}, seed {config.seed}")
    data = f"{dataset.name}: {sizes} examples (train / valid / test) of {dataset.num_features} features"
    _print("Data", data)
    _print("", f"{about.version}; {about.values}")
    if found.num_examples != (len(dataset.train), len(dataset.valid)):
        _print("", "of which training sees {} and validation {}".format(*found.num_examples))
    _print(
        "Training",
        f"{_counted(found.num_steps, 'step')} in {_counted(training.num_epochs, 'epoch')}, batches of "
        f"{training.batch_size}, {_counted(found.num_chains, 'chain')}",
    )
    _print(
        "Latents",
        f"{found.num_units} binary units in {_counted(found.num_groups, 'group')}; "
        f"{_counted(found.num_layers, 'continuous layer')} of {found.units_per_layer} units; the decoder reads "
        f"{found.decoder_size} values",
    )
    _print_parameters(found.parameters)
    peak = ""
    if found.peak_bytes is not None:
        of = f"on {where}" if where.type == "cuda" else "of this process, with its libraries,"
        peak = f"; peak {of} after {TIMED_STEPS} steps {found.peak_bytes / 2**20:,.0f} MiB"
    print()
    _print(
        "Memory",
        f"{found.weight_bytes / 2**20:,.0f} MiB for weights, gradients and Adam; "
        f"{found.data_bytes / 2**20:,.0f} MiB of data{peak}",
    )
    epoch = found.seconds_per_step * found.steps_per_epoch
    _print(
        "Time",
        f"{1000 * found.seconds_per_step:,.0f} ms per step, {in_words(epoch)} per epoch, "
        f"{in_words(epoch * training.num_epochs)} in all without validation (best of {TIMED_STEPS} steps here)",
    )
    print("The experiment can be trained; nothing was written.")
    return 0


def _print(name: str, text: str) -> None:
    print(hanging(text, f"{name:10} "))


def _counted(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def _print_parameters(rows: Sequence[ParameterRow]) -> None:
    """A line per network, by part; names leave out their part's."""
    print("\nParameters")
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
