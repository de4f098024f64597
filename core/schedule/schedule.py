"""The scheduling stage: from loops, one per operator, to kernels in execution order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from armature import interrupts
from armature.lower.data import ExternCall, LoopGraph
from armature.schedule.across import sum_across
from armature.schedule.batch import batched
from armature.schedule.data import Kernel, KernelPlan
from armature.schedule.dependencies import dependencies, used
from armature.schedule.fusion import fuse
from armature.schedule.in_place import written_in_place
from armature.schedule.inline import inline, renumbered
from armature.schedule.kernels import build_kernel
from armature.schedule.memory import plan_memory
from armature.schedule.normalise import normalise
from armature.schedule.ranges import simplified

if TYPE_CHECKING:
    from armature.context import CompileContext


def schedule(loops: LoopGraph, ctx: CompileContext) -> KernelPlan:
    """Fuse, order and plan memory. Time is close to linear in the number of nodes."""
    start = normalise(loops)
    units = list(start.nodes)
    buffers = dict(start.buffers)
    units = renumbered(used(units, dependencies(units, loops, buffers)))
    if ctx.config.fuse:
        units = renumbered(written_in_place(units, loops, buffers))
    deps = dependencies(units, loops, buffers)
    if ctx.config.fuse:
        units = renumbered(inline(units, deps, buffers, ctx))
        units = simplified(units, dependencies(units, loops, buffers))
        units = renumbered(used(units, dependencies(units, loops, buffers)))
        deps = dependencies(units, loops, buffers)
    fusion = fuse(units, deps, buffers, ctx)
    if ctx.config.fuse:
        sum_across(fusion)
    groups = fusion.order.groups()
    owner = {member.item.number: group for group in groups for member in group.members}
    work: list[Kernel | ExternCall] = []
    number = 0
    for group in groups:
        interrupts.check()
        if group.extern is not None:
            work.append(group.extern)
            continue

        def is_needed(name: str, here: object = group) -> bool:
            outside = (owner.get(number) is not here for number in deps.readers.get(name, ()))
            return name in deps.wanted or name in deps.changed or any(outside)

        if any(is_needed(name) for member in group.members for name in member.item.writes):
            work.append(build_kernel(group, number, buffers, is_needed, deps.changed))
            number += 1
    ready = batched(work, buffers, partial(_most_arguments, ctx) if ctx.config.fuse else lambda device: 0)
    steps = plan_memory(ready, loops, buffers)
    return KernelPlan(loops.name, loops.inputs, loops.constants, buffers, steps, loops.outputs, loops.sizes)


def _most_arguments(ctx: CompileContext, device: torch.device) -> int:
    """The argument limit of a batch of kernels on a device; 0 if its back end takes none."""
    backend = ctx.tables.device_backend(device.type)
    return 0 if backend is None else backend.features.batch
