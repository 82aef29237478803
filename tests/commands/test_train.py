"""dvae train: what a run leaves, resuming, loggers and threads, and what goes wrong on the way."""

import errno
import json
import re
import shlex
import shutil
import sys

import numpy as np
import pytest
import torch

from discrete_vae.runs.checkpoints import STATE_FILE
from discrete_vae.runs.run_directory import MetricsLog, RunDirectory, sole_writer
from tests.commands.conftest import NUM_STEPS, TINY, snapshot
from tests.interop.events import events, lines


def final_files(run, step=NUM_STEPS):
    """Weights, beta, chains, optimizer and running log Z, byte for byte, and which checkpoint is the best."""
    return snapshot_of(run / "checkpoints" / f"step-{step}") | snapshot_of(run, "best.json")


def snapshot_of(folder, pattern="*"):
    return {path.name: path.read_bytes() for path in folder.glob(pattern)}


def forget_after(run, step):
    """Bring a finished run back to where it was after a step."""
    for folder in (run / "checkpoints").iterdir():
        if int(folder.name.removeprefix("step-")) > step:
            shutil.rmtree(folder)


def test_a_run_says_where_its_results_are_and_what_comes_next(done, tmp_path, data_file):
    out, err = done("train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY)
    assert out.splitlines()[-1] == f"Next: dvae evaluate {tmp_path / 'run'}"
    assert "Best checkpoint: step " in out
    means = float(re.search(r"^Independent columns: (-[\d.]+) nats \(validation\)\.$", out, re.MULTILINE)[1])
    elbo = float(
        re.search(r"^Best checkpoint: step \d+, validation ELBO (-[\d.]+) nats", out, re.MULTILINE)[1]
    )
    assert elbo < means  # after six steps
    said = re.search(r"the model is ([\d.]+) ± [\d.]+ nats per example worse", " ".join(out.split()))
    assert float(said[1]) == pytest.approx(means - elbo, abs=0.02)
    assert err.startswith("flags: 48 training examples of 12 features; 6 steps (6 epochs); results go to ")
    assert "step 6/6  epoch 6.0  elbo -" in err
    assert all(line == line.rstrip() and "\x1b" not in line for line in err.splitlines())


@pytest.mark.filterwarnings("always")
def test_quiet_leaves_results_and_warnings(cli, tmp_path, data_file):
    words = ("train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, "--quiet")
    status, out, err = cli(*words)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == f"Next: dvae evaluate {tmp_path / 'run'}"
    status, _, err = cli(*words)
    assert status == 2
    assert err.startswith("error: --run-dir ")
    status, _, err = cli("evaluate", tmp_path / "run", "-q", "--num-samples", "2")
    assert status == 0
    assert err.startswith("warning: ")
    assert all(line.startswith("warning: ") for line in err.splitlines())


def test_the_default_folder_is_named_after_the_file_or_the_experiment(cli, tmp_path, data_file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--data", data_file, "--size", "smoke", "--training.num-epochs", "2", "--seed", "3")
    unset = ("--data", data_file, "--size", "smoke")
    assert "Next: dvae evaluate runs/flags-smoke-num-epochs-2-seed-3\n" in cli("train", *words)[1]
    assert "nothing is left to do" in cli("train", "--resume", *words)[1]
    assert "Did you mean runs/flags-smoke-num-epochs-2-seed-3?" in cli("train", "--resume", *unset)[2]


def test_a_run_says_how_it_reads_values_and_where_it_computes(cli, tmp_path, data_file):
    np.save(tmp_path / "shares.npy", np.load(data_file) * 0.5)
    words = ("--data", tmp_path / "shares.npy", "--run-dir", tmp_path / "run", *TINY)
    _, _, err = cli("train", *words)
    assert "\nValues between 0 and 1 are read as probabilities: each step draws new bits with them." in err
    assert "\nComputing on cpu with 1 thread" in err
    assert "float32" not in err  # nobody asked
    assert "Time of the last steps" not in err
    _, _, err = cli("train", "--data", data_file, "--run-dir", tmp_path / "bits", *TINY)
    assert "probabilities" not in err


def test_a_choice_of_examples_is_said_and_resumes(cli, done, tmp_path, data_file):
    words = ["--data", data_file, *TINY, "--training.num-examples", "20", "--training.batch-size", "10"]
    _, _, err = cli("train", *words, "--run-dir", tmp_path / "whole")
    assert err.startswith("flags: 20 of 48 training examples of 12 features; 12 steps (6 epochs);")
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    forget_after(tmp_path / "broken", 4)
    done("train", "--resume", "--run-dir", tmp_path / "broken")
    assert final_files(tmp_path / "whole", 12) == final_files(tmp_path / "broken", 12)


def test_metrics_hold_the_promised_figures(trained):
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    training = [record for record in records if "elbo" in record]
    assert [record["step"] for record in training] == [1, 2, 3, 4, 5, 6]
    assert [record["epoch"] for record in training] == [1, 2, 3, 4, 5, 6]
    for record in training:
        names = ("elbo", "reconstruction", "kl_discrete", "kl_continuous")
        elbo, reconstruction, kl_discrete, kl_continuous = (record[name] for name in names)
        assert elbo == pytest.approx(reconstruction - kl_discrete - kl_continuous, abs=1e-4)
        assert elbo < 0
        assert kl_continuous == 0
    seconds = [record["seconds"] for record in records]
    assert seconds == sorted(seconds)
    assert [record["step"] for record in records if "validation_elbo" in record] == [2, 4, 6]


def test_a_profile_is_left_in_the_run(cli, tmp_path, data_file):
    words = ("--data", data_file, *TINY, "--run-dir", tmp_path / "run", "--profile", "1")
    _, _, err = cli("train", *words)
    path = tmp_path / "run" / "profile.json"
    assert f"trace of step 6: {path}; open it at https://ui.perfetto.dev or in chrome://tracing" in err
    assert json.loads(path.read_text())["traceEvents"]
    status, _, err = cli("train", *words[:-1], "0")
    assert status == 2
    assert "--profile must be a whole number of at least 1; received '0'." in err


@pytest.mark.parametrize(
    ("save", "dynamic"),
    [
        (lambda path, x: np.savez_compressed(path, train=x, valid=x[:20], test=x[20:40]), False),
        (lambda path, x: np.savez(path, x.astype(np.float32) * 0.9 + 0.05), True),
        (lambda path, x: np.savez(path, images=x.reshape(-1, 3, 4).astype(np.int64)), False),
    ],
    ids=["three parts", "probabilities", "images"],
)
def test_forms_of_ones_own_data(done, tmp_path, data_file, save, dynamic):
    path = tmp_path / "mine.npz"
    save(path, np.load(data_file))
    done("train", "--data", path, "--run-dir", tmp_path / "run", *TINY)
    data = json.loads((tmp_path / "run" / "environment.json").read_text())["data"]
    assert ("afresh in each step" in data["values"]) == dynamic
    out, _ = done("evaluate", tmp_path / "run")
    assert "mine: " in out


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
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())["log_likelihood"]["value"]
    assert -5.0 < found < -2.0


def test_resuming_equals_not_stopping(done, trained, trained_once):
    forget_after(trained, 2)
    out, err = done("train", "--resume", "--run-dir", trained)
    assert "from step 2 to 6" in err
    assert "Trained 4 steps" in out
    assert final_files(trained) == final_files(trained_once)
    steps = [record["step"] for record in MetricsLog(trained / "metrics.jsonl").read() if "elbo" in record]
    assert steps == [1, 2, 3, 4, 5, 6]


def test_a_kill_between_a_checkpoint_and_best_json_is_made_good(done, trained, trained_once):
    best = json.loads((trained_once / "best.json").read_text())
    (trained / "best.json").unlink()
    forget_after(trained, best["step"])
    done("train", "--resume", "--run-dir", trained)
    assert final_files(trained) == final_files(trained_once)


def test_a_finished_run_says_so(done, trained):
    before = snapshot(trained)
    out, _ = done("train", "--resume", "--run-dir", trained)
    assert out.startswith(f"{trained} has finished its 6 steps; nothing is left to do.")
    assert out.endswith(f"Next: dvae evaluate {trained}\n")
    assert snapshot(trained) == before


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        ("--training.num-epochs 7", "--training.num-epochs"),
        ("--model.smoothing spike-slab", "--model.smoothing.kind"),
        ("--seed 3", "--seed"),
        ("--size paper", "--size"),
        ("digits", "EXPERIMENT"),
        ("--data other.npy", "--data"),
    ],
)
def test_a_resumed_run_cannot_be_changed(refused, trained, words, argument):
    error = refused("train", "--resume", "--run-dir", trained, *words.split())
    assert error.startswith(f"error: {argument} must be the resumed run's ")


