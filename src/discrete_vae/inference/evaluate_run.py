"""The evaluation of a trained run, as `dvae evaluate` makes and keeps it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.config import EvaluationConfig
from discrete_vae.data.dataset import DataSplits
from discrete_vae.evaluation.evaluate import Evaluation, evaluate_model
from discrete_vae.evaluation.kept_parts import KeptParts
from discrete_vae.nets.precision import precision_for
from discrete_vae.runs.json_files import to_json
from discrete_vae.training.load import LoadedRun


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
    config: EvaluationConfig,
    indices: np.ndarray,
    *,
    device: torch.device | str = "cpu",
    parts_folder: Path | None = None,
    report: Callable[[int, float], None] | None = None,
) -> RunEvaluation:
    """Estimate log Z, the log-likelihood and the ELBO of a trained model on test examples.

    Args:
        loaded: The model with its chains, which this call advances.
        dataset: The data.
        config: Numbers of samples, chains and temperatures, and the seed.
        indices: Numbers of the test examples to take.
        device: Where the model is.
        parts_folder: Where parts that are finished are kept, those of each evaluation in a folder of its own, so that
            one that was killed goes on when it is asked for again; not under torchrun. None keeps nothing.
        report: Called with the number of examples done and the running mean log-likelihood.
    """
    precision = precision_for(loaded.model, config.precision, torch.device(device), rows=config.num_samples)
    config = config.model_copy(update={"precision": precision})
    about = {"data": dataset.name, "data_sha256": dataset.description.sha256, "config": config.model_dump()}
    x, chains = dataset.test[indices], loaded.chains.step(config.num_chain_sweeps)
    parts = None
    if parts_folder is not None:
        trained = loaded.config.model_dump(mode="json", exclude={"evaluation"})
        tensors = *loaded.model.state_dict().values(), chains, x, torch.from_numpy(indices)
        key = about | {
            "trained": trained,
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
