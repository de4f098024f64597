"""What Python's own functions do to values: the semantics of the language, hence mechanism and not knowledge."""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from armature.frame.data import program_of
from armature.introspection import MISSING, class_member, is_written_in_c
from armature.trace.errors import UserRaised
from armature.trace.semantics import exception_groups, iteration, min_max, operators
from armature.trace.semantics.builtin_types import TYPES
from armature.trace.semantics.class_checks import CHECKS
from armature.trace.semantics.text import formatted
from armature.trace.values import computed, symbolic
from armature.trace.values.address import AddressValue
from armature.trace.values.base import Value, raise_lacking, raise_missing, says_not_implemented, type_name
from armature.trace.values.classes import (
    ClassValue,
    find_in_class,
    inherits,
    overrides,
    rely_on_class,
)
from armature.trace.values.derived import BASES, FILLED, base_of
from armature.trace.values.iterator import GeneratorValue, IteratorValue, advance_or_raise
from armature.trace.values.keys import is_by_address
from armature.trace.values.mapping import DictValue, namespace_of
from armature.trace.values.module import GETTER, SETTER, ModuleValue
from armature.trace.values.sequence import ListValue, TupleValue, is_named_tuple, sorted_items
from armature.trace.values.sets import in_any_order
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_object import (
    PLAIN_LOOKUP,
    UserObjectValue,
    has_own_lookup,
)
from armature.trace.versions import EMPTY_ITERABLE

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace

Builtin = Callable[..., Value]


def _callable(tracer: Trace, obj: Value) -> Value:
    rely_on_class(tracer, obj.python_type(), "__call__")
    return tracer.constant(find_in_class(obj.python_type(), "__call__") is not None)


def _build_class(tracer: Trace, body: Value, name: Value, *bases: Value, **keywords: Value) -> Value:
    """A class statement: Python makes the class, after a break."""
    tracer.graph_break("class-statement", name=name.as_constant())


def _attribute_name(tracer: Trace, name: Value) -> str:
    """The name of an attribute. TypeError of the program when it is no string."""
    kind = name.python_type()
    if not issubclass(kind, str):
        tracer.raise_error(TypeError, f"attribute name must be string, not '{type_name(kind)}'")
    return str(name.as_constant())


def _getattr(tracer: Trace, obj: Value, name: Value, default: Value | None = None, /) -> Value:
    text = _attribute_name(tracer, name)
    if default is None:
        return obj.get_attribute(tracer, text)
    found = tracer.python.attribute_or_none(obj, text)
    return default if found is None else found


def _hasattr(tracer: Trace, obj: Value, name: Value) -> Value:
    text = _attribute_name(tracer, name)
    if isinstance(obj, TensorValue) and class_member(torch.Tensor, text) is not MISSING:
        return tracer.constant(True)
    return tracer.constant(tracer.python.attribute_or_none(obj, text) is not None)


def _setattr(tracer: Trace, obj: Value, name: Value, value: Value) -> Value:
    obj.set_attribute(tracer, _attribute_name(tracer, name), value)
    return tracer.constant(None)


def _delattr(tracer: Trace, obj: Value, name: Value) -> Value:
    obj.delete_attribute(tracer, _attribute_name(tracer, name))
    return tracer.constant(None)


def _object_setattr(tracer: Trace, obj: Value, name: Value, value: Value) -> Value:
    if not isinstance(obj, UserObjectValue):
        tracer.graph_break("object-setattr", function="object.__setattr__", type=obj.describe())
    obj.store(tracer, _attribute_name(tracer, name), value)
    return tracer.constant(None)


def _object_delattr(tracer: Trace, obj: Value, name: Value) -> Value:
    if not isinstance(obj, UserObjectValue):
        tracer.graph_break("object-setattr", function="object.__delattr__", type=obj.describe())
    obj.remove(tracer, _attribute_name(tracer, name))
    return tracer.constant(None)


def _object_getattribute(tracer: Trace, obj: Value, name: Value) -> Value:
    text = _attribute_name(tracer, name)
    if not isinstance(obj, UserObjectValue):
        return obj.get_attribute(tracer, text)
    found = obj.found(tracer, text)
    if found is None:
        raise_missing(tracer, obj.cls, text)
    return found


