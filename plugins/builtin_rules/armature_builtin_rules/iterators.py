"""Iterators of builtin types that the frame is given: what it takes is taken from the program's own at its end.

What an iterator goes over is what it tells pickle: `iter([1, 2]).__reduce__()` names the list and how far it is.
"""

from __future__ import annotations

import gc
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from armature.plugin_api import (
    CallSource,
    ItemSource,
    IteratorValue,
    ListValue,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueType,
    Write,
    skip_code,
)

LAST_ROUNDS = 2


def parts(iterator: Any) -> tuple[Any, ...]:
    """What the iterator is made of, and its state: 0 where it has none."""
    _, made_of, *state = iterator.__reduce__()
    return (*made_of, state[0] if state and state[0] is not None else 0)


def progress(iterator: Any) -> object:
    """How far an iterator of PASSED has come: equal for those that stand in one place."""
    if type(iterator) in MAPPING_ITERATORS:
        return iterator.__length_hint__()
    found = parts(iterator)
    inner = [progress(part) for part in found if type(part) in PASSED]
    return (*inner, *(part for part in found if type(part) is int))


def left(iterator: Any) -> int | None:
    """How many values an iterator of PASSED has left; None where nobody knows."""
    kind = type(iterator)
    if kind in COUNTED:
        return operator.length_hint(iterator)
    if kind not in (zip, enumerate, map):
        return None
    held = [left(part) for part in parts(iterator) if isinstance(part, Iterator)]
    return None if None in held else min((found for found in held if found is not None), default=0)


def advance(iterator: Iterator[object], times: int) -> None:
    """Ask so many times for the next value."""
    for _ in range(times):
        try:
            next(iterator, None)
        except ValueError:  # of zip(strict=True), which the frame has seen
            return


skip_code(parts.__code__)
skip_code(advance.__code__)


@attrs.define(eq=False)
class IteratorArgument(IteratorValue):
    """An iterator of the program. over: the list, dict or set that it goes over.

    One over a dict or set is at its end, or raises, when that changes.
    """

    over: Value | None = None

    def advance(self, tracer: Tracing) -> Value:
        if self.over in tracer.effects.changed:  # it is asked before that changes, when the frame ends
            tracer.graph_break("iterator-over-changed-list", type=self.kind.__name__)
        tracer.mutate(self)
        return IteratorValue.advance(self, tracer)

    def writes(self, out: Rebuilding) -> list[Write]:
        return [Write(advance, (self, out.value(self.asked)))]


@attrs.define(eq=False)
class InnerIterator(Value):
    """An iterator that belongs to another one: it is not to be used by itself as well."""

    kind: type

    def python_type(self) -> type:
        return self.kind


def over_sequence(tracer: Tracing, obj: Any, source: Source) -> Value:
    """An iterator over a list, tuple, range or text."""
    items, position = _parts(tracer, obj, source)
    first: Any = position.as_constant()
    values = itertools.islice(items.stream(tracer), first, None)
    over = items if isinstance(items, ListValue) else None
    return IteratorArgument(values, type(obj), over=over, source=source)


def held_by(iterator: Any) -> Any:
    """The dict or set that an iterator goes over, None at its end."""
    return next((held for held in gc.get_referents(iterator) if isinstance(held, (dict, set, frozenset))), None)


skip_code(held_by.__code__, below=True)


def over_mapping(tracer: Tracing, obj: Any, source: Source) -> Value | None:
    """An iterator over a dict, its values or items, or a set: what is left of it."""
    try:
        parts(obj)
    except RuntimeError:  # it has changed
        return None
    held = held_by(obj)
    over = tracer.wrap(held, CallSource(source, held_by, "held_by"))
    items = _parts(tracer, obj, source)[0]
    return IteratorArgument(items.stream(tracer), type(obj), over=over, source=source)


def backwards(tracer: Tracing, obj: Any, source: Source) -> Value | None:
    """`reversed(list)`, `reversed(tuple)`."""
    if type(parts(obj)[0]) not in (list, tuple):
        return None
    items, position = _parts(tracer, obj, source)
    last: Any = position.as_constant() if items.length(tracer) else -1
    values = (items.get_item(tracer, tracer.constant(index)) for index in range(last, -1, -1))
    return IteratorArgument(values, type(obj), over=items, source=source)


def counter(tracer: Tracing, obj: Any, source: Source) -> Value:
    """`itertools.count`."""
    found = _parts(tracer, obj, source)
    step = found[1] if len(found) == 3 else tracer.constant(1)

    def numbers() -> Iterator[Value]:
        number = found[0]
        while True:
            yield number
            number = tracer.python.operate("add", number, step)

    return IteratorArgument(numbers(), type(obj), source=source)


