"""dvae evaluate: log-likelihood, ELBO and log Z of a trained model."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from discrete_vae.commands.options import data_dir_option, option, whole_number
from discrete_vae.commands.trained import EXPLAINED, AskedRun, changed_config, takes_run
from discrete_vae.commands.verbs import verb
from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy as np

    from discrete_vae.data.dataset import DataSplits
    from discrete_vae.runs.run_directory import RunDirectory

_CHOICE = 0  # key of the choice of test examples


@verb("evaluate", EXPLAINED)
@takes_run
@option("--num-samples K", "importance samples per example; default: the experiment's", whole_number())
@option(
    "--num-examples N",
    "a fixed random choice of N test examples, the same for every seed; default: all",
    whole_number(),
)
@option(
    "--out FILE.json",
    "write the result there and leave the run as it is; default: RUN/evaluations, and the fullest result also to "
    "RUN/evaluation.json",
)
@option(
    "--per-example FILE",
    "write the log-likelihood of each example, with its standard error, to this .csv or .npz",
)
@data_dir_option
def run_evaluate(asked: AskedRun, **options: Any) -> int:
    """Evaluate a run on its test data, with the other processes of torchrun if there are any."""
    from discrete_vae.distributed import process_group

    with process_group():
        return _evaluate(asked, **options)


def _evaluate(
    asked: AskedRun, out: str | None, per_example: str | None, data_dir: str | None, **sizes: int | None
) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from discrete_vae.commands.device import say_device
    from discrete_vae.commands.evaluation_table import evaluation_table
    from discrete_vae.commands.per_example import check_per_example_path, write_per_example
    from discrete_vae.commands.results import ResultFile, keep, kept_evaluations
    from discrete_vae.config import EvaluationConfig, instantiate
    from discrete_vae.distributed import compute_on_rank_zero, rank
    from discrete_vae.evaluation.evaluate import evaluate_model

    run = asked.directory
    # what cannot be written is found before the hours that it would cost
    results = kept_evaluations(run) if out is None else ResultFile(out)
    compute_on_rank_zero(results.check)
    if per_example is not None:
        compute_on_rank_zero(lambda: check_per_example_path(per_example))
    loaded = asked.load()
    given = {name: value for name, value in sizes.items() if value is not None}
    config = EvaluationConfig(**(loaded.config.evaluation.model_dump() | given))
    dataset = instantiate(loaded.config.data, data_dir=data_dir)
    _warn_of_other_data(run, dataset)
    indices = _examples(len(dataset.test), config.num_examples)
    x = dataset.test[indices]
    say_device(asked.device)
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
            x.to(asked.device),
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
        if per_example is not None:
            print(f"Written to {write_per_example(per_example, result)}")
    print(f"Next: dvae sample {run.path}")
    return 0


def _examples(length: int, number: int | None) -> np.ndarray:
    """The test examples to look at: all, or a choice that no seed changes, so that seeds differ in their noise alone.

    A smaller choice is part of every larger one.
    """
    import numpy as np

    from discrete_vae.data.fixed_draws import fixed_permutation

    if number is not None and number > length:
        rule = f"must be at most the {length} test examples"
        raise InvalidInputError("--num-examples", rule, number, "Leave it out for all of them.")
    return np.sort(fixed_permutation(length, _CHOICE)[:number])


def _warn_of_other_data(run: RunDirectory, dataset: DataSplits) -> None:
    trained = run.read_environment().get("data", {}).get("sha256")
    if trained is not None and trained != dataset.description.sha256:
        warnings.warn(
            f"the data ({dataset.description.source}) are not those that the run was trained on: their SHA-256 is "
            f"{dataset.description.sha256}, not {trained}. Test examples may be among those trained on.",
            stacklevel=2,
        )
