"""NumPy files: read as they were, or refused by name when damaged."""

import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from discrete_vae.data.arrays import as_float32, read_npy, read_npz
from discrete_vae.data.rows import load_file
from discrete_vae.errors import InvalidInputError

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


def test_arrays_come_back(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "a.npz", one=np.arange(3), two=np.eye(2))
    assert read_npy(tmp_path / "a.npy").tolist() == [0, 1, 2]
    assert list(read_npz(tmp_path / "a.npz")) == ["one", "two"]
    assert list(read_npz(tmp_path / "a.npz", keys=("two", "three"))) == ["two"]


@pytest.mark.parametrize("dtype", [">f4", ">i2", "f2", "g"])
def test_every_width_and_byte_order_of_numbers_is_read(tmp_path, dtype):
    np.save(tmp_path / "x.npy", BITS.astype(dtype))
    data = load_file(path=tmp_path / "x.npy")
    assert sum(float(part.sum()) for part in (data.train, data.valid, data.test)) == BITS.sum()
    np.save(tmp_path / "x.npy", np.asfortranarray(BITS.astype(dtype)))
    np.testing.assert_array_equal(read_npy(tmp_path / "x.npy"), BITS)


def test_every_truncation_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(20, dtype=np.uint8))
    np.savez_compressed(tmp_path / "a.npz", one=np.arange(20, dtype=np.uint8))
    for name, read in (("a.npy", read_npy), ("a.npz", read_npz)):
        whole = (tmp_path / name).read_bytes()
        for length in range(len(whole)):
            (tmp_path / name).write_bytes(whole[:length])
            with pytest.raises(InvalidInputError, match=name):
                read(tmp_path / name)


def test_nothing_is_ever_unpickled(tmp_path):
    objects = np.array([Bomb()], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", one=objects, allow_pickle=True)
    for name in ("b.npy", "b.npz"):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    for name, argument in (("a.npy", "a.npy"), ("a.npz", "'one'"), ("b.npy", "b.npy"), ("b.npz", "b.npz")):
        with pytest.raises(InvalidInputError, match=argument):
            (read_npy if name.endswith("y") else read_npz)(tmp_path / name)


def test_what_is_no_plain_file_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("pipe", ".", "/dev/null", "none", "x" * 300):
        for read in (read_npy, read_npz):
            assert read_or_refused(read, tmp_path / path) is None


@pytest.mark.parametrize(("dtype", "step"), [(bool, 2), (">f4", 5)])
def test_no_changed_bit_of_a_header_is_taken(tmp_path, dtype, step):
    array = BITS.astype(dtype)
    np.save(tmp_path / "x.npy", array)
    content = (tmp_path / "x.npy").read_bytes()
    refused, bits = 0, range(0, 8 * content.index(b"}"), step)
    for bit in bits:
        path = changed(tmp_path / "x.npy", content, bit // 8, content[bit // 8] ^ 1 << bit % 8)
        data = read_or_refused(lambda path: load_file(path=path), path)
        if data is None:
            refused += 1
        else:  # quotes of another kind, say
            rows = np.concatenate([data.train, data.valid, data.test])
            assert sorted(rows.tolist()) == sorted(array.astype(np.float32).tolist()), bit
    assert refused > 0.9 * len(bits)


def test_a_header_cut_into_its_padding_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((60, 12), bool))
    content = (tmp_path / "x.npy").read_bytes()
    path = changed(tmp_path / "x.npy", content, 8, content[8] - 16)
    assert np.load(path).any()  # NumPy takes spaces of the header for data
    assert read_or_refused(read_npy, path) is None


@pytest.mark.parametrize(
    "shape", ["(True, True)", f"({10**30}, 2)", "(2, -1)", "(9223372036854775807, 8)", "[2, 2]", "{[]: 1}"]
)
def test_impossible_shapes_are_refused(tmp_path, shape):
    header = f"{{'descr': '|b1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + b"\1\0\1\0"
    (tmp_path / "x.npy").write_bytes(content)
    assert read_or_refused(read_npy, tmp_path / "x.npy") is None


def test_a_boolean_that_is_none_and_further_bytes_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", BITS.astype(bool))
    content = (tmp_path / "x.npy").read_bytes()
    assert read_or_refused(read_npy, changed(tmp_path / "x.npy", content, len(content) - 3, 0x20)) is None
    (tmp_path / "x.npy").write_bytes(content + content)
    assert read_or_refused(read_npy, tmp_path / "x.npy") is None


@pytest.mark.parametrize(
    "array",
    [
        BITS.astype("<f4").view(">f4"),
        (BITS + 0.5).astype("<f8").view(">f8"),
        BITS.astype("<i2").view(">i2"),
        (7 * BITS).astype(">i8").view("<i8"),
    ],
)
def test_values_in_the_wrong_byte_order_are_refused(array):
    with pytest.raises(InvalidInputError, match="byte order"):
        as_float32("x", array)


def test_an_altered_member_is_refused_by_its_name(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, fine=np.zeros(5), one=np.arange(500, dtype=np.uint8))
    content = path.read_bytes()
    changed(path, content, content.rindex(bytes(range(100, 120))), 0xFF)
    with pytest.raises(InvalidInputError, match="array 'one',"):
        read_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(InvalidInputError, match=r"array 'notes.txt',"):
        read_npz(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_faults_of_every_decoder_are_refused(tmp_path, method):
    path = tmp_path / "x.npz"
    np.save(tmp_path / "x.npy", BITS)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.write(tmp_path / "x.npy", "train.npy")
    np.testing.assert_array_equal(read_npz(path)["train"], BITS)
    content = path.read_bytes()
    for at in range(50, content.index(b"PK\x01\x02"), 7):
        with pytest.raises(InvalidInputError, match="array 'train',"):
            read_npz(changed(path, content, at, content[at] ^ 0xFF))


def test_no_changed_bit_of_a_directory_hides_or_changes_a_member(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, train=BITS[:40].astype(bool), valid=BITS[40:50].astype(bool), test=BITS[50:].astype(bool))
    content, before = path.read_bytes(), read_npz(path)
    for bit in range(8 * content.index(b"PK\x01\x02"), 8 * len(content), 5):
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


def test_keys_are_listed_briefly_and_without_control_characters(tmp_path):
    np.savez(tmp_path / "x.npz", **{f"\x1b[31m{i}" + "k" * 90: BITS for i in range(30)})
    with pytest.raises(InvalidInputError) as caught:
        load_file(path=tmp_path / "x.npz")
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("free", [200_000, 20_000])
def test_too_little_memory_is_no_damage(tmp_path, monkeypatch, free):
    np.save(tmp_path / "x.npy", np.zeros((100, 1000), bool))
    monkeypatch.setattr("discrete_vae.system.available_memory", lambda: free)
    with pytest.raises(InvalidInputError, match="memory"):
        load_file(path=Path(tmp_path / "x.npy"))
