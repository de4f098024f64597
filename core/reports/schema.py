"""The JSON form of a record, and the schema that describes it: both are derived from the classes of `record`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import attrs

from armature.errors import ArmatureError
from armature.reports import record
from armature.reports.record import FORMAT, Recording

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


class NotARecord(ArmatureError):
    """A file that should hold a record holds something else."""

    code = "A240"
    text = "{path} is no record of this version: {problem}"
    hint = "Make it again with `armature explain SCRIPT --json {path}`."


def as_data(recording: Recording) -> dict[str, Any]:
    """The record as objects that JSON can represent."""
    return attrs.asdict(recording, value_serializer=lambda _, __, value: str(value) if _is_enum(value) else value)


def as_json(recording: Recording) -> str:
    """The record as a JSON text."""
    return json.dumps(as_data(recording), indent=1, allow_nan=False)


def _is_enum(value: object) -> bool:
    return isinstance(value, StrEnum)


def schema() -> dict[str, Any]:
    """The JSON schema of a record."""
    defined: dict[str, Any] = {}
    top = _of_class(Recording, defined)
    return {"$schema": DIALECT, "title": "A run recorded by armature", **top, "$defs": dict(sorted(defined.items()))}


def _of_class(cls: type[Any], defined: dict[str, Any]) -> dict[str, Any]:
    hints = hints_of(cls)
    fields = {}
    for field in attrs.fields(cls):
        fields[field.name] = _of_type(hints[field.name], defined) | {"description": field.metadata["help"]}
    return {
        "type": "object",
        "description": (cls.__doc__ or "").strip(),
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _of_type(kind: Any, defined: dict[str, Any]) -> dict[str, Any]:
    if kind in NAMES:
        return {"type": NAMES[kind]}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _of_type(get_args(kind)[0], defined)}
    if isinstance(kind, UnionType):
        return {"anyOf": [_of_type(part, defined) for part in get_args(kind)]}
    if issubclass(kind, StrEnum):
        return {"type": "string", "enum": [str(member) for member in kind]}
    if kind.__name__ not in defined:
        defined[kind.__name__] = {}
        defined[kind.__name__] = _of_class(kind, defined)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def hints_of(cls: type[Any]) -> dict[str, Any]:
    """The types of a class's fields."""
    return get_type_hints(cls, vars(record))


def from_json(text: str, path: object = "the text") -> Recording:
    """Read a record from its JSON text. Errors: NotARecord."""
    try:
        data = json.loads(text)
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise TypeError(f"its format is not {FORMAT}")
        made: Recording = _from_data(Recording, data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NotARecord(path=path, problem=f"{type(error).__name__}: {error}") from error
    return made


def _from_data(kind: Any, value: Any) -> Any:
    if isinstance(kind, UnionType):
        kind = next((part for part in get_args(kind) if (part is NoneType) == (value is None)), kind)
    if kind in NAMES:
        if not isinstance(value, (int, float) if kind is float else kind):
            raise TypeError(f"{value!r:.60} stands where {NAMES[kind]} is to be")
        return value
    if get_origin(kind) is tuple:
        return tuple(_from_data(get_args(kind)[0], item) for item in value)
    if issubclass(kind, StrEnum):
        return kind(value)
    hints = hints_of(kind)
    return kind(**{name: _from_data(hints[name], item) for name, item in value.items()})
