"""Commands are killed, interrupted or ended at any operation on a file and at any time; then they are given again."""

from __future__ import annotations

import ctypes
import functools
import json
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tests.campaigns.engine import Finding, Outcome, campaign
from tests.campaigns.forked import Ended, call
from tests.campaigns.tiny_runs import (
    WRITTEN_BY_READERS,
    Stage,
    kill_at,
    prepare,
    read_again,
    reader_words,
    snapshot,
    trained_in_spite_of,
    without_times,
)

_MAX_OPERATIONS = 110  # of the run from its first to its last
_SECONDS = 0.3  # about what the run takes
_STOPPED = {signal.SIGKILL: (-9,), signal.SIGINT: (130,), signal.SIGTERM: (-15, 130, 143)}


@campaign(
    "kills",
    "training, evaluation or sampling stopped by SIGKILL, SIGINT or SIGTERM, then begun again",
    bounded=4,
    long=320,
    prepare=prepare,
)
def kills(stage: Stage, chosen: random.Random, number: int, folder: Path) -> Finding:
    """Every fourth case stops a reader. The even ones go through all operations of a run, one after the other."""
    if number % 4 == 3:
        return _stop_reader(stage, chosen, folder)
    run = folder / "run"
    kind = chosen.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    moments = [_moment(run, chosen, kind, _MAX_OPERATIONS, _SECONDS) for _ in range(chosen.randint(1, 4))]
    if number % 2 == 0:
        kind, moments = signal.SIGKILL, [{"first": kill_at(run, number // 2 % _MAX_OPERATIONS + 1)}]
    return trained_in_spite_of(stage, run, moments, lambda ended: ended.status not in _STOPPED[kind])


def _moment(place: Path, chosen: random.Random, kind: int, operations: int, seconds: float) -> dict[str, Any]:
    """When to send a signal, as arguments of `call`: before an operation on a file of a place, or at a time."""
    if chosen.random() < 0.5:
        return {"first": kill_at(place, chosen.randint(1, operations), kind)}
    return {"stop": (chosen.uniform(0.01, seconds), kind)}


def _stop_reader(stage: Stage, chosen: random.Random, folder: Path) -> Finding:
    """A reader loses nothing, and the next one finds what it would have found."""
    verb = chosen.choice(["evaluate", "sample", "log-partition"])
    stage.found(verb, stage.best)  # an earlier result is there
    run = shutil.copytree(stage.unbroken, folder / "run")
    kind = chosen.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    before = snapshot(run, without=WRITTEN_BY_READERS)
    stopped = call(reader_words(verb, run, folder), **_moment(folder, chosen, kind, 12, 0.15))
    if stopped.status not in (0, *_STOPPED[kind]):
        return Finding(Outcome.CRASHED, str(stopped))
    if snapshot(run, without=WRITTEN_BY_READERS) != before:
        return Finding(Outcome.LOST, str(stopped))
    return read_again(stage, verb, run, folder, stopped)


# A verb that writes where the user says is killed, and then given again.


# Operations on files of the place where the result goes, and about the seconds that the verb takes.
_WRITERS = {
    "encode": (5, 0.2),
    "impute": (10, 0.3),
    "figure": (10, 0.5),
    "refit": (42, 0.6),
    "release": (90, 0.5),
    "save_pretrained": (25, 0.1),
}


def _words(verb: str, run: Path, data: Path, out: Path) -> list[str]:
    more = {
        "encode": ["--data", data, "--out", out / "codes.npz"],
        "impute": ["--data", data.parent / "gaps.npy", "--out", out / "filled.csv", "--num-samples", "10"],
        "refit": ["--num-steps", "2", "--out", out / "new"],
        "figure": ["--out", out / "curves.png"],
        "release": ["--license", "mit", "--precision", "float32", "--num-samples", "2", "--out", out / "new"],
        "save_pretrained": [out / "model"],
    }[verb]
    more += ["--num-rounds", "1", "--std-errors", out / "errors.npy"] if verb == "impute" else []
    named = ["figure", "training-curves"] if verb == "figure" else [verb]
    return [*named, str(run), *map(str, more)]


def _carry_out(verb: str, run: Path, data: Path, out: Path, **moment: Any) -> Ended:
    return call(_words(verb, run, data, out), main=_save if verb == "save_pretrained" else None, **moment)


def _save(words: list[str]) -> int:
    from discrete_vae import DiscreteVAE

    DiscreteVAE.from_pretrained(words[1]).save_pretrained(words[2])
    return 0


_Writing: TypeAlias = tuple[Path, Path, dict[str, Any]]


@functools.cache
def _writing() -> _Writing:
    """A run that was evaluated, its data, and what undisturbed verbs write."""
    stage = prepare(Path())
    folder = stage.unbroken.parent / "again"
    data, run = folder / "data.npy", shutil.copytree(stage.unbroken, folder / "run")
    shutil.copy(stage.data, data)
    gaps = np.load(data).astype(float)
    gaps[:10, 0, 0] = np.nan
    np.save(folder / "gaps.npy", gaps)
    assert call(["evaluate", str(run)]).status == 0
    found = {}
    for verb in _WRITERS:
        out = folder / verb
        out.mkdir()
        ended = _carry_out(verb, run, data, out)
        assert ended.status == 0, str(ended)
        found[verb] = _written(out)
    return run, data, found


def _written(out: Path) -> dict[str, Any]:
    """What a folder holds, without times."""
    files = snapshot(out)
    read = {name: without_times(json.loads(text)) for name, text in files.items() if name.endswith(".json")}
    return files | read


@campaign(
    "killed-verbs",
    "refit, release, save_pretrained, encode, impute or a figure killed by SIGKILL, then given again",
    bounded=6,
    long=360,
    prepare=lambda folder: _writing(),
)
def killed_verbs(stage: _Writing, chosen: random.Random, number: int, folder: Path) -> Finding:
    """Kill a verb once to three times; where another result was before, it or the new one is there at any moment."""
    run, data, found = stage
    verb = list(_WRITERS)[number % len(_WRITERS)]
    operations, seconds = _WRITERS[verb]
    before = _put_before(verb, run, folder, chosen)
    history, struck = [], False
    for _ in range(chosen.randint(1, 3)):
        moment: dict[str, Any] = {"stop": (chosen.uniform(0.005, seconds), signal.SIGKILL)}
        if chosen.random() < 0.7:
            moment = {"first": _first(kill_at(folder, chosen.randint(1, operations)), chosen.random() < 0.3)}
        history.append(_carry_out(verb, run, data, folder, **moment))
        struck |= history[-1].status != 0
        if history[-1].status not in (0, -signal.SIGKILL):
            return Finding(Outcome.CRASHED, "\n".join(map(str, history)))
        if before is not None and not _is_whole(folder, before, found[verb]):
            return Finding(Outcome.LOST, f"{sorted(snapshot(folder))}\n{history[-1]}")
    history.append(_carry_out(verb, run, data, folder))
    if history[-1].status != 0:
        return Finding(Outcome.CRASHED, "\n".join(map(str, history)))
    left = [str(path) for path in folder.rglob(".tmp-*")]
    if left or _written(folder) != found[verb]:
        return Finding(Outcome.WRONG, f"left: {left}\n" + "\n".join(map(str, history)))
    return Finding(Outcome.EQUAL, struck=struck)


def _no_library(*_: object) -> object:
    """Say what a system without the library says; others than dvae, torch for one, ask for libraries too."""
    raise OSError("no such library")


def _first(kill: Callable[[], None], no_exchange: bool) -> Callable[[], None]:
    """Plant the kill; at times on a system that cannot exchange the names of two folders."""

    def first() -> None:
        if no_exchange:
            ctypes.CDLL = _no_library
        kill()

    return first


def _put_before(verb: str, run: Path, folder: Path, chosen: random.Random) -> dict[str, bytes] | None:
    """Put an earlier result there, or an empty folder where no result may give way."""
    if chosen.random() < 0.3:
        return None
    if verb in ("refit", "release"):
        (folder / "new").mkdir()
        return None
    if verb == "save_pretrained":
        from discrete_vae import DiscreteVAE

        model = DiscreteVAE.from_pretrained(run)
        model.prior.bias.data.add_(1.0)
        model.save_pretrained(folder / "model")
    else:
        name = {"encode": "codes.npz", "impute": "filled.csv", "figure": "curves.png"}[verb]
        (folder / name).write_bytes(b"an earlier result")
    return snapshot(folder)


def _is_whole(folder: Path, before: dict[str, bytes], after: dict[str, Any]) -> bool:
    """Whether the earlier result is there or the new one, after what a load brings back."""
    from discrete_vae.runs.io import remove_temporaries

    remove_temporaries(folder, of_others=True)
    written = _written(folder)
    return any(
        all(written.get(name) == one[name] for name in before)
        for one in ({name: _parsed(name, text) for name, text in before.items()}, after)
    )


def _parsed(name: str, text: bytes) -> Any:
    return without_times(json.loads(text)) if name.endswith(".json") else text
