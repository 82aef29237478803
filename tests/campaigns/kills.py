"""Commands are killed, interrupted or ended at any operation on a file and at any time; then training goes on."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path
from typing import Any

from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.campaigns.forked import Ended, call
from tests.campaigns.tiny_runs import (
    WRITTEN_BY_READERS,
    Stage,
    difference,
    found_by,
    kill_at,
    prepare,
    reader_words,
    snapshot,
    train_words,
)

_MAX_OPERATIONS = 110  # of the run from its first to its last
_SECONDS = 0.3  # about what the run takes
_STOPPED = {signal.SIGKILL: (-9,), signal.SIGINT: (130,), signal.SIGTERM: (-15, 130, 143)}


def case(stage: Stage, chosen: random.Random, number: int, folder: Path) -> Finding:
    """Every fourth case stops a reader. The even ones go through all operations of a run, one after the other."""
    if number % 4 == 3:
        return _stop_reader(stage, chosen, folder)
    run, struck, history = folder / "run", False, []
    kind = chosen.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    moments = [_moment(run, chosen, kind, _MAX_OPERATIONS, _SECONDS) for _ in range(chosen.randint(1, 4))]
    if number % 2 == 0:
        kind, moments = signal.SIGKILL, [{"first": kill_at(run, number // 2 % _MAX_OPERATIONS + 1)}]
    for moment in [*moments, {}]:
        ended = call(train_words(stage.data, run), **moment)
        history.append(f"{ended}\n")
        if ended.status not in (0, *(_STOPPED[kind] if moment else ())):
            return Finding(Outcome.CRASHED, "".join(history))
        struck |= ended.status != 0
    differs = difference(run, stage.unbroken)
    if differs is not None:
        return Finding(Outcome.WRONG, "".join([*history, differs]))
    return Finding(Outcome.EQUAL, struck=struck)


def _moment(place: Path, chosen: random.Random, kind: int, operations: int, seconds: float) -> dict[str, Any]:
    """When to send a signal, as arguments of `call`: before an operation on a file of a place, or at a time."""
    if chosen.random() < 0.5:
        return {"first": kill_at(place, chosen.randint(1, operations), kind)}
    return {"stop": (chosen.uniform(0.01, seconds), kind)}


def _stop_reader(stage: Stage, chosen: random.Random, folder: Path) -> Finding:
    """A reader loses nothing, and the next one finds what it would have found."""
    run = shutil.copytree(stage.unbroken, folder / "run")
    verb = chosen.choice(["evaluate", "sample", "log-partition"])
    kind = chosen.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    before = snapshot(run, without=WRITTEN_BY_READERS)
    stopped = call(reader_words(verb, run, folder), **_moment(folder, chosen, kind, 12, 0.15))
    if stopped.status not in (0, *_STOPPED[kind]):
        return Finding(Outcome.CRASHED, str(stopped))
    if snapshot(run, without=WRITTEN_BY_READERS) != before:
        return Finding(Outcome.LOST, str(stopped))
    return _again(stage, verb, run, folder, stopped)


def _again(stage: Stage, verb: str, run: Path, folder: Path, stopped: Ended) -> Finding:
    ended = call(reader_words(verb, run, folder))
    if ended.status != 0:
        return Finding(Outcome.CRASHED, f"{stopped}\n{ended}")
    if found_by(verb, run, folder, stage.best) != stage.found[verb, stage.best]:
        return Finding(Outcome.WRONG, f"{stopped}\n{ended}")
    return Finding(Outcome.EQUAL, struck=stopped.status != 0)


CAMPAIGN = Campaign(
    name="kills",
    what="training, evaluation or sampling stopped by SIGKILL, SIGINT or SIGTERM, then begun again",
    bounded=12,
    long=320,
    prepare=prepare,
    case=case,
)
