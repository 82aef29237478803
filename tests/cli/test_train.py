"""dvae train: what a run leaves, resuming, loggers and threads, small parts and large seeds, and what goes wrong."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from discrete_vae import DiscreteVAE
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.checkpoints import STATE_FILE
from discrete_vae.runs.io import read_json, write_json
from discrete_vae.runs.load import load_run
from discrete_vae.runs.run_directory import MetricsLog, RunDirectory
from tests.cli.conftest import TINY, final_files, flip_a_byte, forget_after, snapshot
from tests.training.events import events, lines
from tests.transformations import SMOOTHINGS


def test_a_run_says_where_its_results_are_and_what_comes_next(done, tmp_path, data_file):
    where = ["--data-dir", tmp_path]
    out, err = done("train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, *where)
    assert out.splitlines()[-1] == f"Next: dvae evaluate {tmp_path / 'run'} --data-dir {tmp_path}"
    means = float(re.search(r"(?m)^Independent columns: (-[\d.]+) ± [\d.]+ nats \(validation\)\.$", out)[1])
    elbo = re.search(r"(?m)^Best checkpoint: step \d+, validation ELBO (-[\d.]+) ± [\d.]+ nats", out)
    lead = re.search(r"the model is ([\d.]+) ± [\d.]+ nats per example worse", " ".join(out.split()))
    assert float(lead[1]) == pytest.approx(means - float(elbo[1]), abs=0.02)  # after six steps
    assert err.startswith("flags: 48 training examples of 12 features; 6 steps (6 epochs); results go to ")
    assert "step 6/6  epoch 6.0  elbo -" in err
    assert "\nComputing on cpu with 1 thread" in err
    assert not re.search("probabilities|float32|Time of the last steps", err)  # nobody asked
    assert all(line == line.rstrip() and "\x1b" not in line for line in err.splitlines())


@pytest.mark.filterwarnings("always")
def test_quiet_leaves_results_and_warnings(cli, done, tmp_path, data_file):
    words = ("train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, "--quiet")
    out, err = done(*words)
    assert (out.splitlines()[-1], err) == (f"Next: dvae evaluate {tmp_path / 'run'}", "")
    assert cli(*words)[2].startswith("error: --run-dir ")
    _, err = done("evaluate", tmp_path / "run", "-q", "--num-samples", "2")
    assert err
    assert all(line.startswith("warning: ") for line in err.splitlines())


def test_the_default_folder_is_named_after_the_file_or_the_experiment(cli, tmp_path, data_file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--data", data_file, "--size", "smoke", "--training.num-epochs", "2", "--seed", "3")
    unset = ("--data", data_file, "--size", "smoke")
    assert "Next: dvae evaluate runs/flags-smoke-num-epochs-2-seed-3\n" in cli("train", *words)[1]
    assert "nothing is left to do" in cli("train", "--resume", *words)[1]
    assert "Did you mean runs/flags-smoke-num-epochs-2-seed-3?" in cli("train", "--resume", *unset)[2]


def test_values_between_0_and_1_are_read_as_probabilities(done, tmp_path, data_file):
    np.savez(tmp_path / "shares.npz", np.load(data_file) * 0.5)
    _, err = done("train", "--data", tmp_path / "shares.npz", "--run-dir", tmp_path / "run", *TINY)
    assert "\nValues between 0 and 1 are read as probabilities: each step draws new bits with them." in err
    assert "afresh in each step" in read_json(tmp_path / "run" / "environment.json")["data"]["values"]
    assert "shares: " in done("evaluate", tmp_path / "run")[0]


def test_a_choice_of_examples_is_said_and_resumes(done, tmp_path, data_file):
    words = ["--data", data_file, *TINY, "--training.num-examples", "20", "--training.batch-size", "10"]
    _, err = done("train", *words, "--run-dir", tmp_path / "run")
    assert err.startswith("flags: 20 of 48 training examples of 12 features; 12 steps (6 epochs);")
    right = final_files(tmp_path / "run", 12)
    forget_after(tmp_path / "run", 4)
    done("train", "--resume", "--run-dir", tmp_path / "run")
    assert final_files(tmp_path / "run", 12) == right


def test_a_profile_is_left_in_the_run(cli, done, tmp_path, data_file):
    words = ("train", "--data", data_file, *TINY, "--run-dir", tmp_path / "run", "--profile")
    assert "--profile must be a whole number of at least 1; received '0'." in cli(*words, "0")[2]
    _, err = done(*words, "1")
    path = tmp_path / "run" / "profile.json"
    assert f"trace of step 6: {path}; open it at https://ui.perfetto.dev or in chrome://tracing" in err
    assert read_json(path)["traceEvents"]


def test_own_data_learn_something(done, tmp_path):
    """Two clusters of 12 features at 5 % noise: log 2 + 12 H(0.05) = 3.07 nats; independent features cost 12 log 2."""
    random = np.random.default_rng(1)
    kind = random.integers(0, 2, 400)[:, None]
    np.save(tmp_path / "two.npy", (random.random((400, 12)) < 0.05) ^ (kind == 1))
    words = shlex.split(
        "--size smoke --training.num-epochs 100 --training.sampler.num-chains 50 --training.num-sweeps 5 "
        "--training.optimizer.learning-rate 0.02 --training.batch-size 64"
    )
    done("train", "--data", tmp_path / "two.npy", "--run-dir", tmp_path / "run", *words)
    done("evaluate", tmp_path / "run", "--num-samples", "200")
    found = read_json(tmp_path / "run" / "evaluation.json")["log_likelihood"]["value"]
    assert -5.0 < found < -2.0


def test_resuming_equals_not_stopping(done, trained, trained_once):
    forget_after(trained, 2)
    out, err = done("train", "--resume", "--run-dir", trained)
    assert "from step 2 to 6" in err
    assert "Trained 4 steps" in out
    assert final_files(trained) == final_files(trained_once)
    steps = [record["step"] for record in MetricsLog(trained / "metrics.jsonl").read() if "elbo" in record]
    assert steps == [1, 2, 3, 4, 5, 6]
    before = snapshot(trained)
    out, _ = done("train", "--resume", "--run-dir", trained)
    assert out.startswith(f"{trained} has finished its 6 steps; nothing is left to do.")
    assert out.endswith(f"Next: dvae evaluate {trained}\n")
    assert re.search(r"validation ELBO -[\d.]+ ± [\d.]+ nats", out)
    assert "The standard error of this difference is unknown." in " ".join(out.split())
    assert snapshot(trained) == before


def test_a_resumed_run_cannot_be_changed(refused, trained):
    options = "--training.num-epochs 7", "--model.smoothing spike-slab", "--seed 3", "--size paper"
    for words in (*options, "--data other.npy", "digits"):
        argument = "EXPERIMENT" if words == "digits" else words.split()[0]
        error = refused("train", "--resume", "--run-dir", trained, *words.split())
        assert error.startswith(f"error: {argument} must be the resumed run's ")


def test_resuming_on_other_data_is_refused(refused, trained, tmp_path):
    config = read_json(trained / "config.json")
    np.save(tmp_path / "other.npy", np.eye(60, 12))
    config["data"]["path"] = str(tmp_path / "other.npy")
    write_json(trained / "config.json", config)
    forget_after(trained, 4)
    error = refused("train", "--resume", "--run-dir", trained, "--accept-changed-config")
    assert "data must be those that " in error
    assert "Bring the file back" in error


@pytest.mark.filterwarnings("always:the run began with")
@pytest.mark.parametrize(
    ("part", "name", "before"),
    [
        ("platform", "processor", "Abacus"),
        ("platform", "instruction_settings", {"MKL_CBWR": "COMPATIBLE"}),
        ("packages", "torch", "0.1"),
        ("device", "type", "cuda"),
    ],
)
def test_a_run_that_goes_on_where_sums_round_differently_says_so(cli, done, trained, part, name, before):
    file = trained / "environment.json"
    environment = read_json(file)
    present = environment[part][name]
    environment[part][name] = before
    write_json(file, environment)
    assert cli("train", "--resume", "--run-dir", trained)[2].count("warning") == 0  # nothing is left to do
    forget_after(trained, 4)
    _, err = done("train", "--resume", "--run-dir", trained)
    if name == "type":
        assert "The run began on cuda and continues on cpu: equal up to rounding, not bit for bit." in err
    else:
        (line,) = [line for line in err.splitlines() if line.startswith("warning: ")]
        assert repr(before) in line
        assert repr(present) in line


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="there is one capability")
def test_the_capability_of_the_process_is_what_counts(trained):
    code = "import json, sys; from discrete_vae.runs.run_directory import other_rounding; "
    code += f"print(other_rounding({read_json(trained / 'environment.json')!r}))"
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    words = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert "'DEFAULT'" in words
    assert repr(torch.backends.cpu.get_cpu_capability()) in words


@pytest.mark.parametrize("file", [STATE_FILE, "checkpoint.json"])
def test_a_damaged_checkpoint_is_refused_and_another_offered(done, refused, trained, trained_once, file):
    damaged = trained / "checkpoints" / "step-6"
    flip_a_byte(damaged / file)
    for words in (["train", "--resume", "--run-dir", trained], ["evaluate", trained, "--checkpoint", "last"]):
        error = refused(*words)
        assert f"{damaged / file} must hold what was saved" in error
        assert "Step 4 is intact" in error
    assert "checkpoint of step 4" in done("evaluate", trained, "--checkpoint", "4")[0]
    shutil.rmtree(damaged)
    done("train", "--resume", "--run-dir", trained)
    assert final_files(trained) == final_files(trained_once)


def test_train_writes_events_beside_the_log(done, tmp_path, data_file):
    pytest.importorskip("tensorboard", reason="TensorBoard, an extra, is not installed")
    run = tmp_path / "run"
    words = ["train", "--data", data_file, "--run-dir", run, *TINY]
    done(*words, "--logger", "tensorboard")
    assert events(run / "tensorboard") == lines(RunDirectory(run))
    done("train", "--resume", "--run-dir", run, "--logger", "tensorboard")
    assert events(run / "tensorboard") == lines(RunDirectory(run))


def test_a_missing_extra_is_named_before_anything_is_made(refused, tmp_path, data_file, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    words = ("train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, "--logger", "tensorboard")
    assert "pip install 'discrete-vae[tensorboard]'" in refused(*words)


def test_the_run_records_its_number_of_threads(done, data_file, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    own, run = torch.get_num_threads(), tmp_path / "run"
    done("train", "--data", data_file, "--run-dir", run, *TINY)
    assert read_json(run / "environment.json")["platform"]["torch_threads"] == 1
    assert torch.get_num_threads() == own


def test_ten_examples_are_trained_and_evaluated_to_the_end(done, tmp_path):
    """One example each for validation and test, whose standard errors are unknown."""
    run = tmp_path / "run"
    np.save(tmp_path / "ten.npy", np.random.default_rng(0).integers(0, 2, (10, 12)).astype(bool))
    _, err = done("train", "--data", tmp_path / "ten.npy", "--run-dir", run, *TINY)
    assert " ± unknown nats" in err
    validations = [line for line in RunDirectory(run).metrics().read() if "validation_elbo" in line]
    assert len(validations) == 3
    assert all("validation_elbo_std_error" not in line for line in validations)
    assert "unknown" in done("evaluate", run)[0]
    assert read_json(run / "evaluation.json")["elbo"]["elbo_std_error"] is None


def test_every_seed_up_to_the_bound_works(done, tmp_path, data_file):
    for seed in (2**63, 2**64 - 1):
        run = tmp_path / str(seed)
        words = f"--seed {seed} --evaluation.seed {seed} --data.split-seed {seed} --training.num-epochs 2"
        done("train", "--data", data_file, "--run-dir", run, *TINY, *words.split())
        done("evaluate", run, "--num-samples", 20)
        config = read_json(run / "config.json")
        assert [config["seed"], config["evaluation"]["seed"], config["data"]["split_seed"]] == [seed] * 3


@pytest.mark.parametrize(
    ("section", "part", "change"),
    [("model", "decoder", {"hidden": [10**12]}), ("training", "sampler", {"num_chains": 10**12})],
)
def test_a_run_whose_config_asks_for_absurd_sizes_is_refused(trained, section, part, change):
    config = read_json(trained / "config.json")
    config[section][part] |= change
    write_json(trained / "config.json", config)
    with pytest.warns(UserWarning, match="config"), pytest.raises(InvalidInputError, match="memory"):
        load_run(trained, accept_changed_config=True)


# Every smoothing and every estimator of the gradient.

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
    forget_after(run, 2)
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
    forget_after(run, 4)
    config = read_json(run / "config.json")
    config["training"]["gradient"] = {"kind": "disarm"}
    write_json(run / "config.json", config)
    status, _, err = cli("train", "--resume", "--accept-changed-config", "--run-dir", run)
    assert (status, "gradient/baseline.total must not be there" in err) == (2, True), err
