"""dvae evaluate: log-likelihood, ELBO and log Z of a trained model."""

from __future__ import annotations

import re
import sys
import warnings
from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from discrete_vae.commands.evaluation_table import evaluation_table
from discrete_vae.commands.overrides import Override
from discrete_vae.commands.per_example import check_per_example_path, write_per_example
from discrete_vae.commands.results import ResultFile, keep, kept_evaluations
from discrete_vae.commands.suggestions import open_run
from discrete_vae.config import EvaluationConfig, instantiate
from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.load import LoadedRun

_CHOICE = 0  # key of the choice of test examples


def run_evaluate(arguments: Namespace, overrides: list[Override]) -> int:
    """Evaluate a run on its test data, with the other processes of torchrun if there are any."""
    from discrete_vae.distributed import process_group

    with process_group():
        return _evaluate(arguments)


def _evaluate(arguments: Namespace) -> int:
    from discrete_vae.commands.device import check_device
    from discrete_vae.distributed import from_first, rank
    from discrete_vae.evaluation.evaluate import evaluate_model
    from discrete_vae.training.load import load_run

    checkpoint = parse_checkpoint(arguments.checkpoint)
    device = check_device(arguments.device)
    run = open_run(arguments.run)
    # what cannot be written is found before the hours that it would cost
    results = kept_evaluations(run) if arguments.out is None else ResultFile(arguments.out)
    from_first(results.check)
    if arguments.per_example is not None:
        from_first(lambda: check_per_example_path(arguments.per_example))
    loaded = load_run(run, checkpoint, device=device, accept_changed_config=arguments.accept_changed_config)
    asked = {name: getattr(arguments, name) for name in ("num_samples", "num_examples", "seed")}
    given = {name: value for name, value in asked.items() if value is not None}
    config = EvaluationConfig(**(loaded.config.evaluation.model_dump() | given))
    dataset = instantiate(loaded.config.data, data_dir=arguments.data_dir)
    _warn_of_other_data(run, dataset)
    indices = _examples(len(dataset.test), config.num_examples)
    x = dataset.test[indices]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[status]}"),
    )
    console = Console(file=sys.stderr)
    with Progress(
        *columns, console=console, disable=rank() > 0 or not console.is_terminal, transient=True
    ) as bar:
        task = bar.add_task("log Z", total=len(x), status="")

        def report(done: int, mean: float) -> None:
            bar.update(task, description="log-likelihood", completed=done, status=f"{mean:.2f} nats")

        result = evaluate_model(
            loaded.model,
            x.to(device),
            config,
            chains=loaded.chains.step(config.num_chain_sweeps),
            train=dataset.train,
            indices=indices.tolist(),
            report=report,
        )
    if rank() > 0:
        return 0
    print(f"{run.path}, checkpoint of step {loaded.step}, {dataset.name}: {len(x)} test examples")
    print(evaluation_table(result), flush=True)
    about = {"step": loaded.step, "data": dataset.name, "data_sha256": dataset.description.sha256}
    fields = {**about, "config": config.model_dump(), **result.to_json(), **changed_config(loaded)}
    try:
        keep(results, fields)
    finally:  # one file that cannot be written leaves the other
        if arguments.per_example is not None:
            print(f"Written to {write_per_example(arguments.per_example, result)}")
    print(f"Next: dvae sample {run.path}")
    return 0


def _examples(length: int, number: int | None) -> np.ndarray:
    """The test examples to look at: all, or a choice that no seed changes, so that seeds differ in their noise alone.

    A smaller choice is part of every larger one.
    """
    from discrete_vae.data.fixed_draws import fixed_permutation

    if number is not None and number > length:
        rule = f"must be at most the {length} test examples"
        raise InvalidInputError("--num-examples", rule, number, "Leave it out for all of them.")
    return np.sort(fixed_permutation(length, _CHOICE)[:number])


def parse_checkpoint(text: str) -> int | Literal["best", "last"]:
    """A checkpoint's name on the command line: best, last or a step.

    Raises:
        InvalidInputError: If it is none of them.
    """
    if text == "best" or text == "last":  # noqa: PLR1714, RUF100 (a set would hide the type)
        return text
    if not re.fullmatch(r"[0-9]{1,18}", text):
        received = repr(text)[:80]
        raise InvalidInputError("--checkpoint", "must be best, last or a step", received, "Use best.")
    return int(text)


def changed_config(loaded: LoadedRun) -> dict[str, Any]:
    """What a result says of a config.json that has changed since training; empty if it has not."""
    return {} if loaded.changed_config is None else {"changed_config": asdict(loaded.changed_config)}


def picture_note(loaded: LoadedRun) -> str | None:
    """The same for the metadata of a picture."""
    return None if loaded.changed_config is None else str(loaded.changed_config)


def _warn_of_other_data(run: RunDirectory, dataset: DataSplits) -> None:
    trained = run.read_environment().get("data", {}).get("sha256")
    if trained is not None and trained != dataset.description.sha256:
        warnings.warn(
            f"the data ({dataset.description.source}) are not those that the run was trained on: their SHA-256 is "
            f"{dataset.description.sha256}, not {trained}. Test examples may be among those trained on.",
            stacklevel=2,
        )
