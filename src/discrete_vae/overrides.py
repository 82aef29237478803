"""Settings of an experiment from words of the command line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from math import isqrt
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from discrete_vae.config import ComponentConfig, ExperimentConfig
from discrete_vae.config.base import rule_of
from discrete_vae.errors import InvalidInputError

# What a mistyped setting may have meant.


_SHOWN = 3
# words that other programs use for what a setting here calls otherwise
_OTHER_WORDS = {
    "steps": "epochs",
    "iterations": "epochs",
    "optimizer": "optimizer",
    "latents": "units",
    "latent": "units",
    "width": "hidden",
    "widths": "hidden",
    "warmup": "warm-up",
    "depth": "layers",
}


def suggest_setting(path: str) -> str:
    """A sentence that names the settings that a mistyped one may have meant.

    A setting whose last part is the word, "num" aside, comes before one whose last part has the word among others or
    in initials (lr), and that before a part further up; of equals the one nearer to the top comes first.

    Args:
        path: What was typed, without dashes in front.

    Examples:
        >>> suggest_setting("epochs")
        'Did you mean --training.num-epochs? --settings lists them all.'
    """
    known = sorted({*slots(), *settings()}, key=lambda name: (name.count("."), name))
    path = path.replace("_", "-").lower()
    found = _by_word(path.rpartition(".")[2], known)
    in_its_part = [name for name in found if name.rpartition(".")[0] == path.rpartition(".")[0]]
    found = in_its_part or found or get_close_matches(path, known, n=_SHOWN)
    if not found:
        return "Add --settings to list them all."
    return f"Did you mean {' or '.join(f'--{name}' for name in found[:_SHOWN])}? --settings lists them all."


def _by_word(word: str, known: list[str]) -> list[str]:
    """The paths that fit a word best, of those the ones nearest to the top."""
    leaves = {name: name.rpartition(".")[2] for name in known}
    close = get_close_matches(word, set(leaves.values()), n=1, cutoff=0.75)
    for wanted in dict.fromkeys([word, _OTHER_WORDS.get(word, word), *close]):
        bare = wanted.removeprefix("num-")
        ways = [
            [name for name in known if leaves[name].removeprefix("num-") == bare],
            [name for name in known if bare in leaves[name].split("-")],
            [name for name in known if bare == "".join(part[0] for part in leaves[name].split("-"))],
            [name for name in known if bare in name.split(".")],
        ]
        found = next((way for way in ways if way), [])
        if found:
            top = min(name.count(".") for name in found)
            return [name for name in found if name.count(".") == top]
    return []


# The sizes that a component takes when it is swapped into an experiment: one rule for each size of each
# component.
#
# The defaults of the configs are the paper's, for 28x28 images on a GPU. Here every size follows what the
# experiment has already: its latents, the widths of its posterior networks, its chains, and for what it lacks
# its size.


Fields = Mapping[str, Any]  # an experiment as `model_dump` gives it

_LAYERS = {"smoke": 2, "short": 4, "cpu": 8, "paper": 10}
_REPLICAS = 10  # a sweep of tempered chains costs one sweep per replica, about so many
_CHANNELS = {
    "smoke": (8, 2),
    "short": (16, 3),
    "cpu": (16, 3),
    "paper": (16, 3),
}  # of the largest image, and the most halvings


def swapped_sizes(slot: str, kind: str, experiment: Fields) -> dict[str, Any]:
    """The sizes of a component that an experiment does not have yet.

    Args:
        slot: Where it goes, "model.hierarchy".
        kind: Its name, "gaussian".
        experiment: The experiment before the swap.

    Returns:
        Values by field; empty for a component without sizes.

    Examples:
        >>> from discrete_vae.presets import load_experiment
        >>> swapped_sizes("model.hierarchy", "gaussian", load_experiment("digits", "smoke").model_dump())
        {'num_layers': 2, 'num_units': 16, 'posterior_hidden': (200,), 'prior_hidden': (100,)}
    """
    return {
        field: rule(experiment)
        for (rule_slot, rule_kind, field), rule in RULES.items()
        if (rule_slot, rule_kind) == (slot, kind)
    }


def _latents(experiment: Fields) -> int:
    prior = experiment["model"]["prior"]
    return prior["num_units"] if "num_units" in prior else prior["num_left"] + prior["num_right"]


def _chimera(experiment: Fields) -> int:
    """The largest Chimera graph with no more units than there are latents; one cell has 8."""
    return 8 * max(1, isqrt(_latents(experiment) // 8)) ** 2


def _widths(experiment: Fields) -> tuple[int, ...]:
    return tuple(experiment["model"]["posterior"]["hidden"])


def _channels(experiment: Fields) -> tuple[int, ...]:
    """Channels of the images, twice as many after each halving, until these have about 4 x 4 pixels."""
    shape = experiment["model"]["event_shape"] or (1, 4, 4)
    halvings = max(1, (min(shape[-2:]) // 4).bit_length())
    first, most = _CHANNELS[experiment["size"]]
    return tuple(first * 2**level for level in range(min(halvings, most)))


def _chains(experiment: Fields) -> int:
    """The chains without replicas that the experiment's cost as much as."""
    sampler = experiment["training"]["sampler"]
    return sampler["num_chains"] * (_REPLICAS if sampler["kind"] == "parallel-tempering" else 1)


