"""Iterators of builtin functions: how they produce items, and how an iterator in progress is rebuilt."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import GeneratorType

from armature.plugin_api import (
    MISSING,
    Call,
    ExceptionValue,
    GeneratorValue,
    IteratorValue,
    ObjectValue,
    Rebuilding,
    Steps,
    Tracing,
    TupleValue,
    UserRaised,
    Value,
    advanced,
    as_index,
    class_member,
    handles,
    is_iterable,
    locations_of,
    method_of,
    raise_lacking,
    rely_on_class,
)
from armature_builtin_rules.functions.classes import is_callable

CALLABLE_ITERATOR: type = type(iter(int, 1))


@handles(iter)
def make_iterator(call: Call, obj: Value, *sentinel: Value) -> Value:
    """`iter(obj)`, and `iter(function, sentinel)`."""
    if not sentinel:
        return call.tracing.python.iterator(obj)
    if not is_callable(call, obj).truth(call.tracing):
        # the error's wording depends on the Python version
        call.graph_break("iter-of-no-callable", type=obj.describe())
    return until(call.tracing, obj, sentinel[0])


def until(tracer: Tracing, function: Value, sentinel: Value) -> IteratorValue:
    """`iter(function, sentinel)`."""
    over = False

    def step() -> Value:
        nonlocal over
        if over:
            raise StopIteration
        try:
            item = stop_as_the_end(lambda: function.call(tracer, (), {}))
        except StopIteration:
            over = True
            raise
        over = tracer.python.same_or_equal(item, sentinel)
        if over:
            raise StopIteration
        return item

    def remake(out: Rebuilding, made: IteratorValue) -> None:
        if over:
            out.null_function(advanced)  # any exhausted iterator will do
        out.null_function(iter)
        out.load(out.value(int) if over else function)
        out.load(out.value(0) if over else sentinel)
        out.call(2)
        if over:
            out.constant(1)
            out.call(2)

    return IteratorValue(Steps(step), CALLABLE_ITERATOR, remake, locations_of(tracer.stack.frames))


@handles(next)
def next_of(call: Call, iterator: Value, default: Value | None = None, /) -> Value:
    """`next(iterator)`; if there is a default, StopIteration is caught."""
    kind = iterator.python_type()
    if class_member(kind, "__next__") is MISSING:
        rely_on_class(call.tracing, kind, "__next__")
        raise_lacking(call.tracing, iterator, "__next__")
    try:
        if isinstance(iterator, (IteratorValue, GeneratorValue)):
            return or_stop_iteration(lambda: iterator.advance(call.tracing))
        if isinstance(iterator, ObjectValue):
            return iterator.special(call.tracing, "__next__")
        return iterator.call_method(call.tracing, "__next__", (), {})
    except UserRaised as raised:
        if default is not None and issubclass(raised.value.python_type(), StopIteration):
            return default
        raise


def or_stop_iteration(step: Callable[[], Value]) -> Value:
    """A step of an iterator; at its end raises StopIteration of the program, with a generator's return value unless
    that is None."""
    try:
        return step()
    except StopIteration as end:
        value = end.value
    empty = value is None or (value.is_constant and value.as_constant() is None)
    raise UserRaised(ExceptionValue(StopIteration, [] if empty else [value]))


@method_of(GeneratorValue, GeneratorType.send)
def send(tracer: Tracing, generator: GeneratorValue, value: Value, /) -> Value:
    """`generator.send(value)`."""
    refuse_stand_in(tracer, generator, "send")
    return or_stop_iteration(lambda: generator.send(tracer, value))


@method_of(GeneratorValue, GeneratorType.throw)
def throw(tracer: Tracing, generator: GeneratorValue, error: Value, *made_of: Value) -> Value:
    """`generator.throw(error)`, or its older form with class, value and traceback."""
    refuse_stand_in(tracer, generator, "throw")
    given = made_of[0] if made_of else None
    if isinstance(given, ExceptionValue):
        error = given
    elif given is not None:
        error = error.call(tracer, tracer.unpack(given) if given.python_type() is tuple else (given,), {})
    return or_stop_iteration(lambda: generator.throw(tracer, tracer.as_exception(error)))


@method_of(GeneratorValue, GeneratorType.close)
def close(tracer: Tracing, generator: GeneratorValue) -> None:
    """`generator.close()`."""
    refuse_stand_in(tracer, generator, "close")
    generator.close(tracer)


def refuse_stand_in(tracer: Tracing, generator: GeneratorValue, name: str) -> None:
    """Break the graph if the generator replaces a C iterator, which has no such method."""
    if generator.original is not None:
        tracer.graph_break("method-of-value", name=name, type=generator.describe())


@handles(all)
def all_true(call: Call, items: Value) -> Value:
    """Whether all are true; stops at the first that is not."""
    return call.constant(all(item.truth(call.tracing) for item in items.stream(call.tracing)))


@handles(any)
def any_true(call: Call, items: Value) -> Value:
    """Whether any is true; stops at the first that is."""
    return call.constant(any(item.truth(call.tracing) for item in items.stream(call.tracing)))


@handles(enumerate)
def numbered(call: Call, items: Value, start: Value | None = None) -> Value:
    """Pairs of a number and an item."""
    tracer = call.tracing
    first = 0 if start is None else as_index(tracer, start)
    inner = inner_iterator(tracer, items)

    stream, number = stream_of(tracer, inner), first

    def step() -> Value:
        nonlocal number
        item = next(stream)
        number += 1
        return TupleValue([tracer.constant(number - 1), item])

    def remake(out: Rebuilding, made: IteratorValue) -> None:
        if isinstance(inner, ObjectValue) or (made.requested and not isinstance(inner, IteratorValue)):
            out.cannot(inner)  # an iterator that is made anew would start again
        out.null_function(enumerate)
        out.load(inner)
        out.constant(first + made.returned)
        out.call(2)

    return IteratorValue(Steps(step), enumerate, remake, locations_of(tracer.stack.frames))


def inner_iterator(tracer: Tracing, items: Value) -> Value:
    """The iterator held by an outer one; a rebuildable one if it is known how to rebuild it."""
    own = isinstance(items, ObjectValue) or items.is_tensor or items.plain_items
    return tracer.python.iterator(items) if own or not is_iterable(items.python_type()) else items


def stream_of(tracer: Tracing, inner: Value) -> Iterator[Value]:
    """The values of an inner iterator, whose `__iter__` was already called."""
    return Steps(lambda: inner.advance(tracer)) if isinstance(inner, ObjectValue) else inner.stream(tracer)


def opened(tracer: Tracing, iterables: tuple[Value, ...]) -> tuple[list[Value], list[Iterator[Value]]]:
    """An iterator over each iterable, with its stream of values."""
    inner: list[Value] = []
    streams: list[Iterator[Value]] = []
    for iterable in iterables:
        inner.append(inner_iterator(tracer, iterable))
        streams.append(stream_of(tracer, inner[-1]))
    return inner, streams


def remake_call(
    function: Callable[..., object], iterators: list[Value], *first: Value
) -> Callable[[Rebuilding, IteratorValue], None]:
    """A function that rebuilds an iterator by calling `function` on its inner iterators as they are now."""

    def remake(out: Rebuilding, made: IteratorValue) -> None:
        out.null_function(function)
        for value in first:
            out.load(value)
        for value in iterators:
            if isinstance(value, ObjectValue) or (made.requested and not isinstance(value, IteratorValue)):
                out.cannot(value)
            out.load(value)
        out.call(len(first) + len(iterators))

    return remake


@handles(zip)
def zipped(call: Call, *iterables: Value, strict: Value | None = None) -> Value:
    """Rows of one item from each iterable."""
    must_match = strict is not None and strict.truth(call.tracing)
    inner, streams = opened(call.tracing, iterables)

    def step() -> Value:
        row: list[Value] = []
        for stream in streams:
            try:
                row.append(next(stream))
            except StopIteration:
                if must_match:
                    check_all_end(call.tracing, streams, len(row))
                raise
        if not streams:
            raise StopIteration
        return TupleValue(row)

    remake = None if must_match else remake_call(zip, inner)
    return IteratorValue(Steps(step), zip, remake, locations_of(call.tracing.stack.frames))


def check_all_end(tracer: Tracing, streams: list[Iterator[Value]], ended: int) -> None:
    """For zip(strict=True), when the stream at a position has ended: all others must have ended too."""
    if ended:
        tracer.raise_error(ValueError, f"zip() argument {ended + 1} is shorter than {arguments_up_to(ended)}")
    for position, stream in enumerate(streams[1:], 1):
        if next(stream, None) is not None:
            text = f"zip() argument {position + 1} is longer than {arguments_up_to(position)}"
            tracer.raise_error(ValueError, text)


def arguments_up_to(count: int) -> str:
    """The first `count` arguments, in words."""
    return "argument 1" if count == 1 else f"arguments 1-{count}"


@handles(map)
def mapped(call: Call, function: Value, *iterables: Value) -> Value:
    """The function's results for rows of one item from each iterable."""
    if not iterables:
        call.tracing.raise_error(TypeError, "map() must have at least two arguments.")
    inner, streams = opened(call.tracing, iterables)

    def step() -> Value:
        row = [next(stream) for stream in streams]
        return stop_as_the_end(lambda: function.call(call.tracing, row, {}))

    return IteratorValue(Steps(step), map, remake_call(map, inner, function), locations_of(call.tracing.stack.frames))


@handles(filter)
def filtered(call: Call, function: Value, items: Value) -> Value:
    """The items for which the function is true."""
    plain = function.is_constant and function.as_constant() is None
    [inner], [stream] = opened(call.tracing, (items,))

    def step() -> Value:
        while True:
            item = next(stream)
            if stop_as_the_end(functools.partial(test, item)).truth(call.tracing):
                return item

    def test(item: Value) -> Value:
        return item if plain else function.call(call.tracing, (item,), {})

    return IteratorValue(
        Steps(step), filter, remake_call(filter, [inner], function), locations_of(call.tracing.stack.frames)
    )


def stop_as_the_end(ask: Callable[[], Value]) -> Value:
    """Call a function on behalf of an iterator; a StopIteration of the program ends that iterator."""
    try:
        return ask()
    except UserRaised as raised:
        if issubclass(raised.value.python_type(), StopIteration):
            raise StopIteration from None
        raise


@handles(reversed)
def backwards(call: Call, items: Value) -> Value:
    """The items from last to first."""
    return call.tracing.python.reversed_iterator(items)
