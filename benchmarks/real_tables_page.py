"""The page of benchmarks/real_tables.py."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results import table

HEAD = """# Real tables

Models of `dvae train --data FILE` with nothing else set, beside simpler methods, on tables that Python packages ship.
`benchmarks/real_tables.py` makes the tables, the figures and this page. A tenth of the rows is for the test, a tenth
for validation, the same ones for all methods. Classes are left out of the tables. Time is the processor's, of one
thread.
"""
NATS = """## Log-likelihood

log p(x) of what is observed, nats per test row, densities in the units of the table. *Columns*: each column alone,
with the law that fits it. *Mixture*: parts are products of the same kinds of columns (`benchmarks/mixture.py`).
*Model*: 1,000 importance samples, exact log Z. Leads are means of differences in the same rows, with standard errors.
"""
FILL = """## Cells filled

A tenth of the observed test cells is hidden. Error of numbers: root mean square, in deviations of their column. Words,
ranks and bits: share of wrong ones. *Columns*: mean, or most frequent word. *Neighbors*: scikit-learn's `KNNImputer`
on standardized columns and a unit for each word, their number by validation.
"""
CLASSES = """## Classes found

Adjusted mutual information of the classes that came with a table, which no method sees, with as many clusters of all
rows. Clusters are by k-means: of standardized columns (of genes: equal totals, logarithms), of their first ten
principal components, of the codes' probabilities, of these and the means of the Gaussian layer. Those of the mixture
are its parts, fitted from k-means.
"""
SECONDS = """## Time

Seconds of the five commands with the file alone, of all fits of the mixture, and of neighbors and `impute` on the test
rows above. The start of a command takes five of them.
"""
CELLS = """## Counts beside scvi-tools

The cells again, with `--model.likelihood negative-binomial --model.likelihood.exposure total`: log p(x given the total
of the row), beside scvi-tools {version} with its defaults. It has as much of the processor's time, and stops early by
the same validation rows. *Bound*: its ELBO. *Log-likelihood*: 1,000 importance samples of either. *AMI*: k-means of
what stands for a row, with the cell types, as above.
"""
MANY = """## Never worse than independent columns

