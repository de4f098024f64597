"""The ways to compute a kernel that are worth measuring: torch's operator, a template in several tile sizes, loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from armature.backend_api import (
    Alternative,
    Buffer,
    GroupSpec,
    Kernel,
    LibrarySpec,
    Part,
    Product,
    Workspace,
    given_of,
    hint,
    library,
    parts_of,
    products,
)
from armature_gpu_triton import convolutions
from armature_gpu_triton.autotune import variations
from armature_gpu_triton.blocks import SMALLEST, Device, Sizes, candidates
from armature_gpu_triton.functions import Functions, product_spec, spec_of
from armature_gpu_triton.kernel_printer import KernelPrinter
from armature_gpu_triton.loops import retile, tile
from armature_gpu_triton.product_printer import ProductPrinter
from armature_gpu_triton.spec import KernelSpec
from armature_gpu_triton.split import split


def is_narrow(product: Product) -> bool:
    """Whether matrix units would be half empty, so that loops may be as fast."""
    return min(hint(product.m.extent), hint(product.n.extent)) < SMALLEST


@attrs.frozen
class Alternatives:
    """The ways to compute a kernel that are worth measuring on a device."""

    functions: Functions
    device: Device

    def of(self, kernel: Kernel, buffers: Mapping[str, Buffer]) -> GroupSpec:
        """Collect all alternatives; the one that the rules choose comes first."""
        product = products.find(kernel, buffers)
        found: list[Alternative] = []
        if product is not None:
            found += [*self.by_library(kernel, product, buffers), *self.by_template(kernel, product, buffers)]
        if product is None or not found or is_narrow(product):
            found += self.by_loops(kernel, buffers, varied=product is None)
        first = found[0]
        group = GroupSpec(kernel.name, first.parts, first.workspaces, kernel.device.index)
        if len(found) == 1:
            return group
        return attrs.evolve(group, alternatives=tuple(found), arguments=given_of(kernel, buffers))

    def by_library(self, kernel: Kernel, product: Product, buffers: Mapping[str, Buffer]) -> Iterator[Alternative]:
        """torch's operators, with kernels around them: a convolution, a product of matrices."""
        found = {
            "library, convolution": convolutions.calls(product.source, buffers),
            "library": library.calls(product, buffers),
        }
        for label, calls in found.items():
            if calls is not None:
                yield Alternative(label, *self.called(kernel, calls, buffers))

    def called(
        self, kernel: Kernel, calls: library.Calls, buffers: Mapping[str, Buffer]
    ) -> tuple[tuple[Part, ...], tuple[Workspace, ...]]:
        """The kernels and the call as parts, and the memory that only they use."""
        every = {**buffers, **calls.workspaces}
        specs: list[KernelSpec | LibrarySpec] = []
        for step in calls.steps:
            if isinstance(step, Kernel):
                specs.append(self.functions.add(step, every))
            else:
                specs.append(step.spec())
                self.functions.texts[step.name] = step.spec().text
                self.functions.calls = True
        return parts_of(kernel, calls.steps, specs, calls.workspaces)

    def by_loops(self, kernel: Kernel, buffers: Mapping[str, Buffer], varied: bool) -> Iterator[Alternative]:
        """The kernel printed as loops, with the tile sizes of the rules and, if `varied`, other sizes too."""
        group = split(kernel, buffers)
        every = {**buffers, **group.workspaces}
        specs = [self.functions.add(part, every) for part in group.kernels]
        parts = parts_of(kernel, group.kernels, specs, group.workspaces)
        if len(group.kernels) > 1:
            yield Alternative("loops, split", *parts)
            return
        first = tile(kernel, buffers)
        yield Alternative(first.config.label, *parts)
        for number, config in enumerate(variations(first.config) if varied else ()):
            part = retile(first, config, buffers)
            name = f"{kernel.name}_tiles{number + 1}"
            printer = KernelPrinter(part, buffers)
            (spec,) = self.functions.tuned(printer, [attrs.evolve(spec_of(part, buffers), name=name)])
            yield Alternative(config.label, *parts_of(kernel, (kernel,), (spec,), {}))

    def by_template(self, kernel: Kernel, product: Product, buffers: Mapping[str, Buffer]) -> Iterator[Alternative]:
        """The product with what surrounds it as one kernel, in several tile sizes."""
        batch = 1 if product.batch is None else hint(product.batch.extent)
        width = max(product.left.dtype.itemsize, product.right.dtype.itemsize)
        m, n, k = (hint(v.extent) for v in (product.m, product.n, product.k))
        sizes = Sizes(batch, m, n, k, width)
        blocks = candidates(sizes, self.device)
        if not blocks:
            return
        named = attrs.evolve(product, kernel=attrs.evolve(product.kernel, name=f"{kernel.name}_template"))
        specs = self.functions.tuned(
            ProductPrinter(named, buffers, blocks), [product_spec(named, each, buffers) for each in blocks]
        )
        for each, spec in zip(blocks, specs, strict=True):
            yield Alternative(each.label, *parts_of(kernel, (named.kernel,), (spec,), {}))
