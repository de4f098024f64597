"""What computing costs and what fusing saves: the only place with figures that were chosen, not derived."""

from __future__ import annotations

from collections.abc import Iterable

from armature.lower.data import Buffer, Const, IndexValue, Load, Node, Op, Reduce
from armature.lower.index import Index, Var, hint, numel
from armature.lower.ops import OPS

# Costs are in additions per element (OpInfo.cost). Chosen on x86 with AVX2 and not sensitive: halving or doubling one
# changes few kernels.
CHEAP = 4  # computed again by every reader rather than stored: one trip of an element to memory costs more
RECOMPUTE = 16  # most that is computed again where an element is read more than once by one reader
FREE_WORK = 4096  # additions that cost less than launching one more kernel
INLINE_NODES = 48  # longest expression that is copied into a reader
SMALL_KERNEL = 32768  # points below which running on one thread does not matter
MOST_BUFFERS = 64  # reads and writes of one kernel
MOST_SCALARS = 512  # the same of a kernel of one point
SCALAR_NODES = 4  # how many times longer it may be
MOST_MADE = 64 << 20  # bytes of new buffers that end within the graph, in one batch of kernels: all live at once

# How far is looked for what can be joined.
NEIGHBOURS = 8  # groups per buffer: those that stand nearest
ROUNDS = (True, False, False)  # only what is handed over; all, twice: a join can make another one possible
FARTHEST = 400  # groups between two that are joined: keeps the cost of one join bounded


def cost(nodes: Iterable[Node]) -> int:
    """Additions per element for these nodes, loads counted as one each. Rounding to a smaller float and back is free:
    it stands around each operation of a program in half precision, which is worth no less than one in float32."""
    total = 0
    for node in nodes:
        if isinstance(node, Op):
            if node.op == "cast" and node.dtype.is_floating_point and node.args[0].dtype.is_floating_point:
                continue
            total += OPS[node.op].cost
        elif isinstance(node, (Load, Reduce)):
            total += 1
    return total


def size(nodes: Iterable[Node]) -> int:
    """Nodes that become statements."""
    return sum(not isinstance(node, (Const, IndexValue)) for node in nodes)


def points(variables: Iterable[Var]) -> int:
    """Points of an iteration space, symbolic extents at their hints."""
    return hint(numel(v.extent for v in variables))


def elements(shape: Iterable[Index]) -> int:
    """Elements of a shape, symbolic sizes at their hints."""
    return hint(numel(shape))


def bytes_of(buffer: Buffer) -> int:
    """Bytes that a pass over the buffer touches, symbolic sizes at their hints."""
    return elements(buffer.shape) * buffer.dtype.itemsize
