"""Numbers: types, sums, extremes, and functions that are folded if their arguments are known."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import torch

from armature.plugin_api import (
    MISSING,
    Args,
    Call,
    ConstantValue,
    Kwargs,
    ListValue,
    NotConstant,
    ObjectValue,
    SequenceValue,
    TracedTensor,
    TupleValue,
    Value,
    class_member,
    derives,
    handles,
    is_iterable,
    is_not_implemented,
    native,
    overrides,
    raise_lacking,
    rely_on_class,
    type_name,
)
from armature_builtin_rules.choices import ChoiceValue, fits, options_of, told_apart, without_axes
from armature_builtin_rules.functions import unknown_numbers
from armature_builtin_rules.functions.sets import in_any_order

MATH = tuple(fn for name, fn in vars(math).items() if type(fn) is type(math.sqrt) and name != "prod")
# The methods that a conversion calls, each only if the class has none of those before it ("Built-in Functions" of the
# library reference).
CONVERSIONS: Mapping[type, tuple[str, ...]] = {
    int: ("__int__", "__index__", "__trunc__"),
    float: ("__float__", "__index__"),
    complex: ("__complex__", "__float__", "__index__"),
    bytes: ("__bytes__",),
}
RELATIONS: dict[str, Callable[..., object]] = {"<": operator.lt, ">": operator.gt}


@handles(bool)
def make_bool(call: Call, obj: Value | None = None) -> Value:
    """The truth of an object."""
    return call.constant(obj is not None and obj.truth(call.tracing))


@handles(int, float, complex, bytes)
def make_number(call: Call, *args: Value, **kwargs: Value) -> Value:
    """A call of a number type, or of bytes."""
    kind = cast(type, call.fn)
    if any(arg.is_tensor for arg in args):
        call.graph_break("number-of-tensor", function=f"{kind.__name__}()")
    given = None if kwargs else unknown_numbers.of_function(call.tracing, kind, args)
    if given is not None:
        return given
    if kind is int and len(args) == 1 and args[0].is_symbolic:
        if args[0].python_type() is bool:  # int(n > 2) is 0 or 1
            return call.constant(int(args[0].truth(call.tracing)))
        return args[0].call_method(call.tracing, "__int__", (), {})
    if kind is complex and args and issubclass(args[0].python_type(), str):
        args = (native(args[0]), *args[1:])
    found = by_conversion(call, kind, args, kwargs)
    return of_constants(call, kind, args, kwargs) if found is None else found


def by_conversion(call: Call, kind: type, args: Args, kwargs: Kwargs) -> Value | None:
    """Convert by the first method of `CONVERSIONS` that the object's class has; None if there is none."""
    if any(isinstance(arg, ObjectValue) for arg in args) and (kwargs or len(args) > 1):
        call.graph_break("number-of-objects", function=kind.__name__)
    owner = args[0] if args else None
    if not isinstance(owner, ObjectValue):
        return None
    for name in CONVERSIONS[kind]:
        method = owner.method(call.tracing, name) if hasattr(owner.cls, name) else None
        if method is None:
            continue
        made = method.call(call.tracing, (), {})
        if kind is not bytes:
            return converted(call, kind, owner.cls, name, made.as_constant())
        if not issubclass(made.python_type(), bytes):
            text = f"__bytes__ returned non-bytes (type {made.python_type().__name__})"
            call.tracing.raise_error(TypeError, text)
        return made
    if kind is bytes and not issubclass(owner.cls, str) and not is_iterable(owner.cls):
        call.tracing.raise_error(TypeError, f"cannot convert '{type_name(owner.cls)}' object to bytes")
    return None


