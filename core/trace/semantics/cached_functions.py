"""What a function of the program has kept (`functools.lru_cache`), found by asking it before the frame begins."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from armature.frame.source import Resolver
from armature.frame.sources import KeptSource, ObjectSource, Source
from armature.trace.frame_state import whole
from armature.trace.values.base import NotConstant, Tracing, Value
from armature.trace.values.mapping import DictValue
from armature.trace.values.sequence import ListValue, SequenceValue, TupleValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    pass


def written(tracer: Tracing) -> int:
    """How many tensors of the program the graph writes to."""
    tracer = whole(tracer)
    if not tracer.effects.memory:
        return 0
    given = [value for value in tracer.by_fake.values() if value.source is not None]
    return sum(tracer.effects.writes_to(value) for value in given)


def as_begun(tracer: Tracing) -> bool:
    """Whether all that outlives the frame, and torch's modes but the grad mode, are as they were when it began."""
    tracer = whole(tracer)
    effects = tracer.effects
    changed = effects.count or tracer.precalls.calls or tracer.on_abort or written(tracer)
    return not changed and not tracer.overrides.moved


def place(value: Value) -> Source | None:
    """Where an argument stands when the frame begins."""
    try:
        constant = value.as_constant()
    except NotConstant:
        return value.source
    return ObjectSource(constant, repr(constant)) if type(constant) is value.python_type() else value.source


def kept(
    tracer: Tracing, function: Source, args: Sequence[Value], kwargs: Mapping[str, Value]
) -> tuple[KeptSource, object] | None:
    """What the function gives for the arguments before the frame begins, and where it is found. None where it raises,
    or an argument is made in the frame."""
    tracer = whole(tracer)
    places = [place(value) for value in (*args, *kwargs.values())]
    sources = tuple(source for source in places if source is not None)
    if len(sources) < len(places):
        return None
    grad = torch.is_grad_enabled()
    source = KeptSource(function, sources, tuple(kwargs), None if grad == tracer.effects.grad else grad)
    try:
        return source, tracer.fakes.run_real(Resolver(tracer.request).value, source)
    except Exception:  # to be raised where the program calls it
        return None


def alike(first: object, second: object) -> bool:
    """Whether two constants are the same for the program."""
    return first is second or (type(first) is type(second) and repr(first) == repr(second))


DEPTH = 20  # of containers in one another; those that hold themselves have no end


def holds(value: Value, obj: object, depth: int = DEPTH) -> bool:
    """Whether a value that the frame has made is what an object of the program is: constants, lists, tuples, dicts and
    objects with attributes of these, whatever objects they are."""
    if value.source is not None or value.is_constant:
        try:
            return alike(value.as_object(), obj)
        except NotConstant:
            return False
    if value.python_type() is not type(obj) or not depth:
        return False
    inside = functools.partial(holds, depth=depth - 1)
    if type(value) in (ListValue, TupleValue) and isinstance(value, SequenceValue) and isinstance(obj, (list, tuple)):
        return len(value.items) == len(obj) and all(map(inside, value.items, obj))
    if isinstance(value, DictValue) and type(obj) is dict:
        known = [] if value.pending is not None else list(value.entries.values())
        pairs = zip(known, obj.items(), strict=False)
        return len(known) == len(obj) and all(inside(a, b) and inside(c, d) for (a, c), (b, d) in pairs)
    if not isinstance(value, UserObjectValue) or value.base is not None or value.instance_dict is not None:
        return False
    if not hasattr(obj, "__dict__") or has_slots(type(obj)):
        return False
    held, made = vars(obj), value.attributes
    return made.keys() == held.keys() and all(one is not None and inside(one, held[name]) for name, one in made.items())


def has_slots(cls: type) -> bool:
    """Whether objects of the class hold more than their `__dict__` does."""
    return any(vars(one).get("__slots__") for one in cls.__mro__)
