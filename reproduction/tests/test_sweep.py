"""Runs are trained, evaluated and recorded once; what was stopped or killed goes on to the same record."""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from discrete_vae import load_dataset, load_run
from discrete_vae.errors import InvalidInputError, NonFiniteLossError
from discrete_vae.interop.hub import release_run
from discrete_vae.runs.run_directory import RunDirectory
from reproduction import sweep as sweeps
from reproduction.budget import with_length
from reproduction.records import Scale, as_changes, plan_run
from reproduction.sweep import FailedRunError, StoppedError, seconds_left
from reproduction.tests.made_up import NUM_STEPS, TINY, completed, make_up, record_fields, sweep, tiny
from tests.training.tiny import stop_after

pytestmark = pytest.mark.filterwarnings("ignore:the last doubling of the importance samples")
KEYS = """experiment size config seed commit log_likelihood log_likelihood_limit log_partition elbo num_samples
num_examples epochs seconds device"""


@pytest.fixture
def done(done_once, tmp_path):
    return shutil.copytree(done_once, tmp_path / "done")


def test_a_record_has_what_the_run_has(done):
    (stored,) = completed(done)
    fields = json.loads((done / "out/runs" / f"{tiny().name}.json").read_text())
    assert set(KEYS.split()) <= fields.keys()
    run = RunDirectory.open(done / "runs" / tiny().name)
    found = json.loads(run.evaluation_path.read_text())
    likelihood, prior = found["log_likelihood"], found["log_partition"]["best"]
    assert fields["log_likelihood"] == {"value": likelihood["value"], "std_error": likelihood["std_error"]}
    assert fields["log_partition"] == {"value": prior["value"], "std_error": 0.0}
    assert fields["log_partition_checks"] == []  # it is exact
    assert fields["log_likelihood_limit"] == found["log_likelihood_limit"]["value"]
    assert fields["elbo"] == found["elbo"]["elbo"]
    assert (fields["num_samples"], fields["num_examples"], fields["epochs"]) == (50, 40, 3)
    assert (fields["experiment"], fields["size"], fields["seed"]) == ("digits", "smoke", 0)
    assert (fields["device"], fields["num_steps"], fields["step"]) == ("cpu", NUM_STEPS, found["step"])
    assert fields["seconds"] > 0
    assert fields["config"] == json.loads(run.read_config())
    assert len(stored.examples) == 40
    assert np.mean(stored.examples) == pytest.approx(likelihood["value"], abs=1e-5)  # float32
    assert not (run.path / "evaluation-parts").exists()


def test_a_record_has_both_checks_of_log_z_where_it_is_estimated(tmp_path):
    large = {f"model__prior__num_{side}": 32 for side in ("left", "right")}
    few = {"evaluation__num_annealed_chains": 20, "evaluation__num_temperatures": 20}
    planned = tiny(**large, **few, training__num_epochs=1, evaluation__log_partition_std_error=0.5)
    (stored,) = completed(tmp_path, planned)
    run = RunDirectory.open(tmp_path / "runs" / planned.name)
    prior = json.loads(run.evaluation_path.read_text())["log_partition"]
    wanted = [{key: prior[name][key] for key in ("value", "std_error")} for name in ("forward", "reverse")]
    assert [check.model_dump() for check in stored.record.log_partition_checks] == wanted


def test_what_is_done_is_not_made_again_and_records_are_enough(done, monkeypatch):
    (before,) = completed(done)
    shutil.rmtree(done / "runs")
    monkeypatch.setattr(sweeps, "train", None)
    monkeypatch.setattr(sweeps, "instantiate", None)
    said = []
    (after,) = completed(done, say=said.append)
    assert said == []
    assert record_fields(after) == record_fields(before)
    assert not (done / "runs").exists()


def test_what_was_stopped_goes_on_to_the_same_record(done, tmp_path, monkeypatch):
    """Between training and evaluation; in the middle of either by signals, in the tests of the command."""
    with pytest.raises(StoppedError):
        completed(tmp_path, stop=stop_after(NUM_STEPS + 60))
    monkeypatch.setattr(sweeps, "train", None)  # all steps are done
    (found,), (expected,) = completed(tmp_path), completed(done)
    assert record_fields(found) == record_fields(expected)
    assert found.examples.equals(expected.examples)


