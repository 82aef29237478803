"""Work that is divided among the processes of torchrun; without torchrun, one process does it all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if _active() else 0


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if _active() else 1


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other processes where torchrun has started some, and leave them at the end.

    A group that is there already is used as it is.
    """
    joins = int(os.environ.get("WORLD_SIZE", "1")) > 1 and dist.is_available() and not dist.is_initialized()
    if joins:
        dist.init_process_group("gloo")
    try:
        yield
        if joins:
            dist.barrier()  # the first process holds what the others meet in: it must not leave before them
    finally:
        if joins:
            dist.destroy_process_group()


def shard_indices(num_items: int) -> range:
    """The items of this process: every world_size-th, so that neighbors of different cost are spread.

    Examples:
        >>> shard_indices(3)
        range(0, 3)
    """
    return range(rank(), num_items, world_size())


def all_reduce_shards(values: Tensor) -> Tensor:
    """Put the shares of all processes together.

    Args:
        values: (item, ...), on the CPU; zero outside this process's share.

    Returns:
        The whole, the same in every process: each item is added to zeros only, so no digit depends on the division.
    """
    if _active():
        dist.all_reduce(values)
    return values


def compute_on_rank_zero(compute: Callable[[], T]) -> T:
    """What the first process computes, in every process.

    Raises:
        Exception: The first process's error, in every process.
    """
    if not _active():
        return compute()
    message: list[Any] = [None, None]
    if rank() == 0:
        try:
            message[0] = compute()
        except Exception as error:  # the others wait for an answer
            message[1] = error
    dist.broadcast_object_list(message, device=torch.device("cpu"))
    if message[1] is not None:
        raise message[1]
    return message[0]


def _active() -> bool:
    return dist.is_available() and dist.is_initialized()
