"""From the plan's kernels to one source: split, flatten, choose tiles, print, and record the data for building."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from armature.backend_api import Batch, Buffer, GroupSpec, KernelSource, Work
from armature_gpu_triton.alternatives import Alternatives
from armature_gpu_triton.blocks import Device
from armature_gpu_triton.functions import Functions, group_spec
from armature_gpu_triton.kernel_printer import print_module
from armature_gpu_triton.split import split

BACKEND = "gpu_triton"


def print_kernels(
    kernels: Sequence[Work], buffers: Mapping[str, Buffer], flags: tuple[str, ...], device: Device | None = None
) -> KernelSource:
    """All kernels of one graph as one source, with a GroupSpec per kernel in `meta["groups"]`.

    device: each kernel gets alternatives, to be measured on such a device; None: only the choice of the rules.
    """
    functions = Functions()
    groups: list[GroupSpec] = []
    for kernel in kernels:
        if isinstance(kernel, Batch):
            groups.append(functions.add_batch(kernel, buffers))
            continue
        if device is not None:
            groups.append(Alternatives(functions, device).of(kernel, buffers))
            continue
        group = split(kernel, buffers)
        every = {**buffers, **group.workspaces}
        groups.append(group_spec(kernel, group, [functions.add(part, every) for part in group.kernels]))
    return KernelSource(
        backend=BACKEND,
        language="python",
        text=print_module(list(functions.texts.values()), "import torch\n" if functions.calls else ""),
        kernels={k.name: k.arguments for k in kernels},
        flags=flags,
        meta={"groups": tuple(groups), "bodies": functions.bodies},
        parts={group.name: functions.text_of(group) for group in groups},
    )
