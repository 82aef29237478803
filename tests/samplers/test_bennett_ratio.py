"""Bennett's ratio against works whose answer is known, and a planted fault."""

import math

import pytest
import torch

from discrete_vae.log_partition.bridge import bridge_term, solve_gaps, weighted_ratio
from discrete_vae.testing.goodness_of_fit import check_mean


def gaussian_works(number, *, answer, spread, seed=0):
    """Works with log Z_1 - log Z_0 = answer: those of machine 0 are normal, those of 1 the same less their variance."""
    noise = torch.randn(2, number, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    middle = -answer + spread**2 / 2
    return middle + spread * noise[0], middle - spread**2 + spread * noise[1]


def deviations(solve, num_runs=60):
    """Deviations from the answer in standard errors."""
    scores = []
    for seed in range(num_runs):
        up, down = gaussian_works(2000, answer=3.0, spread=1.2, seed=seed)
        value, error = solve(up, down)
        scores.append((value - 3.0) / error)
    return torch.tensor(scores)[:, None]


def ratio_and_error(up, down, weights, *, num_down):
    """Of independent states."""
    value, influence, error = weighted_ratio(up, down, weights, num_up=len(up), num_down=num_down)
    return value, math.hypot(float(influence.std()) / math.sqrt(len(up)), error)


def unweighted(up, down):
    return ratio_and_error(up, down[:500], torch.full((500,), 1 / 500).double(), num_down=500)


def test_the_answer_is_found_within_its_error_with_unequal_numbers():
    scores = deviations(unweighted)
    check_mean(scores, torch.zeros(1))
    assert 0.7 < float(scores.std()) < 1.4


def test_states_swapped_for_each_other_s_are_a_fault_that_is_caught():
    with pytest.raises(AssertionError, match="standard errors apart"):
        check_mean(deviations(lambda up, down: unweighted(down, up)), torch.zeros(1))


def test_weights_bring_states_of_another_law_to_that_of_machine_1():
    """States of machine 0 with weights exp(-w) are such states."""
    up, _ = gaussian_works(200_000, answer=1.0, spread=0.8)
    weights = (-up[100_000:]).softmax(0)
    value, error = ratio_and_error(
        up[:100_000], up[100_000:], weights, num_down=1 / float(weights.square().sum())
    )
    assert abs(value - 1.0) < 5 * error < 0.05


def test_gaps_are_the_same_for_any_guess_and_their_influences_sum_to_the_deviation():
    up, down = (works.view(1000, 2) for works in gaussian_works(2000, answer=0.5, spread=0.6))
    for guess in (torch.tensor([0.5, 0.5]).double(), torch.tensor([0.2, 0.9]).double()):
        gaps, influence = solve_gaps(*bridge_term(up, down, guess), guess)
        error = float(influence.std()) / math.sqrt(1000)
        assert abs(float(gaps.sum()) - 1.0) < 5 * error < 0.3
        assert float(influence.mean()) == pytest.approx(0, abs=1e-9)
