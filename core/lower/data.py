"""The loop IR: the result of lowering, fused by scheduling and printed by every back end.

A `Loop` is an iteration space and the stores made at each of its points. A stored value is a directed acyclic graph of
nodes; a node that is used twice is one object referenced twice (identity, not equality), so a pass that walks it with a
memo is linear. Loads are written in the *coordinates of the buffer they read*, not in elements of memory, so fusing a
producer into a consumer is just a substitution of the producer's loop variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeAlias

import attrs
import torch

from armature.graph.data import Origin as Origin
from armature.lower.index import Index, Size, Var
from armature.lower.reasons import Reason


class BufferKind(Enum):
    """Who owns the memory of a buffer."""

    INPUT = "input"  # passed by the caller
    CONSTANT = "constant"  # a tensor stored in the graph
    TEMP = "temp"  # allocated and released by the wrapper
    OUTPUT = "output"  # allocated by the wrapper, returned to the caller


@attrs.frozen
class Buffer:
    """A dense or strided piece of memory. Shape and strides in elements."""

    name: str
    dtype: torch.dtype
    device: torch.device
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    kind: BufferKind = BufferKind.TEMP
    # of an input whose storage does not start at its first element; always 0, because data_ptr includes it
    offset: Index = 0


@attrs.frozen(eq=False)
class Const:
    """A literal of `dtype`."""

    value: bool | int | float
    dtype: torch.dtype


@attrs.frozen(eq=False)
class IndexValue:
    """An index expression used as a value (arange, iota, a symbolic size), converted to `dtype`."""

    index: Index
    dtype: torch.dtype


@attrs.frozen(eq=False)
class Load:
    """`buffer[index]`. `indirect` binds index variables to integer values computed in the loop (gathers)."""

    buffer: str
    index: tuple[Index, ...]
    dtype: torch.dtype
    indirect: tuple[tuple[Var, Node], ...] = ()


@attrs.frozen(eq=False)
class Op:
    """One operation of `armature.lower.ops.OPS` on values; the result has `dtype`."""

    op: str
    args: tuple[Node, ...]
    dtype: torch.dtype
    origin: Origin | None = None


@attrs.frozen(eq=False)
class Masked:
    """`value` where `cond` holds, else `other`; loads inside `value` are not made where `cond` is false (padding)."""

    cond: Node
    value: Node
    other: Const
    dtype: torch.dtype


@attrs.frozen(eq=False)
class Reduce:
    """`value` combined over all points of `over` by `op` (a key of `armature.lower.ops.REDUCTIONS`).

    argmax and argmin return the row-major position within `over` as int64: the first of equal ones, a NaN before all
    others.
    """

    op: str
    value: Node
    over: tuple[Var, ...]
    dtype: torch.dtype
    origin: Origin | None = None


@attrs.frozen(eq=False)
class Scan:
    """`value` combined with its values at all points before, along `over`, by `op`, a key of
    `armature.lower.ops.REDUCTIONS` that has `combine`.

    `over` are variables of the loop's own space, walked in row-major order: unlike a Reduce, a Scan has a value at each
    of their points. `value` has `dtype` too.
    """

    op: str
    value: Node
    over: tuple[Var, ...]
    dtype: torch.dtype
    origin: Origin | None = None


Node: TypeAlias = Const | IndexValue | Load | Op | Masked | Reduce | Scan


@attrs.frozen(eq=False)
class Store:
    """`buffer[index] = value`; where `atomic`, the value is combined with what is there, by the key `combine` of
    `armature.lower.ops.REDUCTIONS` (scatters)."""

    buffer: str
    index: tuple[Index, ...]
    value: Node
    atomic: bool = False
    indirect: tuple[tuple[Var, Node], ...] = ()
    combine: str = "sum"


@attrs.frozen(eq=False)
class Loop:
    """Make the stores for each point of `space`. A store's value may hold `Reduce` nodes with variables of their own.

    A loop from an ATen operator has one store, to the buffer named like the loop, at exactly its own coordinates. If it
    scatters or writes part of a buffer instead, `plain` is False and it is not fused with a reader.
    """

    name: str
    space: tuple[Var, ...]
    stores: tuple[Store, ...]
    origins: tuple[Origin, ...] = ()
    plain: bool = True


@attrs.frozen
class View:
    """A strided view of a buffer: how an extern operator or a graph output takes it (`as_strided`). In elements."""

    buffer: str
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index = 0


@attrs.frozen
class AsNumber(View):
    """The element of a buffer without axes, as a Python number: how an operator takes a float that is only known when
    the graph runs."""


@attrs.frozen
class PassedOn:
    """An input of the graph that is neither a tensor nor a number, passed on."""

    name: str

    def __str__(self) -> str:
        return self.name


Argument: TypeAlias = (
    View
    | PassedOn
    | Index
    | bool
    | float
    | complex
    | str
    | torch.dtype
    | torch.device
    | torch.layout
    | torch.memory_format
    | tuple["Argument", ...]
    | None
)


@attrs.frozen(eq=False)
class ExternCall:
    """An operator called unchanged, `target(*args, **kwargs)`, inside the compiled graph.

    `outputs` names the buffers of its results, None for an unused result; the graph's buffers have their layout.
    `mutates` names the buffers that the call writes in place. `run`, if a lowering supplies it, is called instead of
    the operator, with the same arguments. `may_return_view`: results may be views of arguments, though the schema does
    not say so. `workspace`: bytes that it takes while it runs, besides. `reason`: why it is no loop.
    """

    name: str
    target: torch._ops.OpOverload
    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument]
    outputs: tuple[str | None, ...]
    mutates: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    run: Callable[..., object] | None = None
    may_return_view: bool = False
    workspace: int = 0
    reason: Reason = attrs.field(kw_only=True)


@attrs.frozen
class CallInstead:
    """Returned by a lowering to have `run` called with the operator's arguments, bypassing the dispatcher. reason: what
    it is, for reports."""

    run: Callable[..., object]
    reason: str = ""


LoopNode: TypeAlias = Loop | ExternCall


@attrs.frozen
class Reading:
    """Where a symbolic size is read: the input at `position`, along `axis` (-1: the input itself is an int). The value
    read, a size or a stride, is `factor * size + offset`."""

    position: int
    axis: int
    offset: int = 0
    factor: int = 1
    stride: bool = False

    def text(self, name: str) -> str:
        """Python code; `name` is the input's name."""
        read = name if self.axis < 0 else f"{name}.{'stride' if self.stride else 'size'}({self.axis})"
        read = f"({read} - {self.offset})" if self.offset else read
        return f"{read} // {self.factor}" if self.factor != 1 else read

    def value(self, given: Any) -> int:
        """The size, computed from an input."""
        read = int(given if self.axis < 0 else (given.stride() if self.stride else given.shape)[self.axis])
        return (read - self.offset) // self.factor


@attrs.frozen
class LoopGraph:
    """The result of lowering: buffers, and the nodes that fill them, in an order that respects their dependencies.

    `outputs` holds, per output of the graph, a View, an Index (a symbolic int), a Python constant or None. `sizes` says
    where each symbolic size is read from.
    """

    name: str
    inputs: tuple[str, ...]
    constants: Mapping[str, torch.Tensor]
    buffers: Mapping[str, Buffer]
    nodes: tuple[LoopNode, ...]
    outputs: tuple[View | Index | bool | float | None, ...]
    sizes: Mapping[Size, Reading] = attrs.field(factory=dict)
    spare: frozenset[str] = frozenset()  # inputs in whose memory results may be made if nobody else holds it
    lasting: frozenset[str] = frozenset()  # inputs that others hold while the graph runs: parameters
    shared_inputs: tuple[frozenset[str], ...] = ()  # inputs in one memory, which is let go with the last of them
