"""What a run keeps of its results is forged: swapped, planted, altered, damaged; then the run is used."""

import csv
import functools
import importlib.util
import json
import shlex
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns import damage
from tests.campaigns.engine import FAULTS, Campaign, Finding, Outcome, refusal
from tests.campaigns.forked import call
from tests.campaigns.tiny_runs import forget_results, kill_when, prepare, reader_words, succeed
from tests.cli.conftest import snapshot


@dataclass(frozen=True)
class _Forging:
    """A run with results, another one with its own, and what the undamaged one's readers give.

    Attributes:
        run: The run, with results and the parts of an evaluation with another seed, which was stopped.
        other: Another run of the same steps, likewise.
        found: What evaluations and scores give, by verb and seed.
    """

    run: Path
    other: Path
    found: dict


_VERBS = {
    "evaluate": "evaluate {run}",
    "go on": "evaluate {run} --seed 7",
    "score": "score {run} --out {folder}/scores.csv",
    "sample": "sample {run} --num-rows 2 --num-sweeps 3",
    "report": "report {run} --num-examples 20",
    "curves": "figure training-curves {run}",
    "histogram": "figure log-partition-histogram {run}",
    "release": "release {run} --out {folder}/released --license mit",
    "resume": "train --resume --run-dir {run}",
}


def _words(verb, run, folder):
    """The words of a command that uses a run; what it writes elsewhere goes to a folder."""
    return [word.format(run=run, folder=folder) for word in _VERBS[verb].split()]


def _found_by(verb, run, folder):
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


@functools.cache
def _forging():
    stage = prepare()
    folder = stage.data.parent.parent / "forged"
    run, other = (shutil.copytree(each, folder / each.name) for each in (stage.unbroken, stage.other))
    found = {}
    for verb in ("evaluate", "go on", "score"):
        succeed(call(_words(verb, run, folder)))
        found[verb] = _found_by(verb, run, folder)
    stop = kill_when(lambda event, place: event == "open" and "/evaluations/" in place and "-seed-7" in place)
    for each in (run, other):
        forget_results(each)
        succeed(call(["evaluate", str(each)]))
        succeed(call(reader_words("log-partition", each, folder, "--std-error", "0.003")))
        ended = call(_words("go on", each, folder), first=stop)
        assert ended.status == -signal.SIGKILL, str(ended)
        assert len(list((each / "evaluation-parts").glob("*/*"))) == 3, "log Z, the model and its sharp limit"
    return _Forging(run, other, found)


@Campaign(
    "forged-results",
    "a result, a part of an evaluation, the log or the environment of a run forged, before its verbs",
    bounded=4,
    long=800,
    prepare=lambda folder: _forging(),
)
def forged_results(forging, chosen, number, folder):
    """One file is forged, and two verbs follow; the worst of what they did counts, then the most telling."""
    run = shutil.copytree(forging.run, folder / "run")
    done = _forge(run, forging.other, chosen)
    findings = [_use(forging, verb, run, folder) for verb in chosen.sample(list(_VERBS), 2)]
    order = (Outcome.OTHER, Outcome.EQUAL, Outcome.REFUSED, *FAULTS)
    worst = max(findings, key=lambda found: order.index(found.outcome))
    return worst._replace(detail=f"{done}\n{worst.detail}")


def _forge(run, other, chosen):
    names = ["metrics.jsonl", "environment.json", "evaluation.json", "log_partition.json"]
    for pattern in ("evaluations/*", "log_partitions/*", "evaluation-parts/*/*"):
        names += [str(path.relative_to(run)) for path in run.glob(pattern)]
    name, kind = chosen.choice(names), chosen.random()
    file = run / name
    if name.startswith("evaluation-parts"):
        (there,) = (other / "evaluation-parts").glob(f"*/{file.name}")
        kind *= 0.35  # swapped or damaged alone
    else:
        (there,) = [other / name] if file.parent == run else (other / file.parent.name).iterdir()
    if kind < 0.2:
        shutil.copyfile(there, file)
        return f"swap {name}"
    if kind < 0.35:
        return f"{damage.alter_bytes(file, chosen)} {name}"
    if name == "metrics.jsonl":
        lines = file.read_bytes().splitlines()
        place = chosen.randrange(len(lines))
        lines[place] = damage.alter_json(lines[place], chosen).replace(b"\n", b" ")
        file.write_bytes(b"\n".join([*lines, b""]))
        return f"alter_json {name}, line {place + 1}: {lines[place]!r}"
    file.write_bytes(damage.alter_json(file.read_bytes(), chosen))
    return f"alter_json {name}: {file.read_bytes()[:1500]!r}"


def _use(forging, verb, run, folder):
    ended = call(_words(verb, run, folder), limit=60)
    if ended.status != 0:
        return refusal(ended, before=False)
    wanted, found = forging.found.get(verb), _found_by(verb, run, folder)
    if wanted is None:
        return Finding(Outcome.OTHER)
    right = found == wanted
    if verb == "score":  # log Z is the run's exact one, its estimate or a new one, with an error of 0.003
        right = all(abs(mine - other) < 0.02 for mine, other in zip(found, wanted, strict=True))
    return Finding(Outcome.EQUAL if right else Outcome.WRONG, str(ended))


# A file or folder of a run is a link to somewhere else; whatever the verbs do, what lies there stays as it is.


_LOGGER = ["--logger", "tensorboard"] if importlib.util.find_spec("tensorboard") else []
_NEW = shlex.split(
    "figures tensorboard report.html profile.json .lock figures/samples.png evaluation-parts/0"
)


@Campaign(
    "links",
    "a file or folder of a run that is a link to somewhere else, before its verbs",
    bounded=6,
    long=400,
    prepare=lambda folder: _forging(),
)
def links(forging, chosen, number, folder):
    """Something in a run becomes a link out of it, to what it was or to something else, and two verbs follow."""
    run, outside = shutil.copytree(forging.run, folder / "run"), folder / "outside"
    outside.mkdir()
    if chosen.random() < 0.5:  # training has something left to do
        shutil.rmtree(max((run / "checkpoints").iterdir(), key=lambda path: int(path.name[5:])))
    done = _link(run, outside, chosen)
    before, outcome = snapshot(outside), Outcome.EQUAL
    for verb in chosen.sample(list(_VERBS), 2):
        ended = call([*_words(verb, run, folder), *(_LOGGER if verb == "resume" else [])], limit=60)
        if snapshot(outside) != before:
            return Finding(Outcome.LOST, f"{done}\nwritten outside of the run\n{ended}")
        if ended.status != 0:
            outcome, detail, _ = refusal(ended, before=False)
            if outcome != Outcome.REFUSED:
                return Finding(outcome, f"{done}\n{detail}")
    return Finding(outcome)


def _link(run, outside, chosen):
    """Put a link in the place of something; returns what was done."""
    there = [path for path in run.rglob("*") if path.suffix != ".npy"]
    path = chosen.choice([*there, *(path for path in there if path.is_dir()), *(run / name for name in _NEW)])
    path.parent.mkdir(parents=True, exist_ok=True)
    target, kind = outside / path.name, chosen.choice(["moved", "moved", "folder", "file", "dangling"])
    if path.exists() and kind == "moved":
        shutil.move(path, target)
    elif path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
    if kind == "folder":
        target.mkdir()
    if kind == "file":
        target.write_text("the user's")
    if target.is_dir():
        (target / ".tmp-step-3-00000000-1-0123456789abcdef").mkdir()
    path.symlink_to(target)
    return f"{path.relative_to(run)} is a link: {kind}"
