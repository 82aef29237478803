"""MNIST in the one published binarization."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from discrete_vae.data.amat_files import read_amat
from discrete_vae.data.archive import Archive, ArrayRule, fetch_archive
from discrete_vae.data.bits import dataset_of_bits
from discrete_vae.data.dataset import DataSplits
from discrete_vae.data.download import Mirror, RemoteFile
from discrete_vae.errors import InvalidInputError

_PARTS = ("train", "valid", "test")


def convert(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Turn the three text files into the arrays of ``static_mnist.npz``: bits packed by row, and the shapes.

    Args:
        originals: Paths by file name.

    Raises:
        InvalidInputError: If a file does not hold rows of bits.
    """
    arrays = {}
    for part in _PARTS:
        bits = read_amat(originals[f"binarized_mnist_{part}.amat"])
        arrays[part] = np.packbits(bits, axis=1)
        arrays[f"{part}_shape"] = np.array(bits.shape, dtype=np.int64)
    return arrays


ARCHIVE = Archive(
    file_name="static_mnist.npz",
    arrays={
        "train": ArrayRule("uint8", (50000, 98)),
        "valid": ArrayRule("uint8", (10000, 98)),
        "test": ArrayRule("uint8", (10000, 98)),
        **{f"{part}_shape": ArrayRule("int64", (2,)) for part in _PARTS},
    },
    mirror=Mirror(
        addresses=("http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/",),
        files=(
            RemoteFile(
                "binarized_mnist_train.amat",
                "sha256:ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d",
                78_400_000,
            ),
            RemoteFile(
                "binarized_mnist_valid.amat",
                "sha256:1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2",
                15_680_000,
            ),
            RemoteFile(
                "binarized_mnist_test.amat",
                "sha256:e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c",
                15_680_000,
            ),
        ),
    ),
    convert=convert,
)


def load_mnist_static(*, data_dir: str | Path | None = None, archive: Archive = ARCHIVE) -> DataSplits:
    """MNIST in the fixed binarization of 50000/10000/10000 images that most published figures are for.

    Not to be confused with dynamic binarization: figures for the two are not comparable. The published test
    part is sorted by class; here validation and test parts stand in a fixed random order, so that their first
    rows are a fair subset. Images are upright, ink is 1.

    Source: Salakhutdinov and Murray 2008; files by Larochelle (Larochelle and Murray 2011).

    Args:
        data_dir: Folder of ``static_mnist.npz``; None means ``DISCRETE_VAE_DATA`` or the user's cache.
        archive: The file's form and mirror.

    Returns:
        A data set of 784 binary features.

    Raises:
        InvalidInputError: If the file is damaged or cannot be downloaded.
    """
    stored = fetch_archive(archive, data_dir)
    bits = {part: _unpack(stored.arrays, part, archive.file_name) for part in _PARTS}
    return dataset_of_bits(
        "mnist-static",
        bits,
        event_shape=(1, 28, 28),
        source="binarized MNIST (Salakhutdinov and Murray 2008), files by Larochelle",
        version="binarized_mnist_{train,valid,test}.amat",
        split=", as published",
        sha256=stored.sha256,
    )


def _unpack(arrays: Mapping[str, np.ndarray], part: str, file_name: str) -> np.ndarray:
    packed, shape = arrays[part], tuple(arrays[f"{part}_shape"].tolist())
    if shape != (len(packed), 784):
        name = f"{file_name}, array '{part}_shape',"
        raise InvalidInputError(
            name, f"must be {(len(packed), 784)}", shape, "Remove the file to have it made anew."
        )
    return np.unpackbits(packed, axis=1)
