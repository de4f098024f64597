"""Whether an object that a weak reference refers to lives, as far as tracing knows who holds it.

A frame that may ask for one that has gone, or be told of its end, runs eagerly.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import torch

from armature.frame.source import Resolver
from armature.introspection import dict_of
from armature.trace.errors import SkipFrame
from armature.trace.frame_state import Frame, whole
from armature.trace.values.base import Tracing, Value
from armature.trace.values.constant import is_atom
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace


def rely_on_life(tracer: Tracing, referent: Value) -> None:
    """A weak reference is asked for an object. Raises SkipFrame, or GraphBreak, where that may have gone."""
    tracer = whole(tracer)
    if not is_held(tracer, referent, tracer.frames) and (referent.source is None or may_have_gone(tracer)):
        leave_to_python(tracer, "it asks a weak reference for an object that may have gone by now")


def leave_to_python(tracer: Trace, why: str) -> NoReturn:
    """The frame runs eagerly. Where it must be one graph, that is an error."""
    if tracer.request.fullgraph:
        tracer.graph_break("weak-reference", reason=why)
    raise SkipFrame(why, frees=True)


def refer(tracer: Tracing, referent: Value, told: bool) -> None:
    """A weak reference is made. told: something is called when the object goes."""
    tracer = whole(tracer)
    tracer.held_weakly[referent] = tracer.held_weakly.get(referent, False) or (told and referent.source is None)


def check_ends(tracer: Trace, frame: Frame, result: Value) -> None:
    """At the end of the frame: nobody is told of the end of an object before. Raises SkipFrame or GraphBreak."""
    told = [value for value, is_told in tracer.held_weakly.items() if is_told]
    if any(not is_held(tracer, value, [frame], result) for value in told):
        leave_to_python(tracer, "it is told of the end of an object that it has made")


def check_break(tracer: Trace) -> None:
    """At a break: the code before it holds what the frame holds there. Raises SkipFrame."""
    if any(tracer.held_weakly.values()) and not tracer.request.fullgraph:
        raise SkipFrame("it asks to be told of the end of an object that it has made", frees=True)


def is_held(tracer: Trace, value: Value, frames: Sequence[Frame], *more: Value) -> bool:
    """Whether a variable of some frames leads to the object, or something that outlives them and that they changed."""
    effects = tracer.effects
    roots: list[object] = [[*more, *effects.changed], [held for _, held in effects.globals_.values()]]
    for frame in frames:
        roots += (frame.variables, frame.cells, frame.own_cells, frame.stack)
    return any(held is value for held in held_by(roots))


def held_by(roots: list[object]) -> Iterator[Value]:
    """The values of all objects that are held, directly or not."""
    seen: set[int] = set()
    while roots:
        held = roots.pop()
        if id(held) in seen:
            continue
        seen.add(id(held))
        if isinstance(held, Value):
            yield held
            roots.append(held.contents())
        elif isinstance(held, Mapping):
            roots += held.values()
        elif isinstance(held, (list, tuple)):
            roots += held


def may_have_gone(tracer: Trace) -> bool:
    """Whether the frame has dropped an object of the program, which may have been the last to hold another."""
    effects = tracer.effects
    if effects.class_attributes or effects.altered or effects.calls:
        return True
    before: list[object] = [namespace.get(name) for (_, name), (namespace, _) in effects.globals_.items()]
    resolver = Resolver(tracer.request)
    for value in effects.changed:
        if value.source is None:
            return True
        real = resolver.value(value.source)
        if isinstance(value, UserObjectValue):
            attributes = dict_of(real)
            before += [attributes.get(name) for name in value.written]
        else:
            before += gc.get_referents(real)
    return not all(is_atom(held) or isinstance(held, torch.Tensor) for held in before)
