import hashlib

from discrete_vae.runs.checksums import sha256_file, sha256_text


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


def test_text_counts_as_utf8():
    assert sha256_text("ζ") == hashlib.sha256(b"\xce\xb6").hexdigest()
