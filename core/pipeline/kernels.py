"""Compiles a functional ATen graph: lower, schedule, generate, load; in strict mode each result is checked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import attrs

from armature.codegen.program import generate
from armature.context import CompileContext
from armature.graph.data import AtenGraph, GraphKind
from armature.graph.passes import run_passes
from armature.graph.show import show as show_aten
from armature.lower import verify as lower_spec
from armature.lower.data import ExternCall, LoopGraph
from armature.lower.lower import lower
from armature.lower.show import show as show_loops
from armature.pipeline import logs
from armature.pipeline.notices import timed, warn_once
from armature.pipeline.recordings import Recordings
from armature.pipeline.session import Compilation
from armature.run.compiled import load
from armature.run.data import CompiledGraph
from armature.schedule import verify as schedule_spec
from armature.schedule.data import KernelPlan
from armature.schedule.schedule import schedule
from armature.schedule.show import show as show_plan
from armature.torch_abi import memory

T = TypeVar("T")
FAILED_LOWERING = "{} is called as it is, since its lowering failed; plugin {}"
NOT_MEASURED = "max-autotune: {} measures no kernels; they are those of the default mode"


@attrs.frozen(eq=False)
class KernelCompiler:
    """Compiles the graphs of one captured frame (the backward graph on demand) and stores them in its record."""

    record: Compilation

    def __call__(self, aten: AtenGraph, ctx: CompileContext) -> CompiledGraph:
        """The compiled graph. Errors: LoweringError, BackendError, InvariantError."""
        self.print("aten", lambda: show_aten(aten), ctx)
        loops = self.timed("lower", ctx, lambda: self.lowered(aten, ctx))
        self.print("loops", lambda: show_loops(loops), ctx)
        plan = self.timed("schedule", ctx, lambda: self.scheduled(loops, ctx))
        if any(work.device.type == memory.HOST.type for work in plan.launches):
            memory.keep_freed_memory()
        recordings = Recordings.of(plan, aten, self.record, ctx)
        plan = recordings.plan
        self.print("plan", lambda: show_plan(plan), ctx)
        if ctx.config.autotune:
            self.warn_of_unmeasured(plan, ctx)
        program = self.timed("codegen", ctx, lambda: generate(plan, ctx, boxed=aten.kind is GraphKind.BACKWARD))
        self.print("kernels", lambda: "\n".join(source.text for source in program.sources), ctx)
        self.print("wrapper", lambda: program.wrapper, ctx)
        compiled = self.timed("load", ctx, lambda: load(program, aten, loops, plan, ctx, recordings.segment))
        compiled = recordings.graph(compiled)
        if aten.kind is GraphKind.BACKWARD and not aten.ahead:
            # a backward graph is compiled on its first call, but its errors belong to this compilation
            compiled.ready()
        self.record.graphs.append(compiled)
        logs.kernels(self.record, compiled)
        return compiled

    def warn_of_unmeasured(self, plan: KernelPlan, ctx: CompileContext) -> None:
        """Warn, once for each back end that can't choose among kernels by measuring them."""
        for device in dict.fromkeys(kernel.device.type for kernel in plan.launches):
            backend = ctx.tables.device_backend(device)
            if backend is not None and not backend.features.products:
                text = NOT_MEASURED.format(backend.name)
                warn_once(self.record, text, text)

    def lowered(self, aten: AtenGraph, ctx: CompileContext) -> LoopGraph:
        """The loops after the passes of their stage. Warns of lowerings that failed."""
        loops = lower(aten, ctx)
        for node in loops.nodes:
            if isinstance(node, ExternCall) and node.reason.kind == "failed":
                text = FAILED_LOWERING.format(node.target, node.reason.detail)
                warn_once(self.record, text, text)
        return after_passes("loops", loops, lower_spec.verify, show_loops, ctx)

    def scheduled(self, loops: LoopGraph, ctx: CompileContext) -> KernelPlan:
        """The kernels after the passes of their stage."""
        return after_passes("kernels", schedule(loops, ctx), schedule_spec.verify, show_plan, ctx)

    def timed(self, stage: str, ctx: CompileContext, work: Callable[[], T]) -> T:
        """The result of the work; observers are told its duration."""
        return timed(self.record, stage, ctx, work)

    def print(self, stage: str, text: Callable[[], str], ctx: CompileContext) -> None:
        """Print a stage if the settings ask for it (ARMATURE_SHOW)."""
        if stage in ctx.config.show:
            print(f"# {self.record.function}    {self.record.where}    {stage}\n{text()}", file=sys.stderr)


def after_passes(stage: str, data: T, verify: Callable[[T], None], show: Callable[[T], str], ctx: CompileContext) -> T:
    """A stage's result after the plugins' passes on it; in strict mode checked before and after them."""
    if ctx.config.strict:
        verify(data)
    data = run_passes(stage, data, ctx, show)
    if ctx.config.strict:
        verify(data)
    return data
