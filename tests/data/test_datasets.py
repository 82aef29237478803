"""Published data sets: their configs and loaders, the files that they are made of, downloads, the data folder."""

import errno
import gc
import gzip
import hashlib
import os
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets
import torch
from scipy.io import savemat

from discrete_vae.config import DataConfig, DigitsConfig, FileDataConfig, instantiate, members
from discrete_vae.data import datasets
from discrete_vae.data.datasets import (
    Archive,
    ArrayRule,
    RemoteFile,
    data_folder,
    fetch_archive,
    load_dataset,
    load_digits,
)
from discrete_vae.runs.io import sha256_file
from discrete_vae.system import check_data_dir
from tests.refusals import refused, refused_argument


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; a file NAME.cut is sent under NAME with too large a length, as a broken line would."""

    def do_GET(self):
        cut = Path(self.directory, f"{self.path.lstrip('/')}.cut")
        if not cut.exists():
            super().do_GET()
            return
        content = cut.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(2 * len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format, *args):
        pass


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder and the address under which a server of this machine offers its files."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "site"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join(timeout=10)


@pytest.fixture
def folder(tmp_path):
    """An empty data folder."""
    path = tmp_path / "data"
    path.mkdir()
    return path


# By name and by config.


@pytest.mark.parametrize("config", members(DataConfig))
def test_every_config_reaches_a_loader_which_refuses_a_missing_folder(config, tmp_path):
    settings = {"path": tmp_path / "mine.npy"} if config is FileDataConfig else {}
    for call in (
        lambda folder: instantiate(config(**settings), data_dir=folder),
        lambda folder: load_dataset(config.model_fields["kind"].default, data_dir=folder, **settings),
    ):
        assert refused_argument(call, tmp_path / "none") == "data_dir"
    assert list(tmp_path.iterdir()) == []


def test_unknown_names_and_settings_are_refused():
    for argument, name, settings in (
        ("name", "mnist", {}),
        ("DigitsConfig.num_vald", "digits", {"num_vald": 3}),
        ("DigitsConfig.split_seed", "digits", {"split_seed": -1}),
        ("FileDataConfig.path", "file", {}),
        ("num_valid + num_test", "digits", {"num_valid": 1000, "num_test": 797}),
        ("DigitsConfig.num_valid", "digits", {"num_valid": 0}),
    ):
        assert refused_argument(load_dataset, name, **settings) == argument


def test_a_config_builds_what_the_name_does(tmp_path, monkeypatch):
    config = DigitsConfig(num_valid=7)
    assert torch.equal(instantiate(config, data_dir=None).valid, load_dataset("digits", num_valid=7).valid)
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", np.eye(10))
    config = FileDataConfig(path=Path("mine.npy"))  # which becomes absolute
    monkeypatch.chdir("/")
    assert instantiate(FileDataConfig.from_json(config.model_dump_json())).num_features == 10


def test_sizes_values_and_mean():
    digits = load_digits()
    assert (len(digits.train), len(digits.valid), len(digits.test)) == (1297, 250, 250)
    assert digits.train.unique().numel() == 17
    assert set(digits.test.unique().tolist()) == {0.0, 1.0}
    # mean intensity of the 1797 images is 4.884165 of 16
    assert digits.train.mean().item() == pytest.approx(4.884165 / 16, abs=2e-3)
    assert (digits.image_shape, digits.dynamic) == ((8, 8), True)
    # upright: columns are empty at the left edge, rows are not at the top
    ink = digits.train.mean(0).reshape(8, 8)
    assert ink[:, 0].max() < 0.03 < 0.3 < ink[0, 2:5].min()


def test_the_digits_are_those_of_scikit_learn_and_seeds_change_what_they_say():
    digits, (intensities, kinds) = load_digits(), sklearn.datasets.load_digits(return_X_y=True)
    rows = zip((16 * digits.train).tolist(), digits.labels["train"], strict=True)
    all_rows = zip(intensities.tolist(), kinds, strict=True)
    assert {(*row, kind) for row, kind in rows} <= {(*row, kind) for row, kind in all_rows}
    equal = [
        [torch.equal(getattr(digits, part), getattr(other, part)) for part in ("train", "valid", "test")]
        for other in (load_digits(), load_digits(split_seed=1), load_digits(binarization_seed=1))
    ]
    assert equal == [[True] * 3, [False] * 3, [True, False, False]]
    # binarized images keep their labels: the nearest other image has the same one nearly always
    nearest = digits.labels["train"][torch.cdist(digits.test, digits.train).argmin(1)]
    assert (nearest == digits.labels["test"]).mean() > 0.8
    assert set(digits.labels["valid"].tolist()) == set(range(10))


# From small originals, which this machine serves.


def resized(archive: Archive, lengths: dict[str, int]) -> Archive:
    """The archive with other numbers of examples."""
    rules = archive.arrays
    new = {key: replace(rules[key], shape=(length, *rules[key].shape[1:])) for key, length in lengths.items()}
    return replace(archive, arrays=rules | new)


def served(archive: Archive, site, lengths: dict[str, int]) -> Archive:
    """The archive with the sums of the files that are served, and other numbers of examples."""
    folder, address = site
    paths = [folder / file.name for file in archive.files]
    files = [RemoteFile(path.name, f"sha256:{sha256_file(path)}", path.stat().st_size) for path in paths]
    return resized(replace(archive, addresses=(address,), files=tuple(files)), lengths)


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (9, 28, 28), dtype=np.uint8)


@pytest.fixture
def bits(images):
    return (images.reshape(9, 784) > 127).astype(np.uint8)


def same_rows(part: torch.Tensor, rows: np.ndarray) -> bool:
    return sorted(part.tolist()) == sorted(np.asarray(rows, dtype=np.float32).tolist())


def idx(array):
    """An array of bytes in the format of MNIST."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return gzip.compress(header + array.tobytes())


