"""Iterators and generators that the frame was given: what it takes is taken from the program's own at its end.

What an iterator goes over is what it tells pickle: `iter([1, 2]).__reduce__()` names the list and how far it is.
"""

from __future__ import annotations

import gc
import inspect
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import attrs

from armature.frame.sources import AttrSource, CallSource, ItemSource, Source
from armature.torch_abi.eval_frame import skip_code
from armature.trace.frame_state import Frame
from armature.trace.semantics.inlining import namespace_source
from armature.trace.values.base import Value, Write
from armature.trace.values.exception import ExceptionValue
from armature.trace.values.iterator import GeneratorValue, IteratorValue
from armature.trace.values.sequence import ListValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace
    from armature.trace.values.base import Rebuilding, Tracing


CHANGED = "a {} over what the frame has changed"


def parts(iterator: Any) -> tuple[Any, ...]:
    """What the iterator is made of, and its state: 0 where it has none."""
    _, made_of, *state = iterator.__reduce__()
    return (*made_of, state[0] if state and state[0] is not None else 0)


def progress(iterator: Any) -> object:
    """How far an iterator of PASSED, but no generator, has come: equal for those that stand in one place."""
    if type(iterator) in MAPPING_ITERATORS:
        return iterator.__length_hint__()
    found = parts(iterator)
    inner = [progress(part) for part in found if type(part) in PASSED and type(part) is not GeneratorType]
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
class PassedIterator(IteratorValue):
    """An iterator of the program. over: the list that it goes over."""

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


def over_sequence(tracer: Trace, obj: Any, source: Source) -> Value:
    """An iterator over a list, tuple, range or text."""
    tracer.guards.type_is(source, type(obj))
    items, position = _parts(tracer, obj, source)
    first: Any = position.as_constant()
    values = itertools.islice(items.stream(tracer), first, None)
    over = items if isinstance(items, ListValue) else None
    return tracer.remember(obj, PassedIterator(values, type(obj), over=over, source=source))


@attrs.define(eq=False)
class MappingIterator(PassedIterator):
    """An iterator over a dict or set: it is at its end, or raises, when that changes."""


def held_by(iterator: Any) -> Any:
    """The dict or set that an iterator goes over, None at its end."""
    return next((held for held in gc.get_referents(iterator) if isinstance(held, (dict, set, frozenset))), None)


skip_code(held_by.__code__, below=True)


def over_mapping(tracer: Trace, obj: Any, source: Source) -> Value | None:
    """An iterator over a dict, its values or items, or a set: what is left of it."""
    try:
        parts(obj)
    except RuntimeError:  # it has changed
        return None
    tracer.guards.type_is(source, type(obj))
    held = held_by(obj)
    over = tracer.wrap(held, CallSource(source, held_by, "held_by"))
    items = _parts(tracer, obj, source)[0]
    return tracer.remember(obj, MappingIterator(items.stream(tracer), type(obj), over=over, source=source))


def backwards(tracer: Trace, obj: Any, source: Source) -> Value | None:
    """`reversed(list)`, `reversed(tuple)`."""
    if type(parts(obj)[0]) not in (list, tuple):
        return None
    tracer.guards.type_is(source, type(obj))
    items, position = _parts(tracer, obj, source)
    last: Any = position.as_constant() if items.length(tracer) else -1
    values = (items.get_item(tracer, tracer.constant(index)) for index in range(last, -1, -1))
    return tracer.remember(obj, PassedIterator(values, type(obj), over=items, source=source))


def counter(tracer: Trace, obj: Any, source: Source) -> Value:
    """`itertools.count`."""
    tracer.guards.type_is(source, type(obj))
    found = _parts(tracer, obj, source)
    step = found[1] if len(found) == 3 else tracer.constant(1)

    def numbers() -> Iterator[Value]:
        number = found[0]
        while True:
            yield number
            number = tracer.python.operate("add", number, step)

    return tracer.remember(obj, PassedIterator(numbers(), type(obj), source=source))


def over_iterators(tracer: Trace, obj: Any, source: Source) -> Value:
    """`zip` and `enumerate`: asked for a value, they ask the iterators they hold."""
    tracer.guards.type_is(source, type(obj))
    held = parts(obj)
    if any(id(item) in tracer.by_id for item in held if isinstance(item, Iterator)):
        tracer.graph_break("iterator-held-by-another", type=type(obj).__name__)
    found = _parts(tracer, obj, source)
    inner = [value for value in found if isinstance(value, PassedIterator)]
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
    return tracer.remember(obj, PassedIterator(made.values, type(obj), source=source))


