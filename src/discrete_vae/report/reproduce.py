"""The commands that make the run again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from discrete_vae.config import ExperimentConfig, FileDataConfig
from discrete_vae.experiments import experiment_names, load_experiment
from discrete_vae.experiments.overrides import Override, apply_overrides, read_value, settings_of
from discrete_vae.experiments.own_experiment import own_experiment_of
from discrete_vae.experiments.settings import Slot
from discrete_vae.report.html import Markup, element, markup
from discrete_vae.report.section import Section, paragraph
from discrete_vae.report.source import ReportSource


def reproduce(source: ReportSource) -> Section:
    """Train, evaluate and report anew, with every setting that is not the experiment's."""
    run, words = source.directory, train_command(source)
    parts = []
    if words is None:
        code = (
            "from discrete_vae import train\n"
            "from discrete_vae.config import ExperimentConfig, instantiate\n\n"
            "config = ExperimentConfig.from_json(open('config.json').read(), source='config.json')\n"
            "train(config, instantiate(config.data, data_dir=None), 'runs/again')"
        )
        parts.append(paragraph("No command line gives this config; in Python, with the run's config.json:"))
        parts.append(element("pre", element("code", code)))
        words = []
    commands = [shlex.join(words)] if words else []
    if source.evaluation is not None:
        asked = source.evaluation["config"]
        more = ["--num-samples", str(asked["num_samples"]), "--seed", str(asked["seed"])]
        if asked["num_examples"] is not None:
            more += ["--num-examples", str(asked["num_examples"])]
        commands.append(shlex.join(["dvae", "evaluate", str(run.path), *more]))
    commands += [shlex.join(["dvae", verb, str(run.path)]) for verb in ("report", "cite")]
    parts.append(element("pre", element("code", "\n".join(commands)), tabindex="0"))
    parts.append(paragraph(_same(source)))
    if run.refit_path.exists():
        parts.append(
            paragraph(
                f"Its posterior was fitted anew by dvae refit; {run.refit_path.name} in the run says how."
            )
        )
    return Section("reproduce", "Make it again", markup(parts))


def train_command(source: ReportSource) -> list[str] | None:
    """The words of `dvae train` that give the run's config; None where none do."""
    config = source.config
    if config.name in experiment_names():
        base, start = load_experiment(config.name, config.size), [config.name]  # pyright: ignore[reportArgumentType]
    elif isinstance(config.data, FileDataConfig):
        kind = config.model.likelihood.kind
        base = own_experiment_of(source.dataset, Path(config.data.path), likelihood=kind, size=config.size)
        start = ["--data", str(config.data.path)]
    else:
        return None
    overrides = differences(base, config)
    if overrides is None:
        return None
    words = ["dvae", "train", *start, "--size", config.size]
    for path, values in overrides:
        words += [f"--{path}", *values]
    return words


def differences(base: ExperimentConfig, config: ExperimentConfig) -> list[Override] | None:
    """The settings that turn one config into another, as the command line takes them; None if none do.

    Examples:
        >>> base = load_experiment("digits")
        >>> given = [("model.smoothing", ["spike-slab"]), ("training.num-epochs", ["7"])]
        >>> differences(base, apply_overrides(base, given)) == given
        True
    """
    entries = settings_of(config)
    swaps = [
        (entry.path, [_kind(config, entry.path)])
        for entry in entries
        if isinstance(entry, Slot) and _kind(config, entry.path) != _kind(base, entry.path)
    ]
    try:
        swapped = apply_overrides(base, swaps)
        values = [
            (entry.path, _words(read_value(config, entry.path)))
            for entry in entries
            if not isinstance(entry, Slot)
            and read_value(config, entry.path) != read_value(swapped, entry.path)
        ]
        found = swaps + values
        return found if apply_overrides(base, found) == config else None
    except (ValueError, AttributeError):  # a component without defaults, or a setting that no word can give
        return None


def _kind(config: ExperimentConfig, path: str) -> str:
    try:
        return getattr(read_value(config, path), "kind", "none")
    except AttributeError:  # a slot of a component that is not there
        return "none"


def _words(value: Any) -> list[str]:
    if isinstance(value, tuple) and any(isinstance(each, tuple) for each in value):
        return [json.dumps(value)]
    if isinstance(value, tuple):
        return [_word(each) for each in value]
    return [_word(value)]


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _same(source: ReportSource) -> Markup:
    versions, commit = source.environment.get("discrete_vae"), source.environment.get("commit") or {}
    said = (
        f"The run was made with discrete-vae {versions}"
        if versions
        else "The run does not say what it was made with"
    )
    if commit.get("hash"):
        said += f", commit {commit['hash'][:12]}{' with changes' if commit.get('modified') else ''}"
    return markup(
        f"{said}. On one kind of processor, with one version and one number of threads, the same command gives "
        "the same numbers; elsewhere they agree up to rounding."
    )
