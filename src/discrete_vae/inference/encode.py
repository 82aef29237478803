"""Codes of examples, the nearest codes, and examples as a trained model gives them back, also freed of noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import int64, uint64
from torch import Tensor

from discrete_vae.checks import check_number, check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.hierarchy.base import Gaussian
from discrete_vae.inference.rows import CentralNoise, Report, RowNoise, check_numbers, in_batches
from discrete_vae.kernels.loops import ChunkLoop, threads_for
from discrete_vae.likelihoods.base import BernoulliLikelihood, Statistic, check_statistic
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.modes import eval_mode
from discrete_vae.posterior import Posterior
from discrete_vae.records import ShowsShapes
from discrete_vae.rng import NoiseSource, keyed_generator, open_uniform
from discrete_vae.sparse import Examples
from discrete_vae.system import check_memory

_SAMPLE_STREAM, _ENCODE_STREAM, _RECONSTRUCT_STREAM = 0x736D706C, 0x656E636F, 0x72656373
_DENOISE_STREAM, _FLIP_STREAM = 0x64656E6F, 0x666C6970
_FLIPPED = 4096  # rows at a time, each of which has a generator


# Latents of a batch: the most probable code, or draws with noise of each example's own.


@dataclass(frozen=True, eq=False, repr=False)
class Latents(ShowsShapes):
    """Latents of a batch."""

    z: Tensor  # (batch, unit), in {0,1}
    zeta: Tensor  # (batch, unit)
    logits: Tensor  # log-odds of each unit given x and the earlier groups, (batch, unit)
    h: Tensor  # the continuous layers, (batch, layer, unit)
    decoder_input: Tensor  # what the decoder reads of them, (batch, decoder_size)
    layers_given_zeta: Gaussian  # p(h_m | h_<m, zeta) at h, (batch, layer, unit)
    # log p(h | zeta) - log q(z, h | zeta, x), (batch,), nats: with log p(z) and log p(x | zeta, h) the importance
    # weight of a draw
    log_ratio: Tensor


def most_probable(model: DiscreteVAE, features: Tensor) -> Latents:
    """The most probable code of a batch, group after group, given what `DiscreteVAE.features_of` makes of x.

    Each group's bits are the most probable ones given x and the groups before it, whose zeta are the medians of
    r(zeta|z) at their bits; among all codes this one need not be the most probable. Each Gaussian layer is the mean of
    q(h_m | h_<m, zeta, x) at the means before it.
    """
    posterior = model.posterior
    if type(posterior).sample_discretely is Posterior.sample_discretely:
        rule, received = "must have sample_discretely for a most probable code", type(posterior).__name__
        raise InvalidInputError("model.posterior", rule, received, "Give it that method, or take draws.")
    central: Any = CentralNoise()
    features, log_q = model.with_drawn_label(features, generator=central)
    halves = features.new_full((1, len(features), posterior.num_units), 0.5)
    sample = posterior.sample_discretely(features, halves, generator=central)
    binary = sample.z[0], sample.zeta[0], sample.logits[0], sample.log_prob()[0]
    return _with_layers(model, features, binary, log_q, central)


def drawn(model: DiscreteVAE, features: Tensor, noise: NoiseSource) -> Latents:
    """A draw of all latents of a batch from the posterior."""
    source: Any = noise
    features, log_q = model.with_drawn_label(features, generator=source)
    sample = model.posterior.rsample(features, generator=source)
    binary = sample.z, sample.zeta, sample.logits, sample.log_prob()
    return _with_layers(model, features, binary, log_q, source)


def _with_layers(
    model: DiscreteVAE,
    features: Tensor,
    binary: tuple[Tensor, Tensor, Tensor, Tensor],
    log_q: Tensor | None,  # log q(y | x), (batch, class)
    noise: Any,
) -> Latents:
    z, zeta, logits, log_prob = binary
    if log_q is not None:  # the units of a label that is drawn
        of_label = z[:, : log_q.shape[1]]
        log_prob = log_prob + (of_label * log_q).sum(-1)
        alone = torch.eye(log_q.shape[1], dtype=torch.bool, device=log_q.device)
        # of the other classes, finite where q rounds to 1
        others = log_q.unsqueeze(-2).masked_fill(alone, -torch.inf).logsumexp(-1)
        logits = torch.cat([log_q - others, logits[:, log_q.shape[1] :]], 1)
    model._check_finite("the posterior network's logits", logits)
    below = model.hierarchy.rsample(features, model.hierarchy.with_condition(zeta, features), generator=noise)
    h = model._check_finite("the posterior's h", below.h)
    return Latents(z, zeta, logits, h, below.decoder_input, below.prior, below.log_ratio() - log_prob)


def _sample_of(model: DiscreteVAE, parameters: Tensor, numbers: Sequence[int], seed: int) -> Tensor:
    """A draw of p(x | zeta, h) for each example, (batch, *event); their numbers key the noise."""
    # on the CPU, so that it is the same on every device
    likelihood, rows = deepcopy(model.likelihood).cpu(), parameters.cpu().split(1)
    noise = (keyed_generator(seed, _SAMPLE_STREAM, number) for number in numbers)
    drawn = [likelihood.sample(row, generator=each) for row, each in zip(rows, noise, strict=True)]
    return torch.cat(drawn).to(parameters.device)


# Codes of examples.


@dataclass(frozen=True, eq=False, repr=False)
class Codes(ShowsShapes):
    """Codes of examples, a row each.

    Attributes:
        probabilities: q(z_i = 1 | x, zeta of the earlier groups), (row, unit) float32.
        bits: The code, (row, unit) uint8 in {0,1}.
        packed: `numpy.packbits` of bits along the units: the first unit is the highest bit of the first byte; (row,
            byte) uint8.
        zeta: The smoothed latents that the decoder reads, (row, unit) float32.
        continuous: The Gaussian layers, (row, layer, unit) float32; no layer where the model has none.
    """

    probabilities: np.ndarray
    bits: np.ndarray
    packed: np.ndarray
    zeta: np.ndarray
    continuous: np.ndarray

    def arrays(self) -> dict[str, np.ndarray]:
        """All of them by name, the layers only where there are some."""
        found = {name: getattr(self, name) for name in ("probabilities", "bits", "packed", "zeta")}
        return found | ({"continuous": self.continuous} if self.continuous.shape[1] else {})


def encode_rows(
    model: DiscreteVAE,
    x: Examples,
    *,
    condition: Tensor | None = None,
    draw: bool = False,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> Codes:
    """The most probable code of each example, see `most_probable`, or a draw from q(z, zeta, h | x).

    Args:
        model: The model.
        x: (row, feature) or (row, *event), in the likelihood's domain; NaN marks missing values.
        condition: c of p(x | c), (row, column), or (1, column) for all rows, of a model that has one.
        draw: Draw from the posterior.
        seed: Seed of the draws.
        numbers: As in `discrete_vae.inference.rows.in_batches`.
        batch_size: Likewise.
        report: Likewise.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=6, num_right=6)))
        >>> codes = encode_rows(model, torch.eye(6))
        >>> codes.bits.shape, codes.packed.shape, codes.continuous.shape
        ((6, 12), (6, 2), (6, 0, 0))
        >>> bool((np.unpackbits(codes.packed, axis=1, count=12) == codes.bits).all())
        True
    """
    with eval_mode(model) as model:

        def compute(batch: Tensor, rows: Sequence[int], c: Tensor | None) -> dict[str, Tensor]:
            features = model.features_of(*model.preprocess(batch, None), c)
            noise = RowNoise(rows, seed, _ENCODE_STREAM)
            found = drawn(model, features, noise) if draw else most_probable(model, features)
            return {
                "probabilities": torch.sigmoid(found.logits.float()),
                "bits": found.z.to(torch.uint8),
                "zeta": found.zeta.float(),
                "continuous": found.h.float(),
            }

        found = in_batches(
            model, x, compute, conditions=[condition], numbers=numbers, batch_size=batch_size, report=report
        )
    return Codes(packed=np.packbits(found["bits"], axis=1), **found)


# Examples as the model gives them back.


def reconstruct_rows(
    model: DiscreteVAE,
    x: Examples,
    *,
    condition: Tensor | None = None,
    decoder_condition: Tensor | None = None,
    statistic: Statistic = "mean",
    num_draws: int = 1,
    code: bool = False,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> np.ndarray:
    """E[x | zeta, h] of each example for latents of its own, or another statistic of p(x | zeta, h).

    Codes and binary columns of tables have no mean: there "mean" is the most probable value, by probabilities that are
    averaged over the draws.

    Args:
        model: The model.
        x: (row, feature) or (row, *event), in the likelihood's domain; NaN marks missing values, which are filled.
        condition: As in `encode_rows`.
        decoder_condition: The c that the decoder reads, likewise: the rows as they would be under another one. None is
            the rows' own.
        statistic: "mean", "mode" or "sample", see `discrete_vae.DiscreteVAE.decode`.
        num_draws: Draws of the latents, over which means are averaged; 1 for a mode or a sample.
        code: Take the latents of the most probable code, as `encode_rows` gives them, in place of draws.
        seed: Seed of the draws.
        numbers: As in `discrete_vae.inference.rows.in_batches`.
        batch_size: Likewise.
        report: Likewise.

    Returns:
        (row, *event) float32.

    Examples:
        >>> from discrete_vae.config import ModelConfig, RBMConfig
        >>> model = DiscreteVAE.from_config(ModelConfig(num_features=6, prior=RBMConfig(num_left=2, num_right=2)))
        >>> reconstruct_rows(model, torch.eye(6), num_draws=3).shape
        (6, 6)
    """
    check_statistic(statistic)
    if check_positive_int("num_draws", num_draws) > 1 and (statistic != "mean" or code):
        what = "a code, which is not drawn" if code else f"a {statistic}: those of several draws have no mean"
        raise InvalidInputError("num_draws", f"must be 1 for {what}", num_draws, "Leave it out.")
    conditions = [condition, condition if decoder_condition is None else decoder_condition]
    with eval_mode(model) as model:

        def compute(batch: Tensor, rows: Sequence[int], *given: Tensor | None) -> dict[str, Tensor]:
            c, decoded = given
            opened, observed = model.preprocess(batch, None)
            features = model.features_of(opened, observed, c)
            likelihood, total = model.likelihood, torch.zeros(())
            for number in range(num_draws):
                noise = RowNoise(rows, seed, _RECONSTRUCT_STREAM, number)
                latents = most_probable(model, features) if code else drawn(model, features, noise)
                latent = latents.decoder_input
                if decoded is not None:
                    zeta = model.with_condition(latents.zeta, decoded)
                    latent = model.hierarchy.decoder_input(zeta, latents.h)
                parameters = likelihood.at_exposure(model.parameters_of(latent), opened, observed)
                if statistic == "mean":
                    found = likelihood.expected_statistics(parameters)
                elif statistic == "mode":
                    found = likelihood.mode(parameters)
                else:
                    found = _sample_of(model, parameters, rows, seed)
                total = total + model._check_finite(f"the decoder's {statistic}", found).float()
            total = total / num_draws
            found = likelihood.point_estimate(total, total)[0] if statistic == "mean" else total
            return {"x": likelihood.with_exposure(found, opened)}

        return in_batches(
            model, x, compute, conditions=conditions, numbers=numbers, batch_size=batch_size, report=report
        )["x"]


# Examples freed of noise.


_REPAIR = "Give the share of bits that are flipped, 0.1 say."


def flip_bits(x: Tensor, share: float, *, seed: int = 0, numbers: Sequence[int] | None = None) -> Tensor:
    """Flip each bit with a probability; missing values stay missing.

    Args:
        x: (row, feature), bits.
        share: The probability, from 0 to 1/2.
        seed: Seed of the noise.
        numbers: Numbers of the rows, which key it; None means from 0.
    """
    check_number("share", share, at_least=0.0, at_most=0.5, repair=_REPAIR)
    known, flipped = check_numbers(numbers, len(x)), x.clone()
    for first in range(0, len(x), _FLIPPED):
        rows = flipped[first : first + _FLIPPED]
        noise: Any = RowNoise(known[first : first + _FLIPPED], seed, _FLIP_STREAM)
        rows.copy_(torch.where(open_uniform(rows, generator=noise) < share, 1 - rows, rows))
    return flipped


def denoise_rows(
    model: DiscreteVAE,
    x: Tensor,
    *,
    condition: Tensor | None = None,
    noise: float | None = None,
    num_draws: int = 20,
    seed: int = 0,
    numbers: Sequence[int] | np.ndarray | None = None,
    batch_size: int | None = None,
    report: Report | None = None,
) -> np.ndarray:
    """The mean of clean examples given noisy ones.

    Without a probability of flips it is E[x | zeta, h], averaged over draws of the latents from the posterior of the
    noisy example: the reconstruction.

    With one it is Bayes' rule for bits y_i = x_i that were each flipped with probability f. Draws are weighted by
    p(y | zeta, h) p(z, h | zeta) / q(z, h | zeta, y), where p(y_i | zeta, h) has the flips in it, and each gives
    E[x_i | y_i, zeta, h].

    Codes and binary columns of tables are the most probable ones, as in `reconstruct_rows`.

    The arguments are those of `reconstruct_rows`: x are the noisy examples, and ``num_draws`` the draws of the latents
    per example. ``noise`` is f, above 0 and at most 1/2, for models of bits; None does not know it.

    Returns:
        (row, *event) float32.
    """
    check_positive_int("num_draws", num_draws)
    likelihood = model.likelihood
    if noise is not None:
        check_number("noise", noise, above=0.0, at_most=0.5, repair=_REPAIR)
        if not isinstance(likelihood, BernoulliLikelihood):
            rule = "must be left out for a model of other values than bits"
            raise InvalidInputError("noise", rule, f"{noise:g}", "Give noisy examples alone.")
    with eval_mode(model) as model:

        def compute(batch: Tensor, rows: Sequence[int], c: Tensor | None) -> dict[str, Tensor]:
            opened, observed = model.preprocess(batch, None, exact=noise is not None)
            features = model.features_of(opened, observed, c)
            total = torch.tensor(0.0, device=opened.device)
            log_total = torch.full((len(opened),), -torch.inf, dtype=torch.float64, device=opened.device)
            for number in range(num_draws):
                latents = drawn(model, features, RowNoise(rows, seed, _DENOISE_STREAM, number))
                parameters = model.parameters_of(latents.decoder_input)
                mean = likelihood.expected_statistics(likelihood.at_exposure(parameters, opened, observed))
                weight = torch.zeros(len(opened), dtype=torch.float64, device=opened.device)
                if noise is not None:
                    mean, of_noisy = _clean(mean, opened, observed, noise)
                    of_latents = latents.log_ratio - model.prior.compute_energy(latents.z)
                    weight = of_noisy.double() + of_latents.double()
                mean = model._check_finite("the decoder's mean", mean).float()
                log_total = torch.logaddexp(log_total, weight)
                share = (weight - log_total).exp().float().reshape(-1, *[1] * (mean.dim() - 1))
                total = total + share * (mean - total)  # the weighted mean of the draws so far
            return {"x": likelihood.with_exposure(likelihood.point_estimate(total, total)[0], opened)}

        return in_batches(
            model, x, compute, conditions=[condition], numbers=numbers, batch_size=batch_size, report=report
        )["x"]


def _clean(mean: Tensor, y: Tensor, observed: Tensor | None, flips: float) -> tuple[Tensor, Tensor]:
    """E[x_i | y_i, zeta, h] and log p(y | zeta, h) over the observed bits."""
    seen = y if observed is None else torch.where(observed, y, 0.0)
    if_one = torch.where(seen == 1, 1 - flips, flips)  # p(y_i | x_i = 1)
    of_bit = mean * if_one + (1 - mean) * (1 - if_one)
    cleaned, logs = mean * if_one / of_bit, of_bit.log()
    if observed is not None:
        cleaned, logs = torch.where(observed, cleaned, mean), logs.masked_fill(~observed, 0.0)
    return cleaned, logs.flatten(1).sum(1)


# Examples whose codes are nearest in Hamming distance.


_WORD = 8  # bytes
_BLOCK = 4096  # codes that stay in the cache while all queries pass over them
_FAR = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False, repr=False)
class Neighbors(ShowsShapes):
    """The nearest codes of each query, nearest first; of codes equally far the one with the lower index first.

    Attributes:
        indices: Their places among the codes that were searched, (query, neighbor) int64.
        distances: Units in which they differ from the query, (query, neighbor) int32.
    """

    indices: np.ndarray
    distances: np.ndarray


def nearest_codes(
    queries: np.ndarray,
    among: np.ndarray,
    num_neighbors: int,
    *,
    excluded: np.ndarray | None = None,
    report: Callable[[int], None] | None = None,
) -> Neighbors:
    """Search packed codes exhaustively: every distance is computed, so nothing is missed.

    Args:
        queries: (query, byte) uint8, as `discrete_vae.inference.encode.encode_rows` packs codes.
        among: (row, byte) uint8, the codes that are searched.
        num_neighbors: Neighbors of each query, from 1 to the number of rows.
        excluded: For each query the place of a row that is none of its neighbors, (query,) integers, such as its own;
            -1 for none. None excludes nothing.
        report: Called now and then with the number of rows that are searched.

    Examples:
        >>> codes = np.packbits([[0, 0, 0], [1, 1, 1], [0, 0, 1]], axis=1)
        >>> found = nearest_codes(codes[:1], codes, 3)
        >>> found.indices.tolist(), found.distances.tolist()
        ([[0, 2, 1]], [[0, 1, 3]])
    """
    for name, codes in (("queries", queries), ("among", among)):
        if (codes.ndim, codes.dtype, codes.shape[-1:]) != (2, np.uint8, among.shape[-1:]) or not codes.size:
            rule = f"must hold packed codes, (row, {among.shape[-1]} bytes) uint8"
            received = f"shape {codes.shape} of {codes.dtype}"
            raise InvalidInputError(name, rule, received, "Take `packed` of the encoding.")
    most = len(among) - (excluded is not None)
    if check_positive_int("num_neighbors", num_neighbors) > most:
        rule, repair = f"must be at most {most}, the rows that are searched", "Ask for fewer."
        raise InvalidInputError("num_neighbors", rule, num_neighbors, repair)
    check_memory("num_neighbors", 12 * len(queries) * num_neighbors, "Ask for fewer neighbors.")
    skipped = np.full(len(queries), -1, np.int64) if excluded is None else np.asarray(excluded, np.int64)
    if skipped.shape != (len(queries),):  # the loop looks at no bounds
        rule, repair = f"must be one place for each of {len(queries)} queries", "Give -1 for none."
        raise InvalidInputError("excluded", rule, f"shape {skipped.shape}", repair)
    distances = np.full((len(queries), num_neighbors), _FAR, np.int32)
    indices = np.full(distances.shape, -1, np.int64)
    words, searched = _words(queries), _words(among)
    for first in range(0, len(searched), _BLOCK):
        block = searched[first : first + _BLOCK]
        threads = threads_for(len(words) * len(block) * words.shape[1])
        _SEARCH(threads, words, block, first, skipped, distances, indices)
        if report is not None:
            report(first + len(block))
    return Neighbors(indices, distances)


def _words(packed: np.ndarray) -> np.ndarray:
    """The same bits as whole words, with zeros behind the last; (row, word) uint64."""
    padded = np.pad(packed, ((0, 0), (0, -packed.shape[1] % _WORD)))
    return np.ascontiguousarray(padded).view(np.uint64)


def _search(share: Any) -> Callable[..., int]:
    """The loop over queries: a sorted list for each, into which nearer rows are put as they come."""

    def search(
        queries: Any, among: Any, first: int, skipped: Any, distances: Any, indices: Any
    ) -> int:  # pragma: no cover, since it is compiled
        num_words, last = queries.shape[1], distances.shape[1] - 1
        for query in share(len(queries)):
            for row in range(len(among)):
                distance = int64(0)
                for word in range(num_words):
                    # sums of bits in pairs, fours and bytes; the product adds the bytes up in the highest one
                    x = queries[query, word] ^ among[row, word]
                    x = x - ((x >> uint64(1)) & uint64(0x5555555555555555))
                    x = (x & uint64(0x3333333333333333)) + ((x >> uint64(2)) & uint64(0x3333333333333333))
                    x = (x + (x >> uint64(4))) & uint64(0x0F0F0F0F0F0F0F0F)
                    distance += int64((x * uint64(0x0101010101010101)) >> uint64(56))
                # rows come in ascending order: one as far as the last of the list does not displace it
                if distance < distances[query, last] and first + row != skipped[query]:
                    place = last
                    while place > 0 and distances[query, place - 1] > distance:
                        distances[query, place] = distances[query, place - 1]
                        indices[query, place] = indices[query, place - 1]
                        place -= 1
                    distances[query, place] = distance
                    indices[query, place] = first + row
        return 0

    return search


_SEARCH = ChunkLoop(_search)
