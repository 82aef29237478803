"""Draws that stay the same on every machine and in every release: splits, epochs and evaluation bits.

They read the raw words of Philox4x64, whose stream NumPy keeps fixed for good, unlike the distributions on
top of it or torch's generators.
"""

from __future__ import annotations

import numpy as np

from discrete_vae.noise import key_to_seed


def fixed_permutation(length: int, seed: int, *key: int) -> np.ndarray:
    """A permutation that depends on its arguments alone.

    Args:
        length: How many numbers to permute.
        seed: Integer from 0 to 2^64 - 1.
        key: Further integers, for example the epoch.

    Returns:
        (length,) int64, the numbers from 0 to length - 1 in random order.

    Raises:
        InvalidInputError: If the seed or the key is out of range.

    Examples:
        >>> fixed_permutation(5, 0).tolist()
        [3, 2, 0, 4, 1]
    """
    # Ties among 64-bit words do not happen in practice, and a stable sort settles them anyway.
    return np.argsort(_words(length, seed, *key), kind="stable")


def fixed_bits(probabilities: np.ndarray, seed: int, *key: int) -> np.ndarray:
    """Binarize once and for all: each value becomes 1 with the probability that it states.

    Args:
        probabilities: Any shape, in [0, 1]; 0 always gives 0 and 1 always gives 1.
        seed: Integer from 0 to 2^64 - 1.
        key: Further integers, for example the part of the data set.

    Returns:
        Array of the same shape, float32 in {0, 1}.

    Raises:
        InvalidInputError: If the seed or the key is out of range.

    Examples:
        >>> fixed_bits(np.array([0.0, 0.5, 0.5, 1.0]), 0).tolist()
        [0.0, 0.0, 1.0, 1.0]
    """
    uniform = (_words(probabilities.size, seed, *key) >> np.uint64(11)) * 2.0**-53
    return (uniform.reshape(probabilities.shape) < probabilities).astype(np.float32)


def _words(count: int, seed: int, *key: int) -> np.ndarray:
    return np.random.Philox(key=key_to_seed(seed, *key)).random_raw(count)
