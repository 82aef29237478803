"""A table of all kinds of columns by a known law: how far a model with default settings is from that law.

    python benchmarks/mixed_table.py FOLDER [--rows 20000] [--num-samples 1000] [--seed 0]

FOLDER gets table-SEED-ROWS.csv: a class of four and two normal factors make five real columns, five counts, five bits,
five categories of four values and five ranks of five values; a tenth of the cells is empty. `dvae train` makes a model
of it in runs there, unless there is one, which is compared on the test rows:

- log p(x) of what is observed, with the law's own: the sum over classes of a Gauss-Hermite sum over the factors;
- what fills the gaps, with the law's posterior means (numbers) and most probable values (words);
- k-means of the codes' probabilities, with the classes: adjusted mutual information.

Errors are standard errors over rows.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from scipy import special, stats

from discrete_vae import load_run
from discrete_vae.cli import main as dvae
from discrete_vae.data import load_data
from discrete_vae.data.splits import shuffled_rows
from discrete_vae.inference.encode import encode_rows
from discrete_vae.inference.impute import impute
from discrete_vae.inference.score import score_rows
from discrete_vae.log_partition import exact_log_partition
from discrete_vae.records import with_error

CLASSES, FACTORS, OF_EACH, LEVELS = 4, 2, 5, 4
KINDS = ("real", "count", "bit", "word", "rank")
NODES = 24  # of the quadrature, in each factor


class Law:
    """The law of the table: given the class and the factors f, columns are independent."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)

        def drawn(*shape: int, scale: float) -> np.ndarray:
            return scale * random.normal(size=shape)

        def line(columns: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
            return drawn(CLASSES, columns, scale=spread), drawn(FACTORS, columns, scale=0.5)

        self.lines = {
            "real": line(OF_EACH, 1.5),
            "count": line(OF_EACH, 0.8),
            "bit": line(OF_EACH, 2.0),
            "word": line(OF_EACH * LEVELS, 1.5),
            "rank": line(OF_EACH, 2.0),
        }
        self.cuts = np.array([-2.0, -0.7, 0.7, 2.0])
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        self.nodes = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, FACTORS)
        self.log_weights = np.log(np.outer(weights, weights).ravel() / weights.sum() ** 2 / CLASSES)

    def eta(self, kind: str, classes: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """The parameters of the columns of a kind, (row, column) or (row, column * level)."""
        offsets, slopes = self.lines[kind]
        return offsets[classes] + factors @ slopes

    def probabilities(self, kind: str, eta: np.ndarray) -> np.ndarray:
        """Those of the values of bits, words or ranks, (row, column, value)."""
        if kind == "bit":
            return np.stack([special.expit(-eta), special.expit(eta)], -1)
        if kind == "word":
            return special.softmax(eta.reshape(len(eta), OF_EACH, LEVELS), -1)
        below = special.expit(self.cuts - eta[..., None])
        return np.diff(below, prepend=0, append=1, axis=-1)

    def sample(self, rows: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows, (row, column), and their classes."""
        classes, factors = random.integers(0, CLASSES, rows), random.normal(size=(rows, FACTORS))
        columns = []
        for kind in KINDS:
            eta = self.eta(kind, classes, factors)
            if kind == "real":
                columns.append(eta + 0.7 * random.normal(size=eta.shape))
            elif kind == "count":
                columns.append(random.poisson(random.gamma(5.0, np.exp(1 + eta) / 5)))
            else:
                cumulated = self.probabilities(kind, eta).cumsum(-1)
                columns.append((random.random((len(eta), OF_EACH, 1)) > cumulated[..., :-1]).sum(-1))
        return np.concatenate(columns, 1), classes

    def at_nodes(self, x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """log(weight p(observed | node)), (row, node), and what fills each kind at a node, (node, column, ...)."""
        total, values = 0.0, []
        nodes = np.tile(self.nodes, (CLASSES, 1))
        classes = np.repeat(np.arange(CLASSES), len(self.nodes))
        for place, kind in enumerate(KINDS):
            own = x[:, place * OF_EACH : (place + 1) * OF_EACH]
            seen, filled = ~np.isnan(own), np.nan_to_num(own)
            eta = self.eta(kind, classes, nodes)
            for column in range(OF_EACH):
                value = filled[:, column, None]
                if kind == "real":
                    log_prob = stats.norm.logpdf(value, eta[:, column], 0.7)
                elif kind == "count":
                    mean = np.exp(1 + eta[:, column])
                    log_prob = stats.nbinom.logpmf(value, 5.0, 5.0 / (5.0 + mean))
                else:
                    table = np.log(self.probabilities(kind, eta)[:, column])
                    log_prob = table.T[value[:, 0].astype(int)]
                total = total + np.where(seen[:, column, None], log_prob, 0)
            means = {"real": lambda eta=eta: eta, "count": lambda eta=eta: np.exp(1 + eta)}
            values.append(means[kind]() if kind in means else self.probabilities(kind, eta))
        return total + np.tile(self.log_weights, CLASSES), values

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p(observed), (row,), and the best filling of every cell, (row, column)."""
        log_joint, values = self.at_nodes(x)
        log_prob = special.logsumexp(log_joint, 1)
        posterior = np.exp(log_joint - log_prob[:, None])
        filled = [np.tensordot(posterior, value, 1) for value in values]
        return log_prob, np.concatenate([each.argmax(-1) if each.ndim == 3 else each for each in filled], 1)


def make(path: Path, law: Law, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write the table; returns all values, which cells are empty, and the classes."""
    random = np.random.default_rng([seed, 1])
    x, classes = law.sample(rows, random)
    gaps = random.random(x.shape) < 0.1
    x[:, :OF_EACH] = x[:, :OF_EACH].round(4)
    names = [f"{kind}_{column}" for kind in KINDS for column in range(OF_EACH)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row, empty in zip(x, gaps, strict=True):
            cells = [f"{value:.4f}" if place < OF_EACH else f"{value:.0f}" for place, value in enumerate(row)]
            for place in range(3 * OF_EACH, 4 * OF_EACH):
                cells[place] = "abcd"[int(row[place])]
            writer.writerow(["" if gap else cell for cell, gap in zip(cells, empty, strict=True)])
    return x, gaps, classes


def losses(x: np.ndarray, filled: np.ndarray, gaps: np.ndarray) -> tuple[float, float]:
    """Root mean square error of numbers in deviations of their column, and the share of wrong words, in the gaps."""
    numbers = np.arange(x.shape[1]) < 2 * OF_EACH
    scaled = ((filled - x) / x.std(0))[:, numbers]
    wrong = (filled != x)[:, ~numbers]
    return float(np.sqrt((scaled[gaps[:, numbers]] ** 2).mean())), float(wrong[gaps[:, ~numbers]].mean())


def main() -> None:
    """Make the table, train, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--num-samples", type=int, default=1000)
    parser.add_argument("--num-rows", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    law = Law(given.seed)
    table = given.folder / f"table-{given.seed}-{given.rows}.csv"
    x, gaps, classes = make(table, law, given.rows, given.seed)
    run = given.folder / "runs" / table.stem
    if not run.exists() and dvae(["train", "--data", str(table), "--run-dir", str(run)]):
        raise SystemExit("training failed")
    loaded = load_run(run)
    dataset = load_data(loaded.config)
    held_out = len(dataset.test), len(dataset.valid)
    rows = shuffled_rows(given.rows, *held_out, loaded.config.data.split_seed)[0][: given.num_rows]
    test = dataset.test[: given.num_rows]
    own, best = law.evaluate(np.where(gaps, np.nan, x)[rows])
    log_z = float(exact_log_partition(loaded.model.prior))
    scores = score_rows(loaded.model, test, log_partition=log_z, num_samples=given.num_samples)
    lead = own - scores.value
    print(f"log p(observed): the law {with_error(own.mean(), own.std() / len(own) ** 0.5, 3)} nats per row")
    print(f"  the model is {with_error(lead.mean(), lead.std() / len(own) ** 0.5, 3)} below")
    filled = impute(loaded.model, test).filled
    for name, guess in (("the law", best), ("the model", filled)):
        number, word = losses(x[rows], guess, gaps[rows])
        print(f"gaps filled by {name}: numbers {number:.4f} deviations, words {100 * word:.2f} % wrong")
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_mutual_info_score

    codes = encode_rows(loaded.model, test).probabilities
    found = KMeans(CLASSES, n_init=10, random_state=0).fit_predict(codes)
    print(f"classes by k-means of the codes: {adjusted_mutual_info_score(classes[rows], found):.3f}")


if __name__ == "__main__":
    main()
