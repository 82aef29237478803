"""Gaps of a table of real values, in nats: a model of it against other densities, and against the law that made it.

    python benchmarks/table_imputation.py FOLDER [--num-samples 2000] [--num-rows 500] [--seed 0]

FOLDER gets table-SEED.csv, 5,000 made-up rows of 45 columns of 8 kinds, twelve of them log-normal, with a tenth of the
cells empty, and runs/table-SEED, what `dvae train` makes of it with a Gaussian likelihood; what is there is taken. Test
rows, which no density was fitted to, are judged by log p(values in the gaps | observed values), the values of a row
together, as densities in the units of the table:

- the model: log p(x) - log p(x_observed), each by importance samples;
- the model's draws: log of the mean over weighted draws of p(gaps | latents), the law that `dvae impute` fills gaps by;
- independent columns: a normal density each, and the kernel density whose width validation rows like best;
- nearest neighbors: a mixture of Gaussian kernels around the training rows, weighed by Gaussian kernels of the distance
  in the observed columns; validation rows choose both widths. What a neighbor lacks has the column's normal density;
- one Gaussian of all columns, fitted to the training rows with their gaps by EM;
- the law that made the table, the best that there can be.

All but the first normal density get the columns on the scales of asinh that the model found, with their slopes. Errors
are standard errors over rows, and differences are of the same rows.
"""

from __future__ import annotations

import argparse
import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from imputation import by_model, with_error
from torch import Tensor

from discrete_vae import load_run
from discrete_vae.cli import main as dvae
from discrete_vae.data.splits import shuffled_rows
from discrete_vae.inference.impute import GappedRow
from discrete_vae.likelihoods.families import GaussianLikelihood
from discrete_vae.model import DiscreteVAE
from discrete_vae.objectives.importance import ImportanceSampler
from discrete_vae.rng import key_to_seed

