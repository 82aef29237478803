import sys

import pytest

from discrete_vae.runs.run_directory import RunDirectory
from tests.commands.conftest import TINY
from tests.interop.events import events, lines


def test_train_writes_events_beside_the_log(cli, tmp_path, data_file):
    pytest.importorskip("tensorboard", reason="TensorBoard, an extra, is not installed")
    run = tmp_path / "run"
    words = ["train", "--data", data_file, "--run-dir", run, *TINY]
    assert cli(*words, "--logger", "tensorboard")[0] == 0
    assert events(run / "tensorboard") == lines(RunDirectory(run))
    assert cli("train", "--resume", "--run-dir", run, "--logger", "tensorboard")[0] == 0
    assert events(run / "tensorboard") == lines(RunDirectory(run))


def test_other_loggers_are_refused(refused, tmp_path, data_file):
    err = refused("train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, "--logger", "wandb")
    assert err.startswith("error: --logger must be one of tensorboard; received 'wandb'")


def test_a_missing_extra_is_named_before_anything_is_made(refused, tmp_path, data_file, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    err = refused(
        "train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, "--logger", "tensorboard"
    )
    assert "pip install 'discrete-vae[tensorboard]'" in err
