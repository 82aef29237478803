"""Verdicts on a course of training, and the command that trains the same config."""

import pytest

from discrete_vae.cli.train import ExperimentArguments, resolve
from discrete_vae.config.overrides import split_overrides
from discrete_vae.figures.curves import training_curves_table
from discrete_vae.report.results import train_command, training_verdict
from discrete_vae.report.source import ReportSource
from discrete_vae.runs.load import load_run
from discrete_vae.runs.run_directory import RunDirectory


def verdict(values, scores=None):
    lines = [{"step": 1, "epoch": 0.1, "elbo": -100.0}]
    for number, elbo in enumerate(values, 1):
        found = {"validation_elbo": elbo}
        if scores is not None:
            found["validation_score"] = scores[number - 1]
        lines.append({"step": 10 * number, "epoch": float(number)} | found)
    return training_verdict(training_curves_table(lines))


def test_a_fall_of_the_elbo_alone_is_not_overfitting():
    elbo, score = [-95.0, -88.0, -90.0], [-94.0, -87.0, -86.5]
    said = verdict(elbo, score)
    assert said.healthy
    assert "validation ELBO -90.00 nats" in said.text.replace("\N{MINUS SIGN}", "-")
    assert "epoch 3 of 3" in said.text
    assert not verdict(elbo).healthy  # of a run that logged nothing else
    assert "fell by 2.0" in verdict(elbo).text


def test_a_fall_of_the_score_is():
    said = verdict([-95.0, -88.0, -88.0], [-94.0, -86.0, -87.5])
    assert not said.healthy
    assert "epoch 2 of 3" in said.text


@pytest.mark.parametrize("values", [[], [-90.0]])
def test_fewer_than_two_validations_say_nothing(values):
    assert verdict(values) is None


@pytest.mark.parametrize("name", ["images", "table"])
def test_the_command_gives_the_runs_config(name, request):
    run = RunDirectory.open(request.getfixturevalue(name))
    words = train_command(ReportSource(run, lambda: load_run(run)))
    assert words is not None
    assert words[:2] == ["dvae", "train"]
    rest, overrides = split_overrides(words[2:])
    given = dict(zip(rest[-2::-2], rest[::-2], strict=False))
    experiment = rest[0] if not rest[0].startswith("--") else None
    arguments = ExperimentArguments(
        experiment=experiment,
        data=given.get("--data"),
        size=given["--size"],
        seed=None,
        data_dir=None,
        overrides=overrides,
    )
    assert resolve(arguments)[0] == run.read_experiment()