_SCRIPT = """
import sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
from reproduction.tests.made_up import completed, tiny
print("begun", flush=True)
completed(Path(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_record(done, tmp_path):
    random = np.random.default_rng(0)
    for _ in range(8):
        command = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(random.uniform(0.0, 2.5))
            process.send_signal(signal.SIGKILL)
    (found,), (expected,) = completed(tmp_path), completed(done)
    assert record_fields(found) == record_fields(expected)


def test_a_run_of_other_settings_is_refused(done):
    name = tiny().name
    (done / "runs" / name).rename(done / "runs" / tiny(seed=1).name)
    with pytest.raises(InvalidInputError, match=r"config\.json .*--seed 1") as error:
        completed(done, tiny(seed=1))
    assert "--seed 0" in str(error.value)
    (done / "out/runs" / f"{name}.json").rename(done / "out/runs" / f"{tiny(seed=2).name}.json")
    with pytest.raises(InvalidInputError, match=rf"{tiny(seed=2).name}.json"):
        completed(done, tiny(seed=2))


def test_a_run_that_was_evaluated_otherwise_is_evaluated_anew(done, monkeypatch):
    path = done / "out/runs" / f"{tiny().name}.json"
    fields = json.loads(path.read_text())
    fields["config"]["evaluation"]["num_samples"] = 60  # so that the run's evaluation is out of date
    path.write_text(json.dumps(fields))
    other = path.read_bytes()
    monkeypatch.setattr(sweeps, "train", None)
    (stored,) = completed(done)
    assert stored.record.config.evaluation.num_samples == 50
    path.write_bytes(other)
    shutil.rmtree(done / "runs")
    with pytest.raises(InvalidInputError, match=rf"{tiny().name}.json"):
        completed(done)
    assert path.exists()


def test_a_run_is_refitted_beside_itself_and_evaluated_there(done, monkeypatch):
    def files():
        paths = (done / "runs" / tiny().name).rglob("*")
        return {path: path.read_bytes() for path in paths if path.is_file()}

    planned, before = replace(tiny(), refit_steps=20), files()
    (plain,) = completed(done)
    monkeypatch.setattr(sweeps, "train", None)
    with pytest.raises(StoppedError):  # in the midst of the refit
        completed(done, planned, stop=stop_after(10))
    (found,) = completed(done, planned)
    assert files() == before
    assert found.record.refit_steps == 20
    made = RunDirectory.open(done / "runs" / f"{tiny().name}-refit")
    assert json.loads((made.path / "refit.json").read_text())["config"]["num_steps"] == 20
    assert found.record.elbo == json.loads(made.evaluation_path.read_text())["elbo"]["elbo"]
    assert found.record.elbo != plain.record.elbo
    shutil.rmtree(done / "runs")
    (again,) = completed(done, planned)
    assert record_fields(again) == record_fields(found)


@pytest.mark.parametrize("refit_steps", [0, 20])
def test_a_released_run_gives_the_record_of_the_run_that_it_is_of(done, tmp_path, monkeypatch, refit_steps):
    """As where the run's folder is lost; released in float32, so that no digit differs."""
    planned = replace(tiny(), refit_steps=refit_steps)
    (expected,) = completed(done, planned)
    made = RunDirectory.open(done / "runs" / (planned.name + ("-refit" if refit_steps else "")))
    out = tmp_path / "other/runs" / planned.name
    settings = {"license": "mit", "precision": "float32", "num_examples": 10, "num_samples": 2}
    release_run(made, load_run(made), load_dataset("digits"), out, **settings)
    monkeypatch.setattr(sweeps, "train", None)
    (found,) = completed(tmp_path / "other", planned)
    assert record_fields(found) == record_fields(expected)
    assert found.examples.equals(expected.examples)
    assert sweep(tmp_path / "other", planned).status().steps.tolist() == [NUM_STEPS]
    if refit_steps:  # of another plan
        (tmp_path / f"other/out/runs/{planned.name}.json").unlink()
        with pytest.raises(InvalidInputError, match=re.escape(str(out))):
            completed(tmp_path / "other", replace(planned, refit_steps=30))


def test_a_budget_sets_the_length_once(tmp_path, monkeypatch):
    planned, steps = tiny(budget=0.5), iter([24])  # a second call raises

    def timed(config, dataset, minutes, *, validations, device):
        return with_length(config, dataset, next(steps), validations=validations)

    monkeypatch.setattr(sweeps, "with_minutes", timed)
    with pytest.raises(StoppedError):
        completed(tmp_path, planned, stop=stop_after(5))
    assert planned.name.startswith("digits-smoke-0.5-minutes")
    (stored,) = completed(tmp_path, planned)
    settings, plain = stored.record.config.training, planned.config.training
    assert (settings.num_epochs, stored.record.num_steps, stored.record.budget_minutes) == (2, 24, 0.5)
    end = plain.beta_bound.slope * plain.num_epochs
    assert settings.beta_bound.slope * settings.num_epochs == pytest.approx(end)


@pytest.mark.parametrize(
    ("budget", "num_steps", "validate_every"), [(0.5, 24, 8), (120.0, 48, 7), (None, 36, 7)]
)
def test_a_budget_may_follow_the_record_of_another_run(tmp_path, budget, num_steps, validate_every):
    """An equal budget has its steps; another one has its speed, 24 steps in an hour."""
    like = tiny(seed=1, budget=0.5)
    make_up(like, tmp_path / "out", -100.0, num_steps=24)
    planned = replace(tiny(budget=budget), like=like)
    assert planned == tiny(budget=budget)
    (stored,) = completed(tmp_path, planned)
    settings = stored.record.config.training
    assert (stored.record.num_steps, settings.validate_every) == (num_steps, validate_every)


