"""A disk that fails in this process: the n-th write, sync, rename or new folder below a place ends in an error."""

from __future__ import annotations

import builtins
import errno
import io
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS)


class Disk:
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

    def __init__(self, path: Any, mode: str, disk: Disk, opener: Any) -> None:
        super().__init__(path, mode, opener=opener)
        self.disk, self.path = disk, path

    def write(self, content: Any) -> int:
        try:
            self.disk.strike(self.path)
        except OSError:
            super().write(memoryview(content)[: len(content) // 2])
            raise
        return super().write(content)


def fail(disk: Disk) -> Callable[[], None]:
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


def limit_file_size(size: int) -> Callable[[], None]:
    """What makes the system itself cut every file of a forked command short at a size, in bytes."""

    def first() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return first
