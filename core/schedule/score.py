"""The cost model of computing and fusing: the only place with figures that were chosen, not derived."""

from __future__ import annotations

from collections.abc import Iterable

from armature.lower.data import Buffer, Const, IndexValue, Load, Node, Op, Reduce, Scan
from armature.lower.index import Index, Var, hint, numel
from armature.lower.ops import OPS

# Costs are in additions per element (OpInfo.cost). Chosen on x86 with AVX2 and not sensitive: halving or doubling one
# changes few kernels.
CHEAP = 4  # cheaper values are recomputed by every reader: moving an element to memory and back costs more
RECOMPUTE = 16  # limit for recomputing a value that one reader reads more than once per element
REREAD = 16  # a copy in another layout is stored if each element is read at least this often
FREE_WORK = 4096  # additions that cost less than one more kernel launch
INLINE_NODES = 48  # longest expression that is copied into a reader
SMALL_KERNEL = 32768  # number of points below which running on one thread does not matter
LONGEST_PART = 512  # rows whose values are added to one partial sum: with more, roundings would count
MOST_BUFFERS = 64  # reads and writes of one kernel
MOST_SCALARS = 512  # the same for a kernel of one point
SCALAR_NODES = 4  # factor by which such a kernel may be longer
MOST_MADE = 64 << 20  # bytes of new temporaries in one batch of kernels, which are all live at once
WORTH_A_COPY = 1 / 64  # part of the memory at the peak that a further kernel has to save
WORTH_A_LAUNCH = 1 / 32  # the same where a batch is divided
RECOMPUTED = 32  # additions for each byte that is computed later, again, for a lower peak
WORTH_RECOMPUTING = 1 / 32  # part of the memory at the peak that this has to save
BEGUN = 3  # bytes that a kernel has to let go for each byte of its result to be begun before the peak
BEGINNINGS = 6  # how often, each time at the highest peak of then
WORTH_BEGINNING = 1 / 16  # part of the memory at the peak that each has to save
LENGTHENED = 1 / 2  # bytes of inputs that live longer, for each byte saved of other memory: most callers hold them
NEAR_THE_PEAK = 8  # units before and after the peak whose order is changed to lower it
SWAPS = 6  # how often, each time at the highest peak of then
LONGEST_HELD = 400  # steps for which released memory is kept for another buffer: bounds the cost of planning
FEWEST_RECORDED = (
    3  # kernels and calls that are recorded as one: the inputs are copied by one launch, the replay is another
)

# Limits of the search for groups to join.
NEIGHBOURS = 8  # groups per buffer: the nearest ones
# only producer and consumer first, then all pairs twice, because a join can make another one possible
ROUNDS = (True, False, False)
FARTHEST = 400  # groups between two that are joined: bounds the cost of one join


def cost(nodes: Iterable[Node]) -> int:
    """Additions per element for these nodes, with a load counted as one. Rounding to a smaller float and back is free,
    because it surrounds each operation of a half-precision program, which should not cost more than in float32."""
    total = 0
    for node in nodes:
        if isinstance(node, Op):
            if node.op == "cast" and node.dtype.is_floating_point and node.args[0].dtype.is_floating_point:
                continue
            total += OPS[node.op].cost
        elif isinstance(node, (Load, Reduce, Scan)):
            total += 1
    return total


def size(nodes: Iterable[Node]) -> int:
    """Number of nodes that become statements."""
    return sum(not isinstance(node, (Const, IndexValue)) for node in nodes)


def points(variables: Iterable[Var]) -> int:
    """Number of points of an iteration space, with symbolic extents at their hints."""
    return hint(numel(v.extent for v in variables))


def elements(shape: Iterable[Index]) -> int:
    """Number of elements of a shape, with symbolic sizes at their hints."""
    return hint(numel(shape))


def bytes_of(buffer: Buffer) -> int:
    """Bytes that a pass over the buffer touches, with symbolic sizes at their hints."""
    return elements(buffer.shape) * buffer.dtype.itemsize