`benchmarks/own_tables.py`: {count} of its 200 tables, the others being refused, of {low:,} to {high:,} rows for
training and {few} to {most:,} columns, with the defaults and seed 0. Half of them are pydataset's. Where no trained
checkpoint is clearly better in validation, training returns the model of independent columns: *kept*. Leads are over
independent columns on test rows, judged by two standard errors; seconds are the processor's, of training alone.
"""
ALARMS = """
`benchmarks/false_alarms.py`: {count} small made tables, each judged by a thousand rows, in many validation parts.
A *false alarm* keeps a checkpoint that is worse than independent columns on all of these rows, a *gain* one that is
better, for tables which have one; in brackets the table with most alarms. The rule is that of the bound alone. *Old*: a
lead beyond one standard error.
"""
METHODS = ("columns", "neighbors", "mixture", "model")
POINTS = ("k-means", "PCA", "mixture", "codes", "codes and layer")
VERBS = ("train", "score", "encode", "impute", "report")


def text(value: float | None, form: str) -> str:
    """A figure, or nothing."""
    return "" if value is None else format(value, form)


def group(key: str) -> str:
    """Where a table of own_tables.py is from."""
    made = key.startswith(("made", "bits", "categories", "counts", "mixed", "factors", "reals"))
    return "made, independent" if "independent" in key else "made, dependent" if made else "real"


def many(found: Mapping[str, Any]) -> str:
    """The section about all tables of own_tables.py."""
    rows: list[list[str]] = []
    found = {key: each for key, each in found.items() if "=" not in key}  # those with the defaults
    done = {key: each for key, each in found.items() if "refused" not in each}
    for name in ("real", "made, dependent", "made, independent"):
        own = [each for key, each in done.items() if group(key) == name]
        ratios = [each["lead"] / each["lead_std_error"] for each in own if each["best_step"]]
        seconds = sorted(each["seconds"] for each in own) or [0.0]
        better, worse = (sum(sign * ratio > 2 for ratio in ratios) for sign in (1, -1))
        counts = [len(own), len(own) - len(ratios), better, len(ratios) - better - worse, worse]
        rows.append([name, *map(str, counts), f"{seconds[len(seconds) // 2]:.0f}", f"{seconds[-1]:.0f}"])
    sizes, columns = ([each[key] for each in done.values()] for key in ("rows", "columns"))
    words = MANY.format(count=len(done), low=min(sizes), high=max(sizes), few=min(columns), most=max(columns))
    head = ["tables", "number", "kept", "better", "within error", "worse", "seconds, median", "most"]
    lost = [
        [key, f"{each['lead']:+.2f} ± {each['lead_std_error']:.2f}", str(each["best_step"])]
        for key, each in done.items()
        if each["best_step"] and each["lead"] < -2 * each["lead_std_error"]
    ]
    refused = [
        f"- {key}: {each['refused'].splitlines()[0]}" for key, each in found.items() if "refused" in each
    ]
    parts = [words, table(head, rows)]
    parts += [table(["worse", "lead", "best step"], lost)] if lost else []
    parts += ["Refused:", *refused] if refused else []
    return "\n\n".join(part.strip() for part in parts)


def alarms(found: Mapping[str, Any]) -> str:
    """The section about false alarms."""
    rows = []
    for name, sign in (("independent", True), ("dependent", False)):
        own = [each for key, each in found.items() if ("strength 0.0" in key) == sign]
        for size in (5, 10, 16, 30):
            shown = [f"{name} ({len(own)})", str(size)]
            for rule in ("rule", "one standard error"):
                shares = [each[f"{rule}, {size} rows"] for each in own]
                gains = [gain for each, (_, gain) in zip(own, shares, strict=True) if each["lead"] > 0]
                false = [alarm for alarm, _ in shares]
                shown.append(f"{sum(false) / len(false):.1%} ({max(false):.1%})")
                shown.append(f"{sum(gains) / len(gains):.0%}" if gains else "")
            rows.append(shown)
    head = ["columns (tables)", "validation rows", "false alarms", "gains", "false alarms, old", "gains, old"]
    return ALARMS.format(count=len(found)).strip() + "\n\n" + table(head, rows)


def page(folder: Path, tables: Mapping[str, Sequence[Any]]) -> str:
    """The page of results, of those tables that have some; each table has its package and what it is."""
    about, nats, fills, classes, seconds, machines = [], [], [], [], [], set[str]()
    for name, (package, words, *_) in tables.items():
        if not (file := folder / f"{name}.json").exists():
            continue
        found = json.loads(file.read_text())
        kinds = ", ".join(f"{count} {kind}" for kind, count in found["kinds"].items())
        about.append([name, words, package, f"{sum(found['rows']):,}", kinds, f"{found['gaps']:.1%}"])
        alone, parts, model = (found["nats"][key] for key in ("columns", "mixture", "model"))
        leads = [f"{lead:+.2f} ± {error:.2f}" for _, lead, error in (alone, parts)]
        best = f"{parts[0]:.2f} ({found['parts']})"
        nats.append([name, f"{alone[0]:.2f}", best, f"{model[0]:.2f}", *leads])
        numbers, wrong = zip(*(found["fill"][key] for key in METHODS), strict=True)
        fills.append([name, *(text(each, ".3f") for each in numbers), *(text(each, ".1%") for each in wrong)])
        if own := found.get("classes"):
            classes.append([name, *(text(own.get(each), ".2f") for each in POINTS)])
        machine = found["seconds"].get("machine", "The machine of some times is not known.")
        machines.add(re.sub(r", load [\d.]+ at the start|; \d{4}-\d\d-\d\d", "", machine))
        spent = [found["seconds"].get(verb) for verb in VERBS]
        spent += [sum(each or 0 for each in spent), found["seconds"]["mixture"], *found["fill"]["seconds"]]
        seconds.append([name, *(text(each, ".1f") for each in spent)])
    filled = [f"{kind}: {name}" for kind in ("numbers", "words") for name in METHODS]
    spent = [*VERBS, "all five", "mixture", "neighbors", "impute, test"]
    sections = [
        HEAD + "\n" + " ".join(sorted(machines)),
        table(["table", "what", "package", "rows", "columns", "gaps"], about),
        NATS,
        table(
            ["table", "columns", "mixture (parts)", "model", "lead over columns", "over the mixture"], nats
        ),
        FILL,
        table(["table", *filled], fills),
        CLASSES,
        table(["table", *POINTS], classes),
        SECONDS,
        table(["table", *spent], seconds),
    ]
    for name, section in (("own_tables", many), ("false_alarms", alarms)):
        sections.append(section(json.loads(Path(__file__).with_name(f"{name}.json").read_text())))
    if (file := folder / "scvi.json").exists():
        found = json.loads(file.read_text())
        rows = []
        for name, own in (("model", found), *((f"scvi-tools, {law}", found[law]) for law in ("nb", "zinb"))):
            nats = own.get("log-likelihood", found["model"][0])
            lead = "{:+.1f} ± {:.1f}".format(*own["lead"]) if "lead" in own else ""
            figures = [f"{own['bound']:.1f}", f"{nats:.1f}", lead, f"{own['AMI']:.2f}"]
            rows.append([name, *figures, f"{own['seconds']:.0f}"])
        alone, lead, error = found["columns"]
        rows.append(["independent genes", "", f"{alone:.1f}", f"{lead:+.1f} ± {error:.1f}", "", ""])
        sections.append(CELLS.format(version=found["version"]))
        sections.append(table(["", "bound", "log-likelihood", "the model's lead", "AMI", "seconds"], rows))
    return "\n".join(f"{section.strip()}\n" for section in sections)