def test_mnist_dynamic(site, folder, images):
    labels = np.arange(9, dtype=np.uint8)
    for key, array in {"train_images": images[:6], "test_images": images[6:]}.items():
        of_labels = datasets.MNIST_FILES[key.replace("images", "labels")]
        (site[0] / datasets.MNIST_FILES[key]).write_bytes(idx(array))
        (site[0] / of_labels).write_bytes(idx(labels[: len(array)]))
    lengths = {"train_images": 6, "test_images": 3, "train_labels": 6, "test_labels": 3}
    archive = served(datasets.MNIST_DYNAMIC, site, lengths)
    data = datasets.load_mnist_dynamic(num_valid=2, data_dir=folder, archive=archive)
    assert data.labels["train"].tolist() == [0, 1, 2, 3]
    for part, first in {"valid": 4, "test": 0}.items():
        rows = images[6:] if part == "test" else images[4:6]
        for bits, label in zip(getattr(data, part), data.labels[part], strict=True):
            ink = torch.from_numpy(rows[label - first].reshape(784))
            assert not bool(((bits == 1) & (ink == 0)).any())
            assert bool((bits[ink == 255] == 1).all())
    assert torch.equal(data.train, torch.from_numpy(images[:4].reshape(4, 784)) / 255)
    assert (data.valid.shape, data.test.shape, data.dynamic) == ((2, 784), (3, 784), True)
    assert set(data.test.unique().tolist()) == {0.0, 1.0}
    with np.load(folder / "mnist.npz") as kept:
        assert set(kept.files) == set(lengths)
        np.testing.assert_array_equal(kept["test_labels"], [0, 1, 2])
    other = datasets.load_mnist_dynamic(num_valid=2, binarization_seed=1, data_dir=folder, archive=archive)
    assert not torch.equal(other.test, data.test)
    for num_valid, argument in ((0, "data set mnist-dynamic"), (6, "num_valid")):
        given = {"num_valid": num_valid, "data_dir": folder, "archive": archive}
        assert refused_argument(datasets.load_mnist_dynamic, **given) == argument


