"""The pages of the reference that follow from the code: settings, verbs and names; written before each build."""

import importlib
import inspect
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
from formulas import with_numbers

from discrete_vae.cli.options import GROUPS, SECTIONS, VERBS, examples
from discrete_vae.config import ExperimentConfig
from discrete_vae.config.base import Record
from discrete_vae.config.overrides import Setting, Slot, read_value, settings_of, walk, words_of
from discrete_vae.presets import SIZES, experiment_names, load_experiment

_NUMBERS = {int: ("whole number", "whole numbers"), float: ("number", "numbers"), str: ("text", "texts")}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_VAST = 1e9  # bounds beyond it only say what the library can count


def write(folder: Path, *, page_per_name: bool) -> None:
    """Write all pages into a new folder; the names of a module share its page, or have a page each."""
    folder.mkdir()
    (folder / "settings.md").write_text("\n".join(_settings()), encoding="utf-8")
    rows = [
        f"| {group} | [`dvae {verb}`](#dvae-{verb}) | {VERBS[verb][1]} |"
        for group in GROUPS
        for verb in GROUPS[group]
    ]
    table = ["| To | Verb | What it does |", "| --- | --- | --- |", *rows, ""]
    (folder / "verbs.md").write_text("\n".join(table), encoding="utf-8")
    for verb in VERBS:
        (folder / f"dvae-{verb}.rst").write_text("\n".join(_verb(verb)), encoding="utf-8")
    modules = re.findall(r"^   (discrete_vae[\w.]+)$", folder.with_name("api.md").read_text(), re.MULTILINE)
    for module in modules:
        names = public_names(module)
        lines = [*_title(module), f".. automodule:: {module}"]
        if page_per_name:
            lines += ["", ".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in names)]
            lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {module}.{name}" for name in names)]
            for name in names:
                page = [*_title(name), f"In :py:mod:`{module}`.", "", f".. currentmodule:: {module}", ""]
                page += [f".. {(kind := _directive(module, name))}:: {name}"]
                page += ["   :members:", ""] if kind in {"autoclass", "autoexception"} else [""]
                (folder / f"{module}.{name}.rst").write_text("\n".join(page), encoding="utf-8")
        else:
            lines += ["   :members:"]
        (folder / f"{module}.rst").write_text("\n".join([*lines, ""]), encoding="utf-8")


def _title(text: str, line: str = "=") -> list[str]:
    return [text, line * len(text), ""]


# Names.


def public_names(module: str) -> list[str]:
    """What a package exports, or what a file has without an underscore and described."""
    loaded = importlib.import_module(module)
    if hasattr(loaded, "__all__"):
        return sorted(loaded.__all__, key=str.lower)
    found = {name: value for name, value in vars(loaded).items() if name[0] != "_" and callable(value)}
    names = [name for name, value in found.items() if getattr(value, "__module__", None) == module]
    return sorted((name for name in names if inspect.getdoc(found[name])), key=str.lower)


def _directive(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if inspect.isroutine(value) else "autodata"


def paths_of_names() -> dict[str, str]:
    """Where a name is described, by where it is defined: a reader imports it from the former."""
    api = Path(__file__).with_name("api.md").read_text(encoding="utf-8")
    found = {}
    for module in re.findall(r"^   (discrete_vae[\w.]+)$", api, re.MULTILINE):
        for name in public_names(module):
            value = getattr(importlib.import_module(module), name)
            if isinstance(value, type) or inspect.isfunction(value):
                found[f"{value.__module__}.{value.__qualname__}"] = f"{module}.{name}"
    return found


# Settings.


def in_words(annotation: Any, bounds: str = "") -> str:
    """The values that a setting takes, in words.

    Examples:
        >>> in_words(tuple[int, ...] | None)
        'whole numbers or none'
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        limits = [limit for note in parts[1:] for limit in getattr(note, "metadata", [note])]
        return in_words(parts[0], bounds_in_words(limits))
    if origin in (Union, UnionType):
        return " or ".join("none" if part is NoneType else in_words(part, bounds) for part in parts)
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin is tuple:
        inner, *_ = get_args(parts[0]) if get_origin(parts[0]) is Annotated else parts
        if inner in _NUMBERS:
            return in_words(parts[0]).replace(_NUMBERS[inner][0], _NUMBERS[inner][1], 1)
        return (
            "a list of lists" if get_origin(inner) is tuple else f"a list, each of them {in_words(parts[0])}"
        )
    if annotation is bool:
        return "`true` or `false`"
    if annotation in _NUMBERS:
        return _NUMBERS[annotation][0] + bounds
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return f"`{annotation.__name__}`"
    return "path of a file" if annotation is Path else "JSON object"


def bounds_in_words(limits: list[Any]) -> str:
    """The bounds of a number, as the end of a phrase."""
    found = {}
    for limit in limits:
        for key, words in _BOUNDS.items():
            if (bound := getattr(limit, key, None)) is not None and abs(bound) < _VAST:
                found.setdefault(key, f"{words} {bound:g}")
    if found.get("gt") == "above 0" and "ge" in found:
        del found["gt"]
    return f", {' and '.join(found.values())}" if found else ""


def described(record: type[Record], name: str) -> tuple[str, str, str]:
    """The type, the meaning and the default of a field, in words."""
    field = record.model_fields[name]
    kind = in_words(field.annotation, bounds_in_words(field.metadata))
    default = "" if field.is_required() else " ".join(words_of(field.get_default(call_default_factory=True)))
    return kind, field.description or "", default


def _settings() -> list[str]:
    """Every setting under its part: type, meaning, default, and which experiments set something else."""
    configs = {(name, size): load_experiment(name, size) for name in experiment_names() for size in SIZES}
    values: dict[tuple[str, tuple[str, str] | None], dict[tuple[str, str], str]] = {}
    for key, config in configs.items():
        for entry in settings_of(config):
            value = read_value(config, entry.path)
            word = "none" if value is None else value.kind if isinstance(entry, Slot) else _value(value)
            values.setdefault((entry.path, entry.owner), {})[key] = word
    entries: dict[str, list[Slot | Setting]] = {}
    for entry in walk(ExperimentConfig):
        entries.setdefault(entry.path, []).append(entry)
    lines, part = ["```{program} dvae", "```", ""], None
    for path, same in entries.items():
        if path.partition(".")[0] != part:
            part = path.partition(".")[0]
            lines += [f"## {part.capitalize()}", ""]
        found: dict[tuple[str, str], str] = {}
        for entry in same:
            found |= values.get((path, entry.owner), {})
        first, default = same[0], None
        lines += [f"```{{option}} --{path} {'NAME' if isinstance(first, Slot) else 'VALUE'}"]
        if isinstance(first, Slot):
            lines += [f"- `{name}`: {_first_line(member)}" for name, member in first.members.items()]
        else:
            described: dict[str, list[str]] = {}
            for entry in same:
                default = None if entry.field.is_required() else _value(entry.field.default)
                kind = in_words(entry.field.annotation, bounds_in_words(entry.field.metadata))
                shown = "none, it must be given" if default is None else f"`{default}`"
                line = f"{entry.field.description} *Takes:* {kind}. *Default:* {shown}."
                described.setdefault(line, []).extend([f"`--{' '.join(entry.owner)}`"] if entry.owner else [])
            for line, owners in described.items():
                lines += [line + (f" *With* {', '.join(owners)}." if owners else ""), ""]
            default = default if len(described) == 1 else None
        lines += ["", *([] if path == "data" else _experiments(found, default)), "```", ""]
    return lines


def _value(value: object) -> str:
    return " ".join(words_of(value)) or "an empty list"


def _first_line(member: Any) -> str:
    return (
        "leaves the component out."
        if member is None
        else with_numbers(inspect.getdoc(member).partition("\n")[0])
    )


def _experiments(found: dict[tuple[str, str], str], default: str | None) -> list[str]:
    """The values that experiments set, the sizes of one experiment beside each other."""
    rows: dict[str, list[str]] = {}
    for name in experiment_names():
        sizes = {size: found[name, size] for size in SIZES if (name, size) in found}
        if set(sizes.values()) <= {default}:
            continue
        same = len(sizes) == len(SIZES) and len(set(sizes.values())) == 1
        words = "all sizes" if same else ""
        row = ", ".join(
            f"{words or size} `{value}`" for size, value in list(sizes.items())[: 1 if same else 9]
        )
        rows.setdefault(row, []).append(name)
    every = len(experiment_names())
    shown = {
        row: "every experiment" if len(names) == every else ", ".join(names) for row, names in rows.items()
    }
    return [f"- {names}: {row}" for row, names in shown.items()]


# Verbs.


def _verb(name: str) -> list[str]:
    """The help of a verb, each option with an anchor."""
    module, _, function = VERBS[name][0].partition(":")
    command: click.Command = getattr(importlib.import_module(f"discrete_vae.cli.{module}"), function)
    context = click.Context(command, info_name=f"dvae {name}")
    usage = " ".join(["dvae", name, *command.collect_usage_pieces(context)])
    lines = [f".. _dvae-{name}:", "", *_title(f"dvae {name}"), f".. program:: dvae {name}", ""]
    lines += [".. code-block:: text", "", f"   {usage}", "", _prose(command.help or ""), ""]
    lines += [".. code-block:: console", "", *(f"   $ {line}" for line in examples(name)), ""]
    for title, names in {"Options": (), **SECTIONS}.items():
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        shared = {opt for group in SECTIONS.values() for opt in group}
        found = [
            each for each in options if each.opts[-1] in names or (not names and each.opts[-1] not in shared)
        ]
        lines += _title(title, "-") if found else []
        for option in found:
            declared, meaning = option.get_help_record(context)
            lines += [f".. option:: {declared}", "", f"   {_prose(meaning)}", ""]
    return [*lines, _prose(command.epilog or ""), ""]


def _prose(text: str) -> str:
    """Text of a terminal as reStructuredText: options and variables are code."""
    text = re.sub(r"([*`|_\\])(?![a-z])", r"\\\1", inspect.cleandoc(text).replace("\b", ""))
    return re.sub(r"(?<![\w`-])(--[a-z][\w.-]*\w)", r"``\1``", text)
