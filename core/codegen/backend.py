"""The protocol between the core and a device back end: loop IR in, callable kernels out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs
import torch

from armature.codegen.data import KernelSource
from armature.schedule.data import KernelPlan, Work

if TYPE_CHECKING:
    from armature.context import CompileContext


@attrs.frozen
class Features:
    """What a back end can do, as data: the core asks for a feature, never for a device or a name.

    ops: operations of `armature.lower.ops.OPS` that it prints; an operator that needs another one stays an ATen call.
    reductions: keys of REDUCTIONS. dtypes: dtypes that kernels may load, store and compute with.
    atomic_add: dtypes of atomic stores. max_passes: most passes over the inner loop in one kernel.
    parallel: independent outer points below which a large kernel leaves most of the device idle. batch: most arguments
    of a `Batch` of kernels that is given to `generate` as one; 0: each kernel is launched by itself.
    """

    ops: frozenset[str]
    reductions: frozenset[str]
    dtypes: frozenset[torch.dtype]
    atomic_add: frozenset[torch.dtype] = frozenset()
    check_index: bool = True
    symbolic_sizes: bool = True
    max_passes: int = 8
    parallel: int = 4
    batch: int = 0


class DeviceBackend(Protocol):
    """Turns kernels into callables for the devices it names."""

    name: str
    device_types: frozenset[str]
    features: Features

    def generate(self, kernels: Sequence[Work], plan: KernelPlan, ctx: CompileContext) -> KernelSource:
        """Print all kernels of one graph as one source. Deterministic: same kernels, same text."""

    def build(self, source: KernelSource, ctx: CompileContext) -> Mapping[str, Callable[..., None]]:
        """Build (or take from ctx.cache) and load. Each callable takes the tensors and ints of `source.kernels[name]`,
        positionally, and writes its outputs. Errors: BackendError with the tool's message and the source's path."""

    def missing(self) -> str | None:
        """None when the back end can work here; else what is missing and the command that installs it."""
