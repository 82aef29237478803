import math

import pytest

from discrete_vae import LogPartition
from discrete_vae.errors import InvalidInputError
from discrete_vae.evaluation.evaluate import repeat_log_partition


def test_mean_spread_and_stated_error():
    values, seeds, seen = iter([1.0, 2.0, 3.0]), [], []

    def estimate(seed):
        seeds.append(seed)
        return LogPartition(next(values), 0.5, "bridge sampling", 10)

    repeated = repeat_log_partition(estimate, 3, seed=7, report=lambda number, found: seen.append(number))
    assert (repeated.mean, repeated.std, repeated.rms_std_error) == (2.0, 1.0, 0.5)
    assert len(set(seeds)) == 3
    assert seen == [1, 2, 3]


def test_one_repeat_has_no_spread():
    assert math.isnan(repeat_log_partition(lambda seed: LogPartition(1.0, 0.1, "x", 1), 1).std)
    with pytest.raises(InvalidInputError, match="repeats must be a positive integer"):
        repeat_log_partition(lambda seed: LogPartition(1.0, 0.1, "x", 1), 0)
