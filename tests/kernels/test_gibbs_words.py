"""The random words: published vectors, distinct counters, uniforms, the compiled copy and its decisions."""

import numpy as np
import pytest
import torch
from numba import njit

from discrete_vae import RBM, FactorialBernoulli
from discrete_vae.kernels import gibbs, gibbs_rbm
from discrete_vae.kernels.gibbs import fair_coins, philox4x32, run_sweeps, uniforms, unit_words
from discrete_vae.kernels.gibbs_rbm import GROUP, LANES, PART, ROWS, TILE, decide, draw_words, start_lanes
from tests.boltzmann.graphs import FIVE_UNITS, with_parameters
from tests.boltzmann.products import operations_of
from tests.oracles.transitions import check_transitions, sweep_matrix

# Random123's known-answer vectors for philox4x32 with 10 rounds: counter, key, answer
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def numbers(text):
    return [int(word, 16) for word in text.split()]


@njit
def compiled_words(counter, chain, sweep, key):
    lanes, words = np.empty((3, LANES), np.uint64), np.empty((2, LANES), np.uint64)
    chain_part = start_lanes(lanes, np.uint64(counter), np.uint64(sweep), np.uint64(key))
    draw_words(words, lanes, chain_part, np.uint64(chain), np.uint64(key))
    return words


def split_words(words):
    """(lane, word) in the order of Philox."""
    low, high = words & 0xFFFFFFFF, words >> 32
    return np.stack([high[0], low[0], high[1], low[1]], axis=-1)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN, ids=["zeros", "ones", "pi"])
def test_words_are_the_published_ones(counter, key, answer):
    quad, chain, low, high = numbers(counter)
    key_low, key_high = numbers(key)
    sweep, both = low | high << 32, key_low | key_high << 32
    assert [int(word) for word in philox4x32(tuple(map(torch.tensor, numbers(counter))), both)] == numbers(
        answer
    )
    compiled = compiled_words(*map(np.uint64, (quad, chain, sweep, both)))
    assert split_words(compiled)[0].tolist() == numbers(answer)


def test_compiled_words_of_all_lanes():
    words = split_words(compiled_words(*map(np.uint64, (2, 5, 2**33 + 1, 2**64 - 1))))
    reference = unit_words(GROUP, 24, key=2**64 - 1, sweep=2**33 + 1, first_chain=5)[:, 8:]
    np.testing.assert_array_equal(words.reshape(GROUP, TILE), reference.numpy().astype(np.uint64))


def test_unit_takes_the_word_of_its_quad():
    words = unit_words(3, 7, key=5, sweep=2**33 + 9, first_chain=11)
    counter = tuple(torch.tensor(word) for word in (6 // 4, 13, 9, 2))
    assert int(words[2, 6]) == int(philox4x32(counter, 5)[6 % 4])
    assert torch.equal(words[1:], unit_words(2, 7, key=5, sweep=2**33 + 9, first_chain=12))


def test_sweep_counter_does_not_wrap_at_32_bits():
    sweeps = [0, 1, 2, 2**32 - 1, 2**32, 2**32 + 1, 2**32 + 2, 2**33, 2**64 - 1]
    words = torch.stack([unit_words(2, 8, key=3, sweep=sweep) for sweep in sweeps])
    assert len(words.flatten().unique()) == words.numel()


def test_uniforms_stay_inside_the_open_interval():
    words = torch.tensor([0, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFEFF, 0xFFFFFF00, 0xFFFFFFFF])
    values = uniforms(words)
    assert values.dtype == torch.float32
    assert values.min() == 2.0**-25
    assert values.max() == 1 - 2.0**-24 == np.nextafter(np.float32(1), np.float32(0))
    assert values[3] < 0.5 <= values[4]


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
    bias, table = gibbs_rbm._aligned(count, TILE), gibbs_rbm._aligned(1, ROWS, TILE)
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


@pytest.mark.parametrize("seed", [0, 2**63, 2**64 - 1])
def test_coins_are_fair_and_differ_between_neighboring_keys(seed):
    coins, neighbor = (fair_coins(500, 64, key=key % 2**64) for key in (seed, seed + 1))
    pairs = (coins == neighbor, coins[:, 1:] == coins[:, :-1], coins[1:] == coins[:-1])
    for each in (coins, *pairs):
        assert abs(each.float().mean() - 0.5) < 5 / (2 * 32_000**0.5)  # five standard errors


def sweep(energy, **options):
    return lambda z: run_sweeps(energy, z, 1, key=7, first_sweep=1, kernel=gibbs.run_on_device, **options)


def test_clamped_and_tempered_sweeps_have_their_matrix():
    rbm, clamped = FIVE_UNITS["rbm"](), torch.tensor([True, False, False, True, False])
    step = sweep(rbm, clamped=clamped, inverse_temperature=torch.full((32 * 3000,), 0.5))
    check_transitions(step, sweep_matrix(rbm, inverse_temperature=0.5, clamped=clamped), 5, repeats=3000)


def test_sweeps_of_one_call_are_independent_draws():
    """Two sweeps in one call follow the square of the matrix; the noise of the first sweep used twice would not."""
    rbm = FIVE_UNITS["rbm"]()
    matrix = sweep_matrix(rbm)
    step = lambda z: run_sweeps(rbm, z, 2, key=7, first_sweep=1, kernel=gibbs.run_on_device)  # noqa: E731
    check_transitions(step, matrix @ matrix, 5, repeats=3000)


def test_the_noise_is_keyed():
    rbm, z = FIVE_UNITS["rbm"](), torch.zeros(200, 5)

    def run(**key):
        key = {"key": 7, "first_sweep": 1, "first_chain": 0} | key
        return run_sweeps(rbm, z, 3, kernel=gibbs.run_on_device, **key)

    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert torch.equal(run(), run())
    assert torch.equal(torch.get_rng_state(), before)
    for key in ({"key": 8}, {"first_sweep": 2}, {"first_chain": 1}, {"key": 2**64 - 1}):
        assert not torch.equal(run(), run(**key))
    assert torch.equal(z, torch.zeros(200, 5))


def test_a_uniform_of_zero_turns_no_unit_on(monkeypatch):
    machine = with_parameters(FactorialBernoulli(5), bias=-30.0)
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, **_: self.zero_())
    assert not bool(sweep(machine)(torch.zeros(20, 5)).any())


def test_a_sweep_of_an_rbm_is_twelve_launches():
    rbm, z = RBM(64, 64), torch.zeros(50, 128)

    def operations(num_sweeps):
        options = {"key": 7, "first_sweep": 1, "kernel": gibbs.run_on_device}
        return len(operations_of(lambda: run_sweeps(rbm, z, num_sweeps, **options)))

    assert operations(11) - operations(1) <= 10 * 12
