"""Classes made in a traced function.

The body is traced. The class itself is real, made while tracing, so that Python's own rules for classes hold; what
its attributes hold are stand-ins where tracing has values, and the tracer knows the value of each by its identity.
Such a class does not leave the frame: it could not be made again.
"""

from __future__ import annotations

import abc
import enum
import functools
from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from armature.trace.places import places_of
from armature.trace.semantics import inlining
from armature.trace.trust import is_trusted
from armature.trace.values.base import Kwargs, NotConstant, Value
from armature.trace.values.classes import ClassValue, SuperValue, find_in_class
from armature.trace.values.function import CellValue, ClosureValue
from armature.trace.values.mapping import DictValue, namespace_of
from armature.trace.values.sequence import TupleValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace
    from armature.trace.places import Place
    from armature.trace.values.base import Rebuilding, Tracing

METACLASSES: frozenset[type] = frozenset({type, abc.ABCMeta, enum.EnumMeta})
# Methods of a metaclass that making and handling a class for real would run.
RUN_BY_PYTHON = (
    "__prepare__", "__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__eq__", "__hash__", "mro",
    "__instancecheck__", "__subclasscheck__", "__dir__", "__set_name__", "__init_subclass__",
)  # fmt: skip


@attrs.define(eq=False)
class LocalClassValue(ClassValue):
    """A class that the frame has made. made_at: where."""

    made_at: tuple[Place, ...] = ()

    local: ClassVar[bool] = True

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        check_descriptor(tracer, value)
        held = find_in_class(type(self.cls), name)
        if held is not None and not is_trusted(held.holder):
            tracer.graph_break("unsupported-mutation", operation=f"setting attribute {name}", type=self.describe())
        type.__setattr__(self.cls, name, stand_in(tracer, value))

    def rebuild(self, out: Rebuilding) -> None:
        out.cannot(self)


class StandIn:
    """Stands in a class for a value of the tracer."""


def build_class(tracer: Trace, body: Value, name: Value, *bases: Value, **keywords: Value) -> Value:
    """`builtins.__build_class__`."""
    metaclass = keywords.pop("metaclass", None)
    classes = tuple(base.cls for base in bases if isinstance(base, ClassValue))
    kind = winner(tracer, metaclass, classes)
    if not isinstance(body, ClosureValue) or len(classes) < len(bases) or not can_make(kind):
        tracer.graph_break("unsupported-call", callable=f"the metaclass of class {name.as_constant()}")
    frame = inlining.new_frame(tracer, body.code, body.namespace, globals_source(tracer, body), {}, body.cells)
    inlining.run_frame(tracer, frame)
    if kind in METACLASSES:
        return make_class(tracer, kind, kind, str(name.as_constant()), classes, frame.variables, keywords)
    cell = frame.variables.get("__classcell__")
    given = (name, TupleValue(list(bases)), namespace_of(tracer, frame.variables))
    made = tracer.as_value(kind).call(tracer, given, keywords)
    if isinstance(cell, CellValue) and cell.content is not made:
        tracer.graph_break("unsupported-call", callable=f"a metaclass that drops the cell of {name.as_constant()}")
    return made


def winner(tracer: Trace, metaclass: Value | None, classes: tuple[type, ...]) -> type:
    """The most derived metaclass; where there is none, the first: what makes the class says so."""
    if metaclass is not None and not isinstance(metaclass, ClassValue):
        tracer.graph_break("unsupported-call", callable=f"{metaclass.describe()} as a metaclass")
    kind = type(classes[0]) if metaclass is None and classes else type
    kind = metaclass.cls if metaclass is not None else kind
    for base in classes:
        kind = type(base) if issubclass(type(base), kind) else kind
    return kind


def can_make(kind: type) -> bool:
    """Whether a class can be made by the methods of the metaclass that are traced, while nothing of it runs."""
    if kind in METACLASSES:
        return True
    own = [base for base in kind.__mro__ if base not in (object, *METACLASSES)]
    plain = type(kind) is type and enum.EnumMeta not in kind.__mro__ and not any(map(is_trusted, own))
    return plain and not any(name in base.__dict__ for base in own for name in RUN_BY_PYTHON)


def has_hook(base: type) -> bool:
    """Whether making a class with this base runs code of the program."""
    found = find_in_class(base, "__init_subclass__")
    return found is not None and not is_trusted(found.holder)


class Quiet:
    """Goes before the bases of a class while it is made: their `__init_subclass__` is traced instead."""

    def __init_subclass__(cls, **keywords: object) -> None:
        pass


