"""dvae train: from data to a trained model."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discrete_vae.commands.overrides import Override, apply_overrides
from discrete_vae.commands.run_names import run_name
from discrete_vae.commands.suggestions import check_experiment_name, open_run
from discrete_vae.config import ExperimentConfig, FileDataConfig, instantiate
from discrete_vae.durations import in_words
from discrete_vae.errors import InvalidInputError
from discrete_vae.experiments import load_experiment

if TYPE_CHECKING:
    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.runs.run_directory import RunDirectory


def resolve_config(arguments: Namespace, overrides: list[Override]) -> ExperimentConfig:
    """The config that the command line asks for.

    Raises:
        InvalidInputError: If there is neither an experiment nor a file, or a value breaks its rule.
    """
    if (arguments.experiment is None) == (arguments.data is None):
        received = "neither" if arguments.data is None else "both"
        repair = f"For example: dvae {arguments.verb} digits, or dvae {arguments.verb} --data FILE.npy."
        raise InvalidInputError("EXPERIMENT", "or --data FILE must be given", received, repair)
    size = arguments.size or "short"
    if arguments.data is not None:
        from discrete_vae.experiments.own_experiment import own_experiment

        kinds = [values[0] for path, values in overrides if path == "model.likelihood" and len(values) == 1]
        config = own_experiment(
            arguments.data,
            likelihood=kinds[-1] if kinds else "bernoulli",
            size=size,
            data_dir=arguments.data_dir,
        )
    else:
        check_experiment_name(arguments.experiment)
        config = load_experiment(arguments.experiment, size)
    seed: list[Override] = [] if arguments.seed is None else [("seed", [str(arguments.seed)])]
    return apply_overrides(config, [*seed, *overrides])


def run_train(arguments: Namespace, overrides: list[Override]) -> int:
    """Train, or resume; returns the exit status."""
    if arguments.settings:
        from discrete_vae.commands.listing import print_settings

        print_settings(resolve_config(arguments, overrides))
        return 0
    from discrete_vae.commands.device import check_device
    from discrete_vae.commands.headline import headline
    from discrete_vae.commands.interrupts import stop_on_signals
    from discrete_vae.commands.threads import training_threads
    from discrete_vae.data.chosen import chosen_examples
    from discrete_vae.runs.lock import sole_writer
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.loop import train
    from discrete_vae.training.state import check_experiment

    # everything that can be wrong is found before the folder is made
    device = check_device(arguments.device)
    if arguments.resume:
        run = open_run(_run_dir(arguments, overrides))
        config = _resumed_config(run, arguments, overrides)
    else:
        if arguments.accept_changed_config:
            repair = "Leave it out: a new run writes its own config.json."
            raise InvalidInputError("--accept-changed-config", "must go with --resume", "no --resume", repair)
        config = resolve_config(arguments, overrides)
        run = RunDirectory(RunDirectory.check_new(_run_dir(arguments, overrides)))
    dataset = instantiate(config.data, data_dir=arguments.data_dir)
    num_steps = check_experiment(config, dataset)
    if arguments.resume:
        _check_same_data(run, dataset)
    else:
        run = RunDirectory.create(run.path)
    begun = run.read_environment() if arguments.resume else {}
    with sole_writer(run.path), stop_on_signals() as stop, training_threads(config, begun):
        run.remove_temporaries()
        if not arguments.resume:
            run.write_config(config.model_dump_json(indent=2) + "\n")
        if not run.environment_path.exists():  # a kill may have come between the two
            _write_environment(run, config, dataset, str(device))
        steps = run.checkpoints().steps()
        done = steps[-1] if steps else 0
        if arguments.resume and not steps:
            print("No checkpoint was saved yet: the run goes on from the start.", file=sys.stderr)
        if done < num_steps:
            print(headline(config, dataset, run, done, num_steps, device), file=sys.stderr)
        try:
            result = train(
                config,
                dataset,
                run,
                device=device,
                stop=stop,
                accept_changed_config=arguments.accept_changed_config,
            )
        except KeyboardInterrupt:
            return _interrupted(run, stop.status)
    if result.step < num_steps:
        return _interrupted(run, stop.status)
    if done >= num_steps:
        print(f"{run.path} has finished its {num_steps} steps; nothing is left to do.")
    else:
        print(f"Trained {num_steps - done} steps in {in_words(result.seconds)}.")
    assert result.best_elbo is not None  # the last step validates, and a checkpoint of it names its best
    print(f"Best validation ELBO {result.best_elbo:.2f} nats, at step {result.best_step}.")
    _print_baseline(config, chosen_examples(dataset, config.training), result.best_elbo)
    run.checkpoints().verify("best")
    print(f"Next: dvae evaluate {run.path}")
    return 0


def _print_baseline(config: ExperimentConfig, dataset: DataSplits, elbo: float) -> None:
    """What independent features reach, and whether the model has learned more."""
    from discrete_vae.commands.evaluation_table import below_baseline
    from discrete_vae.commands.layout import hanging
    from discrete_vae.evaluation.independent_features import independent_features

    likelihood = instantiate(config.model.likelihood, event_shape=config.model.shape)
    baseline = independent_features(likelihood, dataset.train, dataset.valid)
    print(f"Independent features: {baseline.value:.2f} nats (validation).")
    if complaint := below_baseline("validation ELBO", elbo, baseline):
        print(hanging(f"{complaint} The ELBO is a lower bound; dvae evaluate gives the log-likelihood."))


def _interrupted(run: RunDirectory, status: int) -> int:
    """Say which step is saved and how to go on; returns the exit status."""
    steps = run.checkpoints().steps()
    kept = f"step {steps[-1]} is saved" if steps else "no checkpoint was saved yet"
    go_on = f"dvae train --resume --run-dir {shlex.quote(str(run.path))}"
    print(f"\nInterrupted; {kept}. Continue: {go_on}", file=sys.stderr)
    return status


def _run_dir(arguments: Namespace, overrides: list[Override]) -> str:
    """Where the run is or will be."""
    if arguments.run_dir is not None:
        return arguments.run_dir
    if arguments.data is None and arguments.experiment is None:
        repair = "Name the folder: dvae train --resume --run-dir DIR."
        if arguments.resume:
            raise InvalidInputError(
                "--run-dir", "or EXPERIMENT must be given with --resume", "neither", repair
            )
        return "runs"  # never used: the missing experiment is reported
    name = arguments.experiment if arguments.data is None else Path(arguments.data).stem
    base = f"{name}-{arguments.size or 'short'}"
    return f"runs/{run_name(base, arguments.seed, overrides)}"


def _resumed_config(run: RunDirectory, arguments: Namespace, overrides: list[Override]) -> ExperimentConfig:
    """The config of the run to go on with, which the command line must not contradict."""
    from discrete_vae.training.changed_config import check_config

    stored = run.read_experiment()
    given = {"name": arguments.experiment, "size": arguments.size, "seed": arguments.seed}
    asked = apply_overrides(stored, overrides).model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    if arguments.data is not None:
        file = FileDataConfig(path=arguments.data).path
        of_run = stored.data.path if isinstance(stored.data, FileDataConfig) else stored.data.kind
        if file != of_run:
            raise _other("--data", of_run, file)
    if asked != stored:
        raise _other(*_first_difference(stored.model_dump(), asked.model_dump()))
    if not arguments.accept_changed_config:  # else training warns of it
        check_config(run, run.checkpoints().newest(), accept=False)
    return stored


def _first_difference(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, object, object]:
    """The option of the first value that differs, and the two values."""
    name = next(name for name in after if before.get(name) != after[name])
    one, other = before.get(name), after[name]
    if isinstance(one, dict) and isinstance(other, dict):
        option, one, other = _first_difference(one, other)
        return f"--{name.replace('_', '-')}.{option.removeprefix('--')}", one, other
    return "EXPERIMENT" if name == "name" else f"--{name.replace('_', '-')}", one, other


def _other(option: str, before: object, after: object) -> InvalidInputError:
    repair = "Leave it out, or start a new run in another --run-dir."
    return InvalidInputError(option, f"must be the resumed run's {before}", after, repair)


def _check_same_data(run: RunDirectory, dataset: DataSplits) -> None:
    """Check that the data are those that the run began with."""
    before = run.read_environment().get("data", {}).get("sha256")
    if before is not None and before != dataset.description.sha256:
        received = f"{dataset.description.source} with SHA-256 {dataset.description.sha256}"
        repair = "Bring the file back, or start a new run in another --run-dir."
        raise InvalidInputError("data", f"must be those of the run, SHA-256 {before}", received, repair)


def _write_environment(run: RunDirectory, config: ExperimentConfig, dataset: DataSplits, device: str) -> None:
    from dataclasses import asdict

    from discrete_vae.runs.environment import describe_environment
    from discrete_vae.runs.json_files import write_json

    environment = describe_environment(seed=config.seed, device=device)
    write_json(
        run.environment_path, environment | {"data": {"name": dataset.name, **asdict(dataset.description)}}
    )
