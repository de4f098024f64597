"""A product of matrices in C++: a thread computes tiles of it; each has its factors, its sums, and what uses these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from armature.backend_api import (
    Buffer,
    Index,
    Kernel,
    Lines,
    Load,
    Node,
    Pass,
    Product,
    Size,
    Store,
    Var,
    add,
    library,
    mul,
    rebuild,
    rename_node,
    rename_store,
    store_roots,
)
from armature_cpu_cpp.kernel_printer import KernelPrinter
from armature_cpu_cpp.loops import Nest, plan_nest
from armature_cpu_cpp.products import DOTS, IN_PLACE, PANELS, Blocks, Factors
from armature_cpu_cpp.vector import cpp_type

BATCH, ROW, COLUMN, PANEL = (Size(name, 0, 0) for name in ("b0", "m0", "n0", "p0"))
"""The first of a tile, and the first column of a panel within it."""
SUMS = {IN_PLACE: "sums_in_place", PANELS: "sums_of_panels", DOTS: "sums_of_dots"}


def part_of_extent(extent: Index, size: int, name: str) -> Index:
    """How many points of a loop a tile has: a number where all tiles have as many, else a variable of that name."""
    if isinstance(extent, int) and (extent <= size or extent % size == 0):
        return min(extent, size)
    return Size(name, size)


class ProductPrinter(KernelPrinter):
    """Prints a product with what surrounds it."""

    def __init__(
        self, product: Product, blocks: Blocks, buffers: Mapping[str, Buffer], register_bytes: int, lines: Lines
    ) -> None:
        kernel = product.kernel
        self.product = product
        self.cut = blocks
        self.register_bytes = register_bytes
        self.factors = Factors.of(product, buffers)
        super().__init__(
            Nest(
                kernel, kernel.outer, kernel.inner, None, blocks.lanes, int(blocks.parallel), None, blocks.parallel, 0
            ),
            buffers,
            lines,
        )
        rows, columns = blocks.tile_rows, blocks.tile_columns
        self.type = cpp_type(product.total.dtype)
        self.row = Var("i", part_of_extent(product.m.extent, rows, "rows"))
        self.column = Var("j", part_of_extent(product.n.extent, columns, "columns"))
        panel = Var("j", part_of_extent(product.n.extent, blocks.width, "width"))
        k = product.k
        self.tile = self.scratch_buffer("tile", (self.row, self.column), (columns, 1))
        self.left = self.scratch_buffer("left", (self.row, k), (k.extent, 1))
        self.panel = self.scratch_buffer("panel", (k, panel), (blocks.width, 1))
        self.panel_column = panel

    def scratch_buffer(self, name: str, loops: tuple[Var, ...], strides: tuple[Index, ...]) -> Buffer:
        """Memory of a thread."""
        kernel, dtype = self.product.kernel, self.product.total.dtype
        return Buffer(f"{kernel.name}_{name}", dtype, kernel.device, tuple(v.extent for v in loops), strides)

    @property
    def changes(self) -> dict[Var, Index]:
        """The loops of the product as those of a tile."""
        product = self.product
        found = {product.m: add(ROW, self.row), product.n: add(COLUMN, self.column)}
        return found if product.batch is None else {**found, product.batch: BATCH}

    def pointwise(self, loops: tuple[Var, ...], stores: Sequence[Store], own: Mapping[Buffer, str]) -> None:
        """Print loops that make these stores. own: the thread's memory in them, and its name in C++."""
        kernel: Kernel = attrs.evolve(self.product.kernel, outer=loops, inner=(), passes=(Pass((), (), tuple(stores)),))
        every = {**self.buffers, **{buffer.name: buffer for buffer in own}}
        printer = KernelPrinter(plan_nest(kernel, every, self.register_bytes, 1), every, self.lines)
        printer.pointers = {**self.pointers, **{buffer.name: name for buffer, name in own.items()}}
        with self.lines.indented("{", "}"):
            self.lines.add(f"constexpr int N = {printer.nest.lanes};")
            printer.body_loops()

    def factor(self, node: Node, changes: Mapping[Var, Index]) -> Node:
        """A factor over other loops."""
        return rebuild([node], lambda each: rename_node(each, changes))[node]

    def matrix(self, found: library.Matrix, first: tuple[Index, Index]) -> str:
        """A factor in memory, from these coordinates on."""
        down, along = found.strides[-2:]
        batch = mul(found.strides[0], BATCH) if len(found.strides) > 2 else 0
        start = add(found.offset, batch, mul(down, first[0]), mul(along, first[1]))
        at = f"{self.pointers[found.buffer]} + {self.index.print(start)}"
        return f"Rows<{self.type}>{{{at}, {self.index.print(down)}, {self.index.print(along)}}}"

    def body_loops(self) -> None:
        """The tiles of a thread."""
        product, blocks, lines, index = self.product, self.cut, self.lines, self.index
        m, n, k = (index.print(v.extent) for v in (product.m, product.n, product.k))
        lines.add(f"constexpr i64 ROWS = {blocks.tile_rows}, COLUMNS = {blocks.tile_columns}, WIDTH = {blocks.width};")
        lines.add(
            f"const i64 m = {m}, n = {n}, k = {k}, down = (m + ROWS - 1) / ROWS, along = (n + COLUMNS - 1) / COLUMNS;"
        )
        lines.add(f"Scratch<{self.type}> tile_memory(ROWS * COLUMNS);")
        lines.add(f"{self.type}* const tile = tile_memory.at;")
        if self.factors.left is None:
            lines.add(f"Scratch<{self.type}> left_memory(ROWS * k);")
            lines.add(f"{self.type}* const left = left_memory.at;")
        if blocks.form == PANELS:
            lines.add(f"Scratch<{self.type}> panels(k * COLUMNS);")
            lines.add("i64 held = -1;")
        with lines.indented("for (i64 unit = begin; unit < end; ++unit) {", "}"):
            lines.add("const i64 m0 = unit % down * ROWS, across = unit / down, n0 = across % along * COLUMNS;")
            if product.batch is not None:
                lines.add("const i64 b0 = across / along;")
            lines.add("const i64 rows = least(ROWS, m - m0), columns = least(COLUMNS, n - n0);")
            if blocks.form == PANELS:
                self.print_panels()
            if self.factors.left is None:
                store = Store(self.left.name, (self.row, product.k), self.factor(product.left, self.changes))
                self.pointwise((self.row, product.k), [store], {self.left: "left"})
            self.print_sums()
            self.print_rest()

    def print_panels(self) -> None:
        """Copy the columns of a tile to panels, unless the last tile had the same columns."""
        product, lines = self.product, self.lines
        changes = {**self.changes, product.n: add(COLUMN, PANEL, self.panel_column)}
        store = Store(self.panel.name, (product.k, self.panel_column), self.factor(product.right, changes))
        with lines.indented("if (held != across) {", "}"):
            lines.add("held = across;")
            with lines.indented("for (i64 p0 = 0; p0 < columns; p0 += WIDTH) {", "}"):
                lines.add(f"{self.type}* const panel = panels.at + p0 * k;")
                lines.add("const i64 width = least(WIDTH, columns - p0);")
                lines.add("if (width < WIDTH) for (i64 at = 0; at < WIDTH * k; ++at) panel[at] = 0;")
                self.pointwise((product.k, self.panel_column), [store], {self.panel: "panel"})

    def print_sums(self) -> None:
        """The sums of a tile."""
        blocks, factors = self.cut, self.factors
        left = f"Rows<{self.type}>{{left, k, 1}}"
        if factors.left is not None:
            left = self.matrix(factors.left, (ROW, 0))
        right = "panels.at"
        if blocks.form != PANELS and factors.right is not None:
            right = self.matrix(factors.right, (0, COLUMN))
        rows, columns = self.index.print(self.row.extent), self.index.print(self.column.extent)
        shape = f"<{blocks.lanes}, {blocks.rows}, {blocks.columns}>"
        self.lines.add(f"{SUMS[blocks.form]}{shape}(tile, COLUMNS, {left}, {right}, {rows}, {columns}, k);")

    def print_rest(self) -> None:
        """What is computed of the sums, and stored."""
        product, changes = self.product, self.changes
        total = Load(self.tile.name, (self.row, self.column), product.total.dtype)
        stores = product.kernel.stores
        roots = [root for store in stores for root in store_roots(store)]
        summed = rebuild(roots, lambda node: total if node is product.total else node)
        moved = rebuild(summed.values(), lambda node: rename_node(node, changes))
        new = {root: moved[summed[root]] for root in roots}
        order = [self.row if v is product.m else self.column for v in product.outer if v is not product.batch]
        self.pointwise(tuple(order), [rename_store(store, changes, new) for store in stores], {self.tile: "tile"})

    def units(self) -> str:
        """The number of tiles."""
        blocks, index = self.cut, self.index
        sides = ((self.product.m, blocks.tile_rows), (self.product.n, blocks.tile_columns))
        counts = [f"(({index.print(v.extent)} + {size - 1}) / {size})" for v, size in sides]
        batch = [] if self.product.batch is None else [index.print(self.product.batch.extent)]
        return " * ".join(f"i64({count})" for count in (*batch, *counts))
