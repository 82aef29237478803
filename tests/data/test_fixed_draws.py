import numpy as np
import pytest

from discrete_vae.data.splits import fixed_bits, fixed_permutation
from discrete_vae.errors import InvalidInputError


def test_a_permutation_holds_every_number_once():
    assert sorted(fixed_permutation(1000, 3, 1)) == list(range(1000))
    assert fixed_permutation(0, 3).shape == (0,)


def test_permutations_depend_on_seed_and_key_alone():
    first = fixed_permutation(100, 3, 1)
    np.testing.assert_array_equal(fixed_permutation(100, 3, 1), first)
    for other in (fixed_permutation(100, 3, 2), fixed_permutation(100, 4, 1), fixed_permutation(100, 3)):
        assert (other != first).any()


def test_each_place_is_as_likely():
    counts = np.zeros((5, 5))
    for seed in range(4000):
        counts[np.arange(5), fixed_permutation(5, seed)] += 1
    # 25 cells at |z| < 5.6: a false alarm in 1e6 seeds or fewer
    assert (abs(counts - 800) < 5.6 * np.sqrt(4000 * 0.2 * 0.8)).all()


def test_bits_follow_their_probabilities():
    probabilities = np.repeat([0.0, 0.01, 0.5, 0.9, 1.0], 40000).reshape(5, 40000)
    bits = fixed_bits(probabilities, 9, 1)
    assert bits.dtype == np.float32
    assert set(np.unique(bits)) == {0.0, 1.0}
    p = probabilities[:, 0]
    assert (abs(bits.mean(axis=1) - p) <= 5.2 * np.sqrt(p * (1 - p) / 40000)).all()
    wrong = fixed_bits(probabilities * 0.95, 9, 1).mean(axis=1)
    assert (abs(wrong - p) > 5.2 * np.sqrt(p * (1 - p) / 40000))[2:].all()  # the bound has the power to tell
    assert bits[0].max() == 0
    assert bits[4].min() == 1
    assert (fixed_bits(probabilities, 9, 2) != bits).any()


def test_bad_seeds_are_refused():
    with pytest.raises(InvalidInputError, match="seed must be an integer from 0"):
        fixed_permutation(3, -1)
