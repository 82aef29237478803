"""A fixed random choice of the examples that a run trains on and validates with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from discrete_vae.config import TrainingConfig
from discrete_vae.data.dataset import DataSplits
from discrete_vae.data.fixed_draws import fixed_permutation
from discrete_vae.errors import InvalidInputError

_SEED, _STREAM = 0, 0x63686F73656E
_TEST_KEY = 0


def chosen_examples(dataset: DataSplits, training: TrainingConfig) -> DataSplits:
    """The data set with as many training and validation examples as a config asks for.

    The choice depends on the numbers alone, so a resumed run sees the same examples; their order is kept, and choosing
    again changes nothing.

    Args:
        dataset: The whole data set.
        training: Its `num_examples` and `num_validation_examples`; None takes all.

    Returns:
        The data set, with its test part as it was.

    Raises:
        InvalidInputError: If more examples are asked for than there are.

    Examples:
        >>> from discrete_vae.data.load import load_dataset
        >>> few = chosen_examples(load_dataset("digits"), TrainingConfig(num_examples=200))
        >>> len(few.train), len(few.valid), len(few.test)
        (200, 250, 250)
    """
    return replace(
        dataset,
        train=_chosen(dataset.train, training.num_examples, "training.num_examples"),
        valid=_chosen(dataset.valid, training.num_validation_examples, "training.num_validation_examples"),
    )


def chosen_test_examples(length: int, number: int | None, *, argument: str = "num_examples") -> np.ndarray:
    """The numbers of the test examples to look at: all, or a choice that no seed changes.

    So evaluations with other seeds differ in their noise alone. A smaller choice is part of every larger one.

    Args:
        length: How many there are.
        number: How many are wanted; None means all.
        argument: What messages call the number.

    Returns:
        (example,) int64, ascending.

    Raises:
        InvalidInputError: If more are wanted than there are.

    Examples:
        >>> chosen_test_examples(100, 3).tolist()
        [30, 33, 45]
    """
    if number is not None and number > length:
        rule = f"must be at most the {length} test examples"
        raise InvalidInputError(argument, rule, number, "Leave it out for all of them.")
    return np.sort(fixed_permutation(length, _TEST_KEY)[:number])


def _chosen(part: Tensor, count: int | None, name: str) -> Tensor:
    if count is None or count == len(part):
        return part
    if count > len(part):
        rule = f"must be at most the {len(part)} examples that there are"
        raise InvalidInputError(name, rule, count, "Leave it out for all of them.")
    return part[sorted(fixed_permutation(len(part), _SEED, _STREAM)[:count].tolist())]