def test_mnist_static(site, folder, bits):
    rows = {"train": bits[:4], "valid": bits[4:6], "test": bits[6:]}
    for part, values in rows.items():
        text = "".join(" ".join(map(str, row)) + "\n" for row in values)
        (site[0] / f"binarized_mnist_{part}.amat").write_text(text)
    archive = served(datasets.MNIST_STATIC, site, {part: len(values) for part, values in rows.items()})
    data = datasets.load_mnist_static(data_dir=folder, archive=archive)
    np.testing.assert_array_equal(data.train.numpy(), rows["train"])
    assert same_rows(data.valid, rows["valid"])
    assert same_rows(data.test, rows["test"])
    assert not data.dynamic
    with np.load(folder / "static_mnist.npz") as kept:
        wrong = dict(kept) | {"test_shape": np.array([3, 783])}
    np.savez(folder / "static_mnist.npz", **wrong)
    refused = refused_argument(datasets.load_mnist_static, data_dir=folder, archive=archive)
    assert "array 'test_shape'" in refused


def test_omniglot(site, folder, images):
    reals = images.transpose(0, 2, 1).reshape(9, 784).T / 255  # column-major images in columns
    content = {"data": reals[:, :6], "testdata": reals[:, 6:], "target": np.zeros((50, 6))}
    savemat(site[0] / "chardata.mat", content)
    archive = served(datasets.OMNIGLOT, site, {"train": 6, "test": 3})
    data = datasets.load_omniglot(num_valid=2, data_dir=folder, archive=archive)
    assert data.description.version == "chardata.mat"
    rows = torch.from_numpy(images.reshape(9, 784)) / 255
    assert all(any(torch.equal(mine, theirs) for theirs in rows[:6]) for mine in data.train)
    assert (data.train.shape, data.valid.shape, data.test.shape) == ((4, 784), (2, 784), (3, 784))
    assert data.dynamic
    other = datasets.load_omniglot(num_valid=2, split_seed=1, data_dir=folder, archive=archive)
    assert not torch.equal(other.train, data.train)
    given = {"num_valid": 6, "data_dir": folder, "archive": archive}
    assert refused_argument(datasets.load_omniglot, **given) == "num_valid"


def test_omniglot_says_which_form_it_read(folder, images):
    archive = resized(datasets.OMNIGLOT, {"train": 6, "test": 3, "train_drawer": 6})
    parts = {"train": images[:6], "test": images[6:]}
    for more, version in (({"train_drawer": np.ones(6, np.uint8)}, "rebuilt"), ({}, "unknown")):
        np.savez(folder / "omniglot.npz", **parts, **more)
        data = datasets.load_omniglot(num_valid=2, data_dir=folder, archive=archive)
        assert data.description.version == version


def test_caltech101(site, folder, bits):
    published = 1 - bits.reshape(9, 28, 28).transpose(0, 2, 1).reshape(9, 784)  # column-major, object 0
    names = np.empty((1, 9), dtype=object)
    names[0] = [f"kind {number}" for number in range(1, 10)]
    content = {"classnames": names}
    for stem, part in {"train": slice(0, 4), "val": slice(4, 6), "test": slice(6, 9)}.items():
        content |= {f"{stem}_data": published[part], f"{stem}_labels": np.arange(9)[part, None] + 1}
    savemat(site[0] / "caltech101_silhouettes_28_split1.mat", content)
    lengths = {"train": 4, "valid": 2, "test": 3, "classnames": 9}
    lengths |= {f"{part}_labels": lengths[part] for part in ("train", "valid", "test")}
    archive = served(datasets.CALTECH101, site, lengths)
    data = datasets.load_caltech101_silhouettes(data_dir=folder, archive=archive)
    np.testing.assert_array_equal(data.train.numpy(), bits[:4])
    assert same_rows(data.valid, bits[4:6])
    assert same_rows(data.test, bits[6:])
    assert not data.dynamic
    assert data.labels["train"].tolist() == ["kind 1", "kind 2", "kind 3", "kind 4"]
    for row, label in zip(data.test.numpy(), data.labels["test"], strict=True):
        np.testing.assert_array_equal(row, bits[int(label.split()[1]) - 1])
    with np.load(folder / "caltech101_silhouettes.npz") as kept:
        assert kept["valid_labels"].tolist() == [5, 6]
        assert kept["classnames"].tolist() == names[0].tolist()
        np.testing.assert_array_equal(kept["train"], published[:4])


