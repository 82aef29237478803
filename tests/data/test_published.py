"""Each published data set from small originals of the same formats, by way of a server on this machine."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.io import savemat

from discrete_vae.data import datasets
from discrete_vae.data.datasets import (
    load_caltech101_silhouettes,
    load_mnist_dynamic,
    load_mnist_static,
    load_omniglot,
)
from discrete_vae.data.download import Archive, Mirror, RemoteFile, git_blob_id
from discrete_vae.errors import InvalidInputError


def resized(archive: Archive, lengths: dict[str, int]) -> Archive:
    """The archive with other numbers of examples."""
    arrays = {
        key: replace(rule, shape=(lengths[key], *rule.shape[1:])) if key in lengths else rule
        for key, rule in archive.arrays.items()
    }
    return replace(archive, arrays=arrays)


def served(archive: Archive, site, lengths: dict[str, int]) -> Archive:
    """The archive with the sums of the files that are served, and other numbers of examples."""
    folder, address = site
    files = []
    for file in archive.mirror.files:
        content = (folder / file.name).read_bytes()
        algorithm = file.checksum.partition(":")[0]
        if algorithm == "git-blob":
            found = git_blob_id(folder / file.name)
        else:
            found = hashlib.new(algorithm, content).hexdigest()
        files.append(RemoteFile(file.name, f"{algorithm}:{found}", (folder / file.name).stat().st_size))
    return resized(replace(archive, mirror=Mirror((address,), tuple(files))), lengths)


@pytest.fixture
def images():
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (9, 28, 28), dtype=np.uint8)


@pytest.fixture
def bits(images):
    return (images.reshape(9, 784) > 127).astype(np.uint8)


def same_rows(part: torch.Tensor, rows: np.ndarray) -> bool:
    return sorted(part.tolist()) == sorted(np.asarray(rows, dtype=np.float32).tolist())


def test_mnist_dynamic(site, folder, images, idx):
    labels = np.arange(9, dtype=np.uint8)
    for key, array in {"train_images": images[:6], "test_images": images[6:]}.items():
        (site[0] / datasets._FILES[key]).write_bytes(idx(array))
        (site[0] / datasets._FILES[key.replace("images", "labels")]).write_bytes(idx(labels[: len(array)]))
    lengths = {"train_images": 6, "test_images": 3, "train_labels": 6, "test_labels": 3}
    archive = served(datasets.MNIST_DYNAMIC, site, lengths)
    data = load_mnist_dynamic(num_valid=2, data_dir=folder, archive=archive)
    assert data.labels["train"].tolist() == [0, 1, 2, 3]
    for part, first in {"valid": 4, "test": 0}.items():
        rows = images[6:] if part == "test" else images[4:6]
        for bits, label in zip(getattr(data, part), data.labels[part], strict=True):
            ink = torch.from_numpy(rows[label - first].reshape(784))
            assert not bool(((bits == 1) & (ink == 0)).any())
            assert bool((bits[ink == 255] == 1).all())
    assert torch.equal(data.train, torch.from_numpy(images[:4].reshape(4, 784)) / 255)
    assert (data.valid.shape, data.test.shape, data.dynamic) == ((2, 784), (3, 784), True)
    assert set(data.test.unique().tolist()) == {0.0, 1.0}
    with np.load(folder / "mnist.npz") as kept:
        assert sorted(kept.files) == ["test_images", "test_labels", "train_images", "train_labels"]
        np.testing.assert_array_equal(kept["test_labels"], [0, 1, 2])
    other = load_mnist_dynamic(num_valid=2, binarization_seed=1, data_dir=folder, archive=archive)
    assert not torch.equal(other.test, data.test)
    with pytest.raises(
        InvalidInputError, match="num_valid must leave examples to train on; received 6 held out of 6"
    ):
        load_mnist_dynamic(num_valid=6, data_dir=folder, archive=archive)
    with pytest.raises(InvalidInputError, match="num_valid must be a positive integer"):
        load_mnist_dynamic(num_valid=0, data_dir=folder, archive=archive)


def test_mnist_static(site, folder, bits):
    rows = {"train": bits[:4], "valid": bits[4:6], "test": bits[6:]}
    for part, values in rows.items():
        text = "".join(" ".join(map(str, row)) + "\n" for row in values)
        (site[0] / f"binarized_mnist_{part}.amat").write_text(text)
    archive = served(datasets.MNIST_STATIC, site, {part: len(values) for part, values in rows.items()})
    data = load_mnist_static(data_dir=folder, archive=archive)
    np.testing.assert_array_equal(data.train.numpy(), rows["train"])
    assert same_rows(data.valid, rows["valid"])
    assert same_rows(data.test, rows["test"])
    assert not data.dynamic
    with np.load(folder / "static_mnist.npz") as kept:
        wrong = dict(kept) | {"test_shape": np.array([3, 783])}
    np.savez(folder / "static_mnist.npz", **wrong)
    with pytest.raises(
        InvalidInputError, match=r"array 'test_shape', must be \(3, 784\); received \(3, 783\)"
    ):
        load_mnist_static(data_dir=folder, archive=archive)


def test_omniglot(site, folder, images):
    reals = images.transpose(0, 2, 1).reshape(9, 784).T / 255  # column-major images in columns
    savemat(
        site[0] / "chardata.mat",
        {"data": reals[:, :6], "testdata": reals[:, 6:], "target": np.zeros((50, 6))},
    )
    archive = served(datasets.OMNIGLOT, site, {"train": 6, "test": 3})
    data = load_omniglot(num_valid=2, data_dir=folder, archive=archive)
    assert data.description.version == "chardata.mat"
    rows = torch.from_numpy(images.reshape(9, 784)) / 255
    assert all(any(torch.equal(mine, theirs) for theirs in rows[:6]) for mine in data.train)
    assert (data.train.shape, data.valid.shape, data.test.shape) == ((4, 784), (2, 784), (3, 784))
    assert data.dynamic
    other = load_omniglot(num_valid=2, split_seed=1, data_dir=folder, archive=archive)
    assert not torch.equal(other.train, data.train)
    with pytest.raises(InvalidInputError, match="num_valid must leave examples"):
        load_omniglot(num_valid=6, data_dir=folder, archive=archive)


def test_omniglot_says_which_form_it_read(folder, images):
    archive = resized(datasets.OMNIGLOT, {"train": 6, "test": 3, "train_drawer": 6})
    parts = {"train": images[:6], "test": images[6:]}
    np.savez(folder / "omniglot.npz", **parts, train_drawer=np.ones(6, np.uint8))
    assert load_omniglot(num_valid=2, data_dir=folder, archive=archive).description.version == "rebuilt"
    np.savez(folder / "omniglot.npz", **parts)
    assert load_omniglot(num_valid=2, data_dir=folder, archive=archive).description.version == "unknown"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": np.zeros((784, 6))}, "'testdata', must have 784 rows; received nothing"),
        ({"data": np.zeros((783, 6)), "testdata": np.zeros((784, 3))}, "'data', must have 784 rows"),
        ({"data": np.full((784, 6), 255.0), "testdata": np.zeros((784, 3))}, r"'data', must lie in \[0, 1\]"),
    ],
)
def test_omniglot_refuses_another_original(site, folder, content, message):
    savemat(site[0] / "chardata.mat", content)
    with pytest.raises(InvalidInputError, match=message):
        load_omniglot(data_dir=folder, archive=served(datasets.OMNIGLOT, site, {"train": 6, "test": 3}))
    assert list(folder.iterdir()) == []


def test_caltech101(site, folder, bits):
    published = 1 - bits.reshape(9, 28, 28).transpose(0, 2, 1).reshape(9, 784)  # column-major, object 0
    names = np.empty((1, 9), dtype=object)
    names[0] = [f"kind {number}" for number in range(1, 10)]
    content = {"classnames": names}
    for stem, part in {"train": slice(0, 4), "val": slice(4, 6), "test": slice(6, 9)}.items():
        content |= {f"{stem}_data": published[part], f"{stem}_labels": np.arange(9)[part, None] + 1}
    savemat(site[0] / "caltech101_silhouettes_28_split1.mat", content)
    lengths = {"train": 4, "valid": 2, "test": 3, "classnames": 9}
    lengths |= {f"{part}_labels": lengths[part] for part in ("train", "valid", "test")}
    archive = served(datasets.CALTECH101, site, lengths)
    data = load_caltech101_silhouettes(data_dir=folder, archive=archive)
    np.testing.assert_array_equal(data.train.numpy(), bits[:4])
    assert same_rows(data.valid, bits[4:6])
    assert same_rows(data.test, bits[6:])
    assert not data.dynamic
    assert data.labels["train"].tolist() == ["kind 1", "kind 2", "kind 3", "kind 4"]
    for row, label in zip(data.test.numpy(), data.labels["test"], strict=True):
        np.testing.assert_array_equal(row, bits[int(label.split()[1]) - 1])
    with np.load(folder / "caltech101_silhouettes.npz") as kept:
        assert kept["valid_labels"].tolist() == [5, 6]
        assert kept["classnames"].tolist() == names[0].tolist()
        np.testing.assert_array_equal(kept["train"], published[:4])


def test_caltech101_refuses_another_original(site, folder):
    savemat(site[0] / "caltech101_silhouettes_28_split1.mat", {"X": np.zeros((2, 784))})
    with pytest.raises(InvalidInputError, match=r"must hold 'train_data'; received .*X"):
        load_caltech101_silhouettes(data_dir=folder, archive=served(datasets.CALTECH101, site, {}))
