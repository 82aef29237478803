import pytest
import torch

from discrete_vae.data.datasets import load_digits
from discrete_vae.errors import InvalidInputError


def test_sizes_values_and_mean():
    digits = load_digits()
    assert (len(digits.train), len(digits.valid), len(digits.test)) == (1297, 250, 250)
    assert digits.train.unique().numel() == 17
    assert set(digits.test.unique().tolist()) == {0.0, 1.0}
    # mean intensity of the 1797 images is 4.884165 of 16
    assert digits.train.mean().item() == pytest.approx(4.884165 / 16, abs=2e-3)
    assert digits.image_shape == (8, 8)
    assert digits.dynamic


def test_the_split_is_the_same_in_every_run_and_changes_with_its_seed():
    first = load_digits()
    assert torch.equal(load_digits().train, first.train)
    assert torch.equal(load_digits().test, first.test)
    assert not torch.equal(load_digits(split_seed=1).train, first.train)


def test_the_binarization_seed_changes_the_evaluation_bits_only():
    first, other = load_digits(), load_digits(binarization_seed=1)
    assert torch.equal(first.train, other.train)
    assert not torch.equal(first.valid, other.valid)
    assert not torch.equal(first.test, other.test)


def test_digits_are_upright():
    """Columns are empty at the left edge, rows are not at the top; transposed, it is the other way round."""
    ink = load_digits().train.mean(0).reshape(8, 8)
    assert ink[:, 0].max() < 0.03
    assert ink[0, 2:5].min() > 0.3


def test_the_parts_must_leave_examples(tmp_path):
    with pytest.raises(
        InvalidInputError, match=r"num_valid \+ num_test must leave examples.*1797 held out of 1797"
    ):
        load_digits(num_valid=1000, num_test=797)
    with pytest.raises(InvalidInputError, match="num_valid must be a positive integer"):
        load_digits(num_valid=0)
    with pytest.raises(InvalidInputError, match="data_dir must be an existing folder"):
        load_digits(data_dir=tmp_path / "none")


def test_labels_stay_with_their_examples():
    """The nearest other image has the same label nearly always."""
    digits = load_digits()
    distance = torch.cdist(digits.test, digits.train)
    nearest = digits.labels["train"][distance.argmin(1)]
    assert (nearest == digits.labels["test"]).mean() > 0.8
    assert set(digits.labels["valid"].tolist()) == set(range(10))
