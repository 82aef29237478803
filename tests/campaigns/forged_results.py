"""What a run keeps of its results is forged: swapped, planted, altered, damaged; then the run is used."""

from __future__ import annotations

import csv
import functools
import json
import os
import random
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaigns import damage
from tests.campaigns.engine import FAULTS, Campaign, Finding, Outcome
from tests.campaigns.forked import call, refusal_fault
from tests.campaigns.tiny_runs import forget_results, prepare, reader_words


@dataclass(frozen=True)
class Forging:
    """A run with results, another one with its own, and what the undamaged one's readers give.

    Attributes:
        run: The run, with results and the parts of an evaluation with another seed, which was stopped.
        other: Another run of the same steps, likewise.
        found: What evaluations and scores give, by verb and seed.
    """

    run: Path
    other: Path
    found: dict[str, Any]


def words(verb: str, run: Path, folder: Path) -> list[str]:
    """The words of a command that uses a run; what it writes elsewhere goes to a folder."""
    return {
        "evaluate": ["evaluate", str(run)],
        "go on": ["evaluate", str(run), "--seed", "7"],
        "score": ["score", str(run), "--out", str(folder / "scores.csv")],
        "sample": ["sample", str(run), "--num-rows", "2", "--num-sweeps", "3"],
        "report": ["report", str(run), "--num-examples", "20"],
        "curves": ["figure", "training-curves", str(run)],
        "histogram": ["figure", "log-partition-histogram", str(run)],
        "release": ["release", str(run), "--out", str(folder / "released"), "--license", "mit"],
        "resume": ["train", "--resume", "--run-dir", str(run)],
    }[verb]


VERBS = ("evaluate", "go on", "score", "sample", "report", "curves", "histogram", "release", "resume")


def _found_by(verb: str, run: Path, folder: Path) -> Any:
    """What a verb found that depends on the weights and the data alone; None for other verbs."""
    if verb == "score":
        with (folder / "scores.csv").open() as file:
            return [float(row["log_likelihood"]) for row in csv.DictReader(file)]
    if verb not in ("evaluate", "go on"):
        return None
    seed = {"evaluate": 0, "go on": 7}[verb]
    best = json.loads((run / "best.json").read_text())["step"]
    (path,) = (run / "evaluations").glob(f"step-{best}-*-seed-{seed}-*.json")
    fields = json.loads(path.read_text())
    return fields["log_likelihood"], fields["elbo"], fields["log_partition"]["best"]["value"]


def prepare_forging(folder: Path) -> Forging:
    """The runs, made once per process and not to be changed."""
    return _forging()


@functools.cache
def _forging() -> Forging:
    stage = prepare(Path())
    folder = stage.data.parent.parent / "forged"
    run, other = (shutil.copytree(each, folder / each.name) for each in (stage.unbroken, stage.other))
    found = {}
    for verb in ("evaluate", "go on", "score"):
        _succeed(words(verb, run, folder))
        found[verb] = _found_by(verb, run, folder)
    for each in (run, other):
        forget_results(each)
        _succeed(["evaluate", str(each)])
        _succeed(reader_words("log-partition", each, folder))
        ended = call(words("go on", each, folder), first=_stop_before_the_result)
        assert ended.status == -signal.SIGKILL, str(ended)
        assert len(list((each / "evaluation-parts").glob("*/*"))) == 3, "log Z, the model and its sharp limit"
    return Forging(run, other, found)


def _succeed(words: list[str]) -> None:
    ended = call(words)
    assert ended.status == 0, str(ended)


def _stop_before_the_result() -> None:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and "/evaluations/" in str(arguments[0]) and "-seed-7" in str(arguments[0]):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def case(forging: Forging, chosen: random.Random, number: int, folder: Path) -> Finding:
    """One file is forged, and two verbs follow; the worst of what they did counts, then the most telling."""
    run = shutil.copytree(forging.run, folder / "run")
    done = _forge(run, forging.other, chosen)
    findings = [_use(forging, verb, run, folder) for verb in chosen.sample(VERBS, 2)]
    order = (Outcome.OTHER, Outcome.EQUAL, Outcome.REFUSED, *FAULTS)
    worst = max(findings, key=lambda found: order.index(found.outcome))
    return Finding(worst.outcome, f"{done}\n{worst.detail}")


def _forge(run: Path, other: Path, chosen: random.Random) -> str:
    names = ["metrics.jsonl", "environment.json", "evaluation.json", "log_partition.json"]
    names += [
        str(path.relative_to(run))
        for place in ("evaluations", "log_partitions")
        for path in (run / place).iterdir()
    ]
    names += [str(path.relative_to(run)) for path in (run / "evaluation-parts").glob("*/*")]
    name, kind = chosen.choice(names), chosen.random()
    file = run / name
    if name.startswith("evaluation-parts"):
        # another run's part in its place, or a damaged one
        (there,) = (other / "evaluation-parts").glob(f"*/{file.name}")
        file.write_bytes(
            there.read_bytes() if kind < 0.5 else chosen.choice(damage.BYTES)(file.read_bytes(), chosen)
        )
        return f"{'swap' if kind < 0.5 else 'damage'} {name}"
    if kind < 0.2:
        (there,) = [other / name] if file.parent == run else (other / file.parent.name).iterdir()
        damage.swap(file, there)
        return f"swap {name}"
    if kind < 0.35:
        alter = chosen.choice(damage.BYTES)
        file.write_bytes(alter(file.read_bytes(), chosen))
        return f"{alter.__name__} {name}"
    if name == "metrics.jsonl":
        lines = file.read_bytes().splitlines()
        place = chosen.randrange(len(lines))
        lines[place] = damage.alter_json(lines[place], chosen).replace(b"\n", b" ")
        file.write_bytes(b"\n".join([*lines, b""]))
        return f"alter_json {name}, line {place + 1}: {lines[place]!r}"
    file.write_bytes(damage.alter_json(file.read_bytes(), chosen))
    return f"alter_json {name}: {file.read_bytes()[:1500]!r}"


def _use(forging: Forging, verb: str, run: Path, folder: Path) -> Finding:
    ended = call(words(verb, run, folder), limit=60)
    if ended.status != 0:
        wrong = refusal_fault(ended, before=False)
        return Finding(Outcome.REFUSED) if wrong is None else Finding(Outcome.CRASHED, f"{wrong}\n{ended}")
    wanted = forging.found.get(verb)
    if wanted is None:
        return Finding(Outcome.OTHER)
    found = _found_by(verb, run, folder)
    right = found == wanted
    if (
        verb == "score"
    ):  # log Z may be the run's exact one, its estimate or a new one, each with an error of 0.003
        right = all(abs(mine - other) < 0.02 for mine, other in zip(found, wanted, strict=True))
    return Finding(Outcome.EQUAL if right else Outcome.WRONG, str(ended))


CAMPAIGN = Campaign(
    name="forged-results",
    what="a result, a part of an evaluation, the log or the environment of a run forged, before its verbs",
    bounded=8,
    long=800,
    prepare=prepare_forging,
    case=case,
)
