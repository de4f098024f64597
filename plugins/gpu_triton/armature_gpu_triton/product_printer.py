"""Prints a product of matrices with its prologues and its epilogue as one Triton function.

The loops over tiles are the template `templates/product.py.j2`; the computations on elements are printed by the same
printer as in all other kernels, over blocks of these variables: `[m, k]` for the left factor, `[k, n]` for the right
one and `[m, n]` for the epilogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import cast

import attrs
import jinja2
import torch

from armature.backend_api import (
    Buffer,
    Const,
    Guarded,
    Index,
    Kernel,
    Lines,
    Load,
    Masked,
    Node,
    Pass,
    Product,
    Size,
    Statement,
    Store,
    Var,
    Write,
    add,
    floordiv,
    mul,
    rebuild,
    rename_store,
    store_roots,
    walk_kernel,
)
from armature_gpu_triton import autotune
from armature_gpu_triton.blocks import Blocks
from armature_gpu_triton.kernel_printer import KernelPrinter
from armature_gpu_triton.loops import Tile, is_wide
from armature_gpu_triton.ops import TYPES, is_number
from armature_gpu_triton.values import Guard

TEMPLATES = Path(__file__).parent / "templates"
LEFT, RIGHT = "left", "right"
SHAPES = {LEFT: "[BLOCK_M, BLOCK_K]", RIGHT: "[BLOCK_K, BLOCK_N]"}


@cache
def engine() -> jinja2.Environment:
    """The environment of the templates, which caches them."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def precision(dtype: torch.dtype) -> str:
    """How float32 is rounded before it is multiplied: as in torch's own products, according to its setting, on which
    every graph has a guard."""
    exact = dtype != torch.float32 or torch.get_float32_matmul_precision() == "highest"
    return "ieee" if exact else "tf32"


@attrs.frozen(eq=False)
class Masks:
    """Which of the last blocks may reach past the end, for any of the tile sizes that are considered."""

    m: bool
    n: bool
    k: bool

    @classmethod
    def of(cls, product: Product, blocks: Iterable[Blocks]) -> Masks:
        """Of a product."""
        every = tuple(blocks)

        def reaches(extent: Index, sizes: Iterable[int]) -> bool:
            return not isinstance(extent, int) or any(extent % size for size in sizes)

        return cls(
            reaches(product.m.extent, (b.m for b in every)),
            reaches(product.n.extent, (b.n for b in every)),
            reaches(product.k.extent, (b.k for b in every)),
        )


class Section(KernelPrinter):
    """Prints values over a block of two of the product's variables."""

    def __init__(self, product: Product, item: Pass, buffers: Mapping[str, Buffer], masks: Masks, part: str) -> None:
        self.product = product
        self.factor = part
        rows, columns = {LEFT: (product.m, product.k), RIGHT: (product.k, product.n)}.get(part, (product.m, product.n))
        kernel = attrs.evolve(product.kernel, passes=(item,))
        masked = {product.m: masks.m, product.n: masks.n, product.k: masks.k}
        wide = is_wide(product.kernel, buffers, 1 << 10)
        # This kernel has its own tile sizes, so nothing may depend on those of the configuration.
        config = autotune.Config(1, 1, 1, persistent=True)
        super().__init__(Tile(kernel, rows, columns, config, masked[rows], masked[columns], wide), buffers)
        self.body = walk_kernel(kernel, {LEFT: "a", RIGHT: "b"}.get(part, "tmp"))
        self.kernel = self.body.kernel
        self.inner_stores = tuple(self.kernel.stores)  # every value is computed at each element of the block
        self.masked = frozenset(var for var, reaches in masked.items() if reaches)
        names: dict[Var | Size, str] = {product.k: f"k_of_{part}"} if part in SHAPES else {}
        self.index = attrs.evolve(self.index, names={**self.index.names, **names})

    def conditions(self, depends: frozenset[Var]) -> tuple[str, frozenset[Var]]:
        """Overrides the base printer, with the names of this kernel's masks."""
        masks = {self.product.m: "m_in", self.product.n: "n_in", self.product.k: f"k_of_{self.factor}_in"}
        found = {var: name for var, name in masks.items() if var in depends and var in self.masked}
        names = [*found.values(), *(guard.name for guard in self.guards)]
        over = frozenset(found).union(*(guard.depends for guard in self.guards))
        return " & ".join(names), over

    def load(self, node: Load) -> str:
        """Overrides the base printer: in a factor, elements past the end are read as 0, so that they add nothing to the
        sum."""
        text = super().load(node)
        mask, _ = self.conditions(self.body.depends[node])
        by_value = is_number(self.buffers[node.buffer], self.kernel.device)
        return f"{text[:-1]}, 0)" if mask and self.factor in SHAPES and not by_value else text

    def is_padded(self, node: Node) -> bool:
        """Whether a factor's value is loaded, or 0 where a condition does not hold: loads give 0 there."""
        padded = isinstance(node, Masked) and isinstance(node.value, Load) and node.other.value == 0
        return padded and self.factor in SHAPES

    def guarded(self, item: Guarded, persistent: bool) -> None:
        """Overrides the base printer: values that are only loaded stay on their way to the matrix unit."""
        if not self.is_padded(item.node):
            super().guarded(item, persistent)
            return
        self.guards.append(Guard(self.value(item.node.cond), self.body.depends.get(item.node.cond, frozenset())))
        self.lines.add(f"{item.name} = {self.load(cast(Load, item.node.value))}")
        self.guards.pop()

    def text(self, items: Iterable[Statement], depth: int) -> str:
        """The statements that name values."""
        self.lines = Lines()
        self.lines.depth = depth
        self.statements([item for item in items if not isinstance(item, Write)], persistent=False)
        return str(self.lines) if self.lines.lines else ""

    def operand(self, node: Node) -> str:
        """A factor as a whole block."""
        text = self.value(node)
        depends = frozenset() if isinstance(node, Const) else self.body.depends[node]
        if not {self.tile.x, self.tile.r} <= depends:
            text = f"tl.broadcast_to({text}, {SHAPES[self.factor]})"
        if self.product.k in self.masked and not isinstance(node, Load) and not self.is_padded(node):
            text = f"tl.where(k_of_{self.factor}_in, {text}, {self.constant(0, node.dtype)})"
        return text


