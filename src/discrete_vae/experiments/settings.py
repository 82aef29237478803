"""Every setting and every component slot of an experiment, found by walking its config classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import from_json

from discrete_vae.config import ComponentConfig, ExperimentConfig
from discrete_vae.config.messages import rule_of
from discrete_vae.errors import InvalidInputError

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