def test_resuming_on_other_data_is_refused(refused, trained, tmp_path):
    config = json.loads((trained / "config.json").read_text())
    np.save(tmp_path / "other.npy", np.eye(60, 12))
    config["data"]["path"] = str(tmp_path / "other.npy")
    (trained / "config.json").write_text(json.dumps(config))
    forget_after(trained, 4)
    error = refused("train", "--resume", "--run-dir", trained, "--accept-changed-config")
    assert "data must be those that " in error
    assert "Bring the file back" in error


@pytest.mark.parametrize("content", ["", "[]", '{"name": "x", "model": {"num_features": "many"}}'])
def test_a_damaged_config_is_named(refused, trained, content):
    (trained / "config.json").write_text(content)
    for words in (["train", "--resume", "--run-dir", trained], ["evaluate", trained]):
        assert f"error: {trained / 'config.json'}" in refused(*words)


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", [STATE_FILE, "checkpoint.json"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_offered(
    done, refused, trained, trained_once, file
):
    flip_a_byte(trained / "checkpoints" / "step-6" / file)
    for words in (["train", "--resume", "--run-dir", trained], ["evaluate", trained, "--checkpoint", "last"]):
        error = refused(*words)
        assert f"{trained / 'checkpoints' / 'step-6' / file} must hold what was saved" in error
        assert "Step 4 is intact" in error
    out, _ = done("evaluate", trained, "--checkpoint", "4")
    assert "checkpoint of step 4" in out
    shutil.rmtree(trained / "checkpoints" / "step-6")
    done("train", "--resume", "--run-dir", trained)
    assert final_files(trained) == final_files(trained_once)


