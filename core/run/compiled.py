"""Loads a program: workers build its kernels while tracing continues; they are bound on first call."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import attrs

from armature.codegen.data import KernelSource, Program
from armature.errors import InvariantError
from armature.graph.data import AtenGraph
from armature.lower.data import LoopGraph
from armature.run.data import CompiledGraph
from armature.run.timeline import Timeline
from armature.schedule.data import KernelPlan, Segment
from armature.torch_abi.aot import Unboxed

if TYPE_CHECKING:
    from armature.codegen.backend import DeviceBackend
    from armature.context import CompileContext

Kernels = Mapping[str, Callable[..., None]]
Call: TypeAlias = Callable[[list[Any]], tuple[Any, ...]]


@attrs.define(eq=False)
class Binding:
    """The kernels of one source, to be bound to the wrapper's globals.

    Until they are built, each name is bound to a stub that waits, binds the real kernels and calls on; so later calls
    pay nothing for the wait.
    """

    source: KernelSource
    names: dict[str, object]
    future: Future[Kernels]
    timeline: Timeline | None = None

    def stand_in(self, name: str) -> Callable[..., None]:
        """The stub that the wrapper calls while a kernel may not be built yet."""

        def call_when_built(*args: Any) -> None:
            self.bind()[name](*args)

        return call_when_built

    def bind(self) -> Kernels:
        """Wait for the kernels and bind them. Errors: BackendError of the build."""
        built = self.future.result()
        missing = [name for name in self.source.kernels if name not in built]
        if missing:
            raise InvariantError(what="the back end did not build this kernel", details=", ".join(missing))
        timeline = self.timeline
        if timeline is not None:
            built = {name: timeline.timed("kernel", name, kernel) for name, kernel in built.items()}
        self.names.update(built)
        return built


def backend_of(source: KernelSource, plan: KernelPlan, ctx: CompileContext) -> DeviceBackend:
    """The back end that printed the source."""
    for kernel in plan.launches:
        backend = ctx.tables.device_backend(kernel.device.type)
        if backend is not None and backend.name == source.backend:
            return backend
    raise InvariantError(what="a source of an unknown back end", details=source.backend)


def load(
    program: Program,
    aten: AtenGraph,
    loops: LoopGraph,
    plan: KernelPlan,
    ctx: CompileContext,
    around: Callable[[Segment, Call], Call] = lambda segment, call: call,
) -> CompiledGraph:
    """The program as a callable. Kernels are still being built when this returns; `ready` waits for them. around:
    what stands for the function of a segment."""
    names: dict[str, object] = {**program.bindings, **program.constants}
    bindings: list[Binding] = []
    for source in program.sources:
        backend = backend_of(source, plan, ctx)
        binding = Binding(source, names, ctx.workers.submit(backend.build, source, ctx), ctx.timeline)
        names.update((name, binding.stand_in(name)) for name in source.kernels)
        bindings.append(binding)
    filename = f"<armature {program.name} {ctx.compile_id}>"
    # Tracebacks and debuggers find the wrapper's text here; without an mtime it is never checked against a file.
    linecache.cache[filename] = (len(program.wrapper), None, program.wrapper.splitlines(keepends=True), filename)
    exec(compile(program.wrapper, filename, "exec"), names)
    for segment in plan.segments:
        names[segment.name] = around(segment, cast(Call, names[segment.name]))
    call: Any = names["call"]
    if ctx.timeline is not None:
        call = ctx.timeline.timed("graph", program.name, call)

    def ready() -> None:
        for binding in bindings:
            binding.bind()

    return CompiledGraph(program.name, call if program.boxed else Unboxed(call), aten, loops, plan, program, ready)
