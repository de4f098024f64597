"""What a function of the program has kept (`functools.lru_cache`), found by asking it before the frame begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from armature.frame.source import Resolver
from armature.frame.sources import KeptSource, ObjectSource, Source
from armature.trace.frame_state import whole
from armature.trace.values.base import NotConstant, Tracing, Value

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
    changed = effects.count or tracer.early.calls or tracer.on_abort or written(tracer)
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
