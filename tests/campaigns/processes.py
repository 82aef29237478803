"""Verbs by several processes, one of which is killed, interrupted or ended; then the verb is begun again."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from discrete_vae.cli import options
from tests.campaigns.engine import Finding, Outcome, campaign
from tests.campaigns.forked import Ended, call, call_together
from tests.campaigns.tiny_runs import (
    WRITTEN_BY_READERS,
    difference,
    kill_at,
    snapshot,
    succeed,
    train_words,
    without_times,
    write_data,
)

VERBS = [verb for verb in options.VERBS if verb != "train"]
_STOPPED = {0, 1, 2, 130, 143, -signal.SIGKILL}


@dataclass(frozen=True)
class Run:
    """What verbs read.

    Attributes:
        data: The data's file, which has 60 examples.
        run: A finished run of them, evaluated.
        gaps: Examples with gaps.
        labels: A label per example.
        classes: A run of the data with a label of every other example.
        together: The same run by two processes; None where it is not needed.
    """

    data: Path
    run: Path
    gaps: Path
    labels: Path
    classes: Path
    together: Path | None = None


def words_of(verb: str, stage: Run, out: Path) -> list[str]:
    """The words of a verb that trains nothing; all that it writes goes to an empty folder."""
    run, labels = str(stage.run), ["--labels", str(stage.labels)]
    more: dict[str, tuple[list[str], str | None]] = {
        "list": ([], None),
        "validate": (["--data", str(stage.data), "--size", "smoke", "--settings"], None),
        "cite": ([run], None),
        "refit": ([run, "--num-steps", "3"], "refit"),
        "release": ([run, "--license", "mit", "--precision", "float32"], "released"),
        "evaluate": ([run, "--per-example", str(out / "rows.csv")], "evaluation.json"),
        "log-partition": ([run, "--std-error", "0.2", "--health-sweeps", "20"], "log-partition.json"),
        "sample": ([run, "--num-rows", "2", "--num-sweeps", "3"], "samples.png"),
        "encode": ([run, "--draw"], "codes.npz"),
        "score": ([run, "--num-samples", "20", "--threshold-from", "valid"], "scores.csv"),
        "predict": ([str(stage.classes), "--num-samples", "10"], "classes.npz"),
        "reconstruct": ([run, "--num-draws", "2"], "x.npz"),
        "denoise": ([run, "--noise", "0.1", "--num-draws", "2"], "x.npz"),
        "interpolate": ([run, "--num-pairs", "2"], "paths.npz"),
        "impute": ([run, "--data", str(stage.gaps), "--num-samples", "50"], "filled.npz"),
        "generate": ([run, "-n", "3", "--num-sweeps", "5", "--label", "all", *labels], "new.npz"),
        "neighbors": ([run, "-k", "3"], "neighbors.csv"),
        "figure": (["training-curves", run], "curves.png"),
        "report": ([run, "--num-examples", "10"], "report.html"),
    }
    words, name = more[verb]
    return [verb, *words, *([] if name is None else ["--out", str(out / name)])]


def results(said: str, out: Path) -> dict[str, object]:
    """What a verb printed and wrote, without its place and times."""
    found: dict[str, object] = {}
    for name, content in (snapshot(out) | {"said": said.replace(str(out), "OUT").encode()}).items():
        value: object = content.replace(str(out).encode(), b"OUT")
        if name.endswith(".json"):
            value = without_times(json.loads(content))
        elif name in ("said", "report.html"):
            value = re.sub(rb"\b[\d.]+ (ms|s|min|h|MiB)\b|[\d.]+ ms per", b"TIME", value)
        found[name] = value
    return found


def make_run(folder: Path, do: Callable[[list[str]], object]) -> Run:
    """A run and its files in an empty folder, made by what carries out a command."""
    data = write_data(folder / "data" / "flags.npy")
    stage = Run(data, folder / "run", folder / "gaps.npy", folder / "labels.npy", folder / "classes")
    rows = np.load(data)[:9].astype(np.float32)
    rows[:, 0, :2] = np.nan
    np.save(stage.gaps, rows)
    np.save(stage.labels, np.arange(60) % 2)
    do(train_words(data, stage.run))
    words = np.where(np.arange(60) % 2, "", np.array(["oak", "elm"])[np.arange(60) // 2 % 2])
    np.savez(folder / "labeled.npz", x=np.load(data), y=words)
    do([*train_words(folder / "labeled.npz", stage.classes), "--data.label-units", "y"])
    do(["evaluate", str(stage.run), "--num-samples", "10"])
    return stage


def prepare(folder: Path) -> Run:
    """The runs that the cases start from."""
    stage, together = make_run(folder, lambda words: succeed(call(words))), folder / "together"
    ended = call_together(train_words(stage.data, together), 2)
    assert [each.status for each in ended] == [0, 0], _shown(ended)
    return replace(stage, together=together)


@campaign(
    "processes",
    "a verb by two processes, one of which is stopped by SIGKILL, SIGINT or SIGTERM, then begun again",
    bounded=4,
    long=160,
    prepare=prepare,
)
def processes(stage: Run, chosen: random.Random, number: int, folder: Path) -> Finding:
    """Every fourth case stops training; the others go through the verbs."""
    verb = "train" if number % 4 == 3 else VERBS[number * 3 // 4 % len(VERBS)]
    history: list[Ended] = []
    before = snapshot(stage.run, without=WRITTEN_BY_READERS)
    for attempt in ("stopped", "again", "more"):
        place = folder / ("run" if verb == "train" else attempt)
        words = _words(verb, stage, place)
        moment = _moment(place if verb == "train" else folder, chosen) if attempt == "stopped" else {}
        ended = call_together(words, 2, **moment)
        history += ended
        statuses = {each.status for each in ended}
        if not statuses <= (_STOPPED if moment else {0}) or "Traceback" in "".join(map(str, ended)):
            return Finding(Outcome.CRASHED, _shown(history))
        if statuses == {0}:
            break
    if snapshot(stage.run, without=WRITTEN_BY_READERS) != before:
        return Finding(Outcome.LOST, _shown(history))
    if verb == "train":
        assert stage.together is not None
        differs = difference(place, stage.together)
    else:
        alone = folder / "alone"
        history.append(call(_words(verb, stage, alone)))
        same = results(ended[0].out, place) == results(history[-1].out, alone)
        differs = None if same else "another result than that of one process"
    if differs is not None:
        return Finding(Outcome.WRONG, f"{_shown(history)}{differs}")
    return Finding(Outcome.EQUAL, struck=len(history) > 3)


def _words(verb: str, stage: Run, place: Path) -> list[str]:
    if verb == "train":
        return train_words(stage.data, place)
    place.mkdir()
    return words_of(verb, stage, place)


def _moment(place: Path, chosen: random.Random) -> dict[str, Any]:
    """Which process is sent which signal, before an operation on a file of a place or at a time."""
    rank, kind = chosen.choice([0, 0, 0, 1]), chosen.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
    if chosen.random() < 0.5:
        return {"first": (rank, kill_at(place, chosen.randint(1, 8), kind))}
    return {"stop": (rank, chosen.uniform(0.01, 0.3), kind)}


def _shown(history: list[Ended]) -> str:
    return "\n".join(map(str, history))
