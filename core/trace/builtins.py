"""What Python's own functions do to values: the semantics of the language, hence mechanism and not knowledge."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from armature.trace.builtin_types import TYPES
from armature.trace.errors import NotConstant, UserRaised
from armature.trace.values import symbolic
from armature.trace.values.base import BoundMethod, Value
from armature.trace.values.classes import ClassValue, find_in_class
from armature.trace.values.function import CallableValue, ClosureValue, MethodValue, PartialValue
from armature.trace.values.iterator import GeneratorValue, IteratorValue, advance_or_raise
from armature.trace.values.module import GETTER, SETTER, ModuleValue
from armature.trace.values.sequence import ListValue, TupleValue, sorted_items
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_dict import dict_functions
from armature.trace.values.user_object import PLAIN_LOOKUPS, UserObjectValue

if TYPE_CHECKING:
    from armature.trace.capture import Tracer

Builtin = Callable[..., Value]


def _classes(tracer: Tracer, kinds: Value) -> tuple[type, ...]:
    """The classes in the second argument of isinstance."""
    if isinstance(kinds, ClassValue):
        return (kinds.cls,)
    try:
        held = kinds.as_object()
    except NotConstant:
        held = None
    if held is not None and not isinstance(held, tuple):  # a union such as `int | None`
        return tuple(getattr(held, "__args__", ())) or (held,)  # type: ignore[return-value]
    return tuple(cls for item in tracer.unpack(kinds) for cls in _classes(tracer, item))


def _isinstance(tracer: Tracer, obj: Value, kinds: Value) -> Value:
    wanted = _classes(tracer, kinds)
    kind = obj.python_type()
    if isinstance(obj, TensorValue) and nn.Parameter in wanted:
        is_parameter = isinstance(obj.real, nn.Parameter)
        others = tuple(cls for cls in wanted if cls is not nn.Parameter)
        return tracer.constant(is_parameter or issubclass(kind, others))
    if isinstance(obj, TensorValue) and any(cls.__module__ == "torch" and cls is not torch.Tensor for cls in wanted):
        # torch.FloatTensor and its kind ask for the dtype.
        return tracer.constant(any(_is_tensor_of(obj, cls) for cls in wanted))
    held = _plain_object(obj)
    try:
        return tracer.constant(isinstance(held, wanted) if held is not None else issubclass(kind, wanted))
    except TypeError as error:
        tracer.raise_real(error)


def _is_tensor_of(obj: TensorValue, cls: type) -> bool:
    if issubclass(torch.Tensor, cls):
        return True
    return f"{cls.__module__}.{cls.__name__}" == torch.empty(0, dtype=obj.dtype, device="meta").type().replace(
        "meta.", ""
    )


def _plain_object(obj: Value) -> Any:
    """The Python object itself, for classes that answer isinstance by looking at it; None when there is none."""
    if isinstance(obj, UserObjectValue):
        return obj.obj
    return None


def _issubclass(tracer: Tracer, cls: Value, kinds: Value) -> Value:
    if not isinstance(cls, ClassValue):
        tracer.raise_error(TypeError, "issubclass() arg 1 must be a class")
    return tracer.constant(issubclass(cls.cls, _classes(tracer, kinds)))


def _callable(tracer: Tracer, obj: Value) -> Value:
    known = isinstance(obj, (CallableValue, ClosureValue, MethodValue, ClassValue, PartialValue, BoundMethod))
    return tracer.constant(known or find_in_class(obj.python_type(), "__call__") is not None)


def _getattr(tracer: Tracer, obj: Value, name: Value, *default: Value) -> Value:
    text = str(name.as_constant())
    if not default:
        return obj.get_attribute(tracer, text)
    found = tracer.attribute_or_none(obj, text)
    return default[0] if found is None else found


def _hasattr(tracer: Tracer, obj: Value, name: Value) -> Value:
    text = str(name.as_constant())
    if isinstance(obj, TensorValue) and hasattr(torch.Tensor, text):
        return tracer.constant(True)
    return tracer.constant(tracer.attribute_or_none(obj, text) is not None)


def _setattr(tracer: Tracer, obj: Value, name: Value, value: Value) -> Value:
    obj.set_attribute(tracer, str(name.as_constant()), value)
    return tracer.constant(None)


def _delattr(tracer: Tracer, obj: Value, name: Value) -> Value:
    obj.delete_attribute(tracer, str(name.as_constant()))
    return tracer.constant(None)


def _object_setattr(tracer: Tracer, obj: Value, name: Value, value: Value) -> Value:
    if not isinstance(obj, UserObjectValue):
        tracer.graph_break("unsupported-mutation", operation="object.__setattr__", type=obj.describe())
    obj.store(tracer, str(name.as_constant()), value)
    return tracer.constant(None)


def _object_getattribute(tracer: Tracer, obj: Value, name: Value) -> Value:
    text = str(name.as_constant())
    if not isinstance(obj, UserObjectValue):
        return obj.get_attribute(tracer, text)
    found = obj.plain_attribute(tracer, text)
    if found is None:
        tracer.raise_error(AttributeError, f"'{obj.cls.__name__}' object has no attribute '{text}'")
    return found


def _object_new(tracer: Tracer, cls: Value, *args: Value, **kwargs: Value) -> Value:
    if not isinstance(cls, ClassValue):
        tracer.graph_break("unsupported-call", callable="object.__new__")
    return UserObjectValue(cls.cls)


def _tuple_new(tracer: Tracer, cls: Value, items: Value | None = None) -> Value:
    if not isinstance(cls, ClassValue):
        tracer.graph_break("unsupported-call", callable="tuple.__new__")
    return TupleValue([] if items is None else tracer.unpack(items), cls.cls)


def _object_init(tracer: Tracer, obj: Value, *args: Value, **kwargs: Value) -> Value:
    return tracer.constant(None)


def _exception_init(tracer: Tracer, obj: Value, *args: Value, **kwargs: Value) -> Value:
    if hasattr(obj, "args"):
        obj.args = list(args)
    return tracer.constant(None)


def _module_getattr(tracer: Tracer, module: Value, name: Value) -> Value:
    if not isinstance(module, ModuleValue):
        tracer.graph_break("unsupported-attribute", name=str(name.as_constant()), type=module.describe())
    return module.fallback(tracer, str(name.as_constant()))


def _module_setattr(tracer: Tracer, module: Value, name: Value, value: Value) -> Value:
    if not isinstance(module, ModuleValue):
        tracer.graph_break("unsupported-mutation", operation="setting an attribute", type=module.describe())
    module.assign(tracer, str(name.as_constant()), value)
    return tracer.constant(None)


def _len(tracer: Tracer, obj: Value) -> Value:
    if isinstance(obj, TensorValue) and obj.fake.shape:
        return tracer.as_value(obj.fake.shape[0])
    return tracer.constant(obj.length(tracer))


def _iter(tracer: Tracer, obj: Value, *sentinel: Value) -> Value:
    if not sentinel:
        return tracer.iterator(obj)

    def until() -> Iterator[Value]:
        while not tracer.same_or_equal(item := tracer.call(obj, (), {}), sentinel[0]):
            yield item

    return IteratorValue(until())


def _next(tracer: Tracer, iterator: Value, *default: Value) -> Value:
    try:
        if isinstance(iterator, (IteratorValue, GeneratorValue)):
            return advance_or_raise(tracer, iterator)
        return iterator.call_method(tracer, "__next__", (), {})
    except UserRaised as raised:
        if default and issubclass(raised.value.python_type(), StopIteration):
            return default[0]
        raise


def _all(tracer: Tracer, items: Value) -> Value:
    return tracer.constant(all(item.truth(tracer) for item in items.stream(tracer)))


def _any(tracer: Tracer, items: Value) -> Value:
    return tracer.constant(any(item.truth(tracer) for item in items.stream(tracer)))


def _sum(tracer: Tracer, items: Value, start: Value | None = None) -> Value:
    total = tracer.constant(0) if start is None else start
    for item in items.stream(tracer):
        total = tracer.operate("add", total, item)
    return total


def _extreme(op: str) -> Builtin:
    def choose(tracer: Tracer, *args: Value, key: Value | None = None, default: Value | None = None) -> Value:
        items = tracer.unpack(args[0]) if len(args) == 1 else list(args)
        if not items:
            if default is None:
                tracer.raise_error(ValueError, "arg is an empty sequence")
            return default
        keyed = key is not None and not key.is_constant
        found = None if keyed else symbolic.extreme(tracer, op, items)
        if found is not None:
            return found
        best = items[0]
        held = tracer.call(key, (best,), {}) if keyed and key is not None else best
        for item in items[1:]:
            mine = tracer.call(key, (item,), {}) if keyed and key is not None else item
            if tracer.compare(op, mine, held).truth(tracer):
                best, held = item, mine
        return best

    return choose


def _sorted(tracer: Tracer, items: Value, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    return ListValue(sorted_items(tracer, tracer.unpack(items), key, reverse))


def _round(tracer: Tracer, value: Value, digits: Value | None = None) -> Value:
    if value.is_tensor:
        if not hasattr(torch.Tensor, "__round__"):
            tracer.raise_error(TypeError, "type Tensor doesn't define __round__ method")
        return tracer.graph_call("round", (value,), {} if digits is None else {"decimals": digits})
    places = None if digits is None else digits.as_constant()
    return _folded(tracer, round, value.as_constant(), places)


def _abs(tracer: Tracer, value: Value) -> Value:
    if value.is_tensor:
        return tracer.graph_call("abs", (value,), {})
    if isinstance(value, UserObjectValue):
        return value.call_method(tracer, "__abs__", (), {})
    found = symbolic.absolute(tracer, value)
    return _folded(tracer, abs, value.as_constant()) if found is None else found


def _divmod(tracer: Tracer, left: Value, right: Value) -> Value:
    return tracer.tuple_of([tracer.operate("floordiv", left, right), tracer.operate("mod", left, right)])


def _pow(tracer: Tracer, base: Value, exponent: Value, *modulus: Value) -> Value:
    if not modulus:
        return tracer.operate("pow", base, exponent)
    return _folded(tracer, pow, base.as_constant(), exponent.as_constant(), modulus[0].as_constant())


def _folded(tracer: Tracer, fn: Callable[..., Any], *args: Any) -> Value:
    try:
        return tracer.as_value(fn(*args))
    except Exception as error:
        tracer.raise_real(error)


def _fold(fn: Callable[..., Any]) -> Builtin:
    """A pure function of constants."""

    def folded(tracer: Tracer, *args: Value, **kwargs: Value) -> Value:
        if any(isinstance(arg, TensorValue) for arg in args):
            tracer.graph_break("data-dependent-value", operation=f"{fn.__name__} of a tensor")
        named = {name: value.as_constant() for name, value in kwargs.items()}
        return _folded(tracer, functools.partial(fn, **named), *(arg.as_constant() for arg in args))

    return folded


def _text(convert: Callable[[object], str]) -> Builtin:
    def made(tracer: Tracer, value: Value | None = None) -> Value:
        return tracer.constant("") if value is None else tracer.text_of(value, convert)

    return made


def _format(tracer: Tracer, value: Value, spec: Value | None = None) -> Value:
    if spec is None or spec.as_constant() == "":
        return tracer.text_of(value, format)
    return _folded(tracer, format, value.as_constant(), spec.as_constant())


def _id(tracer: Tracer, value: Value) -> Value:
    tracer.graph_break("unsupported-operation", operation="id()", type=value.describe())


def _hash(tracer: Tracer, value: Value) -> Value:
    if value.is_constant and isinstance(value.as_constant(), (int, float)):
        return tracer.constant(hash(value.as_constant()))
    tracer.graph_break("unsupported-operation", operation="hash()", type=value.describe())


def _vars(tracer: Tracer, obj: Value) -> Value:
    return obj.get_attribute(tracer, "__dict__")


def _globals(tracer: Tracer) -> Value:
    tracer.graph_break("unsupported-operation", operation="globals()", type="the frame")


def _update_wrapper(tracer: Tracer, wrapper: Value, wrapped: Value, *args: Value, **kwargs: Value) -> Value:
    """functools.update_wrapper on functions made in the frame; what it copies is looked at by few."""
    if isinstance(wrapper, ClosureValue):
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            wrapper.attributes[name] = wrapped.get_attribute(tracer, name)
        wrapper.attributes["__wrapped__"] = wrapped
        return wrapper
    tracer.graph_break("unsupported-call", callable="functools.update_wrapper")


def _getitem(tracer: Tracer, obj: Value, key: Value) -> Value:
    return obj.get_item(tracer, key)


def _math_functions() -> dict[Any, Builtin]:
    return {fn: _fold(fn) for fn in vars(math).values() if type(fn) is type(math.sqrt)}


BUILTINS: dict[Any, Builtin] = {
    **_math_functions(),
    **TYPES,
    **dict_functions(),
    isinstance: _isinstance,
    issubclass: _issubclass,
    callable: _callable,
    getattr: _getattr,
    hasattr: _hasattr,
    setattr: _setattr,
    delattr: _delattr,
    len: _len,
    iter: _iter,
    next: _next,
    all: _all,
    any: _any,
    sum: _sum,
    min: _extreme("<"),
    max: _extreme(">"),
    sorted: _sorted,
    round: _round,
    abs: _abs,
    divmod: _divmod,
    pow: _pow,
    repr: _text(repr),
    ascii: _text(ascii),
    str: _text(str),
    format: _format,
    id: _id,
    hash: _hash,
    vars: _vars,
    chr: _fold(chr),
    ord: _fold(ord),
    bin: _fold(bin),
    hex: _fold(hex),
    oct: _fold(oct),
    globals: _globals,
    object.__setattr__: _object_setattr,
    **dict.fromkeys(PLAIN_LOOKUPS, _object_getattribute),
    object.__new__: _object_new,
    object.__init__: _object_init,
    tuple.__new__: _tuple_new,
    BaseException.__init__: _exception_init,
    Exception.__init__: _exception_init,
    GETTER: _module_getattr,
    SETTER: _module_setattr,
    functools.update_wrapper: _update_wrapper,
    operator.index: _fold(operator.index),
    operator.getitem: _getitem,
}
