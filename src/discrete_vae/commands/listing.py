"""dvae list: what there is."""

from __future__ import annotations

from argparse import Namespace

from discrete_vae.commands.overrides import component_slots
from discrete_vae.experiments import experiment_function, experiment_names


def run_list(arguments: Namespace, overrides: list[str]) -> int:
    """Print experiments and components; returns the exit status."""
    print("Experiments (dvae train NAME):")
    for name in experiment_names():
        print(f"  {name:24} {_first_line(experiment_function(name).__doc__)}")
    for path, fits in component_slots().items():
        print(f"\n--{path} NAME:")
        for config in fits:
            print(f"  {config.model_fields['kind'].default:24} {_first_line(config.__doc__)}")
    return 0


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0]
