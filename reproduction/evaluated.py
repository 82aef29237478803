"""The evaluation of a finished run, and its record."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from discrete_vae.config import ExperimentConfig
from discrete_vae.data.splits import DataSplits, chosen_test_examples
from discrete_vae.inference.evaluate_run import RunEvaluation, evaluate_run
from discrete_vae.load import LoadedRun, load_run
from discrete_vae.runs.results import kept_evaluations
from discrete_vae.runs.run_directory import RunDirectory
from discrete_vae.training.logging import TrainingProgress
from discrete_vae.training.run import warn_of_other_data
from discrete_vae.training.step import KEY
from reproduction.course import thinned_course
from reproduction.planned_run import PlannedRun
from reproduction.record import DataOfRun, Estimate, RecordStore, RunRecord


def evaluate_and_record(
    planned: PlannedRun,
    run: RunDirectory,
    dataset: DataSplits,
    store: RecordStore,
    *,
    device: torch.device,
    check: Callable[[], None],
) -> None:
    """Evaluate the best checkpoint of a run with its size's settings, keep the result in the run, and record it.

    Args:
        planned: The run.
        run: Its folder, where all steps are done.
        dataset: Its data.
        store: Where the record goes.
        device: Where to compute.
        check: Called between examples; what it raises stops the evaluation, which goes on there when called again.
    """
    loaded, config = load_run(run, device=device), planned.config.evaluation
    warn_of_other_data(run, dataset)
    indices = chosen_test_examples(len(dataset.test), config.num_examples)
    with TrainingProgress(0, len(indices), what="evaluating", unit="examples", transient=True) as shown:

        def report(done: int, mean: float) -> None:
            check()
            shown.advance(done, f"{mean:.2f} nats")

        found = evaluate_run(
            loaded,
            dataset,
            config,
            indices,
            device=device,
            parts_folder=run.evaluation_parts_path,
            report=report,
        )
    kept_evaluations(run).add(loaded.named | found.fields)
    record = _record(planned, run, loaded, found, dataset)
    examples = found.result.log_likelihood.examples
    assert examples is not None
    store.write(
        planned,
        record,
        course=thinned_course(run.metrics().read()),
        index=examples.index.numpy(),
        log_likelihood=examples.value.numpy(),
    )
    if found.parts is not None:
        found.parts.discard()


def _record(
    planned: PlannedRun,
    run: RunDirectory,
    loaded: LoadedRun,
    found: RunEvaluation,
    dataset: DataSplits,
) -> RunRecord:
    result, environment = found.result, run.read_environment()
    trained, limit, elbo, prior = (
        result.log_likelihood,
        result.log_likelihood_limit,
        result.elbo,
        result.log_partition,
    )
    config: ExperimentConfig = loaded.config.model_copy(update={"evaluation": planned.config.evaluation})
    commit, platform = environment.get("commit") or {}, environment.get("platform") or {}
    described = environment.get("device") or {}
    return RunRecord(
        experiment=planned.experiment,
        size=planned.size,
        seed=planned.seed,
        settings=tuple(f"--{path} {' '.join(values)}" for path, values in planned.overrides),
        budget_minutes=planned.budget,
        log_likelihood=Estimate(value=trained.value, std_error=_known(trained.std_error)),
        log_likelihood_limit=None if limit is None else limit.value,
        log_partition=Estimate(value=prior.value, std_error=prior.std_error),
        elbo=elbo.elbo,
        num_samples=trained.num_samples,
        num_examples=trained.num_examples,
        epochs=config.training.num_epochs,
        seconds=_seconds(run),
        device=described.get("name") or described.get("type") or "unknown",
        commit=commit.get("hash"),
        log_likelihood_limit_std_error=None if limit is None else _known(limit.std_error),
        elbo_std_error=_known(elbo.elbo_std_error),
        monte_carlo_std_error=trained.monte_carlo_std_error,
        median_ess=trained.median_ess,
        doubling_gain=trained.doubling_gain,
        step=loaded.step,
        num_steps=run.checkpoints().steps()[-1],
        validation_elbo=(run.checkpoints().best() or {}).get("validation_elbo"),
        evaluation_seconds=result.seconds,
        evaluation_precision=found.config.precision,
        precision=environment.get(KEY, "float32"),
        num_weights=sum(parameter.numel() for parameter in loaded.model.parameters()),
        machine=_machine(platform),
        threads=platform.get("torch_threads"),
        modified=commit.get("modified"),
        version=environment.get("discrete_vae", "unknown"),
        data=DataOfRun(
            name=dataset.name,
            source=dataset.description.source,
            version=dataset.description.version,
            sha256=dataset.description.sha256,
        ),
        config=config,
        log_partition_checks=tuple(
            Estimate(value=check.value, std_error=check.std_error)
            for check in (prior.forward, prior.reverse)
            if check is not None
        ),
    )


def _machine(platform: dict[str, Any]) -> str:
    """Processor and cores; the system's name for runs of a version that did not keep the processor's."""
    words = [platform.get("processor") or platform.get("system", "unknown")]
    words += [platform["vector_instructions"]] if "vector_instructions" in platform else []
    return ", ".join([*words, f"{platform.get('cores', 'unknown')} cores"])


def _known(error: float) -> float | None:
    return None if math.isnan(error) else error


def _seconds(run: RunDirectory) -> float:
    lines: list[dict[str, Any]] = run.metrics().read()
    return float(max((line.get("seconds", 0.0) for line in lines), default=0.0))
