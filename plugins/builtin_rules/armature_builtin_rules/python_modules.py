"""Python modules: their attributes, as far as they are in the module's dict."""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable
from types import FunctionType, ModuleType
from typing import NoReturn

import attrs

from armature.plugin_api import (
    AttrSource,
    DictOfSource,
    Rebuilding,
    Source,
    Tracing,
    TypeOfSource,
    Value,
    ValueType,
    find_in_class,
    is_data_descriptor,
    is_trusted,
    made_inside,
    object_source,
    rely_on_class,
)

CHANGING = frozenset({"sys", "time"})  # library modules whose attributes a program may replace
SETTINGS = (bool, int, float, str, type(None))
OWN_PACKAGE = "armature"  # it imports its public names lazily


def is_replacement(obj: object) -> bool:
    """Whether a function or class found in a trusted module comes from elsewhere: a program has put it there."""
    if isinstance(obj, FunctionType):  # functools.wraps copies `__module__`
        return not is_trusted(sys.modules.get(str(obj.__globals__.get("__name__"))))
    return isinstance(obj, type) and not is_trusted(obj)


@attrs.define(eq=False)
class PythonModuleValue(Value):
    """A Python module, such as `torch` or `math` in a global."""

    module: ModuleType
    read: dict[str, Value] = attrs.field(factory=dict)

    slots = frozenset({"__hash__"})

    def python_type(self) -> type:
        return type(self.module)

    def describe(self) -> str:
        return f"module {self.module.__dict__.get('__name__')}"

    def as_object(self) -> ModuleType:
        return self.module

    def key(self, tracer: Tracing) -> Hashable:
        return self.module

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        """An attribute in the module's dict; for a library module also one that it makes on demand."""
        stored = tracer.effects.global_of(self.module.__dict__, name)
        if stored is not None and stored[1] is None:
            tracer.graph_break("globals-after-change", dict=f"{self.describe()}.__dict__")
        known = self.read.get(name) if stored is None else stored[1]
        if known is not None:
            return known
        trusted = is_trusted(self.module)
        if not trusted:
            self._rely_on_lookup(tracer, name)
        if name in self.module.__dict__:
            obj = self.module.__dict__[name]
        elif self.source is not None and not trusted and is_function_of_class(type(self.module), name):
            tracer.guards.absent(DictOfSource(self.source), name)
            self.read[name] = value = tracer.python.class_attribute(self, type(self.module), name)
            return value
        elif (trusted or self.module.__name__ == OWN_PACKAGE) and hasattr(self.module, name):
            obj = getattr(self.module, name)
            if trusted and isinstance(obj, SETTINGS):  # computed by a property, so it may be different next time
                if not made_inside(tracer, (self.module, name), obj):
                    tracer.guards.answers(functools.partial(getattr, self.module, name), (), {}, obj)
                return tracer.as_value(obj)
        else:
            return self._missing(tracer, name, trusted)
        source: Source
        if trusted and self.module.__name__ in CHANGING and not callable(obj):
            source = AttrSource(object_source(self.module), name)
        elif trusted and is_replacement(obj):  # the module's own may be put back
            source = AttrSource(object_source(self.module), name)
            tracer.guards.same(source, obj)
        elif trusted or self.source is None:
            source = object_source(obj, f"{self.module.__name__}.{name}")
        else:
            source = AttrSource(self.source, name)
        self.read[name] = value = tracer.objects.wrap(obj, source)
        return value

    def _rely_on_lookup(self, tracer: Tracing, name: str) -> None:
        """Guard that the name is looked up in the module's dict first, because a program may change a module's
        class."""
        kind = type(self.module)
        if self.source is not None:
            tracer.guards.same(TypeOfSource(self.source), kind)
        if kind is ModuleType:
            return
        rely_on_class(tracer, kind, name, "__getattribute__")
        lookup, found = find_in_class(kind, "__getattribute__"), find_in_class(kind, name)
        own = lookup is not None and lookup.holder is not ModuleType
        if own or (found is not None and found.holder is not object and is_data_descriptor(found.obj)):
            tracer.graph_break("module-with-lookup", name=name, type=self.describe())

    def _missing(self, tracer: Tracing, name: str, trusted: bool) -> Value:
        """What `__getattr__` of the module or of its class returns, guarded; AttributeError if there is neither."""
        if trusted:
            self._raise_missing(tracer, name)
        kind, held = type(self.module), self.module.__dict__
        in_class = find_in_class(kind, "__getattr__") is not None
        if find_in_class(kind, name) is not None or ("__getattr__" in held and in_class):  # the class's follows
            tracer.graph_break("module-with-lookup", name=name, type=self.describe())
        rely_on_class(tracer, kind, "__getattr__", name)
        names = DictOfSource(self.source or object_source(self.module))
        tracer.guards.absent(names, name)
        if "__getattr__" in held:
            lookup = self.get_attribute(tracer, "__getattr__")
        else:
            tracer.guards.absent(names, "__getattr__")
            if not in_class:
                self._raise_missing(tracer, name)
            lookup = tracer.python.class_attribute(self, kind, "__getattr__")
        return lookup.call(tracer, (tracer.constant(name),), {})

    def _raise_missing(self, tracer: Tracing, name: str) -> NoReturn:
        tracer.raise_error(AttributeError, f"module '{self.module.__name__}' has no attribute '{name}'")

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        found = find_in_class(type(self.module), name)
        if found is not None and is_trusted(self.module) and isinstance(setter(found.obj), FunctionType):
            property_of_class = tracer.objects.wrap(found.obj, object_source(found.obj))
            property_of_class.get_attribute(tracer, "__set__").call(tracer, (self, value), {})
            return
        if type(self.module) is not ModuleType or is_trusted(self.module):
            tracer.graph_break("sets-library-attribute", name=name, type=self.describe())
        tracer.python.store_global(self.module.__dict__, name, value)

    def rebuild(self, out: Rebuilding) -> None:
        out.constant(self.module)


def is_function_of_class(kind: type, name: str) -> bool:
    """Whether a module's class, one of the program's own, has a function of the name."""
    found = find_in_class(kind, name)
    return found is not None and isinstance(found.obj, (FunctionType, staticmethod, classmethod))


def setter(obj: object) -> object:
    """The function that an object's class calls where an attribute that the object describes is set."""
    found = find_in_class(type(obj), "__set__")
    return None if found is None else found.obj


def of_program(module: ModuleType, source: Source, tracer: Tracing) -> Value:
    """A module of the program."""
    tracer.guards.same(source, module)
    return PythonModuleValue(module, source=source)


VALUE_TYPES = (ValueType(ModuleType, of_program, derived=True),)