def by_function(tracer: Trace, obj: Any, source: Source) -> Value:
    """`map` and `filter`: all their state is that of the iterators they hold."""
    tracer.guards.type_is(source, type(obj))
    function, *inner = _parts(tracer, obj, source)[:-1]
    if not all(isinstance(value, (IteratorValue, GeneratorValue)) for value in inner):
        tracer.graph_break("iterator-over-unknown", type=type(obj).__name__)
    made: Any = tracer.as_value(type(obj)).call(tracer, (function, *inner), {})
    return tracer.remember(obj, IteratorValue(made.values, type(obj), source=source))


def _part(source: Source, position: int) -> Source:
    return ItemSource(CallSource(source, parts, "parts_of"), position)


def is_part(source: Source) -> bool:
    """Whether what is there belongs to an iterator, whose place tells its own."""
    return isinstance(source, ItemSource) and isinstance(source.base, CallSource) and source.base.fn is parts


def _parts(tracer: Trace, obj: Any, source: Source) -> list[Value]:
    held = parts(obj)
    return [tracer.wrap(item, _part(source, position)) for position, item in enumerate(held)]


# Generators.


@attrs.define(eq=False)
class PassedGenerator(GeneratorValue):
    """A generator of the program that has not begun: one that comes to its end in the frame is closed then."""

    def _run(self, tracer: Tracing) -> Value:
        tracer.mutate(self)
        return GeneratorValue._run(self, tracer)

    def throw(self, tracer: Tracing, error: ExceptionValue) -> Value:
        tracer.mutate(self)
        return GeneratorValue.throw(self, tracer, error)

    def close(self, tracer: Tracing) -> None:
        tracer.mutate(self)
        GeneratorValue.close(self, tracer)

    def writes(self, out: Rebuilding) -> list[Write]:
        if not self.finished:
            out.cannot(self)
        return [Write(GeneratorType.close, (self,))]


def variables(generator: GeneratorType[Any, Any, Any]) -> dict[str, Any]:
    """The variables of a generator's frame."""
    return {} if generator.gi_frame is None else dict(generator.gi_frame.f_locals)


def state(generator: GeneratorType[Any, Any, Any]) -> str:
    """Whether it has begun."""
    return inspect.getgeneratorstate(generator)


skip_code(variables.__code__)
skip_code(state.__code__, below=True)


def generator(tracer: Trace, obj: GeneratorType[Any, Any, Any], source: Source) -> Value | None:
    """A generator of the program. None: it has begun, or shares variables with other functions."""
    tracer.guards.type_is(source, GeneratorType)
    tracer.guards.equal(CallSource(source, state, "state_of"), state(obj))
    code = obj.gi_code
    if state(obj) == inspect.GEN_CLOSED:
        return tracer.remember(obj, IteratorValue(iter(()), GeneratorType, source=source))
    if state(obj) != inspect.GEN_CREATED or code.co_freevars or code.co_cellvars or obj.gi_frame is None:
        return None
    tracer.guards.same(AttrSource(source, "gi_code"), code)
    inside = CallSource(source, variables, "variables_of")
    held = {name: tracer.wrap(value, ItemSource(inside, name)) for name, value in variables(obj).items()}
    namespace = obj.gi_frame.f_globals
    where = namespace_source(tracer, namespace, namespace.get("__name__"))
    frame = Frame(tracer, code, namespace, held, {}, tracer.request.builtins, where)
    starts = (place for place, inst in enumerate(frame.instructions) if inst.opname == "RETURN_GENERATOR")
    frame.position = next(starts) + 1
    return tracer.remember(obj, PassedGenerator(frame, source=source))


SEQUENCES: Iterable[Any] = (iter([]), iter(()), iter(range(1)), iter(""), iter("\u00e9"), iter(b""))
MAPPING: dict[int, int] = {}
MAPPINGS: Iterable[Any] = (
    *(way(view) for view in (MAPPING.keys(), MAPPING.values(), MAPPING.items()) for way in (iter, reversed)),
    iter(set[int]()),
)  # fmt: skip
MAPPING_ITERATORS = frozenset(map(type, MAPPINGS))
COUNTED = MAPPING_ITERATORS.union(map(type, SEQUENCES), (type(reversed([])), reversed))  # they know how many are left
# None: the iterator stays an object of which nothing is known.
PASSED: dict[type, Callable[[Trace, Any, Source], Value | None]] = {
    **{type(one): over_sequence for one in SEQUENCES},
    **{type(one): over_mapping for one in MAPPINGS},
    type(reversed([])): backwards,
    reversed: backwards,
    itertools.count: counter,
    zip: over_iterators,
    enumerate: over_iterators,
    map: by_function,
    filter: by_function,
    GeneratorType: generator,
}
