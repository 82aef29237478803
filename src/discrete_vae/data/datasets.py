"""The published data sets, by name: found or downloaded, checked, split."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from discrete_vae.checks import check_positive_int
from discrete_vae.config import DataConfig, instantiate, members
from discrete_vae.data.download import Archive, ArrayRule, Mirror, RemoteFile, check_data_dir, fetch_archive
from discrete_vae.data.splits import (
    PARTS,
    DatasetDescription,
    DataSplits,
    as_rows,
    check_leaves_examples,
    evaluation_part,
    fixed_permutation,
    of_part,
    training_part,
)
from discrete_vae.errors import InvalidInputError

# The handwritten digits of scikit-learn: small enough to try everything, and always at hand.


def load_digits(
    *,
    num_valid: int = 250,
    num_test: int = 250,
    split_seed: int = 0,
    binarization_seed: int = 0,
    data_dir: str | Path | None = None,
) -> DataSplits:
    """1797 digits of 8x8 pixels, with intensities / 16 as the probabilities of binarizing them in each step.

    The examples are shuffled, then cut: test first, validation next, the rest (1297) is for training. Ink is
    1.

    Source: Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits, test part, as in
    scikit-learn.

    Args:
        num_valid: Examples of the validation part.
        num_test: Examples of the test part.
        split_seed: Seed of the shuffle.
        binarization_seed: Seed of the bits that the validation and test parts keep.
        data_dir: Not read, but refused if it does not exist, as with every other data set.

    Returns:
        A dynamic data set of 64 features.

    Raises:
        InvalidInputError: If a number is not positive, a seed is out of its range, or nothing is left to train on.

    Examples:
        >>> digits = load_digits()
        >>> digits.train.shape, digits.valid.shape, digits.test.shape
        (torch.Size([1297, 64]), torch.Size([250, 64]), torch.Size([250, 64]))
    """
    import sklearn  # here, since it takes most of a second
    from sklearn.datasets import load_digits as load_bundled_digits

    check_data_dir(data_dir)
    check_positive_int("num_valid", num_valid)
    check_positive_int("num_test", num_test)
    intensities, kinds = load_bundled_digits(return_X_y=True)
    rows = np.asarray(intensities / 16.0, dtype=np.float32)
    check_leaves_examples("num_valid + num_test", num_valid + num_test, len(rows))
    order = np.split(fixed_permutation(len(rows), split_seed), [num_test, num_test + num_valid])
    chosen = dict(zip(("test", "valid", "train"), order, strict=True))
    return dataset_of_bits(
        "digits",
        {part: rows[index] for part, index in chosen.items()},
        event_shape=(1, 8, 8),
        source="Optical Recognition of Handwritten Digits (Alpaydin and Kaynak 1998), as in scikit-learn",
        version=f"scikit-learn {sklearn.__version__}",
        split=f" after a shuffle with seed {split_seed}",
        sha256=None,
        binarization_seed=binarization_seed,
        labels={part: np.asarray(kinds)[index] for part, index in chosen.items()},
    )


# The text format of the fixed binarization of MNIST: one row per line, digits 0 and 1 separated by spaces.


def read_amat(path: Path) -> np.ndarray:
    r"""Read a matrix of bits from a text file.

    Args:
        path: The file.

    Returns:
        (row, column) uint8 in {0, 1}.

    Raises:
        InvalidInputError: If it holds anything but rows of zeros and ones of one length.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "bits.amat")
        ...     _ = path.write_bytes(b"0 1 1\n1 0 0\n")
        ...     read_amat(path)
        array([[0, 1, 1],
               [1, 0, 0]], dtype=uint8)
    """
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    bits = content - ord("0")  # everything below "0" wraps to 208 and more
    is_bit = bits <= 1
    ends = np.flatnonzero(content == ord("\n"))
    others = content[~is_bit]
    if not np.isin(others, np.frombuffer(b" \r\n", dtype=np.uint8)).all():
        raise _fault(path, "other characters than 0, 1, space and line end")
    if content.size > 0 and content[-1] != ord("\n"):
        ends = np.append(ends, content.size)  # the last line may lack its end
    digits = np.flatnonzero(is_bit)
    lengths = np.diff(np.searchsorted(digits, ends), prepend=0)
    if lengths.size == 0 or (lengths != lengths[0]).any() or lengths[0] == 0:
        raise _fault(path, f"lines of {sorted(set(lengths.tolist()))[:4]} digits")
    return bits[is_bit].reshape(-1, lengths[0])


def _fault(path: Path, received: str) -> InvalidInputError:
    rule = "must hold lines of zeros and ones of one length"
    return InvalidInputError(str(path), rule, received, "Download it again.")


# The gzipped IDX format of MNIST.


_UNSIGNED_BYTES = 0x08


def read_idx(path: Path) -> np.ndarray:
    """Read an array of unsigned bytes from a gzipped IDX file.

    The content starts with two zero bytes, the code of the type, the number of axes and each axis' length as
    a big-endian 32-bit integer.

    Source: LeCun, Cortes, Burges, The MNIST database of handwritten digits, section "file formats".

    Args:
        path: The file.

    Returns:
        uint8 array of the stated shape.

    Raises:
        InvalidInputError: If the content is not of that form.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "labels.gz")
        ...     _ = path.write_bytes(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1])))
        ...     read_idx(path)
        array([7, 2, 1], dtype=uint8)
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise _idx_fault(path, str(error)) from None
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTES]):
        raise _idx_fault(path, f"a header of {content[:4]!r}")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise _idx_fault(path, "a header that was cut short")
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    values = np.frombuffer(content, dtype=np.uint8, offset=start)
    if values.size != np.prod(shape, dtype=np.int64):
        raise _idx_fault(path, f"{values.size} values for the shape {shape}")
    return values.reshape(shape)


