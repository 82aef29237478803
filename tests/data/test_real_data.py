"""Facts of the published files, checked where this machine has them."""

import gc

import pytest
import torch

from discrete_vae.data.datasets import load_dataset

SHAPES = {
    "mnist-dynamic": (50000, 10000, 10000),
    "mnist-static": (50000, 10000, 10000),
    "omniglot": (23000, 1345, 8115),
    "caltech101-silhouettes": (4100, 2264, 2307),
}


@pytest.fixture(scope="module", params=SHAPES)
def data(request, real_data):
    yield load_dataset(request.param, data_dir=real_data)
    gc.collect()


def test_sizes_values_and_means(data):
    assert (len(data.train), len(data.valid), len(data.test)) == SHAPES[data.name] or (
        data.name == "omniglot" and len(data.test) == 8070
    )
    assert data.image_shape == (28, 28)
    assert data.num_features == 784
    assert len(data.description.sha256) == 64
    for part in (data.train, data.valid, data.test):
        assert part.dtype == torch.float32
        assert bool(((part >= 0) & (part <= 1)).all())
    for part in (data.valid, data.test):
        assert bool(((part == 0) | (part == 1)).all())
    means = [part.double().mean().item() for part in (data.train, data.valid, data.test)]
    if data.name == "mnist-dynamic":
        # the two parts of the published training images together, and the bits within their noise
        assert (5 * means[0] + means[1]) / 6 == pytest.approx(0.130660, abs=5e-5)
        assert means[2] == pytest.approx(0.132515, abs=3e-4)
    elif data.name == "mnist-static":
        assert means == pytest.approx([0.130562, 0.131127, 0.132512], abs=1e-6)
    elif data.name == "omniglot" and data.description.version == "rebuilt":
        assert (23000 * means[0] + 1345 * means[1]) / 24345 == pytest.approx(0.083004, abs=5e-5)
        assert means[2] == pytest.approx(0.081987, abs=3e-4)
    elif data.name == "caltech101-silhouettes":
        assert means == pytest.approx([1 - 0.551055, 1 - 0.535959, 1 - 0.539015], abs=1e-6)


def test_the_first_rows_of_the_test_part_are_a_fair_subset(data):
    """The published static MNIST starts with all zeros, whose ink is far from the average."""
    ink = data.test.mean(1)
    standard_error = (ink.std() / 1000**0.5).item()
    assert abs(ink[:1000].mean() - ink.mean()).item() < 5 * standard_error


def test_bits_are_possible_binarizations(data):
    if not data.dynamic:
        assert bool(((data.train == 0) | (data.train == 1)).all())
    else:
        levels = (data.train[::10] * 255).round().long()
        assert torch.bincount(levels.flatten(), minlength=256).count_nonzero() == 256


def test_caltech_is_upright(real_data):
    """Left and right halves hold about as much of the objects, upper and lower ones do not."""
    ink = load_dataset("caltech101-silhouettes", data_dir=real_data).train.mean(0).reshape(28, 28)
    vertical = abs(ink[:14].sum() - ink[14:].sum())
    horizontal = abs(ink[:, :14].sum() - ink[:, 14:].sum())
    assert vertical > 2 * horizontal
