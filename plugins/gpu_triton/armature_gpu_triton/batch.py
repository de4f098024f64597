"""A batch of kernels as Triton functions: a program finds its member by comparing its number with constants.

Addresses are arguments; numbers of points and of first programs are constants in the text. So a launch costs as much as
one of a kernel with as many arguments, nothing has to be copied to the device, and the compiler knows the alignment of
pointers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import torch

from armature.backend_api import Batch, Body, Buffer, Row, Size, hint
from armature_gpu_triton.kernel_printer import KernelPrinter
from armature_gpu_triton.loops import INT32_MAX, Tile, tile
from armature_gpu_triton.ops import NUMBER, argument_type
from armature_gpu_triton.spec import KernelSpec

WIDEST = 16  # most elements that a thread accesses at once
SMALL = 1 << 18  # number of points below which the cost of a mask does not matter


@attrs.frozen(eq=False)
class Table:
    """Members that one function runs. arguments: names of buffers, each once. first: per row its first program."""

    body: Body
    rows: tuple[Row, ...]
    arguments: tuple[str, ...]
    tile: Tile

    @property
    def first(self) -> tuple[int, ...]:
        """The number of the first program of each row, and finally the total number of programs."""
        starts = [0]
        for row in self.rows:
            starts.append(starts[-1] + programs(self.tile, row))
        return tuple(starts)


def programs(whole: Tile, row: Row) -> int:
    """The number of programs that a member needs. Only members of one shape have tiles of two dimensions."""
    points = row.points if whole.r is None else hint(whole.x.extent)
    return -(-points // whole.config.xblock) * hint(whole.across)


def tables(batch: Batch, body: Body) -> list[Table]:
    """The rows grouped by the masking of their last program: none, in whole accesses of a thread, or by element.

    Otherwise one odd row would prevent wide accesses in all others.
    """
    whole = tile(body.kernel, body.slots)
    if whole.r is not None:
        return [Table(body, body.rows, arguments_of(batch, body.rows), whole)]
    block = whole.config.xblock
    exact = [row for row in body.rows if row.points % block == 0]
    even = [row for row in body.rows if row.points % block and row.points % WIDEST == 0]
    odd = [row for row in body.rows if row.points % WIDEST]
    if sum(row.points for row in even) <= SMALL:
        even, odd = [], [*even, *odd]
    return [_table(batch, body, whole, rows) for rows in (exact, even, odd) if rows]


def _table(batch: Batch, body: Body, whole: Tile, rows: Sequence[Row]) -> Table:
    block = whole.config.xblock
    widest = max(row.points for row in rows) + block > INT32_MAX
    own = attrs.evolve(whole, x_masked=any(row.points % block for row in rows), wide=widest)
    return Table(body, tuple(rows), arguments_of(batch, rows), own)


def arguments_of(batch: Batch, rows: Sequence[Row]) -> tuple[str, ...]:
    """The buffers of some members, each once."""
    used = {binding.buffer for row in rows for binding in row.bindings}
    return tuple(n for n in batch.arguments if n in used)


class BatchPrinter(KernelPrinter):
    """Prints the common kernel; the prologue sets its pointers to the addresses of the program's member."""

    def __init__(self, table: Table) -> None:
        super().__init__(table.tile, table.body.slots)
        self.table = table
        self.position = {name: f"arg{k}" for k, name in enumerate(table.arguments)}

    def parameters(self) -> str:
        """Addresses of all members, and the tile sizes."""
        return ", ".join([*self.position.values(), *self.tile_sizes()])

    def prologue(self) -> None:
        """Find the member, and the program's block of positions."""
        self.lines.add("program = tl.program_id(0)")
        self.find(range(len(self.table.rows)))
        self.block_of("(program - first)")
        self.start_of_block = ""

    def find(self, rows: Sequence[int]) -> None:
        """Print a binary search for the program's row, with one comparison per bit of the number of rows."""
        if len(rows) == 1:
            self.choose(rows[0])
            return
        middle = len(rows) // 2
        with self.lines.indented(f"if program < {self.table.first[rows[middle]]}:"):
            self.find(rows[:middle])
        with self.lines.indented("else:"):
            self.find(rows[middle:])

    def choose(self, number: int) -> None:
        """Set the values that differ between members."""
        row = self.table.rows[number]
        for slot, binding in zip(self.table.body.slots, row.bindings, strict=True):
            offset = f" + {binding.offset}" if binding.offset else ""
            self.lines.add(f"{self.arguments[slot]} = {self.position[binding.buffer]}{offset}")
        if isinstance(self.tile.x.extent, Size) and self.tile.x_masked:
            self.lines.add(f"{self.index.print(self.tile.x.extent)} = {row.points}")
        self.lines.add(f"first = {self.table.first[number]}")


def spec_of(table: Table, name: str, buffers: Mapping[str, Buffer], device: torch.device) -> KernelSpec:
    """The data for building the table's function."""
    config = table.tile.config
    types = tuple(argument_type(buffers[n], device) for n in table.arguments)
    return KernelSpec(
        name=name,
        signature=types,
        aligned=tuple(at for at, type in enumerate(types) if type != NUMBER),
        constants=(("XBLOCK", config.xblock), *((("RBLOCK", config.rblock),) if table.tile.r is not None else ())),
        grid=(table.first[-1], 1, 1),
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        device=device.index,
    )
