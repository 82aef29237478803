"""Archives of the data folder, the downloads that they are made of, and the folder itself."""

import errno
import hashlib
from pathlib import Path

import numpy as np
import pytest

from discrete_vae.data import datasets
from discrete_vae.data.datasets import Archive, ArrayRule, RemoteFile, data_folder, fetch_archive
from discrete_vae.errors import InvalidInputError
from discrete_vae.system import check_data_dir
from tests.refusals import refused_argument

CONTENT = bytes(range(256)) * 40
CHECKSUMS = {
    "sha256": hashlib.sha256(CONTENT).hexdigest(),
    "git-blob": hashlib.sha1(b"blob 10240\x00" + CONTENT).hexdigest(),
}
NOWHERE = "http://127.0.0.1:9/"
PUBLISHED = [datasets.CALTECH101, datasets.MNIST_DYNAMIC, datasets.MNIST_STATIC, datasets.OMNIGLOT]


def convert(originals):
    return {"rows": np.frombuffer(originals["raw.bin"].read_bytes(), dtype=np.uint8).reshape(40, 256)}


def archive(*addresses: str, algorithm: str = "sha256", **rules: ArrayRule) -> Archive:
    files = (RemoteFile("raw.bin", f"{algorithm}:{CHECKSUMS[algorithm]}", len(CONTENT)),)
    return Archive("made.npz", rules or {"rows": ArrayRule("uint8", (40, 256))}, addresses, files, convert)


def entries(folder):
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def original(site):
    """The original, which a server of this machine offers."""
    (site[0] / "raw.bin").write_bytes(CONTENT)
    return site[0] / "raw.bin"


def test_an_absent_file_is_downloaded_converted_and_kept(site, original, folder):
    arrays, sha256 = fetch_archive(archive(site[1]), folder)
    assert arrays["rows"].tobytes() == CONTENT
    assert entries(folder) == ["made.npz"]
    assert sha256 == hashlib.sha256((folder / "made.npz").read_bytes()).hexdigest()
    assert fetch_archive(archive(NOWHERE), folder)[1] == sha256


def test_the_users_cache_is_made_when_it_is_needed(site, original, tmp_path, monkeypatch):
    monkeypatch.delenv("DISCRETE_VAE_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    fetch_archive(archive(site[1]))
    assert (tmp_path / "cache" / "discrete-vae" / "made.npz").is_file()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("raw.bin", CONTENT[:-1]),
        ("raw.bin", CONTENT[:-1] + b"\x00"),
        ("raw.bin", CONTENT * 10_000),
        ("raw.bin.cut", CONTENT),
        ("other.bin", CONTENT),
    ],
)
def test_downloads_that_are_not_the_file_are_refused_and_removed(site, folder, name, content):
    (site[0] / name).write_bytes(content)
    for algorithm in CHECKSUMS:
        with pytest.raises(datasets.DownloadError, match=r"raw\.bin") as caught:
            fetch_archive(archive(site[1], algorithm=algorithm), folder)
        assert entries(folder) == []
    if len(content) > 1 << 20:  # it is not read to its end: there is no sum of the whole
        assert "sha256" not in caught.value.received


@pytest.mark.parametrize("algorithm", CHECKSUMS)
def test_the_next_address_is_tried(site, folder, algorithm):
    (site[0] / "b").mkdir()
    (site[0] / "raw.bin").write_bytes(b"another file")
    (site[0] / "b" / "raw.bin").write_bytes(CONTENT)
    arrays, _ = fetch_archive(archive(site[1], site[1] + "b/", algorithm=algorithm), folder)
    assert arrays["rows"].tobytes() == CONTENT


def test_a_failure_names_the_addresses_and_what_to_do(site, folder):
    with pytest.raises(datasets.DownloadError) as caught:
        fetch_archive(archive(site[1], NOWHERE), folder)
    sought = (f"{site[1]}raw.bin", f"{NOWHERE}raw.bin", "404", str(folder), CHECKSUMS["sha256"], "made.npz")
    assert all(part in str(caught.value) for part in sought)
    assert entries(folder) == []


