"""The user's own binary data or probabilities, from a NumPy file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from discrete_vae.checks import check_number
from discrete_vae.data.dataset import Dataset, DatasetDescription
from discrete_vae.data.fixed_draws import fixed_permutation
from discrete_vae.data.folder import check_data_dir
from discrete_vae.data.parts import evaluation_part, training_part
from discrete_vae.data.read_arrays import read_npy, read_npz, shown_key, shown_keys
from discrete_vae.errors import InvalidInputError
from discrete_vae.memory import allocating, check_memory
from discrete_vae.paths import user_path
from discrete_vae.runs.checksums import sha256_file

_PARTS = ("train", "valid", "test")


def load_file(
    *,
    path: str | Path,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
    split_seed: int = 0,
    binarisation_seed: int = 0,
    data_dir: str | Path | None = None,
) -> Dataset:
    """Arrays of a .npy or .npz file; nothing is written.

    Each array is (example, feature), or (example, height, width), whose images are flattened row by row.
    Booleans and integers must be 0 or 1. Real values must lie in [0, 1]; if those to train on are not all 0
    or 1, they are the probabilities of binarising them afresh in each step, and the validation and test parts
    are binarised once.

    A .npz file holds either ``train``, ``valid`` and ``test``, whose order is kept, or a single array. A
    single array is shuffled and cut: test first, validation next (each fraction of the examples, rounded
    down), the rest is for training; the fractions then matter, otherwise they do not.

    Args:
        path: The file; ``~`` is the home directory.
        valid_fraction: Share of a single array for validation, between 0 and 1.
        test_fraction: Share of a single array for testing, between 0 and 1.
        split_seed: Seed of the shuffle.
        binarisation_seed: Seed of the bits that the validation and test parts keep.
        data_dir: Not read, but refused if it does not exist, as with every other data set.

    Returns:
        A data set named after the file.

    Raises:
        InvalidInputError: If the file cannot be read, its arrays break a rule, or there are too few examples.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/mine.npy", np.eye(20, dtype=bool))
        ...     mine = load_file(path=f"{folder}/mine.npy")
        >>> mine.train.shape, mine.valid.shape, mine.dynamic
        (torch.Size([16, 20]), torch.Size([2, 20]), False)
    """
    check_data_dir(data_dir)
    file = user_path("path", path)
    arrays = _read(file)
    repair = "Give fewer examples or features, or use a machine with more memory."
    # a float32 copy of all, and a second one where examples are shuffled
    needed = 4 * sum(array.size for array in arrays.values()) * (2 if len(arrays) == 1 else 1)
    check_memory(str(file), needed, repair, what="for its values in float32")
    with allocating(str(file), repair):
        return _dataset(file, arrays, valid_fraction, test_fraction, split_seed, binarisation_seed)


def _dataset(
    file: Path,
    arrays: dict[str, np.ndarray],
    valid_fraction: float,
    test_fraction: float,
    split_seed: int,
    binarisation_seed: int,
) -> Dataset:
    """The data set of some arrays, by part or a single one by the name that messages call it."""
    if len(arrays) == 1:
        ((name, array),) = arrays.items()
        values, image_shape = _check_values(name, array)
        parts = _cut(values, name, valid_fraction, test_fraction, split_seed)
        split = f"{'/'.join(str(len(parts[part])) for part in _PARTS)} after a shuffle with seed {split_seed}"
    else:
        checked = {part: _check_values(f"{file}, array {part!r},", arrays[part]) for part in _PARTS}
        image_shape = checked["train"][1]
        for part in _PARTS:
            if arrays[part].shape[1:] != arrays["train"].shape[1:]:
                rule = f"must have examples of shape {arrays['train'].shape[1:]}, as 'train' has"
                received = f"shape {arrays[part].shape[1:]}"
                raise InvalidInputError(
                    f"{file}, array {part!r},", rule, received, "Give all parts the same features."
                )
        parts = {part: values for part, (values, _) in checked.items()}
        split = f"{'/'.join(str(len(parts[part])) for part in _PARTS)}, as in the file"
    dynamic = not _is_binary(parts["train"])
    evaluation_is_binary = _is_binary(parts["valid"]) and _is_binary(parts["test"])
    shuffled = False  # the rows of a result must be those of the user's file
    return Dataset(
        name=file.stem,
        train=training_part(parts["train"]),
        valid=evaluation_part(
            parts["valid"], "valid", binarisation_seed=binarisation_seed, shuffled=shuffled
        ),
        test=evaluation_part(parts["test"], "test", binarisation_seed=binarisation_seed, shuffled=shuffled),
        image_shape=image_shape,
        dynamic=dynamic,
        description=DatasetDescription(
            source=file.name,
            version="the user's file",
            split=split,
            binarisation=(
                f"train {'afresh in each step' if dynamic else 'as in the file'}, valid and test "
                f"{'as in the file' if evaluation_is_binary else f'once with seed {binarisation_seed}'}"
            ),
            sha256=sha256_file(file),
        ),
    )


def _read(file: Path) -> dict[str, np.ndarray]:
    if file.suffix not in {".npy", ".npz"}:
        raise InvalidInputError(
            "path", "must name a .npy or .npz file", str(file), "Save the array with numpy.save."
        )
    if file.suffix == ".npy":
        return {str(file): read_npy(file)}
    arrays = read_npz(file)
    if set(arrays) == set(_PARTS):
        return arrays
    if len(arrays) == 1:
        return {f"{file}, array {shown_key(key)},": array for key, array in arrays.items()}
    repair = "Rename the arrays, or save one of them alone."
    rule = "must hold the arrays train, valid and test, or a single one"
    raise InvalidInputError(str(file), rule, shown_keys(arrays), repair)


def _check_values(name: str, array: np.ndarray) -> tuple[np.ndarray, tuple[int, int] | None]:
    """Return the values as (example, feature) float32 and the shape of an image."""
    if array.ndim not in (2, 3):
        rule = "must be (example, feature) or (example, height, width)"
        raise InvalidInputError(name, rule, f"shape {array.shape}", "Reshape the array.")
    if array.size == 0:
        raise InvalidInputError(
            name, "must hold at least one example and feature", f"shape {array.shape}", "Fill it."
        )
    if array.dtype.kind not in "buif":
        raise InvalidInputError(
            name, "must hold booleans or real numbers", f"dtype {array.dtype}", "Convert it."
        )
    if array.dtype.kind == "f":
        _check_range(name, array)
    elif array.dtype.kind != "b" and (array.min() < 0 or array.max() > 1):
        worst = array.max() if array.max() > 1 else array.min()
        repair = "Map it to 0 and 1."
        if 1 < array.max() <= 255 and array.min() >= 0:
            repair = "Divide 0..255 intensities by 255."
        elif bool((abs(array) == 1).all()):
            repair = "Map -1 and 1 to 0 and 1 by (x + 1) / 2."
        raise InvalidInputError(name, "must hold 0 and 1 if it holds integers", f"a value of {worst}", repair)
    image_shape = (array.shape[1], array.shape[2]) if array.ndim == 3 else None
    return array.reshape(len(array), -1).astype(np.float32), image_shape


def _check_range(name: str, array: np.ndarray) -> None:
    if np.isnan(array).any():
        first = np.unravel_index(int(np.isnan(array).argmax()), array.shape)
        where = tuple(int(index) for index in first)
        raise InvalidInputError(
            name, "must hold no NaN", f"NaN at {where}", "Remove or fill the missing values."
        )
    low, high = array.min(), array.max()
    if low < 0 or high > 1:
        repair = "Scale the values to [0, 1]."
        if low >= 0 and high <= 255:
            repair = "Divide 0..255 intensities by 255."
        elif low >= -1 and high <= 1:
            repair = "Scale the values to [0, 1]: -1..1 by (x + 1) / 2."
        raise InvalidInputError(
            name, "must hold values in [0, 1]", f"values from {low:g} to {high:g}", repair
        )
    # a changed letter of the header turns every 1 into a value that is almost 0
    with np.errstate(invalid="ignore"):
        swapped = not _is_binary(array) and _is_binary(array.view(array.dtype.newbyteorder()))
    if swapped:
        received = "values that are 0 and 1 in the other byte order alone"
        repair = "The file is damaged: copy it again, or write it with numpy.save."
        raise InvalidInputError(name, "must hold values in the byte order of its header", received, repair)


def _cut(
    values: np.ndarray, name: str, valid_fraction: float, test_fraction: float, split_seed: int
) -> dict[str, np.ndarray]:
    for setting, fraction in (("valid_fraction", valid_fraction), ("test_fraction", test_fraction)):
        check_number(setting, fraction, above=0.0, at_most=1.0, repair="Give a share such as 0.1.")
    # A tenth of 30 is 3, although 30 * 0.1 in floating point may fall short of it.
    num_valid, num_test = (int(len(values) * fraction + 1e-9) for fraction in (valid_fraction, test_fraction))
    num_train = len(values) - num_valid - num_test
    if min(num_train, num_valid, num_test) < 1:
        received = f"{len(values)} examples, cut into {num_train}, {num_valid} and {num_test}"
        repair = "Add examples, change the fractions, or save train, valid and test yourself."
        raise InvalidInputError(name, "must have examples for each of three parts", received, repair)
    shuffled = values[fixed_permutation(len(values), split_seed)]
    test, valid, train = np.split(shuffled, [num_test, num_test + num_valid])
    return {"train": train, "valid": valid, "test": test}


def _is_binary(values: np.ndarray) -> bool:
    return bool(((values == 0) | (values == 1)).all())
