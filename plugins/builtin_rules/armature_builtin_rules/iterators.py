"""Builtin iterators that are passed to the frame: at its end the program's own iterators are advanced as far.

What an iterator iterates over is found by pickling: `iter([1, 2]).__reduce__()` names the list and the position.
"""

from __future__ import annotations

import enum
import gc
import itertools
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import attrs

from armature.plugin_api import (
    CallSource,
    IteratorValue,
    ListValue,
    PartSource,
    Rebuilding,
    Source,
    Tracing,
    Value,
    ValueType,
    Write,
    remember_rounds,
    skip_code,
    type_name,
)

LAST_ROUNDS = 2  # when a frame resumes inside a loop: most iterations that are traced at once
NEXT_VALUES = ("next value", "value after the next", "third value")
MOST_COPIED = 64  # most remaining entries of a dict, because copying its iterator copies them


class End(enum.Enum):
    """Marks the place of a value that an exhausted iterator lacks."""

    END = "its end"

    def __repr__(self) -> str:
        return self.value


END = End.END


class Restored(Iterator[object], Protocol):
    """An iterator whose position can be set."""

    def __setstate__(self, state: object, /) -> None: ...


def reduced(iterator: object) -> tuple[Callable[..., Restored], tuple[object, ...], object]:
    """What `pickle` makes it of: a function, its arguments, and the state if there is one. TypeError if it has none."""
    found = iterator.__reduce__()
    if isinstance(found, str):
        raise TypeError(found)
    make, made_of, *state = found
    return make, made_of, state[0] if state else None


def components(iterator: object) -> tuple[object, ...]:
    """The iterator's components, and its state: 0 if it has none."""
    _, made_of, state = reduced(iterator)
    return (*made_of, 0 if state is None else state)


def progress(iterator: object) -> object:
    """The position of an iterator of BUILDERS: equal for equal positions."""
    if type(iterator) in MAPPING_ITERATORS:
        return remaining(iterator)
    found = components(iterator)
    inner = [progress(part) for part in found if type(part) in BUILDERS]
    return (*inner, *(part for part in found if type(part) is int))


def remaining(iterator: object) -> int:
    """How many values an iterator of MAPPING_ITERATORS has left; 0 if its mapping has changed."""
    if type(iterator) is not OF_ORDERED_DICT:
        return operator.length_hint(iterator)
    try:
        items = components(iterator)[0]
    except RuntimeError:
        return 0
    return len(items) if isinstance(items, list) else 0


def inner_iterators(iterator: object) -> list[object]:
    """The iterators that `zip`, `enumerate` and `cycle` advance, at any depth."""
    held = [part for part in components(iterator) if isinstance(part, Iterator)] if type(iterator) in HOLDING else []
    return held + [inner for part in held for inner in inner_iterators(part)]


def containers(iterator: object) -> tuple[object, ...]:
    """The lists and dicts that an iterator of COPIED iterates over."""
    every = [one for one in (iterator, *inner_iterators(iterator)) if type(one) not in HOLDING]
    held = [iterated_mapping(one) if type(one) in DICT_ITERATORS else components(one)[0] for one in every]
    return tuple(one for one in held if type(one) in (list, dict, OrderedDict))


def ahead(iterator: object) -> tuple[object, ...] | None:
    """The next values of an iterator, read without advancing it: one more than are traced, with END in place of missing
    ones. None if that would run code of the program, or take long."""
    every = [iterator, *inner_iterators(iterator)]
    if not all(type(one) in COPIED for one in every) or len({id(one) for one in every}) < len(every):
        return None
    if any(type(one) in DICT_ITERATORS and remaining(one) > MOST_COPIED for one in every):
        return None
    try:
        found = tuple(itertools.islice(copied(iterator), LAST_ROUNDS + 1))
        return found + (END,) * (LAST_ROUNDS + 1 - len(found))
    except (RuntimeError, ValueError):  # a dict has changed, or the iterables of `zip(strict=True)` differ in length
        return None


def copied(iterator: object) -> Iterator[object]:
    """Another iterator at the same position. One of a dict iterates over the dict's present items."""
    make, made_of, state = reduced(iterator)
    made = make(*(copied(part) if type(part) in COPIED else part for part in made_of))
    if isinstance(iterator, itertools.cycle) and isinstance(state, tuple):
        state = (list(state[0]), *state[1:])  # a cycle in its first round adds to this list
    if state is not None:
        made.__setstate__(state)
    return made


def advance(iterator: Iterator[object], times: int) -> None:
    """Request the next value this many times."""
    for _ in range(times):
        try:
            next(iterator, None)
        except ValueError:  # raised by zip(strict=True), and already seen by the frame
            return


skip_code(advance.__code__)


@attrs.define(eq=False)
class IteratorArgument(IteratorValue):
    """An iterator of the program. over: the list, dict or set that it iterates over.

    One over a dict or set ends, or raises, when that changes.
    """

    over: Value | None = None

    def advance(self, tracer: Tracing) -> Value:
        # it must be advanced before the change, which is made when the frame ends
        if self.over in tracer.effects.changed:
            tracer.graph_break("iterator-over-changed-list", type=self.kind.__name__)
        tracer.mutate(self)
        return IteratorValue.advance(self, tracer)

    def writes(self, out: Rebuilding) -> list[Write]:
        return [Write(advance, (self, out.value(self.requested)))]