def of_constants(call: Call, kind: type, args: Args, kwargs: Kwargs) -> Value:
    """The number, or bytes, made from constants."""
    if kind is bytes and args and issubclass(args[0].python_type(), str):
        args = (native(args[0]), *args[1:])
    elif kind is bytes and args and not args[0].is_constant:
        items = [item.as_constant() for item in call.tracing.python.collect_items(args[0])]
        args = (call.new_value(items), *args[1:])
    try:
        named = {name: value.as_constant() for name, value in kwargs.items()}
        return call.constant(kind(*(arg.as_constant() for arg in args), **named))
    except NotConstant:
        call.graph_break("conversion-of-unknown", function=kind.__name__, type=args[0].describe())
    except Exception as error:
        if derives(args[0]):  # its text is up to the program
            call.graph_break("conversion-of-unknown", function=kind.__name__, type=args[0].describe())
        call.tracing.raise_real(error)


def converted(call: Call, kind: type, cls: type, method: str, given: object) -> Value:
    """The result of a number type for an object whose class's method has returned `given`."""
    stand_in = type(cls.__name__, (), {method: lambda _: given})()
    try:
        return call.constant(kind(stand_in))
    except TypeError as error:
        call.tracing.raise_real(error)


NOT_SUMMED: dict[type, str] = {
    str: "strings [use ''.join(seq) instead]",
    bytes: "bytes [use b''.join(seq) instead]",
    bytearray: "bytearray [use b''.join(seq) instead]",
}


@handles(sum)
def total(call: Call, items: Value, start: Value | None = None) -> Value:
    """Leading numbers are summed at once, later items are added one by one."""
    made = call.constant(0) if start is None else start
    stream = items.stream(call.tracing)
    refused = next((text for kind, text in NOT_SUMMED.items() if issubclass(made.python_type(), kind)), None)
    if refused is not None:
        call.tracing.raise_error(TypeError, f"sum() can't sum {refused}")
    numbers = [made]
    rest: Iterator[Value] = iter(())
    for term in stream:
        if not unknown_numbers.is_number(term) or not unknown_numbers.is_number(made):
            rest = itertools.chain((term,), stream)
            break
        numbers.append(term)
    made = unknown_numbers.total(call.tracing, numbers)
    for term in rest:  # each is added before the next one is requested
        made = call.tracing.python.operate("add", made, term)
    return made


@handles(min, max)
def extreme(call: Call, *args: Value, key: Value | None = None, default: Value | None = None) -> Value:
    """Numbers only known at run time are compared in the graph, others by comparing one after the other."""
    name, tracer = call.fn.__name__, call.tracing
    op = "<" if name == "min" else ">"
    if not args or (len(args) > 1 and default is not None):
        call.graph_break("function-arguments", function=name)
    keyed = key if key is not None and not key.is_constant else None
    items, stream = leading_items(call, args, keyed)
    if not items:
        if default is None:
            return call.fold(call.fn, ())  # raises the error in the wording of this Python version
        return default
    found = None
    if keyed is None:
        found = unknown_numbers.extreme(tracer, op, items)
    if found is None and keyed is None:
        found = (extreme_of_tensors if tracer.request.fullgraph else choice)(call, op, items, stream)
    if found is not None:
        return found
    best = items[0]
    held = best if keyed is None else keyed.call(tracer, (best,), {})
    for item in itertools.chain(items[1:], stream):
        mine = item if keyed is None else keyed.call(tracer, (item,), {})
        if tracer.python.compare(op, mine, held).truth(tracer):
            best, held = item, mine
    return best


def leading_items(call: Call, args: Args, keyed: Value | None) -> tuple[list[Value], Iterator[Value]]:
    """The items that may be requested at once, and the remaining ones."""
    if len(args) > 1:
        return list(args), iter(())
    if args[0].plain_items:
        return in_any_order(call.tracing, args[0]), iter(())
    items: list[Value] = []
    stream = args[0].stream(call.tracing)
    for item in stream:
        items.append(item)
        if keyed is not None or not unknown_numbers.is_number(item):  # comparing numbers runs no code of the program
            return items, stream
    return items, iter(())


