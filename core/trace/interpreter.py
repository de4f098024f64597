"""Tracing a frame: from the request to the captured graph, its guards, and the code that runs in the frame's place."""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
import weakref
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from armature.breaks.types import BreakEvent
from armature.frame.data import FrameRequest
from armature.frame.dynamic import is_registered
from armature.frame.sources import LocalSource, ModeSource, Source
from armature.torch_abi.devices import current_index
from armature.torch_abi.fake import FakeWorld, in_transform, version_of
from armature.torch_abi.grad_modes import set_default_dtype, set_grad_enabled
from armature.torch_abi.guard_tree import forward_level
from armature.torch_abi.overrides import without_overrides
from armature.trace import eval_loop, inlining
from armature.trace.base import Effects, Tracing, Value
from armature.trace.data import CompiledGraphSlot, GraphInput, TracedFrame
from armature.trace.emit.rebuild import Rebuilder
from armature.trace.errors import GraphBreak, SkipFrame, UserRaised
from armature.trace.frame_state import Frame, Recorder, Trace
from armature.trace.objects import Objects
from armature.trace.plans import Knowledge
from armature.trace.recording import aliasing
from armature.trace.recording.sizes import new_world
from armature.trace.stack import Breaks, FrameStack
from armature.trace.tracer import Tracer
from armature.trace.values.context import end_grad
from armature.trace.values.exception import ExceptionValue
from armature.trace.values.function import CellValue
from armature.trace.values.iterator import GeneratorValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.context import CompileContext
    from armature.frame.guards.guard import Guard

PYTHON_DEPTH = 32 * inlining.MAX_DEPTH
UNTRACEABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


@without_overrides
def trace_frame(request: FrameRequest, ctx: CompileContext) -> TracedFrame:
    """Trace a frame to its end. Errors: GraphBreak where it can't go in one graph, SkipFrame if there is nothing to do.

    The program sees no change: its objects, torch's modes and the state of random number generators are restored.
    """
    if request.code.co_flags & UNTRACEABLE:
        raise SkipFrame("a generator or coroutine runs eagerly")
    if in_transform():
        raise SkipFrame("it runs inside a transform of torch.func", once=True)
    if forward_level() >= 0:  # tensors without storage have no tangents
        raise SkipFrame("it runs inside a level of forward mode", once=True)
    with trace_of(request, ctx) as tracer:
        with tracing(tracer):
            result = _run(tracer, request)
        return _finish(tracer, request, result)


@contextlib.contextmanager
def trace_of(request: FrameRequest, ctx: CompileContext) -> Iterator[Tracer]:
    """Make a trace of a frame; it ends with the block."""
    tracer = Tracer(request, ctx.config, Knowledge(ctx.tables, ctx.asked), new_world(ctx), ctx.users_backend)
    try:
        yield tracer
    finally:
        tracer.fakes.symbols.end_answers()
        tracer.end()


@contextlib.contextmanager
def tracing(tracer: Trace) -> Iterator[None]:
    """Set up torch for tracing a frame. On exit everything that the program can see is restored."""
    line = weakref.WeakMethod(tracer.stack.line)  # torch's caches hold symbols longer than the trace
    tracer.fakes.symbols.where = lambda: here() if (here := line()) is not None else ""
    tracer.guards.global_state()
    grad = torch.is_grad_enabled()
    depth, numbers = sys.getrecursionlimit(), random.getstate()
    sys.setrecursionlimit(max(depth, PYTHON_DEPTH))
    try:
        with tracer.fakes.mode:
            try:
                overriding = tracer.request.overriding
                modes = [tracer.objects.wrap(mode, ModeSource(place)) for place, mode in enumerate(overriding.modes)]
                tracer.overrides.begin(modes, overriding.off)
                yield
            finally:  # before the mode is left: inference mode restores what it has found
                for leave, state in reversed(tracer.ending.undo):
                    leave(state)
    except GraphBreak as stop:
        for check in tracer.ending.checks:
            check(tracer, None, None)
        stop.guards = (*guards_so_far(tracer), *tracer.sizes.conditions())
        stop.idle = not meets_tensors(tracer.objects, tracer.recorder)
        raise
    except SkipFrame as skipped:
        skipped.guards = (*guards_so_far(tracer), *tracer.sizes.conditions())
        raise
    finally:
        set_grad_enabled(grad)
        if tracer.effects.default_dtype is not None:
            set_default_dtype(tracer.effects.default_dtype.first)
        sys.setrecursionlimit(depth)
        random.setstate(numbers)  # program code that a rule puts in the graph may have drawn random numbers


def _run(tracer: Trace, request: FrameRequest) -> Value:
    frame = root_frame(tracer, request)
    try:
        result = inlining.run_frame(frame)
    except UserRaised as raised:
        tracer.stack.frames.append(frame)
        locations = raised.value.raised_at if isinstance(raised.value, ExceptionValue) else ()
        raise tracer.breaks.break_at(locations, "exception-leaves-frame", exception=raised.value.describe()) from None
    except RecursionError:
        tracer.stack.frames.append(frame)
        raise tracer.breaks.break_at(tracer.stack.too_deep, "recursion-depth") from None
    check_generators(tracer.stack, tracer.breaks, frame)
    tracer.stack.frames.append(frame)  # for the line at which the graph ends
    for check in tracer.ending.checks:
        check(tracer, frame, result)
    check_left(tracer.effects, tracer.breaks)
    end_grad(tracer)
    tracer.stack.ended = (tracer.stack.frames.pop(),)
    return result


