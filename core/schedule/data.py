"""The result of scheduling: kernels, extern calls and the lifetime of each buffer, in execution order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs
import torch

from armature.lower.data import Buffer, ExternCall, Node, Origin, Reading, Reduce, Store, View
from armature.lower.index import Index, Size, Var
from armature.schedule.walk import store_roots


@attrs.frozen(eq=False)
class Pass:
    """One run over `Kernel.inner` and what follows it, for each point of `Kernel.outer`.

    The inner loop accumulates every node of `reductions` and makes `inner_stores`. Once it has ended and the reductions
    have their values, `outer_stores` are made (their indices and values have no inner variable except under a
    `Reduce`). A `Reduce` of an earlier pass counts as a known scalar; other nodes are recomputed in each pass that
    needs them. `over` of a reduction is `Kernel.inner`: its own variables were renamed to them.
    """

    reductions: tuple[Reduce, ...]
    inner_stores: tuple[Store, ...]
    outer_stores: tuple[Store, ...]


@attrs.frozen(eq=False)
class Kernel:
    """One loop nest on one device: `outer` points are independent of each other, `inner` is () for a pointwise kernel.

    A pointwise kernel has one Pass, with its stores in `outer_stores`. Fused values are plain shared nodes: a buffer
    that only this kernel used is neither loaded nor stored. Within one outer point, later passes see a store only if
    they load it at the same coordinates. All loads of a pass from a buffer come before its stores to it.
    """

    name: str  # unique and the same in every process: add_relu_0
    device: torch.device
    outer: tuple[Var, ...]
    inner: tuple[Var, ...]
    passes: tuple[Pass, ...]
    reads: tuple[str, ...]  # buffers loaded, in order of first use, without those also written
    writes: tuple[str, ...]  # buffers stored to
    sizes: tuple[Size, ...] = ()  # symbolic sizes that the kernel takes as int64 arguments
    origins: tuple[Origin, ...] = ()
    operators: int = 1  # how many loops of the loop graph were merged into it
    loops: tuple[str, ...] = ()  # their names, in alphabetical order
    # pairs of a buffer read and one written that may be in the same memory: each element is read where it is written
    overlaid: tuple[tuple[str, str], ...] = ()
    # buffers whose inner stores add up over outer loops that are not among their coordinates: sums across rows. The
    # kernel sets them to zero first.
    sums: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names in the order in which a launch passes them: buffers read, buffers written, sizes."""
        return (*self.reads, *self.writes, *(s.name for s in self.sizes))

    @property
    def stores(self) -> list[Store]:
        """The stores of all passes, in order."""
        return [store for step in self.passes for store in (*step.inner_stores, *step.outer_stores)]

    @property
    def roots(self) -> list[Node]:
        """The nodes that the passes compute, in order: reductions, and operands of stores."""
        roots: list[Node] = []
        for step in self.passes:
            roots += step.reductions
            for store in (*step.inner_stores, *step.outer_stores):
                roots += store_roots(store)
        return roots


@attrs.frozen
class FusionPart:
    """One of two kernels that may become one, as a rule sees it.

    operators: "aten.add.Tensor", in order. points: how often its body runs. inner: how often for each element of its
    results; 1 if it reduces nothing. reads, writes: bytes of each buffer. nodes: operations of its body, each a value
    that may need a register.
    """

    operators: tuple[str, ...]
    points: int
    inner: int
    reads: Mapping[str, int]
    writes: Mapping[str, int]
    nodes: int


@attrs.frozen
class FusionPair:
    """Two kernels of one device that may become one. saved: bytes that are then not moved: of buffers that both touch,
    twice those of one that is handed over. A rule before this one may have changed it."""

    device: torch.device
    one: FusionPart
    other: FusionPart
    saved: float


@attrs.frozen
class FusionRule:
    """A plugin's rule of fusion, for all pairs that the core would join; it never joins others, which would give wrong
    results or which the device can't run.

    allows: False keeps the two apart. saves: what joining them saves, in place of `pair.saved`; larger ones are joined
    first, and a negative one keeps the two apart. Both are asked often, and must answer alike for equal pairs.
    """

    name: str
    allows: Callable[[FusionPair], bool] | None = None
    saves: Callable[[FusionPair], float] | None = None


@attrs.frozen(eq=False)
class Batch:
    """Kernels of one structure in one launch, for operations on each tensor of a list.

    No member touches memory that another one writes, so they may run in any order. They differ in buffers and, for a
    single loop, in its extent. `schedule.batch.body_of` returns their common part.
    """

    name: str
    members: tuple[Kernel, ...]
    reads: tuple[str, ...]  # buffers that some member loads and none writes, each once
    writes: tuple[str, ...]
    origins: tuple[Origin, ...] = ()
    sizes: tuple[Size, ...] = ()  # none: extents of members are numbers

    @classmethod
    def of(cls, members: Sequence[Kernel]) -> Batch:
        """Make a batch of the members, under the first one's name."""
        reads = dict.fromkeys(name for kernel in members for name in kernel.reads)
        writes = dict.fromkeys(name for kernel in members for name in kernel.writes)
        origins = dict.fromkeys(origin for kernel in members for origin in kernel.origins)
        name = f"{members[0].name}_x{len(members)}"
        return cls(name, tuple(members), tuple(reads), tuple(writes), tuple(origins))

    @property
    def device(self) -> torch.device:
        """Where all members run."""
        return self.members[0].device

    @property
    def operators(self) -> int:
        """How many loops of the loop graph were merged into it."""
        return sum(kernel.operators for kernel in self.members)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names in the order in which a launch passes them: buffers read, buffers written."""
        return (*self.reads, *self.writes)


Work: TypeAlias = Kernel | Batch


@attrs.frozen
class Allocate:
    """Allocate the buffer's memory, or take over the memory of `reuse`, a released buffer of the same bytes and
    device. over: a spare input that the next kernel reads for the last time: the buffer is made in its memory if
    nothing outside of the graph holds that when the step runs."""

    buffer: str
    reuse: str | None = None
    over: str | None = None


@attrs.frozen
class Release:
    """The buffer is not used after this."""

    buffer: str


@attrs.frozen(eq=False)
class Launch:
    """Run a kernel, or a batch of them."""

    kernel: Work


Step: TypeAlias = Allocate | Release | Launch | ExternCall


@attrs.frozen
class Segment:
    """Steps that are launched as one where their device can record launches: a function of the wrapper.

    span: positions in the plan's steps. inputs: what the steps need, tensors and sizes. outputs: what they make and
    leave. ended: inputs that are not used after this. fixed: inputs that the steps write to, so that they have to be
    the tensors themselves. copied: inputs whose memory the steps take over, but which no segment has made; they are
    copied first, so that the results lie in memory of the recording.
    """

    name: str
    device: torch.device
    span: range
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ended: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()


@attrs.frozen
class KernelPlan:
    """Everything that the wrapper does, in order. segments: those that are recorded, where the whole can't be."""

    name: str
    inputs: tuple[str, ...]
    constants: Mapping[str, torch.Tensor]
    buffers: Mapping[str, Buffer]
    steps: tuple[Step, ...]
    outputs: tuple[View | Index | bool | float | None, ...]
    sizes: Mapping[Size, Reading]
    segments: tuple[Segment, ...] = ()

    @property
    def launches(self) -> tuple[Work, ...]:
        """What is launched, in order."""
        return tuple(step.kernel for step in self.steps if isinstance(step, Launch))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels in launch order, those of batches one by one."""
        found: list[Kernel] = []
        for work in self.launches:
            found += work.members if isinstance(work, Batch) else (work,)
        return tuple(found)