def extreme_of_tensors(call: Call, op: str, items: list[Value], rest: Iterator[Value]) -> Value | None:
    """The choice of `min` ("<") or `max` as a tensor, even where it is a number; None if dtype or shape would differ
    from the program's. Only for graphs that must be whole: others break, so that the program gets the original object.

    rest: items that were not requested yet; requested ones are added to `items`.
    """
    dtype = next((item.fake.dtype for item in items if isinstance(item, TracedTensor)), None)
    if dtype is None or not without_axes(items) or not all(fits(item, dtype) for item in items):
        return None
    for item in rest:
        items.append(item)
        if not fits(item, dtype) or not without_axes((item,)):
            return None
    best = items[0]
    for item in items[1:]:  # the first of equal ones wins, as in Python
        if isinstance(item, ConstantValue) and isinstance(best, ConstantValue):
            best = item if RELATIONS[op](item.value, best.value) else best
        else:
            best = call.graph_call(torch.where, call.graph_call(RELATIONS[op], item, best), item, best)
    return best


def choice(call: Call, op: str, items: list[Value], rest: Iterator[Value]) -> Value | None:
    """The choice of `min` or `max` by a position that the graph computes; None if a tensor would represent it wrongly.

    Tensors that require gradients are left out: in the graph, the one that is not chosen would get some. rest: as in
    `extreme_of_tensors`.
    """
    options = [option for item in items for option in options_of(item)]
    tensors = [option for option in options if isinstance(option, TracedTensor)]
    if not tensors or call.tracing.overrides.present or any(one.fake.requires_grad for one in tensors):
        return None
    if not told_apart(options) or len(tensors) == len(options):
        return None
    if next(rest, None) is not None:
        call.graph_break("data-dependent-branch", test=call.tracing.stack.expression())
    best, position = numbered(call, items[0], 0)
    place = len(options_of(items[0]))
    for item in items[1:]:  # the first of equal ones wins, as in Python
        number, here = numbered(call, item, place)
        place += len(options_of(item))
        if isinstance(number, ConstantValue) and isinstance(best, ConstantValue):
            if RELATIONS[op](number.value, best.value):
                best, position = number, here
            continue
        better = call.graph_call(RELATIONS[op], number, best)
        position = call.graph_call(torch.where, better, here, position)
        best = call.graph_call(torch.where, better, number, best)
    if not isinstance(position, TracedTensor):
        return None
    return ChoiceValue(TupleValue(options), position, call.tracing, call.tracing.stack.expression())


def numbered(call: Call, item: Value, place: int) -> tuple[Value, Value]:
    """The number of an item, and its position among all options, of which its own begin at a place."""
    if isinstance(item, ChoiceValue):
        return item.chosen_number(), call.graph_call(operator.add, item.position, call.constant(place))
    return item, call.constant(place)


@handles(round)
def rounded(call: Call, value: Value, digits: Value | None = None) -> Value:
    """By `__round__`."""
    plain = native(value)
    number = derives(value) and plain.is_constant and hasattr(plain.python_type(), "__round__")
    if isinstance(value, ObjectValue) and (not number or overrides(value.cls, "__round__")):
        return value.special(call.tracing, "__round__", *(() if digits is None else (digits,)))
    if isinstance(value, TracedTensor):
        own = value.own_method(call.tracing, "__round__")
        if own is not None:
            return own.call(call.tracing, () if digits is None else (digits,), {})
        if not hasattr(torch.Tensor, "__round__"):
            call.tracing.raise_error(TypeError, "type Tensor doesn't define __round__ method")
        return call.graph_call("round", value, **({} if digits is None else {"decimals": digits}))
    if digits is None or digits.is_constant:
        given = () if digits is None else (digits.as_constant(),)
        words = f"{{}}.__round__({', '.join(map(repr, given))})"
        method = operator.methodcaller("__round__", *given)
        if (found := unknown_numbers.of_varying_float(call.tracing, method, words, value)) is not None:
            return found
    return call.fold(round, value.as_constant(), None if digits is None else digits.as_constant())


