"""The features of a device's back end: lowering and scheduling ask for a feature, never for a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import attrs
import torch

if TYPE_CHECKING:
    from armature.services import Services


@attrs.frozen
class Numbering:
    """How eager's dropout on a device assigns random numbers to elements: see `armature.lower.philox.uniform`."""

    vector: int
    threads: int


@attrs.frozen
class ProductSizes:
    """A product of matrices, [batch, m, k] and [batch, k, n]; symbolic sizes are at their hints."""

    dtype: torch.dtype
    batch: int
    m: int
    n: int
    k: int


class RandomNumbers(Protocol):
    """A device's generator, for kernels that compute the numbers themselves."""

    def numbering(self, device: torch.device, dtype: torch.dtype) -> Numbering | None:
        """How eager's dropout numbers the values of a dense tensor whose size is a multiple of 16. None: not known,
        dropout stays an ATen call. It is called with the program's modes off, and may run operators."""

    def reserve(self, device: torch.device, count: int) -> torch.Tensor:
        """Advance the generator by `count` numbers per thread. Returns its seed and its previous offset, two int64 on
        the device."""


class Recurrence(Protocol):
    """Layers of recurrent networks as one loop over time."""

    def dtypes(self) -> frozenset[torch.dtype]:
        """Those for which the loops are known to be faster than torch's own functions."""

    def kernel(self, name: str, dtype: torch.dtype, ctx: Services) -> Callable[..., None]:
        """A loop: "lstm_forward", "lstm_backward", "gru_forward" or "gru_backward". It takes what the operator of this
        name takes, all contiguous, its results to be filled, and the numbers of steps, rows and units before the
        operator's switches: see `rnn_loops` of the plugin aten_lowerings. Errors: BackendError."""


@attrs.frozen
class AcrossRows:
    """Sums across rows that a kernel which reduces each row can make besides (`Kernel.sums`).

    most: elements of such a sum. parts: of the rows, each with sums of its own, that keep the device busy. shortest:
    rows of a part that pay. least: bytes that are then read once; fewer are as fast read twice.
    """

    most: int
    parts: int
    shortest: int
    least: int


@attrs.frozen
class Features:
    """The features of a back end, as data: the core asks for a feature, never for a device or a name.

    ops: operations of `armature.lower.ops.OPS` that it prints; an operator that needs another one stays an ATen call.
    reductions: keys of REDUCTIONS. dtypes: dtypes that kernels may load, store and compute with. scans: keys of
    REDUCTIONS that it also computes along a loop; without, cumulative sums stay ATen calls. atomic_add: dtypes of
    atomic additions, combining: keys of REDUCTIONS by which its stores of these dtypes also combine, besides "sum".
    check_index: whether it can raise IndexError for an index out of range. symbolic_sizes: whether
    kernels take sizes as arguments; without, graphs of dynamic sizes stay ATen calls. max_passes: most passes over the
    inner loop in one kernel. parallel: number of independent outer points below which a large kernel leaves most of the
    device idle. batch: most arguments of a `Batch` of kernels that `generate` accepts as one; 0: each kernel is
    launched separately. random: the devices' generators, if its kernels can compute what eager's dropout draws.
    scalars: whether kernels of a device other than the CPU take a float64 tensor without axes on the CPU by value: a
    float that is only known when the graph runs; without, operators that are given one stay ATen calls there.
    products: dtypes of matrices whose product it computes in a kernel, with what precedes and follows, or leaves to a
    library, whichever it measures to be faster; this is asked for in compilations that measure (`Config.autotune`).
    computes_product: whether its own kernel for a product of these sizes is faster than the library's by rule; then it
    is computed so in other compilations too (unless `Config.own_products` is off). None: none is.
    recurrence: its loops over time for recurrent layers. None: the layers are calls of torch's functions.
    across: sums across rows that a kernel over the rows can make besides; None: none.
    graph_calls: operators that take graphs (flexible attention) and that its method `compile_call` compiles; others run
    as in eager mode. builds_apart: kernels are built by other processes, for seconds: a backward graph is compiled
    while those of the forward graph are built, and not on its first call.
    """

    ops: frozenset[str]
    reductions: frozenset[str]
    dtypes: frozenset[torch.dtype]
    atomic_add: frozenset[torch.dtype] = frozenset()
    combining: frozenset[str] = frozenset()
    scans: frozenset[str] = frozenset()
    check_index: bool = True
    symbolic_sizes: bool = True
    max_passes: int = 8
    parallel: int = 4
    batch: int = 0
    random: RandomNumbers | None = None
    scalars: bool = False
    products: frozenset[torch.dtype] = frozenset()
    computes_product: Callable[[ProductSizes], bool] | None = None
    recurrence: Recurrence | None = None
    across: AcrossRows | None = None
    graph_calls: frozenset[object] = frozenset()
    builds_apart: bool = False
