import numpy as np
import pytest

from discrete_vae.data.datasets import read_amat
from discrete_vae.errors import InvalidInputError


@pytest.mark.parametrize(
    "content",
    [b"0 1 1\n1 0 0\n", b"0 1 1\n1 0 0", b"0 1 1 \n1 0 0 \n", b"0 1 1\r\n1 0 0\r\n"],
)
def test_variants_of_the_format(tmp_path, content):
    (tmp_path / "a.amat").write_bytes(content)
    bits = read_amat(tmp_path / "a.amat")
    assert bits.dtype == np.uint8
    assert bits.tolist() == [[0, 1, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"0 1\n0 1 1\n", b"0 2\n", b"0.5 1\n", b"0 1\n\n", b"<html>0</html>"]
)
def test_other_content_is_refused(tmp_path, content):
    (tmp_path / "a.amat").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"a\.amat must hold lines of zeros and ones of one length"):
        read_amat(tmp_path / "a.amat")
