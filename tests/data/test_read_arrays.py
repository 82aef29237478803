import pickle
import zipfile

import numpy as np
import pytest

from discrete_vae.data.arrays import read_npy, read_npz
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
    with pytest.raises(InvalidInputError, match=r"array 'one', must be a readable NumPy file.*copy it again"):
        read_npz(path)


def test_nothing_is_ever_unpickled(tmp_path):
    objects = np.array([Bomb()], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", one=objects, allow_pickle=True)
    with pytest.raises(InvalidInputError, match=r"a\.npy must hold numbers; received Python objects"):
        read_npy(tmp_path / "a.npy")
    with pytest.raises(InvalidInputError, match=r"array 'one', must hold numbers; received Python objects"):
        read_npz(tmp_path / "a.npz")
    for name, read in (("b.npy", read_npy), ("b.npz", read_npz)):
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(InvalidInputError, match="received another format"):
            read(tmp_path / name)


def test_a_zip_of_other_files_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(InvalidInputError, match=r"array 'notes.txt', must be a readable NumPy file"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("read", [read_npy, read_npz])
def test_missing_files_and_folders_are_refused(tmp_path, read):
    with pytest.raises(InvalidInputError, match="must exist; received no such file"):
        read(tmp_path / "none")
    with pytest.raises(InvalidInputError, match="must be a file; received a folder"):
        read(tmp_path)
