"""The compiled kernel for RBMs: decisions, tables, and fields by products of bytes, the same but for rounding."""

import numpy as np
import pytest
import torch
from numba import njit

from discrete_vae import RBM
from discrete_vae.kernels import gibbs_rbm, gibbs_torch
from discrete_vae.kernels.gibbs import run_sweeps
from discrete_vae.kernels.gibbs_rbm import LARGEST_WEIGHT
from discrete_vae.kernels.gibbs_tiles import GROUP, LANES, PART, ROWS, TILE, decide
from discrete_vae.kernels.gibbs_torch import SweepCall, fair_coins, uniforms

needs_matrix_unit = pytest.mark.skipif(
    not gibbs_rbm.has_matrix_unit(), reason="this processor has no matrix unit for bytes"
)
WITHIN_ROUNDING = 2e-5  # share of draws; rounding of fields by 1e-5 changes two in a million


def machine(left, right, scale=1.0):
    generator = torch.Generator().manual_seed(left)
    energy = RBM(left, right)
    with torch.no_grad():
        energy.weight.normal_(0, scale, generator=generator)
        energy.bias.normal_(0, 1.0, generator=generator)
    return energy


draw = gibbs_rbm.by_products.compiled


def share_of_differences(energy, num_chains, draws):
    z = fair_coins(num_chains, energy.num_units, key=3)
    call = SweepCall(1, 7, 5, 11, None, None)
    with torch.no_grad():
        return float((draws(energy, z, call) != gibbs_torch.run(energy, z, call)).float().mean())


@needs_matrix_unit
def test_states_are_the_references():
    assert gibbs_rbm.by_products.is_usable()
    assert share_of_differences(machine(300, 290), 1000, draw) < WITHIN_ROUNDING


@needs_matrix_unit
def test_fewer_bits_of_a_weight_would_be_seen():
    def coarse(energy, z, call):
        largest = energy.weight.abs().amax()
        steps = 2.0**14 / largest
        energy.weight.copy_((energy.weight * steps).round() / steps)
        return draw(energy, z, call)

    energy = machine(300, 290)
    exact = machine(300, 290)
    z, call = fair_coins(1000, 590, key=3), SweepCall(1, 7, 5, 11, None, None)
    with torch.no_grad():
        found = coarse(energy, z, call)
        assert float((found != gibbs_torch.run(exact, z, call)).float().mean()) > 2 * WITHIN_ROUNDING


@needs_matrix_unit
@pytest.mark.parametrize(("left", "right", "num_chains"), [(3, 2, 41), (17, 70, 9), (64, 16, 100)])
def test_sides_and_chains_need_not_be_multiples_of_anything(left, right, num_chains):
    assert share_of_differences(machine(left, right), num_chains, draw) < 1e-3  # none of some hundred draws


@needs_matrix_unit
def test_it_does_not_matter_how_chains_are_divided():
    energy, z = machine(150, 140), fair_coins(100, 290, key=1)
    temperatures = torch.linspace(0.2, 1.0, 100)
    clamped = (torch.arange(290) % 5 == 0).expand(100, 290)
    whole = draw(energy, z, SweepCall(4, 1, 1, 0, temperatures, clamped))
    assert torch.equal(whole[clamped], z[clamped])
    again = draw(energy, z, SweepCall(4, 1, 1, 0, temperatures, clamped, num_threads=2))
    assert torch.equal(whole, again)
    part = draw(energy, z[37:], SweepCall(4, 1, 1, 37, temperatures[37:], clamped[37:]))
    assert torch.equal(whole[37:], part)
    by_tables = gibbs_rbm.by_tables(energy, z, SweepCall(4, 1, 1, 0, temperatures, clamped))
    assert float((whole != by_tables).float().mean()) < 1e-3


@needs_matrix_unit
def test_large_weights_and_small_machines_are_summed_by_tables():
    call = SweepCall(1, 1, 1, 0, None, None)
    assert gibbs_rbm._suits_products(machine(256, 256, 0.1), None, call)
    assert not gibbs_rbm._suits_products(machine(64, 64, 0.1), None, call)
    energy = machine(256, 256, 0.1)
    with torch.no_grad():
        energy.weight[3, 5] = -LARGEST_WEIGHT - 1
    assert not gibbs_rbm._suits_products(energy, None, call)
    hot = SweepCall(1, 1, 1, 0, torch.tensor([0.5, 200.0]), None)
    assert not gibbs_rbm._suits_products(machine(256, 256, 0.1), None, hot)


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


@pytest.mark.parametrize("sides", [(64, 64), (61, 37), (128, 128), (130, 128), (512, 300)], ids=str)
def test_the_memory_that_is_kept_is_bounded(sides):
    """Tables are 16 times the weights, so only small machines have them."""
    tiles = [len(gibbs_rbm._units(0, sides[0])), len(gibbs_rbm._units(sides[0], sum(sides)))]
    tables, weights, _ = gibbs_rbm._workspace(*tiles, by_products=False)
    of_weights = sum(weight.nbytes for weight in weights)
    assert of_weights == 2 * tiles[0] * tiles[1] * TILE**2 * 4
    of_tables = 16 * of_weights // 2
    expected = of_tables if of_tables <= gibbs_rbm.LARGEST_TABLE else 0
    assert sum(table.nbytes for table in tables) == expected
    assert (expected > 0) == (max(sides) <= 128)


@pytest.mark.parametrize("shape", [(5, 3), (61, 37), (100, 70)], ids=str)
def test_rows_that_are_made_when_they_are_due_are_those_of_whole_tables(shape, monkeypatch):
    rbm, z = machine(*shape, 0.4), fair_coins(30, sum(shape), key=1)
    whole = run_sweeps(rbm, z, 3, key=2, first_sweep=1)
    monkeypatch.setattr(gibbs_rbm, "LARGEST_TABLE", 0)
    monkeypatch.setattr(gibbs_rbm.by_products, "supports", lambda *_: False)
    monkeypatch.setattr(gibbs_rbm, "_kept", gibbs_rbm._Kept())
    assert torch.equal(run_sweeps(rbm, z, 3, key=2, first_sweep=1), whole)
    assert not any(table.size for table in gibbs_rbm._kept.tables)
