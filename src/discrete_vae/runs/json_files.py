"""JSON objects in files: written atomically, read with mistakes reported as `InvalidInputError`; a run's schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from discrete_vae.config.messages import rule_of
from discrete_vae.errors import InvalidInputError
from discrete_vae.runs.atomic import write_text
from discrete_vae.runs.regular_files import read_regular


def to_json(name: str, fields: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Serialize an object to strict JSON.

    Args:
        name: What it is, for the message.
        fields: Strings, booleans, None, finite numbers, and lists and mappings of these.
        indent: Spaces per level; None writes one line.

    Raises:
        InvalidInputError: If it holds NaN, an infinity or something else that JSON cannot express.

    Examples:
        >>> to_json("metrics", {"elbo": -81.5})
        '{"elbo": -81.5}'
    """
    try:
        return json.dumps(fields, indent=indent, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            name,
            "must hold only what JSON can express",
            str(error),
            "Convert the value, or check it for NaN first.",
        ) from None


def json_text(name: str, fields: Mapping[str, Any]) -> str:
    """An object as the text of a file: indented, with a line's end.

    Raises:
        InvalidInputError: See `to_json`.
    """
    return to_json(name, fields, indent=2) + "\n"


def write_json(path: Path, fields: Mapping[str, Any]) -> None:
    """Write an object as indented JSON, atomically.

    Raises:
        InvalidInputError: See `to_json`.
        OSError: If the file cannot be written.
    """
    write_text(path, json_text(path.name, fields))


def parse_json(content: bytes) -> Any:
    """Parse strict JSON in UTF-8.

    Args:
        content: The whole text.

    Raises:
        ValueError: If it is anything else: NaN, a number too long for Python, brackets nested too deeply, say.

    Examples:
        >>> parse_json(b'{"step": 3}')
        {'step': 3}
        >>> parse_json(b"[" * 100_000)
        Traceback (most recent call last):
        ValueError: brackets nested too deeply
    """
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("brackets nested too deeply") from None


def read_json(
    path: Path, schema: type[Schema] | None = None, *, repair: str = "Restore the file from a copy."
) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.
        schema: What the object must hold; None takes any.
        repair: What the message recommends.

    Raises:
        InvalidInputError: If the file is missing, unreadable, or holds anything but one JSON object of that form.
    """
    try:
        fields = parse_json(read_regular(path))
    except OSError as error:
        received = error.strerror or str(error)
        repair = "Check its permissions." if isinstance(error, PermissionError) else repair
        raise InvalidInputError(str(path), "must be a readable file", received, repair) from None
    except ValueError as error:  # broken UTF-8 and broken JSON both
        received = str(error).partition(";")[0]  # Python goes on with advice to programmers
        raise InvalidInputError(str(path), "must hold valid JSON", received, repair) from None
    if not isinstance(fields, dict):
        raise InvalidInputError(str(path), "must hold a JSON object", type(fields).__name__, repair)
    if schema is not None:
        check_fields(str(path), fields, schema, repair=repair)
    return fields


def check_fields(name: str, fields: Mapping[str, Any], schema: type[Schema], *, repair: str) -> None:
    """Check that an object holds what it must.

    Args:
        name: What it is, for the message.
        fields: The object.
        schema: What it must hold.
        repair: What the message recommends.

    Raises:
        InvalidInputError: If a field is missing or has another type; names the first.

    Examples:
        >>> check_fields("log", {"step": 1, "elbo": "x"}, MetricsSchema, repair="Restore it.")
        Traceback (most recent call last):
        discrete_vae.errors.InvalidInputError: log, field 'elbo', must be a number; received 'x'. Restore it.
    """
    try:
        schema.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        missing = first["type"] == "missing"
        received = "nothing" if missing else f"{first['input']!r}"[:80]
        place = f"{name}, field {'.'.join(map(str, first['loc']))!r},"
        raise InvalidInputError(
            place, "must be there" if missing else rule_of(first), received, repair
        ) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")


_Step = Annotated[int, Field(ge=0, lt=2**63)]
_Number = Annotated[float, Field(ge=-1e100, le=1e100)]
_NonNegative = Annotated[float, Field(ge=0, le=1e100)]
_Count = Annotated[int, Field(ge=1, lt=2**63)]


class Schema(BaseModel):
    """What a JSON object must hold; it may hold more."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, protected_namespaces=())