def make_class(
    tracer: Trace,
    maker: Callable[..., Any],
    kind: type,
    name: str,
    classes: tuple[type, ...],
    variables: Mapping[str, Value],
    keywords: Kwargs,
) -> Value:
    """A class of these attributes, made by `maker`: the metaclass itself, or its `__new__` with the metaclass bound."""
    made_at = places_of(tracer.frames)
    traced = any(map(has_hook, classes))
    if "__subclasshook__" in variables and kind is not type:
        tracer.graph_break("unsupported-call", callable=f"__subclasshook__ of class {name}")
    if (traced and issubclass(kind, enum.EnumMeta)) or (keywords and not traced):
        tracer.graph_break("unsupported-call", callable=f"__init_subclass__ of class {name}")
    try:
        namespace: Any = kind.__prepare__(name, classes) if kind in METACLASSES else {}
    except TypeError as error:  # of an enum with members
        tracer.raise_real(error)
    for attribute, value in variables.items():
        if attribute != "__classcell__":
            check_descriptor(tracer, value)
            namespace[attribute] = stand_in(tracer, value)
    try:
        made = maker(name, (Quiet, *classes) if traced else classes, namespace)
        if traced:
            made.__bases__ = classes
    except (TypeError, ValueError) as error:
        if traced:
            tracer.graph_break("unsupported-call", callable=f"__init_subclass__ of class {name}")
        tracer.raise_real(error)
    result = tracer.remember(made, LocalClassValue(made, made_at=made_at))
    cell = variables.get("__classcell__")
    if isinstance(cell, CellValue):
        cell.content = result
    if traced:
        SuperValue(made, result).get_attribute(tracer, "__init_subclass__").call(tracer, (), keywords)
    return result


def type_new(maker: Any) -> Any:
    """`type.__new__`, or that of `ABCMeta`."""

    def make(tracer: Trace, kind: Value, name: Value, bases: Value, namespace: Value, **keywords: Value) -> Value:
        classes = [base.cls for base in tracer.unpack(bases) if isinstance(base, ClassValue)]
        if not isinstance(kind, ClassValue) or not isinstance(namespace, DictValue) or not can_make(kind.cls):
            tracer.graph_break("unsupported-call", callable=f"{kind.describe()}, to make a class,")
        if len(classes) < bases.length(tracer) or winner(tracer, kind, tuple(classes)) is not kind.cls:
            tracer.graph_break("unsupported-call", callable=f"the metaclass of class {name.as_constant()}")
        entries = namespace.realise(tracer).values()
        variables = {str(key.as_constant()): value for key, value in entries}
        module = tracer.frames[-1].namespace.get("__name__")
        variables.setdefault("__module__", tracer.as_value(module))
        bound = functools.partial(maker, kind.cls)
        return make_class(tracer, bound, kind.cls, str(name.as_constant()), tuple(classes), variables, keywords)

    return make


def check_descriptor(tracer: Tracing, value: Value) -> None:
    """A stand-in is no descriptor, and of the program's objects none may hear of a class that only tracing makes."""
    if not isinstance(value, UserObjectValue):
        return
    names = ("__set_name__",) if value.obj is not None else ("__set_name__", "__get__", "__set__", "__delete__")
    if value.cls not in DESCRIPTORS and any(find_in_class(value.cls, name) is not None for name in names):
        tracer.graph_break("unsupported-operation", operation="making a class with it", type=value.describe())


def globals_source(tracer: Trace, body: ClosureValue) -> Any:
    """Source of the globals that a body reads."""
    return inlining.namespace_source(tracer, body.namespace, body.namespace.get("__name__"))


def stand_in(tracer: Tracing, value: Value) -> Any:
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


def function_like(tracer: Tracing, value: ClosureValue) -> FunctionType:
    """A function of the same code and parameters. It is never called."""
    cells = tuple(CellType() for _ in value.code.co_freevars)
    defaults = tuple(stand_in(tracer, default) for default in value.defaults)
    made = FunctionType(value.code, value.namespace, value.code.co_name, defaults or None, cells)
    abstract = value.own_attribute(tracer, "__isabstractmethod__")
    if abstract is not None:
        made.__isabstractmethod__ = stand_in(tracer, abstract)  # type: ignore[attr-defined]
    made.__kwdefaults__ = {name: stand_in(tracer, item) for name, item in value.keyword_defaults.items()} or None
    return made


# What the descriptors of Python are made of, in the order in which they are called on it.
PARTS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel", "__doc__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
}


@attrs.define(eq=False)
class DescriptorValue(UserObjectValue):
    """A property or its kind that the frame has made: a real one, of stand-ins."""

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(self.cls)
        for name in PARTS[self.cls]:
            out.load(out.tracer.as_value(getattr(self.obj, name)))
        out.call(len(PARTS[self.cls]))
        out.hold(self)
        for name in self.written:
            value = self.attributes[name]
            if value is not None:
                out.set_attribute(self, name, value)


def descriptor(kind: Any) -> Any:
    """How `property(...)` and its kind are called on functions that the frame has made."""

    def make(tracer: Trace, *args: Value, **kwargs: Value) -> Value:
        plain = [stand_in(tracer, arg) for arg in args]
        try:
            made = kind(*plain, **{name: stand_in(tracer, value) for name, value in kwargs.items()})
        except TypeError as error:
            tracer.raise_real(error)
        return tracer.remember(made, DescriptorValue(kind, made))

    return make


def property_part(name: str) -> Any:
    """`property.setter` and its kind."""

    def make(tracer: Trace, owner: Value, function: Value) -> Value:
        made = getattr(owner.as_object(), name)(stand_in(tracer, function))
        return tracer.remember(made, DescriptorValue(property, made))

    return make


DESCRIPTORS: dict[Any, Any] = {
    **{kind: descriptor(kind) for kind in PARTS},
    property.setter: property_part("setter"),
    property.getter: property_part("getter"),
    property.deleter: property_part("deleter"),
}
MAKERS: dict[Any, Any] = {maker: type_new(maker) for maker in (type.__new__, abc.ABCMeta.__new__)}
