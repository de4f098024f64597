"""Functions with a functools.lru_cache."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from typing import NoReturn

import attrs
import torch

from armature.plugin_api import (
    Answer,
    Args,
    AttrSource,
    CachedCallSource,
    Decision,
    DictValue,
    GraphBreak,
    Identity,
    Kwargs,
    ListValue,
    NotConstant,
    ObjectSource,
    ObjectValue,
    Resolver,
    SequenceValue,
    Source,
    Tracing,
    TupleValue,
    Value,
    assumed_constant,
    derives,
    is_trusted,
    locations_of,
)

OF_THE_CACHE = frozenset({"cache_info", "cache_clear", "cache_parameters"})


@attrs.define(eq=False)
class CachedFunctionValue(Value):
    """A function of the program whose results are cached. It is traced once for each set of arguments.

    Python would not run it again for known arguments. So a function that does more than compute runs eagerly. Otherwise
    the result is taken from the function's own cache, as another input of the frame, because it may have been changed
    since. If an argument is an object made in the frame, the traced result is used.
    """

    obj: functools._lru_cache_wrapper[object]
    inner: Value
    source: Source = attrs.field(kw_only=True)
    results: dict[Hashable, Value] = attrs.field(factory=dict)

    slots = frozenset({"__call__", "__hash__"})

    def python_type(self) -> type:
        return type(self.obj)

    def describe(self) -> str:
        return f"{self.obj.__wrapped__.__qualname__}, whose results are kept,"

    def as_object(self) -> functools._lru_cache_wrapper[object]:
        return self.obj

    def key(self, tracer: Tracing) -> Hashable:
        self.rely_on(tracer)
        key: Hashable = self.obj
        return key

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in OF_THE_CACHE:
            return super().get_attribute(tracer, name)
        return self.inner if name == "__wrapped__" else self.inner.get_attribute(tracer, name)

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        given = named(args, kwargs)
        key = None
        if not any(holds_symbols(value) for _, value in given):
            key = tuple((name, value.python_type(), value.key(tracer)) for name, value in given)
            if key in self.results:
                return self.results[key]
        made = self._computed(tracer, args, kwargs)
        function = self.obj.__wrapped__
        trusted = is_trusted(function) or assumed_constant(function) or may_be_made_anew(tracer, function)
        number = key is None and (made.is_constant or made.is_symbolic)
        if not (trusted or number or is_new_in_frame(key)):
            for _, value in given:  # a size becomes a constant
                value.key(tracer)
            made = self._cached_result(tracer, made, args, kwargs)
        if key is not None:
            self.results[key] = made
        return made

    def _computed(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        """Trace the function. If it has other effects, the graph breaks, and Python runs it once."""
        before, random = effects_so_far(tracer), tracer.fakes.mode.random
        tracer.fakes.mode.random = False
        try:
            made: Value = self.inner.call(tracer, args, kwargs)
        except GraphBreak as stop:  # after a resumed break its result would not be cached
            stop.locations = locations_of(tracer.stack.frames)
            raise
        if effects_so_far(tracer) != before or tracer.fakes.random:
            self._refuse(tracer, "does more than compute them")
        tracer.fakes.mode.random = random
        if made.python_type() in (bool, int, float) and made.is_constant:  # immutable, unlike other results
            return tracer.constant(made.as_constant())
        return made

    def _cached_result(self, tracer: Tracing, made: Value, args: Args, kwargs: Kwargs) -> Value:
        """The result of the program's cached function, read by calling it before the frame begins. None if it might
        compute something else at that time."""
        if not is_unchanged(tracer):
            now = call_before_frame(tracer, AttrSource(self.source, "__wrapped__"), args, kwargs)
            if now is None or not has_same_structure(made, now[1]):
                self._refuse(tracer, "may see what the frame or a context has changed by now")
        found = call_before_frame(tracer, self.source, args, kwargs)
        room = self.obj.cache_parameters()["maxsize"]
        if found is None:
            self._refuse(tracer, "raises, or is given something that the frame has put together")
        if not (made.is_constant or room is None or len(self.results) < room):
            self._refuse(tracer, "has no room for all that the frame asks for")
        source, obj = found
        if not made.is_constant:
            return tracer.objects.wrap(obj, source)
        if not are_same_constant(obj, made.as_constant()):
            self._refuse(tracer, "would compute another one now")
        tracer.guards.equal(source, obj)
        return made

    def _refuse(self, tracer: Tracing, why: str) -> NoReturn:
        tracer.graph_break("cached-function", function=self.describe(), reason=why)


def holds_symbols(value: Value) -> bool:
    """Whether it is a symbolic number, or a tuple with one."""
    return value.is_symbolic or (isinstance(value, TupleValue) and any(map(holds_symbols, value.items)))


def may_be_made_anew(tracer: Tracing, function: object) -> bool:
    """Whether a rule says that the function's cached results can't be distinguished from new ones."""
    verdict = tracer.calls.verdict(function)
    return verdict.decision is Decision.INLINE and verdict.answer is Answer.OF_ARGUMENTS


def is_new_in_frame(key: object) -> bool:
    """Whether a key contains an object made in the frame, which Python can't have seen before."""
    if isinstance(key, Identity):
        return key.value.source is None
    return isinstance(key, tuple) and any(map(is_new_in_frame, key))


