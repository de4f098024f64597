"""Prints the computation of random numbers.

One counter yields the numbers of four neighbours, so they are computed together if they are in one program's block. One
by one they would take four times as long, which is more than dropout's memory accesses take.
"""

from __future__ import annotations

from collections.abc import Mapping

from armature.backend_api import Const, Index, IndexPrinter, IndexValue, Node, Op, Var, index, stride_of, substitute
from armature_gpu_triton.loops import Tile

FOUR = 4


def along(tile: Tile) -> tuple[Var, int]:
    """The variable of the last dimension of a block, and its extent there."""
    return (tile.x, tile.config.xblock) if tile.r is None else (tile.r, tile.config.rblock)


def first_of_four(tile: Tile, element: Index) -> Index | None:
    """The number of every fourth element of a block, in a variable `fours`; None if four neighbours of a block are not
    four elements that share a counter."""
    var, block = along(tile)
    if block % FOUR or stride_of(element, var) != 1 or index.mod(substitute(element, {var: 0}), FOUR) != 0:
        return None
    return substitute(element, {var: Var("fours", var.extent)})


def numbers(node: Op, operands: Mapping[Node, str], tile: Tile, start: str, printer: IndexPrinter) -> tuple[str, str]:
    """The expression of a block's random numbers, and the statement that must precede it ("" for none).

    start: the first position of the block along its last dimension, "" if that is not known.
    """
    seed, offset, element, *ways = node.args
    vector, threads = (str(way.value) for way in ways if isinstance(way, Const))
    wide = "tl.uint64" if tile.wide else "tl.uint32"
    rest = f"{vector}, {threads}"
    place = element.index if isinstance(element, IndexValue) else None
    fours = first_of_four(tile, place) if place is not None and start and int(vector) >= FOUR else None
    if fours is not None:
        size, row = ("XBLOCK", "") if tile.r is None else ("RBLOCK", "[None, :]")
        long = ".to(tl.int64)" if tile.wide else ""
        statement = f"fours = {start} + {FOUR} * tl.arange(0, {size} // {FOUR}){row}{long}"
        text = f"({printer.print(fours)}).to({wide})"
        return f"helpers.uniform_fours({operands[seed]}, {operands[offset]}, {text}, {rest})", statement
    text = operands[element] if place is None else f"({printer.print(place)})"
    return f"helpers.uniform({operands[seed]}, {operands[offset]}, {text}.to({wide}), {rest})", ""
