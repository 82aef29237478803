"""Stored runs on another clock: what minutes and which evaluation a run gets."""

import json

import pytest

from discrete_vae import load_experiment
from discrete_vae.runs.run_directory import RunDirectory
from tests.training.tiny import changed


def evaluation(step, value):
    likelihood = {"value": value, "std_error": 0.2, "num_examples": 9, "num_samples": 5}
    return {"step": step, "log_likelihood": likelihood, "elbo": {"elbo": value - 4}}


@pytest.fixture
def run(tmp_path):
    changes = {"training.num-importance-samples": "5", "training.warm-up.epochs": "0"}
    config = changed(load_experiment("mnist-static", size="smoke"), changes)
    made = RunDirectory.create(tmp_path / "run")
    made.write_config(config.model_dump_json())
    log = made.metrics()
    for step, seconds in ((500, 100.0), (1000, 300.0)):
        log.append({"step": step, "seconds": seconds, "elbo": -100.0})
        log.append({"step": step, "seconds": seconds + 6.0, "validation_elbo": -step / 10})
    (made.path / "evaluations").mkdir()
    for step, value in ((500, -90.0), (1000, -91.0)):
        (made.path / "evaluations" / f"{step}.json").write_text(json.dumps(evaluation(step, value)))
    return made


def test_minutes_are_those_of_the_steps_and_of_the_validations(run, monkeypatch, tmp_path):
    import nats_against_minutes

    monkeypatch.setattr(nats_against_minutes, "pace", lambda *_: (0.06, 0.12))
    found = nats_against_minutes.read_run(run.path, None)
    # 500 steps of 60 ms and 6 s; then 250 more of these, 250 of 120 ms, 6 s more
    assert found.minutes.tolist() == pytest.approx([36 / 60, (45 + 30 + 12) / 60])
    assert found.elbo.tolist() == [-50.0, -100.0]
    assert found.evaluation["log_likelihood"]["value"] == -91.0  # of the latest checkpoint
    nats_against_minutes.main([str(run.path), "--page", str(tmp_path / "page.md")])
    row = "| run | 0 | 1,000 of 100 | 60.0 to 120.0 | 1.4 | -50.00 | -91.00 ± 0.20 | -95.00 |"
    assert row.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}") in (tmp_path / "page.md").read_text()


def test_runs_that_differ_in_length_and_seed_are_timed_once(monkeypatch):
    import nats_against_minutes

    asked = []
    monkeypatch.setattr(
        nats_against_minutes, "step_seconds", lambda config, *_, **late: asked.append((config, late)) or 1.0
    )
    base = changed(load_experiment("mnist-static", size="short"), {"training.num-importance-samples": "5"})
    training = base.training.model_copy(update={"num_epochs": 99})
    longer = base.model_copy(update={"seed": 3, "training": training})
    nats_against_minutes.pace(base, None)
    nats_against_minutes.pace(longer, None)
    assert [late for _, late in asked] == [{"late": False}, {"late": True}] * 2
    assert asked[:2] == asked[2:]  # what the cache goes by
