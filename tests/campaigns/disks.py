"""The disk of a command fails; then the fault goes away and training goes on."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.campaigns.failing_disk import ERRORS, Disk, fail, limit_file_size
from tests.campaigns.forked import call, refusal_fault
from tests.campaigns.tiny_runs import (
    WRITTEN_BY_READERS,
    Stage,
    difference,
    found_by,
    prepare,
    reader_words,
    snapshot,
    train_words,
)

_MAX_OPERATIONS = 180  # of a run that changes something on the disk
_MAX_BYTES = 16_000  # a little more than the largest file of a run


def case(stage: Stage, chosen: random.Random, number: int, folder: Path) -> Finding:
    """Every fourth case is that of a reader."""
    if number % 4 == 3:
        return _reader(stage, chosen, folder)
    run, struck, history = folder / "run", False, []
    for faulty in [True] * chosen.choice([1, 1, 2]) + [False]:
        first = _fault(run, chosen, _MAX_OPERATIONS) if faulty else None
        ended = call(train_words(stage.data, run), first=first)
        history.append(f"{ended}\n")
        wrong = ended.status != 0 and (not faulty or refusal_fault(ended, before=False))
        if wrong:
            return Finding(Outcome.CRASHED, f"{''.join(history)}{wrong}")
        struck |= ended.status != 0
    differs = difference(run, stage.unbroken)
    if differs is not None:
        return Finding(Outcome.WRONG, "".join([*history, differs]))
    return Finding(Outcome.REFUSED if struck else Outcome.EQUAL, struck=struck)


def _fault(place: Path, chosen: random.Random, operations: int) -> Callable[[], None]:
    if chosen.random() < 0.25:
        return limit_file_size(chosen.randint(0, _MAX_BYTES))
    error, lasting = chosen.choice(ERRORS), chosen.random() < 0.5
    return fail(Disk(place, chosen.randint(1, operations), error, lasting=lasting))


def _reader(stage: Stage, chosen: random.Random, folder: Path) -> Finding:
    """A reader whose disk fails loses nothing; what it had written before is the old or the new, never a part."""
    run = shutil.copytree(stage.unbroken, folder / "run")
    verb = chosen.choice(["evaluate", "sample", "log-partition"])
    before = snapshot(run)
    faulty = call(reader_words(verb, run, folder), first=_fault(folder, chosen, 8))
    wrong = faulty.status != 0 and refusal_fault(faulty, before=False)
    if wrong:
        return Finding(Outcome.CRASHED, f"{faulty}\n{wrong}")
    after = snapshot(run)
    changed = [name for name in before if after.get(name) != before[name] and not _is_new(name, after)]
    if changed:
        return Finding(Outcome.LOST, f"{faulty}\nchanged: {changed}")
    ended = call(reader_words(verb, run, folder))
    if ended.status != 0 or found_by(verb, run, folder, stage.best) != stage.found[verb, stage.best]:
        return Finding(Outcome.WRONG, f"{faulty}\n{ended}")
    struck = faulty.status != 0
    return Finding(Outcome.REFUSED if struck else Outcome.EQUAL, struck=struck)


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


CAMPAIGN = Campaign(
    name="disks",
    what="a disk that is full, cut short, broken or read-only during a command",
    bounded=12,
    long=240,
    prepare=prepare,
    case=case,
)