# The real files.


SHAPES = dict.fromkeys(("mnist-dynamic", "mnist-static"), (50000, 10000, 10000))
SHAPES |= {"omniglot": (23000, 1345, 8115), "caltech101-silhouettes": (4100, 2264, 2307)}


@pytest.fixture(scope="module", params=SHAPES)
def data(request):
    folder = os.environ.get("DISCRETE_VAE_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("DISCRETE_VAE_DATA does not name a folder with the published data sets")
    yield load_dataset(request.param, data_dir=folder)
    gc.collect()


def test_sizes_values_and_means(data):
    sizes = len(data.train), len(data.valid), len(data.test)
    assert sizes == SHAPES[data.name] or (data.name == "omniglot" and len(data.test) == 8070)
    assert data.image_shape == (28, 28)
    assert data.num_features == 784
    assert len(data.description.sha256) == 64
    for part in (data.train, data.valid, data.test):
        assert part.dtype == torch.float32
        assert bool(((part >= 0) & (part <= 1)).all())
    for part in (data.valid, data.test, *([] if data.dynamic else [data.train])):
        assert bool(((part == 0) | (part == 1)).all())
    if data.dynamic:
        levels = (data.train[::10] * 255).round().long()
        assert torch.bincount(levels.flatten(), minlength=256).count_nonzero() == 256
    ink = data.test.mean(1)  # the first rows are a fair subset, though the published parts are sorted
    assert abs(ink[:1000].mean() - ink.mean()) < 5 * ink.std() / 1000**0.5
    means = [part.double().mean().item() for part in (data.train, data.valid, data.test)]
    if data.name == "caltech101-silhouettes":
        assert means == pytest.approx([1 - 0.551055, 1 - 0.535959, 1 - 0.539015], abs=1e-6)
        # upright: left and right halves hold about as much of the objects, upper and lower ones do not
        objects = data.train.mean(0).reshape(28, 28)
        vertical, horizontal = (abs((half[:14] - half[14:]).sum()) for half in (objects, objects.T))
        assert vertical > 2 * horizontal
    elif data.name == "mnist-dynamic":
        # the two parts of the published training images together, and the bits within their noise
        assert (5 * means[0] + means[1]) / 6 == pytest.approx(0.130660, abs=5e-5)
        assert means[2] == pytest.approx(0.132515, abs=3e-4)
    elif data.name == "mnist-static":
        assert means == pytest.approx([0.130562, 0.131127, 0.132512], abs=1e-6)
    elif data.name == "omniglot" and data.description.version == "rebuilt":
        assert (23000 * means[0] + 1345 * means[1]) / 24345 == pytest.approx(0.083004, abs=5e-5)
        assert means[2] == pytest.approx(0.081987, abs=3e-4)


# Downloads, and the folder that they go to.


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
    error = refused(fetch_archive, archive(site[1]), folder)
    assert "made.npz" in error.rule
    assert "No space left" in str(error)
    assert entries(folder) == []


def test_a_conversion_that_breaks_the_rules_is_not_kept(site, original, folder):
    broken = archive(site[1], rows=ArrayRule("uint8", (5, 4)))
    assert "made.npz, array 'rows'" in refused_argument(fetch_archive, broken, folder)
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
    wanted = archive(NOWHERE, rows=ArrayRule("uint8", (3, 4), highest=11))
    assert str(folder / "made.npz") in refused_argument(fetch_archive, wanted, folder)
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
