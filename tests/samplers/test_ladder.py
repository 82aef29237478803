"""Ladders: the number of replicas and their places follow the lengths of the gaps."""

import pytest
import torch
from scipy import special

from discrete_vae.errors import InvalidInputError
from discrete_vae.samplers.tempering import MAX_REPLICAS, check_ladder, retuned_ladder, start_ladder


def normal_rates(ladder, deviation):
    """Rates between neighbors whose energies are normal with one deviation at all temperatures."""
    return torch.from_numpy(special.erfc((ladder.diff() * deviation / 2).numpy()))


@pytest.mark.parametrize("deviation", [2.0, 9.0, 40.0])
def test_normal_energies_get_rates_near_one_half_in_one_step(deviation):
    ladder = torch.tensor([0.0, 0.05, 0.1, 0.3, 0.4, 0.6, 0.65, 0.9, 1.0], dtype=torch.float64)
    ladder = retuned_ladder(ladder, normal_rates(ladder, deviation).clamp_min(1e-300))
    for _ in range(2):  # gaps too wide to be measured take another step
        ladder = retuned_ladder(ladder, normal_rates(ladder, deviation))
    rates = normal_rates(ladder, deviation)
    torch.testing.assert_close(rates, rates.mean().expand(len(rates)))
    assert len(ladder) == round(deviation / 0.9539) + 1
    assert float(rates[0]) == pytest.approx(0.5, abs=0.02 if deviation > 9 else 0.05)
    assert (float(ladder[0]), float(ladder[-1])) == (0.0, 1.0)


def test_rates_of_one_leave_two_replicas():
    assert retuned_ladder(start_ladder(), torch.ones(len(start_ladder()) - 1)).tolist() == [0.0, 1.0]


def test_the_number_of_replicas_is_bounded():
    ladder = torch.linspace(0, 1, 200, dtype=torch.float64)
    assert len(retuned_ladder(ladder, torch.zeros(199))) == MAX_REPLICAS


@pytest.mark.parametrize("ladder", [[], [0.5], [0, 0.5], [0, 0.6, 0.4, 1], [-0.1, 1], [0, 1, 1], [[0, 1]]])
def test_ladders_that_do_not_rise_to_one_are_refused(ladder):
    with pytest.raises(InvalidInputError, match="inverse_temperatures must rise strictly"):
        check_ladder(ladder)


def test_one_replica_is_a_ladder():
    assert check_ladder([1]).tolist() == [1.0]


@pytest.mark.parametrize("wrong", [object(), "text", [[0.0], [0.5, 1.0]], {"a": 1}, [None], []])
def test_what_holds_no_numbers_is_no_ladder(wrong):
    with pytest.raises(InvalidInputError, match="inverse_temperatures must rise strictly"):
        check_ladder(wrong)