def check_left(effects: Effects, breaks: Breaks) -> None:
    """Raise GraphBreak where a torch context manager was entered that is still open; the grad mode may differ."""
    for context in effects.entered:
        locations = getattr(context, "made_at", ())
        raise breaks.break_at(locations, "context-left-open", type=context.describe()).blaming(context)


def check_generators(stack: FrameStack[Frame], breaks: Breaks, frame: Frame) -> None:
    """Raise GraphBreak if a generator is suspended inside a `try` or `with` when tracing ends."""
    for generator in stack.generators:
        if not isinstance(generator, GeneratorValue) or not isinstance(suspended := generator.frame, Frame):
            continue
        if generator.is_inside_try() and not eval_loop.exits_without_user_code(suspended):
            stack.frames += [frame, suspended]
            kind = generator.describe()
            raise breaks.break_at(generator.made_at, "generator-left-unfinished", type=kind).blaming(generator)


def root_frame(tracer: Trace, request: FrameRequest) -> Frame:
    """Make the frame to trace: arguments are wrapped when they are first read, cells when they are opened."""
    code = request.code
    lazy: dict[str, tuple[object, Source]] = {}
    for name in argument_names(request):
        if name in request.locals:
            lazy[name] = (request.locals[name], LocalSource(name, cell=name in code.co_cellvars))
    frame = Frame(tracer, code, request.globals, {}, {}, request.builtins)
    frame.lazy = lazy
    for name, cell in zip(code.co_freevars, request.closure):
        value = CellValue(None, cell, LocalSource(name, cell=True))
        frame.cells[name] = value
        tracer.objects.free[name] = value
        tracer.objects.cells[id(cell)] = value  # registered under its variable's name
    return frame


def argument_names(request: FrameRequest) -> tuple[str, ...]:
    """Names of all parameters, including those of `*` and `**`."""
    code = request.code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def _finish(tracer: Trace, request: FrameRequest, result: Value) -> TracedFrame:
    if not meets_tensors(tracer.objects, tracer.recorder):
        codes, guards = tracer.stack.codes.values(), (*guards_so_far(tracer), *tracer.sizes.conditions())
        raise SkipFrame("it computes nothing with tensors", idle=True, idle_codes=tuple(codes), guards=guards)
    slot, computes = CompiledGraphSlot(), tracer.recorder.computes
    out = Rebuilder(tracer, request.code)
    code = out.finish(result, slot if computes else None)
    return traced_frame(tracer, out, code, slot, computes)


def traced_frame(
    tracer: Trace,
    out: Rebuilder,
    code: CodeType,
    slot: CompiledGraphSlot,
    computes: bool,
    breaks: tuple[BreakEvent, ...] = (),
) -> TracedFrame:
    """Assemble the result: the graph with its outputs, its inputs, its guards, and the code that calls it."""
    name, graph = tracer.request.code.co_name, None
    if tracer.sizes.floats or tracer.precalls.reads_numbers:
        tracer.fakes.symbols.take_numbers()  # otherwise the graph takes them whenever it runs on fakes
    if computes:
        made = tracer.recorder.graph.output(tuple(out.outputs))
        made.meta["example_value"] = tuple(node.meta["example_value"] for node in out.outputs)
        graph = fx.GraphModule(dict(tracer.recorder.modules) or torch.nn.Module(), tracer.recorder.graph, name)
    guards = guards_so_far(tracer)
    inputs = graph_inputs(tracer.recorder, tracer.effects, tracer.fakes) if computes else ()
    return TracedFrame(
        name, graph, inputs, guards, code, slot, breaks, tracer.recorder.mutates, out.undo, tracer.sizes.guards
    )


def guards_so_far(tracer: Tracing) -> tuple[Guard, ...]:
    """The guards on everything that tracing has relied on so far, but conditions on sizes."""
    if (index := tracer.fakes.mode.current) is not None:
        tracer.guards.answers(current_index, (), {}, index)
    return (*tracer.guards.records.values(), *aliasing.guards(tracer))


def meets_tensors(objects: Objects[Any, Any, Any], recorder: Recorder) -> bool:
    """Whether the frame has met a tensor or calls a torch function. Computing with sizes does not count."""
    return bool(objects.by_fake) or recorder.computes_more_than_sizes


def graph_inputs(recorder: Recorder, effects: Effects, fakes: FakeWorld) -> tuple[GraphInput, ...]:
    """The graph's inputs, with their fakes as they were before the graph changed any."""
    tensors = [value for value in recorder.inputs if isinstance(value, TensorValue)]
    changed = effects.altered or any(version_of(value.fake) for value in tensors)
    fresh = fakes.afresh() if changed else None
    found = []
    for value in recorder.inputs:
        if value.node is None or value.source is None:
            continue
        if isinstance(value, SymbolicValue):
            found.append(GraphInput(value.node.name, value.source, value.fake))
            continue
        if value.real is None:
            continue
        fake = value.fake if fresh is None else fresh.of(value.real)
        if fresh is not None:
            value.node.meta.update({"example_value": fake, "traced_value": value.fake})
        counts = version_of(value.fake) != version_of(fake)
        if counts or effects.writes_to(value):
            value.node.meta["counts_writes"] = counts  # writes through `x.data` are not counted
        parameter = isinstance(value.real, torch.nn.Parameter) or is_registered(value.source)
        found.append(GraphInput(value.node.name, value.source, fake, parameter, weakref.ref(value.real)))
    return tuple(found)
