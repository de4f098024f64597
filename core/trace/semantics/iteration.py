"""Iterators over values: how they produce items, and how an iterator in progress is rebuilt."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from armature.introspection import MISSING, class_member, is_written_in_c
from armature.torch_abi.eval_frame import skip_code
from armature.trace.base import Value, raise_lacking
from armature.trace.errors import UserRaised
from armature.trace.locations import locations_of
from armature.trace.slots import is_iterable
from armature.trace.values.classes import find_in_class, must_be_iterator, overrides, rely_on_class
from armature.trace.values.constant import NONE
from armature.trace.values.derived import native
from armature.trace.values.iterator import LIST_ITERATOR, GeneratorValue, IteratorValue
from armature.trace.values.methods import ContainerValue
from armature.trace.values.sequence import TupleValue
from armature.trace.values.slices import RangeValue
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing

T = TypeVar("T")


def iterator(tracer: Tracing, value: Value) -> Value:
    """`iter(value)`."""
    if isinstance(value, (IteratorValue, GeneratorValue)):
        return value
    if isinstance(value, UserObjectValue):
        method = value.method(tracer, "__iter__")
        if method is not None and method is not NONE:
            return must_be_iterator(tracer, method.call(tracer, (), {}))
    return iterate(tracer, value)


def collect_items(tracer: Tracing, value: Value) -> Iterator[Value]:
    """The items of an iterable, consumed as for making a list or tuple: Python calls `len` first."""
    items = value.stream(tracer)
    if isinstance(value, UserObjectValue):
        ask_length(tracer, value)
    elif isinstance(value, IteratorValue) and value.indexed is not None and not value.ended:
        with passing_type_error():
            value.indexed.length(tracer)
    elif value.is_tensor and tracer.overrides.present:
        items = iter(list(items))
        value.length(tracer)
    return items


def in_sequence(tracer: Tracing, value: Value, refusal: str) -> list[Value]:
    """See `PythonVerbs.in_sequence`."""
    if value.plain_items:
        return tracer.unpack(value)
    try:
        made = tracer.python.iterator(value)
    except UserRaised as raised:
        if not issubclass(raised.value.python_type(), TypeError):
            raise
        tracer.raise_error(TypeError, refusal)
    return list(collect_items(tracer, made))


def ask_length(tracer: Tracing, value: UserObjectValue) -> None:
    """Call `__len__` as `list` does, to know how much room it needs: it may raise. A `__length_hint__` is left to C."""
    rely_on_class(tracer, value.cls, "__len__", "__length_hint__")
    found = find_in_class(value.cls, "__len__")
    with passing_type_error():
        if found is not None and (is_written_in_c(found.holder) or value.length(tracer) >= 0):
            return
    if overrides(value.cls, "__length_hint__"):
        tracer.graph_break("iteration-of-object", type=value.describe())


@contextlib.contextmanager
def passing_type_error() -> Iterator[None]:
    """A TypeError of the program is ignored, as `operator.length_hint` does."""
    try:
        yield
    except UserRaised as raised:
        if not issubclass(raised.value.python_type(), TypeError):
            raise


def iterate(tracer: Tracing, value: Value) -> IteratorValue:
    """`iter(value)` of a value that is not an iterator itself."""
    kind = value.python_type()
    if not is_iterable(kind):
        rely_on_class(tracer, kind, "__iter__", "__getitem__")
        raise_lacking(tracer, value, "__iter__")
    if isinstance(value, TensorValue):
        value = TupleValue(list(value.stream(tracer)))
    items = iter(value.stream(tracer))  # all keys of a dict of the program are known from here on
    remake = functools.partial(remake_over, value, state_of(value)) if value.plain_items else None
    made = IteratorValue(items, kind_of_iterator(value), remake, locations_of(tracer.stack.frames))
    if isinstance(value, UserObjectValue) and class_member(kind, "__iter__") is MISSING:
        made.indexed, made.kind = value, SEQUENCE_ITERATOR
    return made


def reverse(tracer: Tracing, items: Value) -> Value:
    """`reversed(items)` (3.3.7 and the library reference): by `__reversed__`, else by `__len__` and `__getitem__`."""
    kind = items.python_type()
    if items.is_tensor:
        return tracer.graph.call("__reversed__", (items,), {})
    if isinstance(items, RangeValue):
        return iterate(tracer, RangeValue(items.value[::-1]))
    values = items.backwards(tracer) if "__reversed__" in items.slots else None
    if values is not None:
        last = items.length(tracer) - 1
        remake = functools.partial(remake_backwards, items, state_of(items), last)
        return IteratorValue(values, kind_of_iterator(items, backwards=True), remake, locations_of(tracer.stack.frames))
    own = class_member(kind, "__reversed__")
    rely_on_class(tracer, kind, "__reversed__", "__getitem__")
    if own is None or (own is MISSING and class_member(kind, "__getitem__") is MISSING):
        raise_lacking(tracer, items, "__reversed__")
    if isinstance(items, UserObjectValue):
        method = items.method(tracer, "__reversed__")
        if method is not None:
            return method.call(tracer, (), {})
        return IteratorValue(items.backwards_by_index(tracer), reversed, indexed=items)
    return IteratorValue(reversed(tracer.unpack(items)), kind_of_iterator(items, backwards=True))


class _Indexed:
    """An iterable without `__iter__`."""

    def __getitem__(self, position: int) -> object:
        raise IndexError(position)


SEQUENCE_ITERATOR: type = type(iter(_Indexed()))
VIEWS: tuple[Any, ...] = ({}.keys(), {}.values(), {}.items())
EMPTY: tuple[Any, ...] = ([], (), {}, *VIEWS, range(0))
TEXTS: tuple[Any, ...] = ("", b"", bytearray(), memoryview(b""))
ITERATORS: dict[type, type] = {type(of): type(iter(of)) for of in (*EMPTY, *TEXTS, set(), frozenset())}
REVERSED: dict[type, type] = {type(of): type(reversed(of)) for of in EMPTY}


def kind_of_iterator(value: Value, *, backwards: bool = False) -> type:
    """The class of the iterators over an object."""
    own = native(value)
    if isinstance(own, ContainerValue) and own.iterators is not None:
        return own.iterators[backwards]
    known, default = (REVERSED, reversed) if backwards else (ITERATORS, LIST_ITERATOR)
    return next((known[cls] for cls in value.python_type().__mro__ if cls in known), default)


def state_of(value: Value) -> tuple[int, int]:
    """A container's modification counters, which must not change while it is iterated; constant for other values."""
    return value.shape() if isinstance(value, ContainerValue) else (0, 0)