ROWS, COLUMNS, LONG, KINDS, FACTORS = 5000, 45, 12, 8, 4
TEST = VALID = ROWS // 10
KERNELS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4)
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of Gaussians: log_weights (part,), means (part, column), covariances (part, column, column)."""

    log_weights: Tensor
    means: Tensor
    covariances: Tensor

    def parts(self, y: Tensor, seen: Tensor) -> Tensor:
        """log(weight) + log-density of the entries that are seen, (row, part); y and seen (row, column)."""
        found = [part.log_prob for part in self._conditionals(y, seen)]
        return self.log_weights + torch.stack(found, 1)

    def log_prob(self, y: Tensor, seen: Tensor) -> Tensor:
        """Log-density of the entries that are seen, (row,)."""
        return torch.logsumexp(self.parts(y, seen), 1)

    def given(self, y: Tensor, seen: Tensor, gaps: Tensor) -> Tensor:
        """Log-density of what is in the gaps given what is seen, (row,)."""
        return self.log_prob(y, seen | gaps) - self.log_prob(y, seen)

    def refined(self, y: Tensor, seen: Tensor, ridge: float = 1e-3) -> Mixture:
        """One step of EM on rows with gaps."""
        found = self._conditionals(y, seen, spread=True)
        share = torch.softmax(self.log_weights + torch.stack([part.log_prob for part in found], 1), 1)
        means, covariances = [], []
        for weight, part in zip(share.T, found, strict=True):
            total = weight.sum()
            mean = (weight[:, None] * part.filled).sum(0) / total
            centered = part.filled - mean
            spread = (weight[:, None] * centered).T @ centered + torch.einsum("r,rij->ij", weight, part.left)
            means.append(mean)
            covariances.append(spread / total + ridge * torch.eye(len(mean), dtype=y.dtype))
        return Mixture((share.mean(0)).log(), torch.stack(means), torch.stack(covariances))

    def _conditionals(self, y: Tensor, seen: Tensor, *, spread: bool = False) -> list[_Conditional]:
        parts = zip(self.means, self.covariances, strict=True)
        return [_conditional(*part, y, seen, spread=spread) for part in parts]


@dataclass(frozen=True, eq=False)
class _Conditional:
    log_prob: Tensor  # of what is seen, (row,)
    filled: Tensor  # rows with their gaps at the mean given what is seen, (row, column)
    left: Tensor  # covariance of the gaps given what is seen, (row, column, column), where it was asked for


def _conditional(mean: Tensor, covariance: Tensor, y: Tensor, seen: Tensor, *, spread: bool) -> _Conditional:
    kept = seen.to(y.dtype)
    both = kept[:, :, None] * kept[:, None, :]
    # that of what is seen, 1 on the diagonal elsewhere
    block = covariance * both + torch.diag_embed(1 - kept)
    lower = torch.linalg.cholesky(block)
    centered = torch.where(seen, y - mean, 0.0)
    solved = torch.cholesky_solve(centered[:, :, None], lower)[:, :, 0]
    log_det = 2 * lower.diagonal(dim1=1, dim2=2).log().sum(1)
    log_prob = -0.5 * (centered * solved).sum(1) - 0.5 * log_det - _HALF_LOG_TWO_PI * kept.sum(1)
    across = covariance * kept[:, None, :]  # from all columns to those that are seen
    filled = torch.where(seen, y, mean + (kept * solved) @ covariance)
    if not spread:
        return _Conditional(log_prob, filled, torch.empty(0))
    gaps = 1 - kept
    left = covariance - across @ torch.cholesky_solve(across.transpose(1, 2), lower)
    return _Conditional(log_prob, filled, left * gaps[:, :, None] * gaps[:, None, :])


@dataclass(frozen=True, eq=False)
class Law:
    """What makes the table: y of a mixture, and x = shift + scale y, or scale exp(y) in the columns that are long."""

    mixture: Mixture
    shift: Tensor
    scale: Tensor
    is_long: Tensor

    def given(self, x: Tensor, seen: Tensor, gaps: Tensor) -> Tensor:
        """Log-density of what is in the gaps, in units of x, given what is seen, (row,)."""
        y = torch.where(self.is_long, (x / self.scale).log(), (x - self.shift) / self.scale)
        slopes = torch.where(self.is_long, -x.log(), -self.scale.log())
        return self.mixture.given(y, seen, gaps) + torch.where(gaps, slopes, 0.0).sum(1)


def made_up(seed: int) -> tuple[Law, Tensor, Tensor, Tensor]:
    """The law, whole rows (row, column), where gaps are, and the kind of each row."""
    random = np.random.default_rng(seed)
    means = 0.8 * random.normal(size=(KINDS, COLUMNS))
    loads = 0.35 * random.normal(size=(KINDS, COLUMNS, FACTORS))
    noise = 0.35
    kind = random.integers(0, KINDS, ROWS)
    factors = random.normal(size=(ROWS, FACTORS))
    y = means[kind] + np.einsum("rcf,rf->rc", loads[kind], factors)
    y += noise * random.normal(size=(ROWS, COLUMNS))
    is_long = np.arange(COLUMNS) >= COLUMNS - LONG
    scale = 10.0 ** random.uniform(-3, 4, COLUMNS)
    shift = np.where(is_long, 0.0, scale * random.normal(size=COLUMNS))
    x = np.where(is_long, scale * np.exp(y), shift + scale * y)
    covariances = loads @ loads.transpose(0, 2, 1) + noise**2 * np.eye(COLUMNS)
    weights = torch.full((KINDS,), -math.log(KINDS), dtype=torch.float64)
    mixture = Mixture(weights, torch.from_numpy(means), torch.from_numpy(covariances))
    gaps = random.random(x.shape) < 0.1
    law = Law(mixture, *(torch.from_numpy(array) for array in (shift, scale, is_long)))
    return law, torch.from_numpy(x), torch.from_numpy(gaps), torch.from_numpy(kind)


def write_table(path: Path, x: Tensor, gaps: Tensor, kind: Tensor) -> None:
    """The table as a user has it."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sample", *(f"m{number}" for number in range(COLUMNS)), "kind"])
        for number, (row, empty) in enumerate(zip(x.tolist(), gaps.tolist(), strict=True)):
            cells = ["" if gap else f"{value:.7g}" for value, gap in zip(row, empty, strict=True)]
            writer.writerow([f"s{number}", *cells, f"kind {int(kind[number])}"])


