"""dvae train with every smoothing and every estimator of the gradient: runs, and resumed ones, bit for bit."""

import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.runs.io import read_json, write_json
from tests.commands.conftest import NUM_STEPS, TINY
from tests.commands.test_train import final_files, forget_after
from tests.transformations import SMOOTHINGS

GRADIENTS = ["reinforce", "leave-one-out --training.gradient.num-samples 3", "disarm", "naive-kl"]
GRADIENTS += ["reinforce --training.gradient.baseline learned --training.gradient.baseline.hidden 4"]
IMPORTANCE = "--training.num-importance-samples 3 --training.importance-start 0"
WORDS = [f"--model.smoothing {words}" for words in (*SMOOTHINGS, "straight-through", f"ramps {IMPORTANCE}")]
WORDS += [f"--training.gradient {words}" for words in GRADIENTS]


@pytest.mark.parametrize("words", WORDS)
def test_a_resumed_run_equals_an_unbroken_one(done, tmp_path, data_file, words):
    run = tmp_path / "run"
    _, err = done("train", "--data", data_file, *words.split(), *TINY, "--run-dir", run)
    assert "operation by operation" not in err
    right = final_files(run)
    forget_after(run, NUM_STEPS - 4)
    done("train", "--resume", "--run-dir", run)
    assert final_files(run) == right
    assert "log-likelihood" in done("evaluate", run, "--num-samples", 10)[0]
    if "gradient" not in words:
        model = DiscreteVAE.from_pretrained(run)
        again = DiscreteVAE.from_pretrained(model.save_pretrained(tmp_path / "saved"))
        draws = [each.sample(20, num_sweeps=5, seed=1) for each in (model, again)]
        assert torch.equal(draws[0].mean, draws[1].mean)
        assert again.smoothing.check_zeta(draws[0].zeta, (20, 5)).shape == (20, 5)


def test_importance_samples_of_zeta_want_a_smoothing_without_a_spike(refused, data_file):
    error = refused("train", "--data", data_file, *TINY, *IMPORTANCE.split())
    assert "num_importance_samples must be 1 without Gaussian layers where the smoothing has a spike" in error


@pytest.mark.filterwarnings("ignore:.*config.json is not the file")
def test_a_checkpoint_of_another_gradient_is_refused(cli, done, tmp_path, data_file):
    run = tmp_path / "run"
    done("train", "--data", data_file, *TINY, "--training.gradient", "reinforce", "--run-dir", run)
    forget_after(run, NUM_STEPS - 2)
    config = read_json(run / "config.json")
    config["training"]["gradient"] = {"kind": "disarm"}
    write_json(run / "config.json", config)
    status, _, err = cli("train", "--resume", "--accept-changed-config", "--run-dir", run)
    assert (status, "gradient/baseline.total must not be there" in err) == (2, True), err
