"""Classes made in a traced function.

The body is traced. The class itself is real, made while tracing, so that Python's own rules for classes hold; what
its attributes hold are stand-ins where tracing has values, and the tracer knows the value of each by its identity.
Such a class does not leave the frame: it could not be made again.
"""

from __future__ import annotations

import abc
import enum
import functools
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

import attrs

from armature.trace import inline
from armature.trace.errors import NotConstant
from armature.trace.places import places_of
from armature.trace.trust import is_trusted
from armature.trace.values.base import Value
from armature.trace.values.classes import ClassValue, find_in_class
from armature.trace.values.function import CellValue, ClosureValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.capture import Tracer
    from armature.trace.places import Place
    from armature.trace.rebuild import Rebuilder

METACLASSES: frozenset[type] = frozenset({type, abc.ABCMeta, enum.EnumMeta})


@attrs.define(eq=False)
class LocalClassValue(ClassValue):
    """A class that the frame has made. made_at: where."""

    made_at: tuple[Place, ...] = ()

    def set_attribute(self, tracer: Tracer, name: str, value: Value) -> None:
        check_descriptor(tracer, value)
        type.__setattr__(self.cls, name, stand_in(tracer, value))

    def rebuild(self, out: Rebuilder) -> None:
        out.cannot(self)


class StandIn:
    """Stands in a class for a value of the tracer."""


def build_class(tracer: Tracer, body: Value, name: Value, *bases: Value, **keywords: Value) -> Value:
    """`builtins.__build_class__`."""
    made_at = places_of(tracer.frames)
    metaclass = keywords.pop("metaclass", None)
    classes = tuple(base.cls for base in bases if isinstance(base, ClassValue))
    kind = metaclass.cls if isinstance(metaclass, ClassValue) else type(classes[0]) if classes else type
    if not isinstance(body, ClosureValue) or len(classes) < len(bases) or keywords or kind not in METACLASSES:
        tracer.graph_break("unsupported-call", callable=f"the metaclass of class {name.as_constant()}")
    for base in classes:
        hook = find_in_class(base, "__init_subclass__")
        if hook is not None and not is_trusted(hook.holder):
            tracer.graph_break("unsupported-call", callable=f"{base.__qualname__}.__init_subclass__")
    frame = inline.new_frame(tracer, body.code, body.namespace, globals_source(tracer, body), {}, body.cells)
    inline.run_frame(tracer, frame)
    cell = frame.variables.pop("__classcell__", None)
    namespace = kind.__prepare__(str(name.as_constant()), classes)
    for attribute, value in frame.variables.items():
        check_descriptor(tracer, value)
        namespace[attribute] = stand_in(tracer, value)
    try:
        made = kind(str(name.as_constant()), classes, namespace)
    except (TypeError, ValueError) as error:
        tracer.raise_real(error)
    result = tracer.remember(made, LocalClassValue(made, made_at=made_at))
    if isinstance(cell, CellValue):
        cell.content = result
    return result


def check_descriptor(tracer: Tracer, value: Value) -> None:
    """A stand-in is no descriptor, and of the program's objects none may hear of a class that only tracing makes."""
    if not isinstance(value, UserObjectValue):
        return
    names = ("__set_name__",) if value.obj is not None else ("__set_name__", "__get__", "__set__", "__delete__")
    if value.cls not in DESCRIPTORS and any(find_in_class(value.cls, name) is not None for name in names):
        tracer.graph_break("unsupported-operation", operation="making a class with it", type=value.describe())


def globals_source(tracer: Tracer, body: ClosureValue) -> Any:
    """Source of the globals that a body reads."""
    return inline.namespace_source(tracer, body.namespace, body.namespace.get("__name__"))


def stand_in(tracer: Tracer, value: Value) -> Any:
    """The object that stands in a class for a value: the very object where there is one."""
    if isinstance(value, ClosureValue):
        return tracer.remember_value(function_like(tracer, value), value)
    if isinstance(value, DictValue):  # annotations
        return {str(key.as_constant()): stand_in(tracer, item) for key, item in value.realise(tracer).values()}
    if value.is_constant or not value.mutable or isinstance(value, UserObjectValue):
        try:
            return value.as_object()
        except NotConstant:
            pass
    try:
        found = value.as_constant()
        hash(found)
    except (NotConstant, TypeError):
        return tracer.remember_value(StandIn(), value)
    return found


def function_like(tracer: Tracer, value: ClosureValue) -> FunctionType:
    """A function of the same code and parameters. It is never called."""
    cells = tuple(CellType() for _ in value.code.co_freevars)
    defaults = tuple(stand_in(tracer, default) for default in value.defaults)
    made = FunctionType(value.code, value.namespace, value.code.co_name, defaults or None, cells)
    made.__kwdefaults__ = {name: stand_in(tracer, item) for name, item in value.keyword_defaults.items()} or None
    return made


def descriptor(kind: Any) -> Any:
    """How `property(...)` and its kind are called on functions that the frame has made."""

    def make(tracer: Tracer, *args: Value, **kwargs: Value) -> Value:
        plain = [stand_in(tracer, arg) for arg in args]
        made = kind(*plain, **{name: stand_in(tracer, value) for name, value in kwargs.items()})
        return tracer.remember(made, UserObjectValue(kind, made))

    return make


def property_part(name: str) -> Any:
    """`property.setter` and its kind."""

    def make(tracer: Tracer, owner: Value, function: Value) -> Value:
        made = getattr(owner.as_object(), name)(stand_in(tracer, function))
        return tracer.remember(made, UserObjectValue(property, made))

    return make


DESCRIPTORS: dict[Any, Any] = {
    **{kind: descriptor(kind) for kind in (property, staticmethod, classmethod, functools.cached_property)},
    property.setter: property_part("setter"),
    property.getter: property_part("getter"),
    property.deleter: property_part("deleter"),
}