@dataclass(frozen=True, eq=False)
class Scaled:
    """Rows on the scale that other densities are fitted on."""

    y: Tensor  # (row, column), standardized by the training rows
    slopes: Tensor  # log dy/dx, (row, column)
    seen: Tensor  # what is observed
    gaps: Tensor  # what is to be found

    def in_units(self, nats: Tensor) -> Tensor:
        """Log-densities of y in the gaps, (row,), as those of x."""
        return nats + torch.where(self.gaps, self.slopes, 0.0).sum(1)


def scaled(
    likelihood: GaussianLikelihood, x: Tensor, gaps: Tensor, rows: dict[str, np.ndarray]
) -> dict[str, Scaled]:
    """Rows by part, columns with long tails on the likelihood's scales."""
    tails = likelihood.tails
    y = x if tails is None else tails(x)
    slopes = torch.zeros_like(x) if tails is None else tails.log_slope(x)
    known = y[rows["train"]].masked_fill(gaps[rows["train"]], torch.nan)
    mean = known.nanmean(0)
    scale = (known - mean).square().nanmean(0).sqrt()
    y, slopes = (y - mean) / scale, slopes - scale.log()
    return {name: Scaled(y[of], slopes[of], ~gaps[of], gaps[of]) for name, of in rows.items()}


def log_normal(difference: Tensor, width: float = 1.0) -> Tensor:
    """Log-density of Normal(0, width)."""
    return -0.5 * (difference / width).square() - math.log(width) - _HALF_LOG_TWO_PI


def by_columns(train: Scaled, of: Scaled, width: float | None) -> Tensor:
    """Independent columns: a normal density each, or a kernel density of some width."""
    if width is None:
        return of.in_units(torch.where(of.gaps, log_normal(of.y), 0.0).sum(1))
    total = torch.zeros(len(of.y), dtype=of.y.dtype)
    for column in range(of.y.shape[1]):
        around = train.y[train.seen[:, column], column]
        rows = of.gaps[:, column]
        kernels = log_normal(of.y[rows, column][:, None] - around, width)
        total[rows] += torch.logsumexp(kernels, 1) - math.log(len(around))
    return of.in_units(total)


def by_neighbors(train: Scaled, of: Scaled, near: float, width: float) -> Tensor:
    """A mixture of kernels around training rows, weighed by their distance in what is observed."""
    found = []
    for y, seen, gaps in zip(of.y, of.seen, of.gaps, strict=True):
        weights, inside = (
            torch.where(train.seen[:, of], log_normal(y[of] - train.y[:, of], wide), log_normal(y[of])).sum(1)
            for of, wide in ((seen, near), (gaps, width))
        )
        found.append(torch.logsumexp(weights + inside, 0) - torch.logsumexp(weights, 0))
    return of.in_units(torch.stack(found))


def fitted(train: Scaled, num_steps: int = 8) -> Mixture:
    """One Gaussian of all columns, fitted by EM."""
    size = train.y.shape[1]
    eye = torch.eye(size, dtype=train.y.dtype)
    found = Mixture(torch.zeros(1, dtype=eye.dtype), torch.zeros(1, size, dtype=eye.dtype), eye[None])
    for _ in range(num_steps):
        found = found.refined(torch.where(train.seen, train.y, 0.0), train.seen)
    return found


def baselines(
    likelihood: GaussianLikelihood, x: Tensor, gaps: Tensor, rows: dict[str, np.ndarray]
) -> dict[str, Tensor]:
    """Nats of the test rows, by the other densities; widths are those that validation rows like best."""
    plain = scaled(GaussianLikelihood(likelihood.event_shape), x, gaps, rows)
    of = scaled(likelihood, x, gaps, rows)
    train, valid, test = (of[part] for part in ("train", "valid", "test"))
    narrow = max(KERNELS, key=lambda width: float(by_columns(train, valid, width).mean()))
    pairs = [(near, width) for near in (0.7, 1.0, 1.4) for width in (0.2, 0.3, 0.4, 0.55)]
    few = Scaled(valid.y[:100], valid.slopes[:100], valid.seen[:100], valid.gaps[:100])
    near, width = max(pairs, key=lambda pair: float(by_neighbors(train, few, *pair).mean()))
    print(
        f"kernels of columns: {narrow}; of neighbors: {near} in what is observed, {width} in gaps", flush=True
    )
    return {
        "independent columns, normal, on their own scales": by_columns(plain["train"], plain["test"], None),
        "independent columns, normal": by_columns(train, test, None),
        "independent columns, kernels": by_columns(train, test, narrow),
        "nearest neighbors, kernels": by_neighbors(train, test, near, width),
        "one Gaussian of all columns": test.in_units(fitted(train).given(test.y, test.seen, test.gaps)),
    }


