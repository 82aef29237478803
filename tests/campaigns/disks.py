"""The disk of a command fails; then the fault goes away and training goes on."""

import builtins
import errno
import io
import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.campaigns.forked import call, refusal_fault
from tests.campaigns.tiny_runs import (
    WRITTEN_BY_READERS,
    prepare,
    read_again,
    reader_words,
    snapshot,
    trained_in_spite_of,
)

_ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS)
_MAX_OPERATIONS = 130  # of a run that changes something on the disk
_MAX_BYTES = 16_000  # a little more than the largest file of a run


class _Disk:
    """Counts the operations that change something below a place, and lets one of them fail, or all from there on."""

    def __init__(self, place, number, error, *, lasting):
        self.place, self.number, self.error, self.lasting = str(place), number, error, lasting
        self.count = 0

    def strike(self, path):
        """Count one operation on a path, and raise if it is the one."""
        if self.place not in str(path):
            return
        self.count += 1
        if self.count == self.number or (self.lasting and self.count > self.number):
            raise OSError(self.error, os.strerror(self.error), str(path))


class _File(io.FileIO):
    """A file whose writes pass the disk; the write that fails has written half."""

    def __init__(self, path, mode, disk, opener):
        super().__init__(path, mode, opener=opener)
        self.disk, self.path = disk, path

    def write(self, content):
        try:
            self.disk.strike(self.path)
        except OSError:
            super().write(memoryview(content)[: len(content) // 2])
            raise
        return super().write(content)


def _fail(disk):
    """What plants the disk in a forked command."""

    def first():
        true_open, true_sync = builtins.open, os.fsync

        def open_file(file, mode="r", buffering=-1, *more, opener=None, **options):
            if isinstance(file, int) or not set(mode) & set("wxa+") or disk.place not in str(file):
                return true_open(file, mode, buffering, *more, opener=opener, **options)
            raw = _File(file, mode.replace("b", "").replace("t", ""), disk, opener)
            if buffering == 0:
                return raw
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *more, **options)

        def sync(descriptor):
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            disk.strike(Path(f"/proc/self/fd/{number}").readlink())
            true_sync(descriptor)

        def hook(event, arguments):
            if event in {"os.mkdir", "os.rename"}:
                disk.strike(arguments[0])
            if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
                disk.strike(arguments[0])

        sys.addaudithook(hook)
        builtins.open = io.open = open_file
        os.fsync = sync

    return first


def _limit_file_size(size):
    """What makes the system itself cut every file of a forked command short at a size, in bytes."""

    def first():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    return first


@Campaign(
    "disks",
    "a disk that is full, cut short, broken or read-only during a command",
    bounded=8,
    long=240,
    prepare=prepare,
)
def disks(stage, chosen, number, folder):
    """Every fourth case is that of a reader; what went right after a fault counts as a refusal."""
    run = folder / "run"
    if number % 4 == 3:
        found = _reader(stage, chosen, run, folder)
    else:
        faults = [{"first": _fault(run, chosen, _MAX_OPERATIONS)} for _ in range(chosen.choice([1, 1, 2]))]
        found = trained_in_spite_of(stage, run, faults, lambda ended: refusal_fault(ended, before=False))
    return found._replace(outcome=Outcome.REFUSED) if found[0] == Outcome.EQUAL and found.struck else found


def _fault(place, chosen, operations):
    if chosen.random() < 0.25:
        return _limit_file_size(chosen.randint(0, _MAX_BYTES))
    error, lasting = chosen.choice(_ERRORS), chosen.random() < 0.5
    return _fail(_Disk(place, chosen.randint(1, operations), error, lasting=lasting))


def _reader(stage, chosen, run, folder):
    """A reader whose disk fails loses nothing; what it had written before is the old or the new, never a part."""
    verb = chosen.choice(["evaluate", "sample", "log-partition"])
    stage.found(verb, stage.best)  # an earlier result is there
    shutil.copytree(stage.unbroken, run)
    before = snapshot(run)
    faulty = call(reader_words(verb, run, folder), first=_fault(folder, chosen, 8))
    wrong = faulty.status != 0 and refusal_fault(faulty, before=False)
    if wrong:
        return Finding(Outcome.CRASHED, f"{faulty}\n{wrong}")
    after = snapshot(run)
    changed = [name for name in before if after.get(name) != before[name] and not _is_new(name, after)]
    if changed:
        return Finding(Outcome.LOST, f"{faulty}\nchanged: {changed}")
    return read_again(stage, verb, run, folder, faulty)


def _is_new(name, after):
    """Whether a file is what a reader writes, and whole."""
    if not name.startswith(WRITTEN_BY_READERS) or name not in after:
        return False
    if name.endswith(".png"):
        return after[name].endswith(b"IEND\xaeB`\x82")
    try:
        return isinstance(json.loads(after[name]), dict)
    except ValueError:
        return False
