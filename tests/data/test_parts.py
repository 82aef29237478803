import numpy as np
import pytest
import torch

from discrete_vae.data.splits import as_rows, check_leaves_examples, evaluation_part, training_part
from discrete_vae.errors import InvalidInputError


def test_images_become_rows_in_the_unit_interval():
    images = np.arange(12, dtype=np.uint8).reshape(1, 3, 4) * 20
    rows = as_rows(images)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0] * 255, np.arange(12) * 20, rtol=1e-6)


def test_an_evaluation_part_is_the_same_in_every_run_and_in_another_order():
    rows = np.eye(50)
    part = evaluation_part(rows, "test", binarization_seed=None)
    assert torch.equal(part, evaluation_part(rows, "test", binarization_seed=None))
    assert torch.equal(part.sum(0), torch.ones(50))
    assert not torch.equal(part, torch.eye(50))
    assert torch.equal(evaluation_part(rows, "test", binarization_seed=None, shuffled=False), torch.eye(50))


def test_bits_depend_on_seed_and_part_but_not_on_the_order():
    rows = np.full((20, 30), 0.5)
    kept = evaluation_part(rows, "valid", binarization_seed=1, shuffled=False)
    shuffled = evaluation_part(rows, "valid", binarization_seed=1)
    assert sorted(kept.tolist()) == sorted(shuffled.tolist())
    assert not torch.equal(kept, evaluation_part(rows, "valid", binarization_seed=2, shuffled=False))
    assert not torch.equal(kept, evaluation_part(rows, "test", binarization_seed=1, shuffled=False))


def test_a_training_part_keeps_values_and_order():
    assert training_part(np.array([[0.25, 1.0], [0.5, 0.0]])).tolist() == [[0.25, 1.0], [0.5, 0.0]]


def test_holding_out_everything_is_refused():
    check_leaves_examples("num_valid", 9, 10)
    with pytest.raises(
        InvalidInputError, match="num_valid must leave examples to train on; received 10 held out of 10"
    ):
        check_leaves_examples("num_valid", 10, 10)
