"""The published data sets, by name: found or downloaded, checked, split.

A data set is a config in `discrete_vae.config.data`, whose fields are the keywords of its loader here, and, where it is
downloaded, an `Archive`: which originals there are, and how they become the .npz file of the data folder.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from discrete_vae.config import DataConfig, instantiate
from discrete_vae.config.base import by_kind
from discrete_vae.data.download import Archive, ArrayRule, RemoteFile, fetch_archive
from discrete_vae.data.splits import (
    BIT_KEYS,
    PARTS,
    DatasetDescription,
    DataSplits,
    fixed_bits,
    fixed_permutation,
    shuffled_rows,
)
from discrete_vae.errors import InvalidInputError, not_one_of
from discrete_vae.system import check_data_dir


def load_dataset(name: str, *, data_dir: str | Path | None = None, **settings: Any) -> DataSplits:
    """Load a data set; a published one is downloaded if it is not in the data folder yet.

    The names are ``digits`` (comes with scikit-learn), ``mnist-dynamic``, ``mnist-static``, ``omniglot``,
    ``caltech101-silhouettes`` and, with ``path=``, ``file`` for an array of one's own.

    Args:
        name: The data set's name.
        data_dir: Folder of the data sets; None means ``DISCRETE_VAE_DATA`` or the user's cache.
        settings: Fields of the data set's config, for example ``num_valid``.

    Returns:
        Train, validation and test parts, (example, feature) float32 in [0, 1], and what is known about them.

    Raises:
        InvalidInputError: If the name, a setting or the folder is wrong, or the data set damaged or out of reach.

    Examples:
        >>> digits = load_dataset("digits", num_valid=100)
        >>> digits.valid.shape, digits.image_shape, digits.dynamic
        (torch.Size([100, 64]), (8, 8), True)
    """
    configs = by_kind(DataConfig)
    if not isinstance(name, str) or name not in configs:
        raise not_one_of("name", configs, name, "For a file of your own: load_dataset('file', path=...).")
    return instantiate(configs[name](**settings), data_dir=data_dir)


# Each loader takes the fields of its config and the data folder; those of published files take their archive too.
# Images are upright, ink is 1.


def load_digits(
    *,
    num_valid: int = 250,
    num_test: int = 250,
    split_seed: int = 0,
    binarization_seed: int = 0,
    data_dir: str | Path | None = None,
) -> DataSplits:
    """1797 digits of 8x8 pixels, with intensities / 16 as the probabilities of binarizing them in each step.

    The examples are shuffled, then cut: test first, validation next, the rest (1297) is for training.

    Source: Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits, test part, as in
    scikit-learn.
    """
    check_data_dir(data_dir)  # not read, but refused if it does not exist, as with every other data set
    # the file itself, since the import of scikit-learn takes seconds
    package = metadata.distribution("scikit-learn")
    table = np.loadtxt(str(package.locate_file("sklearn/datasets/data/digits.csv.gz")), delimiter=",")
    intensities, kinds = table[:, :-1], table[:, -1].astype(np.int64)
    if num_valid + num_test >= len(intensities):
        received = f"{num_valid + num_test} held out of {len(intensities)}"
        rule, repair = "must leave examples to train on", "Hold out fewer."
        raise InvalidInputError("num_valid + num_test", rule, received, repair)
    order = shuffled_rows(len(intensities), num_test, num_valid, split_seed)
    rows = dict(zip(("test", "valid", "train"), order, strict=True))
    return _dataset(
        "digits",
        {part: intensities[rows[part]] / 16 for part in PARTS},
        event_shape=(1, 8, 8),
        source="Optical Recognition of Handwritten Digits (Alpaydin and Kaynak 1998), as in scikit-learn",
        version=f"scikit-learn {package.version}",
        split=f" after a shuffle with seed {split_seed}",
        binarization_seed=binarization_seed,
        labels={part: kinds[rows[part]] for part in PARTS},
    )


def _dataset(
    name: str,
    parts: Mapping[str, np.ndarray],
    *,
    source: str,
    version: str,
    split: str,
    event_shape: tuple[int, ...] = (1, 28, 28),
    sha256: str | None = None,
    binarization_seed: int | None = None,
    labels: Mapping[str, np.ndarray] | None = None,
) -> DataSplits:
    """A data set of bits, or of their probabilities if it has a binarization seed, from (example, ...) arrays by part.

    Probabilities to train on are binarized afresh in each step, those of the validation and test parts once.
    """
    drawn = f"train binarized afresh in each step, valid and test once with seed {binarization_seed}"
    tensors: dict[str, Any] = {}
    for part in PARTS:
        rows = parts[part].reshape(len(parts[part]), math.prod(event_shape))
        if part != "train" and binarization_seed is not None:
            rows = fixed_bits(rows, binarization_seed, BIT_KEYS[part])
        tensors[part] = torch.from_numpy(np.ascontiguousarray(_in_order(part, rows), dtype=np.float32))
    return DataSplits(
        name=name,
        **tensors,
        event_shape=event_shape,
        dynamic=binarization_seed is not None,
        description=DatasetDescription(
            source=source,
            version=version,
            split=f"{'/'.join(str(len(parts[part])) for part in PARTS)}{split}",
            values="bits as published" if binarization_seed is None else drawn,
            sha256=sha256,
        ),
        labels={part: _in_order(part, found) for part, found in (labels or {}).items()},
    )


def _in_order(part: str, rows: np.ndarray) -> np.ndarray:
    """Rows in a fixed random order but for training, so that the first rows are a fair subset."""
    return rows if part == "train" else rows[fixed_permutation(len(rows), 0, BIT_KEYS[part])]


def _cut_valid(rows: np.ndarray, num_valid: int) -> dict[str, np.ndarray]:
    """The training part of a published data set without its last rows, and these."""
    if num_valid >= len(rows):
        received = f"{num_valid} held out of {len(rows)}"
        raise InvalidInputError("num_valid", "must leave examples to train on", received, "Hold out fewer.")
    return {"train": rows[: len(rows) - num_valid], "valid": rows[len(rows) - num_valid :]}


# The published data sets.


_ORIGINALS = """
train-images-idx3-ubyte.gz sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609 9912422
train-labels-idx1-ubyte.gz sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c 28881
t10k-images-idx3-ubyte.gz sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6 1648877
t10k-labels-idx1-ubyte.gz sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6 4542
binarized_mnist_train.amat sha256:ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d 78400000
binarized_mnist_valid.amat sha256:1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2 15680000
binarized_mnist_test.amat sha256:e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c 15680000
chardata.mat git-blob:016a3536ffe5e1d38e42563a18d7a78bfaf643ec 100000000
caltech101_silhouettes_28_split1.mat sha256:eb6735e8d84b1850fabc5590124aab1755e90c9fd28123584325398405e1e42a 872124
"""  # name, checksum, bytes at most


def _files(*names: str) -> tuple[RemoteFile, ...]:
    known = {line.split()[0]: line.split()[1:] for line in _ORIGINALS.splitlines()[1:]}
    return tuple(RemoteFile(name, known[name][0], int(known[name][1])) for name in names)


# MNIST, binarized afresh in each training step.


def _convert_mnist(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
    return {key: _read_idx(originals[name]) for key, name in MNIST_FILES.items()}


def _read_idx(path: Path) -> np.ndarray:
    """An array of unsigned bytes from a gzipped IDX file.

    Two zero bytes, the code of the type, the number of axes, each axis' length as a big-endian 32-bit integer, values.

    Source: LeCun, Cortes, Burges, The MNIST database of handwritten digits, section "file formats".
    """
    content = gzip.decompress(path.read_bytes())
    shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


MNIST_FILES = {
    "train_images": "train-images-idx3-ubyte.gz",
    "train_labels": "train-labels-idx1-ubyte.gz",
    "test_images": "t10k-images-idx3-ubyte.gz",
    "test_labels": "t10k-labels-idx1-ubyte.gz",
}
MNIST_DYNAMIC = Archive(
    file_name="mnist.npz",
    arrays={
        "train_images": ArrayRule("uint8", (60000, 28, 28)),
        "test_images": ArrayRule("uint8", (10000, 28, 28)),
        "train_labels": ArrayRule("uint8", (60000,), highest=9, optional=True),
        "test_labels": ArrayRule("uint8", (10000,), highest=9, optional=True),
    },
    addresses=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
    files=_files(*MNIST_FILES.values()),
    convert=_convert_mnist,
)


def load_mnist_dynamic(
    *,
    num_valid: int = 10000,
    binarization_seed: int = 0,
    data_dir: str | Path | None = None,
    archive: Archive = MNIST_DYNAMIC,
) -> DataSplits:
    """MNIST with intensities / 255 as the probabilities of binarizing it afresh in each step.

    The last `num_valid` of the 60000 training images, in the published order, are the validation part.

    Source: Salakhutdinov and Murray 2008, section 5 (the binarization); LeCun et al. 1998 (the images).
    """
    arrays, sha256 = fetch_archive(archive, data_dir)
    parts = _cut_valid(arrays["train_images"], num_valid) | {"test": arrays["test_images"]}
    labels = _cut_valid(arrays["train_labels"], num_valid) if "train_labels" in arrays else {}
    labels |= {"test": arrays["test_labels"]} if "test_labels" in arrays else {}
    return _dataset(
        "mnist-dynamic",
        {part: images.astype(np.float32) / 255 for part, images in parts.items()},
        source="MNIST (LeCun, Cortes, Burges)",
        version="grayscale 28x28, 60000/10000",
        split=", valid from the end of the published training part",
        sha256=sha256,
        binarization_seed=binarization_seed,
        labels=labels,
    )


# MNIST in the one published binarization.


def _convert_mnist_static(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Bits packed by row, and the shapes, of text files with a row per line and a space between two digits."""
    arrays = {}
    for part in PARTS:
        text = originals[f"binarized_mnist_{part}.amat"].read_bytes()
        digits = np.frombuffer(text.translate(None, b" \r\n"), np.uint8) - ord("0")
        digits = digits.reshape(len(text.splitlines()), -1)
        arrays[part] = np.packbits(digits, axis=1)
        arrays[f"{part}_shape"] = np.array(digits.shape, dtype=np.int64)
    return arrays