def _object_new(tracer: Trace, cls: Value, *args: Value, **kwargs: Value) -> Value:
    if not isinstance(cls, ClassValue):
        tracer.graph_break("new-of-no-class", function="object.__new__", type=cls.describe())
    return UserObjectValue(cls.cls)


def _new(kind: type) -> Builtin:
    """`kind.__new__` of a builtin type."""

    def make(tracer: Trace, cls: Value, *args: Value, **kwargs: Value) -> Value:
        if not isinstance(cls, ClassValue) or kind not in cls.cls.__mro__:
            tracer.graph_break("new-of-no-class", function=f"{kind.__name__}.__new__", type=cls.describe())
        native: Any = base_of(cls.cls) or kind
        if native in FILLED:  # by `__init__`
            args, kwargs = (), {}
        base = tracer.as_value(native).call(tracer, args, kwargs)
        if cls.cls is native:
            return base
        if is_named_tuple(cls.cls) and isinstance(base, TupleValue):
            return TupleValue(base.items, cls.cls)
        made = UserObjectValue(cls.cls, base=base)
        if isinstance(base, DictValue):
            base.owner = made
        return made

    return make


def _from_keys(tracer: Trace, keys: Value, value: Value | None = None) -> Value:
    made = DictValue({})
    for key in tracer.unpack(keys):
        made.set_item(tracer, key, tracer.constant(None) if value is None else value)
    return made


def _type_call(tracer: Trace, cls: Value, *args: Value, **kwargs: Value) -> Value:
    """`type.__call__`, as a metaclass calls it."""
    if not isinstance(cls, ClassValue):
        tracer.graph_break("new-of-no-class", function="type.__call__", type=cls.describe())
    if is_written_in_c(cls.cls):
        return tracer.calls.call_class(cls, args, kwargs)
    return tracer.calls.instantiate(cls, args, kwargs)


def _object_init(tracer: Trace, obj: Value, *args: Value, **kwargs: Value) -> Value:
    """`object.__init__`, which leaves other arguments to `__new__` where that is not its own (`object_init` in C)."""
    kind = obj.python_type()
    if args or kwargs:
        rely_on_class(tracer, kind, "__init__", "__new__")
        refusing = "object" if not inherits(kind, "__init__", object) else kind.__name__
        if refusing == "object" or inherits(kind, "__new__", object):
            text = f"{refusing}.__init__() takes exactly one argument (the instance to initialize)"
            tracer.raise_error(TypeError, text)
    return tracer.constant(None)


def _object_init_subclass(tracer: Trace, *args: Value) -> Value:
    if not all(isinstance(arg, ClassValue) for arg in args) or len(args) > 1:
        tracer.graph_break("function-arguments", function="object.__init_subclass__")
    return tracer.constant(None)


def _module_getattr(tracer: Trace, module: Value, name: Value) -> Value:
    if not isinstance(module, ModuleValue):  # made in the frame
        return tracer.calls.inline_python(GETTER, (module, name), {})
    return module.fallback(tracer, str(name.as_constant()))


def _module_setattr(tracer: Trace, module: Value, name: Value, value: Value) -> Value:
    if not isinstance(module, ModuleValue):
        return tracer.calls.inline_python(SETTER, (module, name, value), {})
    module.assign(tracer, str(name.as_constant()), value)
    return tracer.constant(None)


def _len(tracer: Trace, obj: Value) -> Value:
    if isinstance(obj, TensorValue) and obj.fake.shape and not tracer.overrides.present:
        return tracer.as_value(obj.fake.shape[0])
    return tracer.constant(obj.length(tracer))


def _iter(tracer: Trace, obj: Value, *sentinel: Value) -> Value:
    if not sentinel:
        return tracer.python.iterator(obj)
    if not _callable(tracer, obj).truth(tracer):
        tracer.graph_break("iter-of-no-callable", type=obj.describe())  # versions of Python word the error
    return iteration.until(tracer, obj, sentinel[0])


