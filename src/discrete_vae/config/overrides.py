"""Settings of an experiment by path: all that there are, read from words, and changed as the command line says."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from math import isqrt
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from discrete_vae.config import ComponentConfig, ExperimentConfig
from discrete_vae.config.base import Record, rule_of
from discrete_vae.errors import InvalidInputError

_FIXED = {"kind", "name", "size"}  # not settings: the slot's own option, and what the experiment is called
_OF_DATA = {"model.condition", "data.path"}  # nor these, which follow from the data, or say which they are


@dataclass(frozen=True)
class Slot:
    """A place of the config where one component can be swapped for another."""

    path: str  # its option without dashes, "model.smoothing"
    members: dict[str, type[ComponentConfig]]  # the configs that fit there, by name
    owner: tuple[str, str] | None  # slot and component that it belongs to; None for what all have


@dataclass(frozen=True)
class Setting:
    """One value of the config."""

    path: str  # its option without dashes, "model.smoothing.beta"
    field: FieldInfo  # its type, rule and description
    owner: tuple[str, str] | None  # slot and component that it belongs to; None for what all have

    @property
    def many(self) -> bool:
        """True if it takes several values."""
        return any(get_origin(part) is tuple for part in self._types)

    @property
    def _types(self) -> tuple[Any, ...]:
        return self.field.annotation, *get_args(self.field.annotation)

    def read(self, words: Sequence[str]) -> Any:
        """Turn the words of a command line into the value."""
        option, repair = f"--{self.path}", f"Meaning: {self.field.description}"
        if len(words) != 1 and not self.many:
            rule = "takes one value" if words else "must be followed by a value"
            raise InvalidInputError(option, rule, " ".join(words) or "nothing", repair)
        readings: list[Any] = [words] if self.many else []
        if len(words) == 1:
            if words[0].lower() == "none" and NoneType in self._types:
                return None
            if words[0].startswith(("[", "{")):
                try:
                    readings = [from_json(words[0])]
                except ValueError as error:
                    if str not in self._types:  # else a name in brackets
                        received = f"{words[0]!r} ({error})"
                        raise InvalidInputError(option, "must be valid JSON", received, repair) from None
            readings.append(words[0])  # "a number or a list of lists": the first reading that fits
        annotation: Any = Annotated[self.field.annotation, self.field]  # pyright: ignore[reportInvalidTypeForm]
        adapter = TypeAdapter(annotation, config={"allow_inf_nan": False})
        findings = []
        for reading in readings:
            try:
                return adapter.validate_python(reading)
            except ValidationError as error:
                findings += error.errors(include_url=False)
        raise InvalidInputError(option, rule_of(findings[0]), repr(" ".join(words))[:80], repair)


def walk(
    record: type[Record], prefix: str = "", owner: tuple[str, str] | None = None
) -> Iterator[Slot | Setting]:
    """All slots and settings of a config class, those of every component that fits included."""
    for name, field in record.model_fields.items():
        path = f"{prefix}{name}".replace("_", "-")
        parts = get_args(field.annotation) or (field.annotation,)
        records = [part for part in parts if isinstance(part, type) and issubclass(part, Record)]
        components = [part for part in records if issubclass(part, ComponentConfig)]
        choices = [part for part in components if part.trains and part.is_choice]
        if choices:
            members = {part.model_fields["kind"].default: part for part in choices}
            yield Slot(path, members, owner)
            for kind, member in members.items():
                yield from walk(member, f"{path}.", (path, kind))
        elif records:
            yield from walk(records[0], f"{path}.", owner)
        elif name not in _FIXED and path not in _OF_DATA:
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


def settings_of(config: ExperimentConfig) -> list[Slot | Setting]:
    """The slots and settings that an experiment has with its present components, in the order of its config."""
    fields = config.model_dump()
    return [entry for entry in walk(ExperimentConfig) if _is_present(fields, entry)]


def read_value(config: ExperimentConfig, path: str) -> Any:
    """The value at a path of `settings_of`."""
    return attrgetter(path.replace("-", "_"))(config)


def words_of(value: object) -> list[str]:
    """The words of a command line that `Setting.read` turns into a value."""
    if isinstance(value, dict):
        return [json.dumps(value)]
    if isinstance(value, list | tuple):
        nested = any(isinstance(each, list | tuple) for each in value)
        return [json.dumps(value)] if nested else [word for each in value for word in words_of(each)]
    return [str(value).lower() if value is None or isinstance(value, bool) else str(value)]


def put(fields: dict[str, Any], path: str, value: object) -> None:
    """Set the value at a path of nested fields, as `model_dump` gives them."""
    *parents, last = path.replace("-", "_").split(".")
    for parent in parents:
        fields = fields.setdefault(parent, {})
    fields[last] = value


def _kind_at(fields: dict[str, Any], slot: str) -> str | None:
    """The component in a slot; None if there is no such slot."""
    for name in slot.replace("-", "_").split("."):
        fields = fields.get(name, {})
    return fields.get("kind")


def _is_present(fields: dict[str, Any], entry: Slot | Setting) -> bool:
    return entry.owner is None or _kind_at(fields, entry.owner[0]) == entry.owner[1]


# Settings given on the command line on top of an experiment's config.


Override = tuple[str, list[str]]  # a path and the words that were given for it


def overrides_of(settings: Mapping[str, object] | None) -> list[Override]:
    """Settings that Python gives as values by path, dashes or underscores in it, as the command line would.

    Examples:
        >>> overrides_of({"training.num_epochs": 5, "model.decoder.hidden": (200, 200)})
        [('training.num-epochs', ['5']), ('model.decoder.hidden', ['200', '200'])]
    """
    given = {} if settings is None else settings
    if not isinstance(given, Mapping) or not all(isinstance(path, str) for path in given):
        repair = 'For example {"training.num_epochs": 60}.'
        raise InvalidInputError("settings", "must map names to values", repr(settings)[:80], repair)
    return [(path.replace("_", "-"), words_of(value)) for path, value in given.items()]


_OF_IMPORTANCE = ("training.num-importance-samples", "training.importance-start")


def split_overrides(words: Sequence[str]) -> tuple[list[str], list[Override]]:
    """Take the options with a dot in their name, and the values after each, out of a command line.

    An option takes one word; one for several values takes all up to the next option.
    """
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
        many = path in settings() and settings()[path][0].many
        while pending and not pending[0].startswith("--") and (many or not values):
            values.append(pending.pop(0))
        found.append((path, values))
    return rest, found


def apply_overrides(config: ExperimentConfig, overrides: Sequence[Override]) -> ExperimentConfig:
    """Change a config as the command line says.

    A slot's path swaps the component there and leaves the rest of the experiment as it is; the component's sizes follow
    the experiment's (`swapped_sizes`). A setting's path sets the value. The order does not matter. Importance samples
    that the experiment has give way, with a warning, where a change does not fit them.

    Examples:
        >>> from discrete_vae.presets import load_experiment
        >>> changed = apply_overrides(load_experiment("digits"), [("model.smoothing", ["spike-slab"])])
        >>> changed.model.smoothing
        SpikeSlabConfig(kind='spike-slab')
    """
    fields = config.model_dump()
    override_fields(fields, overrides)
    try:
        return ExperimentConfig(**fields)
    except InvalidInputError as error:
        count = fields["training"]["num_importance_samples"]
        if count == 1 or any(path in _OF_IMPORTANCE for path, _ in overrides):
            raise
        reason = str(error)
    fields["training"]["num_importance_samples"] = 1
    changed = ExperimentConfig(**fields)  # raises again if it was something else
    warnings.warn(f"trains without the experiment's {count} importance samples: {reason}", stacklevel=2)
    return changed


def override_fields(fields: dict[str, Any], overrides: Sequence[Override]) -> None:
    """Change an experiment's fields, or those parts of them that there are, as the command line says."""
    for path, _ in overrides:
        check_known(path)

    # owners before owned, and of one owner the values before its parts, whose sizes follow them, as layers' the prior's
    def order(given: Override) -> tuple[int, bool, bool]:
        return given[0].count("."), given[0] in slots(), given[0] != "model.prior"

    for path, words in sorted(overrides, key=order):
        entries = [slots()[path]] if path in slots() else settings()[path]
        entry = next((each for each in entries if _is_present(fields, each)), None)
        if entry is None:
            owners = [each.owner for each in entries if each.owner is not None]
            slot, kinds = owners[0][0], [kind for _, kind in owners]
            repair = f"Add --{slot} {kinds[0]}, or leave the setting out."
            rule = f"needs --{slot} {' or '.join(kinds)}"
            if slot == "data":  # which the experiment names, or a file of one's own
                rule, repair = f"needs data of the kind {' or '.join(kinds)}", "Leave the setting out."
            raise InvalidInputError(f"--{path}", rule, _kind_at(fields, slot), repair)
        if isinstance(entry, Setting):
            put(fields, path, entry.read(words))
        else:
            _swap(fields, entry, words)


