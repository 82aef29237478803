"""Caltech-101 Silhouettes in 28x28."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from discrete_vae.data.archive import Archive, ArrayRule, fetch_archive
from discrete_vae.data.bits import dataset_of_bits
from discrete_vae.data.dataset import DataSplits
from discrete_vae.data.download import Mirror, RemoteFile
from discrete_vae.errors import InvalidInputError

_ORIGINAL = "caltech101_silhouettes_28_split1.mat"
_PARTS = {"train": "train", "valid": "val", "test": "test"}


def convert(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Turn the published file into the arrays of ``caltech101_silhouettes.npz``, values and order unchanged.

    Args:
        originals: Paths by file name.

    Raises:
        InvalidInputError: If the file lacks an array.
    """
    from scipy.io import loadmat  # here, since only a first download needs it

    content = loadmat(originals[_ORIGINAL])
    arrays = {}
    for part, stem in _PARTS.items():
        for key, source in ((part, f"{stem}_data"), (f"{part}_labels", f"{stem}_labels")):
            if source not in content:
                repair = "Report it: the file had the right checksum."
                raise InvalidInputError(
                    _ORIGINAL, f"must hold {source!r}", ", ".join(sorted(content)), repair
                )
            values = content[source].astype(np.uint8)
            arrays[key] = values.ravel() if key.endswith("labels") else values
    names = content.get("classnames", np.zeros(0))
    arrays["classnames"] = np.array([str(np.ravel(name)[0]) for name in names.ravel()], dtype=np.str_)
    return arrays


ARCHIVE = Archive(
    file_name="caltech101_silhouettes.npz",
    arrays={
        "train": ArrayRule("uint8", (4100, 784), highest=1),
        "valid": ArrayRule("uint8", (2264, 784), highest=1),
        "test": ArrayRule("uint8", (2307, 784), highest=1),
        "train_labels": ArrayRule("uint8", (4100,), highest=101, optional=True),
        "valid_labels": ArrayRule("uint8", (2264,), highest=101, optional=True),
        "test_labels": ArrayRule("uint8", (2307,), highest=101, optional=True),
        "classnames": ArrayRule("str", (101,), optional=True),
    },
    mirror=Mirror(
        addresses=("https://people.cs.umass.edu/~marlin/data/",),
        files=(
            RemoteFile(
                _ORIGINAL, "sha256:eb6735e8d84b1850fabc5590124aab1755e90c9fd28123584325398405e1e42a", 872_124
            ),
        ),
    ),
    convert=convert,
)


def load_caltech101_silhouettes(
    *, data_dir: str | Path | None = None, archive: Archive = ARCHIVE
) -> DataSplits:
    """Caltech-101 Silhouettes in the official split of 4100/2264/2307 images.

    The published file has the object 0 and the background 1, in column-major order. Here the object is 1, as
    in published models of it, and images are upright row by row. Validation and test parts stand in a fixed
    random order.

    Source: Marlin, Swersky, Chen, de Freitas 2010.

    Args:
        data_dir: Folder of ``caltech101_silhouettes.npz``; None means ``DISCRETE_VAE_DATA`` or the user's
            cache.
        archive: The file's form and mirror.

    Returns:
        A data set of 784 binary features.

    Raises:
        InvalidInputError: If the file is damaged or cannot be downloaded.
    """
    stored = fetch_archive(archive, data_dir)
    bits = {part: _upright(stored.arrays[part]) for part in _PARTS}
    names = stored.arrays.get("classnames")
    numbers = {part: stored.arrays[f"{part}_labels"] for part in _PARTS if f"{part}_labels" in stored.arrays}
    labels = {
        part: found if names is None else names[found.astype(int) - 1] for part, found in numbers.items()
    }
    return dataset_of_bits(
        "caltech101-silhouettes",
        bits,
        event_shape=(1, 28, 28),
        source="Caltech-101 Silhouettes (Marlin, Swersky, Chen, de Freitas 2010)",
        version="28x28, split 1, object = 1",
        split=", as published",
        sha256=stored.sha256,
        labels=labels,
    )


def _upright(rows: np.ndarray) -> np.ndarray:
    upright = rows.reshape(-1, 28, 28).transpose(0, 2, 1)
    return 1 - upright.reshape(len(rows), 784)
