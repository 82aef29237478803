"""Threads of dvae train: the run's own number when it is resumed."""

import json
import shutil

import torch

from discrete_vae.training import preflight
from tests.commands.conftest import TINY


def test_the_run_records_its_number_and_is_resumed_with_it(cli, data_file, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    own = torch.get_num_threads()
    run = tmp_path / "run"
    assert cli("train", "--data", data_file, "--run-dir", run, *TINY)[0] == 0
    environment = json.loads((run / "environment.json").read_text())
    assert environment["platform"]["torch_threads"] == 1
    assert torch.get_num_threads() == own
    last = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name.removeprefix("step-")))
    shutil.rmtree(last)
    seen = []
    choose = preflight._choose
    monkeypatch.setattr(preflight, "_choose", lambda *arguments: seen.append(choose(*arguments)) or seen[-1])
    assert cli("train", "--resume", "--run-dir", run)[0] == 0
    assert seen == [1]
