"""The CPU kernel for restricted Boltzmann machines."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_binary
from discrete_vae.kernels import gibbs_amx, gibbs_tiles
from discrete_vae.kernels.gibbs_amx import LARGEST_WEIGHT, num_blocks, split_side
from discrete_vae.kernels.gibbs_tiles import (
    GROUP,
    INNER,
    ROWS,
    TILE,
    UNIT_ORDER,
    fill_rows,
    is_binary,
    pack,
    scale_side,
    unpack,
)
from discrete_vae.kernels.gibbs_torch import SweepCall, fair_coins
from discrete_vae.kernels.loops import ChunkLoop
from discrete_vae.kernels.registry import Kernel

# The compiled loops of the CPU kernel.
#
# Layout. A side's units are cut into tiles of 16 that share four Philox counters, and the spins of a tile and
# chain are the bits of a uint16, in the order in which the random words come (`UNIT_ORDER`). The scaled
# fields of a tile are its biases plus three table rows for each tile of the other side: one chosen by that
# tile's bits 0-4, one by bits 5-9, one by bits 10-15. A chain reads 96 bytes of rows for a byte of spins, so
# rows have to lie in the first-level cache: those for one tile and a block of four tiles of the other side,
# 32 KiB, serve all chains of a chunk before the next. Small machines' tables are made once per call; those of
# larger ones would not fit the second-level cache, so rows are made from the weights, a sixteenth of their
# size, each time that a block is due. Where the processor has a matrix unit, fields of larger machines are
# products instead, see `bipartite_products`.


def _run_chunk_with(scratch_for: Callable[..., Any], draw_side: Callable[..., Any]) -> Any:
    """A function that runs all sweeps of a chunk of chains by one way to draw a side."""

    @njit(**INNER)
    def run_chunk(
        after,
        before,
        units,
        tables,
        weights,
        biases,
        counters,
        clamped,
        inverse_temperature,
        num_sweeps,
        key,
        first_sweep,
        first_chain,
        first,
        last,
    ):
        """Run all sweeps of the chains from first to last; does nothing and answers False if a state is not binary.

        The arguments before first are those of the loop, with the tables built; first and last are numbers of
        chains.
        """
        if not is_binary(before, first, last):
            return False
        num_chains = last - first
        padded = (num_chains + GROUP - 1) // GROUP * GROUP
        spins = (
            np.zeros((units[0].shape[0], padded), np.uint16),
            np.zeros((units[1].shape[0], padded), np.uint16),
        )
        # one mask for all chains, or one per chain
        from_row, to_row = (0, clamped.shape[0]) if clamped.shape[0] < 2 else (first, last)
        masks = (
            np.zeros((units[0].shape[0], to_row - from_row), np.uint16),
            np.zeros((units[1].shape[0], to_row - from_row), np.uint16),
        )
        for side in range(2):
            pack(spins[side], before, units[side], first, last)
            pack(masks[side], clamped, units[side], from_row, to_row)
        of_chunk = np.ones(padded, np.float32)
        for c in range(num_chains if inverse_temperature.size else 0):
            of_chunk[c] = inverse_temperature[first + c]
        scratch = scratch_for(max(units[0].shape[0], units[1].shape[0]), padded)
        chain = first_chain + np.uint64(first)
        for half in range(2 * num_sweeps):
            side = half & 1
            sweep = first_sweep + np.uint64(half >> 1)
            draw_side(
                spins[side], spins[1 - side], tables[side], weights[side], biases[side], masks[side], of_chunk,
                scratch, counters[side], chain, sweep, key,
            )  # fmt: skip
        for side in range(2):
            unpack(after, spins[side], units[side], first, last)
        return True

    return run_chunk


def _prepare_tables(
    after, before, binary, weight, bias, units, tables, weights, biases, counters, clamped, inverse_temperature,
    num_sweeps, key, first_sweep, first_chain,
):  # fmt: skip
    """Scale both sides' weights and make whole tables; the arguments are those of the loop."""
    for side in range(2):
        scale_side(weights[side], biases[side], weight, bias, units[side], units[1 - side])
        for pair in range(tables[side].shape[0]):
            fill_rows(tables[side], pair, weights[side], pair)  # pyright: ignore[reportCallIssue]


def _prepare_products(
    after, before, binary, weight, bias, units, tables, weights, biases, counters, clamped, inverse_temperature,
    num_sweeps, key, first_sweep, first_chain,
):  # fmt: skip
    """Scale both sides' weights and cut them into bytes; the arguments are those of the loop."""
    for side in range(2):
        scale_side(weights[side], biases[side], weight, bias, units[side], units[1 - side])
        split_side(tables[side][0], tables[side][1], weights[side])


