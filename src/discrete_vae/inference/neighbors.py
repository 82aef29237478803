"""Examples whose codes are nearest in Hamming distance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import int64, uint64

from discrete_vae.checks import check_positive_int
from discrete_vae.errors import InvalidInputError
from discrete_vae.kernels.loops import ChunkLoop, threads_for
from discrete_vae.records import ShowsShapes
from discrete_vae.system import check_memory

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
        num_neighbors: How many neighbors of each query, from 1 to the number of rows.
        excluded: For each query the place of a row that is none of its neighbors, (query,) integers, such as its own;
            -1 for none. None excludes nothing.
        report: Called now and then with the number of rows that are searched.

    Returns:
        The neighbors.

    Raises:
        InvalidInputError: If codes are no bytes of one length, or more neighbors are wanted than there are.

    Examples:
        >>> codes = np.packbits([[0, 0, 0], [1, 1, 1], [0, 0, 1]], axis=1)
        >>> found = nearest_codes(codes[:1], codes, 3)
        >>> found.indices.tolist(), found.distances.tolist()
        ([[0, 2, 1]], [[0, 1, 3]])
    """
    for name, codes in (("queries", queries), ("among", among)):
        if codes.ndim != 2 or codes.dtype != np.uint8 or codes.shape[1] != among.shape[1] or not codes.size:
            rule = f"must hold packed codes, (row, {among.shape[-1]} bytes) uint8"
            received = f"shape {codes.shape} of {codes.dtype}"
            raise InvalidInputError(name, rule, received, "Take `packed` of the encoding.")
    most = len(among) - (excluded is not None)
    if check_positive_int("num_neighbors", num_neighbors) > most:
        rule, repair = f"must be at most {most}, the rows that are searched", "Ask for fewer."
        raise InvalidInputError("num_neighbors", rule, num_neighbors, repair)
    check_memory("num_neighbors", 12 * len(queries) * num_neighbors, "Ask for fewer neighbors.")
    skipped = np.full(len(queries), -1, np.int64) if excluded is None else np.asarray(excluded, np.int64)
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
