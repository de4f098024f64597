"""Decides whether the object of a weak reference is alive, as far as tracing knows the references to it.

A frame that may dereference a dead object, or whose callbacks may have to be called, runs eagerly.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import NoReturn

import torch

from armature.plugin_api import FrameView, ObjectValue, Resolver, SkipFrame, Tracing, Value, dict_of, reachable_values


def rely_on_life(tracer: Tracing, referent: Value) -> None:
    """Called when a weak reference is dereferenced. Raises SkipFrame, or GraphBreak, if the object may be dead."""
    if not is_held(tracer, referent, tracer.stack.frames) and (referent.source is None or may_be_dead(tracer)):
        leave_to_python(tracer, "it asks a weak reference for an object that may have gone by now")


def leave_to_python(tracer: Tracing, why: str) -> NoReturn:
    """Run the frame eagerly; with fullgraph that is an error."""
    if tracer.request.fullgraph:
        tracer.graph_break("weak-reference", reason=why)
    raise SkipFrame(why, frees=True)


def refer(tracer: Tracing, referent: Value, told: bool) -> None:
    """Called when a weak reference is made. told: whether it has a callback."""
    tracer.ending.checks[check_end] = None
    held = tracer.objects.held_weakly
    held[referent] = held.get(referent, False) or (told and referent.source is None)


def check_end(tracer: Tracing, frame: FrameView | None, result: Value | None) -> None:
    """Called where the graph ends. Raises SkipFrame or GraphBreak if a callback might be called too early or too late,
    because the code before a break keeps the frame's objects alive."""
    told = [value for value, is_told in tracer.objects.held_weakly.items() if is_told]
    if frame is None or result is None:
        if told and not tracer.request.fullgraph:
            raise SkipFrame("it asks to be told of the end of an object that it has made", frees=True)
    elif any(not is_held(tracer, value, [frame], result) for value in told):
        leave_to_python(tracer, "it is told of the end of an object that it has made")


def is_held(tracer: Tracing, value: Value, frames: Sequence[FrameView], *more: Value) -> bool:
    """Whether the object is reachable from a variable of the frames, or from a changed object that outlives them."""
    effects = tracer.effects
    roots: list[object] = [[*more, *effects.changed], [held for _, held in effects.globals_.values()]]
    for frame in frames:
        roots += (frame.variables, frame.cells, frame.own_cells, frame.stack)
    return any(held is value for held in reachable_values(roots, lambda one: (one.contents(),)))


def may_be_dead(tracer: Tracing) -> bool:
    """Whether the frame has dropped an object of the program that may have held the last reference to another one."""
    effects = tracer.effects
    if effects.class_attributes or effects.altered or effects.calls:
        return True
    before: list[object] = [namespace.get(name) for (_, name), (namespace, _) in effects.globals_.items()]
    resolver = Resolver(tracer.request)
    for value in effects.changed:
        if value.source is None:
            return True
        real = resolver.value(value.source)
        if isinstance(value, ObjectValue):
            attributes = dict_of(real)
            before += [attributes.get(name) for name in value.written]
        else:
            before += gc.get_referents(real)
    return not all(tracer.types.is_atom(held) or isinstance(held, torch.Tensor) for held in before)
