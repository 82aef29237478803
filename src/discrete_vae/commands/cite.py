"""dvae cite: what to cite for a run or an experiment."""

from __future__ import annotations

from pathlib import Path

import click

from discrete_vae.commands.trained import open_run
from discrete_vae.commands.verbs import not_one_of, verb
from discrete_vae.config import ExperimentConfig
from discrete_vae.experiments import experiment_names, load_experiment
from discrete_vae.experiments.citations import cite


@verb(
    "cite",
    "NAME is an experiment or the folder of a run; without it the paper of the model is named.",
    typed={"run_dir": "NAME"},
)
@click.argument("name", required=False)
def run_cite(name: str | None) -> int:
    """Print BibTeX of the library and of the papers whose parts are in use."""
    print(cite(None if name is None else _config_of(name)))
    return 0


def _config_of(name: str) -> ExperimentConfig:
    """The config of a run where there is such a folder, else of an experiment."""
    if Path(name).expanduser().exists():
        return open_run(name).read_experiment()
    if name not in experiment_names():
        raise not_one_of("NAME", ["the folder of a run", *experiment_names()], name)
    return load_experiment(name)
