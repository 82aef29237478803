"""The compiled kernel for RBMs: decisions, and tables that are whole or made when they are due."""

import numpy as np
import pytest
import torch
from numba import njit

from discrete_vae.kernels import gibbs_rbm
from discrete_vae.kernels.gibbs import fair_coins, run_sweeps, uniforms
from discrete_vae.kernels.gibbs_rbm import GROUP, LANES, PART, ROWS, TILE, decide
from tests.kernels.test_gibbs_law import make_rbm


@njit
def compiled_decisions(words, inverse, bias, table):
    """Decide tiles of four chains without any spin of the other side."""
    spins, others = np.empty((len(words), 1, PART), np.uint16), np.zeros((1, PART), np.uint16)
    for i in range(len(words)):
        decide(spins[i], 0, words[i], 0, inverse, bias[i], 0, table, 0, others, 0, 1, PART, 0)
    return spins[:, 0]


def test_compiled_decision_is_the_logistic_one():
    generator = np.random.default_rng(0)
    count = 3000
    logits = generator.normal(0, 6, (count, TILE)).astype(np.float32)
    logits[:4, :6] = [-1e30, 1e30, -90, 90, 0, -0.0]
    inverse = np.array([1, 0, 0.5, 2], np.float32)
    words = generator.integers(0, 2**64, (count, 2, LANES), dtype=np.uint64)
    aligned = gibbs_rbm._aligned
    bias, table = aligned(count, TILE), aligned(1, ROWS, TILE)
    bias[:], table[:] = logits * np.float32(-np.log2(np.e)), 0
    spins = compiled_decisions(words, inverse, bias, table)
    drawn = spins[..., None] >> np.arange(TILE) & 1
    # bits 0-7 of a chain read its first eight 32-bit words of row 0, bits 8-15 those of row 1
    halves = words.view(np.uint32).reshape(count, 2, GROUP, TILE // 2)[:, :, :PART]
    own = halves.transpose(0, 2, 1, 3).reshape(count, PART, TILE)
    noise = uniforms(torch.from_numpy(own.astype(np.int64))).double().numpy()
    with np.errstate(over="ignore"):
        excess = noise * (1 + np.exp(-logits[:, None].astype(np.float64) * inverse[:, None])) - 1
    clear = np.abs(excess) > 2e-6
    assert clear.mean() > 0.999
    np.testing.assert_array_equal(drawn[clear] == 1, excess[clear] < 0)


@pytest.mark.parametrize("shape", [(5, 3), (100, 70)], ids=str)
def test_rows_that_are_made_when_they_are_due_are_those_of_whole_tables(shape, monkeypatch):
    rbm, z = make_rbm(*shape, scale=0.4), fair_coins(30, sum(shape), key=1)
    whole = run_sweeps(rbm, z, 3, key=2, first_sweep=1)
    monkeypatch.setattr(gibbs_rbm, "LARGEST_TABLE", 0)
    monkeypatch.setattr(gibbs_rbm, "_kept", gibbs_rbm._Kept())
    assert torch.equal(run_sweeps(rbm, z, 3, key=2, first_sweep=1), whole)
    assert not any(table.size for table in gibbs_rbm._kept.tables)
