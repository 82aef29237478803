"""Size smoke is quick whatever the file."""

from pathlib import Path

import pytest

from discrete_vae.presets import own_data


@pytest.mark.parametrize(
    ("rows", "features", "steps"),
    [(48, 12, 200), (4_000, 200, 200), (800_000, 50, 200), (240, 20_000, 100), (80, 10**6, 20)],
)
def test_smoke_is_bounded(rows, features, steps):
    config = own_data(
        Path("x.npy"), event_shape=(features,), num_train=rows, num_valid=rows, num_test=rows, size="smoke"
    )
    training = config.training
    seen = training.num_examples or rows
    assert seen <= rows
    taken = training.num_epochs * (seen // training.batch_size)
    assert 0.9 * steps <= taken <= steps
    assert (training.num_validation_examples or rows) <= 250
    assert (config.evaluation.num_examples or rows) <= 250
    assert 0 < training.validate_every <= taken


def test_other_sizes_see_every_example():
    config = own_data(
        Path("x.npy"), event_shape=(50,), num_train=800_000, num_valid=10, num_test=10, size="short"
    )
    assert config.training.num_examples is None
    assert config.training.num_validation_examples is None
    assert config.evaluation.num_examples is None
