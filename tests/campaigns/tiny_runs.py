"""Small runs that campaigns start from, verbs and what they find in them undamaged, and how runs are compared."""

import atexit
import functools
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from discrete_vae.runs.run_directory import MetricsLog
from discrete_vae.training.state import TIME_METRICS
from tests.campaigns.engine import Finding, Outcome
from tests.campaigns.forked import call
from tests.cli.conftest import TINY

NUM_STEPS = 12
# A step size that overshoots: the best checkpoint is an early one, which only its name in best.json keeps.
SETTINGS = [
    *TINY,
    *("--training.num-epochs", str(NUM_STEPS), "--training.validate-every", "3"),
    *("--training.optimizer.learning-rate", "5"),
]
WRITTEN_BY_READERS = ("evaluation", "log_partition", "figures")  # files and folders that begin so
_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}


def write_data(path):
    """60 images of 3 by 4 binary pixels, in two clusters."""
    noise = np.random.default_rng(0)
    centers = noise.random((2, 12))
    path.parent.mkdir(parents=True, exist_ok=True)
    bits = noise.random((60, 12)) < centers[noise.integers(0, 2, 60)]
    np.save(path, bits.reshape(60, 3, 4))
    return path


def train_words(data, run):
    """The words that begin the run, or go on with it once it is a run."""
    if (run / "config.json").exists():
        return ["train", "--resume", "--run-dir", str(run)]
    return ["train", "--data", str(data), "--run-dir", str(run), *SETTINGS]


def reader_words(verb, run, folder, *more):
    """The words of a command that reads a run; pictures go to a folder of their own."""
    if verb == "sample":
        more = ("--num-rows", "2", "--num-sweeps", "3", "--out", str(folder / "samples.png"), *more)
    if verb == "log-partition":  # a coarse log Z, which is found again as well as a fine one
        more = ("--health-sweeps", "20", "--std-error", "0.1", *more)
    return [verb, str(run), *more]


def found_by(verb, run, folder, step):
    """What such a command found about a step's checkpoint, without what differs from time to time; None if nothing."""
    if verb == "sample":
        return (folder / "samples.png").read_bytes()
    place = "evaluations" if verb == "evaluate" else "log_partitions"
    files = sorted((run / place).glob(f"step-{step}-*.json"))
    return without_times(json.loads(files[0].read_text())) if len(files) == 1 else None


def forget_results(run):
    """Remove what readers wrote."""
    for entry in list(run.iterdir()):
        if entry.name.startswith(WRITTEN_BY_READERS):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return run


def without_times(value):
    """Values of a JSON file but those of time."""
    if isinstance(value, dict):
        # sums are over times, and over moments that no reader needs
        timed = {*TIME_METRICS, "sha256", "checkpoint_sha256"}
        return {name: without_times(part) for name, part in value.items() if name not in timed}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def snapshot(folder, *, without=()):
    """All regular files below a folder, with their bytes; links and pipes are not followed."""
    paths = [path for path in sorted(folder.rglob("*")) if not path.is_symlink() and path.is_file()]
    names = {str(path.relative_to(folder)): path for path in paths if ".tmp-" not in str(path)}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(tuple(without))}


def difference(run, unbroken, *, log=True):
    """Where a finished run differs from the unbroken one; None if it equals it byte for byte, but for times.

    Compared are the config, the name of the best checkpoint, the last and the best checkpoint with weights, chains and
    optimizer, and the log.
    """
    last = f"checkpoints/step-{NUM_STEPS}"
    best = f"checkpoints/step-{json.loads((unbroken / 'best.json').read_text())['step']}"
    files = [f"{place}/{name}" for place in (last, best) for name in ("state.safetensors", "checkpoint.json")]
    for name in ("config.json", "best.json", *files):
        if not (run / name).is_file():
            return f"{name} is missing"
        if (run / name).read_bytes() != (unbroken / name).read_bytes():
            return f"{name} differs"
    logs = [without_times(MetricsLog(each / "metrics.jsonl").read()) for each in (run, unbroken)]
    return "metrics.jsonl differs" if log and logs[0] != logs[1] else None


def kill_when(here, kind=signal.SIGKILL):
    """What makes a forked command send itself a signal before an event of Python's on a path."""

    def first():
        def hook(event, arguments):
            if event in _EVENTS and here(event, " ".join(map(str, arguments[:2]))):
                os.kill(os.getpid(), kind)

        sys.addaudithook(hook)

    return first


def kill_at(run, number, kind=signal.SIGKILL):
    """What makes a forked command send itself a signal at its n-th operation on a file of the run."""
    count = itertools.count(1)
    return kill_when(lambda event, paths: str(run) in paths and next(count) == number, kind)


@dataclass(frozen=True)
class Stage:
    """What the cases start from.

    Attributes:
        data: The data's file.
        unbroken: A run that went to its end.
        interrupted: The same run, killed while it saved its last checkpoint but one.
        other: A finished run with another seed.
        best: The step of the best checkpoint; the newest ones are others.
        steps: The undamaged run that has a step's checkpoint.
    """

    data: Path
    unbroken: Path
    interrupted: Path
    other: Path
    best: int
    steps: dict[int, Path]

    def found(self, verb, step):
        """What a reader of a step's checkpoint finds in the undamaged run."""
        folder, run = self.data.parent, self.steps[step]
        succeed(call(reader_words(verb, run, folder, "--checkpoint", str(step))))
        return found_by(verb, run, folder, step)


def prepare(_folder=None):
    """The runs, made once per process and not to be changed."""
    return _stage()


