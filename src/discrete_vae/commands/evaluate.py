"""dvae evaluate: log-likelihood, ELBO and log Z of a trained model."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from discrete_vae.config import EvaluationConfig, instantiate
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.json_files import write_json
from discrete_vae.runs.run_directory import RunDirectory


def run_evaluate(arguments: Namespace, overrides: list[str]) -> int:
    """Evaluate a run on its test data, with the other processes of torchrun if there are any."""
    from discrete_vae.distributed import process_group

    with process_group():
        return _evaluate(arguments)


def _evaluate(arguments: Namespace) -> int:
    from discrete_vae.data.fixed_draws import fixed_permutation
    from discrete_vae.distributed import rank
    from discrete_vae.evaluation.evaluate import evaluate_model
    from discrete_vae.training.load import load_run

    run = RunDirectory.open(arguments.run)
    loaded = load_run(run, parse_checkpoint(arguments.checkpoint))
    given = {
        name: value
        for name, value in (
            ("num_samples", arguments.num_samples),
            ("num_examples", arguments.num_examples),
            ("seed", arguments.seed),
        )
        if value is not None
    }
    config = EvaluationConfig(**(loaded.config.evaluation.model_dump() | given))
    dataset = instantiate(loaded.config.data, data_dir=arguments.data_dir)
    x = dataset.test
    if config.num_examples is not None:
        if config.num_examples > len(x):
            rule = f"must be at most the {len(x)} test examples"
            raise InvalidInputError(
                "--num-examples", rule, config.num_examples, "Leave it out for all of them."
            )
        x = x[fixed_permutation(len(x), config.seed)[: config.num_examples]]
    columns = (
        TextColumn("log-likelihood"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[status]}"),
    )
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, disable=not console.is_terminal or rank() > 0) as bar:
        task = bar.add_task("examples", total=len(x), status="")

        def report(done: int, mean: float) -> None:
            bar.update(task, completed=done, status=f"{mean:.2f} nats")

        result = evaluate_model(
            loaded.model, x, config, chains=loaded.chains.step(config.num_chain_sweeps), report=report
        )
    if rank() > 0:
        return 0
    likelihood, elbo, prior = result.log_likelihood, result.elbo, result.log_partition
    print(
        f"{run.path}, checkpoint of step {loaded.step}, {dataset.name}: {likelihood.num_examples} test examples"
    )
    print(
        f"log-likelihood  {likelihood.value:.3f} +- {likelihood.std_error:.3f} nats "
        f"({likelihood.num_samples} importance samples, Monte-Carlo error {likelihood.monte_carlo_std_error:.3f}, "
        f"median effective samples {likelihood.median_ess:.0f})"
    )
    limit = result.log_likelihood_limit
    if limit is not None:
        print(f"  beta -> infinity {limit.value:.3f} +- {limit.std_error:.3f} nats (zeta = z)")
    print(f"ELBO            {elbo.elbo:.3f} +- {elbo.elbo_std_error:.3f} nats")
    print(
        f"  reconstruction {elbo.reconstruction:.3f}, KL discrete {elbo.kl_discrete:.3f}, "
        f"KL continuous {elbo.kl_continuous:.3f}"
    )
    print(prior.best)
    for check in (prior.forward, prior.reverse):
        if check is not None:
            print(f"  check: {check}")
    write_json(
        run.evaluation_path,
        {"step": loaded.step, "data": dataset.name, "config": config.model_dump(), **result.to_json()},
    )
    print(f"Written to {run.evaluation_path}")
    return 0


def parse_checkpoint(text: str) -> int | Literal["best", "last"]:
    """A checkpoint's name on the command line: best, last or a step.

    Raises:
        InvalidInputError: If it is none of them.
    """
    if text == "best" or text == "last":  # noqa: PLR1714, RUF100 (a set would hide the type)
        return text
    if not text.isdecimal():
        raise InvalidInputError("--checkpoint", "must be best, last or a step", repr(text), "Use best.")
    return int(text)
