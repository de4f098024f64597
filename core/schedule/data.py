"""What scheduling gives: kernels, extern calls and the life of each buffer, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import attrs
import torch

from armature.lower.data import Buffer, ExternCall, Origin, Reading, Reduce, Store, View
from armature.lower.index import Index, Size, Var


@attrs.frozen(eq=False)
class Pass:
    """One run over `Kernel.inner` and what follows it, for each point of `Kernel.outer`.

    First the inner loop: accumulate every node of `reductions` and make `inner_stores`; then, once the loop has ended
    and the reductions have their values, make `outer_stores` (their indices and values hold no inner variable except
    under a `Reduce`). A `Reduce` of an earlier pass counts as a known scalar; other nodes are computed anew in each
    pass that needs them. `over` of a reduction is `Kernel.inner`: its own variables were renamed to them.
    """

    reductions: tuple[Reduce, ...]
    inner_stores: tuple[Store, ...]
    outer_stores: tuple[Store, ...]


@attrs.frozen(eq=False)
class Kernel:
    """One loop nest on one device: `outer` points are independent of each other, `inner` is () for a pointwise kernel.

    A pointwise kernel has one Pass, with its stores in `outer_stores`. Values that were fused are plain shared nodes: a
    buffer that only this kernel used is neither loaded nor stored. Within one outer point, a store is seen by later
    passes only where they load it at the same coordinates. All loads of a pass from a buffer come before its stores to
    it.
    """

    name: str  # unique in the process-independent sense: add_relu_0
    device: torch.device
    outer: tuple[Var, ...]
    inner: tuple[Var, ...]
    passes: tuple[Pass, ...]
    reads: tuple[str, ...]  # buffers loaded, in order of first use, those also written left out
    writes: tuple[str, ...]  # buffers stored to
    sizes: tuple[Size, ...] = ()  # symbolic sizes that the kernel takes as int64 arguments
    origins: tuple[Origin, ...] = ()
    operators: int = 1  # how many loops of the loop graph it does the work of
    loops: tuple[str, ...] = ()  # their names, in order of the alphabet

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names in the order in which a launch passes them: buffers read, buffers written, sizes."""
        return (*self.reads, *self.writes, *(s.name for s in self.sizes))


@attrs.frozen
class Allocate:
    """Make the buffer's memory, or take over the memory of `reuse`, a released buffer of the same bytes and device."""

    buffer: str
    reuse: str | None = None


@attrs.frozen
class Release:
    """The buffer is not used after this."""

    buffer: str


@attrs.frozen(eq=False)
class Launch:
    """Run a kernel."""

    kernel: Kernel


Step: TypeAlias = Allocate | Release | Launch | ExternCall


@attrs.frozen
class KernelPlan:
    """All that the wrapper does, in order."""

    name: str
    inputs: tuple[str, ...]
    constants: Mapping[str, torch.Tensor]
    buffers: Mapping[str, Buffer]
    steps: tuple[Step, ...]
    outputs: tuple[View | Index | bool | float | None, ...]
    sizes: Mapping[Size, Reading]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels in launch order."""
        return tuple(step.kernel for step in self.steps if isinstance(step, Launch))