@pytest.mark.filterwarnings("always")
def test_a_checkpoint_of_another_model_is_refused(cli, trained):
    config = json.loads((trained / "config.json").read_text())
    config["model"]["prior"] |= {"num_left": 4, "num_right": 4}
    (trained / "config.json").write_text(json.dumps(config))
    for words in (["train", "--resume", "--run-dir", trained], ["evaluate", trained]):
        status, _, err = cli(*words, "--accept-changed-config")
        assert status == 2
        assert "model/" in err.splitlines()[-1]
        assert err.endswith("It belongs to another model: check config.json.\n")


def test_a_second_process_in_a_run_is_refused(refused, trained):
    forget_after(trained, 4)
    with sole_writer(trained):
        assert "--run-dir must not be in use" in refused("train", "--resume", "--run-dir", trained)


def test_a_full_disk_during_a_checkpoint_loses_nothing_saved(cli, done, trained, trained_once, monkeypatch):
    from discrete_vae.runs import checkpoints as store

    original = store.write_checkpoint

    def full(folder, record, tensors):
        if record.step == NUM_STEPS:
            (folder / STATE_FILE).write_bytes(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        original(folder, record, tensors)

    forget_after(trained, 2)
    monkeypatch.setattr(store, "write_checkpoint", full)
    status, _, err = cli("train", "--resume", "--run-dir", trained)
    assert status == 2
    error = err.splitlines()[-1]
    assert error.startswith(
        f"error: {trained / 'checkpoints' / 'step-6'} must be written completely; received [Errno 28]"
    )
    assert "step 4 is intact" in error
    assert RunDirectory(trained).checkpoints().steps() == (2, 4)
    monkeypatch.undo()
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
    err = refused(
        "train", "--data", data_file, "--run-dir", tmp_path / "run", *TINY, "--logger", "tensorboard"
    )
    assert "pip install 'discrete-vae[tensorboard]'" in err


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
    seen, set_threads = [], torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda number: seen.append(number) or set_threads(number))
    assert cli("train", "--resume", "--run-dir", run)[0] == 0
    assert seen[0] == 1
