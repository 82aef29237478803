import hashlib
import subprocess

import pytest

from discrete_vae.data import datasets
from discrete_vae.data.download import DownloadError, Mirror, RemoteFile, fetch_files, git_blob_id

CONTENT = bytes(range(256)) * 40
CHECKSUMS = {
    "sha256": hashlib.sha256(CONTENT).hexdigest(),
    "git-blob": hashlib.sha1(b"blob 10240\x00" + CONTENT).hexdigest(),
}


ARCHIVES = [datasets.CALTECH101, datasets.MNIST_DYNAMIC, datasets.MNIST_STATIC, datasets.OMNIGLOT]


@pytest.fixture
def into(tmp_path):
    path = tmp_path / "into"
    path.mkdir()
    return path


def mirror(*addresses: str, algorithm: str = "sha256") -> Mirror:
    return Mirror(addresses, (RemoteFile("a.bin", f"{algorithm}:{CHECKSUMS[algorithm]}", len(CONTENT)),))


def get(mirror, into, folder):
    return fetch_files(mirror, destination=into, manual_folder=folder, made_file="a.npz")


@pytest.mark.parametrize("algorithm", CHECKSUMS)
def test_a_good_file_is_fetched(site, into, folder, algorithm):
    (site[0] / "a.bin").write_bytes(CONTENT)
    paths = get(mirror(site[1], algorithm=algorithm), into, folder)
    assert paths == {"a.bin": into / "a.bin"}
    assert paths["a.bin"].read_bytes() == CONTENT
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("algorithm", CHECKSUMS)
@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[:-1] + b"\x00", b""])
def test_altered_and_truncated_files_are_refused_and_removed(site, into, folder, algorithm, content):
    (site[0] / "a.bin").write_bytes(content)
    with pytest.raises(DownloadError, match=r"a\.bin must be downloadable and have the right checksum"):
        get(mirror(site[1], algorithm=algorithm), into, folder)
    assert list(into.iterdir()) == []


@pytest.mark.parametrize("algorithm", CHECKSUMS)
def test_a_line_that_breaks_is_noticed(site, into, folder, algorithm):
    (site[0] / "a.bin.cut").write_bytes(CONTENT)
    with pytest.raises(DownloadError):
        get(mirror(site[1], algorithm=algorithm), into, folder)
    assert list(into.iterdir()) == []


def test_the_next_address_is_tried(site, into, folder):
    (site[0] / "b").mkdir()
    (site[0] / "b" / "a.bin").write_bytes(CONTENT)
    assert get(mirror(site[1], site[1] + "b/"), into, folder)["a.bin"].read_bytes() == CONTENT


def test_a_failure_names_the_addresses_and_what_to_do(site, into, folder):
    with pytest.raises(DownloadError) as caught:
        get(mirror(site[1], site[1] + "b/"), into, folder)
    message = str(caught.value)
    for part in (
        f"{site[1]}a.bin",
        f"{site[1]}b/a.bin",
        "404",
        "by hand",
        str(folder),
        CHECKSUMS["sha256"],
        "a.npz",
    ):
        assert part in message
    assert list(into.iterdir()) == []


def test_no_network_at_all(into, folder, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(
        DownloadError, match=r"http://127\.0\.0\.1:9/a\.bin: ConnectionError: .*refused.*Check the network"
    ):
        get(mirror("http://127.0.0.1:9/"), into, folder)


def test_a_file_put_there_by_hand_is_used(into, folder):
    (folder / "a.bin").write_bytes(CONTENT)
    assert get(mirror("http://127.0.0.1:9/"), into, folder) == {"a.bin": folder / "a.bin"}


def test_a_wrong_file_put_there_by_hand_is_refused_and_left_alone(into, folder):
    (folder / "a.bin").write_bytes(b"mine")
    with pytest.raises(
        DownloadError, match=r"a\.bin must have the checksum sha256:.*Remove it, or download it again"
    ):
        get(mirror("http://127.0.0.1:9/"), into, folder)
    assert (folder / "a.bin").read_bytes() == b"mine"


@pytest.mark.parametrize("algorithm", CHECKSUMS)
def test_what_is_larger_than_it_should_be_is_not_read_to_its_end(site, into, folder, algorithm):
    (site[0] / "a.bin").write_bytes(CONTENT * 10_000)
    with pytest.raises(DownloadError):
        get(mirror(site[1], algorithm=algorithm), into, folder)
    assert list(into.iterdir()) == []
    (folder / "a.bin").write_bytes(CONTENT + b"\0")
    with pytest.raises(DownloadError):
        get(mirror(site[1], algorithm=algorithm), into, folder)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.file_name)
def test_each_published_file_has_its_sum_and_its_size(archive):
    for file in archive.mirror.files:
        algorithm, _, digits = file.checksum.partition(":")
        known = {"sha256": 64} | ({"git-blob": 40} if archive is datasets.OMNIGLOT else {})
        assert len(bytes.fromhex(digits)) * 2 == known[algorithm]
        assert 0 < file.max_size <= 100_000_000


def test_the_blob_id_is_gits(tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT)
    command = ["git", "hash-object", "--no-filters", str(tmp_path / "a.bin")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == git_blob_id(
        tmp_path / "a.bin"
    )
