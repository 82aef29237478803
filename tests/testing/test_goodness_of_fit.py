"""The statistical checks themselves: their false-alarm rate, their power, their minimum of data."""

import pytest
import torch

from discrete_vae.testing import TooFewSamplesError, check_frequencies, check_mean


def rejected(check, *arguments, **keywords):
    try:
        check(*arguments, **keywords)
    except TooFewSamplesError:
        raise
    except AssertionError:
        return True
    return False


def test_false_alarm_rate_of_means():
    generator = torch.Generator().manual_seed(0)
    alarms = sum(
        rejected(check_mean, torch.randn(40, 5, generator=generator), torch.zeros(5), alpha=0.05)
        for _ in range(1000)
    )
    assert alarms <= 0.05 * 1000 + 5 * (0.05 * 0.95 * 1000) ** 0.5


def test_false_alarm_rate_of_frequencies():
    generator = torch.Generator().manual_seed(0)
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draws = torch.multinomial(p, 500 * 1000, replacement=True, generator=generator).reshape(1000, 500)
    alarms = sum(
        rejected(check_frequencies, torch.bincount(row, minlength=4), p, alpha=0.05) for row in draws
    )
    assert 10 <= alarms <= 85


def test_power_of_means():
    noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    assert rejected(check_mean, noise + torch.tensor([0.0, 1.5, 0.0]), torch.zeros(3))
    assert rejected(check_mean, torch.full((60, 1), float("nan")), torch.zeros(1))


def test_power_of_frequencies():
    assert rejected(check_frequencies, torch.tensor([600, 400]), torch.tensor([0.5, 0.5]))
    assert rejected(check_frequencies, torch.tensor([600, 400, 1]), torch.tensor([0.6, 0.4, 0.0]))


def test_too_little_data_fails():
    with pytest.raises(TooFewSamplesError):
        check_mean(torch.zeros(10, 1), torch.zeros(1))
    with pytest.raises(TooFewSamplesError):
        check_mean(torch.randn(40, 1), torch.zeros(1), resolution=1e-3)
    with pytest.raises(TooFewSamplesError):
        check_frequencies(torch.tensor([1, 1]), torch.tensor([0.5, 0.5]))
