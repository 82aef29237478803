"""A mixture whose parts are products of the kinds of columns that a likelihood has, fitted by EM to rows with gaps.

A part has a frequency for each value of a column of words, ranks or bits; a mean and a deviation of each real column,
on the scale that the likelihood found and with its floor; a mean and a size of each column of counts. Gaps are left out
of the product. Each part is drawn to the whole table, by so many rows like it as its strength says. Validation rows
choose the number of parts, the strength, the start, and the step of EM.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import gammaln, logsumexp
from sklearn.cluster import KMeans

from discrete_vae.data.splits import DataSplits
from discrete_vae.likelihoods import (
    GaussianLikelihood,
    Likelihood,
    NegativeBinomialLikelihood,
    TableLikelihood,
)
from discrete_vae.likelihoods.table import ConstantLikelihood

PARTS, STRENGTHS, STARTS, STEPS = (1, 2, 4, 8, 16, 32), (0.1, 1.0, 5.0), 2, 150
SIZES = np.geomspace(0.01, 1e4, 61)  # of counts


@dataclass
class Rows:
    """Rows of a table as the mixture reads them."""

    hot: np.ndarray  # which value of a column of words or counts a cell has, (row, value), 0 in gaps
    y: np.ndarray  # standard units of real columns, (row, column), 0 in gaps
    seen: np.ndarray  # where y is observed, (row, column)
    slopes: np.ndarray  # sum of log dy/dx over observed cells, (row,)


class Columns:
    """The columns of a likelihood: of values, each of which has a probability, and of real numbers."""

    def __init__(self, likelihood: Likelihood, data: DataSplits) -> None:
        kinds = [(likelihood, np.arange(likelihood.num_features))]
        if isinstance(likelihood, TableLikelihood):
            cuts = np.cumsum([kind.num_features for kind in likelihood.kinds])[:-1]
            kinds = list(zip(likelihood.kinds, np.split(likelihood.by_kind.numpy(), cuts), strict=True))
        self.likelihood = likelihood
        self.reals = [pair for pair in kinds if isinstance(pair[0], GaussianLikelihood)]
        every = torch.cat([data.train, data.valid, data.test]).double().numpy()
        self.numbers = np.zeros(every.shape[1], bool)  # whether a column holds real numbers or counts
        of, found, counted = [], [], []
        for kind, places in kinds:
            is_count = isinstance(kind, NegativeBinomialLikelihood)
            self.numbers[places] = is_count or isinstance(kind, GaussianLikelihood)
            if isinstance(kind, GaussianLikelihood | ConstantLikelihood):
                continue
            levels = [np.arange(size) for size in getattr(kind, "num_categories", (2,) * len(places))]
            for place, own in zip(places, levels, strict=True):
                values = np.unique(every[~np.isnan(every[:, place]), place]) if is_count else own
                of += [place] * len(values)
                found += values.tolist()
                counted += [is_count] * len(values)
        # of each value, one column after the other, (value,): its column of the table, itself, whether it is a count
        self.of, self.values = np.array(of, int), np.array(found, float)
        self.counted = np.array(counted, bool)
        self.starts = np.flatnonzero(np.diff(self.of, prepend=-1))
        widths = np.diff(self.starts, append=len(of)) if of else self.starts
        self.column = np.repeat(np.arange(len(self.starts)), widths)  # number of the block of each value
        # the values of each column
        self.blocks = [slice(first, first + width) for first, width in zip(self.starts, widths, strict=True)]
        floors = [
            getattr(kind, "floor", torch.full((len(own),), kind.min_scale)).numpy()
            for kind, own in self.reals
        ]
        # least deviation of each real column, standard units
        self.floor = np.concatenate([*floors, np.empty(0)])
        self.rising = gammaln(self.values[:, None] + SIZES) - gammaln(SIZES)

    def inputs(self, x: torch.Tensor) -> np.ndarray:
        """What the encoder reads of rows of the table, (row, input)."""
        law = deepcopy(self.likelihood).double()
        return law.network_input(x.double().nan_to_num(0.0), ~x.isnan()).numpy()

    def read(self, x: torch.Tensor) -> Rows:
        """Rows of the table, gaps NaN."""
        x = x.double()
        hot = (x.numpy()[:, self.of] == self.values).astype(np.float32)
        ys, masks, slopes = [np.zeros((len(x), 0))], [np.zeros((len(x), 0))], np.zeros(len(x))
        for kind, places in self.reals:
            mask = ~x[:, places].isnan() & ~kind.standardizer.constant
            own = x[:, places].nan_to_num(0.0)
            y = kind.standardizer(own if kind.tails is None else kind.tails(own))
            slope = -kind.standardizer.divisor.double().log().expand_as(own)
            slope = slope if kind.tails is None else slope + kind.tails.log_slope(own)
            ys.append(y.masked_fill(~mask, 0).numpy())
            masks.append(mask.double().numpy())
            slopes += slope.masked_fill(~mask, 0).sum(1).numpy()
        return Rows(hot, np.concatenate(ys, 1), np.concatenate(masks, 1), slopes)

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """Sums over the values of each column, (part, column), from (part, value)."""
        if not len(self.starts):
            return np.zeros((len(weights), 0))
        return np.add.reduceat(weights, self.starts, axis=1)

    def count_law(self, counts: np.ndarray, totals: np.ndarray, firsts: np.ndarray) -> np.ndarray:
        """log of negative binomials at the values, (part, value): mean of the counts, most likely of 61 sizes."""
        mean = np.maximum(firsts / totals, 1e-6)
        rising = np.stack([self.sums(counts * column) for column in self.rising.T], -1)
        n, s = totals[..., None], firsts[..., None]
        rest = n * SIZES * np.log(SIZES) - (n * SIZES + s) * np.log(SIZES + mean[..., None])
        best = (rising + rest).argmax(-1)[:, self.column]
        size, mean = SIZES[best], mean[:, self.column]
        found = np.take_along_axis(self.rising, best.T, 1).T - gammaln(self.values + 1)
        return found + size * np.log(size / (size + mean)) + self.values * np.log(mean / (size + mean))


@dataclass
class Mixture:
    """Parameters of the parts, (part, ...)."""

    log_weights: np.ndarray  # (part,)
    log_probs: np.ndarray  # of each value
    count_means: np.ndarray  # of each column of values
    means: np.ndarray  # of each real column, standard units
    variances: np.ndarray  # likewise

    @classmethod
    def of(cls, columns: Columns, rows: Rows, share: np.ndarray, strength: float) -> Mixture:
        """The M-step, from the share of each part in each row, (row, part)."""
        whole = rows.hot.sum(0)[None] + 0.5
        base = whole / columns.sums(whole)[:, columns.column]
        counts = share.T @ rows.hot + strength * base
        totals, firsts = columns.sums(counts), columns.sums(counts * columns.values)
        log_probs = np.log(counts / totals[:, columns.column])
        if columns.counted.any():
            log_probs = np.where(columns.counted, columns.count_law(counts, totals, firsts), log_probs)
        n = share.T @ rows.seen + strength
        means = share.T @ rows.y / n
        variances = np.maximum((share.T @ rows.y**2 + strength) / n - means**2, columns.floor**2)
        weights = share.sum(0) + 1
        return cls(np.log(weights / weights.sum()), log_probs, firsts / totals, means, variances)

    def parts(self, rows: Rows) -> np.ndarray:
        """log(weight) + log p(observed | part), (row, part)."""
        inverse = 1 / self.variances
        square = rows.y**2 @ inverse.T - 2 * rows.y @ (self.means * inverse).T
        square += rows.seen @ (self.means**2 * inverse + np.log(2 * np.pi * self.variances)).T
        return self.log_weights + rows.hot @ self.log_probs.T - 0.5 * square + rows.slopes[:, None]

    def log_prob(self, rows: Rows) -> np.ndarray:
        """log p(observed), (row,)."""
        return logsumexp(self.parts(rows), 1)

    def share(self, rows: Rows) -> np.ndarray:
        """p(part | observed), (row, part): the E-step."""
        logs = self.parts(rows)
        return np.exp(logs - logsumexp(logs, 1, keepdims=True))

    def fill(self, columns: Columns, x: torch.Tensor) -> np.ndarray:
        """Means of numbers and most probable values of words in every cell, (row, column)."""
        share = self.share(columns.read(x))
        filled = np.zeros(tuple(x.shape))
        probabilities, counts = share @ np.exp(self.log_probs), share @ self.count_means
        for column, block in enumerate(columns.blocks):
            best = columns.values[block][probabilities[:, block].argmax(1)]
            filled[:, columns.of[block.start]] = counts[:, column] if columns.counted[block.start] else best
        first = 0
        for kind, places in columns.reals:
            own = slice(first, first + len(places))
            scale = kind.standardizer.scale.double()
            mean = kind.standardizer.location + scale * torch.from_numpy(self.means[:, own])
            std = scale * torch.from_numpy(self.variances[:, own]).sqrt()
            mean = mean if kind.tails is None else kind.tails.mean_of(mean, std)
            filled[:, places] = share @ mean.numpy()
            first += len(places)
        return filled


def fit(columns: Columns, data: DataSplits) -> tuple[Mixture, int]:
    """The mixture that validation rows like best, and its number of parts."""
    rows, held_out, inputs = columns.read(data.train), columns.read(data.valid), columns.inputs(data.train)
    best, chosen, parts = -np.inf, None, 0
    for count in PARTS:
        for seed in range(STARTS if count > 1 else 1):
            near = KMeans(count, n_init=1, max_iter=1 if seed else 300, random_state=seed).fit_predict(inputs)
            for strength in STRENGTHS:
                share, before = 0.8 * np.eye(count)[near] + 0.2 / count, -np.inf
                for _ in range(STEPS):
                    found = Mixture.of(columns, rows, share, strength)
                    level = found.log_prob(held_out).mean()
                    if level > best:
                        best, chosen, parts = level, found, count
                    now = found.log_prob(rows).mean()
                    if now < before + 1e-4:
                        break
                    share, before = found.share(rows), now
    assert chosen is not None
    return chosen, parts


def clusters(columns: Columns, x: torch.Tensor, start: np.ndarray) -> np.ndarray:
    """The part of each row, (row,), of a mixture fitted to these rows from clusters, (row,) from 0."""
    rows, share = columns.read(x), np.eye(start.max() + 1)[start]
    for _ in range(STEPS):
        share = Mixture.of(columns, rows, share, 1.0).share(rows)
    return share.argmax(1)
