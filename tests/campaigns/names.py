"""A table, its columns, its labels and a run have names that terminals, TeX, browsers or spreadsheets would obey."""

import csv
import re
import shutil

import numpy as np

from tests.campaigns.engine import Campaign, Finding, Outcome
from tests.campaigns.forked import call, refusal_fault
from tests.campaigns.tiny_runs import SETTINGS

_PIECES = (
    *("$a$", "$\\frac{", "$", "\\$x$", "$$", "^_{", "%", "\\"),
    *("\x1b[31m", "\x1b]0;title\x07", "\x1b[2J", "\x9b1m", "\x07", "\x08", "\x7f", "\u202e", "\u2028"),
    *("=1+1", "+x", "-y", "@sum", "=cmd|' /C calc'!A1", "'=q", "''-q", "-", "=", "-1.5e3", "\uff1d1"),
    *("<b>", "&amp;", '"', "'", "`", "| a |", "a, b", "; c", "name", "ζ", "\u4e2d", " "),
)
_COMPUTED = re.compile(r"\s*[=+@\uff1d\uff0b\uff0d\uff20-].", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", re.IGNORECASE)
_VERBS = {
    "encode": "--out {folder}/out.csv --picture {folder}/out.png",
    "score": "--out {folder}/out.csv --num-samples 3",
    "reconstruct": "--out {folder}/out.csv",
    "generate": "-n 2 --num-sweeps 2 --label all --out {folder}/out.csv --picture {folder}/out.svg",
    "neighbors": "-k 2 --out {folder}/out.csv",
    "impute": "--data {data} --out {folder}/out.csv --num-samples 10 --num-rounds 1 --mask {folder}/mask.npy",
    "evaluate": "",
    "sample": "--num-rows 2 --num-sweeps 2",
    "log-partition": "--health-sweeps 20",
    "report": "",
    "release": "--out {folder}/released --license mit --precision float32",
}


@Campaign(
    "names",
    "a table, columns, labels and a run with names that terminals, TeX, browsers or spreadsheets would obey",
    bounded=2,
    long=300,
)
def names(stage, chosen, number, folder):
    """Train on such a table, then three verbs of the run; what is written and printed is read as it would be shown."""
    data, run = folder / f"{_name(chosen)}.csv", folder / _name(chosen)
    if run == data.with_suffix(""):
        run = folder / "run"
    columns, kinds = _names(chosen, 5), _names(chosen, 2)
    with data.open("w", newline="", encoding="utf-8") as file:
        bits = np.random.default_rng(number).integers(0, 2, (60, 4)).tolist()
        rows = [[*row, kinds[place % 2]] for place, row in enumerate(bits)]
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([columns, *rows])
    np.save(folder / "mask.npy", np.eye(60, 4, dtype=bool))
    words = [f"--data={data}", f"--run-dir={run}", f"--data.label-column={_read(columns[4])}"]
    said = [call(["train", *words, *SETTINGS])]
    if said[0].status == 2:
        wrong = refusal_fault(said[0]) or _obeyed(said[0].out + said[0].err)
        return Finding(Outcome.REFUSED) if wrong is None else Finding(Outcome.CRASHED, f"{wrong}\n{said[0]}")
    for verb in chosen.sample(sorted(_VERBS), 3):
        if verb == "release":
            said.append(call(["evaluate", str(run)]))
        more = [word.format(folder=folder, data=data) for word in _VERBS[verb].split()]
        said.append(call([verb, str(run), *more]))
        wrong = None if said[-1].status == 0 else "a verb failed"
        table = "out.csv" in _VERBS[verb] and verb != "impute"  # which gives the user's own file back
        wrong = wrong or (_computed(folder / "out.csv") if table else None)
        if wrong is None and verb == "generate":
            words = ["encode", str(run), "--data", f"{folder}/out.csv"]
            said.append(call([*words, "--out", f"{folder}/again.npz"]))
            wrong = "the library does not read its own names"
            if said[-1].status == 0:
                with np.load(folder / "again.npz") as again:
                    read = {str(label) for label in again["label"]}
                wrong = None if read == set(map(_read, kinds)) else f"it reads the labels {read}"
        if wrong is not None:
            return Finding(Outcome.CRASHED, f"{wrong}\n{said[-1]}")
    pages = [path for pattern in ("report.html", "README.md", "*.svg") for path in folder.rglob(pattern)]
    texts = [each.out + each.err for each in said] + [path.read_text("utf-8") for path in pages]
    wrong = next(filter(None, map(_obeyed, texts)), None)
    shutil.rmtree(run)
    if wrong is not None:
        return Finding(Outcome.WRONG, wrong + "".join(map(str, said)))
    return Finding(Outcome.EQUAL)


def _name(chosen):
    name = "".join(chosen.choices(_PIECES, k=chosen.randint(1, 3)))
    return name.replace("/", "").strip(".\u2028 ") or "name"


def _names(chosen, count):
    """Different names, the first one no number."""
    found = {"name": "name"}
    while len(found) < count:
        name = _name(chosen)
        found.setdefault(_read(name), name)
    return list(found.values())


def _read(name):
    """What the library calls a column that a file calls so."""
    return name[1:] if re.match(r"''*\s*[=+@\uff1d\uff0b\uff0d\uff20-].", name, re.DOTALL) else name


def _computed(path):
    """A cell that a spreadsheet would compute; None if there is none."""
    with path.open(newline="", encoding="utf-8") as file:
        for cell in (cell for row in csv.reader(file) for cell in row):
            if _COMPUTED.match(cell) and not _NUMBER.fullmatch(cell):
                return f"the cell {cell!r}"
    return None


def _obeyed(text):
    """What a terminal would obey; None if there is nothing."""
    found = re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]", text)
    if found is None:
        return None
    return f"the character {found[0]!r} in {text[max(0, found.start() - 80) :][:160]!r}\n"
