"""Runs a LoopGraph with plain torch operations, one whole index grid at a time: the semantics of the loop IR without a
back end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch
from torch import Tensor

from armature.errors import InvariantError, invariant
from armature.lower.data import (
    Buffer,
    Const,
    ExternCall,
    IndexValue,
    Load,
    Loop,
    LoopGraph,
    Masked,
    Node,
    Op,
    Reduce,
    Scan,
    Store,
    View,
)
from armature.lower.index import FloorDiv, Index, Mod, Product, Size, Sum, Var, computed
from armature.lower.ops import OPS

Grids = Mapping[Var, Tensor]


def meaning(op: str) -> Callable[..., Tensor]:
    """Computes an operation on tensors of one dtype."""
    computes = OPS[op].meaning
    if computes is None:
        raise InvariantError(what="an operation on tensors alone", details=op)
    return computes


def run_loops(graph: LoopGraph, args: Sequence[object]) -> tuple[object, ...]:
    """The graph's outputs for the inputs. Errors: IndexError for an access out of bounds, InvariantError for an invalid
    graph."""
    return _Run(graph, tuple(args)).run()


@attrs.define(eq=False)
class _Run:
    graph: LoopGraph
    args: tuple[object, ...]
    memory: dict[str, Tensor] = attrs.field(factory=dict)
    sizes: dict[Size, int] = attrs.field(factory=dict)

    def run(self) -> tuple[object, ...]:
        for name, value in zip(self.graph.inputs, self.args, strict=True):
            if isinstance(value, Tensor):
                self.memory[name] = value.detach()
        for size, read in self.graph.sizes.items():
            self.sizes[size] = read.value(self.args[read.position])
        self.memory.update(self.graph.constants)
        for node in self.graph.nodes:
            if isinstance(node, Loop):
                self.loop(node)
            else:
                self.extern(node)
        return tuple(self.argument(o) for o in self.graph.outputs)

    def buffer(self, name: str) -> Tensor:
        if name not in self.memory:
            self.memory[name] = self.allocate(self.graph.buffers[name])
        return self.memory[name]

    def allocate(self, buffer: Buffer) -> Tensor:
        shape, strides = self.numbers(buffer.shape), self.numbers(buffer.strides)
        made = torch.empty_strided(shape, strides, dtype=buffer.dtype, device=buffer.device)
        return made.fill_(float("nan")) if buffer.dtype.is_floating_point else made.fill_(1)

    def number(self, value: Index) -> Any:
        """An int; a float for a size that is computed as one."""
        return self.index(value, {})

    def numbers(self, values: Sequence[Index]) -> tuple[int, ...]:
        return tuple(self.number(v) for v in values)

    def index(self, value: Index, grids: Grids) -> Any:
        """An int, or a tensor over the grid."""
        if isinstance(value, int):
            return value
        if isinstance(value, Var):
            return grids[value]
        if isinstance(value, Size):
            return computed(value, self.sizes) if value.definition else self.sizes[value]
        if isinstance(value, Sum):
            return sum((self.index(f, grids) * c for f, c in value.terms), start=value.const)
        if isinstance(value, Product):
            out: Any = 1
            for factor in value.factors:
                out = out * self.index(factor, grids)
            return out
        left, right = self.index(value.num, grids), self.index(value.den, grids)
        return left // right if isinstance(value, FloorDiv) else left % right

    # Nodes.

    def loop(self, loop: Loop) -> None:
        for store in loop.stores:
            if any(self.number(v.extent) == 0 for v in loop.space):
                continue
            self.store(store, loop.space)

    def store(self, store: Store, space: tuple[Var, ...]) -> None:
        target = self.buffer(store.buffer)
        grids = self.grids(space, len(space), 0)
        shape = self.numbers([v.extent for v in space])
        evaluate = _Evaluation(self, grids)
        value = evaluate(store.value).expand(shape)
        invariant(value.dtype == target.dtype, "a store of another dtype", store=store.buffer, dtype=value.dtype)
        bound = {**grids, **{v: evaluate(n) for v, n in store.indirect}}
        where = tuple(torch.as_tensor(self.index(i, bound)).expand(shape) for i in store.index)
        for part, size in zip(where, target.shape, strict=True):
            if part.numel() and (int(part.min()) < 0 or int(part.max()) >= size):
                raise IndexError(f"store to {store.buffer} outside its bounds")
        if store.atomic:
            put(store, target, where, value)
        elif where:
            target.index_put_(where, value)
        else:
            target.copy_(value.reshape(()))

    def grids(self, space: Sequence[Var], rank: int, first: int) -> dict[Var, Tensor]:
        out: dict[Var, Tensor] = {}
        for k, var in enumerate(space):
            shape = [1] * rank
            shape[first + k] = -1
            out[var] = torch.arange(self.number(var.extent)).reshape(shape)
        return out

    def extern(self, call: ExternCall) -> None:
        result = call.target(
            *(self.argument(a) for a in call.args), **{k: self.argument(v) for k, v in call.kwargs.items()}
        )
        several = result if isinstance(result, (tuple, list)) else (result,)
        for name, value in zip(call.outputs, several, strict=True):
            if name is None:
                continue
            self.memory[name] = value
            buffer = self.graph.buffers[name]
            if 0 in buffer.shape:
                continue
            same = all(
                n == 1 or s == t
                for n, s, t in zip(value.shape, value.stride(), self.numbers(buffer.strides), strict=True)
            )
            invariant(
                value.numel() == 0 or same,
                "an operator gave another layout than its fake tensor",
                op=str(call.target),
                real=value.stride(),
                fake=buffer.strides,
            )

    def argument(self, value: object) -> Any:
        if isinstance(value, View):
            base = self.buffer(value.buffer)
            whole = self.graph.buffers[value.buffer]
            if (value.shape, value.strides, value.offset) == (whole.shape, whole.strides, 0):
                return base  # unchanged: the fake of a workspace may be smaller than the workspace
            offset = base.storage_offset() + self.number(value.offset)
            return base.as_strided(self.numbers(value.shape), self.numbers(value.strides), offset)
        if isinstance(value, tuple):
            return [self.argument(item) for item in value]
        if isinstance(value, (Size, Sum, Product, FloorDiv, Mod)):
            return self.number(value)
        return value


class _Evaluation:
    """Values of nodes over one grid; each node is computed once."""

    def __init__(self, run: _Run, grids: dict[Var, Tensor], guarded: bool = False) -> None:
        self.run = run
        self.grids = grids
        self.guarded = guarded  # inside Masked: positions out of bounds are allowed, and read an arbitrary value
        self.values: dict[int, Tensor] = {}

    def __call__(self, node: Node) -> Tensor:
        if id(node) not in self.values:
            self.values[id(node)] = self.compute(node)
        return self.values[id(node)]

    def compute(self, node: Node) -> Tensor:
        if isinstance(node, Const):
            return torch.tensor(node.value, dtype=node.dtype)
        if isinstance(node, IndexValue):
            return torch.as_tensor(self.run.index(node.index, self.grids)).to(node.dtype)
        if isinstance(node, Load):
            return self.load(node)
        if isinstance(node, Masked):
            inner = _Evaluation(self.run, self.grids, guarded=True)
            value, other = inner(node.value), torch.tensor(node.other.value, dtype=node.dtype)
            invariant(value.dtype == node.dtype, "a mask of another dtype", node=node)
            return torch.where(self(node.cond), value, other)
        if isinstance(node, Scan):
            return self.scan(node)
        return self.operation(node) if isinstance(node, Op) else self.reduce(node)

    def operation(self, node: Op) -> Tensor:
        args = [self(a) for a in node.args]
        if node.op == "cast":
            return args[0].to(node.dtype)
        if node.op == "bitcast":
            return args[0].view(node.dtype)
        if node.op == "check_index":
            return self.checked(*args)
        values = args[1:] if node.op == "where" else args
        invariant(len({a.dtype for a in values}) == 1, "an operation on mixed dtypes", op=node.op, args=values)
        out = meaning(node.op)(*args)
        invariant(out.dtype == node.dtype, "an operation gave another dtype", op=node.op, dtype=node.dtype)
        return out

    def checked(self, position: Tensor, size: Tensor) -> Tensor:
        if not self.guarded and bool(((position < 0) | (position >= size)).any()):
            raise IndexError(f"index out of range for a size of {int(size)}")
        return position

    def load(self, node: Load) -> Tensor:
        source = self.run.buffer(node.buffer)
        invariant(source.dtype == node.dtype, "a load of another dtype", buffer=node.buffer, dtype=node.dtype)
        bound = {**self.grids, **{v: self(n) for v, n in node.indirect}}
        where = [torch.as_tensor(self.run.index(i, bound)) for i in node.index]
        invariant(len(where) == source.ndim, "a load with another number of coordinates", buffer=node.buffer)
        if self.guarded and not source.numel():  # the mask is false everywhere
            return source.new_zeros(())
        for k, (part, size) in enumerate(zip(where, source.shape, strict=True)):
            if self.guarded:
                where[k] = part.clamp(0, max(size - 1, 0))
            elif part.numel() and (int(part.min()) < 0 or int(part.max()) >= size):
                raise IndexError(f"load of {node.buffer} outside its bounds: axis {k} of size {size}")
        return source[tuple(where)] if where else source.reshape(())

    def scan(self, node: Scan) -> Tensor:
        places = [k for v in node.over for k, size in enumerate(self.grids[v].shape) if size > 1]
        shape = [1] * max(g.ndim for g in self.grids.values())
        for grid in self.grids.values():
            shape = [max(a, b) for a, b in zip(shape, grid.shape, strict=True)]
        return scanned(node, self(node.value).expand(shape), places)

    def reduce(self, node: Reduce) -> Tensor:
        k = len(node.over)
        rank = max((g.ndim for g in self.grids.values()), default=0)
        grids = {v: g.reshape(*g.shape, *([1] * k)) for v, g in self.grids.items()}
        shape = [1] * rank
        for grid in self.grids.values():
            shape = [max(a, b) for a, b in zip(shape, grid.shape, strict=True)]
        grids.update(self.run.grids(node.over, rank + k, rank))
        value = _Evaluation(self.run, grids, self.guarded)(node.value)
        full = (*shape, *self.run.numbers([v.extent for v in node.over]))
        flat = value.expand(full).reshape(*shape, -1)
        return _combine(node, flat)


COMBINING = {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin"}


def put(store: Store, target: Tensor, where: Sequence[Tensor], value: Tensor) -> None:
    """Combine values with what is at these places of the target, by an atomic store."""
    place = torch.zeros(value.shape, dtype=torch.int64)
    for part, size in zip(where, target.shape, strict=True):
        place = place * size + part.cpu()
    flat, place = target.reshape(-1), place.reshape(-1).to(target.device)
    done = flat.scatter_reduce(0, place, value.reshape(-1).to(target.dtype), COMBINING[store.combine])
    target.copy_(done.reshape(target.shape))


def scanned(node: Scan, value: Tensor, axes: Sequence[int]) -> Tensor:
    """The scan of `value` along `axes`, walked in row-major order."""
    ends = list(range(-len(axes), 0))
    last = value.movedim(list(axes), ends)
    flat = last.flatten(-len(axes))
    if node.op in ("max", "min"):
        done = (flat.cummax if node.op == "max" else flat.cummin)(-1).values
    elif node.op == "logsumexp":
        done = flat.logcumsumexp(-1)
    else:
        done = (flat.cumsum if node.op == "sum" else flat.cumprod)(-1, dtype=node.dtype)
    return done.reshape(last.shape).movedim(ends, list(axes))


def _combine(node: Reduce, flat: Tensor) -> Tensor:
    if node.op in ("max", "min"):
        return flat.amax(-1) if node.op == "max" else flat.amin(-1)
    if node.op in ("argmax", "argmin"):
        return flat.argmax(-1) if node.op == "argmax" else flat.argmin(-1)
    if node.op in ("any", "all"):
        return flat.any(-1) if node.op == "any" else flat.all(-1)
    if node.op == "prod":
        return flat.prod(-1, dtype=node.dtype)
    if node.op == "logsumexp":
        return flat.logsumexp(-1)
    invariant(node.op == "sum", "no such reduction", op=node.op)
    return flat.sum(-1, dtype=node.dtype)
