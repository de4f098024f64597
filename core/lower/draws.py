"""Random numbers that the kernels of a graph compute themselves, the same as eager's.

A call reserves the numbers: it advances the device's generator and returns its previous state, from which kernels
compute the number of each element. Consecutive operators share one such call, unless another operator draws by itself
in between: the generator has to advance in the program's order.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch

from armature.lower import index as ix
from armature.lower.data import ExternCall, LoopNode
from armature.lower.features import Numbering
from armature.lower.index import Index

PER_COUNTER = 4  # numbers that a thread draws at once

torch.library.define(
    "armature::reserve", "(Device device, SymInt count) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,)
)
RESERVE: torch._ops.OpOverload = torch.ops.armature.reserve.default
"""Names the call in a graph; what is called is the device's `RandomNumbers.reserve`."""


def keeps_its_turn(call: ExternCall) -> bool:
    """Whether calls of this kind must run in program order: random numbers are drawn in order, all ranks must make
    collective calls in the same order, and operators of other libraries may have unknown effects."""
    return torch.Tag.nondeterministic_seeded in call.target.tags or call.target.namespace != "aten"


def drawn(elements: Index, numbering: Numbering) -> Index:
    """How many random numbers each thread of eager's dropout draws for this many elements."""
    counters = ix.floordiv(ix.sub(elements, 1), numbering.threads * PER_COUNTER)
    return ix.mul(ix.add(counters, 1), PER_COUNTER)


def narrowed(numbering: Numbering, elements: Index) -> Numbering | None:
    """The numbering for this many elements. Eager draws fewer numbers at once if they would not divide the elements
    evenly. None if that depends on an unknown size."""
    vector = numbering.vector
    while vector > 1 and ix.mod(elements, vector) != 0:
        if not isinstance(elements, int):
            return None
        vector //= 2
    return attrs.evolve(numbering, vector=vector)


def is_dense(shape: Sequence[Index], strides: Sequence[Index]) -> bool:
    """Whether the tensor fills its memory: no gaps and no overlaps between elements."""
    long = [(stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1]
    if all(isinstance(stride, int) for stride, _ in long):
        long.sort(key=lambda axis: -ix.hint(axis[0]))
    return tuple(stride for stride, _ in long) == ix.contiguous_strides([size for _, size in long])


@attrs.define(eq=False)
class Reservation:
    """A call that reserves random numbers, shared by consecutive operators. number: its position among the graph's
    nodes. checked: how many of the nodes were checked not to draw by themselves. state: the buffer of its result."""

    call: ExternCall
    number: int
    checked: int
    state: str
    total: Index

    def is_open(self, nodes: Sequence[LoopNode]) -> bool:
        """Whether the next operator, which follows all these nodes, can share the reservation."""
        # it was made by a lowering that was discarded
        if self.number >= len(nodes) or nodes[self.number] is not self.call:
            return False
        if any(isinstance(node, ExternCall) and keeps_its_turn(node) for node in nodes[self.checked :]):
            return False
        self.checked = len(nodes)
        return True

    def take(self, count: Index, nodes: list[LoopNode]) -> Index:
        """Reserve `count` more numbers; returns how many were reserved before them."""
        before, self.total = self.total, ix.add(self.total, count)
        self.call = nodes[self.number] = attrs.evolve(self.call, args=(self.call.args[0], self.total))
        return before
