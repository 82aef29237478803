import gzip

import numpy as np
import pytest

from discrete_vae.data.datasets import read_idx
from discrete_vae.errors import InvalidInputError


def test_images_and_labels(tmp_path, idx):
    for array in (np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.arange(7, dtype=np.uint8)):
        (tmp_path / "a.gz").write_bytes(idx(array))
        np.testing.assert_array_equal(read_idx(tmp_path / "a.gz"), array)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param([], id="empty"),
        pytest.param([0, 0, 13, 1, 0, 0, 0, 1, 0, 0, 0, 0], id="real-numbers"),
        pytest.param([0, 0, 8, 1, 0, 0], id="header-cut"),
        pytest.param([0, 0, 8, 1, 0, 0, 0, 3, 1, 2], id="too-few"),
        pytest.param([0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3, 4], id="too-many"),
    ],
)
def test_other_content_is_refused(tmp_path, content):
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(content)))
    with pytest.raises(InvalidInputError, match=r"a\.gz must be a gzipped IDX file of bytes"):
        read_idx(tmp_path / "a.gz")


def test_other_and_truncated_packings_are_refused(tmp_path, idx):
    for content in (b"no gzip", idx(np.zeros(4, dtype=np.uint8))[:-10]):
        (tmp_path / "a.gz").write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"a\.gz must be a gzipped IDX file of bytes"):
            read_idx(tmp_path / "a.gz")
