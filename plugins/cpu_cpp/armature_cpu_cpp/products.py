"""Ways to compute a product of matrices by blocks of sums in registers (include/armature_products.h)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from armature.backend_api import Buffer, Product, ProductSizes, Var, hint, library
from armature_cpu_cpp import isa
from armature_cpu_cpp.loops import PARALLEL_WORK
from armature_cpu_cpp.vector import CPP_TYPES

IN_PLACE, PANELS, DOTS = "in place", "in panels", "dots"
"""Vectors of columns of the right factor as it lies in memory; copied to panels; vectors along the inner loop."""
WIDE_BLOCKS = {IN_PLACE: ((8, 3), (6, 4)), PANELS: ((8, 3), (12, 2)), DOTS: ((4, 4),)}
"""Rows and vectors of columns of a block, or rows and columns, where there are 32 vector registers."""
BLOCKS = {IN_PLACE: ((4, 2), (6, 2)), PANELS: ((6, 2),), DOTS: ((2, 4),)}
"""The same with 16 of them."""
WIDE_REGISTER = 64
PANEL = 1 << 17  # numbers of a panel, which stays in the second cache
TILE_ROWS, TILE_COLUMNS = 96, 384
LEFT = 1 << 18  # numbers of the rows of a computed left factor
LONGEST = 1 << 16  # inner loop for which a thread holds a computed factor, or panels, in memory of its own
FEW_ROWS = 4  # below, copying the right factor takes longer than what it saves
NARROW = 16  # side of a product up to which ordinary loops may be as fast
MANY_ROWS = 32  # above, copying the right factor to panels pays, if it does not lie by rows
SHORT = 64  # inner loop below which vectors along it are not filled well
LONG = 1 << 14  # inner loop above which columns of a factor that lie far apart fall out of the cache
PER_MULTIPLICATION = 0.25  # cost of one in a vector, relative to a load


@attrs.frozen
class Sides:
    """The sizes of a product, symbolic ones at their hints."""

    batch: int
    m: int
    n: int
    k: int

    @classmethod
    def of(cls, product: Product) -> Sides:
        """Those of a product."""
        batch = 1 if product.batch is None else hint(product.batch.extent)
        return cls(batch, *(max(hint(v.extent), 1) for v in (product.m, product.n, product.k)))

    def pays_threads(self, lanes: int, threads: int) -> bool:
        """Whether the work is worth waking other threads."""
        read = self.m * self.k + self.k * self.n + self.m * self.n
        work = self.batch * (self.m * self.n * self.k * PER_MULTIPLICATION + read) / lanes
        return work * (threads - 1) / threads >= PARALLEL_WORK


@attrs.frozen
class Blocks:
    """How a product is computed. form: how the right factor is read. rows, columns: of a block of sums in registers,
    columns in vectors if they are. tile_rows, tile_columns: of what a thread computes before it uses the sums."""

    form: str
    rows: int
    columns: int
    lanes: int
    tile_rows: int
    tile_columns: int
    parallel: bool

    @property
    def width(self) -> int:
        """Columns of a block."""
        return self.columns * (1 if self.form == DOTS else self.lanes)

    @property
    def label(self) -> str:
        """For reports and stored choices."""
        return f"C++, {self.rows}x{self.width} {self.form}"


@attrs.frozen(eq=False)
class Factors:
    """The factors of a product as matrices in memory; None for one that is computed or lies otherwise."""

    left: library.Matrix | None
    right: library.Matrix | None

    @classmethod
    def of(cls, product: Product, buffers: Mapping[str, Buffer]) -> Factors:
        """Those of a product: [batch], m, k and [batch], k, n."""
        batch: tuple[Var, ...] = () if product.batch is None else (product.batch,)
        return cls(
            library.loaded(product.left, (*batch, product.m, product.k), buffers),
            library.loaded(product.right, (*batch, product.k, product.n), buffers),
        )

    def forms(self, sides: Sides) -> Iterator[str]:
        """The forms that are possible, and worth measuring."""
        left, right = self.left, self.right
        short = sides.k <= LONGEST
        if right is not None and right.strides[-1] == 1 and (left is not None or short):
            yield IN_PLACE
        if right is not None and left is not None and right.strides[-2] == 1 == left.strides[-1]:
            yield DOTS
        if sides.m >= FEW_ROWS and short:
            yield PANELS


def is_computed(product: Product) -> bool:
    """Whether there are blocks for such a product."""
    dtypes = {product.left.dtype, product.right.dtype, product.total.dtype}
    return product.tap is None and len(dtypes) == 1 and dtypes <= CPP_TYPES.keys() and dtypes.pop().is_floating_point


def pays_by_rule(sizes: ProductSizes) -> bool:
    """Whether blocks are known to be faster than the library on this machine: two to four times as fast, and more for
    small products (AMD EPYC with AVX-512, one thread and two; a vector is read as fast by either)."""
    return isa.has_slow_library() and min(sizes.m, sizes.n) > 1 and sizes.k <= LONG


def chosen(product: Product, buffers: Mapping[str, Buffer], register_bytes: int, threads: int) -> Blocks | None:
    """The blocks that the rules take: in place where rows of the right factor lie in memory, else dots for few rows of
    the left one, and panels for more. None if there are none."""
    found = candidates(product, buffers, register_bytes, threads)
    sides = Sides.of(product)
    few = sides.m < FEW_ROWS or (sides.m <= MANY_ROWS and sides.k >= SHORT)
    order = (IN_PLACE, DOTS, PANELS) if few else (IN_PLACE, PANELS, DOTS)
    return next((each for form in order for each in found if each.form == form), None)


def is_narrow(product: Product) -> bool:
    """Whether ordinary loops may be as fast."""
    sides = Sides.of(product)
    return min(sides.m, sides.n) <= NARROW


def divided(whole: int, most: int) -> int:
    """The size of equal parts, of `most` at most."""
    return -(-whole // -(-whole // most))


def tiled(form: str, rows: int, columns: int, lanes: int, sides: Sides, threads: int) -> Blocks:
    """Blocks of this many rows and columns, with tiles for the product's sizes."""
    rows = divided(sides.m, rows)
    across = 1 if form == DOTS else lanes
    columns = divided(-(-sides.n // across), columns)
    width = columns * across
    widest = min(TILE_COLUMNS, PANEL // sides.k) if form == PANELS else TILE_COLUMNS
    down = divided(-(-sides.m // rows), max(1, min(TILE_ROWS, LEFT // sides.k) // rows))
    along = divided(-(-sides.n // width), max(1, widest // width))
    parallel = sides.pays_threads(lanes, threads)

    def tiles() -> int:
        return sides.batch * -(-sides.m // (down * rows)) * -(-sides.n // (along * width))

    while parallel and tiles() < 2 * threads and (down > 1 or along > 1):
        if along * width >= down * rows and along > 1:
            along = -(-along // 2)
        elif down > 1:
            down = -(-down // 2)
        else:
            along = -(-along // 2)
    return Blocks(form, rows, columns, lanes, down * rows, along * width, parallel)


def candidates(
    product: Product, buffers: Mapping[str, Buffer], register_bytes: int, threads: int
) -> tuple[Blocks, ...]:
    """The blocks that are worth measuring, each once."""
    sides = Sides.of(product)
    lanes = register_bytes // product.total.dtype.itemsize
    table = WIDE_BLOCKS if register_bytes == WIDE_REGISTER else BLOCKS
    found = (
        tiled(form, rows, columns, lanes, sides, threads)
        for form in Factors.of(product, buffers).forms(sides)
        for rows, columns in table[form]
    )
    return tuple({each.label: each for each in found}.values())
