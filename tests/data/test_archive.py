import errno
import hashlib

import numpy as np
import pytest

from discrete_vae.data import download as archive_module
from discrete_vae.data.download import Archive, ArrayRule, DownloadError, Mirror, RemoteFile, fetch_archive
from discrete_vae.errors import InvalidInputError

CONTENT = bytes(range(12))


def convert(originals):
    return {"rows": np.frombuffer(originals["raw.bin"].read_bytes(), dtype=np.uint8).reshape(3, 4)}


def archive(address: str, **rules: ArrayRule) -> Archive:
    mirror = Mirror(
        (address,), (RemoteFile("raw.bin", f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", len(CONTENT)),)
    )
    return Archive("made.npz", rules or {"rows": ArrayRule("uint8", (3, 4), highest=11)}, mirror, convert)


NOWHERE = "http://127.0.0.1:9/"


def test_an_absent_file_is_downloaded_converted_and_kept(site, folder):
    (site[0] / "raw.bin").write_bytes(CONTENT)
    made = fetch_archive(archive(site[1]), folder)
    assert made.arrays["rows"].tolist() == np.arange(12).reshape(3, 4).tolist()
    assert [entry.name for entry in folder.iterdir()] == ["made.npz"]
    assert made.sha256 == hashlib.sha256((folder / "made.npz").read_bytes()).hexdigest()
    (site[0] / "raw.bin").unlink()
    assert fetch_archive(archive(NOWHERE), folder).sha256 == made.sha256


def test_the_users_cache_is_made_when_it_is_needed(site, tmp_path, monkeypatch):
    monkeypatch.delenv("DISCRETE_VAE_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    (site[0] / "raw.bin").write_bytes(CONTENT)
    fetch_archive(archive(site[1]))
    assert (tmp_path / "cache" / "discrete-vae" / "made.npz").is_file()


def test_a_failed_download_leaves_nothing(site, folder):
    (site[0] / "raw.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(DownloadError, match=r"raw\.bin"):
        fetch_archive(archive(site[1]), folder)
    assert list(folder.iterdir()) == []


def test_a_missing_folder_starts_no_download(site, tmp_path):
    with pytest.raises(InvalidInputError, match="data_dir must be an existing folder"):
        fetch_archive(archive(site[1]), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_originals_put_there_by_hand_are_converted_and_kept(folder):
    (folder / "raw.bin").write_bytes(CONTENT)
    fetch_archive(archive(NOWHERE), folder)
    assert sorted(entry.name for entry in folder.iterdir()) == ["made.npz", "raw.bin"]


def test_a_full_disk_is_named_and_leaves_nothing(site, folder, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    (site[0] / "raw.bin").write_bytes(CONTENT)
    monkeypatch.setattr(archive_module, "write_bytes", full)
    with pytest.raises(
        InvalidInputError, match=r"must be a folder where made\.npz can be written.*No space left"
    ):
        fetch_archive(archive(site[1]), folder)
    assert list(folder.iterdir()) == []


def test_a_conversion_that_breaks_the_rules_is_not_kept(site, folder):
    (site[0] / "raw.bin").write_bytes(CONTENT)
    with pytest.raises(
        InvalidInputError, match=r"the converted made\.npz, array 'rows', must have the shape 5 x 4"
    ):
        fetch_archive(archive(site[1], rows=ArrayRule("uint8", (5, 4))), folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"other": np.zeros(1)}, "must hold the arrays rows; received only others"),
        ({"rows": np.zeros((3, 4))}, "array 'rows', must have the dtype uint8; received float64"),
        ({"rows": np.zeros((4, 4), np.uint8)}, "array 'rows', must have the shape 3 x 4; received 4 x 4"),
        ({"rows": np.zeros((3, 4, 1), np.uint8)}, "must have the shape 3 x 4; received 3 x 4 x 1"),
        ({"rows": np.full((3, 4), 12, np.uint8)}, "must hold values from 0 to 11; received 12"),
    ],
)
def test_a_present_file_of_another_form_is_refused_and_left_alone(folder, arrays, message):
    np.savez(folder / "made.npz", **arrays)
    before = (folder / "made.npz").read_bytes()
    with pytest.raises(InvalidInputError, match=message) as caught:
        fetch_archive(archive(NOWHERE), folder)
    assert str(folder / "made.npz") in str(caught.value)
    assert "Remove the file" in str(caught.value)
    assert (folder / "made.npz").read_bytes() == before


def test_a_truncated_file_is_refused_with_the_repair(folder):
    np.savez(folder / "made.npz", rows=np.zeros((3, 4), np.uint8))
    content = (folder / "made.npz").read_bytes()
    (folder / "made.npz").write_bytes(content[:-30])
    with pytest.raises(
        InvalidInputError, match=r"made\.npz must be a readable NumPy file.*Remove the file to have it"
    ):
        fetch_archive(archive(NOWHERE), folder)


def test_rules_may_allow_several_lengths_and_leave_arrays_out(folder):
    np.savez(folder / "made.npz", rows=np.zeros((5, 4), np.uint8), source=np.array("here"))
    rules = {
        "rows": ArrayRule("uint8", ((3, 5), 4)),
        "source": ArrayRule("str", ()),
        "more": ArrayRule("uint8", (1,), optional=True),
    }
    assert set(fetch_archive(archive(NOWHERE, **rules), folder).arrays) == {"rows", "source"}
    rules["rows"] = ArrayRule("uint8", ((3, 6), 4))
    with pytest.raises(InvalidInputError, match="must have the shape 3 or 6 x 4"):
        fetch_archive(archive(NOWHERE, **rules), folder)
