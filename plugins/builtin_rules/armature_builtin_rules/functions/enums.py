"""Members of enums, looked up by calling the class."""

from __future__ import annotations

import enum

from armature.plugin_api import Call, ClassValue, Value, find_in_class, handles, is_trusted
from armature_builtin_rules.enum_values import rely_on_member


@handles(enum.EnumType.__call__)
def member(call: Call, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    """`cls(value)`: the member with that value, or the result of `_missing_` if there is none."""
    if kwargs or len(args) != 1 or not isinstance(cls, ClassValue):
        call.graph_break("enum-call", type=cls.describe())
    kind = cls.cls
    if args[0].is_constant:
        rely_on_member(call.tracing, kind, "_value2member_map_", args[0])
        missing = find_in_class(kind, "_missing_")
        if missing is not None and not is_trusted(missing.holder) and not is_value(kind, args[0].as_constant()):
            made = cls.get_attribute(call.tracing, "_missing_").call(call.tracing, args, {})
            if isinstance(made.python_type(), type) and issubclass(made.python_type(), kind):
                return made
            call.graph_break("enum-missing", type=cls.describe())
    return call.fold(kind, args[0].as_constant())


def is_value(cls: type[enum.Enum], wanted: object) -> bool:
    """Whether an enum has a member of this value."""
    return isinstance(wanted, cls) or any(held._value_ == wanted for held in cls.__members__.values())
