"""Functions of one source: their text, and the data for building and launching them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from armature.backend_api import (
    PYTHON_INDEX,
    Batch,
    Buffer,
    GroupSpec,
    Index,
    Kernel,
    Op,
    Part,
    Product,
    add,
    body_of,
    floordiv,
    mul,
    nodes_of,
    of_arguments,
    parts_of,
)
from armature_gpu_triton import batch
from armature_gpu_triton.blocks import Blocks
from armature_gpu_triton.kernel_printer import KernelPrinter, print_function
from armature_gpu_triton.loops import Tile, tile
from armature_gpu_triton.ops import NUMBER, argument_type
from armature_gpu_triton.product_printer import programs
from armature_gpu_triton.spec import KernelSpec
from armature_gpu_triton.split import Group


def grid_of(part: Tile) -> tuple[int, int, int] | str:
    """The number of programs that cover the loops; if that depends on sizes, a lambda over the kernel's arguments."""
    if part.part is not None:
        return launched(part.part.extent, part.kernel)
    covering = mul(floordiv(add(part.x.extent, part.config.xblock - 1), part.config.xblock), part.across)
    return launched(covering, part.kernel)


def launched(covering: Index, kernel: Kernel) -> tuple[int, int, int] | str:
    """A one-dimensional grid of this many programs, as `KernelSpec.grid` takes it."""
    return (
        (covering, 1, 1)
        if isinstance(covering, int)
        else of_arguments(f"({PYTHON_INDEX.print(covering)}, 1, 1)", kernel)
    )


def spec_of(part: Tile, buffers: Mapping[str, Buffer]) -> KernelSpec:
    """The data for building the tile's function."""
    constants = {"XBLOCK": part.config.xblock} | ({"RBLOCK": part.config.rblock} if part.r is not None else {})
    return attrs.evolve(
        plain_spec(part.kernel, buffers),
        constants=tuple(constants.items()),
        grid=grid_of(part),
        num_warps=part.config.num_warps,
        num_stages=part.config.num_stages,
    )


def plain_spec(kernel: Kernel, buffers: Mapping[str, Buffer]) -> KernelSpec:
    """The data that does not depend on tiles."""
    types = [argument_type(buffers[n], kernel.device) for n in (*kernel.reads, *kernel.writes)]
    return KernelSpec(
        name=kernel.name,
        signature=(*types, *("i64" for _ in kernel.sizes)),
        aligned=tuple(at for at, type in enumerate(types) if type != NUMBER),
        constants=(),
        grid=(0, 0, 0),
        device=kernel.device.index,
        asserts=any(isinstance(n, Op) and n.op == "check_index" for n in nodes_of(kernel)),
    )


def product_spec(product: Product, blocks: Blocks, buffers: Mapping[str, Buffer]) -> KernelSpec:
    """The data for building a product's function with these blocks."""
    return attrs.evolve(
        plain_spec(product.kernel, buffers),
        constants=blocks.constants,
        grid=launched(programs(product, blocks), product.kernel),
        num_warps=blocks.num_warps,
        num_stages=blocks.num_stages,
    )


def group_spec(kernel: Kernel, group: Group, specs: Sequence[KernelSpec]) -> GroupSpec:
    """How the parts of a group take their arguments from the group's own."""
    parts, workspaces = parts_of(kernel, group.kernels, specs, group.workspaces)
    return GroupSpec(kernel.name, parts, workspaces, kernel.device.index)


@attrs.define
class Functions:
    """The functions of one source. Kernels that only differ in names share one.

    bodies: the text that determines a function's cubin, by its name; the name itself is not part of it. calls: whether
    some of them call torch.
    """

    texts: dict[str, str] = attrs.field(factory=dict)
    bodies: dict[str, str] = attrs.field(factory=dict)
    specs: dict[tuple[str, str, KernelSpec], KernelSpec] = attrs.field(factory=dict)
    calls: bool = False

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

    def tuned(self, printer: Printer, specs: Sequence[KernelSpec]) -> list[KernelSpec]:
        """Specs of one function that is printed once, for several tile sizes."""
        parameters, body = printer.parameters(), printer.print()
        text = f"({parameters})\n{body}"
        name = next((known for known, held in self.bodies.items() if held == text), specs[0].name)
        if name not in self.texts:
            self.texts[name] = print_function(attrs.evolve(printer.kernel, name=name), parameters, body)
            self.bodies[name] = text
        return [attrs.evolve(spec, name=name) for spec in specs]

    def text_of(self, group: GroupSpec) -> str:
        """The functions made from a kernel of the plan."""
        every = [*group.parts, *(part for each in group.alternatives for part in each.parts)]
        return "\n\n".join(dict.fromkeys(self.texts[part.spec.name] for part in every))

    def add_batch(self, work: Batch, buffers: Mapping[str, Buffer]) -> GroupSpec:
        """Functions for a batch, each for members with the same masking."""
        parts: list[Part] = []
        position = {name: at for at, name in enumerate(work.arguments)}
        for number, table in enumerate(batch.tables(work, body_of(work, buffers))):
            spec = batch.spec_of(table, f"{work.name}_{number}", buffers, work.device)
            spec = self.printed(batch.BatchPrinter(table), spec)
            parts.append(Part(spec, tuple(position[n] for n in table.arguments)))
        return GroupSpec(work.name, tuple(parts), (), work.device.index)


class Printer(Protocol):
    """Prints a function."""

    @property
    def kernel(self) -> Kernel: ...

    def parameters(self) -> str: ...

    def print(self) -> str: ...
