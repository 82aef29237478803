"""A file or folder of a run is a link to somewhere else; whatever the verbs do, what lies there stays as it is."""

from __future__ import annotations

import importlib.util
import random
import shutil
from pathlib import Path

from tests.campaigns import forged_results
from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.campaigns.forged_results import Forging, words
from tests.campaigns.forked import call, refusal_fault

_LOGGER = ["--logger", "tensorboard"] if importlib.util.find_spec("tensorboard") else []
_NEW = (
    "figures",
    "tensorboard",
    "report.html",
    "profile.json",
    ".lock",
    "figures/samples.png",
    "evaluation-parts/0",
)


def case(forging: Forging, chosen: random.Random, number: int, folder: Path) -> Finding:
    """Something in a run becomes a link out of it, to what it was or to something else, and two verbs follow."""
    run, outside = shutil.copytree(forging.run, folder / "run"), folder / "outside"
    outside.mkdir()
    if chosen.random() < 0.5:  # training has something left to do
        shutil.rmtree(max((run / "checkpoints").iterdir(), key=lambda path: int(path.name[5:])))
    done = _link(run, outside, chosen)
    before = _everything(outside)
    refused = False
    for verb in chosen.sample(forged_results.VERBS, 2):
        ended = call([*words(verb, run, folder), *(_LOGGER if verb == "resume" else [])], limit=60)
        if _everything(outside) != before:
            return Finding(Outcome.LOST, f"{done}\nwritten outside of the run\n{ended}")
        if ended.status != 0:
            wrong = refusal_fault(ended, before=False)
            if wrong is not None:
                return Finding(Outcome.CRASHED, f"{done}\n{wrong}\n{ended}")
            refused = True
    return Finding(Outcome.REFUSED if refused else Outcome.EQUAL)


def _link(run: Path, outside: Path, chosen: random.Random) -> str:
    """Put a link in the place of something; returns what was done."""
    there = [path for path in run.rglob("*") if path.suffix != ".npy"]
    path = chosen.choice([*there, *(path for path in there if path.is_dir()), *(run / name for name in _NEW)])
    path.parent.mkdir(parents=True, exist_ok=True)
    target, kind = outside / path.name, chosen.choice(["moved", "moved", "folder", "file", "dangling"])
    if path.is_dir():
        shutil.move(path, target) if kind == "moved" else shutil.rmtree(path)
    elif path.exists():
        shutil.move(path, target) if kind == "moved" else path.unlink()
    if kind == "folder":
        target.mkdir()
    if kind == "file":
        target.write_text("the user's")
    if target.is_dir():
        (target / ".tmp-step-3-00000000-1-0123456789abcdef").mkdir()
    path.symlink_to(target)
    return f"{path.relative_to(run)} is a link: {kind}"


def _everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


CAMPAIGN = Campaign(
    name="links",
    what="a file or folder of a run that is a link to somewhere else, before its verbs",
    bounded=12,
    long=400,
    prepare=forged_results.prepare_forging,
    case=case,
)
