"""One writer at a time."""

import os
import subprocess
import sys

import pytest

from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.lock import sole_writer

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such locks")


def test_a_second_writer_is_refused_until_the_first_is_done(tmp_path):
    with sole_writer(tmp_path):
        with pytest.raises(InvalidInputError, match="run_dir must not be in use"), sole_writer(tmp_path):
            pass
        (tmp_path / "written").touch()
    with sole_writer(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["written"]


def test_a_killed_writer_holds_nothing(tmp_path):
    code = (
        "import sys; from pathlib import Path; from discrete_vae.runs.lock import sole_writer\n"
        "with sole_writer(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(InvalidInputError, match="must not be in use"), sole_writer(tmp_path):
            pass
        process.kill()
    with sole_writer(tmp_path):
        pass