def named(args: Args, kwargs: Kwargs) -> list[tuple[int | str, Value]]:
    """Arguments by position or name."""
    return [*enumerate(args), *kwargs.items()]


def of_program(obj: functools._lru_cache_wrapper[object], source: Source, tracer: Tracing) -> Value:
    """A cached function of the program."""
    inner: Value = tracer.objects.wrap(obj.__wrapped__, AttrSource(source, "__wrapped__"))
    return CachedFunctionValue(obj, inner, source=source)


def is_unchanged(tracer: Tracing) -> bool:
    """Whether everything that outlives the frame, and torch's modes except the grad mode, is unchanged since it
    began."""
    return not (any(effects_so_far(tracer)) or tracer.ending.undo or tracer.overrides.moved)


def effects_so_far(tracer: Tracing) -> tuple[int, int, int]:
    """The frame's effects so far: changes, inputs that the graph writes to, calls before the graph."""
    written = tracer.effects.inputs_written(tracer.objects.by_fake.values())
    return tracer.effects.count, written, len(tracer.precalls.calls)


def source_at_begin(value: Value) -> Source | None:
    """The source of an argument when the frame begins."""
    try:
        constant = value.as_constant()
    except NotConstant:
        return value.source
    return ObjectSource(constant, repr(constant)) if type(constant) is value.python_type() else value.source


def call_before_frame(
    tracer: Tracing, function: Source, args: Sequence[Value], kwargs: Mapping[str, Value]
) -> tuple[CachedCallSource, object] | None:
    """The function's result for the arguments before the frame begins, with its source. None if it raises, or an
    argument is made in the frame."""
    places = [source_at_begin(value) for value in (*args, *kwargs.values())]
    sources = tuple(source for source in places if source is not None)
    if len(sources) < len(places):
        return None
    grad = torch.is_grad_enabled()
    source = CachedCallSource(function, sources, tuple(kwargs), None if grad == tracer.effects.grad else grad)
    try:
        return source, tracer.fakes.run_real(Resolver(tracer.request).value, source)
    except Exception:  # raised again where the program calls it
        return None


def are_same_constant(first: object, second: object) -> bool:
    """Whether the program can't distinguish two constants."""
    return first is second or (type(first) is type(second) and repr(first) == repr(second))


DEPTH = 20  # limit for nested containers, because some contain themselves


def has_same_structure(value: Value, obj: object, depth: int = DEPTH) -> bool:
    """Whether a value that the frame has made equals an object of the program in structure: constants, lists, tuples,
    dicts and objects whose attributes are such values, regardless of identity."""
    if value.source is not None or value.is_constant or value.is_symbolic:
        return _is_same_constant(value, obj)
    if value.python_type() is not type(obj) or not depth:
        return False
    inside = functools.partial(has_same_structure, depth=depth - 1)
    if type(value) in (ListValue, TupleValue) and isinstance(value, SequenceValue) and isinstance(obj, (list, tuple)):
        return len(value.items) == len(obj) and all(map(inside, value.items, obj))
    if isinstance(value, DictValue) and type(obj) is dict:
        known = [] if value.pending is not None else list(value.entries.values())
        pairs = zip(known, obj.items(), strict=False)
        return len(known) == len(obj) and all(inside(a, b) and inside(c, d) for (a, c), (b, d) in pairs)
    if not isinstance(value, ObjectValue) or derives(value) or value.instance_dict is not None:
        return False
    if not hasattr(obj, "__dict__") or has_slots(type(obj)):
        return False
    held, made = vars(obj), value.attributes
    return made.keys() == held.keys() and all(one is not None and inside(one, held[name]) for name, one in made.items())


def _is_same_constant(value: Value, obj: object) -> bool:
    try:  # a symbolic number is computed from sizes, which have become constants
        return are_same_constant(value.as_constant() if value.is_symbolic else value.as_object(), obj)
    except NotConstant:
        return False


def has_slots(cls: type) -> bool:
    """Whether objects of the class hold data outside their `__dict__`."""
    return any(vars(one).get("__slots__") for one in cls.__mro__)
