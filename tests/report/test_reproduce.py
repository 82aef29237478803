"""The command that a report gives trains the same config."""

import pytest

from discrete_vae.cli.train import Request
from discrete_vae.load import load_run
from discrete_vae.overrides import split_overrides
from discrete_vae.report.results import train_command
from discrete_vae.report.source import ReportSource
from discrete_vae.runs.run_directory import RunDirectory


@pytest.mark.parametrize("name", ["images", "table"])
def test_the_command_gives_the_runs_config(name, request):
    run = RunDirectory.open(request.getfixturevalue(name))
    words = train_command(ReportSource(run, lambda: load_run(run)))
    assert words is not None
    assert words[:2] == ["dvae", "train"]
    rest, overrides = split_overrides(words[2:])
    given = dict(zip(rest[-2::-2], rest[::-2], strict=False))
    experiment = rest[0] if not rest[0].startswith("--") else None
    asked = Request(
        verb="train",
        experiment=experiment,
        data=given.get("--data"),
        size=given["--size"],
        seed=None,
        data_dir=None,
        overrides=overrides,
    )
    assert asked.resolve()[0] == run.read_experiment()
