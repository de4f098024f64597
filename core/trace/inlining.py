"""Calls of the program's functions: bind the arguments, then run a frame of their code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from armature.frame.data import FrameRequest
from armature.frame.skip import looks_above
from armature.frame.sources import AttrSource, ObjectSource, Source
from armature.trace import eval_loop
from armature.trace.base import Args, Kwargs, Value
from armature.trace.frame_state import Frame
from armature.trace.locations import locations_of
from armature.trace.semantics.binding import bind
from armature.trace.trust import is_trusted
from armature.trace.values.function import CellValue, ClosureValue, FunctionValue

if TYPE_CHECKING:
    from armature.trace.base import Tracing
    from armature.trace.frame_state import Trace

MAX_DEPTH = 150  # frames; each takes some ten frames of the interpreter's own Python stack
COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def inline_function(
    tracer: Tracing, make: Callable[..., Frame], function: FunctionValue, args: Args, kwargs: Kwargs
) -> Value:
    """Trace a call of a function that exists as a Python object. make: `new_frame` of the trace."""
    fn = function.fn
    trusted = is_trusted(fn)
    if not trusted and function.source is not None:
        # A function's code may be replaced, for example by tools that reload modules.
        tracer.guards.same(AttrSource(function.source, "__code__"), fn.__code__)
    if not trusted and looks_above(fn.__code__):
        tracer.graph_break("looks-at-frames", function=function.describe())
    variables = bind(tracer, fn.__code__, function, args, kwargs)
    where = namespace_source(tracer.request, fn.__globals__, fn.__module__)
    cells = function.closure(tracer) if fn.__closure__ else ()
    frame = make(fn.__code__, fn.__globals__, where, variables, cells)
    frame.trusted = trusted
    return run_frame(frame)


def inline_closure(
    tracer: Tracing, make: Callable[..., Frame], function: ClosureValue, args: Args, kwargs: Kwargs
) -> Value:
    """Trace a call of a function made in the frame."""
    variables = bind(tracer, function.code, function, args, kwargs)
    module = function.namespace.get("__name__")
    where = namespace_source(tracer.request, function.namespace, module)
    frame = make(function.code, function.namespace, where, variables, function.cells)
    caller = tracer.stack.frames[-1] if tracer.stack.frames else None
    frame.trusted = caller is not None and caller.trusted and caller.namespace is frame.namespace
    return run_frame(frame)


def namespace_source(request: FrameRequest, namespace: dict[str, object], module: object) -> Source | None:
    """The source of a function's globals; None for those of the frame being compiled."""
    if namespace is request.globals:
        return None
    return ObjectSource(namespace, f"sys.modules[{module!r}].__dict__")


def new_frame(
    tracer: Trace,
    code: CodeType,
    namespace: dict[str, object],
    where: Source | None,
    variables: dict[str, Value],
    cells: tuple[CellValue, ...],
) -> Frame:
    """A frame at the start of its code. Opcode functions use all verbs, so the frame gets the whole trace."""
    if code.co_flags & COROUTINE:
        tracer.graph_break("coroutine", function=code.co_name)
    if has_own_builtins(code, namespace, tracer.request.builtins):
        tracer.graph_break("own-builtins", function=code.co_name)
    held = dict(zip(code.co_freevars, cells))
    return Frame(tracer, code, namespace, variables, held, tracer.request.builtins, where)


def has_own_builtins(code: CodeType, namespace: Mapping[str, object], builtins: Mapping[str, object]) -> bool:
    """Whether code has other builtins, or another `__import__`, than the frame being compiled."""
    found = namespace.get("__builtins__", builtins)  # a module, its dict, or a dict of the program's
    own = found.__dict__ if isinstance(found, ModuleType) else found
    if own is builtins or not isinstance(own, dict):
        return False
    names = (name for name in code.co_names if name in builtins and name not in namespace)
    return any(own.get(name) is not builtins.get(name) for name in (*names, *{"__import__"} & own.keys()))


def run_frame(frame: Frame) -> Value:
    """Run a frame from where it is until it returns or yields; returns that value."""
    tracer = frame.tracer
    if len(tracer.stack.frames) >= MAX_DEPTH:
        tracer.graph_break("recursion-depth")
    tracer.stack.frames.append(frame)
    frame.paused = False
    try:
        eval_loop.run(frame)
    except RecursionError:
        tracer.stack.too_deep = tracer.stack.too_deep or locations_of(tracer.stack.frames)
        raise
    finally:
        tracer.stack.frames.pop()
    result, frame.result = frame.result, None  # a generator's first result is itself, which holds the frame
    return result if result is not None else tracer.constant(None)