def _next(tracer: Trace, iterator: Value, default: Value | None = None, /) -> Value:
    kind = iterator.python_type()
    if class_member(kind, "__next__") is MISSING:
        rely_on_class(tracer, kind, "__next__")
        raise_lacking(tracer, iterator, "__next__")
    try:
        if isinstance(iterator, (IteratorValue, GeneratorValue)):
            return advance_or_raise(tracer, iterator)
        if isinstance(iterator, UserObjectValue):
            return iterator.special(tracer, "__next__")
        return iterator.call_method(tracer, "__next__", (), {})
    except UserRaised as raised:
        if default is not None and issubclass(raised.value.python_type(), StopIteration):
            return default
        raise


def _all(tracer: Trace, items: Value) -> Value:
    return tracer.constant(all(item.truth(tracer) for item in items.stream(tracer)))


def _any(tracer: Trace, items: Value) -> Value:
    return tracer.constant(any(item.truth(tracer) for item in items.stream(tracer)))


NOT_SUMMED: dict[type, str] = {
    str: "strings [use ''.join(seq) instead]",
    bytes: "bytes [use b''.join(seq) instead]",
    bytearray: "bytearray [use b''.join(seq) instead]",
}


def _sum(tracer: Trace, items: Value, start: Value | None = None) -> Value:
    total = tracer.constant(0) if start is None else start
    stream = items.stream(tracer)
    refused = next((text for kind, text in NOT_SUMMED.items() if issubclass(total.python_type(), kind)), None)
    if refused is not None:
        tracer.raise_error(TypeError, f"sum() can't sum {refused}")
    numbers = [total]
    rest: Iterator[Value] = iter(())
    for term in stream:
        if not computed.is_number(term) or not computed.is_number(total):
            rest = itertools.chain((term,), stream)
            break
        numbers.append(term)
    total = computed.total(tracer, numbers)
    for term in rest:  # each is added before the next one is asked for
        total = tracer.python.operate("add", total, term)
    return total


def _extreme(name: str, op: str) -> Builtin:
    """`min` ("<") or `max` (">")."""

    def choose(tracer: Trace, *args: Value, key: Value | None = None, default: Value | None = None) -> Value:
        """Numbers that only a run tells are chosen between in the graph, others by comparing one after the other."""
        if not args or (len(args) > 1 and default is not None):
            tracer.graph_break("function-arguments", function=name)
        keyed = key is not None and not key.is_constant
        items: list[Value] = list(args)
        stream: Iterator[Value] = iter(())
        if len(args) == 1 and args[0].plain_items:
            items = in_any_order(tracer, args[0])
        elif len(args) == 1:
            items, stream = [], args[0].stream(tracer)
        for item in stream:
            items.append(item)
            if keyed or not computed.is_number(item):  # comparing numbers runs no code of the program
                break
        else:
            stream = iter(())
        if not items:
            if default is None:
                tracer.raise_error(ValueError, f"{name}{EMPTY_ITERABLE}")
            return default
        found = None if keyed else computed.extreme(tracer, op, items) or symbolic.extreme(tracer, op, items)
        if found is None and not keyed and tracer.request.fullgraph:
            found = min_max.of_tensors(tracer, op, items, stream)
        if found is not None:
            return found
        best = items[0]
        held = key.call(tracer, (best,), {}) if keyed and key is not None else best
        for item in itertools.chain(items[1:], stream):
            mine = key.call(tracer, (item,), {}) if keyed and key is not None else item
            if tracer.python.compare(op, mine, held).truth(tracer):
                best, held = item, mine
        return best

    return choose