def _swap(fields: dict[str, Any], slot: Slot, words: Sequence[str]) -> None:
    option, name = f"--{slot.path}", " ".join(words)
    if name not in slot.members:
        close = get_close_matches(name, slot.members, n=1)
        repair = f"To set a value of the present one: {option}.FIELD VALUE."
        repair = f"Did you mean {close[0]}? {repair}" if close else repair
        rule = f"must be one of {', '.join(slot.members)}"
        raise InvalidInputError(option, rule, repr(name) if words else "nothing", repair)
    if _kind_at(fields, slot.path) != name:
        # what has no default is missing until it is set, and named if it is not
        default = slot.members[name].model_construct().model_dump()
        put(fields, slot.path, default | swapped_sizes(slot.path, name, fields))


_LAYERS = {"smoke": 2, "short": 4, "cpu": 8, "paper": 10}
_REPLICAS = 10  # of tempered chains, about: a sweep costs one sweep per replica


def swapped_sizes(slot: str, kind: str, experiment: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a component that an experiment does not have yet.

    The defaults of the configs are the paper's, for 28x28 images on a GPU. Here every size follows what the experiment
    has already: its latents, the widths of its posterior networks, its chains, and for what it lacks its size.
    """
    model, sampler = experiment["model"], experiment["training"]["sampler"]
    prior, widths = model["prior"], tuple(model["posterior"]["hidden"])
    latents = prior["num_units"] if "num_units" in prior else prior["num_left"] + prior["num_right"]
    half = max(1, latents // 2)
    num_layers = model["hierarchy"].get("num_layers", 1)
    # chains without replicas that cost as much as the present ones
    chains = sampler["num_chains"] * (_REPLICAS if sampler["kind"] == "parallel-tempering" else 1)
    # channels, twice as many after each halving of the image, until it has about 4 x 4 pixels
    halvings = max(1, (min((model["event_shape"] or (4, 4))[-2:]) // 4).bit_length())
    # of one pixel a norm tells something from 16 channels on
    is_tiny = max((model["event_shape"] or (4, 4))[-2:]) <= 2
    first, most = (8, 2) if experiment["size"] == "smoke" and not is_tiny else (16, 3)
    channels = tuple(first * 2**level for level in range(min(halvings, most)))
    sizes: dict[tuple[str, str], dict[str, Any]] = {
        ("model.prior", "rbm"): {"num_left": latents - latents // 2, "num_right": half},
        ("model.prior", "factorial"): {"num_units": latents},
        # the largest Chimera graph with no more units; one cell has 8
        ("model.prior", "graph"): {"num_units": 8 * max(1, isqrt(latents // 8)) ** 2},
        ("model.hierarchy", "gaussian"): {
            "num_layers": _LAYERS.get(experiment["size"], _LAYERS["short"]),
            "num_units": half,
            "posterior_hidden": widths,
            "prior_hidden": tuple(-(-width // 2) for width in widths[-1:]),
        },
        # the smallest number of equal groups that is not one, where there is more than one layer
        ("model.hierarchy.sharing", "groups"): {
            "num_groups": next((each for each in range(2, num_layers + 1) if num_layers % each == 0), 1)
        },
        ("model.encoder", "convolutional"): {"num_features": min([256, *widths]), "widths": channels},
        ("model.decoder", "convolutional"): {"widths": channels},
        ("model.decoder", "mlp"): {"hidden": widths[-1:]},
        ("training.gradient.baseline", "learned"): {"hidden": (min([100, *widths]),)},
        ("training.sampler", "block-gibbs"): {"num_chains": chains},
        ("training.sampler", "parallel-tempering"): {"num_chains": max(1, chains // _REPLICAS)},
        ("training.sampler", "trajectory-tempering"): {"num_chains": max(2, chains)},
        ("training.sampler", "dimod"): {"num_chains": chains},
    }
    return sizes.get((slot, kind), {})


# What a mistyped setting may have meant.


_SHOWN = 3
# words that other programs use for what a setting here calls otherwise
_OTHER_WORDS = {"steps": "epochs", "iterations": "epochs", "latents": "units", "latent": "units"}
_OTHER_WORDS |= {"width": "hidden", "widths": "hidden", "warmup": "warm-up", "depth": "layers"}


def check_known(path: str) -> None:
    """Refuse an option with a dot that is neither a setting nor a component's."""
    if path not in slots() and path not in settings():
        rule = "must be a setting of the experiment"
        raise InvalidInputError(f"--{path}", rule, "an unknown name", suggest_setting(path))


def suggest_setting(path: str) -> str:
    """A sentence that names the settings that a mistyped one may have meant.

    A setting whose last part is the word, "num" aside, comes before one whose last part has the word among others or
    in initials (lr), and that before a part further up; of equals the one nearer to the top comes first.
    """
    known = sorted({*slots(), *settings()}, key=lambda name: (name.count("."), name))
    path = path.replace("_", "-").lower()
    parent, _, word = path.rpartition(".")
    found = _by_word(word, known)
    found = [name for name in found if name.rpartition(".")[0] == parent] or found
    found = found or get_close_matches(path, known, n=_SHOWN)
    if not found:
        return "Add --settings to list them all."
    return f"Did you mean {' or '.join(f'--{name}' for name in found[:_SHOWN])}? --settings lists them all."


def _by_word(word: str, known: list[str]) -> list[str]:
    """The paths that fit a word best, of those the ones nearest to the top."""
    leaves = {name: name.rpartition(".")[2] for name in known}
    close = get_close_matches(word, set(leaves.values()), n=1, cutoff=0.75)
    for wanted in dict.fromkeys([word, _OTHER_WORDS.get(word, word), *close]):
        bare = wanted.removeprefix("num-")
        ways = (
            [name for name in known if leaves[name].removeprefix("num-") == bare],
            [name for name in known if bare in leaves[name].split("-")],
            [name for name in known if bare == "".join(part[0] for part in leaves[name].split("-"))],
            [name for name in known if bare in name.split(".")],
        )
        if found := next(filter(None, ways), None):
            return [name for name in found if name.count(".") == found[0].count(".")]
    return []
