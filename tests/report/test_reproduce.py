"""The command that a report gives trains the same config."""

import pytest

from discrete_vae.cli.train import ExperimentArguments, resolve
from discrete_vae.load import load_run
from discrete_vae.overrides import split_overrides
from discrete_vae.report.results import ReportSource, train_command
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
    arguments = ExperimentArguments(
        experiment=experiment,
        data=given.get("--data"),
        size=given["--size"],
        seed=None,
        data_dir=None,
        overrides=overrides,
    )
    assert resolve(arguments)[0] == run.read_experiment()
