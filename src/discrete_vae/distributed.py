"""Work that is divided among the processes of torchrun; without torchrun, one process does it all."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from discrete_vae.errors import DiscreteVAEError, InvalidInputError, PeerLostError
from discrete_vae.sparse import SparseRows
from discrete_vae.system import in_words

T = TypeVar("T")
MEETING = 300.0  # seconds that the first process to come waits for the last

_SILENT = 3.0  # seconds of it after which a process says so
_SLICE = timedelta(seconds=0.2)  # of waiting, between which signals act
_LONGEST = timedelta(days=1)  # the first process may work for hours before it answers
_divides = ContextVar("divides", default=False)  # whether this is inside `process_group`


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if _active() else 0


def world_size() -> int:
    """Number of processes."""
    return dist.get_world_size() if _active() else 1


def launched() -> tuple[int, int]:
    """Number of this process, from 0, and number of processes, as torchrun says it in the environment."""
    number = _whole_number("WORLD_SIZE", "1", "of processes, at least 1", range(1, 1 << 31))
    if number == 1:
        return 0, 1
    return _whole_number("RANK", "", f"of a process, from 0 to {number - 1}", range(number)), number


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other processes where torchrun has started some, and leave them at the end.

    Work is divided inside the block alone, and by the thread that is in it. A group that is there already is used as
    it is. Tensors of the CPU go by gloo, those of CUDA devices by NCCL where torch has it. While a process waits for
    others, for messages of the CPU too, Ctrl-C and SIGTERM get through.
    """
    if dist.is_available() and dist.is_initialized():
        if dist.get_world_size() > 1 and "cpu:" not in (backends := dist.get_backend_config()):
            rule, repair = "must have a backend for tensors of the CPU", "Give cpu:gloo,cuda:nccl."
            raise InvalidInputError("init_process_group's backend", rule, backends, repair)
        before = _divides.set(True)
        try:
            yield
        finally:
            _divides.reset(before)
        return
    own, number = launched()
    if number == 1 or not dist.is_available():
        yield
        return
    _join_group(own, number)
    store = dist.distributed_c10d._get_default_store()
    try:
        with process_group():  # which is there now
            yield
            # the others meet in the first process, which must not leave before them
            all_reduce_shards(torch.zeros(1, device="cpu"))
    except BaseException as error:
        # leaving waits for a message that is under way, which may never arrive
        leaving = threading.Thread(target=dist.destroy_process_group, daemon=True)
        leaving.start()
        leaving.join(1.0)
        if isinstance(error, DiscreteVAEError) and not error.is_said:
            said = "lost" if isinstance(error, PeerLostError) else error  # the former differ in words
            with suppress(Exception):  # the store may have gone with the process
                error.is_said = store.add(f"discrete_vae/{said}", 1) > 1  # one process says it for all
        raise
    dist.destroy_process_group()


def shard_indices(num_items: int) -> range:
    """The items of this process: every world_size-th, so that neighbors of different cost are spread."""
    return range(rank(), num_items, world_size())


def all_reduce_shards(values: Tensor) -> Tensor:
    """Sum the shares of all processes, (item, ...) on the CPU, each zero outside its process's share.

    The whole is the same in every process: an item is added to zeros only, so no digit depends on the division.
    """
    if _active():
        _exchange(values, lambda: dist.all_reduce(values, async_op=True))
    return values


def own_share(num_items: int) -> slice:
    """Slice of this process's items, divided into equal runs in the order of ranks."""
    size = num_items // world_size()
    return slice(rank() * size, (rank() + 1) * size)


def gather_shares(share: Tensor) -> Tensor:
    """Concatenate the shares of all processes, in every process; the argument itself in one process."""
    if not _active():
        return share
    whole = [torch.empty_like(share) for _ in range(world_size())]
    _exchange(share, lambda: dist.all_gather(whole, share.contiguous(), async_op=True))
    return torch.cat(whole)


def broadcast(values: Tensor) -> Tensor:
    """The first process's values, of the same shape in every process; the argument itself in one process."""
    if not _active():
        return values
    received = values.clone()
    _exchange(received, lambda: dist.broadcast(received, src=0, async_op=True))
    return received


def average_(tensors: Sequence[Tensor], dtype: torch.dtype) -> None:
    """Replace tensors by their means over the processes, in one message; the same bits in every process.

    They are added up in the given dtype.
    """
    if not _active():
        return
    whole = torch.cat([each.detach().flatten().to(dtype) for each in tensors])
    parts = all_reduce_shards(whole).div_(world_size()).split([each.numel() for each in tensors])
    for part, each in zip(parts, tensors, strict=True):
        each.copy_(part.view(each.shape))


def agree_any(flag: bool) -> bool:
    """True in every process if the flag is set in any."""
    if not _active():
        return flag
    return bool(all_reduce_shards(torch.tensor([int(flag)], device="cpu")))


