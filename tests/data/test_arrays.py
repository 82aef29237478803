"""NumPy files: read as they were, or refused by name when damaged."""

import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from discrete_vae.data.arrays import read_npy, read_npz, shown_keys
from discrete_vae.data.rows import load_file
from discrete_vae.errors import InvalidInputError


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a file was unpickled",))


def test_arrays_come_back(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "a.npz", one=np.arange(3), two=np.eye(2))
    assert read_npy(tmp_path / "a.npy").tolist() == [0, 1, 2]
    assert list(read_npz(tmp_path / "a.npz")) == ["one", "two"]
    assert list(read_npz(tmp_path / "a.npz", keys=("two", "three"))) == ["two"]


def test_every_truncation_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(20, dtype=np.uint8))
    np.savez_compressed(tmp_path / "a.npz", one=np.arange(20, dtype=np.uint8))
    for name, read in (("a.npy", read_npy), ("a.npz", read_npz)):
        whole = (tmp_path / name).read_bytes()
        for length in range(len(whole)):
            (tmp_path / name).write_bytes(whole[:length])
            with pytest.raises(InvalidInputError, match="must be a readable NumPy file") as caught:
                read(tmp_path / name)
            assert name in str(caught.value)


def test_an_altered_member_is_refused_by_its_name(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, fine=np.zeros(5), one=np.arange(500, dtype=np.uint8))
    content = path.read_bytes()
    at = content.rindex(bytes(range(100, 120)))
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    with pytest.raises(InvalidInputError, match=r"array 'one',"):
        read_npz(path)


