"""Settings given on the command line on top of an experiment's config."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, get_args, get_origin

import tyro
from pydantic import BaseModel

from discrete_vae.config import ComponentConfig, ExperimentConfig, members
from discrete_vae.errors import InvalidInputError


def apply_overrides(config: ExperimentConfig, arguments: Sequence[str], *, prog: str) -> ExperimentConfig:
    """Change a config as the command line says.

    ``--model.smoothing NAME`` swaps a component and leaves the rest of the experiment as it is; after it
    ``--model.smoothing.FIELD VALUE`` sets a field of the new one. ``--help`` lists every setting and exits.

    Args:
        config: The experiment to start from.
        arguments: What is left of the command line.
        prog: The command as the user typed it, for messages.

    Returns:
        The changed config.

    Raises:
        InvalidInputError: If a component's name is unknown or a value breaks its rule.
        SystemExit: With status 2 if an option is unknown or a value cannot be read; with 0 after ``--help``.

    Examples:
        >>> from discrete_vae.experiments import load_experiment
        >>> changed = apply_overrides(load_experiment("digits"), ["--model.smoothing", "spike-slab"], prog="dvae")
        >>> changed.model.smoothing
        SpikeSlabConfig(kind='spike-slab')
    """
    slots = component_slots()
    rest: list[str] = []
    pending = list(arguments)
    while pending:
        argument = pending.pop(0)
        option, equals, value = argument.partition("=")
        path = option.removeprefix("--").replace("_", "-")
        if not option.startswith("--") or path not in slots:
            rest.append(argument)
            continue
        if not equals:
            value = pending.pop(0) if pending else ""
        config = _swap(config, path, value, slots[path])
    if not rest:
        return config
    return tyro.cli(
        ExperimentConfig, default=config, args=rest, prog=prog, config=(tyro.conf.AvoidSubcommands,)
    )


def component_slots() -> dict[str, tuple[type[ComponentConfig], ...]]:
    """The dotted paths of an experiment's config where a component can be swapped, with what fits there."""
    return dict(_slots(ExperimentConfig, ""))


def _slots(record: type[BaseModel], prefix: str) -> list[tuple[str, tuple[type[ComponentConfig], ...]]]:
    found = []
    for name, info in record.model_fields.items():
        path = f"{prefix}{name}".replace("_", "-")
        union = Annotated[info.annotation, info] if info.annotation is not None else None
        fits = _component_members(info.annotation, union)
        if fits:
            found.append((path, fits))
            for member in fits:  # components of components
                found += _slots(member, f"{path}.")
        elif isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            found += _slots(info.annotation, f"{path}.")
    return found


def _component_members(annotation: Any, union: Any) -> tuple[type[ComponentConfig], ...]:
    candidates = get_args(annotation) if get_origin(annotation) is not None else (annotation,)
    if all(isinstance(part, type) and issubclass(part, ComponentConfig) for part in candidates):
        return members(union)
    return ()


def _swap(
    config: ExperimentConfig, path: str, name: str, fits: tuple[type[ComponentConfig], ...]
) -> ExperimentConfig:
    known = {member.model_fields["kind"].default: member for member in fits}
    if name not in known:
        repair = f"dvae list shows all components; for a field of the present one use --{path}.FIELD VALUE."
        raise InvalidInputError(f"--{path}", f"must be one of {', '.join(known)}", repr(name), repair)
    fields = config.model_dump()
    place = fields
    *parents, last = path.replace("-", "_").split(".")
    for parent in parents:
        place = place[parent]
    if last not in place:
        owner = ".".join(path.split(".")[:-1])
        repair = f"Choose a component with it first: --{owner} NAME."
        rule = f"must belong to the present --{owner}, which is {place['kind']!r}"
        raise InvalidInputError(f"--{path}", rule, repr(name), repair)
    if place[last]["kind"] != name:
        place[last] = {"kind": name}
    return ExperimentConfig(**fields)
