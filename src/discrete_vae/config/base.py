"""Frozen configuration records and the one function that builds what they describe."""

from __future__ import annotations

import importlib
import json
from contextvars import ContextVar
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from discrete_vae.errors import InvalidInputError

# Kinds of numbers that configs hold, with the bounds beyond which no part of the library could use them.


Seed = Annotated[int, Field(ge=0, le=2**64 - 1)]
"""What `discrete_vae.rng` takes."""

Count = Annotated[int, Field(gt=0, le=10**12)]
"""How many there are of something; what fits the memory is found later, with all numbers at hand."""

Interval = Annotated[int, Field(gt=0, le=2**63 - 1)]
"""Steps between two events; larger than the run means never."""

Repetitions = Annotated[int, Field(gt=0, le=10**9)]
"""How often something is done in a row; products of two such numbers are still counted exactly."""

Factor = Annotated[float, Field(le=1e30)]
"""A number that float32 still holds after some multiplications."""


# Pydantic's findings in the words of this house.


_RULES = {
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "string_type": "must be text",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
}


def rule_of(finding: ErrorDetails) -> str:
    """The rule that a value breaks, as the end of a sentence that starts with the field's name.

    Examples:
        >>> rule_of({"type": "greater_than", "msg": "Input should be greater than 0", "ctx": {"gt": 0}})
        'must be greater than 0'
        >>> rule_of({"type": "url_parsing", "msg": "Input should be a URL"})
        'must be a URL'
    """
    if finding["type"] in _RULES:
        return _RULES[finding["type"]].format(**finding.get("ctx", {}))
    words = finding["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return words.replace("should", "must", 1)


# Frozen configuration records and the one function that builds what they describe.


_inside_a_record: ContextVar[bool] = ContextVar("_inside_a_record", default=False)
_of_file: ContextVar[bool] = ContextVar("_of_file", default=False)


def is_read_from_file() -> bool:
    """Whether `Record.from_json` makes a record, of a file that an earlier version may have written."""
    return _of_file.get()


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

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())
    retired: ClassVar[tuple[str, ...]] = ()
    """Fields of earlier versions, which are passed over where a file has them."""

    @model_validator(mode="before")
    @classmethod
    def _drop_retired(cls, data: Any) -> Any:
        if not cls.retired or not is_read_from_file() or not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if name not in cls.retired}

    def __init__(self, **data: Any) -> None:
        if _inside_a_record.get():  # pydantic collects the messages of nested records itself
            super().__init__(**data)
            return
        token = _inside_a_record.set(True)
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise _in_house_form(type(self), error) from None
        finally:
            _inside_a_record.reset(token)

    @classmethod
    def from_json(cls, text: str, *, source: str | None = None) -> Self:
        """Read a record that `model_dump_json` wrote, with mistakes reported as `InvalidInputError`.

        Args:
            text: The JSON text.
            source: What messages call the text, a file's path say; None means the record's name.

        Raises:
            InvalidInputError: If the text is not a JSON object, or a field breaks its rule.
        """
        name, repair = source or cls.__name__, "Restore the file from a copy."
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:  # numbers of 5,000 digits, brackets nested as deeply
            received = str(error).partition(";")[0]
            raise InvalidInputError(name, "must be valid JSON", received, repair) from None
        if not isinstance(fields, dict):
            raise InvalidInputError(name, "must be a JSON object", type(fields).__name__, repair)
        token = _of_file.set(True)
        try:
            return cls(**fields)
        except RecursionError:
            raise InvalidInputError(
                name, "must be valid JSON", "brackets nested too deeply", repair
            ) from None
        except InvalidInputError as error:
            if source is None:
                raise
            raise InvalidInputError(
                f"{source}: {error.argument}", error.rule, error.received, error.repair
            ) from None
        finally:
            _of_file.reset(token)


class ComponentConfig(Record):
    """Describes one component: its fields are the constructor's keywords, its target the class to build.

    Subclasses give `target` and a field `kind` whose only value is the component's name; the union of all
    configs of one kind of component is what the command line offers and the contract tests run over.
    """

    target: ClassVar[str]
    trains: ClassVar[bool] = True
    """Whether a model with it can be trained; what cannot is the part of a model that was trained with another."""
    references: ClassVar[tuple[str, ...]] = ()
    """Keys in `references.bib` of what to cite for it beyond the paper of the discrete VAE."""


def instantiate(config: ComponentConfig, **context: Any) -> Any:
    """Import the class that a config names and build it.

    Args:
        config: The component's config; every field but `kind` becomes a keyword of the constructor.
        context: Further keywords that the surroundings know and the config does not (sizes of the data, say).

    Returns:
        The component.

    Examples:
        >>> from discrete_vae.config import RBMConfig
        >>> instantiate(RBMConfig(num_left=3, num_right=2)).num_units
        5
    """
    module_name, _, class_name = config.target.partition(":")
    component = getattr(importlib.import_module(module_name), class_name)
    fields = {name: getattr(config, name) for name in type(config).model_fields if name != "kind"}
    return component(**fields, **context)


def _in_house_form(record: type[Record], error: ValidationError) -> InvalidInputError:
    """Turn pydantic's first message into the house's form."""
    first = error.errors(include_url=False)[0]
    path = ".".join([record.__name__, *(str(part) for part in first["loc"])])
    kind, context = first["type"], first.get("ctx", {})
    received = f"{first['input']!r}"[:80]
    more = f" {error.error_count() - 1} more problems follow." if error.error_count() > 1 else ""
    if kind == "value_error" and isinstance(context.get("error"), InvalidInputError):
        inner = context["error"]
        within = [record.__name__, *(str(part) for part in first["loc"])]
        if within[-1] == inner.argument:  # a field's own rule names it too
            within.pop()
        path = ".".join([*within, inner.argument])
        return InvalidInputError(path, inner.rule, inner.received, inner.repair + more)
    if kind == "extra_forbidden":
        names = ", ".join(name for name in record.model_fields if name != "kind")
        return InvalidInputError(
            path, "is not a known field", received, f"{record.__name__} has: {names}.{more}"
        )
    if kind == "missing":
        return InvalidInputError(path, "must be given", "nothing", f"Add the field.{more}")
    if kind in {"union_tag_invalid", "union_tag_not_found"}:
        allowed = context.get("expected_tags", "its known names")
        return InvalidInputError(
            f"{path}.kind",
            f"must be one of {allowed}",
            context.get("tag", received),
            f"Use one of these.{more}",
        )
    return InvalidInputError(path, rule_of(first), received, f"Change the value.{more}")