def _smallest_divisor(number: int) -> int:
    """Above 1, so that layers fall into equal groups; 1 has only itself."""
    return next((divisor for divisor in range(2, number + 1) if number % divisor == 0), 1)


RULES: dict[tuple[str, str, str], Callable[[Fields], Any]] = {
    ("model.prior", "rbm", "num_left"): lambda e: -(-_latents(e) // 2),
    ("model.prior", "rbm", "num_right"): lambda e: max(1, _latents(e) // 2),
    ("model.prior", "factorial", "num_units"): _latents,
    ("model.prior", "graph", "num_units"): _chimera,
    ("model.posterior", "hierarchical", "groups"): lambda e: e["model"]["posterior"]["groups"],
    ("model.posterior", "hierarchical", "hidden"): _widths,
    ("model.hierarchy", "gaussian", "num_layers"): lambda e: _LAYERS[e["size"]],
    ("model.hierarchy", "gaussian", "num_units"): lambda e: max(1, _latents(e) // 2),
    ("model.hierarchy", "gaussian", "posterior_hidden"): _widths,
    ("model.hierarchy", "gaussian", "prior_hidden"): lambda e: tuple(-(-w // 2) for w in _widths(e)[-1:]),
    ("model.hierarchy.sharing", "groups", "num_groups"): lambda e: _smallest_divisor(
        e["model"]["hierarchy"]["num_layers"]
    ),
    ("model.encoder", "convolutional", "num_features"): lambda e: min(256, *_widths(e)),
    ("model.encoder", "convolutional", "widths"): _channels,
    ("model.decoder", "convolutional", "widths"): _channels,
    ("model.decoder", "mlp", "hidden"): lambda e: _widths(e)[-1:],
    # how many there are is a matter of the data
    ("model.likelihood", "categorical", "num_categories"): lambda e: 2,
    ("training.gradient", "leave-one-out", "num_samples"): lambda e: 2,
    ("training.gradient.baseline", "learned", "hidden"): lambda e: (min([100, *_widths(e)]),),
    ("training.sampler", "block-gibbs", "num_chains"): lambda e: _chains(e),
    ("training.sampler", "parallel-tempering", "num_chains"): lambda e: max(1, _chains(e) // _REPLICAS),
    ("training.sampler", "trajectory-tempering", "num_chains"): lambda e: max(2, _chains(e)),
    ("training.sampler", "dimod", "num_chains"): lambda e: _chains(e),
}
"""Rules by the component's slot, its name and the field."""


# Every setting and every component slot of an experiment, found by walking its config classes.


_FIXED = {"kind", "name", "size"}  # not settings: the slot's own option, and what the experiment is called


@dataclass(frozen=True)
class Slot:
    """A place of the config where one component can be swapped for another.

    Attributes:
        path: Its option without dashes, "model.smoothing".
        members: What fits there, by name; "none" stands for no component where that is allowed.
        owner: The slot and the component that it belongs to; None for what every experiment has.
    """

    path: str
    members: dict[str, type[ComponentConfig] | None]
    owner: tuple[str, str] | None


@dataclass(frozen=True)
class Setting:
    """One value of the config.

    Attributes:
        path: Its option without dashes, "model.smoothing.beta".
        field: Its type, rule and description.
        owner: The slot and the component that it belongs to; None for what every experiment has.
    """

    path: str
    field: FieldInfo
    owner: tuple[str, str] | None

    @property
    def many(self) -> bool:
        """Whether it takes several values."""
        return any(get_origin(part) is tuple for part in _alternatives(self.field.annotation))

    def read(self, words: list[str]) -> Any:
        """Turn the words of a command line into the value.

        Raises:
            InvalidInputError: If they break the setting's rule.
        """
        option, repair = f"--{self.path}", f"Meaning: {self.field.description}"
        if len(words) != 1 and not self.many:
            rule = "takes one value" if words else "must be followed by a value"
            raise InvalidInputError(option, rule, " ".join(words) or "nothing", repair)
        readings: list[Any] = [words] if self.many else [words[0]]
        if len(words) == 1:
            if words[0].lower() == "none" and NoneType in _alternatives(self.field.annotation):
                return None
            if words[0].startswith(("[", "{")):
                try:
                    readings = [from_json(words[0])]
                except ValueError as error:
                    received = f"{words[0]!r} ({error})"
                    raise InvalidInputError(option, "must be valid JSON", received, repair) from None
            if self.many:  # "a number or a list of lists": the first reading that fits
                readings.append(words[0])
        annotation: Any = self.field.annotation
        for rule in self.field.metadata:
            annotation = Annotated[annotation, rule]
        adapter = TypeAdapter(annotation, config={"allow_inf_nan": False})
        findings = []
        for reading in readings:
            try:
                return adapter.validate_python(reading)
            except ValidationError as error:
                findings += error.errors(include_url=False)
        raise InvalidInputError(option, rule_of(findings[0]), repr(" ".join(words))[:80], repair)


def walk(
    record: type[BaseModel], prefix: str = "", owner: tuple[str, str] | None = None
) -> Iterator[Slot | Setting]:
    """All slots and settings of a config class, those of every component that fits included."""
    for name, field in record.model_fields.items():
        path = f"{prefix}{name}".replace("_", "-")
        members = _members(field.annotation)
        if members is not None:
            yield Slot(path, members, owner)
            for kind, member in members.items():
                if member is not None:
                    yield from walk(member, f"{path}.", (path, kind))
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from walk(field.annotation, f"{path}.", owner)
        elif name not in _FIXED:
            yield Setting(path, field, owner)


@cache
def slots() -> dict[str, Slot]:
    """The slots of an experiment by path."""
    return {entry.path: entry for entry in walk(ExperimentConfig) if isinstance(entry, Slot)}


@cache
def settings() -> dict[str, list[Setting]]:
    """The settings by path; components of one slot may have settings of one name."""
    found: dict[str, list[Setting]] = {}
    for entry in walk(ExperimentConfig):
        if isinstance(entry, Setting):
            found.setdefault(entry.path, []).append(entry)
    return found


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, those of nested ones included; of another type itself."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(part for each in get_args(annotation) for part in _alternatives(each))
    return (annotation,)


def _members(annotation: Any) -> dict[str, type[ComponentConfig] | None] | None:
    """The components that train by name, if the annotation is one or a union of them."""
    parts = _alternatives(annotation)
    components = [part for part in parts if isinstance(part, type) and issubclass(part, ComponentConfig)]
    if not components or len(components) + (NoneType in parts) != len(parts):
        return None
    members: dict[str, type[ComponentConfig] | None] = {
        part.model_fields["kind"].default: part for part in components if part.trains
    }
    return members | ({"none": None} if NoneType in parts else {})


# Settings given on the command line on top of an experiment's config.


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
    the experiment's (`discrete_vae.overrides`). A setting's path sets the value. The order does not
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
        >>> from discrete_vae.presets import load_experiment
        >>> changed = apply_overrides(load_experiment("digits"), [("model.smoothing", ["spike-slab"])])
        >>> changed.model.smoothing
        SpikeSlabConfig(kind='spike-slab')
    """
    fields = config.model_dump()
    override_fields(fields, overrides)
    return _built(fields, {path for path, _ in overrides})


def override_fields(fields: dict[str, Any], overrides: Sequence[Override]) -> None:
    """Change an experiment's fields, or those parts of them that there are, as the command line says.

    Raises:
        InvalidInputError: If a path or a component's name is unknown, or a value breaks its rule.
    """
    known_slots, known_settings = slots(), settings()
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
