"""The functions made from a kernel: one, or for a product of matrices in a compilation that measures, several ways to
compute it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from armature.backend_api import (
    Alternative,
    Batch,
    Buffer,
    GroupSpec,
    Kernel,
    Lines,
    Op,
    Part,
    Product,
    Work,
    body_of,
    given_of,
    library,
    parts_of,
    products,
)
from armature_cpu_cpp.batch import BatchPrinter
from armature_cpu_cpp.kernel_printer import KernelPrinter
from armature_cpu_cpp.loops import plan_nest
from armature_cpu_cpp.ops import SERIES
from armature_cpu_cpp.product_printer import ProductPrinter
from armature_cpu_cpp.products import Blocks, candidates, chosen, is_computed, is_narrow
from armature_cpu_cpp.values import identifier


@attrs.frozen
class CppFunction:
    """A function of the library."""

    name: str


@attrs.define
class Functions:
    """The functions of one source. Those with the same text are compiled once.

    texts: what is printed for each, in order. bodies: their text without name and heading. first: by text, the first
    function that has it. headers: those needed besides the usual one. measured: whether products are computed in
    several ways, to be measured; else in the one that the rules choose.
    """

    register_bytes: int
    threads: int
    measured: bool = False
    texts: dict[str, str] = attrs.field(factory=dict)
    bodies: dict[str, str] = attrs.field(factory=dict)
    first: dict[str, str] = attrs.field(factory=dict)
    headers: set[str] = attrs.field(factory=set)

    def printed(self, name: str, printer: KernelPrinter) -> CppFunction:
        """Print a function."""
        name = identifier(name)
        printer.print()
        if any(isinstance(node, Op) and node.op in SERIES for node in printer.body.depends):
            self.headers.add("armature_series.h")
        text = str(printer.lines)
        first = self.first.setdefault(text, name)
        lines = Lines("// ", indent="  ")
        for line in printer.heading():
            lines.add("", line)
        if first != name:  # layers of a model repeat
            lines.add(f"namespace {name} = {first};")
        else:
            with lines.indented(f"namespace {name} {{"):
                lines.add(f'static const char* const NAME = "{name}";')
            lines.add(text.rstrip("\n"))
            lines.add("}")
        self.texts[name] = "\n".join(lines.lines)
        self.bodies[name] = text
        return CppFunction(name)

    def add(self, work: Work, buffers: Mapping[str, Buffer]) -> CppFunction:
        """The function of a kernel or a batch, as loops."""
        lines = Lines("// ", indent="  ")
        if not isinstance(work, Batch):
            nest = plan_nest(work, buffers, self.register_bytes, self.threads)
            return self.printed(work.name, KernelPrinter(nest, buffers, lines))
        body = body_of(work, buffers)
        nest = plan_nest(body.kernel, body.slots, self.register_bytes, self.threads)
        return self.printed(work.name, BatchPrinter(work, body, nest, lines))

    def group(self, work: Work, buffers: Mapping[str, Buffer]) -> GroupSpec:
        """All ways to compute it that are worth measuring; the one that the rules choose comes first."""
        product = None if isinstance(work, Batch) else products.find(work, buffers)
        found: list[Alternative] = []
        if product is not None and not isinstance(work, Batch) and self.measured:
            found += [*self.by_library(work, product, buffers), *self.by_blocks(work, product, buffers)]
            if found and is_narrow(product):
                found.append(Alternative("loops", *parts_of(work, (work,), (self.add(work, buffers),), {})))
        elif product is not None and not isinstance(work, Batch) and is_computed(product):
            found += self.by_rule(work, product, buffers)
        if not found:
            part = Part(self.add(work, buffers), tuple(range(len(work.arguments))))
            return GroupSpec(work.name, (part,))
        first = found[0]
        made = GroupSpec(work.name, first.parts, first.workspaces)
        if len(found) == 1 or isinstance(work, Batch):
            return made
        return attrs.evolve(made, alternatives=tuple(found), arguments=given_of(work, buffers))

    def by_library(self, kernel: Kernel, product: Product, buffers: Mapping[str, Buffer]) -> Iterator[Alternative]:
        """torch's operator, with kernels around it."""
        calls = library.calls(product, buffers)
        if calls is None:
            return
        every = {**buffers, **calls.workspaces}
        specs = [self.add(step, every) if isinstance(step, Kernel) else step.spec() for step in calls.steps]
        yield Alternative("library", *parts_of(kernel, calls.steps, specs, calls.workspaces))

    def by_blocks(self, kernel: Kernel, product: Product, buffers: Mapping[str, Buffer]) -> Iterator[Alternative]:
        """The product with what surrounds it in one function, by blocks of several sizes."""
        if is_computed(product):
            for number, blocks in enumerate(candidates(product, buffers, self.register_bytes, self.threads)):
                yield self.of_blocks(f"{kernel.name}_blocks{number}", kernel, product, blocks, buffers)

    def by_rule(self, kernel: Kernel, product: Product, buffers: Mapping[str, Buffer]) -> Iterator[Alternative]:
        """The way that the rules choose: blocks, or torch's operator where there are none."""
        blocks = chosen(product, buffers, self.register_bytes, self.threads)
        if blocks is None:
            yield from self.by_library(kernel, product, buffers)
        else:
            yield self.of_blocks(kernel.name, kernel, product, blocks, buffers)

    def of_blocks(
        self, name: str, kernel: Kernel, product: Product, blocks: Blocks, buffers: Mapping[str, Buffer]
    ) -> Alternative:
        """The product with what surrounds it, by blocks of these sizes."""
        self.headers.add("armature_products.h")
        printer = ProductPrinter(product, blocks, buffers, self.register_bytes, Lines("// ", indent="  "))
        function = self.printed(name, printer)
        return Alternative(blocks.label, *parts_of(kernel, (product.kernel,), (function,), {}))

    def text_of(self, group: GroupSpec) -> str:
        """The functions made from a kernel of the plan."""
        every = [*group.parts, *(part for each in group.alternatives for part in each.parts)]
        names = dict.fromkeys(part.spec.name for part in every if isinstance(part.spec, CppFunction))
        return "\n".join(self.texts[name] for name in names)