def test_nothing_is_ever_unpickled(tmp_path):
    objects = np.array([Bomb()], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", one=objects, allow_pickle=True)
    with pytest.raises(InvalidInputError, match=r"a\.npy .*received Python objects"):
        read_npy(tmp_path / "a.npy")
    with pytest.raises(InvalidInputError, match=r"array 'one', .*received Python objects"):
        read_npz(tmp_path / "a.npz")
    for name, read in (("b.npy", read_npy), ("b.npz", read_npz)):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(InvalidInputError, match="received another format"):
            read(tmp_path / name)


def test_a_zip_of_other_files_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(InvalidInputError, match=r"array 'notes.txt',"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("read", [read_npy, read_npz])
def test_missing_files_and_folders_are_refused(tmp_path, read):
    with pytest.raises(InvalidInputError, match="received no such file"):
        read(tmp_path / "none")
    with pytest.raises(InvalidInputError, match="received a folder"):
        read(tmp_path)


BITS = np.random.default_rng(0).integers(0, 2, (60, 12))


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


@pytest.mark.parametrize(("dtype", "step"), [(bool, 1), (">f4", 3)])
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


def test_no_changed_bit_of_a_directory_hides_or_changes_a_member(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, train=BITS[:40].astype(bool), valid=BITS[40:50].astype(bool), test=BITS[50:].astype(bool))
    content = path.read_bytes()
    before = read_npz(path)
    for bit in range(8 * content.index(b"PK\x01\x02"), 8 * len(content), 3):
        found = read_or_refused(read_npz, changed(path, content, bit // 8, content[bit // 8] ^ 1 << bit % 8))
        if found is not None:
            assert list(found) == list(before), bit
            assert all(np.array_equal(found[key], before[key]) for key in before), bit


def test_a_directory_that_swallows_members_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, train=BITS, valid=BITS[:9], test=BITS[:9])
    content = bytearray(path.read_bytes())
    first = content.index(b"PK\x01\x02")
    second = content.index(b"PK\x01\x02", first + 1)
    end = content.index(b"PK\x05\x06")
    content[first + 32 : first + 34] = struct.pack(
        "<H", end - second
    )  # the first entry's comment takes the rest
    path.write_bytes(content)
    assert zipfile.ZipFile(path).namelist() == ["train.npy"]
    with pytest.raises(InvalidInputError, match="received members that its directory does not list"):
        load_file(path=path)


def test_a_header_cut_into_its_padding_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((60, 12), bool))
    content = (tmp_path / "x.npy").read_bytes()
    path = changed(tmp_path / "x.npy", content, 8, content[8] - 16)
    assert np.load(path).any()  # NumPy takes spaces of the header for data
    with pytest.raises(InvalidInputError, match="header that does not end with a line end.*copy it again"):
        read_npy(path)


@pytest.mark.parametrize(
    "shape", ["(True, True)", f"({10**30}, 2)", "(2, -1)", "(9223372036854775807, 8)", "[2, 2]", "{[]: 1}"]
)
def test_impossible_shapes_are_refused(tmp_path, shape):
    header = f"{{'descr': '|b1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + b"\1\0\1\0"
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"x\.npy"):
        read_npy(tmp_path / "x.npy")


def test_a_boolean_that_is_none_and_further_bytes_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", BITS.astype(bool))
    content = (tmp_path / "x.npy").read_bytes()
    changed(tmp_path / "x.npy", content, len(content) - 3, 0x20)
    with pytest.raises(InvalidInputError, match="received a boolean stored as 32"):
        read_npy(tmp_path / "x.npy")
    (tmp_path / "x.npy").write_bytes(content + content)
    with pytest.raises(InvalidInputError, match="bytes of data, where the header announces 720"):
        read_npy(tmp_path / "x.npy")


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


def test_what_is_no_plain_file_is_named_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    for path, word in ((tmp_path / "x.npy", "a pipe"), (tmp_path, "a folder"), ("/dev/null", "a device")):
        for read in (read_npy, read_npz):
            with pytest.raises(InvalidInputError, match=f"must be a file; received {word}"):
                read(type(tmp_path)(path))
    with pytest.raises(InvalidInputError, match="received File name too long"):
        read_npy(tmp_path / ("x" * 300))


def test_keys_are_listed_briefly_and_without_control_characters(tmp_path):
    np.savez(tmp_path / "x.npz", **{f"\x1b[31m{i}" + "k" * 90: BITS for i in range(30)})
    with pytest.raises(InvalidInputError) as caught:
        load_file(path=tmp_path / "x.npz")
    assert "\x1b" not in str(caught.value)
    assert "and 25 more" in str(caught.value)
    assert len(str(caught.value)) < 600
    assert shown_keys(["images", "labels"]) == "images, labels"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (BITS.astype("<f4").view(">f4"), "must hold values in the byte order of its header"),
        ((BITS + 0.5).astype("<f8").view(">f8"), "must hold values in the byte order of its header"),
        (BITS.astype("<i2").view(">i2"), "must hold values in the byte order of its header"),
        ((7 * BITS).astype(">i8").view("<i8"), "must hold values in the byte order of its header"),
        (BITS.astype("M8[s]"), "must hold booleans or real numbers"),
        (np.zeros((20, 3), "i4,f4"), "must hold booleans or real numbers"),
    ],
)
def test_values_are_refused_with_their_repair(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(InvalidInputError, match=message):
        load_file(path=tmp_path / "x.npy")


@pytest.mark.parametrize("dtype", [">f4", ">i2", "f2", "g"])
def test_every_width_and_byte_order_of_numbers_is_read(tmp_path, dtype):
    np.save(tmp_path / "x.npy", BITS.astype(dtype))
    data = load_file(path=tmp_path / "x.npy")
    assert sum(float(part.sum()) for part in (data.train, data.valid, data.test)) == BITS.sum()
    np.save(tmp_path / "x.npy", np.asfortranarray(BITS.astype(dtype)))
    np.testing.assert_array_equal(read_npy(tmp_path / "x.npy"), BITS)


def test_too_little_memory_is_no_damage(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.zeros((100, 1000), bool))
    monkeypatch.setattr("discrete_vae.system.available_memory", lambda: 200_000)
    with pytest.raises(InvalidInputError, match="must fit this machine's memory.*for its values in float32"):
        load_file(path=tmp_path / "x.npy")
    monkeypatch.setattr("discrete_vae.system.available_memory", lambda: 20_000)
    with pytest.raises(InvalidInputError, match="must fit this machine's memory.*Use a smaller array"):
        load_file(path=tmp_path / "x.npy")


@pytest.mark.parametrize(("train", "valid", "test"), [(1, 5, 5), (5, 0, 5), (5, 5, 0)])
def test_parts_that_are_too_small_are_refused(tmp_path, train, valid, test):
    np.savez(tmp_path / "x.npz", train=BITS[:train], valid=BITS[:valid], test=BITS[:test])
    with pytest.raises(InvalidInputError, match="must h(old|ave) at least"):
        load_file(path=tmp_path / "x.npz")