def _sorted(tracer: Trace, items: Value, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    ordered = key is not None or not items.plain_items
    given = list(tracer.python.taken(items)) if ordered else in_any_order(tracer, items)
    return ListValue(sorted_items(tracer, given, key, reverse))


def _round(tracer: Trace, value: Value, digits: Value | None = None) -> Value:
    number = value.base is not None and value.base.is_constant and hasattr(value.base.python_type(), "__round__")
    if isinstance(value, UserObjectValue) and (not number or overrides(value.cls, "__round__")):
        return value.special(tracer, "__round__", *(() if digits is None else (digits,)))
    if isinstance(value, TensorValue):
        own = value.own_method(tracer, "__round__")
        if own is not None:
            return own.call(tracer, () if digits is None else (digits,), {})
        if not hasattr(torch.Tensor, "__round__"):
            tracer.raise_error(TypeError, "type Tensor doesn't define __round__ method")
        return tracer.graph_call("round", (value,), {} if digits is None else {"decimals": digits})
    places = None if digits is None else digits.as_constant()
    return operators.fold(tracer, round, value.as_constant(), places)


def _abs(tracer: Trace, value: Value) -> Value:
    if isinstance(value, TensorValue):
        own = value.own_method(tracer, "__abs__")
        return tracer.graph_call("abs", (value,), {}) if own is None else own.call(tracer, (), {})
    if isinstance(value, UserObjectValue):
        return value.special(tracer, "__abs__")
    if not value.is_constant and not value.is_symbolic:
        if class_member(value.python_type(), "__abs__") is MISSING:
            raise_lacking(tracer, value, "__abs__")
        return value.call_method(tracer, "__abs__", (), {})
    found = computed.absolute(tracer, value) or symbolic.absolute(tracer, value)
    return operators.fold(tracer, abs, value.as_constant()) if found is None else found


def _pow(tracer: Trace, base: Value, exp: Value, mod: Value | None = None) -> Value:
    if mod is None or (mod.is_constant and mod.as_constant() is None):
        return tracer.python.operate("pow", base, exp)
    if isinstance(base, UserObjectValue) and base.base is None:
        method = base.method(tracer, "__pow__")
        found = None if method is None else method.call(tracer, (exp, mod), {})
        if found is not None and not says_not_implemented(found):
            return found
        kinds = ", ".join(repr(type_name(side.python_type())) for side in (base, exp, mod))
        tracer.raise_error(TypeError, f"unsupported operand type(s) for ** or pow(): {kinds}")
    return operators.fold(tracer, pow, base.as_constant(), exp.as_constant(), mod.as_constant())


def _fold(fn: Callable[..., Any]) -> Builtin:
    """A pure function of constants."""

    def folded(tracer: Trace, *args: Value, **kwargs: Value) -> Value:
        if any(isinstance(arg, TensorValue) for arg in args):
            tracer.graph_break("function-of-numbers", function=fn.__name__)
        found = None if kwargs else computed.call(tracer, fn, args)
        if found is not None:
            return found
        named = {name: value.as_constant() for name, value in kwargs.items()}
        return operators.fold(tracer, functools.partial(fn, **named), *(arg.as_constant() for arg in args))

    return folded


def _operator_index(tracer: Trace, value: Value, /) -> Value:
    kind = value.python_type()
    if value.base is not None and not issubclass(kind, int):
        if not overrides(kind, "__index__"):
            rely_on_class(tracer, kind, "__index__")
            raise_lacking(tracer, value, "__index__")
        return tracer.python.index(value)
    return _fold(operator.index)(tracer, value)


def _text(convert: Callable[[object], str]) -> Builtin:
    def made(tracer: Trace, value: Value, /) -> Value:
        return tracer.python.text_of(value, convert)

    return made


def _str(tracer: Trace, value: Value | None = None, *decoding: Value) -> Value:
    if decoding and value is not None:
        return operators.fold(tracer, str, *(part.as_constant() for part in (value, *decoding)))
    return tracer.constant("") if value is None else tracer.python.text_of(value, str)


def _format(tracer: Trace, value: Value, spec: Value | None = None) -> Value:
    if spec is not None and not issubclass(spec.python_type(), str):
        given = "None" if spec.python_type() is type(None) else type_name(spec.python_type())
        tracer.raise_error(TypeError, f"format() argument 2 must be str, not {given}")
    return formatted(tracer, value, "" if spec is None else str(spec.as_constant()))


def _id(tracer: Trace, value: Value) -> Value:
    if value.is_constant:
        tracer.graph_break("id-of-constant", type=value.describe())
    return AddressValue(value)


def _object_eq(tracer: Trace, left: Value, right: Value) -> Value:
    return tracer.constant(True if tracer.python.identical(left, right) else NotImplemented)


def _object_ne(tracer: Trace, left: Value, right: Value) -> Value:
    equal = left.binary(tracer, "__eq__", right)
    if equal is not None:
        return tracer.constant(not equal.truth(tracer))
    return tracer.constant(False if tracer.python.identical(left, right) else NotImplemented)


def _locals(tracer: Trace) -> Value:
    """A dict of the variables of the frame that asks."""
    frame = tracer.frames[-1]
    for name, (obj, source) in list(frame.lazy.items()):
        frame.variables.setdefault(name, tracer.wrap(obj, source))
    found = {name: value for name, value in frame.variables.items() if not name.startswith(".")}
    cells = {name: cell for name, cell in frame.cells.items() if cell.content is not None or cell.real is not None}
    found |= {name: cell.get(tracer, name) for name, cell in cells.items() if not name.startswith(".")}
    code = program_of(frame.code)  # a resume function has its variables as they come
    order = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    return namespace_of(tracer, {name: found[name] for name in dict.fromkeys(order) if name in found})


def _hash(tracer: Trace, value: Value) -> Value:
    key = value.key(tracer)
    if not is_by_address(key):
        return tracer.constant(hash(key))
    if value.is_tensor:
        return AddressValue(value)  # that is what the hash of a tensor is
    tracer.graph_break("hash-by-address", type=value.describe())


def _dir(tracer: Trace, obj: Value) -> Value:
    if not isinstance(obj, UserObjectValue) or not inherits(obj.cls, "__dir__", object) or has_own_lookup(obj.cls):
        tracer.graph_break("dir-of-object", type=obj.describe())
    own = obj.open_dict(tracer).realise(tracer) if obj.cls.__dictoffset__ else {}
    return tracer.as_value(sorted({*dir(obj.cls), *(str(key.as_constant()) for key, _ in own.values())}))


def _vars(tracer: Trace, obj: Value | None = None) -> Value:
    if obj is None:
        return _locals(tracer)
    found = tracer.python.attribute_or_none(obj, "__dict__")
    if found is None:
        tracer.raise_error(TypeError, "vars() argument must have __dict__ attribute")
    return found


def _globals(tracer: Trace) -> Value:
    """The variables of the module; to be read, as long as the frame has not changed them."""
    namespace = tracer.frames[-1].namespace
    if any(held is namespace for held, _ in tracer.effects.globals_.values()):
        tracer.graph_break("globals-after-change")
    return tracer.names.of_module(namespace)


def _getitem(tracer: Trace, obj: Value, key: Value) -> Value:
    return obj.get_item(tracer, key)


def _math_functions() -> dict[Any, Builtin]:
    return {fn: _fold(fn) for fn in vars(math).values() if type(fn) is type(math.sqrt)}


BUILTINS: dict[Any, Builtin] = {
    **_math_functions(),
    **TYPES,
    **CHECKS,
    **exception_groups.METHODS,
    builtins.__build_class__: _build_class,
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
    min: _extreme("min", "<"),
    max: _extreme("max", ">"),
    sorted: _sorted,
    round: _round,
    abs: _abs,
    divmod: operators.divide_with_rest,
    pow: _pow,
    repr: _text(repr),
    ascii: _text(ascii),
    str: _str,
    format: _format,
    id: _id,
    hash: _hash,
    vars: _vars,
    dir: _dir,
    chr: _fold(chr),
    ord: _fold(ord),
    bin: _fold(bin),
    hex: _fold(hex),
    oct: _fold(oct),
    globals: _globals,
    locals: _locals,
    object.__eq__: _object_eq,
    object.__ne__: _object_ne,
    object.__init_subclass__: _object_init_subclass,
    object.__dict__["__init_subclass__"]: _object_init_subclass,
    object.__setattr__: _object_setattr,
    **{kind.__getattribute__: _object_getattribute for kind in PLAIN_LOOKUP},
    object.__new__: _object_new,
    object.__init__: _object_init,
    **{kind.__new__: _new(kind) for kind in BASES},
    dict.fromkeys: _from_keys,
    type.__call__: _type_call,
    type.__init__: lambda tracer, *args, **kwargs: tracer.constant(None),
    object.__delattr__: _object_delattr,
    GETTER: _module_getattr,
    SETTER: _module_setattr,
    operator.index: _operator_index,
    operator.getitem: _getitem,
}
