"""MNIST, binarized afresh in each training step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from discrete_vae.checks import check_positive_int
from discrete_vae.data.archive import Archive, ArrayRule, fetch_archive
from discrete_vae.data.bits import dataset_of_bits
from discrete_vae.data.dataset import DataSplits
from discrete_vae.data.download import Mirror, RemoteFile
from discrete_vae.data.idx_files import read_idx
from discrete_vae.data.parts import as_rows, check_leaves_examples

_FILES = {
    "train_images": "train-images-idx3-ubyte.gz",
    "train_labels": "train-labels-idx1-ubyte.gz",
    "test_images": "t10k-images-idx3-ubyte.gz",
    "test_labels": "t10k-labels-idx1-ubyte.gz",
}


def convert(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Turn the four IDX files into the arrays of ``mnist.npz``.

    Args:
        originals: Paths by file name.

    Raises:
        InvalidInputError: If a file is not of the IDX format.
    """
    return {key: read_idx(originals[name]) for key, name in _FILES.items()}


ARCHIVE = Archive(
    file_name="mnist.npz",
    arrays={
        "train_images": ArrayRule("uint8", (60000, 28, 28)),
        "test_images": ArrayRule("uint8", (10000, 28, 28)),
        "train_labels": ArrayRule("uint8", (60000,), highest=9, optional=True),
        "test_labels": ArrayRule("uint8", (10000,), highest=9, optional=True),
    },
    mirror=Mirror(
        addresses=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        files=(
            RemoteFile(
                _FILES["train_images"],
                "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                9_912_422,
            ),
            RemoteFile(
                _FILES["train_labels"],
                "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                28_881,
            ),
            RemoteFile(
                _FILES["test_images"],
                "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                1_648_877,
            ),
            RemoteFile(
                _FILES["test_labels"],
                "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                4_542,
            ),
        ),
    ),
    convert=convert,
)


def load_mnist_dynamic(
    *,
    num_valid: int = 10000,
    binarization_seed: int = 0,
    data_dir: str | Path | None = None,
    archive: Archive = ARCHIVE,
) -> DataSplits:
    """MNIST with intensities / 255 as the probabilities of binarizing it afresh in each step.

    The last `num_valid` of the 60000 training images, in the published order, are the validation part.
    Validation and test parts are binarized once and stand in a fixed random order, so that their first rows
    are a fair subset. Images are upright, ink is 1.

    Source: Salakhutdinov and Murray 2008, section 5 (the binarization); LeCun et al. 1998 (the images).

    Args:
        num_valid: Examples of the validation part.
        binarization_seed: Seed of the bits that the validation and test parts keep.
        data_dir: Folder of ``mnist.npz``; None means ``DISCRETE_VAE_DATA`` or the user's cache.
        archive: The file's form and mirror.

    Returns:
        A dynamic data set of 784 features.

    Raises:
        InvalidInputError: If num_valid leaves nothing to train on, or the file is damaged or cannot be downloaded.
    """
    check_positive_int("num_valid", num_valid)
    stored = fetch_archive(archive, data_dir)
    images = as_rows(stored.arrays["train_images"])
    check_leaves_examples("num_valid", num_valid, len(images))
    train, valid = np.split(images, [len(images) - num_valid])
    test = as_rows(stored.arrays["test_images"])
    labels = {}
    if "train_labels" in stored.arrays:
        kinds = np.split(stored.arrays["train_labels"], [len(images) - num_valid])
        labels |= dict(zip(("train", "valid"), kinds, strict=True))
    if "test_labels" in stored.arrays:
        labels["test"] = stored.arrays["test_labels"]
    return dataset_of_bits(
        "mnist-dynamic",
        {"train": train, "valid": valid, "test": test},
        event_shape=(1, 28, 28),
        source="MNIST (LeCun, Cortes, Burges)",
        version="grayscale 28x28, 60000/10000",
        split=", valid from the end of the published training part",
        sha256=stored.sha256,
        binarization_seed=binarization_seed,
        labels=labels,
    )