@functools.cache
def _stage():
    folder = Path(tempfile.mkdtemp(prefix="campaign-runs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    data = write_data(folder / "data" / "flags.npy")
    unbroken, interrupted, other = (folder / name for name in ("unbroken", "interrupted", "other"))
    succeed(call(train_words(data, unbroken)))
    succeed(call([*train_words(data, other), "--seed", "1"]))

    last = f"step-{NUM_STEPS}"
    stop = kill_when(lambda event, path: event == "os.mkdir" and last in path)
    ended = call(train_words(data, interrupted), first=stop)
    assert ended.status == -signal.SIGKILL, ended
    best = json.loads((unbroken / "best.json").read_text())["step"]
    runs = (interrupted, unbroken)
    steps = {int(path.name[5:]): run for run in runs for path in run.glob("checkpoints/step-*")}
    assert best < sorted(steps)[-3], "the best checkpoint would stay without its name in best.json"
    return Stage(data, unbroken, interrupted, other, best, steps)


def trained_in_spite_of(stage, run, faults, wrong):
    """Begin the run and go on with it under one fault after the other, then without one; it is the unbroken run.

    Args:
        stage: What the run is compared with.
        run: Its folder.
        faults: Each as arguments of `call`.
        wrong: What is wrong with a command that failed under a fault; nothing if it failed as it should.
    """
    history, struck = [], False
    for fault in [*faults, {}]:
        ended = call(train_words(stage.data, run), **fault)
        history.append(f"{ended}\n")
        if ended.status != 0 and (not fault or wrong(ended)):
            return Finding(Outcome.CRASHED, f"{''.join(history)}{wrong(ended)}")
        struck |= ended.status != 0
    differs = difference(run, stage.unbroken)
    if differs is not None:
        return Finding(Outcome.WRONG, "".join([*history, differs]))
    return Finding(Outcome.EQUAL, struck=struck)


def read_again(stage, verb, run, folder, first):
    """Read a run after a reader that was stopped or failed; it finds what readers of the undamaged run find."""
    ended = call(reader_words(verb, run, folder))
    if ended.status != 0:
        return Finding(Outcome.CRASHED, f"{first}\n{ended}")
    if found_by(verb, run, folder, stage.best) != stage.found(verb, stage.best):
        return Finding(Outcome.WRONG, f"{first}\n{ended}")
    return Finding(Outcome.EQUAL, struck=first.status != 0)


def succeed(ended):
    assert ended.status == 0, str(ended)


# Every verb that trains nothing.


@dataclass(frozen=True)
class Run:
    """What verbs read.

    Attributes:
        data: The data's file, which has 60 examples.
        run: A finished run of them, evaluated.
        gaps: Examples with gaps.
        labels: A label per example.
        classes: A run of the data with a label of every other example.
    """

    data: Path
    run: Path
    gaps: Path
    labels: Path
    classes: Path


def make_run(folder, do):
    """A run and its files in an empty folder, made by what carries out a command."""
    data = write_data(folder / "data" / "flags.npy")
    stage = Run(data, *(folder / name for name in ("run", "gaps.npy", "labels.npy", "classes")))
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


# Verb -> words after it, and what it writes.
VERBS = {
    "list": ("", None),
    "validate": ("--data {data} --size smoke --settings", None),
    "cite": ("{run}", None),
    "refit": ("{run} --num-steps 3", "refit"),
    "release": ("{run} --license mit --precision float32 --num-samples 2", "released"),
    "evaluate": ("{run} --per-example {out}/rows.csv", "evaluation.json"),
    "log-partition": ("{run} --std-error 0.2 --health-sweeps 20", "log-partition.json"),
    "sample": ("{run} --num-rows 2 --num-sweeps 3", "samples.png"),
    "encode": ("{run} --draw", "codes.npz"),
    "score": ("{run} --num-samples 20 --threshold-from valid", "scores.csv"),
    "predict": ("{classes} --num-samples 10", "classes.npz"),
    "reconstruct": ("{run} --num-draws 2", "x.npz"),
    "denoise": ("{run} --noise 0.1 --num-draws 2", "x.npz"),
    "interpolate": ("{run} --num-pairs 2", "paths.npz"),
    "impute": ("{run} --data {gaps} --num-samples 50 --std-errors {out}/errors.npy", "filled.npz"),
    "generate": ("{run} -n 3 --num-sweeps 5 --label all --labels {labels}", "new.npz"),
    "neighbors": ("{run} -k 3", "neighbors.csv"),
    "figure": ("training-curves {run}", "curves.png"),
    "report": ("{run} --num-examples 10", "report.html"),
}


def words_of(verb, stage, out):
    """The words of a verb that trains nothing; all that it writes goes to an empty folder."""
    words, name = VERBS[verb]
    filled = [word.format(out=out, **vars(stage)) for word in words.split()]
    return [verb, *filled, *([] if name is None else ["--out", str(out / name)])]


def written_by(verb, out):
    """The file or folder that a verb writes."""
    return out / VERBS[verb][1]


def results(said, out):
    """What a verb printed and wrote, without its place and times."""
    found = {}
    for name, content in (snapshot(out) | {"said": said.replace(str(out), "OUT").encode()}).items():
        found[name] = content.replace(str(out).encode(), b"OUT")
        if name.endswith(".json"):
            found[name] = without_times(json.loads(found[name]))
        elif name in ("said", "report.html"):
            found[name] = re.sub(rb"\b[\d.]+ (ms|s|min|h|MiB)\b|[\d.]+ ms per", b"TIME", found[name])
    return found