@attrs.define(eq=False)
class InnerIterator(Value):
    """An iterator that belongs to another one, and must not be used separately."""

    kind: type

    def python_type(self) -> type:
        return self.kind


def over_sequence(tracer: Tracing, obj: object, source: Source) -> Value:
    """An iterator over a list, tuple, range or text."""
    items, position = _components(tracer, obj, source)
    first = position.as_constant()
    values = itertools.islice(items.stream(tracer), first, None)
    over = items if isinstance(items, ListValue) else None
    return IteratorArgument(values, type(obj), over=over, source=source)


def iterated_mapping(iterator: object) -> object:
    """The dict or set that an iterator iterates over, None at its end."""
    return next((held for held in gc.get_referents(iterator) if isinstance(held, (dict, set, frozenset))), None)


def over_mapping(tracer: Tracing, obj: object, source: Source) -> Value | None:
    """An iterator over the rest of a dict, its values or items, or a set."""
    try:
        components(obj)
    except RuntimeError:  # it has changed
        return None
    held = iterated_mapping(obj)
    over = tracer.objects.wrap(held, CallSource(source, iterated_mapping, "<what {} goes over>"))
    items = _components(tracer, obj, source)[0]
    return IteratorArgument(items.stream(tracer), type(obj), over=over, source=source)


def backwards(tracer: Tracing, obj: object, source: Source) -> Value | None:
    """`reversed(list)`, `reversed(tuple)`."""
    if type(components(obj)[0]) not in (list, tuple):
        return None
    items, position = _components(tracer, obj, source)
    last = position.as_constant() if items.length(tracer) else -1
    values = (items.get_item(tracer, tracer.constant(index)) for index in range(last, -1, -1))
    return IteratorArgument(values, type(obj), over=items, source=source)


def counter(tracer: Tracing, obj: object, source: Source) -> Value:
    """`itertools.count`."""
    found = _components(tracer, obj, source)
    step = found[1] if len(found) == 3 else tracer.constant(1)

    def numbers() -> Iterator[Value]:
        number = found[0]
        while True:
            yield number
            number = tracer.python.operate("add", number, step)

    return IteratorArgument(numbers(), type(obj), source=source)


def over_iterators(tracer: Tracing, obj: object, source: Source) -> Value:
    """`zip` and `enumerate`, which advance the iterators they hold."""
    held = components(obj)
    if any(id(item) in tracer.objects.by_id for item in held if isinstance(item, Iterator)):
        tracer.graph_break("iterator-held-by-another", type=type(obj).__name__)
    found, numbers = _components(tracer, obj, source), type(obj) is enumerate
    inner = [value for value in found if isinstance(value, IteratorArgument)]
    if len(inner) != (1 if numbers else len(found) - 1):
        tracer.graph_break("iterator-over-unknown", type=type(obj).__name__)
    for item in held:
        if isinstance(item, Iterator):
            tracer.objects.remember(item, InnerIterator(type(item), source=tracer.objects.by_id[id(item)][1].source))
    quiet = [IteratorValue(value.values, value.kind) for value in inner]
    if numbers:
        made = tracer.as_value(enumerate).call(tracer, (*quiet, found[1]), {})
    else:
        made = tracer.as_value(zip).call(tracer, quiet, {"strict": tracer.constant(bool(held[-1]))})
        strict = PartSource(CallSource(source, components, "<parts of {}>"), len(found) - 1, f"strict of {source.expr}")
        tracer.guards.equal(strict, held[-1])
    return IteratorArgument(values_of(tracer, made), type(obj), source=source)


def values_of(tracer: Tracing, made: Value) -> Iterator[Value]:
    """The values of an iterator that was just made."""
    if not isinstance(made, IteratorValue):
        tracer.graph_break("iterator-over-unknown", type=type_name(made.python_type()))
    return made.values


def by_function(tracer: Tracing, obj: object, source: Source) -> Value:
    """`map` and `filter`: their only state is that of the iterators they hold."""
    function, *inner = _components(tracer, obj, source)[:-1]
    if not all(isinstance(value, IteratorValue) for value in inner):
        tracer.graph_break("iterator-over-unknown", type=type(obj).__name__)
    made = tracer.as_value(type(obj)).call(tracer, (function, *inner), {})
    return IteratorValue(values_of(tracer, made), type(obj), source=source)


def part_in_words(kind: type, position: int) -> str:
    """The text shown to users for one of `parts` of an iterator; {} stands for the iterator."""
    if kind is enumerate:
        return "next number of {}" if position else "what {} enumerates"
    if kind is itertools.count:
        return "step of {}" if position else "next number of {}"
    if kind in (map, filter):
        return f"iterator {position} of {{}}" if position else "function of {}"
    if kind is zip:
        return f"iterator {position + 1} of {{}}"
    return "place in {}" if position else "items of {}"