@attrs.frozen
class Factor:
    """The text of a factor: statements before the loop and in it, and the block."""

    before: str
    text: str
    value: str


@attrs.define(eq=False)
class ProductPrinter:
    """Prints one product; its tile sizes are parameters."""

    product: Product
    buffers: Mapping[str, Buffer]
    blocks: Sequence[Blocks]
    masks: Masks = attrs.field(init=False)
    epilogue: Section = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.masks = Masks.of(self.product, self.blocks)
        self.epilogue = Section(self.product, self.after(), self.buffers, self.masks, "")

    @property
    def kernel(self) -> Kernel:
        """The kernel that is printed."""
        return self.product.kernel

    def after(self) -> Pass:
        """The stores of the epilogue, which use the sum by its name."""
        (item,) = self.kernel.passes
        total = attrs.evolve(self.product.total, value=Const(0, self.product.total.value.dtype))
        roots = [root for store in item.outer_stores for root in store_roots(store)]
        known: dict[Node, Node] = {self.product.total: total}

        def change(node: Node) -> Node:
            return total if node is self.product.total else node

        new = {**rebuild(roots, change), **known}
        return Pass((total,), (), tuple(rename_store(store, {}, new) for store in item.outer_stores))

    def factor(self, part: str, node: Node) -> Factor:
        """The statements of a factor; what does not vary along the loop is computed before it."""
        store = Store(self.kernel.writes[0], (), node)
        section = Section(self.product, Pass((), (store,), ()), self.buffers, self.masks, part)
        (body,) = section.body.passes
        (root,) = [s.value for s in section.kernel.stores]
        return Factor(section.text(body.before, 1), section.text(body.inside, 2), section.operand(root))

    def finish(self) -> str:
        """The statements of the epilogue, after the loop."""
        (body,) = self.epilogue.body.passes
        self.epilogue.lines = Lines()
        with self.epilogue.lines.indented():
            self.epilogue.statements(body.after, persistent=False)
        return str(self.epilogue.lines)

    def cover(self, extent: Index, size: str) -> str:
        """The number of blocks along a variable."""
        return f"(({self.epilogue.index.print(extent)} + {size} - 1) // {size})"

    def parameters(self) -> str:
        """The function's parameters: buffers, sizes, tile sizes."""
        tiles = [f"{name}: tl.constexpr" for name, _ in self.blocks[0].constants]
        return ", ".join([*self.epilogue.arguments.values(), *tiles])

    def print(self) -> str:
        """The function's body. It does not contain the kernel's name."""
        product, index = self.product, self.epilogue.index
        wide = ".to(tl.int64)" if self.epilogue.tile.wide else ""
        masks = [
            f"{var.name}_in = {var.name} < {index.print(var.extent)}"
            for var, masked in ((product.m, self.masks.m), (product.n, self.masks.n))
            if masked
        ]
        inner = index.print(product.k.extent)
        parts = (LEFT, RIGHT)
        return (
            engine()
            .get_template("product.py.j2")
            .render(
                batched=product.batch is not None,
                program=f"tl.program_id(0){wide}",
                row_blocks=self.cover(product.m.extent, "BLOCK_M"),
                column_blocks=self.cover(product.n.extent, "BLOCK_N"),
                masks=masks,
                inner_masks=[f"k_of_{p}_in = k_of_{p} < {inner}" for p in parts] if self.masks.k else [],
                inner=inner,
                inner_blocks=self.cover(product.k.extent, "BLOCK_K"),
                taps="" if product.tap is None else index.print(product.tap.extent),
                wide=wide,
                total=self.epilogue.body.names[self.epilogue.kernel.passes[0].reductions[0]],
                summed=TYPES[product.total.dtype],
                left=self.factor(LEFT, product.left),
                right=self.factor(RIGHT, product.right),
                precision=precision(product.left.dtype),
                epilogue=self.finish(),
            )
        )


def programs(product: Product, blocks: Blocks) -> Index:
    """The number of programs that cover the result."""
    rows = floordiv(add(product.m.extent, blocks.m - 1), blocks.m)
    columns = floordiv(add(product.n.extent, blocks.n - 1), blocks.n)
    return mul(mul(rows, columns), 1 if product.batch is None else product.batch.extent)
