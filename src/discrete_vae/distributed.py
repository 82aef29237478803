"""Work that is divided among the processes of torchrun; without torchrun, one process does it all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from discrete_vae.errors import DiscreteVAEError, PeerLostError

T = TypeVar("T")
_LOST = "discrete_vae/lost"


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if _active() else 0


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if _active() else 1


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other processes where torchrun has started some, and leave them at the end.

    A group that is there already is used as it is. Tensors of the CPU go by gloo, those of CUDA devices by NCCL where
    torch has it.

    Raises:
        PeerLostError: If another process has ended.
    """
    joins = int(os.environ.get("WORLD_SIZE", "1")) > 1 and dist.is_available() and not dist.is_initialized()
    if joins:
        on_devices = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_devices else "gloo")
    try:
        yield
        if joins:
            with _talking():  # the first process holds what the others meet in: it must not leave before them
                dist.barrier()
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
        with _talking():
            dist.all_reduce(values)
    return values


def own_share(num_items: int) -> slice:
    """The items of this process where they are divided into equal runs, in the order of ranks.

    Args:
        num_items: Items in all, a multiple of the number of processes.

    Examples:
        >>> own_share(6)
        slice(0, 6, None)
    """
    size = num_items // world_size()
    return slice(rank() * size, (rank() + 1) * size)


def gather_shares(share: Tensor) -> Tensor:
    """What `own_share` divided, whole again in every process; the argument itself in one process.

    Args:
        share: (item, ...), of one shape in every process.
    """
    if not _active():
        return share
    whole = [torch.empty_like(share) for _ in range(world_size())]
    with _talking():
        dist.all_gather(whole, share.contiguous())
    return torch.cat(whole)


def broadcast(values: Tensor) -> Tensor:
    """The first process's values, of the same shape in every process; the argument itself in one process."""
    if not _active():
        return values
    received = values.clone()
    with _talking():
        dist.broadcast(received, src=0)
    return received


def average_(tensors: Sequence[Tensor], memory: Tensor) -> None:
    """Replace tensors by their means over the processes, in one message; the same bits in every process.

    Args:
        tensors: Of one shape in every process, changed in place.
        memory: A vector of as many entries as all of them have, whose dtype is what is added up in.
    """
    if not _active():
        return
    sizes = [each.numel() for each in tensors]
    parts = [part.view(each.shape) for part, each in zip(memory.split(sizes), tensors, strict=True)]
    for part, each in zip(parts, tensors, strict=True):
        part.copy_(each)
    with _talking():
        dist.all_reduce(memory)
    memory.div_(world_size())
    for part, each in zip(parts, tensors, strict=True):
        each.copy_(part)


def agree_any(flag: bool) -> bool:
    """Whether any process says so, in every process."""
    if not _active():
        return flag
    said = torch.tensor([int(flag)])
    with _talking():
        dist.all_reduce(said)
    return bool(said)


def compute_on_rank_zero(compute: Callable[[], T]) -> T:
    """What the first process computes, in every process.

    Raises:
        Exception: The first process's error, in every process; the others know it as said.
    """
    if not _active():
        return compute()
    message: list[Any] = [None, None]
    if rank() == 0:
        try:
            message[0] = compute()
        except Exception as error:  # the others wait for an answer
            message[1] = error
    with _talking():
        dist.broadcast_object_list(message, device=torch.device("cpu"))
    if message[1] is not None:
        if isinstance(message[1], DiscreteVAEError):
            message[1].is_said = rank() > 0
        raise message[1]
    return message[0]


@contextmanager
def held_by_rank_zero(context: AbstractContextManager[object]) -> Iterator[None]:
    """A block in every process, of which the first alone enters the context.

    Raises:
        Exception: What entering raised, in every process.
    """
    with ExitStack() as stack:
        compute_on_rank_zero(lambda: stack.enter_context(context) and None)
        yield


@contextmanager
def _talking() -> Iterator[None]:
    """Say what it means that a message did not arrive.

    Raises:
        PeerLostError: If another process has ended.
    """
    try:
        yield
    except RuntimeError as error:  # gloo has none of its own
        reason = re.sub(r"^\[[^]]*\] *", "", str(error).splitlines()[0]).partition(". ")[0]
        lost = PeerLostError(rank(), world_size(), reason)
        with suppress(Exception):  # the store may have gone with the process
            store = dist.distributed_c10d._get_default_store()
            lost.is_said = store.add(_LOST, 1) > 1  # one process says it for all
        raise lost from error


def _active() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
