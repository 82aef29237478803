import hashlib

from discrete_vae.runs.io import sha256_bytes, sha256_file


def test_the_sum_is_that_of_the_content(tmp_path):
    content = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(content)
    assert sha256_file(tmp_path / "a") == hashlib.sha256(content).hexdigest()


def test_one_flipped_bit_changes_the_sum(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"\x00" * 1000)
    before = sha256_file(path)
    path.write_bytes(b"\x00" * 999 + b"\x01")
    assert sha256_file(path) != before


def test_bytes_and_files_have_the_same_sum(tmp_path):
    (tmp_path / "a").write_bytes(b"12")
    assert sha256_bytes(b"12") == sha256_file(tmp_path / "a")
