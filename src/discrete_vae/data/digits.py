"""The handwritten digits of scikit-learn: small enough to try everything, and always at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from discrete_vae.checks import check_positive_int
from discrete_vae.data.bits import dataset_of_bits
from discrete_vae.data.dataset import DataSplits
from discrete_vae.data.fixed_draws import fixed_permutation
from discrete_vae.data.folder import check_data_dir
from discrete_vae.data.parts import check_leaves_examples


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
