"""What the report says of results and of the course of training."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch

from discrete_vae.cli import main
from discrete_vae.figures.curves import training_curves_table
from discrete_vae.report.latents import explained
from discrete_vae.report.results import bound, summary, training_curves, training_verdict
from discrete_vae.report.source import ReportSource, shown
from discrete_vae.runs import load_run
from discrete_vae.runs.run_directory import RunDirectory


def test_a_model_of_independent_columns_is_no_best_of_training():
    lines = [{"step": 0, "epoch": 0.0, "validation_elbo": -6.8}, {"step": 1, "epoch": 0.1, "elbo": -15.0}]
    lines += [{"step": 10 * n, "epoch": float(n), "validation_elbo": -14.0 - n} for n in (1, 2)]
    said = training_verdict(training_curves_table(lines))
    assert not said.healthy
    assert "fell" not in said.text
    assert "15.0" in said.text


def verdict(values, scores=None):
    lines = [{"step": 1, "epoch": 0.1, "elbo": -100.0}]
    for number, elbo in enumerate(values, 1):
        found = {"validation_elbo": elbo}
        if scores is not None:
            found["validation_score"] = scores[number - 1]
        lines.append({"step": 10 * number, "epoch": float(number)} | found)
    return training_verdict(training_curves_table(lines))


def test_a_fall_of_the_elbo_alone_is_not_overfitting_and_one_of_the_score_is():
    elbo, score = [-95.0, -88.0, -90.0], [-94.0, -87.0, -86.5]
    said = verdict(elbo, score)
    assert said.healthy
    assert "validation ELBO -90.00 nats" in said.text.replace("\N{MINUS SIGN}", "-")
    assert "epoch 3 of 3" in said.text
    assert not verdict(elbo).healthy  # of a run that logged nothing else
    assert "fell by 2.0" in verdict(elbo).text
    fallen = verdict([-95.0, -88.0, -88.0], [-94.0, -86.0, -87.5])
    assert not fallen.healthy
    assert "epoch 2 of 3" in fallen.text
    assert verdict([]) is verdict([-90.0]) is None  # too few to say anything


def test_parts_of_the_bound_are_those_before_importance_samples(images, tmp_path):
    """Later lines hold a bound by several samples, whose gain would be taken from a KL."""
    run = RunDirectory(shutil.copytree(images, tmp_path / "run"))
    shutil.rmtree(run.path / "evaluations", ignore_errors=True)
    run.evaluation_path.unlink()
    loaded = load_run(run.path, checkpoint="last")
    training = loaded.config.training
    late = training.model_copy(update={"num_importance_samples": 2, "importance_start": 0.5})
    source = ReportSource(
        run, lambda: replace(loaded, config=loaded.config.model_copy(update={"training": late}))
    )
    lines = [line for line in source.metrics if "elbo" in line and line["step"] <= loaded.step]
    early = [line for line in lines if line["epoch"] <= 0.5 * training.num_epochs]
    assert 1 < len(early) < len(lines)
    assert bound(source).values["kl"] == early[-1]["kl_discrete"]
    assert shown(early[-1]["kl_discrete"]) in training_curves(source).values["ends"]


def test_a_refit_run_shows_the_bound_of_its_own_posterior(images, tmp_path):
    folder = tmp_path / "refit"
    assert main(["refit", str(images), "--num-steps", "2", "--batch-size", "20", "--out", str(folder)]) == 0
    after = json.loads((folder / "refit.json").read_text())["after"]
    source = ReportSource(RunDirectory(folder), lambda: load_run(folder))
    assert bound(source).values["negative_elbo"][0] == -after["elbo"]
    (name, value, error, _), *_ = summary(source).values["estimates"]
    assert (name, value) == ("Validation ELBO", after["elbo"])
    assert error == pytest.approx(math.hypot(after["elbo_std_error"], after["log_partition_std_error"]))


@pytest.mark.parametrize("value", [0.1, 1 / 3, 2.0**0.5])
def test_a_feature_that_does_not_vary_has_no_share(value):
    _, shares = explained(torch.full((200, 1), value).double(), torch.zeros(200, 1).double())
    assert shares.isnan().all()