def test_a_loss_that_is_not_finite_names_the_run_and_leaves_what_is_done(done, monkeypatch):
    def fail(config, dataset, folder, **more):
        raise NonFiniteLossError(7, "elbo", float("nan"), None)

    monkeypatch.setattr(sweeps, "train", fail)
    said = []
    with pytest.raises(FailedRunError, match=r"^digits, smoke, seed 1.*: elbo is nan at step 7"):
        completed(done, tiny(), tiny(seed=1), say=said.append)
    assert said[0].startswith("run 2 of 2: digits, smoke, seed 1, num-epochs 3")
    assert f": 0 of {NUM_STEPS} steps" in said[0]
    assert len(completed(done)) == 1


def test_others_go_on_beside_a_run_that_may_diverge(tmp_path, monkeypatch):
    steep, said = tiny(training__optimizer__learning_rate=1e20), []
    work = sweep(tmp_path, steep, tiny(), say=said.append, may_diverge=True)
    work.complete()
    assert list(work.stored) == [tiny()]
    assert len(said) == 3  # the announcements, and what became of the first
    assert seconds_left(work.status()) == 0
    monkeypatch.setattr(sweeps, "train", None)  # neither is made again
    again = sweep(tmp_path, steep, tiny(), may_diverge=True)
    again.complete()
    assert list(again.stored) == [tiny()]
    assert again.find([steep, tiny()])
    assert not again.find([tiny(seed=1)])


def test_a_run_of_other_settings_by_the_name_of_one_that_diverged_is_not_done(tmp_path):
    settings = [as_changes({"training.optimizer.learning-rate": [rate]}) for rate in (1e20, 1e-3)]
    steep, gentle = (replace(tiny(), scale=Scale("steps", changes)) for changes in settings)
    work = sweep(tmp_path, steep, may_diverge=True)
    work.complete()
    assert work.find([steep])
    assert steep.name == gentle.name
    assert not work.find([gentle])


def test_missing_data_are_found_before_the_first_run(tmp_path, monkeypatch):
    original = sweeps.instantiate

    def without_mnist(config, **more):
        if config.kind == "mnist-static":
            raise InvalidInputError("static_mnist.npz", "must be there", "nothing", "Fetch it.")
        return original(config, **more)

    monkeypatch.setattr(sweeps, "instantiate", without_mnist)
    with pytest.raises(InvalidInputError, match=r"^mnist-static, smoke, seed 0: static_mnist.npz"):
        completed(tmp_path, tiny(), plan_run("mnist-static", "smoke"))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("content", [b"{", b"{}", b"\xff"])
def test_a_damaged_record_is_named(done, content):
    (done / "out/runs" / f"{tiny().name}.json").write_bytes(content)
    with pytest.raises(InvalidInputError, match=rf"{tiny().name}.json"):
        completed(done)


def test_a_picture_of_samples_wants_the_run_itself(done, monkeypatch):
    folder, path = done / "runs" / tiny().name, done / "out/runs" / f"{tiny().name}.json"
    work, record = sweep(done, needs_model=lambda planned, sweep: True), json.loads(path.read_text())
    monkeypatch.setattr(sweeps, "train", None)
    work.complete()
    assert len(work.stored) == 1
    path.write_text(json.dumps(record | {"validation_elbo": record["validation_elbo"] - 0.5}))
    with pytest.raises(InvalidInputError, match=tiny().name):  # of another run
        work.complete()
    path.write_text(json.dumps(record))
    shutil.rmtree(folder)
    with pytest.raises(InvalidInputError, match=rf"{tiny().name}.*no run"):
        work.complete()
    assert not folder.exists()
    monkeypatch.undo()
    other = tiny(training__batch_size=50)
    with pytest.raises(StoppedError):
        completed(done / "elsewhere", other, stop=stop_after(5))
    shutil.move(done / "elsewhere/runs" / other.name, folder)
    with pytest.raises(InvalidInputError, match=r"config.json .*--training.batch-size"):
        work.complete()
    assert len(completed(done)) == 1  # the record is enough for a table


def test_the_time_left_is_that_of_what_is_measured(done):
    status = sweep(done, tiny(), tiny(seed=1), tiny(seed=2, budget=0.5)).status()
    step, evaluation = status.step_seconds.iloc[0], status.evaluation_seconds.iloc[0]
    assert math.isnan(seconds_left(status))  # the data are not read, so the second run's length is not known
    status.loc[tiny(seed=1).name, "num_steps"] = NUM_STEPS
    assert seconds_left(status) == pytest.approx(NUM_STEPS * step + evaluation + 30 + evaluation)


def test_changes_that_change_nothing_share_a_folder():
    same = plan_run("digits", "smoke", changes={"training.num-sweeps": [20], "model.prior": ["rbm"]})
    assert same == plan_run("digits", "smoke")
    assert tiny(seed=1).name != tiny().name != plan_run("digits", "smoke").name
    assert len(TINY) == len(tiny().changes)
