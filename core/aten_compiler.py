"""A functional ATen graph to a compiled graph: lower, schedule, generate, load; in strict mode checked in between."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeVar

import attrs

from armature.api.session import Compilation
from armature.codegen.program import generate
from armature.context import CompileContext
from armature.events import CompileEvent, EventKind
from armature.graph.data import AtenGraph, GraphKind
from armature.graph.passes import run_passes
from armature.graph.show import show as show_aten
from armature.lower import verify as lower_spec
from armature.lower.data import LoopGraph
from armature.lower.lower import lower
from armature.lower.show import show as show_loops
from armature.run.compiled import load
from armature.run.data import CompiledGraph
from armature.schedule import verify as schedule_spec
from armature.schedule.data import KernelPlan
from armature.schedule.schedule import schedule
from armature.schedule.show import show as show_plan

T = TypeVar("T")


@attrs.frozen(eq=False)
class AtenCompiler:
    """Compiles the graphs of one captured frame, the backward graph when it is needed, and keeps them in its record."""

    record: Compilation

    def __call__(self, aten: AtenGraph, ctx: CompileContext) -> CompiledGraph:
        """The compiled graph. Errors: LoweringError, BackendError, InvariantError."""
        self.print("aten", lambda: show_aten(aten), ctx)
        loops = self.timed("lower", ctx, lambda: self.lowered(aten, ctx))
        self.print("loops", lambda: show_loops(loops), ctx)
        plan = self.timed("schedule", ctx, lambda: self.scheduled(loops, ctx))
        self.print("plan", lambda: show_plan(plan), ctx)
        program = self.timed("codegen", ctx, lambda: generate(plan, ctx))
        self.print("kernels", lambda: "\n".join(source.text for source in program.sources), ctx)
        self.print("wrapper", lambda: program.wrapper, ctx)
        compiled = self.timed("load", ctx, lambda: load(program, aten, loops, plan, ctx))
        if aten.kind is GraphKind.BACKWARD:
            compiled.ready()  # it is compiled when it is called: its errors belong to this compilation
        self.record.graphs.append(compiled)
        return compiled

    def lowered(self, aten: AtenGraph, ctx: CompileContext) -> LoopGraph:
        """Loops after the passes of their stage."""
        loops = lower(aten, ctx)
        if ctx.config.strict:
            lower_spec.verify(loops)
        loops = run_passes("loops", loops, ctx)
        if ctx.config.strict:
            lower_spec.verify(loops)
        return loops

    def scheduled(self, loops: LoopGraph, ctx: CompileContext) -> KernelPlan:
        """Kernels after the passes of their stage."""
        plan = schedule(loops, ctx)
        if ctx.config.strict:
            schedule_spec.verify(plan)
        plan = run_passes("kernels", plan, ctx)
        if ctx.config.strict:
            schedule_spec.verify(plan)
        return plan

    def timed(self, stage: str, ctx: CompileContext, work: Callable[[], T]) -> T:
        """The result of the work; observers are told how long it took."""
        return timed(self.record, stage, ctx, work)

    def print(self, stage: str, text: Callable[[], str], ctx: CompileContext) -> None:
        """Print a stage when the settings ask for it (ARMATURE_SHOW)."""
        if stage in ctx.config.show:
            print(f"# {self.record.function}    {self.record.where}    {stage}\n{text()}", file=sys.stderr)


def timed(record: Compilation, stage: str, ctx: CompileContext, work: Callable[[], T]) -> T:
    """The result of the work; observers are told the stage and its seconds."""
    start = time.perf_counter()
    result = work()
    ctx.emit(event_of(record, EventKind.STAGE, stage, time.perf_counter() - start, ctx.compile_id))
    return result


def event_of(
    record: Compilation, kind: EventKind, detail: str = "", seconds: float = 0.0, compile_id: int | None = None
) -> CompileEvent:
    """An event of the compilation that the record is of."""
    number = record.id if compile_id is None else compile_id
    return CompileEvent(kind, number, record.function, record.file, record.line, detail, seconds)
