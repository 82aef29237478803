"""A file of a run is damaged; then its readers and training go on with what is there."""

import re
import shutil
from pathlib import Path

from tests.campaigns import damage
from tests.campaigns.engine import Campaign, Finding, Outcome, refusal
from tests.campaigns.forked import call
from tests.campaigns.tiny_runs import (
    WRITTEN_BY_READERS,
    difference,
    forget_results,
    found_by,
    prepare,
    reader_words,
    snapshot,
    train_words,
)


@Campaign(
    "run-folders",
    "a file of a run damaged, removed, replaced or forged, before evaluation, sampling and resumption",
    bounded=2,
    long=1000,
    prepare=prepare,
)
def run_folders(stage, chosen, number, folder):
    """Two readers and a resumption of a damaged copy of a run; the worst of what they did counts."""
    source = chosen.choice([stage.unbroken, stage.interrupted])
    run = forget_results(shutil.copytree(source, folder / "run"))
    done = _damage(run, stage, chosen)
    findings = []
    for _ in range(2):
        verb = chosen.choice(["evaluate", "sample", "log-partition"])
        findings.append(_read(stage, verb, chosen.choice(["best", "last"]), run, folder))
    findings.append(_resume(stage, run, done))
    worst = max(findings, key=lambda found: list(Outcome).index(found.outcome))
    if any(found.outcome == Outcome.REFUSED for found in findings) and worst.outcome == Outcome.EQUAL:
        worst = Finding(Outcome.REFUSED)
    return worst._replace(detail=f"{source.name}: {done}\n{worst.detail}")


def _damage(run, stage, chosen):
    """Damage one file of a run; returns what was done."""
    if chosen.random() < 0.2:
        return damage.forge(chosen.choice(sorted((run / "checkpoints").iterdir())), chosen)
    # a killed run leaves its empty lock, of which nothing is read
    name = chosen.choice(sorted(set(snapshot(run, without=WRITTEN_BY_READERS)) - {".lock"}))
    file = run / name
    kind = chosen.random()
    if kind < 0.1 and "checkpoints" in name:
        shutil.rmtree(file.parent)
        return f"{Path(name).parent} removed"
    if kind < 0.3 and file.suffix == ".json":
        file.write_bytes(damage.alter_json(file.read_bytes(), chosen))
        return f"alter_json {name}: {file.read_bytes()[:1500]!r}"
    if kind < 0.4 and (stage.other / name).is_file():
        shutil.copyfile(stage.other / name, file)
        return f"swap {name}"
    if kind < 0.6:
        replace = chosen.choice(damage.KINDS)
        replace(file)
        return f"{replace.__name__} {name}"
    return f"{damage.alter_bytes(file, chosen)} {name}"


def _read(stage, verb, checkpoint, run, folder):
    before = snapshot(run, without=WRITTEN_BY_READERS)
    steps = [int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*")]
    ended = call(reader_words(verb, run, folder, "--checkpoint", checkpoint), limit=20)
    if snapshot(run, without=WRITTEN_BY_READERS) != before:
        return Finding(Outcome.LOST, str(ended))
    if ended.status != 0:
        return _refused(ended, run)
    step = stage.best if checkpoint == "best" else max(steps, default=None)
    if step is not None and found_by(verb, run, folder, step) == stage.found(verb, step):
        return Finding(Outcome.EQUAL)
    return Finding(Outcome.OTHER if "warning: " in ended.err else Outcome.WRONG, f"another result\n{ended}")


def _resume(stage, run, done):
    before = snapshot(run)
    ended = call(train_words(stage.data, run), limit=20)
    after = snapshot(run)
    treasure = (f"checkpoints/step-{stage.best}/", "config.json")
    if any(after.get(name) != before[name] for name in before if name.startswith(treasure)):
        return Finding(Outcome.LOST, f"the best checkpoint or the config is gone or changed\n{ended}")
    if ended.status != 0:
        lost = [name for name in before if after.get(name) != before[name] and not _is_pruned(name, after)]
        return Finding(Outcome.LOST, f"{lost} lost\n{ended}") if lost else _refused(ended, run)
    differs = difference(run, stage.unbroken, log="metrics" not in done)
    if differs is None:
        return Finding(Outcome.EQUAL)
    of_best = f"step-{stage.best}/" in differs  # forged with right sums, or damaged and said so
    told = of_best and (done.startswith("forged") or "warning: " in ended.err)
    return Finding(Outcome.OTHER if told else Outcome.WRONG, f"{differs}\n{ended}")


def _is_pruned(name, after):
    """Whether a file may go: no checkpoint's, or one's that two newer ones have followed."""
    found = re.match(r"checkpoints/step-(\d+)/", name)
    newer = set(re.findall(r"^checkpoints/step-(\d+)/state", "\n".join(after), re.MULTILINE))
    return found is None or sum(int(step) > int(found[1]) for step in newer) >= 2


def _refused(ended, run):
    found = refusal(ended, before=False)
    if found.outcome == Outcome.REFUSED and str(run) not in ended.err:
        return Finding(Outcome.CRASHED, f"does not name the file\n{ended}")
    return found
