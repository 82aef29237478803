"""Compiled kernels need no cache on disk: none, a damaged and a full one cost time and nothing else."""

import errno
import itertools
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching
from numba.core.bytecode import FunctionIdentity

import discrete_vae
from discrete_vae.errors import KernelWarning
from discrete_vae.kernels import loops
from discrete_vae.kernels.loops import ChunkLoop


def make(chunks):
    """A loop that compiles in a moment."""

    def total(values):
        found = 0.0
        for i in chunks(values):
            found += i
        return found

    return total


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """numba's cache in a folder of its own; warnings come anew."""
    loops._warn_without_cache.cache_clear()
    monkeypatch.setattr(caching.config, "CACHE_DIR", str(tmp_path))
    yield tmp_path
    loops._warn_without_cache.cache_clear()


def hits(loop):
    return sum(loop.serial.stats.cache_hits.values())


@pytest.mark.parametrize("threads", [1, 2])
def test_loops_that_differ_in_a_constant_are_told_apart(monkeypatch, threads):
    """Each compiled in a process of its own, where numba had counted as far."""

    def filling(number):
        def make(chunks):
            def fill(out):
                for i in chunks(len(out)):
                    out[i] = number
                return 0

            return fill

        return make

    for number in (1, 5, 1, 5):
        monkeypatch.setattr(FunctionIdentity, "_unique_ids", itertools.count(10**6))
        out = np.zeros(4)
        ChunkLoop(filling(number))(threads, out)
        assert out.tolist() == [number] * 4


@pytest.mark.parametrize(("ending", "keep"), [("nbi", 0), ("nbi", -1), ("nbc", 40)])
def test_a_damaged_cache_is_made_anew(folder, ending, keep):
    ChunkLoop(make)(1, 4)
    (path,) = folder.rglob(f"*.{ending}")
    path.write_bytes(path.read_bytes()[:keep])
    damaged = ChunkLoop(make)
    assert damaged(1, 5) == 10
    again = ChunkLoop(make)
    assert again(1, 5) == 10
    assert (hits(damaged), hits(again)) == (0, 1)


@pytest.mark.parametrize("folder_is", ["full", "missing"])
def test_a_cache_that_cannot_be_written_costs_one_warning(monkeypatch, folder_is):
    def refuse(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if folder_is == "full":
        monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", refuse)
    else:
        monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with pytest.warns(KernelWarning, match="NUMBA_CACHE_DIR") as caught:
        assert [ChunkLoop(make)(1, 4), ChunkLoop(make)(1, 4)] == [6, 6]
    assert len(caught) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize(
    ("above", "own", "used"),
    [(0o755, 0o755, True), (0o1777, 0o755, True), (0o777, 0o755, False), (0o755, 0o1777, False)],
)
def test_a_cache_that_others_can_write_is_not_read(tmp_path, monkeypatch, above, own, used):
    """What lies in numba's cache is unpickled, which runs code."""
    monkeypatch.setattr(caching.config, "CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ChunkLoop(make)(1, 4)
    (folder,) = (tmp_path / "cache").iterdir()
    folder.chmod(own)
    (tmp_path / "cache").chmod(above)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again = ChunkLoop(make)
        assert again(1, 4) == 6
    assert (hits(again) == 1) is used
    assert [each.category for each in caught] == [] if used else [KernelWarning]


WHERE = """
import discrete_vae
from discrete_vae.kernels import gibbs_rbm, gibbs_graph
print(discrete_vae.__file__)
"""


def test_kernels_work_where_nothing_can_be_written(tmp_path):
    """The package in a folder whose __pycache__ is a file, as is the home folder: that refuses even root."""
    source, without = Path(discrete_vae.__file__).parent, shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(source, tmp_path / "discrete_vae", ignore=without)
    (package / "kernels" / "__pycache__").touch()
    home = tmp_path / "home"
    home.touch()
    environment = {name: os.environ[name] for name in os.environ if not name.startswith(("NUMBA_", "XDG_"))}
    environment |= {"HOME": str(home), "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", WHERE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert str(package) in done.stdout
    assert done.stderr.count("NUMBA_CACHE_DIR") == 1
