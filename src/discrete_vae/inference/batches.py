"""Many examples through a model, batch after batch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from discrete_vae.checks import check_examples, check_positive_int
from discrete_vae.distributed import all_reduce_shards, shard_indices, world_size
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.memory import samples_in_memory
from discrete_vae.memory import check_memory
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.eval_mode import switched

_LARGEST_BATCH, _MAX_MEMORY = 256, 512.0  # examples; MiB of the networks' intermediate values

Report: TypeAlias = Callable[[int], None]
"""Called with the number of examples that are done."""


@torch.no_grad()
def in_batches(
    model: DiscreteVAE,
    x: Tensor,
    compute: Callable[[Tensor, Sequence[int]], Mapping[str, Tensor]],
    *,
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> dict[str, np.ndarray]:
    """Compute something of each example, batch after batch, with the networks' running statistics.

    Every batch is filled up with its last example, so that no digit depends on how many examples there are; with
    noise that is keyed by their numbers (`discrete_vae.inference.row_noise`) an example's result is its own.
    Under torchrun the batches are divided among the processes, and every process has the whole result.

    Args:
        model: The model; it must not change meanwhile. One in training mode is in evaluation mode meanwhile, for
            all threads.
        x: (example, feature) or (example, *event), on any device.
        compute: Takes a batch on the model's device, and its examples' numbers; returns tensors by name, each
            (example of the batch, ...). Names, shapes and dtypes must be the same for every batch.
        numbers: Numbers of the examples, which key the noise; None means from 0.
        batch_size: Examples of a batch; None takes up to 256, as many as 512 MiB have room for.
        report: Called after each batch.

    Returns:
        (example, ...) arrays by name.

    Raises:
        InvalidInputError: If there are no examples or not one number for each, batch_size is no positive integer, or
            the results do not fit the memory; and whatever compute raises.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=3, prior=RBMConfig(num_left=2, num_right=2)))
        >>> in_batches(model, torch.eye(3), lambda x, numbers: {"sum": x.sum(1)}, batch_size=2)["sum"]
        array([1., 1., 1.], dtype=float32)
    """
    x = check_examples("x", x)
    own_numbers = check_numbers(numbers, len(x))
    size = batch_size_for(model) if batch_size is None else check_positive_int("batch_size", batch_size)
    device = model.prior.bias.device
    whole: dict[str, Tensor] = {}
    firsts = range(0, len(x), size)
    own = shard_indices(len(firsts))
    with switched(model):
        for done, batch in enumerate(own or [0], start=1):  # without a share: for the form of the results
            places = list(range(firsts[batch], min(firsts[batch] + size, len(x))))
            filled = places + places[-1:] * (size - len(places))
            found = compute(x[filled].to(device), [own_numbers[place] for place in filled])
            if not whole:
                whole = _room_for(found, len(x))
            if batch in own:
                for name, values in found.items():
                    whole[name][places] = values[: len(places)].cpu()
                if report is not None:
                    report(min(done * size * world_size(), len(x)))
    return {name: all_reduce_shards(values).numpy() for name, values in whole.items()}


def check_numbers(numbers: Sequence[int] | np.ndarray | None, num_rows: int) -> list[int]:
    """The numbers of examples, which key their noise; None means from 0.

    Raises:
        InvalidInputError: If they are not one whole number per row.
    """
    if numbers is None:
        return list(range(num_rows))
    try:
        found = [operator.index(number) for number in numbers]
    except TypeError:
        found = None
    if found is None or len(found) != num_rows:
        received = f"{numbers!r}"[:80] if found is None else f"{len(found)} numbers"
        repair = "Give one per row of x, or leave them out."
        raise InvalidInputError(
            "numbers", f"must be a whole number for each of {num_rows} rows", received, repair
        )
    return found


def batch_size_for(model: DiscreteVAE) -> int:
    """Examples of a batch: up to 256, as many as the memory for intermediate values has room for."""
    return min(_LARGEST_BATCH, samples_in_memory(model, _MAX_MEMORY))


def _room_for(found: Mapping[str, Tensor], num_rows: int) -> dict[str, Tensor]:
    """Zeros for the results of all examples."""
    shapes = {name: (num_rows, *values.shape[1:]) for name, values in found.items()}
    needed = sum(values[0].numel() * values.element_size() * num_rows for values in found.values())
    check_memory("x", needed, "Give fewer rows at a time.", what="for the results")
    return {
        name: torch.zeros(shapes[name], dtype=values.dtype, device="cpu") for name, values in found.items()
    }