def model_nats(
    model: DiscreteVAE, importance_sampler: ImportanceSampler, x: Tensor, gaps: Tensor, num_samples: int
) -> tuple[dict[str, Tensor], Tensor]:
    """Nats of rows by the model, and the effective samples of their draws."""
    difference, drawn, ess = [], [], []
    for number, (row, empty) in enumerate(zip(x.float(), gaps, strict=True)):
        one = GappedRow(row[None], ~empty[None], key_to_seed(0, number))
        found = by_model(model, importance_sampler, one, num_samples, 500)
        batch = model.check_batch(row[None], exact=True, keys=[key_to_seed(1, number)])
        weights = importance_sampler.log_weights(batch, num_samples, 500)[:, 0]
        difference.append(float(torch.logsumexp(weights, 0)) - math.log(len(weights)) - found.log_seen)
        drawn.append(found.joint["the model"])
        ess.append(found.ess)
        if number % 50 == 49:
            print(f"{number + 1} rows", flush=True)
    named = {"the model": difference, "the model's draws": drawn}
    return {name: torch.tensor(nats).double() for name, nats in named.items()}, torch.tensor(ess)


@torch.no_grad()
def check_units(likelihood: GaussianLikelihood) -> float:
    """By how much the densities of the columns, in the table's units and in float64, miss an integral of 1 at most."""
    worst = 0.0
    for mean in (-2.0, 0.0, 2.0):
        parameters = torch.full((1, *likelihood.event_shape), mean, dtype=torch.float64)
        law = likelihood.distribution(parameters)
        y = torch.linspace(-9, 9, 4001, dtype=torch.float64)[:, None]
        y = law.loc + law.scale * y
        x = y if likelihood.tails is None else likelihood.tails.invert(y)
        density = likelihood.feature_log_prob(parameters, x).exp()
        worst = max(worst, float((torch.trapezoid(density, x, dim=0) - 1).abs().max()))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--num-samples", type=int, default=2000)
    parser.add_argument("--num-rows", type=int, default=TEST)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table = options.folder / f"table-{options.seed}.csv"
    run = options.folder / "runs" / table.stem
    law, x, gaps, kind = made_up(options.seed)
    options.folder.mkdir(parents=True, exist_ok=True)
    if not table.exists():
        write_table(table, x, gaps, kind)
    if not run.exists():
        words = ["--model.likelihood", "gaussian"]
        words += ["--data.ignored-columns", "sample", "--data.label-column", "kind"]
        assert dvae(["train", "--data", str(table), *words, "--run-dir", str(run)]) == 0
    loaded = load_run(run)
    model, likelihood = loaded.model, loaded.model.likelihood
    assert isinstance(likelihood, GaussianLikelihood)
    test, valid, train = shuffled_rows(ROWS, TEST, VALID, loaded.config.data.split_seed)
    rows = {"train": train, "valid": valid, "test": test[: options.num_rows]}
    of_test, empty = x[rows["test"]], gaps[rows["test"]]
    likelihood.double()
    print(f"densities of columns integrate to 1 but for {check_units(likelihood):.1e}", flush=True)
    found = baselines(likelihood, x, gaps, rows)
    found["the law that made the table"] = law.given(of_test, ~empty, empty)
    with torch.no_grad(), model.float().importance_sampler(0.0) as importance_sampler:
        ours, ess = model_nats(model, importance_sampler, of_test, empty, options.num_samples)
    print(
        f"\n{len(of_test)} test rows with {int(empty.sum())} gaps, {options.num_samples} draws, effective samples: "
        f"median {float(ess.median()):.1f}\n"
    )
    print("| density | nats per row | the model's lead |\n| --- | ---: | ---: |")
    for name, nats in {**found, **ours}.items():
        print(f"| {name} | {with_error(nats)} | {with_error(ours['the model'] - nats)} |")


if __name__ == "__main__":
    main()
