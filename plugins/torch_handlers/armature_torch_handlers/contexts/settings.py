"""Contexts that change settings of torch.compile: they do not affect armature.

The modules of exported programs check their inputs in such a context.
"""

from __future__ import annotations

import attrs

from armature.plugin_api import (
    Args,
    ClassValue,
    Kwargs,
    Source,
    Tracing,
    Value,
    ValueType,
)
from armature_torch_handlers.contexts.nothing import NullContextValue

MODULE = "torch._dynamo.decorators"  # may not be imported yet
NAMES = frozenset({"DynamoConfigPatchProxy", "ErrorOnGraphBreakDecoratorContextManager"})


def is_setting(kind: object) -> bool:
    """Whether an object is a class of contexts that only change settings of torch.compile."""
    if not issubclass(type(kind), type) or not isinstance(kind, type):  # a proxy may claim to be a class
        return False
    return kind.__module__ == MODULE and kind.__name__ in NAMES


def changes_settings(obj: object) -> bool:
    """Whether an object is a context that only changes settings of torch.compile."""
    return is_setting(type(obj))


@attrs.define(eq=False)
class SettingValue(NullContextValue):
    """A context that only changes settings of torch.compile, which armature does not read: entering it does nothing."""

    def enter(self, tracer: Tracing) -> Value:
        return tracer.constant(None)

    def clone(self) -> Value:
        return SettingValue(self.kind, args=self.args, kwargs=self.kwargs)


def of_program(obj: object, source: Source, tracer: Tracing) -> Value:
    """The value of such a context that was made before the frame."""
    return SettingValue(type(obj), source=source)


@attrs.define(eq=False)
class SettingClass(ClassValue):
    """A class of such contexts; calling it makes a context that does nothing."""

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        return SettingValue(self.cls, args=args, kwargs=kwargs)


def class_of_program(obj: type, source: Source, tracer: Tracing) -> Value:
    """The class, for a context made by the program."""
    tracer.guards.same(source, obj)
    return SettingClass(obj, source=source)


VALUE_TYPES = (ValueType(changes_settings, of_program), ValueType(is_setting, class_of_program))
