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
                "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            RemoteFile(
                _FILES["train_labels"],
                "md5:d53e105ee54ea40749a09fcbcd1e9432",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            RemoteFile(
                _FILES["test_images"],
                "md5:9fb629c4189551a2d022fa330f9573f3",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            RemoteFile(
                _FILES["test_labels"],
                "md5:ec29112dd5afa0611ce80d1b7f02629c",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
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
