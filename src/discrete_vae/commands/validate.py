"""dvae validate: everything but training."""

from __future__ import annotations

from argparse import Namespace

from discrete_vae.commands.overrides import Override
from discrete_vae.commands.train import resolve_config
from discrete_vae.config import instantiate


def run_validate(arguments: Namespace, overrides: list[Override]) -> int:
    """Print the resolved experiment, its shapes, parameter counts and memory; returns the exit status."""
    config = resolve_config(arguments, overrides)
    if arguments.settings:
        from discrete_vae.commands.listing import print_settings

        print_settings(config)
        return 0
    from discrete_vae.training.state import TrainingState, check_experiment

    dataset = instantiate(config.data, data_dir=arguments.data_dir)
    num_steps = check_experiment(config, dataset)
    state = TrainingState.initial(config, dataset.train.mean(0))
    print(f"Experiment {config.name}, size {config.size}, seed {config.seed}")
    parts = " / ".join(str(len(part)) for part in (dataset.train, dataset.valid, dataset.test))
    print(
        f"Data       {dataset.name}: {parts} examples (train / valid / test) of {dataset.num_features} features"
    )
    print(
        f"Training   {num_steps} steps in {config.training.num_epochs} epochs, batches of "
        f"{config.training.batch_size}, {state.chains.num_chains} chains"
    )
    print("\nParameters")
    for name, shape, count in _rows(state.model):
        print(f"  {name:42} {shape:>14} {count:>12,}")
    total = sum(parameter.numel() for parameter in state.model.parameters())
    print(f"  {'total':42} {'':>14} {total:>12,}")
    # weights, gradient and Adam's two moments in float32
    data = sum(part.numel() * part.element_size() for part in (dataset.train, dataset.valid, dataset.test))
    print(
        f"\nMemory     {16 * total / 2**20:,.0f} MiB for weights, gradients and Adam; {data / 2**20:,.0f} MiB of data"
    )
    print("Nothing is wrong, and nothing was written.")
    return 0


def _rows(model) -> list[tuple[str, str, int]]:
    return [
        (name, " x ".join(map(str, parameter.shape)) or "scalar", parameter.numel())
        for name, parameter in model.named_parameters()
    ]
