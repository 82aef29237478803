"""dvae train: from data to a trained model."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from discrete_vae.commands.overrides import apply_overrides
from discrete_vae.config import ExperimentConfig, FileDataConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.experiments import load_experiment
from discrete_vae.experiments.own_data import own_data
from discrete_vae.runs.atomic import write_text
from discrete_vae.runs.run_directory import RunDirectory


def resolve_config(arguments: Namespace, overrides: list[str]) -> ExperimentConfig:
    """The config that the command line asks for.

    Raises:
        InvalidInputError: If there is neither an experiment nor a file, or a value breaks its rule.
    """
    if (arguments.experiment is None) == (arguments.data is None):
        received = "neither" if arguments.data is None else "both"
        repair = "For example: dvae train digits, or dvae train --data FILE.npy."
        raise InvalidInputError("EXPERIMENT", "or --data FILE must be given", received, repair)
    size = arguments.size or "short"
    if arguments.data is not None:
        from discrete_vae.config import instantiate

        dataset = instantiate(FileDataConfig(path=arguments.data), data_dir=arguments.data_dir)
        config = own_data(Path(arguments.data), dataset.num_features, len(dataset.train), size)
    else:
        config = load_experiment(arguments.experiment, size)
    if arguments.seed is not None:
        config = ExperimentConfig(**(config.model_dump() | {"seed": arguments.seed}))
    return apply_overrides(
        config, overrides, prog=f"dvae {arguments.verb} {arguments.experiment or '--data FILE'}"
    )


def run_train(arguments: Namespace, overrides: list[str]) -> int:
    """Train, or resume; returns the exit status."""
    if arguments.resume:
        run, config = _resumed(arguments, overrides)
    else:
        config = resolve_config(arguments, overrides)
        run = RunDirectory(Path(arguments.run_dir or f"runs/{config.name}-{config.size}").expanduser())
    from discrete_vae.config import instantiate
    from discrete_vae.data.batches import TrainingBatches
    from discrete_vae.runs.environment import describe_environment
    from discrete_vae.training.loop import train

    # everything that can be wrong is found before the folder is made
    if not arguments.resume:
        RunDirectory.check_new(run.path)
    dataset = instantiate(config.data, data_dir=arguments.data_dir)
    num_steps = (
        config.training.num_epochs
        * TrainingBatches(dataset, config.training.batch_size, seed=config.seed).steps_per_epoch
    )
    if arguments.resume:
        steps = run.checkpoints().steps()
        if steps and steps[-1] >= num_steps:
            print(f"{run.path} has finished its {num_steps} steps. Next: dvae evaluate {run.path}")
            return 0
    else:
        run = RunDirectory.create(run.path)
        run.write_config(config.model_dump_json(indent=2) + "\n")
        environment = describe_environment(seed=config.seed, device="cpu")
        write_text(run.environment_path, json.dumps(environment, indent=2) + "\n")
    try:
        result = train(config, dataset, run)
    except KeyboardInterrupt:
        steps = run.checkpoints().steps()
        kept = f"step {steps[-1]} is saved" if steps else "no checkpoint was saved yet"
        print(f"\nInterrupted; {kept}. Continue with: dvae train {config.name} --run-dir {run.path} --resume")
        return 130
    print(
        f"Trained {result.num_steps} steps in {result.seconds:.0f} s; best validation ELBO {result.best_elbo:.2f} nats "
        f"at step {result.best_step}.\nNext: dvae evaluate {run.path}"
    )
    return 0


def _resumed(arguments: Namespace, overrides: list[str]) -> tuple[RunDirectory, ExperimentConfig]:
    """The run to go on with, whose config must not be contradicted."""
    if arguments.run_dir is None:
        repair = "Name the folder of the run to go on with."
        raise InvalidInputError("--run-dir", "must be given with --resume", "nothing", repair)
    run = RunDirectory.open(arguments.run_dir)
    stored = ExperimentConfig.from_json(run.read_config())
    asked = apply_overrides(stored, overrides, prog="dvae train --resume")
    given = {
        "name": arguments.experiment,
        "size": arguments.size,
        "seed": arguments.seed,
    }
    asked = asked.model_copy(update={name: value for name, value in given.items() if value is not None})
    if asked != stored:
        before, after = stored.model_dump(), asked.model_dump()
        name = next(name for name in before if before[name] != after[name])
        rule = f"must be the run's own {name}"
        repair = "Leave the setting out, or start a new run in another --run-dir."
        raise InvalidInputError("--resume", rule, f"{after[name]!r} for {before[name]!r}"[:200], repair)
    return run, stored