MNIST_STATIC = Archive(
    file_name="static_mnist.npz",
    arrays={
        "train": ArrayRule("uint8", (50000, 98)),
        "valid": ArrayRule("uint8", (10000, 98)),
        "test": ArrayRule("uint8", (10000, 98)),
        **{f"{part}_shape": ArrayRule("int64", (2,)) for part in PARTS},
    },
    addresses=("http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist/",),
    files=_files(*(f"binarized_mnist_{part}.amat" for part in PARTS)),
    convert=_convert_mnist_static,
)


def load_mnist_static(*, data_dir: str | Path | None = None, archive: Archive = MNIST_STATIC) -> DataSplits:
    """MNIST in the fixed binarization of 50000/10000/10000 images that most published figures are for.

    Not to be confused with dynamic binarization: figures for the two are not comparable. The published test
    part is sorted by class.

    Source: Salakhutdinov and Murray 2008; files by Larochelle (Larochelle and Murray 2011).
    """
    arrays, sha256 = fetch_archive(archive, data_dir)
    for part in PARTS:
        wanted, shape = (len(arrays[part]), 784), tuple(arrays[f"{part}_shape"].tolist())
        if shape != wanted:
            name = f"{archive.file_name}, array '{part}_shape',"
            raise InvalidInputError(name, f"must be {wanted}", shape, "Remove the file to have it made anew.")
    return _dataset(
        "mnist-static",
        {part: np.unpackbits(arrays[part], axis=1) for part in PARTS},
        source="binarized MNIST (Salakhutdinov and Murray 2008), files by Larochelle",
        version="binarized_mnist_{train,valid,test}.amat",
        split=", as published",
        sha256=sha256,
    )


