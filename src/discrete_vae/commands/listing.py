"""dvae list: what there is. dvae train EXPERIMENT --settings: every value of one experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from discrete_vae.commands.figure import print_figures
from discrete_vae.commands.layout import hanging, width
from discrete_vae.commands.verbs import verb
from discrete_vae.config import ExperimentConfig
from discrete_vae.experiments import experiment_function, experiment_names
from discrete_vae.experiments.overrides import read_value, settings_of
from discrete_vae.experiments.settings import Slot, slots
from discrete_vae.runs.json_files import read_json
from discrete_vae.runs.shipped import pretrained_names, shipped_folder

_INDENT = 26
_MEANING = 59  # column of the meanings where the terminal leaves room for them, else they go below
_MIN_ROOM = 50


@verb("list")
def run_list() -> int:
    """Print experiments, data sets, components, trained models and figures; returns the exit status."""
    print("Experiments: dvae train NAME, or discrete_vae.experiments.load_experiment(NAME)")
    for name in experiment_names():
        _print_row(name, _about(experiment_function(name)))
    print("\nData sets: discrete_vae.load_dataset(NAME); your own: dvae train --data FILE")
    _print_members(slots()["data"])
    print("\nComponents, each swapped by its option")
    for path, slot in slots().items():
        if path != "data":
            print(f" --{path} NAME")
            _print_members(slot)
    _print_pretrained()
    print()
    print_figures()
    return 0


def _print_pretrained() -> None:
    names = pretrained_names()
    if not names:  # as in a copy of the sources without them
        return
    print("\nTrained models: dvae sample --pretrained NAME, or load_pretrained(NAME)")
    for name in names:
        _print_row(name, _how_good(shipped_folder(name)))


def _how_good(folder: Path) -> str:
    """What a model that comes with the library is, and the figure of its card."""
    environment, evaluation = (read_json(folder / f"{name}.json") for name in ("environment", "evaluation"))
    found = evaluation["log_likelihood"]
    return (
        f"Trained on {environment['data']['name']}; test log-likelihood {found['value']:.2f} +- "
        f"{found['std_error']:.2f} nats."
    )


def print_settings(config: ExperimentConfig) -> None:
    """Print every setting of an experiment with its present value."""
    print(f"Settings of {config.name}, size {config.size}: option, value here, meaning.")
    part = None
    for entry in settings_of(config):
        if entry.path.partition(".")[0] != part:
            part = entry.path.partition(".")[0]
            print()
        value = read_value(config, entry.path)
        if isinstance(entry, Slot):
            present = "none" if value is None else value.kind
            others = [name for name in entry.members if name != present]
            words = _about(entry.members[present]) + (f" Or: {', '.join(others)}." if others else "")
            if entry.path != "data":  # --data takes a file
                _print_setting(entry.path, present, words)
        else:
            _print_setting(entry.path, _shown(value), entry.field.description)


def _print_setting(path: str, value: str, meaning: str | None) -> None:
    option = f"  --{path:34} {value:18} "
    if width() >= _MEANING + _MIN_ROOM:
        print(hanging(meaning or "", option, indent=_MEANING))
    else:
        print(option.rstrip())
        if meaning:
            print(hanging(meaning, " " * 6))


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        nested = any(isinstance(entry, tuple) for entry in value)
        return json.dumps(value) if nested else " ".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _print_members(slot: Slot) -> None:
    for name, member in slot.members.items():
        _print_row(name, _about(member))


def _about(described: Any) -> str:
    """The first line of the docstring of an experiment or a component; None is no component."""
    return "Leaves the component out." if described is None else described.__doc__.strip().splitlines()[0]


def _print_row(name: str, text: str) -> None:
    print(hanging(text, f"  {name:{_INDENT - 3}} "))
