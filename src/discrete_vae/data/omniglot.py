"""Omniglot in 28x28, binarized afresh in each training step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from discrete_vae.checks import check_positive_int
from discrete_vae.data.archive import Archive, ArrayRule, fetch_archive
from discrete_vae.data.bits import dataset_of_bits
from discrete_vae.data.dataset import DataSplits
from discrete_vae.data.download import Mirror, RemoteFile
from discrete_vae.data.fixed_draws import fixed_permutation
from discrete_vae.data.parts import as_rows, check_leaves_examples
from discrete_vae.errors import InvalidInputError

_ORIGINAL = "chardata.mat"


def convert(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Turn ``chardata.mat`` into the arrays of ``omniglot.npz``.

    The original keeps real values in columns, each an image in column-major order; here they become 8-bit
    images, which moves a value by at most 0.002.

    Args:
        originals: Paths by file name.

    Raises:
        InvalidInputError: If the file lacks the images or they are not 28x28 in [0, 1].
    """
    from scipy.io import loadmat  # here, since only a first download needs it

    content = loadmat(originals[_ORIGINAL], variable_names=("data", "testdata"))
    return {
        "train": _images(content, "data"),
        "test": _images(content, "testdata"),
        "source": np.array(_ORIGINAL),
    }


ARCHIVE = Archive(
    file_name="omniglot.npz",
    arrays={
        "train": ArrayRule("uint8", (24345, 28, 28)),
        "test": ArrayRule("uint8", ((8070, 8115), 28, 28)),
        "train_drawer": ArrayRule("uint8", (24345,), highest=20, optional=True),
        "source": ArrayRule("str", (), optional=True),
    },
    mirror=Mirror(
        addresses=("https://raw.githubusercontent.com/yburda/iwae/master/datasets/OMNIGLOT/",),
        files=(RemoteFile(_ORIGINAL, "git-blob:016a3536ffe5e1d38e42563a18d7a78bfaf643ec", 100_000_000),),
    ),
    convert=convert,
)


def load_omniglot(
    *,
    num_valid: int = 1345,
    split_seed: int = 0,
    binarization_seed: int = 0,
    data_dir: str | Path | None = None,
    archive: Archive = ARCHIVE,
) -> DataSplits:
    """Omniglot with intensities as the probabilities of binarizing it afresh in each step.

    The published training part is sorted by alphabet; it is shuffled and its last `num_valid` images are the
    validation part. Validation and test parts are binarized once and stand in a fixed random order. Images
    are upright, ink is 1.

    The description's version says which form was read: ``chardata.mat`` (24345/8070, what published figures
    are for), or ``rebuilt`` (24345/8115, reduced anew from the 105x105 drawings), whose figures are not those
    of the published partition.

    Source: Lake, Salakhutdinov, Tenenbaum 2015 (the drawings); Burda, Grosse, Salakhutdinov 2016, section 5
    (the partition).

    Args:
        num_valid: Examples of the validation part.
        split_seed: Seed of the shuffle.
        binarization_seed: Seed of the bits that the validation and test parts keep.
        data_dir: Folder of ``omniglot.npz``; None means ``DISCRETE_VAE_DATA`` or the user's cache.
        archive: The file's form and mirror.

    Returns:
        A dynamic data set of 784 features.

    Raises:
        InvalidInputError: If num_valid leaves nothing to train on, or the file is damaged or cannot be downloaded.
    """
    check_positive_int("num_valid", num_valid)
    stored = fetch_archive(archive, data_dir)
    images = as_rows(stored.arrays["train"])
    check_leaves_examples("num_valid", num_valid, len(images))
    images = images[fixed_permutation(len(images), split_seed)]
    train, valid = np.split(images, [len(images) - num_valid])
    test = as_rows(stored.arrays["test"])
    return dataset_of_bits(
        "omniglot",
        {"train": train, "valid": valid, "test": test},
        event_shape=(1, 28, 28),
        source="Omniglot (Lake, Salakhutdinov, Tenenbaum 2015), 28x28",
        version=_version(stored.arrays),
        split=f", valid from the training part after a shuffle with seed {split_seed}",
        sha256=stored.sha256,
        binarization_seed=binarization_seed,
    )


def _version(arrays: Mapping[str, np.ndarray]) -> str:
    if "source" in arrays:
        return str(arrays["source"])
    # Only the rebuilt form knows who drew what.
    return "rebuilt" if "train_drawer" in arrays else "unknown"


def _images(content: Mapping[str, np.ndarray], key: str) -> np.ndarray:
    columns = content.get(key)
    repair = "Report it: the file had the right checksum."
    if columns is None or columns.ndim != 2 or columns.shape[0] != 784:
        received = "nothing" if columns is None else f"shape {columns.shape}"
        raise InvalidInputError(f"{_ORIGINAL}, {key!r},", "must have 784 rows", received, repair)
    if not (columns.min() >= 0 and columns.max() <= 1):
        received = f"values from {columns.min():g} to {columns.max():g}"
        raise InvalidInputError(f"{_ORIGINAL}, {key!r},", "must lie in [0, 1]", received, repair)
    upright = columns.T.reshape(-1, 28, 28).transpose(0, 2, 1)
    return np.ascontiguousarray(np.rint(upright * 255).astype(np.uint8))
