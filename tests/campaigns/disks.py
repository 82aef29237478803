"""The disk of a command fails; then the fault goes away and training goes on."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.campaigns.engine import Finding, Outcome, campaign
from tests.campaigns.forked import call, refusal_fault
from tests.campaigns.tiny_runs import (
    WRITTEN_BY_READERS,
    Stage,
    prepare,
    read_again,
    reader_words,
    snapshot,
    trained_in_spite_of,
)

_ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS)


class _Disk:
    """Counts the operations that change something below a place, and lets one of them fail, or all from there on."""

    def __init__(self, place: Path, number: int, error: int, *, lasting: bool) -> None:
        self.place, self.number, self.error, self.lasting = str(place), number, error, lasting
        self.count = 0

    def strike(self, path: object) -> None:
        """Count one operation on a path, and raise if it is the one."""
        if self.place not in str(path):
            return
        self.count += 1
        if self.count == self.number or (self.lasting and self.count > self.number):
            raise OSError(self.error, os.strerror(self.error), str(path))


class _File(io.FileIO):
    """A file whose writes pass the disk; the write that fails has written half."""

    def __init__(self, path: Any, mode: str, disk: _Disk, opener: Any) -> None:
        super().__init__(path, mode, opener=opener)
        self.disk, self.path = disk, path

    def write(self, content: Any) -> int:
        try:
            self.disk.strike(self.path)
        except OSError:
            super().write(memoryview(content)[: len(content) // 2])
            raise
        return super().write(content)


def _fail(disk: _Disk) -> Callable[[], None]:
    """What plants the disk in a forked command."""

    def first() -> None:
        true_open, true_sync = builtins.open, os.fsync

        def open_file(
            file: Any, mode: str = "r", buffering: int = -1, *more: Any, opener: Any = None, **options: Any
        ) -> Any:
            if isinstance(file, int) or not set(mode) & set("wxa+") or disk.place not in str(file):
                return true_open(file, mode, buffering, *more, opener=opener, **options)
            raw = _File(file, mode.replace("b", "").replace("t", ""), disk, opener)
            if buffering == 0:
                return raw
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *more, **options)

        def sync(descriptor: Any) -> None:
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            disk.strike(Path(f"/proc/self/fd/{number}").readlink())
            true_sync(descriptor)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in {"os.mkdir", "os.rename"}:
                disk.strike(arguments[0])
            if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
                disk.strike(arguments[0])

        sys.addaudithook(hook)
        builtins.open = io.open = open_file
        os.fsync = sync

    return first


def _limit_file_size(size: int) -> Callable[[], None]:
    """What makes the system itself cut every file of a forked command short at a size, in bytes."""

    def first() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return first


_MAX_OPERATIONS = 180  # of a run that changes something on the disk
_MAX_BYTES = 16_000  # a little more than the largest file of a run


@campaign(
    "disks",
    "a disk that is full, cut short, broken or read-only during a command",
    bounded=6,
    long=240,
    prepare=prepare,
)
def disks(stage: Stage, chosen: random.Random, number: int, folder: Path) -> Finding:
    """Every fourth case is that of a reader."""
    if number % 4 == 3:
        return _reader(stage, chosen, folder)
    run = folder / "run"
    faults = [{"first": _fault(run, chosen, _MAX_OPERATIONS)} for _ in range(chosen.choice([1, 1, 2]))]
    return _refused(trained_in_spite_of(stage, run, faults, lambda ended: refusal_fault(ended, before=False)))


def _refused(found: Finding) -> Finding:
    """Count what went right after a fault as a refusal."""
    return (
        replace(found, outcome=Outcome.REFUSED) if found.outcome == Outcome.EQUAL and found.struck else found
    )


def _fault(place: Path, chosen: random.Random, operations: int) -> Callable[[], None]:
    if chosen.random() < 0.25:
        return _limit_file_size(chosen.randint(0, _MAX_BYTES))
    error, lasting = chosen.choice(_ERRORS), chosen.random() < 0.5
    return _fail(_Disk(place, chosen.randint(1, operations), error, lasting=lasting))


def _reader(stage: Stage, chosen: random.Random, folder: Path) -> Finding:
    """A reader whose disk fails loses nothing; what it had written before is the old or the new, never a part."""
    verb = chosen.choice(["evaluate", "sample", "log-partition"])
    stage.found(verb, stage.best)  # an earlier result is there
    run = shutil.copytree(stage.unbroken, folder / "run")
    before = snapshot(run)
    faulty = call(reader_words(verb, run, folder), first=_fault(folder, chosen, 8))
    wrong = faulty.status != 0 and refusal_fault(faulty, before=False)
    if wrong:
        return Finding(Outcome.CRASHED, f"{faulty}\n{wrong}")
    after = snapshot(run)
    changed = [name for name in before if after.get(name) != before[name] and not _is_new(name, after)]
    if changed:
        return Finding(Outcome.LOST, f"{faulty}\nchanged: {changed}")
    return _refused(read_again(stage, verb, run, folder, faulty))


def _is_new(name: str, after: dict[str, bytes]) -> bool:
    """Whether a file is what a reader writes, and whole."""
    if not name.startswith(WRITTEN_BY_READERS) or name not in after:
        return False
    if name.endswith(".png"):
        return after[name].endswith(b"IEND\xaeB`\x82")
    try:
        return isinstance(json.loads(after[name]), dict)
    except ValueError:
        return False
