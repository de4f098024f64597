"""Prints the computation of random numbers.

One counter yields the numbers of four neighbours, so they are computed together if they are in one program's block. One
by one they would take four times as long, which is more than dropout's memory accesses take.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

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


def words_below(limit: float) -> int:
    """How many of the 2^32 words of the generator make a number below `limit`, a float32 in 0..1: larger words make
    larger numbers."""
    low, high = 0, 1 << 32
    while low < high:
        middle = (low + high) // 2
        number = torch.tensor(middle, dtype=torch.int64).to(torch.float32) * 0.5**32 + 0.5**33
        low, high = (middle + 1, high) if bool(number < limit) else (low, middle)
    return low


def compared(node: Op) -> tuple[Op, int] | None:
    """The random number of `number < limit`, and how many of its generator's words make a smaller one; None for
    anything else. Words are compared as they are, which takes a third of the instructions."""
    if node.op != "lt":
        return None
    number, limit = node.args
    if not isinstance(number, Op) or number.op != "uniform" or not isinstance(limit, Const):
        return None
    words = words_below(float(limit.value))
    return (number, words) if words < 1 << 32 else None


def numbers(
    node: Op, operands: Mapping[Node, str], tile: Tile, start: str, printer: IndexPrinter, below: int | None = None
) -> tuple[str, str]:
    """The expression of a block's random numbers, and the statement that must precede it ("" for none).

    start: the first position of the block along its last dimension, "" if that is not known. below: the expression is
    whether the generator's words are less than this, instead.
    """
    seed, offset, element, *ways = node.args
    vector, threads = (str(way.value) for way in ways if isinstance(way, Const))
    wide = "tl.uint64" if tile.wide else "tl.uint32"
    rest = f"{vector}, {threads}"
    function = "helpers.uniform" if below is None else "helpers.draws_below"
    rest = rest if below is None else f"{rest}, {below}"
    place = element.index if isinstance(element, IndexValue) else None
    fours = first_of_four(tile, place) if place is not None and start and int(vector) >= FOUR else None
    if fours is not None:
        size, row = ("XBLOCK", "") if tile.r is None else ("RBLOCK", "[None, :]")
        long = ".to(tl.int64)" if tile.wide else ""
        statement = f"fours = {start} + {FOUR} * tl.arange(0, {size} // {FOUR}){row}{long}"
        text = f"({printer.print(fours)}).to({wide})"
        return f"{function}_fours({operands[seed]}, {operands[offset]}, {text}, {rest})", statement
    text = operands[element] if place is None else f"({printer.print(place)})"
    return f"{function}({operands[seed]}, {operands[offset]}, {text}.to({wide}), {rest})", ""