@handles(abs)
def absolute(call: Call, value: Value) -> Value:
    """By `__abs__`."""
    if isinstance(value, TracedTensor):
        own = value.own_method(call.tracing, "__abs__")
        return call.graph_call("abs", value) if own is None else own.call(call.tracing, (), {})
    if isinstance(value, ObjectValue):
        return value.special(call.tracing, "__abs__")
    if not value.is_constant and not value.is_symbolic:
        if class_member(value.python_type(), "__abs__") is MISSING:
            raise_lacking(call.tracing, value, "__abs__")
        return value.call_method(call.tracing, "__abs__", (), {})
    found = unknown_numbers.absolute(call.tracing, value)
    return call.fold(abs, value.as_constant()) if found is None else found


@handles(pow)
def power(call: Call, base: Value, exp: Value, mod: Value | None = None) -> Value:
    """`base ** exp`, modulo a third number."""
    if mod is None or (mod.is_constant and mod.as_constant() is None):
        return call.tracing.python.operate("pow", base, exp)
    if isinstance(base, ObjectValue) and not derives(base):
        method = base.method(call.tracing, "__pow__")
        found = None if method is None else method.call(call.tracing, (exp, mod), {})
        if found is not None and not is_not_implemented(found):
            return found
        kinds = ", ".join(repr(type_name(side.python_type())) for side in (base, exp, mod))
        call.tracing.raise_error(TypeError, f"unsupported operand type(s) for ** or pow(): {kinds}")
    return call.fold(pow, base.as_constant(), exp.as_constant(), mod.as_constant())


@handles(divmod)
def divide_with_remainder(call: Call, left: Value, right: Value) -> Value:
    """`divmod(left, right)`."""
    python = call.tracing.python
    found = python.by_methods("__divmod__", "__rdivmod__", left, right)
    if found is not None:
        return found
    names = " and ".join(repr(type_name(side.python_type())) for side in (left, right))
    left, right = native(left), native(right)
    if not all(hasattr(side.python_type(), "__divmod__") for side in (left, right)) or any(
        isinstance(side, ObjectValue) for side in (left, right)
    ):  # tensors have `//` and `%`, but not this
        call.tracing.raise_error(TypeError, f"unsupported operand type(s) for divmod(): {names}")
    return TupleValue([python.operate("floordiv", left, right), python.operate("mod", left, right)])


@handles(math.prod)
def product(call: Call, items: Value, /, *, start: Value | None = None) -> Value:
    """The product of sizes is a size; others are folded."""
    factors = items.items if type(items) in (ListValue, TupleValue) and isinstance(items, SequenceValue) else []
    made = call.constant(1) if start is None else start
    if not any(one.is_symbolic for one in factors) or any(one.python_type() is not int for one in (made, *factors)):
        return folded(call, items, **({} if start is None else {"start": start}))
    for factor in factors:
        made = call.tracing.python.operate("mul", made, factor)
    return made


@handles(chr, ord, bin, hex, oct, *MATH)
def folded(call: Call, *args: Value, **kwargs: Value) -> Value:
    """Fold a pure function of constants."""
    if any(isinstance(arg, TracedTensor) for arg in args):
        call.graph_break("function-of-numbers", function=call.fn.__name__)
    found = None if kwargs else unknown_numbers.of_function(call.tracing, call.fn, args)
    if found is not None:
        return found
    named = {name: value.as_constant() for name, value in kwargs.items()}
    return call.fold(functools.partial(call.fn, **named), *(arg.as_constant() for arg in args))


@handles(operator.index)
def index(call: Call, value: Value, /) -> Value:
    """By `__index__`."""
    kind = value.python_type()
    if derives(value) and not issubclass(kind, int):
        if not overrides(kind, "__index__"):
            rely_on_class(call.tracing, kind, "__index__")
            raise_lacking(call.tracing, value, "__index__")
        return call.tracing.python.index(value)
    return folded(call, value)