class MetricsSchema(Schema):
    """A line of ``metrics.jsonl``: its step, and words and numbers."""

    __pydantic_extra__: dict[str, _Number | str]  # pyright: ignore[reportIncompatibleVariableOverride]
    step: _Step
    epoch: _NonNegative = 0.0
    seconds: _NonNegative = 0.0
    elbo: _Number = 0.0
    reconstruction: _Number = 0.0
    kl_discrete: _Number = 0.0
    kl_continuous: _Number = 0.0
    beta: _Number = 0.0
    log_partition: _Number = 0.0
    log_partition_std_error: _NonNegative = 0.0
    validation_elbo: _Number = 0.0
    validation_elbo_std_error: _NonNegative = 0.0
    validation_score: _Number = 0.0


class _Estimate(Schema):
    value: _Number
    std_error: _NonNegative | None


class _Likelihood(_Estimate):
    num_examples: _Count
    num_samples: _Count


class _LogPartition(Schema):
    value: _Number
    std_error: _NonNegative
    method: str


class _Elbo(Schema):
    elbo: _Number
    elbo_std_error: _NonNegative | None
    reconstruction: _Number
    kl_discrete: _Number
    kl_continuous: _Number
    num_examples: _Count


class _LogPartitions(Schema):
    best: _LogPartition
    forward: _LogPartition | None = None
    reverse: _LogPartition | None = None


class _EvaluationSettings(Schema):
    num_samples: _Count
    num_examples: _Count | None
    seed: int


class ResultSchema(Schema):
    """What results of a run have in common."""

    step: _Step
    checkpoint_sha256: str | None = None
    sha256: str | None = None
    changed_config: dict[str, Any] | None = None


class EvaluationSchema(ResultSchema):
    """A result of `dvae evaluate`, as in ``evaluation.json`` and ``evaluations``."""

    data: str
    data_sha256: str | None = None
    config: _EvaluationSettings
    log_likelihood: _Likelihood
    log_likelihood_limit: _Likelihood | None = None
    elbo: _Elbo
    log_partition: _LogPartitions
    independent_features: _Estimate | None = None


class _LogPartitionSettings(Schema):
    std_error: _Number | None = None
    seed: int | None = None


class LogPartitionSchema(ResultSchema):
    """A result of `dvae log-partition`, as in ``log_partition.json`` and ``log_partitions``."""

    estimates: Annotated[list[_LogPartition], Field(min_length=1)]
    exact: _Number | None
    config: _LogPartitionSettings | None = None


class ReleaseSchema(Schema):
    """``release.json``."""

    precision: str
    num_examples: _Count
    difference: _Number
    difference_std_error: _NonNegative


def _check_axes(shape: list[int]) -> list[int]:
    if len(shape) not in (1, 3):
        raise ValueError("must have one or three axes")
    return shape


class _Picture(Schema):
    event_shape: Annotated[list[_Count], AfterValidator(_check_axes)]
    low: _Number
    high: _Number


class _Data(Schema):
    name: str | None = None
    source: str | None = None
    split: str | None = None
    sha256: str | None = None
    columns: list[str] | None = None
    picture: _Picture | None = None


class _Device(Schema):
    type: str | None = None
    name: str | None = None


class _Commit(Schema):
    hash: str | None = None
    modified: bool | None = None


class _Platform(Schema):
    torch_threads: _Count | None = None


class EnvironmentSchema(Schema):
    """``environment.json``; earlier versions leave out what has a default."""

    discrete_vae: str | None = None
    packages: dict[str, str] = {}
    commit: _Commit | None = None
    device: _Device = _Device()
    platform: _Platform = _Platform()
    data: _Data = _Data()
    precision: Literal["float32", "bfloat16"] = "float32"  # what runs had before there was a choice