def _loop_with(
    name: str, scratch_for: Callable[..., Any], draw_side: Callable[..., Any]
) -> Callable[[Any], Callable[..., Any]]:
    """What makes the loop over chunks by one way to draw a side."""
    run_chunk = _run_chunk_with(scratch_for, draw_side)

    def make(chunks: Any) -> Callable[..., Any]:
        """The loop over chunks that `chunks`, range or prange, divides."""

        def run_chunks(
            after, before, binary, weight, bias, units, tables, weights, biases, counters, clamped, inverse_temperature,
            num_sweeps, key, first_sweep, first_chain,
        ):  # fmt: skip
            """Run the sweeps with the chains split in chunks.

            Pairs have one entry for the left and one for the right side.

            Args:
                after: (chain, unit) float32, receives the states.
                before: (chain, unit) float32.
                binary: (chunk,) bool, receives whether all states of a chunk were 0 or 1; if not, ``after`` is not
                    complete. Its length is the number of chunks.
                weight: (left, right) float32.
                bias: (unit,) float32.
                units: Pair of (tile, 16) int64, the unit of each bit, -1 for padding.
                tables: Pair of memory for whole tables (empty: rows are made when they are due), or for the digits and
                    the scales of `split_side`.
                weights: Pair of memory for `scale_side`.
                biases: Pair of memory for `scale_side`.
                counters: Pair of uint64, the first counter of each side.
                clamped: (chain, unit), (1, unit) or (0, unit) float32, 1 where a unit keeps its value.
                inverse_temperature: (chain,) or (0,) float32, inverse temperatures; none means 1.
                num_sweeps: Number of sweeps.
                key: uint64, the Philox key.
                first_sweep: uint64, number of the first sweep.
                first_chain: uint64, number of the first chain.
            """
            num_chains, num_chunks = before.shape[0], binary.shape[0]
            for c in chunks(num_chunks):
                binary[c] = run_chunk(
                    after, before, units, tables, weights, biases, counters, clamped, inverse_temperature,
                    num_sweeps, key, first_sweep, first_chain, c * num_chains // num_chunks,
                    (c + 1) * num_chains // num_chunks,
                )  # fmt: skip
            return 0

        run_chunks.__qualname__ = name  # the cache's name of it
        return run_chunks

    return make


run_by_tables = ChunkLoop(
    _loop_with("by_tables", gibbs_tiles.scratch_for, gibbs_tiles.draw_side),
    prepare=_prepare_tables,
    sources=(gibbs_tiles,),
)
run_by_products = ChunkLoop(
    _loop_with("by_products", gibbs_amx.scratch_for, gibbs_amx.draw_side),
    prepare=_prepare_products,
    sources=(gibbs_tiles, gibbs_amx),
)


# The CPU kernel for restricted Boltzmann machines: all sweeps of a call in one compiled loop, on numba's
# threads.


_LARGEST_CHUNK = 1000  # chains; the spins of many more would leave the second-level cache
LARGEST_TABLE = 1 << 20
"""Bytes up to which whole tables are made once per call, up to 128 + 128 units: they fit the second-level cache."""

_Pair = tuple[np.ndarray, np.ndarray]


class _Kept(threading.local):
    """A thread's memory between calls."""

    form: tuple[int, int, bool] | None = None
    tables: tuple[Any, Any]
    weights: _Pair
    biases: _Pair


_kept = _Kept()


def run(energy: RBM, z: Tensor, call: SweepCall) -> Tensor:
    """Run the sweeps on numba's threads.

    Args:
        energy: A machine with parameters on the CPU, finite in float32.
        z: (chain, unit) float32 in {0,1}, on the CPU.
        call: What to run.

    Returns:
        A new tensor (chain, unit) float32 in {0,1}.

    Raises:
        InvalidInputError: If z holds anything but 0 and 1.
    """
    return by_products(energy, z, call)


