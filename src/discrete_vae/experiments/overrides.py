"""Settings given on the command line on top of an experiment's config."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from discrete_vae.config import ExperimentConfig
from discrete_vae.errors import InvalidInputError
from discrete_vae.experiments.settings import Setting, Slot, settings, slots, walk
from discrete_vae.experiments.suggestions import suggest_setting
from discrete_vae.experiments.swapped_sizes import swapped_sizes

Override = tuple[str, list[str]]

_OF_IMPORTANCE = ("training.num-importance-samples", "training.importance-start")


def split_overrides(words: Sequence[str]) -> tuple[list[str], list[Override]]:
    """Take the options with a dot in their name, and the values after each, out of a command line.

    An option takes one word; one for several values takes all up to the next option.

    Args:
        words: The command line.

    Returns:
        What is left, and pairs of an option's path and its values.

    Examples:
        >>> split_overrides(["--training.num-epochs", "5", "digits", "--model.posterior.hidden=20", "9", "--seed", "1"])
        (['digits', '--seed', '1'], [('training.num-epochs', ['5']), ('model.posterior.hidden', ['20', '9'])])
    """
    known = settings()
    rest: list[str] = []
    found: list[Override] = []
    pending = list(words)
    while pending:
        option, equals, value = pending.pop(0).partition("=")
        if not option.startswith("--") or "." not in option:
            rest.append(option + equals + value)
            continue
        path = option.removeprefix("--").replace("_", "-")
        values = [value] if equals else []
        many = path in known and known[path][0].many
        while pending and not pending[0].startswith("--") and (many or not values):
            values.append(pending.pop(0))
        found.append((path, values))
    return rest, found


def apply_overrides(config: ExperimentConfig, overrides: Sequence[Override]) -> ExperimentConfig:
    """Change a config as the command line says.

    A slot's path swaps the component there and leaves the rest of the experiment as it is; the component's sizes follow
    the experiment's (`discrete_vae.experiments.swapped_sizes`). A setting's path sets the value. The order does not
    matter. Importance samples that the experiment has give way where a change does not fit them.

    Args:
        config: The experiment to start from.
        overrides: Pairs of a path and its values, as `split_overrides` gives them.

    Returns:
        The changed config.

    Raises:
        InvalidInputError: If a path or a component's name is unknown, or a value breaks its rule.

    Warns:
        UserWarning: If importance samples gave way.

    Examples:
        >>> from discrete_vae.experiments import load_experiment
        >>> changed = apply_overrides(load_experiment("digits"), [("model.smoothing", ["spike-slab"])])
        >>> changed.model.smoothing
        SpikeSlabConfig(kind='spike-slab')
    """
    known_slots, known_settings = slots(), settings()
    fields = config.model_dump()
    for path, _ in overrides:
        check_known(path)

    # owners before owned, and of one owner the values before its parts, whose sizes follow them
    def order(given: Override) -> tuple[int, bool]:
        return given[0].count("."), given[0] in known_slots

    for path, values in sorted(overrides, key=order):
        if path in known_slots:
            _swap(fields, known_slots[path], values)
            continue
        place, last = _place(fields, path)
        setting = next((entry for entry in known_settings[path] if _is_present(fields, entry)), None)
        if setting is None or place is None:
            raise _foreign(fields, known_settings[path])
        place[last] = setting.read(values)
    return _built(fields, {path for path, _ in overrides})


def _built(fields: dict[str, Any], asked: set[str]) -> ExperimentConfig:
    """The config, without the experiment's importance samples where what is asked for does not fit them.

    Warns:
        UserWarning: If they gave way.
    """
    settings = fields["training"]
    try:
        return ExperimentConfig(**fields)
    except InvalidInputError as error:
        count = settings["num_importance_samples"]
        if count == 1 or any(path in asked for path in _OF_IMPORTANCE):
            raise
        reason = str(error)
    settings["num_importance_samples"] = 1
    config = ExperimentConfig(**fields)  # raises again if it was something else
    warnings.warn(f"trains without the experiment's {count} importance samples: {reason}", stacklevel=3)
    return config


def check_known(path: str) -> None:
    """Refuse an option with a dot that is neither a setting nor a component's.

    Raises:
        InvalidInputError: If there is none of that name.
    """
    if path not in slots() and path not in settings():
        rule = "must be a setting of the experiment"
        raise InvalidInputError(f"--{path}", rule, "an unknown name", suggest_setting(path))


def settings_of(config: ExperimentConfig) -> list[Slot | Setting]:
    """The slots and settings that an experiment has with its present components, in the order of its config."""
    fields = config.model_dump()
    return [entry for entry in walk(ExperimentConfig) if _is_present(fields, entry)]


def read_value(config: ExperimentConfig, path: str) -> Any:
    """The value at a path of `settings_of`."""
    value: Any = config
    for name in path.replace("-", "_").split("."):
        value = getattr(value, name)
    return value


def _swap(fields: dict[str, Any], slot: Slot, values: list[str]) -> None:
    option, names = f"--{slot.path}", ", ".join(slot.members)
    if len(values) != 1 or values[0] not in slot.members:
        close = get_close_matches(" ".join(values), slot.members, n=1)
        repair = f"To set a value of the present one: {option}.FIELD VALUE."
        if close:
            repair = f"Did you mean {close[0]}? {repair}"
        received = repr(" ".join(values)) if values else "nothing"
        raise InvalidInputError(option, f"must be one of {names}", received, repair)
    place, last = _place(fields, slot.path)
    name = values[0]
    if place is None or not _is_present(fields, slot):
        raise _foreign(fields, [slot])
    member = slot.members[name]
    if member is None:
        place[last] = None
    elif place.get(last) is None or place[last]["kind"] != name:
        # what has no default is missing until it is set, and named if it is not
        place[last] = member.model_construct().model_dump() | swapped_sizes(slot.path, name, fields)


def _place(fields: dict[str, Any], path: str) -> tuple[dict[str, Any] | None, str]:
    """The record that holds a path's value, None if it is not there, and the value's name in it."""
    place: dict[str, Any] | None = fields
    *parents, last = path.replace("-", "_").split(".")
    for parent in parents:
        place = place.get(parent) if place is not None else None
    return place, last


def _kind_at(fields: dict[str, Any], slot: str) -> str | None:
    place, last = _place(fields, slot)
    component = place.get(last) if place is not None else None
    return None if component is None else component["kind"]


def _is_present(fields: dict[str, Any], entry: Slot | Setting) -> bool:
    return entry.owner is None or _kind_at(fields, entry.owner[0]) == entry.owner[1]


def _foreign(fields: dict[str, Any], entries: Sequence[Slot | Setting]) -> InvalidInputError:
    slot = entries[0].owner[0] if entries[0].owner is not None else ""
    owners = [entry.owner[1] for entry in entries if entry.owner is not None]
    rule = f"needs --{slot} {' or '.join(owners)}"
    repair = f"Add --{slot} {owners[0]}, or leave the setting out."
    return InvalidInputError(f"--{entries[0].path}", rule, str(_kind_at(fields, slot)), repair)
