"""Frozen configuration records and the one function that builds what they describe."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from discrete_vae.errors import InvalidInputError, naming

# Kinds of numbers that configs hold, with the bounds beyond which no part of the library could use them.


Seed = Annotated[int, Field(ge=0, le=2**64 - 1)]
"""A seed of `discrete_vae.rng`."""

Count = Annotated[int, Field(gt=0, le=10**12)]
"""A number of things; what fits the memory is found later, with all numbers at hand."""

Interval = Annotated[int, Field(gt=0, le=2**63 - 1)]
"""Steps between two events; larger than the run means never."""

Repetitions = Annotated[int, Field(gt=0, le=10**9)]
"""A number of repetitions; products of two such numbers are still counted exactly."""

Factor = Annotated[float, Field(le=1e30)]
"""A number that float32 still holds after some multiplications."""


# What earlier versions wrote, by class and field. `Record.from_json` reads it, nothing else does.

RETIRED: dict[str, tuple[str, ...]] = {"TrainingConfig": ("compile",)}
"""Fields that are gone and never changed a result; they are passed over."""

ADDED: dict[str, dict[str, Callable[[dict[str, Any]], object]]] = {
    "ModelConfig": {"mask": lambda fields: "observed" if fields.get("missing") else "gaps"}
}
"""The value of a field that a file lacks, by its other fields, where that is not the default."""


# Pydantic's findings in the form of `InvalidInputError`.

_RULES = {
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "string_type": "must be text",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "too_long": "must have at most {max_length} values",
    "too_short": "must have at least {min_length} values",
    "missing": "must be given",
    "extra_forbidden": "is not a known field",
    "union_tag_invalid": "must be one of {expected_tags}",
    "union_tag_not_found": "must be one of its known names",
}


def rule_of(finding: ErrorDetails) -> str:
    """The rule that a value breaks, as the end of a sentence that starts with the field's name.

    Examples:
        >>> rule_of({"type": "greater_than_equal", "msg": "Input should be ...", "ctx": {"ge": 2}})
        'must be at least 2'
        >>> rule_of({"type": "url_parsing", "msg": "Input should be a URL"})
        'must be a URL'
    """
    if finding["type"] in _RULES:
        return _RULES[finding["type"]].format(**finding.get("ctx", {}))
    words = finding["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return words.replace("should", "must", 1)


def _first_error(record: type[Record], error: ValidationError) -> InvalidInputError:
    """The first of pydantic's findings, with the field's dotted path."""
    first, *others = error.errors(include_url=False)
    kind, context = first["type"], first.get("ctx", {})
    path = [record.__name__, *map(str, first["loc"])]
    rule, received, repair = rule_of(first), f"{first['input']!r}"[:80], "Change the value."
    own = context.get("error")
    if isinstance(own, InvalidInputError):  # of a validator, which names the field too
        rule, received, repair = own.rule, own.received, own.repair
        path = [*(path[:-1] if path[-1] == own.argument else path), own.argument]
    elif kind == "missing":
        received, repair = "nothing", "Add the field."
    elif kind == "extra_forbidden":
        names = ", ".join(name for name in record.model_fields if name != "kind")
        repair = f"{record.__name__} has: {names}." if len(path) == 2 else "Delete it, or correct its name."
    elif kind in {"union_tag_invalid", "union_tag_not_found"}:
        path, received, repair = [*path, "kind"], context.get("tag", received), "Use one of these."
    if others:
        repair = f"{repair} {len(others)} more problems follow."
    return InvalidInputError(".".join(path), rule, received, repair)


_inside_a_record: ContextVar[bool] = ContextVar("_inside_a_record", default=False)
_is_from_file: ContextVar[bool] = ContextVar("_is_from_file", default=False)


class Record(BaseModel):
    """A frozen record that refuses unknown keys and reports mistakes as `InvalidInputError`.

    Raises:
        InvalidInputError: If a field is missing, unknown or breaks its rule; names the first such field by its
            dotted path.

    Examples:
        >>> class Sizes(Record):
        ...     width: int
        >>> Sizes(width="wide")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: Sizes.width must be a whole number; received ...
    """

    # with a longest length, halves of surrogates, which JSON cannot hold, are refused in every text
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=(), str_max_length=2**24
    )

    def __init__(self, /, **data: Any) -> None:
        if _inside_a_record.get():  # pydantic collects the messages of nested records itself
            super().__init__(**data)
            return
        token = _inside_a_record.set(True)
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _first_error(type(self), error) from None
        finally:
            _inside_a_record.reset(token)

    @model_validator(mode="before")
    @classmethod
    def _read_earlier_versions(cls, fields: Any) -> Any:
        if not _is_from_file.get() or not isinstance(fields, dict):
            return fields
        fields = dict(fields)
        for old in RETIRED.get(cls.__name__, ()):
            fields.pop(old, None)
        for new, value in ADDED.get(cls.__name__, {}).items():
            fields.setdefault(new, value(fields))
        return fields

    @classmethod
    def from_json(cls, text: str, *, source: str | None = None) -> Self:
        """Read a record that `model_dump_json` wrote, by this version or an earlier one; messages name its source."""
        name, repair = source or cls.__name__, "Restore the file from a copy."
        token = _is_from_file.set(True)
        try:
            fields = json.loads(text)
            if not isinstance(fields, dict):
                raise InvalidInputError(name, "must be a JSON object", type(fields).__name__, repair)
            with nullcontext() if source is None else naming(source):
                return cls(**fields)
        except InvalidInputError:
            raise
        except (ValueError, RecursionError) as error:  # numbers of 5,000 digits, brackets nested as deeply
            received = str(error).partition(";")[0]
            raise InvalidInputError(name, "must be valid JSON", received, repair) from None
        finally:
            _is_from_file.reset(token)


class ComponentConfig(Record):
    """Describes one component: its fields are the constructor's keywords, its target the class to build.

    Subclasses give `target` and a field `kind` whose only value is the component's name; the union of all
    configs of one kind of component is what the command line offers and the contract tests run over.
    """

    target: ClassVar[str]
    trains: ClassVar[bool] = True
    """False for a part that only models have that were trained with another in its place."""
    is_choice: ClassVar[bool] = True
    """False for a part whose settings only the data tell: the command line cannot put it in another's place."""
    references: ClassVar[tuple[str, ...]] = ()
    """Keys in `references.bib` of what to cite for it beyond the paper of the discrete VAE."""


def members(union: object) -> tuple[type[ComponentConfig], ...]:
    """The config classes of one kind of component, of which a union such as `SmoothingConfig` consists.

    Examples:
        >>> from discrete_vae.config import PriorConfig
        >>> [config.__name__ for config in members(PriorConfig)]
        ['RBMConfig', 'FactorialBernoulliConfig', 'GraphBoltzmannConfig']
    """
    inner = get_args(union)[0]
    return get_args(inner) or (inner,)


def by_kind(union: object) -> dict[str, Any]:
    """The config classes of one kind of component, by the component's name."""
    return {config.model_fields["kind"].default: config for config in members(union)}


def instantiate(config: ComponentConfig, **context: Any) -> Any:
    """Import the class that a config names and build it: fields but `kind`, and the context, are its keywords.

    Examples:
        >>> from discrete_vae.config import RBMConfig
        >>> instantiate(RBMConfig(num_left=3, num_right=2)).num_units
        5
    """
    fields = {name: getattr(config, name) for name in type(config).model_fields if name != "kind"}
    return resolve_name(config.target)(**fields, **context)