def _run(energy: RBM, z: Tensor, call: SweepCall, *, by_products: bool) -> Tensor:
    """Run the sweeps with fields that are products of bytes, or sums of table rows."""
    num_chains, num_units = z.shape
    # a chunk is the chains that a thread advances together
    chunks = min(num_chains, max(call.num_threads, -(-num_chains // _LARGEST_CHUNK)))
    binary = np.empty(chunks, np.bool_)
    after = np.empty((num_chains, num_units), np.float32)
    units = _units(0, energy.num_left), _units(energy.num_left, num_units)
    run_chunks = run_by_products if by_products else run_by_tables
    run_chunks(
        call.num_threads,
        after,
        _array(z),
        binary,
        _array(energy.weight),
        _array(energy.bias),
        units,
        *_workspace(len(units[0]), len(units[1]), by_products=by_products),
        (np.uint64(0), np.uint64(energy.num_left // 4)),
        np.empty((0, num_units), np.float32) if call.clamped is None else _array(call.clamped),
        np.empty(0, np.float32) if call.inverse_temperature is None else _array(call.inverse_temperature),
        call.num_sweeps,
        np.uint64(call.key),
        np.uint64(call.first_sweep),
        np.uint64(call.first_chain),
    )
    return torch.from_numpy(after) if binary.all() else check_binary("z", z)


@cache
def _units(first: int, end: int) -> np.ndarray:
    """The unit of each bit of each tile of a side, (tile, bit) int64, -1 for padding."""
    origin = first - first % 4
    tiles = -(-(end - origin) // TILE)
    units = origin + TILE * np.arange(tiles)[:, None] + UNIT_ORDER
    units[(units < first) | (units >= end)] = -1
    return units


def _suits_products(energy: RBM, _z: Tensor, call: SweepCall) -> bool:
    """True for machines whose tables would be large, with weights that bytes can stand for, on a matrix unit."""
    num_units = energy.num_left + energy.num_right
    if _have_tables(len(_units(0, energy.num_left)), len(_units(energy.num_left, num_units))):
        return False
    if not gibbs_amx.is_there():
        return False
    largest = energy.weight.detach().abs().max()
    if call.inverse_temperature is not None:
        largest = largest * call.inverse_temperature.abs().max()
    return bool(largest <= LARGEST_WEIGHT)


def _check_products(kernel: Kernel) -> None:
    """Compare with sums of table rows on a small machine: the same states but for draws within rounding."""
    energy, start = RBM(70, 40), fair_coins(40, 110, key=1)
    weights = torch.linspace(-1, 1, 2800).sin_().mul_(3).view(70, 40)
    energy.weight.copy_(weights.roll(7, 1))
    call = SweepCall(2, 1, 1, 0, None, None)
    mine, right = kernel.compiled(energy, start, call), by_tables(energy, start, call)
    if float((mine != right).float().mean()) > 0.01:
        raise RuntimeError("its states are wrong")


by_tables = partial(_run, by_products=False)
by_products = Kernel(
    "The RBM sampler's products of bytes",
    partial(_run, by_products=True),
    _check_products,
    by_tables,
    _suits_products,
    fallback="sums of table rows are used",
)


def _have_tables(left: int, right: int) -> bool:
    """Whether whole tables of two sides of so many tiles are made."""
    return 2 * left * right * ROWS * TILE * 4 <= LARGEST_TABLE


def _workspace(left: int, right: int, *, by_products: bool) -> tuple[tuple[Any, Any], _Pair, _Pair]:
    """Memory for tables, scaled weights and biases of two sides of so many tiles; each thread keeps its last one.

    Megabytes of fresh memory at every call would cost more than a few sweeps. Tables would be 16 times the weights;
    above `LARGEST_TABLE` they are empty, and what is kept is twice the weights, with products three quarters more.
    """
    if _kept.form != (left, right, by_products):
        pairs = left * right
        if by_products:
            _kept.tables = _bytes(left, right), _bytes(right, left)
        else:
            places = pairs if _have_tables(left, right) else 0
            _kept.tables = _aligned(places, ROWS, TILE), _aligned(places, ROWS, TILE)
        _kept.weights = _aligned(pairs, TILE, TILE), _aligned(pairs, TILE, TILE)
        _kept.biases = _aligned(left, TILE), _aligned(right, TILE)
        _kept.form = left, right, by_products
    return _kept.tables, _kept.weights, _kept.biases


def _bytes(tiles: int, others: int) -> tuple[np.ndarray, np.ndarray]:
    """Memory for `split_side`."""
    digits = _aligned(tiles, num_blocks(others), 3, TILE, TILE).view(np.int8)
    return digits.reshape(*digits.shape[:-1], TILE, 4), _aligned(tiles, TILE)


def _aligned(*shape: int) -> np.ndarray:
    """Uninitialized float32 memory that starts at a multiple of 64 bytes."""
    size = math.prod(shape)
    memory = np.empty(size + 15, np.float32)
    skip = -(memory.ctypes.data // 4) % 16
    return memory[skip : skip + size].reshape(shape)


def _array(tensor: Tensor) -> np.ndarray:
    """A contiguous float32 array, so that the compiled function meets one type only."""
    return tensor.detach().to(torch.float32).contiguous().numpy()