def keeps_position(value: Value) -> bool:
    """Whether the position of an iterator over the value can be set: not for deques, dicts and sets."""
    return issubclass(value.python_type(), (bytes, list, range, str, tuple))


def remake_over(value: Value, state: tuple[int, int], out: Rebuilding, iterator: IteratorValue) -> None:
    """Push an iterator over a value, advanced as far as this one. An exhausted one does not see items added later."""
    if iterator.ended and iterator.kind is LIST_ITERATOR:
        out.null_function(advanced)
        out.build("BUILD_LIST", 0)
        out.constant(1)
        out.call(2)
        return
    remake(iter, value, state, iterator.returned, out, iterator)


def remake_backwards(value: Value, state: tuple[int, int], last: int, out: Rebuilding, iterator: IteratorValue) -> None:
    """Push a reversed iterator, advanced as far as this one. last: the position at which it began."""
    remake(reversed, value, state, last - iterator.returned, out, iterator)


def remake(
    make: Any, value: Value, state: tuple[int, int], position: int, out: Rebuilding, iterator: IteratorValue
) -> None:
    """Push `make(value)`, advanced as far as the iterator. position: its state, for values that keep it."""
    if state_of(value) != state:
        out.cannot(value)
    looked_at = value.container if isinstance(value, ContainerValue) else value
    keeps = keeps_position(value)
    if not keeps and looked_at in out.tracer.effects.changed:
        out.cannot(value)  # the iterator would see the change, which is made after everything is rebuilt
    if not keeps:
        out.null_function(advanced)
    out.null_function(make)
    out.load(value)
    out.call(1)
    if not keeps:
        out.constant(iterator.requested)
        out.call(2)
    elif value in out.tracer.effects.changed:  # the list may be shorter until the changes are made
        out.later(vars(iterator.kind)["__setstate__"], position)
    else:
        set_state(out, position)


def set_state(out: Rebuilding, state: int) -> None:
    """Set the position of the iterator on the stack."""
    out.emit("COPY", 1)
    out.attribute("__setstate__")
    out.null_below()
    out.constant(state)
    out.call(1)
    out.emit("POP_TOP")


def advanced(items: Iterable[object], count: int) -> Iterator[object]:
    """Advance an iterator by a number of items."""
    made = iter(items)
    for _ in itertools.islice(made, count):
        pass
    return made


skip_code(advanced.__code__)