def _component(obj: object, source: Source, position: int) -> Source:
    name = source.expr[1:-1] if isinstance(source, PartSource) else source.expr
    words = part_in_words(type(obj), position).replace("{}", name)
    return PartSource(CallSource(source, components, "<parts of {}>"), position, f"<{words}>")


def _components(tracer: Tracing, obj: object, source: Source) -> list[Value]:
    held = components(obj)
    return [tracer.objects.wrap(item, _component(obj, source, position)) for position, item in enumerate(held)]


SEQUENCES: Iterable[object] = (iter([]), iter(()), iter(range(1)), iter(""), iter("\u00e9"), iter(b""))
MAPPING: dict[int, int] = {}
MAPPINGS: Iterable[object] = (
    *(way(view) for view in (MAPPING.keys(), MAPPING.values(), MAPPING.items()) for way in (iter, reversed)),
    iter(OrderedDict[int, int]()),
    iter(set[int]()),
)  # fmt: skip
OF_ORDERED_DICT = type(iter(OrderedDict[int, int]()))  # over keys, values or items, in either order
MAPPING_ITERATORS = frozenset(map(type, MAPPINGS))
DICT_ITERATORS = MAPPING_ITERATORS - {type(iter(set[int]()))}
HOLDING = (zip, enumerate, itertools.cycle)
# they can be copied, and their values can be read without running code of the program
COPIED = DICT_ITERATORS.union(map(type, SEQUENCES), (type(reversed([])), reversed), HOLDING)
BUILDERS: dict[type, Callable[[Tracing, object, Source], Value | None]] = {
    **{type(one): over_sequence for one in SEQUENCES},
    **{type(one): over_mapping for one in MAPPINGS},
    type(reversed([])): backwards,
    reversed: backwards,
    itertools.count: counter,
    zip: over_iterators,
    enumerate: over_iterators,
    map: by_function,
    filter: by_function,
    itertools.cycle: lambda tracer, obj, source: moving(tracer, obj, source),
}


@attrs.define(eq=False)
class MovingIterator(IteratorArgument):
    """An iterator whose position differs from call to call, such as that of the loop that a frame resumes in.

    Only the values that the frame reads are guarded, and the end if it is reached. `program`: the real iterator.
    """

    source: Source = attrs.field(kw_only=True)
    program: object = attrs.field(kw_only=True)
    inside: list[Value] | None = None  # the lists and dicts that it iterates over, once it was advanced

    def advance(self, tracer: Tracing) -> Value:
        if self.inside is None:
            self.inside = self._look_inside(tracer)
        if any(held in tracer.effects.changed for held in self.inside):
            tracer.graph_break("iterator-over-changed-list", type=self.kind.__name__)
        return IteratorArgument.advance(self, tracer)

    def _look_inside(self, tracer: Tracing) -> list[Value]:
        place = CallSource(self.source, containers, "<what {} iterates over>")
        for item in inner_iterators(self.program):
            if id(item) in tracer.objects.by_id:
                tracer.graph_break("iterator-held-by-another", type=self.kind.__name__)
        return [
            tracer.objects.wrap(held, PartSource(place, position, f"<what {self.source.expr} iterates over>"))
            for position, held in enumerate(containers(self.program))
        ]


def moving(tracer: Tracing, obj: object, source: Source) -> Value | None:
    """The value of an iterator at changing positions; None if its next values can't be read without advancing it."""
    found = ahead(obj)
    if found is None:
        return None
    place = CallSource(source, ahead, "<next values of {}>")
    places = [PartSource(place, at, f"<{words} of {source.expr}>") for at, words in enumerate(NEXT_VALUES)]
    remember_rounds(tracer.request, obj, [item for item in found if item is not END], places)

    def values() -> Iterator[Value]:
        for item, part in zip(found, places):
            if item is END:
                tracer.guards.same(part, END)
                return
            if part is places[LAST_ROUNDS]:
                tracer.graph_break("next-of-iterator", type=type(obj).__name__)
            yield tracer.objects.wrap(item, part)

    return MovingIterator(values(), type(obj), source=source, program=obj)


def value_of_iterator(obj: object, source: Source, tracer: Tracing) -> Value | None:
    """The value of an iterator passed to a frame; None if it stays an opaque object. The number of a counter
    becomes a symbol instead."""
    if tracer.request.is_resumed and type(obj) is not itertools.count and _moves(tracer, obj, source):
        return moving(tracer, obj, source)
    return BUILDERS[type(obj)](tracer, obj, source)


def _moves(tracer: Tracing, obj: object, source: Source) -> bool:
    """Whether a resumed frame gets the iterator at another position each time. Code that is compiled for one position
    would be useless for the others.

    A loop's iterator has another position in each iteration.
    """
    if tracer.request.is_on_stack(obj):
        return True
    if isinstance(source, PartSource):
        return False  # it belongs to an outer iterator, whose position implies its own
    return tracer.request.history.changed_number(f"place_of({source.expr})", progress(obj))


VALUE_TYPES = tuple(ValueType(kind, value_of_iterator) for kind in BUILDERS)
