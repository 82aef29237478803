"""The published data sets, by name: found or downloaded, checked, split.

A data set is a config in `discrete_vae.config.data`, whose fields are the keywords of its loader here, and, where it is
downloaded, an `Archive`: which originals there are, and how they become the .npz file of the data folder.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from discrete_vae.config import DataConfig, instantiate
from discrete_vae.config.base import by_kind
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
from discrete_vae.runs.io import sha256_file, write_bytes
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


@dataclass(frozen=True)
class RemoteFile:
    """A public file."""

    name: str  # which completes the address
    # "sha256:...", or where that is not known "git-blob:...", the SHA-1 of "blob SIZE", a zero byte and the content
    checksum: str
    max_size: int  # bytes that it has at most; a download ends there


@dataclass(frozen=True)
class ArrayRule:
    """Form of an array in an archive."""

    dtype: str  # its name; "str" for any text
    shape: tuple[int | tuple[int, ...], ...]  # an axis has several lengths if more than one version is in use
    highest: int | None = None  # largest value allowed; None for no bound
    optional: bool = False  # whether the array may be missing


@dataclass(frozen=True)
class Archive:
    """The .npz file that the data folder keeps of a published data set, and how to make it."""

    file_name: str
    arrays: Mapping[str, ArrayRule]  # of those that are used, by key
    addresses: tuple[str, ...]  # base addresses of the originals, each ending in a slash, tried in this order
    files: tuple[RemoteFile, ...]  # the originals
    # turns the originals, paths by file name, into the arrays
    convert: Callable[[Mapping[str, Path]], dict[str, np.ndarray]]


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
    rows = map(str.split, _ORIGINALS.strip().splitlines())
    return tuple(RemoteFile(name, checksum, int(size)) for name, checksum, size in rows if name in names)


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


# Archives: found in the data folder, or made of downloads.

ENVIRONMENT_VARIABLE = "DISCRETE_VAE_DATA"
_TIMEOUT_S, _BLOCK = 60, 1 << 16


class DownloadError(InvalidInputError):
    """A public file could not be downloaded, or has the wrong checksum."""


def data_folder(data_dir: str | Path | None = None) -> Path:
    """Find the folder of the data sets: the argument, else ``DISCRETE_VAE_DATA``, else the user's cache.

    A folder that is named must exist; the one in the user's cache may not exist yet.
    """
    variable = os.environ.get(ENVIRONMENT_VARIABLE) or None
    named = check_data_dir(data_dir) or check_data_dir(variable, argument=ENVIRONMENT_VARIABLE)
    if named is not None:
        return named
    import pooch  # here, since it costs time and a machine without it can still use its own files

    return Path(pooch.os_cache("discrete-vae"))


def fetch_archive(archive: Archive, data_dir: str | Path | None = None) -> tuple[dict[str, np.ndarray], str]:
    """Read an archive from the folder that `data_folder` finds; download the originals and make it if it is not there.

    Returns:
        Its arrays by key, checked, and the SHA-256 of the file.
    """
    from discrete_vae.data.arrays import read_npz  # here, since not every data set is an archive

    folder = data_folder(data_dir)
    path = folder / archive.file_name
    if not path.exists():
        _make(archive, folder)
    repair = "Remove the file to have it downloaded and made anew, or copy it again."
    try:
        arrays = read_npz(path, archive.arrays)
    except InvalidInputError as error:
        raise InvalidInputError(error.argument, error.rule, error.received, repair) from None
    _check_arrays(arrays, archive, str(path), repair)
    return arrays, sha256_file(path)


def _make(archive: Archive, folder: Path) -> None:
    name = archive.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A folder of its own: several processes may do this at once, and none sees another's half.
        with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as into:
            originals = {file.name: _fetch_file(archive, file, Path(into), folder) for file in archive.files}
            arrays = archive.convert(originals)
        repair = "Report it: the originals had the right checksums."
        _check_arrays(arrays, archive, f"the converted {name}", repair)
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        write_bytes(folder / name, content.getvalue())
    except OSError as error:
        rule = f"must be a folder where {name} can be written"
        repair = "Free space, check permissions, or name another folder."
        raise InvalidInputError(str(folder), rule, str(error), repair) from None


def _fetch_file(archive: Archive, file: RemoteFile, into: Path, folder: Path) -> Path:
    """Path of an original whose content was checked: the user's own in the data folder, else a download.

    A wrong download is removed, a wrong file of the user's is left alone.
    """
    urls = [address + file.name for address in archive.addresses]
    path = folder / file.name
    if path.exists():
        if (fault := _fault(path, file)) is None:
            return path
        repair = f"Remove it, or download it again from {' or '.join(urls)}."
        raise DownloadError(str(path), f"must have the checksum {file.checksum}", fault, repair)
    path, faults = into / file.name, []
    for url in urls:
        try:
            _download(url, path, file.max_size)
            fault = _fault(path, file)
        except (OSError, ValueError) as error:
            fault = f"{type(error).__name__}: {_reason(error)}"
        if fault is None:
            return path
        path.unlink(missing_ok=True)
        faults.append(f"{url}: {fault}")
    repair = f"Check the network, or put it ({file.checksum}), or a ready {archive.file_name}, into {folder} by hand."
    raise DownloadError(file.name, "must be downloadable, with its checksum", "; ".join(faults), repair)


def _download(url: str, path: Path, max_size: int) -> None:
    import pooch  # here, since it costs time and a machine without it can still use its own files
    from rich.progress import Progress

    from discrete_vae.runs.progress import standard_error

    # pooch's own downloader does not fit the protocol that pooch declares
    download: Any = pooch.HTTPDownloader(timeout=_TIMEOUT_S, chunk_size=_BLOCK)
    with path.open("wb") as file, Progress(console=standard_error()) as progress:
        task = progress.add_task(path.name, total=max_size)

        def write(block: bytes) -> None:
            if file.tell() + len(block) > max_size:
                raise ValueError("it is larger than the file should be")
            progress.advance(task, file.write(block))

        download(url, SimpleNamespace(write=write, flush=file.flush), None)


def _reason(error: Exception) -> str:
    # requests wraps the one line that matters into several that repeat the address; a name for it in the caller would
    # keep the connection open with the error that is raised
    return str(getattr(error.args[0], "reason", error) if error.args else error)


def _fault(path: Path, file: RemoteFile) -> str | None:
    """Size or checksum of a file that has another than it should; None if it has neither."""
    size = path.stat().st_size
    if size > file.max_size:
        return f"a file of {size} bytes, which has {file.max_size} at most"
    found = f"sha256:{sha256_file(path)}"
    if file.checksum.startswith("git-blob:"):
        content = b"blob %d\0" % size + path.read_bytes()
        found = f"git-blob:{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"
    return None if found == file.checksum else f"a file of {size} bytes with {found}"


def _check_arrays(arrays: Mapping[str, np.ndarray], archive: Archive, name: str, repair: str) -> None:
    missing = [key for key, rule in archive.arrays.items() if key not in arrays and not rule.optional]
    if missing:
        rule = f"must hold the arrays {', '.join(missing)}"
        raise InvalidInputError(name, rule, f"only {', '.join(arrays) or 'others'}", repair)
    for key, rule in archive.arrays.items():
        if key in arrays and (fault := _array_fault(arrays[key], rule)) is not None:
            raise InvalidInputError(f"{name}, array {key!r},", *fault, repair)


def _array_fault(array: np.ndarray, rule: ArrayRule) -> tuple[str, object] | None:
    """The rule that an array breaks, and what it is instead."""
    if array.dtype.name != rule.dtype and not (rule.dtype == "str" and array.dtype.kind == "U"):
        return f"must have the dtype {rule.dtype}", array.dtype.name
    lengths = [length if isinstance(length, tuple) else (length,) for length in rule.shape]
    if array.shape not in product(*lengths):
        wanted = " x ".join(" or ".join(map(str, of)) for of in lengths)
        return f"must have the shape {wanted}", " x ".join(map(str, array.shape))
    if rule.highest is not None and array.size > 0 and array.max() > rule.highest:
        return f"must hold values from 0 to {rule.highest}", array.max()
    return None
