"""Generators that the frame was given: one that comes to its end in the frame is closed at that of the frame."""

from __future__ import annotations

import inspect
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

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace
    from armature.trace.values.base import Rebuilding, Tracing


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
