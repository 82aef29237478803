"""dvae train with other estimators of the gradient: runs, resumed ones, and settings that do not go together."""

import json
import shutil

import pytest

from tests.commands.conftest import NUM_STEPS, TINY
from tests.commands.test_train import final_files, forget_after

GRADIENTS = {
    "REINFORCE": "reinforce",
    "learned baseline": "reinforce --training.gradient.baseline learned --training.gradient.baseline.hidden 4",
    "leave-one-out": "leave-one-out --training.gradient.num-samples 3",
    "DisARM": "disarm",
    "naive KL": "naive-kl",
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_resumed_run_equals_an_unbroken_one(done, tmp_path, data_file, name):
    words = ["--data", data_file, *TINY, "--training.gradient", *GRADIENTS[name].split()]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    _, err = done("train", *words, "--run-dir", whole)
    assert "operation by operation" not in err
    shutil.copytree(whole, broken)
    forget_after(broken, 2)
    done("train", "--resume", "--run-dir", broken)
    assert final_files(whole) == final_files(broken)
    done("evaluate", whole, "--num-samples", "10")


@pytest.mark.filterwarnings("ignore:.*config.json is not the file")
def test_a_checkpoint_of_another_gradient_is_refused(cli, done, tmp_path, data_file):
    run = tmp_path / "run"
    words = ["--data", data_file, *TINY, "--training.gradient", "reinforce", "--run-dir", run]
    done("train", *words)
    forget_after(run, NUM_STEPS - 2)
    config = json.loads((run / "config.json").read_text())
    config["training"]["gradient"] = {"kind": "disarm"}
    (run / "config.json").write_text(json.dumps(config))
    status, _, err = cli("train", "--resume", "--accept-changed-config", "--run-dir", run)
    assert status == 2, err
    assert "gradient/baseline.total must not be there" in err
