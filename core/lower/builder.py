"""`Builder`: the interface with which a lowering writes loops.

A lowering defines one element; the builder makes the loop over the output, takes its layout from the fake tensor, gives
each operation the origin of the node being lowered, and raises `NotSupported` if the device's back end lacks an
operation or a dtype. The operator then stays an ATen call, and the attempt is discarded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import attrs
import torch
from torch import fx

from armature.lower import draws, layout, symints
from armature.lower import index as ix
from armature.lower.data import Buffer, BufferKind, ExternCall, Loop, LoopNode, Node, Origin, Store
from armature.lower.elements import Elements, Position, compute_dtype
from armature.lower.features import RandomNumbers
from armature.lower.index import Index, Var
from armature.lower.reasons import NotSupported, Reason
from armature.lower.values import Scalar, Spec, TensorValue, axes, coordinates
from armature.torch_abi import computing
from armature.torch_abi.memory import HOST


@attrs.define(eq=False)
class Builder(Elements):
    """The loop graph under construction, and the verbs of a lowering."""

    buffers: dict[str, Buffer] = attrs.field(factory=dict)
    nodes: list[LoopNode] = attrs.field(factory=list)
    target: torch._ops.OpOverload | None = None  # the operator being lowered
    name: str = "t"  # name of the node being lowered
    _specs: tuple[Spec | None, ...] = ()
    _used: tuple[bool, ...] = ()
    _readers: tuple[fx.Node, ...] = ()
    _operands: tuple[fx.Node, ...] = ()
    written_back: bool = False  # the result is a changed copy of an input, and is copied back into it
    _names: set[str] = attrs.field(factory=set)
    _reserved: dict[torch.device, draws.Reservation] = attrs.field(factory=dict)

    # -- the node being lowered

    def begin(
        self,
        name: str,
        target: torch._ops.OpOverload,
        specs: Sequence[Spec | None],
        origin: Origin | None,
        used: Sequence[bool] = (),
        readers: Sequence[fx.Node] = (),
        written_back: bool = False,
        operands: Sequence[fx.Node] = (),
    ) -> None:
        """Start lowering a node of the ATen graph. specs: the layouts of its results. used: which of them are read
        (empty: all). readers: the nodes that read them (empty: not known). written_back: the first result is copied
        back into the input that it was made from. operands: the nodes that it reads, in order."""
        self.name, self.target, self._specs = name, target, tuple(specs)
        self._used = tuple(used) or (True,) * len(specs)
        self._readers = tuple(readers)
        self.written_back, self._operands = written_back, tuple(operands)
        self.origin = None if origin is None else attrs.evolve(origin, node=name)
        self.device = next((str(s.device) for s in specs if s is not None), HOST.type)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo additions if the body raises."""
        nodes, buffers = len(self.nodes), len(self.buffers)
        try:
            yield
        except BaseException:
            del self.nodes[nodes:]
            for name in list(self.buffers)[buffers:]:
                del self.buffers[name]
                self._names.discard(name)
            raise

    def spec(self, position: int = 0) -> Spec:
        """The eager layout of the node's result number `position`."""
        spec = self._specs[position]
        if spec is None:
            raise NotSupported("a result that is no tensor")
        return spec

    def is_read(self, position: int) -> bool:
        """Whether anything reads the node's result number `position`."""
        return self._used[position]

    def start_of(self, number: int) -> Index:
        """Where eager's tensor that is the node's operand of that number begins in its storage, in elements."""
        return symints.to_index(self._operands[number].meta["val"].storage_offset())

    def feeds_pointwise(self, others: Collection[torch._ops.OpOverload] = ()) -> bool:
        """Whether all readers of the node's result are pointwise or calls of `others`, directly or through views, so
        that it need not be stored."""
        return bool(self._readers) and all(_is_pointwise(reader, others) for reader in self._readers)

    @property
    def result_count(self) -> int:
        """Number of results, including those that are None."""
        return len(self._specs)

    # -- loops

    def loop(self, element: Callable[[Position], Node], spec: Spec | None = None) -> TensorValue:
        """A new tensor whose element at `position` is `element(position)`, cast to the layout's dtype.

        `spec`: the layout; None: that of the node's first result. Makes one plain Loop.
        """
        spec = spec or self.spec()
        self.device = str(spec.device)
        self.need_dtype(spec.dtype)
        self.need_sizes((*spec.shape, *spec.strides))
        if 0 in spec.shape:
            raise NotSupported("a result without elements", "nothing")
        value = self.cast(element(coordinates(spec.shape)), spec.dtype)
        name = self.new_buffer(spec)
        space = axes(spec.shape)
        self.nodes.append(Loop(name, space, (Store(name, space, value),), self._origins()))
        return self.whole(name)

    def pointwise(
        self,
        compute: str | Callable[..., Node],
        *inputs: TensorValue | Scalar,
        dtype: torch.dtype | None = None,
        spec: Spec | None = None,
    ) -> TensorValue:
        """A tensor computed element by element from broadcast inputs.

        `compute`: the name of an operation, or a function over element values. `dtype`: what the inputs are converted
        to (16-bit floats to float32); None: each input's own.
        """
        wanted = None if dtype is None else compute_dtype(dtype)

        def element(position: Position) -> Node:
            parts = []
            for value in inputs:
                if isinstance(value, TensorValue):
                    parts.append(self.read(value, position, wanted))
                else:
                    parts.append(self.number(value, wanted or torch.get_default_dtype()))
            return self.op(compute, *parts) if isinstance(compute, str) else compute(*parts)

        return self.loop(element, spec)

    def reduction(
        self,
        op: str,
        value: TensorValue,
        dims: Sequence[int],
        *,
        keepdim: bool = False,
        dtype: torch.dtype | None = None,
        prepare: Callable[[Node, Position], Node] | None = None,
        finish: Callable[[Node], Node] | None = None,
        spec: Spec | None = None,
    ) -> TensorValue:
        """Combine over the axes `dims` (none given: all) by `op` of REDUCTIONS.

        `dtype`: what elements are converted to first; `prepare(element, position)` and `finish(combined)` transform the
        element and the result.
        """
        gone = sorted({layout.normal_axis(d, value.ndim) for d in dims} or range(value.ndim)) if value.ndim else []
        spec = spec or self.spec()

        def element(position: Position) -> Node:
            node = self.reduce(op, value, gone, position, keepdim=keepdim, dtype=dtype, prepare=prepare)
            return finish(node) if finish else node

        return self.loop(element, spec)

    def store(
        self,
        target: str,
        space: tuple[Index, ...],
        element: Callable[[Position], tuple[Position, Node, tuple[tuple[Var, Node], ...]]],
        *,
        atomic: bool = False,
        combine: str = "sum",
    ) -> None:
        """A loop over `space` that writes into an existing buffer, or combines with what is there (`atomic`): `element`
        returns where, what, and indirect variables."""
        buffer = self.buffers[target]
        self.device = str(buffer.device)
        self.need_dtype(buffer.dtype)
        self.need_sizes((*space, *buffer.shape, *buffer.strides))
        if atomic and buffer.dtype not in self.features.atomic_add:
            name = str(buffer.dtype).removeprefix("torch.")
            raise NotSupported(f"atomic addition of {name}", "operation")
        if combine != "sum" and combine not in self.features.combining:
            raise NotSupported(f"stores that combine by {combine}", "operation")
        in_order = combine in ("sum", "prod") and buffer.dtype.is_floating_point
        if atomic and in_order and torch.are_deterministic_algorithms_enabled():
            raise NotSupported("additions in any order, but deterministic algorithms are required")
        where, value, indirect = element(coordinates(space))
        stored = Store(target, where, self.cast(value, buffer.dtype), atomic, indirect, combine)
        name = self.fresh(f"{self.name}_into")
        self.nodes.append(Loop(name, axes(space), (stored,), self._origins(), plain=False))

    def realize(self, value: TensorValue, strides: tuple[Index, ...] | None = None) -> TensorValue:
        """A copy in a buffer of its own with the given strides (None: row-major)."""
        shape = value.shape
        spec = Spec(shape, value.dtype, value.device, ix.contiguous_strides(shape) if strides is None else strides)
        return self.loop(lambda position: self.load(value, position), spec)

    def uniform(self, value: TensorValue) -> Callable[[Position], Node]:
        """Reserve a random number for each element of `value`, the one that eager's dropout would draw.

        Returns what computes it at a position: a float32 in (0, 1]. Errors: NotSupported if the device's back end can't
        compute them. A reservation can't be undone, so a lowering must not decline after this.
        """
        source, elements = self.features.random, ix.numel(value.shape)
        if source is None or not draws.is_dense(value.shape, value.strides):
            raise NotSupported("eager's random numbers", "random")
        with computing.undisturbed():
            whole = source.numbering(value.device, value.dtype)
        numbering = None if whole is None else draws.narrowed(whole, elements)
        if numbering is None:
            raise NotSupported("eager's way of numbering", "random")
        self.need_sizes((*value.shape, *value.strides))
        count, integer = draws.drawn(elements, numbering), torch.int64
        self.op("uniform", *(self.const(0, integer) for _ in range(5)), dtype=torch.float32)
        state, before = self._reserve(source, value.device, count)
        seed, offset = (self.load(state, (k,)) for k in range(2))
        offset = offset if before == 0 else self.op("add", offset, self.index_value(before))
        ways = (self.const(numbering.vector, integer), self.const(numbering.threads, integer))

        def element(position: Position) -> Node:
            number = self.index_value(ix.linear(position, value.strides))
            return self.op("uniform", seed, offset, number, *ways, dtype=torch.float32)

        return element

    def _reserve(self, source: RandomNumbers, device: torch.device, count: Index) -> tuple[TensorValue, Index]:
        """The generator state for the next `count` numbers, and how many numbers other operators take from it before
        them."""
        held = self._reserved.get(device)
        if held is not None and held.is_open(self.nodes):
            return self.whole(held.state), held.take(count, self.nodes)
        state = self.new_buffer(Spec.dense((2,), torch.int64, device))
        args = (device, count)
        reserve, reason = source.reserve, Reason("random", "the generator's state for kernels")
        name = self.fresh(self.name)
        call = ExternCall(name, draws.RESERVE, args, {}, (state,), (), self._origins(), reserve, reason=reason)
        self._reserved[device] = draws.Reservation(call, len(self.nodes), len(self.nodes) + 1, state, count)
        self.nodes.append(call)
        return self.whole(state), 0

    # -- buffers

    def new_buffer(self, spec: Spec) -> str:
        """A buffer for a result; its name comes from the node being lowered."""
        name = self.fresh(self.name)
        self.buffers[name] = Buffer(name, spec.dtype, spec.device, spec.shape, spec.strides, BufferKind.TEMP)
        return name

    def whole(self, name: str) -> TensorValue:
        """The tensor that is all of a buffer."""
        b = self.buffers[name]
        return TensorValue(name, b.dtype, b.device, b.shape, coordinates(b.shape), b.strides)

    def is_whole(self, value: TensorValue) -> bool:
        """True when the value is all of its buffer, in the buffer's own layout."""
        buffer = self.buffers[value.buffer]
        return value.shape == buffer.shape and value.index == coordinates(buffer.shape)

    def fresh(self, base: str) -> str:
        """An unused name for a buffer or loop: `base` with a number, so that it is no C or Triton function's name."""
        name = base if re.search(r"_\d+$", base) else f"{base}_0"
        count = 0
        while name in self._names:
            count += 1
            name = f"{base}_p{count}"
        self._names.add(name)
        return name

    def _origins(self) -> tuple[Origin, ...]:
        return () if self.origin is None else (self.origin,)


def _is_pointwise(node: fx.Node, others: Collection[torch._ops.OpOverload] = ()) -> bool:
    """Whether a node computes element by element or calls one of `others`, or is a view that only such nodes read."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target.is_view:
        return bool(node.users) and all(_is_pointwise(user, others) for user in node.users)
    return target in others or torch.Tag.pointwise in target.tags
