"""The evaluation of a trained run, and its log Z, with what is kept between processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.base import LogPartition
from discrete_vae.config import EvaluationConfig
from discrete_vae.data.splits import DataSplits, subset_indices
from discrete_vae.distributed import compute_on_rank_zero
from discrete_vae.evaluation.evaluate import Evaluation, KeptParts, evaluate_model
from discrete_vae.load import LoadedRun
from discrete_vae.log_partition.estimate import estimate_log_partition
from discrete_vae.nets.precision import precision_for
from discrete_vae.runs.io import to_json
from discrete_vae.runs.results import evaluation_store, is_of, log_partition_store
from discrete_vae.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class RunEvaluation:
    """An evaluation with what it is of.

    Attributes:
        result: The estimates.
        config: The config, with what "auto" was here.
        fields: Plain values of all of it, as a run keeps them.
        parts: What it kept on its way, to be discarded when the result is kept; None if it kept nothing.
    """

    result: Evaluation
    config: EvaluationConfig
    fields: dict[str, Any]
    parts: KeptParts | None = None


def evaluate_run(
    loaded: LoadedRun,
    dataset: DataSplits,
    config: EvaluationConfig | None = None,
    indices: np.ndarray | None = None,
    *,
    parts_folder: Path | None = None,
    report: Callable[[int, float], None] | None = None,
) -> RunEvaluation:
    """Estimate log Z, the log-likelihood and the ELBO of a trained model on test examples, as `dvae evaluate` does.

    Under torchrun the examples are divided among the processes, and every process has the whole result.

    Args:
        loaded: The model with its chains, which this call advances.
        dataset: The run's data.
        config: Numbers of samples, chains and temperatures, and the seed; None takes those of the run's experiment.
        indices: Numbers of the test examples to take; None chooses as many as the config says.
        parts_folder: Where parts that are finished are kept, those of each evaluation in a folder of its own, so that
            one that was killed goes on when it is asked for again; not under torchrun. None keeps nothing.
        report: Called with the number of examples done and the running mean log-likelihood.

    Raises:
        InvalidInputError: If the config asks for more examples than there are.

    Warns:
        UserWarning: If few importance samples carry the log-likelihood, or estimates of log Z are poor.

    Examples:
        >>> from discrete_vae import load_dataset, load_pretrained
        >>> digits = load_pretrained("digits")
        >>> found = evaluate_run(digits, load_dataset("digits"), digits.config.evaluation, np.arange(3))
        >>> found.result.log_likelihood.num_examples
        3
    """
    config = loaded.config.evaluation if config is None else config
    if indices is None:
        indices = subset_indices(len(dataset.test), config.num_examples)
    device = loaded.model.prior.bias.device
    precision = precision_for(loaded.model, config.precision, device, rows=config.num_samples)
    config = config.model_copy(update={"precision": precision})
    about = {"data": dataset.name, "data_sha256": dataset.description.sha256, "config": config.model_dump()}
    x, chains = dataset.test[indices], loaded.chains.step(config.num_chain_sweeps)
    parts = None
    if parts_folder is not None:
        tensors = *loaded.model.state_dict().values(), chains, x, torch.from_numpy(indices)
        key = about | {
            "trained": loaded.config.model_dump(mode="json", exclude={"evaluation"}),
            "tensors": _digest(tensors),
            "code": _code(),
            "torch": torch.__version__,
        }
        parts = KeptParts(parts_folder, to_json("key", key))
    result = evaluate_model(
        loaded.model,
        x.to(device),
        config,
        chains=chains,
        train=dataset.train,
        indices=indices.tolist(),
        report=report,
        parts=parts,
    )
    if parts is not None:
        result = replace(result, seconds=result.seconds + parts.seconds)
    return RunEvaluation(result, config, about | result.to_json(), parts)


def _digest(tensors: Iterable[Tensor]) -> str:
    """SHA-256 of the types, shapes and bits of tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


@cache
def _code() -> str:
    """SHA-256 of this library's sources."""
    total = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()


def log_partition_of_run(run: RunDirectory, loaded: LoadedRun, *, seed: int = 0) -> LogPartition:
    """The best estimate that the run keeps of this checkpoint's prior; without one a new estimate.

    `dvae evaluate` and `dvae log-partition` keep estimates. A new one goes for the standard error of the run's
    evaluation, and starts from its chains. Under torchrun the first process makes it.

    Args:
        run: The run.
        loaded: What `discrete_vae.load_run` made of it; a new estimate advances its chains.
        seed: Seed of a new estimate.

    Returns:
        The estimate, whose method says where it is from.
    """
    return compute_on_rank_zero(lambda: _kept_or_new(run, loaded, seed))


def _kept_or_new(run: RunDirectory, loaded: LoadedRun, seed: int) -> LogPartition:
    # with another config than that of training a kept result may be of another prior
    kept = [] if loaded.changed_config is not None else list(_kept(run, loaded))
    if kept:
        return min(kept, key=lambda each: each.std_error)
    config = loaded.config.evaluation
    found = estimate_log_partition(
        loaded.model.prior,
        chains=loaded.chains.step(config.num_chain_sweeps),
        std_error=config.log_partition_std_error,
        max_sweeps=config.max_tempered_sweeps,
        num_chains=config.num_annealed_chains,
        num_temperatures=config.num_temperatures,
        seed=seed,
    ).best
    return replace(found, method=f"{found.method}, now")


def _kept(run: RunDirectory, loaded: LoadedRun) -> Iterator[LogPartition]:
    """Estimates of a checkpoint's prior that the run keeps."""
    sources = evaluation_store(run), log_partition_store(run)
    for kept, fields in ((kept, kept.most_complete()) for kept in sources):
        if fields is None or "changed_config" in fields or not is_of(fields, loaded.step, loaded.sums):
            continue
        estimates = fields["estimates"] if "estimates" in fields else [fields["log_partition"]["best"]]
        method = f"kept in {kept.most_complete_path.name}"
        for each in estimates:
            yield LogPartition(each["value"], each["std_error"], method, each.get("num_samples", 0))
