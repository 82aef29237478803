"""What a trained model says of rows, each row's result a function of that row alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from discrete_vae.boltzmann.log_partition import LogPartition
from discrete_vae.evaluation.memory import samples_in_memory
from discrete_vae.model import DiscreteVAE
from discrete_vae.nets.eval_mode import eval_mode
from discrete_vae.noise import generator_of, key_to_seed
from discrete_vae.objectives.importance import importance_weighted
from discrete_vae.records import ShowsShapes

_ROWS = 4096  # that are read together
_SCORED_ROWS, _CHUNK = (
    32,
    100,
)  # rows whose weights are in memory together, at most, and their samples at a time
_MAX_MEMORY = 256.0  # MiB of the networks' intermediate values


@dataclass(frozen=True, eq=False, repr=False)
class Codes(ShowsShapes):
    """The most probable codes of rows, both (row, unit).

    Attributes:
        bits: In {0,1}.
        probabilities: Of their being 1, given the row and the bits of earlier groups.
    """

    bits: Tensor
    probabilities: Tensor


@torch.no_grad()
def best_codes(model: DiscreteVAE, x: Tensor) -> Codes:
    """The most probable bits of rows, group after group, in the limit of sharp smoothing, where nothing is random.

    Args:
        model: The model; its smoothing has such a limit.
        x: (row, feature); NaN is a missing value.
    """
    bits, logits = [], []
    with eval_mode(model.discretized()) as sharp:
        for part in x.split(_ROWS):
            features = sharp.read(*sharp._open(part, None))
            half = torch.full((1, len(part), sharp.prior.num_units), 0.5, dtype=features.dtype)
            found = sharp.posterior.sample_discretely(features, half)
            bits.append(found.z[0])
            logits.append(found.logits[0])
    return Codes(torch.cat(bits), torch.sigmoid(torch.cat(logits)))


def decode_codes(model: DiscreteVAE, bits: Tensor) -> Tensor:
    """E[x | code], or for codes of names the mode, in the limit of sharp smoothing.

    Args:
        model: The model.
        bits: (row, unit) in {0,1}.

    Returns:
        (row, feature).
    """
    names = model.config is not None and model.config.likelihood.kind == "categorical"
    return model.discretized().decode(bits, statistic="mode" if names else "mean").flatten(1)


@torch.no_grad()
def log_likelihoods(
    model: DiscreteVAE, x: Tensor, num_samples: int, log_partition: LogPartition, seed: int
) -> Tensor:
    """log p(x) of rows, with noise keyed by the seed and the row's values.

    Args:
        model: The model.
        x: (row, feature); NaN is a missing value.
        num_samples: Importance samples per row.
        log_partition: log Z of the prior.
        seed: Seed of the noise.

    Returns:
        (row,), nats.
    """
    values, at_once = [], samples_in_memory(model, _MAX_MEMORY / 2)  # of float32
    chunk_size = min(_CHUNK, at_once)
    rows = max(1, min(_SCORED_ROWS, at_once // min(chunk_size, num_samples)))
    with model.weigher(log_partition) as weigher:
        for part in x.split(rows):
            keys = [key_to_seed(seed, row_key(row)) for row in part]
            weights = weigher.log_weights(part, num_samples, chunk_size, keys=keys)
            values.append(importance_weighted(weights).value)
    return torch.cat(values)


def row_key(row: Tensor) -> int:
    """An integer that a row's values determine.

    Examples:
        >>> row_key(torch.tensor([0.0, 1.0])) == row_key(torch.tensor([-0.0, 1.0]))
        True
    """
    content = (row.double() + 0.0).numpy().tobytes()  # the sum makes one zero of both
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


@torch.no_grad()
def sample_rows(model: DiscreteVAE, z: Tensor, seed: int) -> Tensor:
    """Draws of x from the model.

    Args:
        model: The model.
        z: (row, unit), draws of the prior.
        seed: Seed of all other noise.

    Returns:
        (row, feature).
    """
    generator = generator_of(key_to_seed(seed))
    zeta = model.smoothing.sample_zeta(z.to(model.dtype), generator=generator)
    return model.decode(zeta, statistic="sample", generator=generator).flatten(1)