def over_iterators(tracer: Tracing, obj: Any, source: Source) -> Value:
    """`zip` and `enumerate`: asked for a value, they ask the iterators they hold."""
    held = parts(obj)
    if any(id(item) in tracer.by_id for item in held if isinstance(item, Iterator)):
        tracer.graph_break("iterator-held-by-another", type=type(obj).__name__)
    found = _parts(tracer, obj, source)
    inner = [value for value in found if isinstance(value, IteratorArgument)]
    if len(inner) != (1 if type(obj) is enumerate else len(found) - 1):
        tracer.graph_break("iterator-over-unknown", type=type(obj).__name__)
    for item in held:
        if isinstance(item, Iterator):
            tracer.remember(item, InnerIterator(type(item), source=tracer.by_id[id(item)][1].source))
    quiet = [IteratorValue(value.values, value.kind) for value in inner]
    made: Any
    if type(obj) is enumerate:
        made = tracer.as_value(enumerate).call(tracer, (*quiet, found[1]), {})
    else:
        made = tracer.as_value(zip).call(tracer, quiet, {"strict": tracer.constant(bool(held[-1]))})
        tracer.guards.equal(_part(source, len(found) - 1), held[-1])
    return IteratorArgument(made.values, type(obj), source=source)


def by_function(tracer: Tracing, obj: Any, source: Source) -> Value:
    """`map` and `filter`: all their state is that of the iterators they hold."""
    function, *inner = _parts(tracer, obj, source)[:-1]
    if not all(isinstance(value, IteratorValue) for value in inner):
        tracer.graph_break("iterator-over-unknown", type=type(obj).__name__)
    made: Any = tracer.as_value(type(obj)).call(tracer, (function, *inner), {})
    return IteratorValue(made.values, type(obj), source=source)


def _part(source: Source, position: int) -> Source:
    return ItemSource(CallSource(source, parts, "state_of"), position)


def _parts(tracer: Tracing, obj: Any, source: Source) -> list[Value]:
    held = parts(obj)
    return [tracer.wrap(item, _part(source, position)) for position, item in enumerate(held)]


SEQUENCES: Iterable[Any] = (iter([]), iter(()), iter(range(1)), iter(""), iter("\u00e9"), iter(b""))
MAPPING: dict[int, int] = {}
MAPPINGS: Iterable[Any] = (
    *(way(view) for view in (MAPPING.keys(), MAPPING.values(), MAPPING.items()) for way in (iter, reversed)),
    iter(set[int]()),
)  # fmt: skip
MAPPING_ITERATORS = frozenset(map(type, MAPPINGS))
COUNTED = MAPPING_ITERATORS.union(map(type, SEQUENCES), (type(reversed([])), reversed))  # they know how many are left
PASSED: dict[type, Callable[[Tracing, Any, Source], Value | None]] = {
    **{type(one): over_sequence for one in SEQUENCES},
    **{type(one): over_mapping for one in MAPPINGS},
    type(reversed([])): backwards,
    reversed: backwards,
    itertools.count: counter,
    zip: over_iterators,
    enumerate: over_iterators,
    map: by_function,
    filter: by_function,
}


def given(obj: Any, source: Source, tracer: Tracing) -> Value | None:
    """The value of an iterator that a frame was given, None where it stays an object of which nothing is known.

    A frame that is resumed asks the iterator of a loop that it is in as it is, and one that was in another place when
    the frame was compiled before: code for one place is of no use at others.
    """
    if tracer.request.is_resumed and _moves(tracer, obj, source):
        return None
    return PASSED[type(obj)](tracer, obj, source)


def _moves(tracer: Tracing, obj: Any, source: Source) -> bool:
    """Whether a resumed frame finds an iterator in other places.

    That of a loop is in another place in each round. The last rounds are traced on all the same: with a break in each,
    as many breaks and as much code come of that as of a loop whose rounds run one by one.
    """
    if tracer.request.is_on_stack(obj):
        rounds = left(obj)
        return rounds is None or rounds > LAST_ROUNDS
    if isinstance(source, ItemSource) and isinstance(source.base, CallSource) and source.base.fn is parts:
        return False  # it belongs to an iterator, whose place tells its own
    return tracer.request.history.changed_number(f"place_of({source.expr})", progress(obj))


VALUE_TYPES = tuple(ValueType(kind, given) for kind in PASSED)