def _idx_fault(path: Path, received: str) -> InvalidInputError:
    return InvalidInputError(str(path), "must be a gzipped IDX file of bytes", received, "Download it again.")


# Data sets of bits: published ones, and images whose intensities are probabilities of bits.


def dataset_of_bits(
    name: str,
    parts: Mapping[str, np.ndarray],
    *,
    event_shape: tuple[int, ...],
    source: str,
    version: str,
    split: str,
    sha256: str | None,
    binarization_seed: int | None = None,
    labels: Mapping[str, np.ndarray] | None = None,
) -> DataSplits:
    """Make a data set of rows of bits, or of probabilities of bits.

    Probabilities to train on are binarized afresh in each step, those of the validation and test parts once. These two
    stand in a fixed random order.

    Args:
        name: The data set's name.
        parts: (example, feature) arrays "train", "valid" and "test", in {0, 1}, or in [0, 1] with a seed.
        event_shape: Shape of an example.
        source: Where the values come from.
        version: Which version of them this is.
        split: How the parts were made, behind their sizes.
        sha256: Sum of the file that was read; None if there is none.
        binarization_seed: Seed of the bits that the validation and test parts keep; None for bits.
        labels: (example,) of the parts that have some, in the order of `parts`.

    Returns:
        The data set; dynamic if it has a seed.
    """
    drawn = f"train binarized afresh in each step, valid and test once with seed {binarization_seed}"
    return DataSplits(
        name=name,
        train=training_part(parts["train"]),
        valid=evaluation_part(parts["valid"], "valid", binarization_seed=binarization_seed),
        test=evaluation_part(parts["test"], "test", binarization_seed=binarization_seed),
        event_shape=event_shape,
        dynamic=binarization_seed is not None,
        description=DatasetDescription(
            source=source,
            version=version,
            split=f"{'/'.join(str(len(parts[part])) for part in PARTS)}{split}",
            values="bits as published" if binarization_seed is None else drawn,
            sha256=sha256,
        ),
        labels={part: of_part(part, found) for part, found in (labels or {}).items()},
    )


# MNIST in the one published binarization.


_PARTS = ("train", "valid", "test")


