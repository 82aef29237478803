"""The CPU kernel for restricted Boltzmann machines: all sweeps of a call in one compiled loop, on numba's threads."""

from __future__ import annotations

import math
import threading
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discrete_vae.boltzmann.rbm import RBM
from discrete_vae.checks import check_binary
from discrete_vae.compiled import matrix_unit
from discrete_vae.compiled.trial import tried
from discrete_vae.samplers.kernels import bipartite_compiled
from discrete_vae.samplers.kernels.bipartite_intrinsics import ROWS, TILE, UNIT_ORDER
from discrete_vae.samplers.kernels.bipartite_products import LARGEST_WEIGHT, num_blocks
from discrete_vae.samplers.kernels.philox import fair_coins
from discrete_vae.samplers.kernels.torch_reference import SweepCall

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
    return _run(energy, z, call, by_products=_multiplies(energy, call))


def _run(energy: RBM, z: Tensor, call: SweepCall, *, by_products: bool) -> Tensor:
    """`run` in one of its two ways."""
    num_chains, num_units = z.shape
    # a chunk is the chains that a thread advances together
    chunks = min(num_chains, max(call.num_threads, -(-num_chains // _LARGEST_CHUNK)))
    binary = np.empty(chunks, np.bool_)
    after = np.empty((num_chains, num_units), np.float32)
    units = _units(0, energy.num_left), _units(energy.num_left, num_units)
    run_chunks = bipartite_compiled.run_by_products if by_products else bipartite_compiled.run_by_tables
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


def _multiplies(energy: RBM, call: SweepCall) -> bool:
    """Whether fields are products: of machines whose tables would be large, with weights that bytes can stand for."""
    num_units = energy.num_left + energy.num_right
    if _have_tables(len(_units(0, energy.num_left)), len(_units(energy.num_left, num_units))):
        return False
    if not products_work():
        return False
    largest = energy.weight.detach().abs().max()
    if call.inverse_temperature is not None:
        largest = largest * call.inverse_temperature.abs().max()
    return bool(largest <= LARGEST_WEIGHT)


def products_work() -> bool:
    """Whether the processor has a matrix unit, with which the kernel draws what it draws without."""
    return matrix_unit.is_there() and _products_work()


@tried("The sampler's products of bytes", "sums of table rows are used")
def _products_work() -> None:
    """Whether they give the same states on a small machine, but for draws within rounding."""
    energy, start = RBM(70, 40), fair_coins(40, 110, key=1)
    weights = torch.linspace(-1, 1, 2800).sin_().mul_(3).view(70, 40)
    energy.weight.copy_(weights.roll(7, 1))
    call = SweepCall(2, 1, 1, 0, None, None)
    mine, right = (_run(energy, start, call, by_products=each) for each in (True, False))
    if float((mine != right).float().mean()) > 0.01:
        raise RuntimeError("its states are wrong")


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
