"""dvae evaluate: log-likelihood, ELBO and log Z of a trained model."""

from __future__ import annotations

import math
import sys
import warnings
from argparse import Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from discrete_vae.commands.overrides import Override
from discrete_vae.config import EvaluationConfig, instantiate
from discrete_vae.errors import InvalidInputError

if TYPE_CHECKING:
    from discrete_vae.data.dataset import Dataset
    from discrete_vae.evaluation.evaluate import Evaluation
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.load import LoadedRun


def run_evaluate(arguments: Namespace, overrides: list[Override]) -> int:
    """Evaluate a run on its test data, with the other processes of torchrun if there are any."""
    from discrete_vae.distributed import process_group

    with process_group():
        return _evaluate(arguments)


def _evaluate(arguments: Namespace) -> int:
    from discrete_vae.commands.device import check_device
    from discrete_vae.data.fixed_draws import fixed_permutation
    from discrete_vae.distributed import rank
    from discrete_vae.evaluation.evaluate import evaluate_model
    from discrete_vae.runs.json_files import write_json
    from discrete_vae.runs.run_directory import RunDirectory
    from discrete_vae.training.load import load_run

    checkpoint = parse_checkpoint(arguments.checkpoint)
    device = check_device(arguments.device)
    run = RunDirectory.open(arguments.run)
    loaded = load_run(run, checkpoint, device=device, accept_changed_config=arguments.accept_changed_config)
    asked = {name: getattr(arguments, name) for name in ("num_samples", "num_examples", "seed")}
    given = {name: value for name, value in asked.items() if value is not None}
    config = EvaluationConfig(**(loaded.config.evaluation.model_dump() | given))
    dataset = instantiate(loaded.config.data, data_dir=arguments.data_dir)
    _warn_of_other_data(run, dataset)
    x = dataset.test
    if config.num_examples is not None:
        if config.num_examples > len(x):
            rule = f"must be at most the {len(x)} test examples"
            raise InvalidInputError(
                "--num-examples", rule, config.num_examples, "Leave it out for all of them."
            )
        x = x[fixed_permutation(len(x), config.seed)[: config.num_examples]]
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
            report=report,
        )
    if rank() > 0:
        return 0
    fields = {"step": loaded.step, "data": dataset.name, "config": config.model_dump(), **result.to_json()}
    fields |= changed_config(loaded)
    write_json(run.evaluation_path, fields)
    print(f"{run.path}, checkpoint of step {loaded.step}, {dataset.name}: {len(x)} test examples")
    print(_table(result))
    print(f"Written to {run.evaluation_path}")
    return 0


def parse_checkpoint(text: str) -> int | Literal["best", "last"]:
    """A checkpoint's name on the command line: best, last or a step.

    Raises:
        InvalidInputError: If it is none of them.
    """
    if text == "best" or text == "last":  # noqa: PLR1714, RUF100 (a set would hide the type)
        return text
    if not text.isascii() or not text.isdecimal():
        raise InvalidInputError("--checkpoint", "must be best, last or a step", repr(text), "Use best.")
    return int(text)


def changed_config(loaded: LoadedRun) -> dict[str, Any]:
    """What a result says of a config.json that has changed since training; empty if it has not."""
    return {} if loaded.changed_config is None else {"changed_config": asdict(loaded.changed_config)}


def _table(result: Evaluation) -> str:
    """What was found, in nats per example, one quantity a line."""
    likelihood, elbo, prior = result.log_likelihood, result.elbo, result.log_partition
    lines = [
        _row("log-likelihood", likelihood.value, likelihood.std_error)
        + f"   {likelihood.num_samples} importance samples; their own error "
        f"{_error(likelihood.monte_carlo_std_error)}, median effective number {likelihood.median_ess:.1f}; "
        f"the last doubling brought {likelihood.rise:.2f}",
        _row("ELBO", elbo.elbo, elbo.elbo_std_error) + f"   {elbo.num_samples} draws an example",
        _row("  reconstruction", elbo.reconstruction),
        _row("  KL discrete", elbo.kl_discrete),
        _row("  KL continuous", elbo.kl_continuous),
        _row("log Z", prior.best.value, prior.best.std_error) + f"   {prior.best.method}",
    ]
    for check in (prior.forward, prior.reverse):
        if check is not None:
            lines.append(_row("  check", check.value, check.std_error) + f"   {check.method}")
    if result.log_likelihood_limit is not None:
        limit = result.log_likelihood_limit
        lines.insert(1, _row("  beta infinite", limit.value, limit.std_error) + "   the limit zeta = z")
    return "\n".join(["  nats per example", *lines])


def _row(name: str, value: float, error: float | None = None) -> str:
    row = f"  {name:16} {value:11.3f}"
    return row if error is None else f"{row} +- {_error(error)}"


def _error(error: float) -> str:
    if math.isnan(error):
        return "unknown"
    return "0 (exact)" if error == 0 else f"{error:.3f}"


def _warn_of_other_data(run: RunDirectory, dataset: Dataset) -> None:
    trained = run.read_environment().get("data", {}).get("sha256")
    if trained is not None and trained != dataset.description.sha256:
        warnings.warn(
            f"the data ({dataset.description.source}) are not those that the run was trained on: their SHA-256 is "
            f"{dataset.description.sha256}, not {trained}. Test examples may be among those trained on.",
            stacklevel=2,
        )
