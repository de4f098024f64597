"""What calling Python's own types makes."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterator
from types import CellType, MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from armature.introspection import MISSING, class_member
from armature.trace.errors import UserRaised
from armature.trace.places import places_of
from armature.trace.semantics.iteration import (
    REVERSED,
    advanced,
    iterate,
    keeps_position,
    kind_of_iterator,
    set_state,
    state_of,
)
from armature.trace.semantics.slots import CONVERSIONS, is_iterable
from armature.trace.values import computed
from armature.trace.values.base import Args, Kwargs, NotConstant, Value, raise_lacking, type_name
from armature.trace.values.classes import ClassValue, SuperValue, rely_on_class
from armature.trace.values.derived import native
from armature.trace.values.function import CellValue, MethodValue
from armature.trace.values.iterator import IteratorValue
from armature.trace.values.mapping import DictValue, DictViewValue, factory_of, update
from armature.trace.values.sequence import ListValue, SequenceValue, TupleValue, place_of
from armature.trace.values.sets import SetValue, made_of
from armature.trace.values.slices import RangeValue, SliceValue
from armature.trace.values.streams import Steps
from armature.trace.values.user_object import UserObjectValue, namesake

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace
    from armature.trace.values.base import Rebuilding

Make = Callable[..., Value]


def _type(tracer: Trace, obj: Value, *rest: Value, **named: Value) -> Value:
    if rest or named:
        tracer.graph_break("class-by-type")
    return tracer.as_value(obj.python_type())


def _bool(tracer: Trace, obj: Value | None = None) -> Value:
    return tracer.constant(obj is not None and obj.truth(tracer))


def _number(kind: type) -> Make:
    """How a number type, or bytes, is called."""

    def make(tracer: Trace, *args: Value, **kwargs: Value) -> Value:
        if any(arg.is_tensor for arg in args):
            tracer.graph_break("number-of-tensor", function=f"{kind.__name__}()")
        if kind is int and len(args) == 1 and args[0].is_symbolic:
            if args[0].python_type() is bool:  # int(n > 2) is 0 or 1
                return tracer.constant(int(args[0].truth(tracer)))
            return args[0].call_method(tracer, "__int__", (), {})
        if kind is complex and args and issubclass(args[0].python_type(), str):
            args = (native(args[0]), *args[1:])
        found = _by_conversion(tracer, kind, args, kwargs)
        if found is None and not kwargs:
            found = computed.call(tracer, kind, args)
        return _of_constants(tracer, kind, args, kwargs) if found is None else found

    return make


def _by_conversion(tracer: Trace, kind: type, args: Args, kwargs: Kwargs) -> Value | None:
    """By the first method of `slots.CONVERSIONS` that the class of the object has; None: by what the object is."""
    if any(isinstance(arg, UserObjectValue) for arg in args) and (kwargs or len(args) > 1):
        tracer.graph_break("number-of-objects", function=kind.__name__)
    owner = args[0] if args else None
    if not isinstance(owner, UserObjectValue):
        return None
    for name in CONVERSIONS[kind]:
        method = owner.method(tracer, name) if hasattr(owner.cls, name) else None
        if method is None:
            continue
        made = method.call(tracer, (), {})
        if kind is not bytes:
            return converted(tracer, kind, owner.cls, name, made.as_constant())
        if not issubclass(made.python_type(), bytes):
            tracer.raise_error(TypeError, f"__bytes__ returned non-bytes (type {made.python_type().__name__})")
        return made
    if kind is bytes and not issubclass(owner.cls, str) and not is_iterable(owner.cls):
        tracer.raise_error(TypeError, f"cannot convert '{type_name(owner.cls)}' object to bytes")
    return None


def _of_constants(tracer: Trace, kind: type, args: Args, kwargs: Kwargs) -> Value:
    """The number, or bytes, that a type makes of constants."""
    if kind is bytes and args and issubclass(args[0].python_type(), str):
        args = (native(args[0]), *args[1:])
    elif kind is bytes and args and not args[0].is_constant:
        args = (tracer.as_value([item.as_constant() for item in tracer.python.taken(args[0])]), *args[1:])
    try:
        named = {name: value.as_constant() for name, value in kwargs.items()}
        return tracer.constant(kind(*(arg.as_constant() for arg in args), **named))
    except NotConstant:
        tracer.graph_break("conversion-of-unknown", function=kind.__name__, type=args[0].describe())
    except Exception as error:
        if args[0].base is not None:  # whose text is the program's
            tracer.graph_break("conversion-of-unknown", function=kind.__name__, type=args[0].describe())
        tracer.raise_real(error)


def converted(tracer: Trace, kind: type, cls: type, method: str, given: object) -> Value:
    """What a number type makes of an object of a class whose method has given this."""
    stand_in = type(cls.__name__, (), {method: lambda _: given})()
    try:
        return tracer.constant(kind(stand_in))
    except TypeError as error:
        tracer.raise_real(error)


def _list(tracer: Trace, items: Value | None = None) -> Value:
    return ListValue([] if items is None else list(tracer.python.taken(items)))


def _tuple(tracer: Trace, items: Value | None = None) -> Value:
    if isinstance(items, TupleValue) and items.kind is tuple:
        return items
    return TupleValue([] if items is None else list(tracer.python.taken(items)))


def _size(tracer: Trace, items: Value | None = None) -> Value:
    sizes = [] if items is None else list(tracer.python.taken(items))
    if not all(issubclass(size.python_type(), int) for size in sizes):
        tracer.graph_break("size-of-no-ints")
    return TupleValue(sizes, torch.Size)


def _set(kind: type) -> Make:
    def make(tracer: Trace, items: Value | None = None) -> Value:
        return SetValue({}, kind) if items is None else made_of(tracer, items, kind)

    return make


def _dict(kind: type) -> Make:
    def make(tracer: Trace, other: Value | None = None, /, **more: Value) -> Value:
        made = DictValue({}, kind)
        update(tracer, made, *(() if other is None else (other,)), **more)
        return made

    return make


def _defaultdict(tracer: Trace, factory: Value | None = None, /, *others: Value, **more: Value) -> Value:
    made = DictValue({}, collections.defaultdict, factory_of(tracer, factory))
    update(tracer, made, *others, **more)
    return made


def _mapping_proxy(tracer: Trace, mapping: Value) -> Value:
    if not isinstance(mapping, DictValue) or mapping.kind not in (dict, collections.OrderedDict):
        tracer.graph_break("mapping-proxy", type=mapping.describe())
    return DictValue(mapping.realise(tracer), MappingProxyType, shown=mapping.kind)


def _slice(tracer: Trace, first: Value, second: Value | None = None, step: Value | None = None, /) -> Value:
    none = tracer.constant(None)
    if second is None:
        return SliceValue((none, first, none))
    return SliceValue((first, second, none if step is None else step))


def _range(tracer: Trace, *bounds: Value) -> Value:
    if any(bound.is_tensor for bound in bounds):
        tracer.graph_break("range-of-tensor")
    try:
        plain: list[Any] = [tracer.python.index(bound).as_constant() for bound in bounds]
        return RangeValue(range(*plain))
    except (TypeError, ValueError) as error:
        tracer.raise_real(error)


def _enumerate(tracer: Trace, items: Value, start: Value | None = None) -> Value:
    first: Any = 0 if start is None else place_of(tracer, start)
    inner = inner_iterator(tracer, items)

    stream, number = stream_of(tracer, inner), first

    def step() -> Value:
        nonlocal number
        item = next(stream)
        number += 1
        return TupleValue([tracer.constant(number - 1), item])

    def remake(out: Rebuilding, made: IteratorValue) -> None:
        if isinstance(inner, UserObjectValue) or (made.asked and not isinstance(inner, IteratorValue)):
            out.cannot(inner)  # it would start again
        out.null_function(enumerate)
        out.load(inner)
        out.constant(first + made.taken)
        out.call(2)

    return IteratorValue(Steps(step), enumerate, remake, places_of(tracer.frames))


def inner_iterator(tracer: Trace, items: Value) -> Value:
    """What an iterator over an iterable holds: where it is known how to make it again, an iterator of its own."""
    if not is_iterable(items.python_type()):
        iterate(tracer, items)
    if isinstance(items, UserObjectValue):
        return tracer.python.iterator(items)
    return iterate(tracer, items) if items.is_tensor or items.plain_items else items


def stream_of(tracer: Trace, inner: Value) -> Iterator[Value]:
    """What an inner iterator gives. Its `__iter__` was called already."""
    return inner.drain(tracer) if isinstance(inner, UserObjectValue) else inner.stream(tracer)


def remake_call(
    function: Callable[..., Any], iterators: list[Value], *first: Value
) -> Callable[[Rebuilding, IteratorValue], None]:
    """Makes an iterator again by calling what made it on its iterators as they are now."""

    def remake(out: Rebuilding, made: IteratorValue) -> None:
        out.null_function(function)
        for value in first:
            out.load(value)
        for value in iterators:
            if isinstance(value, UserObjectValue) or (made.asked and not isinstance(value, IteratorValue)):
                out.cannot(value)
            out.load(value)
        out.call(len(first) + len(iterators))

    return remake


def _zip(tracer: Trace, *iterables: Value, strict: Value | None = None) -> Value:
    must_match = strict is not None and strict.truth(tracer)
    inner, streams = [], []
    for iterable in iterables:
        inner.append(inner_iterator(tracer, iterable))
        streams.append(stream_of(tracer, inner[-1]))

    def step() -> Value:
        row: list[Value] = []
        for stream in streams:
            try:
                row.append(next(stream))
            except StopIteration:
                if must_match:
                    check_all_end(tracer, streams, len(row))
                raise
        if not streams:
            raise StopIteration
        return TupleValue(row)

    remake = None if must_match else remake_call(zip, inner)
    return IteratorValue(Steps(step), zip, remake, places_of(tracer.frames))


def check_all_end(tracer: Trace, streams: list[Iterator[Value]], ended: int) -> None:
    """For zip(strict=True), when the stream at a position has ended: all others must end there too."""
    if ended:
        tracer.raise_error(ValueError, f"zip() argument {ended + 1} is shorter than {arguments_up_to(ended)}")
    for position, stream in enumerate(streams[1:], 1):
        if next(stream, None) is not None:
            text = f"zip() argument {position + 1} is longer than {arguments_up_to(position)}"
            tracer.raise_error(ValueError, text)


def arguments_up_to(count: int) -> str:
    """The first arguments, in words."""
    return "argument 1" if count == 1 else f"arguments 1-{count}"


def _map(tracer: Trace, function: Value, *iterables: Value) -> Value:
    if not iterables:
        tracer.raise_error(TypeError, "map() must have at least two arguments.")
    inner, streams = [], []
    for iterable in iterables:
        inner.append(inner_iterator(tracer, iterable))
        streams.append(stream_of(tracer, inner[-1]))

    def step() -> Value:
        row = [next(stream) for stream in streams]
        return stop_as_the_end(lambda: function.call(tracer, row, {}))

    return IteratorValue(Steps(step), map, remake_call(map, inner, function), places_of(tracer.frames))


def _filter(tracer: Trace, function: Value, items: Value) -> Value:
    plain = function.is_constant and function.as_constant() is None

    inner = inner_iterator(tracer, items)
    stream = stream_of(tracer, inner)

    def step() -> Value:
        while True:
            item = next(stream)
            if stop_as_the_end(functools.partial(test, item)).truth(tracer):
                return item

    def test(item: Value) -> Value:
        return item if plain else function.call(tracer, (item,), {})

    return IteratorValue(Steps(step), filter, remake_call(filter, [inner], function), places_of(tracer.frames))


def stop_as_the_end(call: Callable[[], Value]) -> Value:
    """What a call gives; StopIteration of the program ends the iterator that makes the call."""
    try:
        return call()
    except UserRaised as raised:
        if issubclass(raised.value.python_type(), StopIteration):
            raise StopIteration from None
        raise


def _reversed(tracer: Trace, items: Value) -> Value:
    """`reversed(items)` (data model, 3.3.7): by `__reversed__`, else by `__len__` and `__getitem__`."""
    if items.is_tensor:
        return tracer.graph_call("__reversed__", (items,), {})
    if isinstance(items, RangeValue):
        return iterate(tracer, RangeValue(items.value[::-1]))
    if isinstance(items, (SequenceValue, DictValue, DictViewValue)):
        sequence = items
        values = sequence.backwards(tracer)
        last, state = sequence.length(tracer) - 1, state_of(sequence)

        def remake(out: Rebuilding, made: IteratorValue) -> None:
            if state_of(sequence) != state:
                out.cannot(sequence)
            keeps = keeps_position(sequence)
            if not keeps:
                out.null_function(advanced)
            out.null_function(reversed)
            out.load(sequence)
            out.call(1)
            if keeps:
                set_state(out, last - made.taken)
            else:
                out.constant(made.asked)
                out.call(2)

        kind = kind_of_iterator(REVERSED, items.python_type())
        return IteratorValue(values, kind, remake, places_of(tracer.frames))
    kind = items.python_type()
    own = class_member(kind, "__reversed__")
    rely_on_class(tracer, kind, "__reversed__", "__getitem__")
    if own is None or (own is MISSING and class_member(kind, "__getitem__") is MISSING):
        raise_lacking(tracer, items, "__reversed__")
    if isinstance(items, UserObjectValue):
        method = items.method(tracer, "__reversed__")
        if method is not None:
            return method.call(tracer, (), {})
        return IteratorValue(items.backwards(tracer), reversed, indexed=items)
    return IteratorValue(reversed(tracer.unpack(items)), kind_of_iterator(REVERSED, kind))


def _super(tracer: Trace, *args: Value) -> Value:
    """`super()`, which finds class and object in the frame, and `super(cls, owner)`."""
    if len(args) == 1 or (args and args[1].python_type() is type(None)):
        tracer.graph_break("super-of-no-object")
    if args:
        cls, owner = args
    else:
        frame = tracer.frames[-1]
        name = frame.code.co_varnames[0]
        cell = frame.cells.get("__class__")
        if cell is None:
            tracer.raise_error(RuntimeError, "super(): __class__ cell not found")
        cls = cell.get(tracer, "__class__")
        if name in frame.lazy and name not in frame.variables:
            frame.variables[name] = tracer.wrap(*frame.lazy.pop(name))
        owner = frame.cells[name].get(tracer, name) if name in frame.cells else frame.variables[name]
    if not isinstance(cls, ClassValue):
        tracer.graph_break("super-of-no-class", type=cls.describe())
    held = owner.cls if isinstance(owner, ClassValue) else owner.python_type()
    if cls.cls not in (*held.__mro__, *owner.python_type().__mro__):
        try:
            super(cls.cls, namesake(held))
        except TypeError as error:
            tracer.raise_real(error)
    return SuperValue(cls.cls, owner)


def _object(tracer: Trace) -> Value:
    return UserObjectValue(object)


def _method(tracer: Trace, function: Value, owner: Value) -> Value:
    return MethodValue(function, owner, explicit=True)


def _cell(tracer: Trace, *content: Value) -> Value:
    return CellValue(content[0] if content else None)


TYPES: dict[Any, Make] = {
    type: _type,
    bool: _bool,
    int: _number(int),
    float: _number(float),
    complex: _number(complex),
    bytes: _number(bytes),
    list: _list,
    tuple: _tuple,
    torch.Size: _size,
    set: _set(set),
    frozenset: _set(frozenset),
    dict: _dict(dict),
    collections.OrderedDict: _dict(collections.OrderedDict),
    collections.defaultdict: _defaultdict,
    MappingProxyType: _mapping_proxy,
    slice: _slice,
    range: _range,
    enumerate: _enumerate,
    zip: _zip,
    map: _map,
    filter: _filter,
    reversed: _reversed,
    super: _super,
    object: _object,
    CellType: _cell,
    MethodType: _method,
}
