"""dvae train with every smoothing and every estimator of the gradient: runs, and resumed ones, bit for bit."""

import json
import shutil

import pytest
import torch

from discrete_vae import DiscreteVAE
from tests.commands.conftest import NUM_STEPS, TINY
from tests.commands.test_train import final_files, forget_after
from tests.transformations import SMOOTHINGS


@pytest.mark.parametrize("kind", [*SMOOTHINGS, "straight-through"])
def test_a_run_of_every_transformation(cli, done, tmp_path, data_file, kind):
    run = tmp_path / "run"
    words = ("--data", data_file, "--model.smoothing", kind, *TINY)
    done("train", *words, "--run-dir", run)
    assert json.loads((run / "config.json").read_text())["model"]["smoothing"]["kind"] == kind
    right = final_files(run)
    forget_after(run, NUM_STEPS - 2)
    done("train", "--resume", "--run-dir", run)
    assert final_files(run) == right
    status, out, _ = cli("evaluate", run, "--num-samples", 20)
    assert (status, "log-likelihood" in out) == (0, True)
    model = DiscreteVAE.from_pretrained(run)
    again = DiscreteVAE.from_pretrained(model.save_pretrained(tmp_path / "saved"))
    draws = [each.sample(20, num_sweeps=5, seed=1) for each in (model, again)]
    assert torch.equal(draws[0].mean, draws[1].mean)
    assert again.smoothing.check_zeta(draws[0].zeta, (20, 5)).shape == (20, 5)


def test_a_run_with_importance_samples_of_zeta(done, refused, tmp_path, data_file):
    run, more = (
        tmp_path / "run",
        ("--training.num-importance-samples", "3", "--training.importance-start", "0"),
    )
    words = ("train", "--data", data_file, *TINY, *more, "--run-dir", run)
    message = refused(*words)
    assert (
        "num_importance_samples must be 1 without Gaussian layers where the smoothing has a spike" in message
    )
    done(*words, "--model.smoothing", "ramps")
    right = final_files(run)
    forget_after(run, NUM_STEPS - 2)
    done("train", "--resume", "--run-dir", run)
    assert final_files(run) == right


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
