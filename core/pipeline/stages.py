"""The stages in order: from a frame to code that runs in its place. Strict mode checks each stage's result."""

from __future__ import annotations

import sys
import time
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import attrs
from torch import fx

from armature.config import Config
from armature.context import CompileContext
from armature.errors import invariant
from armature.frame import verify as frame_spec
from armature.frame.data import FrameRequest
from armature.frame.rerun import Undo
from armature.graph.released import refusing, without_released
from armature.pipeline import logs, repro
from armature.pipeline.backends import GraphBackend, GraphCallable, native_backend
from armature.pipeline.notices import timed
from armature.pipeline.session import Compilation
from armature.plugins.tables import Tables
from armature.run.cache import Cache
from armature.run.workers import Workers
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.grad_modes import switches_set_back
from armature.trace import verify as trace_spec
from armature.trace.data import TracedFrame
from armature.trace.errors import GraphBreak
from armature.trace.interpreter import trace_frame
from armature.trace.resume.continuation import is_cut, resumed
from armature.trace.show import show as show_captured


def new_context(settings: Config, tables: Tables, compile_id: int) -> CompileContext:
    """The context of one compilation."""
    return CompileContext(
        config=settings,
        tables=tables,
        cache=_cache(settings.cache_dir),
        workers=_workers(settings.threads),
        compile_id=compile_id,
        shared_choices=_cache(Path(settings.choices_dir).expanduser()) if settings.choices_dir else None,
    )


@cache
def _cache(folder: Path) -> Cache:
    return Cache(folder)


@cache
def _workers(threads: int) -> Workers:
    return Workers(threads)


def compile_frame(
    request: FrameRequest, ctx: CompileContext, backend: GraphBackend, record: Compilation
) -> tuple[TracedFrame, CodeType]:
    """Trace a frame and compile its graph. Errors: GraphBreak, SkipFrame, and whatever a stage raises."""
    record.passes = ctx.passes
    if ctx.config.strict:
        frame_spec.verify(request)
    traced = timed(record, "trace", ctx, lambda: capture(request, ctx))
    if ctx.config.strict:
        trace_spec.verify(traced)
    record.module, record.captured = traced.graph, show_captured(traced)
    record.inputs = tuple(("" if one.source is None else one.source.expr, one.fake) for one in traced.inputs)
    logs.graph(record)
    if "fx" in ctx.config.show:
        print(f"# {record.function}    {record.where}    fx\n{record.captured}", file=sys.stderr)
    if traced.graph is None:
        return traced, traced.code
    released = without_released(traced.graph)
    if ctx.config.repro_dir:
        repro.begin(Path(ctx.config.repro_dir), record)
    with switches_set_back():  # a back end may run the graph now, and raise in the middle of it
        run = timed(record, "graph", ctx, lambda: backend(traced, ctx, record))
    as_captured = run == traced.graph.forward or backend is not native_backend  # other back ends may run it as captured
    run = undoing(traced.undo, run, traced.graph if as_captured else None)
    return traced, fill_slot(traced, refusing(run, released))


def capture(request: FrameRequest, ctx: CompileContext) -> TracedFrame:
    """Trace a frame to its end, or cut it at its first break; the event of the break records how long cutting took.
    Errors: GraphBreak where it can't be cut, SkipFrame."""
    try:
        return trace_frame(request, ctx)
    except GraphBreak as stop:
        if not is_cut(request, stop):
            raise
        start = time.perf_counter()
        try:
            traced = resumed(request, ctx, stop)
        finally:
            seconds = time.perf_counter() - start
            stop.event = attrs.evolve(stop.event, seconds=seconds)
        if traced is None:
            raise
    return attrs.evolve(traced, breaks=tuple(attrs.evolve(event, seconds=seconds) for event in traced.breaks))


def undoing(undo: Undo, run: GraphCallable, captured: fx.GraphModule | None) -> GraphCallable:
    """Wrap the graph's callable to undo its effects when it raises. captured: the graph, if it runs uncompiled."""
    return undo.wrap(with_hook_off(run), None if captured is None else type(captured).forward.__code__)


def fill_slot(traced: TracedFrame, run: GraphCallable) -> CodeType:
    """The traced code with the slot replaced by the compiled graph, which runs with the frame hook off."""
    run = with_hook_off(run)
    constants = traced.code.co_consts
    found = sum(constant is traced.slot for constant in constants)
    invariant(found == 1, "the traced code has one slot for the compiled graph", found=found, frame=traced.name)
    return traced.code.replace(co_consts=tuple(run if c is traced.slot else c for c in constants))


def with_hook_off(run: GraphCallable) -> GraphCallable:
    """The same callable if it is no compiled Python code of the user's; else a function that calls it with the hook
    off."""
    inner = run.__func__ if isinstance(run, MethodType) else run
    if isinstance(inner, FunctionType):
        skip_code(inner.__code__, below=True)
        return run

    def call(*args: Any) -> Any:
        return run(*args)

    skip_code(call.__code__, below=True)
    return call