def convert_mnist_static(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
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


MNIST_STATIC = Archive(
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
    convert=convert_mnist_static,
)


def load_mnist_static(*, data_dir: str | Path | None = None, archive: Archive = MNIST_STATIC) -> DataSplits:
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


# MNIST, binarized afresh in each training step.


_FILES = {
    "train_images": "train-images-idx3-ubyte.gz",
    "train_labels": "train-labels-idx1-ubyte.gz",
    "test_images": "t10k-images-idx3-ubyte.gz",
    "test_labels": "t10k-labels-idx1-ubyte.gz",
}


def convert_mnist_dynamic(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Turn the four IDX files into the arrays of ``mnist.npz``.

    Args:
        originals: Paths by file name.

    Raises:
        InvalidInputError: If a file is not of the IDX format.
    """
    return {key: read_idx(originals[name]) for key, name in _FILES.items()}


MNIST_DYNAMIC = Archive(
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
    convert=convert_mnist_dynamic,
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


# Omniglot in 28x28, binarized afresh in each training step.


_ORIGINAL = "chardata.mat"


def convert_omniglot(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
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


OMNIGLOT = Archive(
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
    convert=convert_omniglot,
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


# Caltech-101 Silhouettes in 28x28.


_CALTECH101_FILE = "caltech101_silhouettes_28_split1.mat"
_CALTECH101_PARTS = {"train": "train", "valid": "val", "test": "test"}


def convert_caltech101(originals: Mapping[str, Path]) -> dict[str, np.ndarray]:
    """Turn the published file into the arrays of ``caltech101_silhouettes.npz``, values and order unchanged.

    Args:
        originals: Paths by file name.

    Raises:
        InvalidInputError: If the file lacks an array.
    """
    from scipy.io import loadmat  # here, since only a first download needs it

    content = loadmat(originals[_CALTECH101_FILE])
    arrays = {}
    for part, stem in _CALTECH101_PARTS.items():
        for key, source in ((part, f"{stem}_data"), (f"{part}_labels", f"{stem}_labels")):
            if source not in content:
                repair = "Report it: the file had the right checksum."
                raise InvalidInputError(
                    _CALTECH101_FILE, f"must hold {source!r}", ", ".join(sorted(content)), repair
                )
            values = content[source].astype(np.uint8)
            arrays[key] = values.ravel() if key.endswith("labels") else values
    names = content.get("classnames", np.zeros(0))
    arrays["classnames"] = np.array([str(np.ravel(name)[0]) for name in names.ravel()], dtype=np.str_)
    return arrays


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
    mirror=Mirror(
        addresses=("https://people.cs.umass.edu/~marlin/data/",),
        files=(
            RemoteFile(
                _CALTECH101_FILE,
                "sha256:eb6735e8d84b1850fabc5590124aab1755e90c9fd28123584325398405e1e42a",
                872_124,
            ),
        ),
    ),
    convert=convert_caltech101,
)


def load_caltech101_silhouettes(
    *, data_dir: str | Path | None = None, archive: Archive = CALTECH101
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
    bits = {part: _upright(stored.arrays[part]) for part in _CALTECH101_PARTS}
    names = stored.arrays.get("classnames")
    numbers = {
        part: stored.arrays[f"{part}_labels"]
        for part in _CALTECH101_PARTS
        if f"{part}_labels" in stored.arrays
    }
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


# A data set by its name.


def load_dataset(name: str, *, data_dir: str | Path | None = None, **settings: Any) -> DataSplits:
    """Load a data set.

    Published data sets are read from the data folder, after a download if they are not there yet. The names
    are ``digits`` (comes with scikit-learn), ``mnist-dynamic``, ``mnist-static``, ``omniglot``,
    ``caltech101-silhouettes`` and, with ``path=``, ``file`` for an array of one's own.

    Args:
        name: The data set's name.
        data_dir: Folder of the data sets; None means ``DISCRETE_VAE_DATA`` or the user's cache.
        settings: Fields of the data set's config, for example ``num_valid``.

    Returns:
        Train, validation and test parts, (example, feature) float32 in [0, 1], and what is known about them.

    Raises:
        InvalidInputError: If the name or a setting is unknown, the folder does not exist, or the data set is
            damaged or cannot be downloaded.

    Examples:
        >>> digits = load_dataset("digits", num_valid=100)
        >>> digits.valid.shape, digits.image_shape, digits.dynamic
        (torch.Size([100, 64]), (8, 8), True)
    """
    configs = {config.model_fields["kind"].default: config for config in members(DataConfig)}
    if not isinstance(name, str) or name not in configs:
        known = ", ".join(configs)
        repair = "For a file of your own: load_dataset('file', path=...)."
        raise InvalidInputError("name", f"must be one of {known}", repr(name), repair)
    return instantiate(configs[name](**settings), data_dir=data_dir)
