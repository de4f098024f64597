"""The end result of the pipeline: a callable compiled graph, with the artefacts of every stage for inspection."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from armature.codegen.data import Program
from armature.graph.data import AtenGraph
from armature.lower.data import LoopGraph
from armature.schedule.data import KernelPlan


@attrs.frozen(eq=False)
class CompiledGraph:
    """A compiled ATen graph. `call(args: list) -> tuple` may empty the list.

    `ready()` waits until its kernels are built and raises BackendError when one can't be; otherwise the first call
    does. The rest is what it was made from.
    """

    name: str
    call: Callable[[list[object]], tuple[object, ...]]
    aten: AtenGraph
    loops: LoopGraph
    plan: KernelPlan
    program: Program
    ready: Callable[[], None] = attrs.field(default=lambda: None, repr=False)
