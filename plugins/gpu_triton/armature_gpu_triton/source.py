"""From the plan's kernels to one source: split, flatten, choose tiles, print, and record the data for building."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from armature.backend_api import (
    PYTHON_INDEX,
    Batch,
    Buffer,
    Kernel,
    KernelSource,
    Op,
    Work,
    add,
    body_of,
    floordiv,
    mul,
)
from armature_gpu_triton import batch
from armature_gpu_triton.kernel_printer import KernelPrinter, print_function, print_module
from armature_gpu_triton.loops import Tile, nodes_of, tile
from armature_gpu_triton.ops import POINTERS
from armature_gpu_triton.spec import GroupSpec, KernelSpec, Part
from armature_gpu_triton.split import Group, split

BACKEND = "gpu_triton"


def grid_of(part: Tile) -> tuple[int, int, int] | str:
    """The number of programs that cover the loops; if that depends on sizes, a lambda over the kernel's arguments."""
    programs = mul(floordiv(add(part.x.extent, part.config.xblock - 1), part.config.xblock), part.across)
    if isinstance(programs, int):
        return (programs, 1, 1)
    kernel = part.kernel
    pointers = len(kernel.reads) + len(kernel.writes)
    names = [*(f"_{n}" for n in range(pointers)), *(s.name for s in kernel.sizes)]
    return f"lambda {', '.join(names)}: ({PYTHON_INDEX.print(programs)}, 1, 1)"


def spec_of(part: Tile, buffers: Mapping[str, Buffer]) -> KernelSpec:
    """The data for building the tile's function."""
    kernel = part.kernel
    names = (*kernel.reads, *kernel.writes)
    constants = {"XBLOCK": part.config.xblock} | ({"RBLOCK": part.config.rblock} if part.r is not None else {})
    return KernelSpec(
        name=kernel.name,
        signature=(*(POINTERS[buffers[n].dtype] for n in names), *("i64" for _ in kernel.sizes)),
        aligned=tuple(range(len(names))),
        constants=tuple(constants.items()),
        grid=grid_of(part),
        num_warps=part.config.num_warps,
        num_stages=part.config.num_stages,
        device=kernel.device.index,
        asserts=any(isinstance(n, Op) and n.op == "check_index" for n in nodes_of(kernel)),
    )


def elements(buffer: Buffer) -> int:
    """Elements of a workspace, whose shape is static."""
    total = 1
    for size in buffer.shape:
        if not isinstance(size, int):
            raise TypeError(f"a workspace of symbolic size: {buffer.name}")
        total *= size
    return total


def group_spec(kernel: Kernel, group: Group, specs: Sequence[KernelSpec]) -> GroupSpec:
    """How the parts of a group take their arguments from the group's own."""
    positions: dict[str, int | str] = {n: at for at, n in enumerate(kernel.arguments)}
    positions.update((name, name) for name in group.workspaces)
    parts = tuple(
        Part(spec, tuple(positions[n] for n in part.arguments)) for part, spec in zip(group.kernels, specs, strict=True)
    )
    sizes = tuple((n, elements(b), b.dtype) for n, b in group.workspaces.items())
    return GroupSpec(kernel.name, parts, sizes, kernel.device.index)


@attrs.define
class Functions:
    """The functions of one source. Kernels that only differ in names share one.

    bodies: the text that determines a function's cubin, by its name; the name itself is not part of it.
    """

    texts: dict[str, str] = attrs.field(factory=dict)
    bodies: dict[str, str] = attrs.field(factory=dict)
    specs: dict[tuple[str, str, KernelSpec], KernelSpec] = attrs.field(factory=dict)

    def add(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> KernelSpec:
        """The function for a kernel, printed now or shared with an earlier one."""
        part = tile(kernel, buffers)
        return self.printed(KernelPrinter(part, buffers), spec_of(part, buffers))

    def printed(self, printer: KernelPrinter, spec: KernelSpec) -> KernelSpec:
        """The function that the printer prints, or an existing one with the same text."""
        parameters, body = printer.parameters(), printer.print()
        key = (parameters, body, attrs.evolve(spec, name=""))
        if key not in self.specs:
            self.specs[key] = spec
            self.texts[spec.name] = print_function(attrs.evolve(printer.kernel, name=spec.name), parameters, body)
            self.bodies[spec.name] = f"({parameters})\n{body}"
        return self.specs[key]

    def text_of(self, group: GroupSpec) -> str:
        """The functions made from a kernel of the plan."""
        return "\n\n".join(dict.fromkeys(self.texts[part.spec.name] for part in group.parts))

    def add_batch(self, work: Batch, buffers: Mapping[str, Buffer]) -> GroupSpec:
        """Functions for a batch, each for members with the same masking."""
        parts: list[Part] = []
        position = {name: at for at, name in enumerate(work.arguments)}
        for number, table in enumerate(batch.tables(work, body_of(work, buffers))):
            spec = batch.spec_of(table, f"{work.name}_{number}", buffers, work.device.index)
            spec = self.printed(batch.BatchPrinter(table), spec)
            parts.append(Part(spec, tuple(position[n] for n in table.arguments)))
        return GroupSpec(work.name, tuple(parts), (), work.device.index)


def print_kernels(kernels: Sequence[Work], buffers: Mapping[str, Buffer], flags: tuple[str, ...]) -> KernelSource:
    """All kernels of one graph as one source, with a GroupSpec per kernel in `meta["groups"]`."""
    functions = Functions()
    groups: list[GroupSpec] = []
    for kernel in kernels:
        if isinstance(kernel, Batch):
            groups.append(functions.add_batch(kernel, buffers))
            continue
        group = split(kernel, buffers)
        every = {**buffers, **group.workspaces}
        groups.append(group_spec(kernel, group, [functions.add(part, every) for part in group.kernels]))
    return KernelSource(
        backend=BACKEND,
        language="python",
        text=print_module(list(functions.texts.values())),
        kernels={k.name: k.arguments for k in kernels},
        flags=flags,
        meta={"groups": tuple(groups), "bodies": functions.bodies},
        parts={group.name: functions.text_of(group) for group in groups},
    )
