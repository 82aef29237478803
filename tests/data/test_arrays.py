"""NumPy files: read as they were, or refused by name when damaged."""

import os
import pickle
import struct
import sys
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from discrete_vae.data.arrays import as_float32, read_npy, read_npz
from discrete_vae.data.rows import load_file
from discrete_vae.errors import InvalidInputError
from tests.refusals import refused, refused_argument

BITS = np.random.default_rng(0).integers(0, 2, (60, 12))


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a file was unpickled",))


def changed(path, content, at, byte):
    path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
    return path


def read_or_refused(read, path):
    """What a file is read as; None if it is refused as it should be."""
    try:
        return read(path)
    except InvalidInputError as error:
        found = error
    assert str(path) in str(found)
    assert "\n" not in str(found)
    return None


def test_every_truncation_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(20, dtype=np.uint8))
    np.savez_compressed(tmp_path / "a.npz", one=np.arange(20, dtype=np.uint8))
    for name, read in (("a.npy", read_npy), ("a.npz", read_npz)):
        whole = (tmp_path / name).read_bytes()
        for length in range(len(whole)):
            (tmp_path / name).write_bytes(whole[:length])
            assert name in refused_argument(read, tmp_path / name)


def test_nothing_is_ever_unpickled(tmp_path):
    objects = np.array([Bomb()], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", one=objects, allow_pickle=True)
    for name in ("b.npy", "b.npz"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    for name, argument in (("a.npy", "a.npy"), ("a.npz", "'one'"), ("b.npy", "b.npy"), ("b.npz", "b.npz")):
        read = read_npy if name.endswith("y") else read_npz
        assert argument in refused_argument(read, tmp_path / name)


def test_what_is_no_plain_file_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("pipe", ".", "/dev/null", "none", "x" * 300):
        for read in (read_npy, read_npz):
            assert read_or_refused(read, tmp_path / path) is None


def test_no_changed_bit_of_a_header_is_taken(tmp_path):
    path = tmp_path / "x.npy"
    for dtype in (bool, ">f4"):
        np.save(path, BITS.astype(dtype))
        content = path.read_bytes()
        refused, bits = 0, range(0, 8 * content.index(b"}"), 5)
        for bit in bits:
            changed(path, content, bit // 8, content[bit // 8] ^ 1 << bit % 8)
            data = read_or_refused(lambda path: load_file(path=path), path)
            if data is None:
                refused += 1
            else:  # quotes of another kind, say
                rows = np.concatenate([data.train, data.valid, data.test])
                assert sorted(rows.tolist()) == sorted(BITS.tolist()), bit
        assert refused > 0.9 * len(bits)


SHAPES = ("(True, True)", f"({10**30}, 2)", "(2, -1)", "(9223372036854775807, 8)", "[2, 2]", "{[]: 1}")


def of_shape(shape):
    """A file whose header names a shape."""
    header = f"{{'descr': '|b1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + b"\1\0\1\0"


def test_forged_headers_and_values_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", BITS.astype(bool))
    content = (tmp_path / "x.npy").read_bytes()
    padding_as_data = content[:8] + bytes([content[8] - 16]) + content[9:]
    (tmp_path / "x.npy").write_bytes(padding_as_data)
    assert np.load(tmp_path / "x.npy").any()  # NumPy takes spaces of the header for data
    no_boolean = content[:-3] + b" " + content[-2:]
    for damaged in (padding_as_data, no_boolean, content + content, *map(of_shape, SHAPES)):
        (tmp_path / "x.npy").write_bytes(damaged)
        assert read_or_refused(read_npy, tmp_path / "x.npy") is None, damaged[:150]


def test_values_in_the_wrong_byte_order_are_refused():
    for array, both in ((BITS, "<f4 >f4"), (BITS + 0.5, "<f8 >f8"), (BITS, "<i2 >i2"), (7 * BITS, ">i8 <i8")):
        stored, read_as = both.split()
        assert "byte order" in str(refused(as_float32, "x", array.astype(stored).view(read_as)))


def test_an_altered_member_is_refused_by_its_name(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, fine=np.zeros(5), one=np.arange(500, dtype=np.uint8))
    content = path.read_bytes()
    changed(path, content, content.rindex(bytes(range(100, 120))), 0xFF)
    assert "array 'one'," in refused_argument(read_npz, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    assert "array 'notes.txt'," in refused_argument(read_npz, path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_faults_of_every_decoder_are_refused(tmp_path, method):
    path = tmp_path / "x.npz"
    np.save(tmp_path / "x.npy", BITS)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.write(tmp_path / "x.npy", "train.npy")
    np.testing.assert_array_equal(read_npz(path)["train"], BITS)
    content = path.read_bytes()
    for at in range(50, content.index(b"PK\x01\x02"), 7):
        found = refused_argument(read_npz, changed(path, content, at, content[at] ^ 0xFF))
        assert "array 'train'," in found


def test_no_changed_bit_of_a_directory_hides_or_changes_a_member(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, train=BITS[:40].astype(bool), valid=BITS[40:50].astype(bool), test=BITS[50:].astype(bool))
    content, before = path.read_bytes(), read_npz(path)
    for bit in range(8 * content.index(b"PK\x01\x02"), 8 * len(content), 11):
        found = read_or_refused(read_npz, changed(path, content, bit // 8, content[bit // 8] ^ 1 << bit % 8))
        if found is not None:
            assert list(found) == list(before), bit
            assert all(np.array_equal(found[key], before[key]) for key in before), bit


def test_a_directory_that_swallows_members_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, train=BITS, valid=BITS[:9], test=BITS[:9])
    content = bytearray(path.read_bytes())
    first = content.index(b"PK\x01\x02")
    second, end = content.index(b"PK\x01\x02", first + 1), content.index(b"PK\x05\x06")
    # the comment of the first entry takes the rest
    content[first + 32 : first + 34] = struct.pack("<H", end - second)
    path.write_bytes(content)
    assert zipfile.ZipFile(path).namelist() == ["train.npy"]
    assert read_or_refused(read_npz, path) is None


def test_threads_that_read_leave_the_filters_of_warnings(tmp_path):
    np.save(path := tmp_path / "x.npy", BITS)
    before, interval = [*warnings.filters], sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            assert all(array.shape == BITS.shape for array in threads.map(read_npy, [path] * 3000))
    finally:
        sys.setswitchinterval(interval)
    assert warnings.filters == before


def test_too_little_memory_is_no_damage(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.zeros((100, 1000), bool))
    for free in (200_000, 20_000):
        monkeypatch.setattr("discrete_vae.system.available_memory", lambda free=free: free)
        assert "memory" in str(refused(load_file, path=tmp_path / "x.npy"))