def test_originals_put_there_by_hand_are_converted_and_kept_and_wrong_ones_refused(folder):
    for content in (b"mine", CONTENT + b"\0"):
        (folder / "raw.bin").write_bytes(content)
        with pytest.raises(datasets.DownloadError, match=r"raw\.bin"):
            fetch_archive(archive(NOWHERE), folder)
        assert (folder / "raw.bin").read_bytes() == content
    (folder / "raw.bin").write_bytes(CONTENT)
    fetch_archive(archive(NOWHERE), folder)
    assert entries(folder) == ["made.npz", "raw.bin"]


def test_a_full_disk_is_named_and_leaves_nothing(site, original, folder, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(datasets, "write_bytes", full)
    with pytest.raises(InvalidInputError, match=r"made\.npz.*No space left"):
        fetch_archive(archive(site[1]), folder)
    assert entries(folder) == []


def test_a_conversion_that_breaks_the_rules_is_not_kept(site, original, folder):
    with pytest.raises(InvalidInputError, match=r"made\.npz, array 'rows'"):
        fetch_archive(archive(site[1], rows=ArrayRule("uint8", (5, 4))), folder)
    assert entries(folder) == []


@pytest.mark.parametrize(
    "arrays",
    [
        {"other": np.zeros(1)},
        {"rows": np.zeros((3, 4))},
        {"rows": np.zeros((4, 4), np.uint8)},
        {"rows": np.zeros((3, 4, 1), np.uint8)},
        {"rows": np.full((3, 4), 12, np.uint8)},
        None,
    ],
)
def test_a_present_file_of_another_form_is_refused_and_left_alone(folder, arrays):
    np.savez(folder / "made.npz", **arrays or {"rows": np.zeros((3, 4), np.uint8)})
    before = (folder / "made.npz").read_bytes()[: None if arrays else -30]
    (folder / "made.npz").write_bytes(before)
    with pytest.raises(InvalidInputError, match=str(folder / "made.npz")):
        fetch_archive(archive(NOWHERE, rows=ArrayRule("uint8", (3, 4), highest=11)), folder)
    assert (folder / "made.npz").read_bytes() == before


def test_rules_may_allow_several_lengths_and_leave_arrays_out(folder):
    np.savez(folder / "made.npz", rows=np.zeros((5, 4), np.uint8), source=np.array("here"))
    rules = {
        "rows": ArrayRule("uint8", ((3, 5), 4)),
        "source": ArrayRule("str", ()),
        "more": ArrayRule("uint8", (1,), optional=True),
    }
    assert set(fetch_archive(archive(NOWHERE, **rules), folder)[0]) == {"rows", "source"}
    rules["rows"] = ArrayRule("uint8", ((3, 6), 4))
    assert "array 'rows'" in refused_argument(fetch_archive, archive(NOWHERE, **rules), folder)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda archive: archive.file_name)
def test_each_published_file_has_its_sum_and_its_size(published):
    for file in published.files:
        algorithm, _, digits = file.checksum.partition(":")
        known = {"sha256": 64} | ({"git-blob": 40} if published is datasets.OMNIGLOT else {})
        assert len(bytes.fromhex(digits)) * 2 == known[algorithm]
        assert 0 < file.max_size <= 100_000_000


def test_the_argument_wins_over_the_variable_over_the_cache(tmp_path, monkeypatch):
    named, variable, cache = (tmp_path / name for name in ("named", "variable", "cache"))
    named.mkdir()
    variable.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("DISCRETE_VAE_DATA", str(variable))
    assert data_folder(named) == named
    assert data_folder() == variable
    monkeypatch.delenv("DISCRETE_VAE_DATA")
    assert data_folder().name == "discrete-vae"
    assert not cache.exists()
    monkeypatch.setenv("HOME", str(named))
    assert data_folder("~") == check_data_dir(Path("~")) == named
    assert check_data_dir(None) is None


def test_a_named_folder_must_exist_and_is_not_created(site, tmp_path, monkeypatch):
    missing, file = tmp_path / "typing-error", tmp_path / "file"
    file.touch()
    for path in (missing, file):
        for find in (data_folder, check_data_dir, lambda path: fetch_archive(archive(site[1]), path)):
            assert refused_argument(find, path) == "data_dir"
    monkeypatch.setenv("DISCRETE_VAE_DATA", str(missing))
    assert refused_argument(data_folder) == "DISCRETE_VAE_DATA"
    assert not missing.exists()
