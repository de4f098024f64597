"""The code generation stage: prints the plan as kernel sources, one per back end, and the wrapper that calls them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armature.codegen.data import KernelSource, Program
from armature.codegen.wrapper import Wrapper
from armature.errors import InvariantError
from armature.lower.data import ExternCall
from armature.schedule.data import KernelPlan, Work

if TYPE_CHECKING:
    from armature.codegen.backend import DeviceBackend
    from armature.context import CompileContext


def backends(plan: KernelPlan, ctx: CompileContext) -> dict[str, tuple[DeviceBackend, list[Work]]]:
    """The launches of each back end, in order. Errors: InvariantError for a device that no back end serves."""
    found: dict[str, tuple[DeviceBackend, list[Work]]] = {}
    for kernel in plan.launches:
        backend = ctx.tables.device_backend(kernel.device.type)
        if backend is None:
            raise InvariantError(what="a kernel for a device without a back end", details=str(kernel.device))
        found.setdefault(backend.name, (backend, []))[1].append(kernel)
    return found


def generate(plan: KernelPlan, ctx: CompileContext, boxed: bool = True) -> Program:
    """Print everything. The same plan gives the same text. boxed: whether the wrapper takes its inputs as a list."""
    sources: list[KernelSource] = []
    for backend, kernels in backends(plan, ctx).values():
        sources.append(backend.generate(kernels, plan, ctx))
    wrapper = Wrapper(plan, ctx.tables.operators, boxed)
    text = wrapper.print()
    return Program(
        name=plan.name,
        sources=tuple(sources),
        wrapper=text,
        constants=plan.constants,
        bindings=wrapper.bindings,
        kernel_count=len(plan.launches),
        fused_count=sum(k.operators for k in plan.kernels if k.operators > 1),
        extern_count=sum(isinstance(step, ExternCall) for step in plan.steps),
        boxed=boxed,
    )
