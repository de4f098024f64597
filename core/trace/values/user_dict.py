"""Instances of subclasses of dict, and the `__dict__` of objects: dicts that are one with an object of the program."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from armature.trace.values.base import Args, Kwargs, Value
from armature.trace.values.classes import inherits
from armature.trace.values.mapping import DICT_METHODS, DictValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.capture import Tracer
    from armature.trace.rebuild import Rebuilder

BASES: tuple[type, ...] = (collections.OrderedDict, collections.defaultdict, dict)  # the nearest first


def dict_base(cls: type) -> type:
    """The type written in C, dict or a subclass of it, that holds the items of instances of a class."""
    return next(base for base in BASES if issubclass(cls, base))


def is_dict_class(cls: type) -> bool:
    """Whether a class is a subclass of dict that a program has written."""
    return issubclass(cls, dict) and cls not in BASES


@attrs.define(eq=False)
class HeldItemsValue(DictValue):
    """The items of an instance of a subclass of dict, `owner`, as methods of dict itself see them."""

    owner: UserObjectValue = attrs.field(kw_only=True)

    def rebuild(self, out: Rebuilder) -> None:
        out.load(self.owner)


@attrs.define(eq=False)
class UserDictValue(UserObjectValue):
    """An instance of a subclass of dict: attributes and overridden methods as of any object, items in `held`."""

    held: HeldItemsValue = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        real: Any = self.obj
        self.held = HeldItemsValue({}, dict_base(self.cls), None, real, source=self.source, owner=self)

    def get_item(self, tracer: Tracer, key: Value) -> Value:
        if not inherits(self.cls, "__getitem__", dict):
            return super().get_item(tracer, key)
        found = self.held.find(tracer, key)
        if found is None and (missing := self.method(tracer, "__missing__")) is not None:
            return tracer.call(missing, (key,), {})
        return found if found is not None else self.held.get_item(tracer, key)

    def rebuild(self, out: Rebuilder) -> None:
        base: Any = self.held.kind
        if self.held.factory is not None:
            out.cannot(self)
        out.null_function(base.__new__)
        out.constant(self.cls)
        out.call(1)
        out.hold(self)
        for key, value in self.held.entries.values():
            out.null_function(base.__setitem__)
            for operand in (self, key, value):
                out.load(operand)
            out.call(3)
            out.emit("POP_TOP")
        self.rebuild_attributes(out)


def items_of(tracer: Tracer, obj: Value) -> DictValue:
    """The dict value behind an argument of a method of dict."""
    if isinstance(obj, UserDictValue):
        return obj.held
    if not isinstance(obj, DictValue):
        kind = obj.python_type().__name__
        tracer.raise_error(TypeError, f"descriptor requires a 'dict' object but received a '{kind}'")
    return obj


def _dict_method(name: str) -> Callable[..., Value]:
    def call(tracer: Tracer, obj: Value, *args: Value, **kwargs: Value) -> Value:
        return items_of(tracer, obj).call_method(tracer, name, args, kwargs)

    return call


def _dict_init(tracer: Tracer, obj: Value, *args: Value, **kwargs: Value) -> Value:
    return items_of(tracer, obj).call_method(tracer, "update", args, kwargs)


def _dict_new(tracer: Tracer, cls: Value, *args: Value, **kwargs: Value) -> Value:
    kind: Any = cls.as_object()
    return UserDictValue(kind) if is_dict_class(kind) else DictValue({}, kind)


def _from_keys(kind: type) -> Callable[..., Value]:
    def make(tracer: Tracer, keys: Value, value: Value | None = None) -> Value:
        made = DictValue({}, kind)
        for key in keys.stream(tracer):
            made.set_item(tracer, key, tracer.constant(None) if value is None else value)
        return made

    return make


def dict_functions() -> dict[Any, Callable[..., Value]]:
    """The methods of dict and OrderedDict as functions of the dict, which `super()` and inheritance lead to."""
    found: dict[Any, Callable[..., Value]] = {}
    for base in (dict, collections.OrderedDict):
        found |= {base.__dict__[name]: _dict_method(name) for name in DICT_METHODS if name in base.__dict__}
        found[base.__dict__["__init__"]] = _dict_init
        found[base.fromkeys] = _from_keys(base)
        if "__new__" in base.__dict__:
            found[base.__new__] = _dict_new
    return found


@attrs.define(eq=False)
class InstanceDictValue(DictValue):
    """`owner.__dict__`, live: writes to it are writes of attributes, and the other way round."""

    owner: UserObjectValue = attrs.field(kw_only=True)

    def set_item(self, tracer: Tracer, key: Value, value: Value) -> None:
        self.owner.write(tracer, str(key.as_constant()), value)

    def delete_item(self, tracer: Tracer, key: Value) -> None:
        if self.find(tracer, key) is None:
            tracer.raise_value(KeyError, (key,))
        self.owner.write(tracer, str(key.as_constant()), None)

    def call_method(self, tracer: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ("clear", "popitem"):
            tracer.graph_break("unsupported-mutation", operation=f"__dict__.{name}", type=self.owner.describe())
        return super().call_method(tracer, name, args, kwargs)

    def written(self, tracer: Tracer, name: str, value: Value | None) -> None:
        """An attribute of the owner was set; None: deleted."""
        self.realise(tracer)
        if value is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = (tracer.constant(name), value)

    def rebuild(self, out: Rebuilder) -> None:
        out.load(self.owner)
        out.attribute("__dict__")