# Omniglot in 28x28, binarized afresh in each training step.


def _convert_omniglot(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """8-bit images of real values in columns, each an image in column-major order; a value moves by at most 0.002."""
    from scipy.io import loadmat  # here, since only a first download needs it

    content = loadmat(originals["chardata.mat"], variable_names=("data", "testdata"))
    arrays = {}
    for part, key in (("train", "data"), ("test", "testdata")):
        upright = content[key].T.reshape(-1, 28, 28).transpose(0, 2, 1)
        arrays[part] = np.ascontiguousarray(np.rint(upright * 255).astype(np.uint8))
    return arrays | {"source": np.array("chardata.mat")}


OMNIGLOT = Archive(
    file_name="omniglot.npz",
    arrays={
        "train": ArrayRule("uint8", (24345, 28, 28)),
        "test": ArrayRule("uint8", ((8070, 8115), 28, 28)),
        "train_drawer": ArrayRule("uint8", (24345,), highest=20, optional=True),
        "source": ArrayRule("str", (), optional=True),
    },
    addresses=("https://raw.githubusercontent.com/yburda/iwae/master/datasets/OMNIGLOT/",),
    files=_files("chardata.mat"),
    convert=_convert_omniglot,
)


def load_omniglot(
    *,
    num_valid: int = 1345,
    split_seed: int = 0,
    binarization_seed: int = 0,
    data_dir: str | Path | None = None,
    archive: Archive = OMNIGLOT,
) -> DataSplits:
    """Omniglot with intensities as the probabilities of binarizing it afresh in each step.

    The published training part is sorted by alphabet; it is shuffled and its last `num_valid` images are the
    validation part. The description's version says which form was read: ``chardata.mat`` (24345/8070, what published
    figures are for), or ``rebuilt`` (24345/8115, reduced anew from the 105x105 drawings), whose figures are not those
    of the published partition.

    Source: Lake, Salakhutdinov, Tenenbaum 2015 (the drawings); Burda, Grosse, Salakhutdinov 2016, section 5
    (the partition).
    """
    arrays, sha256 = fetch_archive(archive, data_dir)
    order = fixed_permutation(len(arrays["train"]), split_seed)
    parts = _cut_valid(arrays["train"][order], num_valid) | {"test": arrays["test"]}
    unsaid = "rebuilt" if "train_drawer" in arrays else "unknown"  # only that form knows who drew what
    return _dataset(
        "omniglot",
        {part: images.astype(np.float32) / 255 for part, images in parts.items()},
        source="Omniglot (Lake, Salakhutdinov, Tenenbaum 2015), 28x28",
        version=str(arrays.get("source", unsaid)),
        split=f", valid from the training part after a shuffle with seed {split_seed}",
        sha256=sha256,
        binarization_seed=binarization_seed,
    )


# Caltech-101 Silhouettes in 28x28.


def _convert_caltech101(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """The published values in their order; object 0, background 1, images in column-major order."""
    from scipy.io import loadmat  # here, since only a first download needs it

    content = loadmat(originals["caltech101_silhouettes_28_split1.mat"])
    arrays = {}
    for part, stem in (("train", "train"), ("valid", "val"), ("test", "test")):
        arrays[part] = content[f"{stem}_data"].astype(np.uint8)
        arrays[f"{part}_labels"] = content[f"{stem}_labels"].astype(np.uint8).ravel()
    names = [str(np.ravel(name)[0]) for name in content["classnames"].ravel()]
    return arrays | {"classnames": np.array(names)}


CALTECH101 = Archive(
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
    addresses=("https://people.cs.umass.edu/~marlin/data/",),
    files=_files("caltech101_silhouettes_28_split1.mat"),
    convert=_convert_caltech101,
)


def load_caltech101_silhouettes(
    *, data_dir: str | Path | None = None, archive: Archive = CALTECH101
) -> DataSplits:
    """Caltech-101 Silhouettes in the official split of 4100/2264/2307 images.

    The object is 1, as in published models of it.

    Source: Marlin, Swersky, Chen, de Freitas 2010.
    """
    arrays, sha256 = fetch_archive(archive, data_dir)
    names = arrays.get("classnames")
    labels = {part: arrays[f"{part}_labels"] for part in PARTS if f"{part}_labels" in arrays}
    if names is not None:
        labels = {part: names[each.astype(int) - 1] for part, each in labels.items()}
    return _dataset(
        "caltech101-silhouettes",
        {part: 1 - arrays[part].reshape(-1, 28, 28).transpose(0, 2, 1) for part in PARTS},
        source="Caltech-101 Silhouettes (Marlin, Swersky, Chen, de Freitas 2010)",
        version="28x28, split 1, object = 1",
        split=", as published",
        sha256=sha256,
        labels=labels,
    )