def compute_on_rank_zero(compute: Callable[[], T]) -> T:
    """Compute on the first process and hand the result to every process."""
    if not _active():
        return compute()
    answer, failure = None, None
    if rank() == 0:
        try:
            answer = compute()
        except Exception as error:  # the others wait for an answer
            failure = error
    words = bytearray(pickle.dumps((answer, failure)) if rank() == 0 else b"")
    size = int(broadcast(torch.tensor(len(words), device="cpu")))
    message = torch.frombuffer(words or bytearray(size), dtype=torch.uint8)
    answer, failure = pickle.loads(broadcast(message).numpy().tobytes())
    if isinstance(failure, DiscreteVAEError):
        failure.is_said = rank() > 0
    if failure is not None:
        raise failure
    return answer


def digest(values: Iterable[object]) -> str:
    """SHA-256 of the types, shapes and bits of tensors and arrays, and of the words for other values."""
    total = hashlib.sha256()
    for value in values:
        if isinstance(value, SparseRows):
            places = map(torch.from_numpy, (value.matrix.indices, value.matrix.indptr))
            value = digest([value.values, *places])
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(value) if value.dtype.kind in "biuf" else value.tolist()
        if not isinstance(value, Tensor):
            total.update(repr(value).encode())
            continue
        total.update(f"{value.dtype} {tuple(value.shape)}".encode())
        total.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def check_same(**facts: Iterable[object]) -> None:
    """Refuse arguments that differ between the processes, which meet here."""
    if not _active():
        return
    for name, values in facts.items():
        found = gather_shares(torch.frombuffer(bytearray(digest(values).encode()), dtype=torch.uint8)[None])
        others = [str(number) for number, each in enumerate(found) if not torch.equal(each, found[0])]
        if others:
            received = f"another one in process {', '.join(others)} than in process 0"
            repair = "Start all with the same settings and files, on devices of one kind."
            raise InvalidInputError(name, "must be the same in all processes", received, repair)


@contextmanager
def held_by_rank_zero(context: AbstractContextManager[object]) -> Iterator[None]:
    """Enter a context in the first process alone, for the length of a block in every process."""
    with ExitStack() as stack:
        compute_on_rank_zero(lambda: stack.enter_context(context) and None)
        yield


def _whole_number(name: str, default: str, what: str, among: range) -> int:
    word = os.environ.get(name, default)
    if re.fullmatch(r"[0-9]{1,9}", word) and int(word) in among:
        return int(word)
    received = repr(word) if name in os.environ else "nothing"
    repair = "Let torchrun set it, or leave out WORLD_SIZE."
    raise InvalidInputError(name, f"must be the number {what}", received, repair)


def _join_group(own: int, number: int) -> None:
    """Form the group, or say why the processes do not meet."""
    address = os.environ.get("MASTER_ADDR", "")
    if not address:
        repair = "Let torchrun set it, or give the address of the first process's machine."
        raise InvalidInputError("MASTER_ADDR", f"must be given for {number} processes", "nothing", repair)
    port = _whole_number("MASTER_PORT", "", "of a port, from 1 to 65535", range(1, 1 << 16))
    of_torchrun = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    errors: list[Exception] = []

    def join() -> None:
        on_devices = torch.cuda.is_available() and dist.is_nccl_available()
        try:
            dist.init_process_group("cpu:gloo,cuda:nccl" if on_devices else "gloo", timeout=_LONGEST)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=join, daemon=True)  # signals get through to the main thread alone
    thread.start()
    start, is_told, reason = time.monotonic(), False, "not all of them came"
    thread.join(1.0)
    while thread.is_alive() and (waited := time.monotonic() - start) < MEETING:
        if waited > _SILENT and not is_told:
            text = f"Process {own} of {number} waits for the others at {address}:{port}, at most {in_words(MEETING)}."
            print(text, file=sys.stderr, flush=True)
            is_told = True
        try:
            socket.create_connection((address, port), timeout=1.0).close()
        except OSError as error:
            reason = error.strerror or str(error)
            if isinstance(error, ConnectionRefusedError) and of_torchrun:
                raise PeerLostError(own, number, f"torchrun does not answer at {address}:{port}") from None
        thread.join(1.0)
    if errors or thread.is_alive():
        rule = f"must be where {number} processes meet within {in_words(MEETING)}"
        received = f"{address}:{port} ({str(errors[0]).splitlines()[0] if errors else reason})"
        repair = "Start as many as WORLD_SIZE says, on machines that reach each other."
        raise InvalidInputError("MASTER_ADDR:MASTER_PORT", rule, received, repair) from None


def _exchange(values: Tensor, start: Callable[[], dist.Work | None]) -> None:
    """Exchange values with the other processes; in slices of time where the CPU waits, between which signals act."""
    try:
        message = start()
        assert message is not None
        while values.device.type == "cpu" and not message.is_completed():
            with suppress(RuntimeError):  # the slice is over; what else it may be is raised below
                message.wait(_SLICE)
        message.wait()
    except RuntimeError as error:  # gloo has none of its own
        reason = re.sub(r"^\[[^]]*\] *", "", str(error).splitlines()[0]).partition(". ")[0]
        raise PeerLostError(rank(), world_size(), reason) from error


def _active() -> bool:
    return _divides.get() and dist.is_initialized() and dist.get_world_size() > 1
