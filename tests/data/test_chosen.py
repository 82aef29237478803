"""A run's fixed choice of examples."""

import dataclasses

import pytest
import torch

from discrete_vae.config import TrainingConfig
from discrete_vae.data.datasets import load_dataset
from discrete_vae.data.splits import chosen_examples
from discrete_vae.errors import InvalidInputError


@pytest.fixture
def numbered():
    """Digits whose first feature is the number of the example."""
    digits = load_dataset("digits")
    train = torch.arange(1000.0)[:, None].expand(-1, 64)
    return dataclasses.replace(digits, train=train)


def test_the_choice_is_fixed_in_order_without_repeats_and_spread_over_the_part(numbered):
    few = chosen_examples(numbered, TrainingConfig(num_examples=100, num_validation_examples=7))
    again = chosen_examples(numbered, TrainingConfig(num_examples=100, num_validation_examples=7))
    rows = few.train[:, 0]
    assert torch.equal(rows, again.train[:, 0])
    assert torch.equal(rows, rows.unique())  # sorted, each once
    assert len(rows) == 100
    assert 400 < rows.mean() < 600
    assert len(few.valid) == 7
    assert torch.equal(few.test, numbered.test)


def test_choosing_again_changes_nothing(numbered):
    training = TrainingConfig(num_examples=100)
    few = chosen_examples(numbered, training)
    assert torch.equal(chosen_examples(few, training).train, few.train)
    assert chosen_examples(numbered, TrainingConfig()).train is numbered.train


def test_more_than_there_are_is_refused(numbered):
    message = "training.num_examples must be at most the 1000 examples that there are; received 1001"
    with pytest.raises(InvalidInputError, match=message):
        chosen_examples(numbered, TrainingConfig(num_examples=1001))
