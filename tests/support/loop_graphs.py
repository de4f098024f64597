"""Loop graphs written by hand or drawn by hypothesis: what the tests of scheduling and of back ends start from."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from hypothesis import strategies as st
from torch import Tensor

from armature.context import CompileContext
from armature.lower import layout
from armature.lower.builder import Builder
from armature.lower.data import Buffer, BufferKind, LoopGraph, Node, Origin
from armature.lower.elements import Position
from armature.lower.extern import as_view, call_extern
from armature.lower.index import Index, add, contiguous_strides, mul, sub
from armature.lower.reasons import Reason
from armature.lower.values import Spec, TensorValue
from armature.testing.lowering_kit import context

aten = torch.ops.aten


@attrs.define(eq=False)
class LoopWriter:
    """Writes a LoopGraph operator by operator, as lowering would: one plain loop each, views free of charge."""

    dtype: torch.dtype = torch.float64
    ctx: CompileContext = attrs.field(factory=lambda: context(()))
    inputs: list[str] = attrs.field(factory=list)
    count: int = 0
    builder: Builder = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.builder = Builder(self.ctx)

    def begin(self, name: str, shape: Sequence[Index], dtype: torch.dtype | None = None) -> None:
        """What follows belongs to a new operator with a row-major result of this shape."""
        self.count += 1
        spec = Spec.dense(tuple(shape), dtype or self.dtype, torch.device("cpu"))
        origin = Origin(f"aten.{name}.default", "model.py", self.count, "forward", f"{name}(...)")
        self.builder.begin(f"{name}_{self.count}", aten.clone.default, [spec], origin)

    def input(
        self, *shape: Index, dtype: torch.dtype | None = None, strides: Sequence[int] | None = None
    ) -> TensorValue:
        """A new input of the graph."""
        name = f"in_{len(self.inputs)}"
        self.inputs.append(name)
        steps = contiguous_strides(shape) if strides is None else tuple(strides)
        cpu = torch.device("cpu")
        self.builder.buffers[name] = Buffer(name, dtype or self.dtype, cpu, tuple(shape), steps, BufferKind.INPUT)
        return self.builder.whole(name)

    def op(self, name: str, *values: TensorValue | float) -> TensorValue:
        """A pointwise operator over broadcast values."""
        shape = layout.broadcast_shape(*(v.shape for v in values if isinstance(v, TensorValue)))
        self.begin(name, shape)
        return self.builder.pointwise(name, *values, dtype=self.dtype)

    def reduce(self, name: str, value: TensorValue, dims: Sequence[int], *, keepdim: bool = False) -> TensorValue:
        """A reduction; argmax and argmin are converted to the graph's dtype."""
        kept = [1 if k in dims else n for k, n in enumerate(value.shape)]
        shape = kept if keepdim else [n for k, n in enumerate(value.shape) if k not in dims]
        position = name.startswith("arg")
        self.begin(name, shape, torch.int64 if position else None)
        found = self.builder.reduction(name, value, dims, keepdim=keepdim)
        if not position:
            return found
        self.begin("cast", shape)
        return self.builder.pointwise(lambda node: node, found, dtype=self.dtype)

    def product(self, left: TensorValue, right: TensorValue) -> TensorValue:
        """A product of matrices, as a loop."""
        self.begin("mm", (left.shape[0], right.shape[1]))
        b = self.builder

        def element(p: Position) -> Node:
            return b.reduce_over(
                "sum", left.shape[1:], lambda k: b.op("product", b.load(left, (p[0], *k)), b.load(right, (*k, p[1])))
            )

        return b.loop(element)

    def scan(self, value: TensorValue, axis: int) -> TensorValue:
        """Sums along an axis, one for each point."""
        self.begin("cumsum", value.shape)
        return self.builder.loop(lambda position: self.builder.scan("sum", value, axis, position, self.dtype))

    def pad(self, value: TensorValue, axis: int) -> TensorValue:
        """One zero before and after along an axis."""
        b = self.builder
        shape = tuple(add(n, 2) if k == axis else n for k, n in enumerate(value.shape))
        self.begin("pad", shape)

        def element(position: Position) -> Node:
            where = sub(position[axis], 1)
            place = [where if k == axis else p for k, p in enumerate(position)]
            return b.masked(b.within((where, value.shape[axis])), b.read(value, place), 0.0)

        return b.loop(element)

    def copy(self, value: TensorValue) -> TensorValue:
        """The value in a row-major buffer of its own."""
        self.begin("clone", value.shape)
        return self.builder.realize(value)

    def gather(self, table: TensorValue, rows: TensorValue) -> TensorValue:
        """Rows of a matrix by an integer vector."""
        b = self.builder
        self.begin("embedding", (rows.shape[0], table.shape[1]))

        def element(position: Position) -> Node:
            bound = b.indirect(0, table.shape[0], b.load(rows, position[:1]))
            return b.load(table, (bound[0], position[1]), [bound])

        return b.loop(element)

    def extern(
        self, target: torch._ops.OpOverload, *values: TensorValue, shape: Sequence[Index], workspace: int = 0
    ) -> TensorValue:
        """An operator that stays an ATen call, with one row-major result. workspace: bytes that it takes besides."""
        self.begin(target._schema.name.split("::")[1], shape)
        spec, why = self.builder.spec(), Reason("no-lowering")
        (result,) = call_extern(self.builder, target, values, {}, [spec], why, workspace=workspace)
        if result is None:
            raise ValueError("the operator gives nothing")
        return result

    def join(self, values: Sequence[TensorValue]) -> TensorValue:
        """Values of one shape one after the other along the first axis, each written by a loop of its own."""
        shape = values[0].shape
        self.begin("cat", (mul(shape[0], len(values)), *shape[1:]))
        whole = self.builder.whole(self.builder.new_buffer(self.builder.spec()))
        for number, value in enumerate(values):
            self.write(layout.slice_axis(whole, 0, mul(shape[0], number), shape[0]), value)
        return whole

    def write(self, target: TensorValue, value: TensorValue) -> None:
        """`target.copy_(value)` into an input."""
        self.begin("copy", target.shape)
        read = self.builder.read
        self.builder.store(target.buffer, target.shape, lambda p: (layout.at(target, p), read(value, p), ()))

    def graph(self, *outputs: TensorValue) -> LoopGraph:
        """The finished graph."""
        self.begin("output", ())
        views = []
        for value in outputs:
            view = as_view(self.builder, value)
            held = self.builder.buffers[view.buffer]
            if held.kind is BufferKind.TEMP:
                self.builder.buffers[view.buffer] = attrs.evolve(held, kind=BufferKind.OUTPUT)
            views.append(view)
        nodes, buffers = tuple(self.builder.nodes), dict(self.builder.buffers)
        return LoopGraph("graph", tuple(self.inputs), {}, buffers, nodes, tuple(views))

    def arguments(self, graph: LoopGraph, seed: int = 0) -> list[Tensor]:
        """Values for the inputs: normal floats, integers 0 to 1, laid out as the buffers say."""
        generator = torch.Generator().manual_seed(seed)
        given: list[Tensor] = []
        for name in graph.inputs:
            held = graph.buffers[name]
            shape, strides = [int(str(n)) for n in held.shape], [int(str(n)) for n in held.strides]
            made = torch.empty_strided(shape, strides, dtype=held.dtype)
            if held.dtype.is_floating_point:
                given.append(made.copy_(torch.randn(shape, generator=generator, dtype=held.dtype)))
            else:
                given.append(made.copy_(torch.randint(0, 2, shape, generator=generator)))
        return given


_UNARY = ("neg", "tanh", "sigmoid", "abs")
_BINARY = ("add", "mul", "sub", "maximum")
_KINDS = (
    "unary", "binary", "binary", "reduce", "view", "view", "pad", "extern", "copy", "normalise", "normalise", "argmax",
    "gather", "join", "scan",
)  # fmt: skip
_SHAPES = ((4,), (3, 4), (2, 3, 4), (1, 4), (3, 1), (6, 4))


@st.composite
def loop_graphs(draw: st.DrawFn, steps: int = 12) -> tuple[LoopGraph, list[Tensor]]:
    """A graph of mixed operators with arguments for it."""
    writer = LoopWriter()
    pool = [writer.input(*shape) for shape in draw(st.lists(st.sampled_from(_SHAPES), min_size=1, max_size=3))]
    if draw(st.booleans()):
        pool.append(writer.input(2, 3, 4, strides=(12, 1, 3)))  # channels last
    inputs = list(pool)
    for _ in range(draw(st.integers(1, steps))):
        pool.append(_step(draw, writer, pool))
    results = draw(st.lists(st.sampled_from(pool[len(inputs) :]), min_size=1, max_size=3, unique_by=id))
    if draw(st.booleans()):
        target = draw(st.sampled_from(inputs))
        same = [v for v in pool if v.shape == target.shape and v.buffer not in writer.inputs]
        if same:
            writer.write(target, draw(st.sampled_from(same)))
            results = [v for v in results if v.buffer not in writer.inputs] or same[:1]
    graph = writer.graph(*results)
    return graph, writer.arguments(graph)


def _step(draw: st.DrawFn, writer: LoopWriter, pool: list[TensorValue]) -> TensorValue:
    value = draw(st.sampled_from(pool))
    kind = draw(st.sampled_from(_KINDS))
    if kind == "binary":
        fitting = [v for v in pool if _broadcasts(v.shape, value.shape)]
        return writer.op(draw(st.sampled_from(_BINARY)), value, draw(st.sampled_from(fitting)))
    if kind == "reduce" and value.ndim:
        dims = draw(st.lists(st.integers(0, value.ndim - 1), min_size=1, unique=True))
        return writer.reduce(draw(st.sampled_from(("sum", "max"))), value, sorted(dims), keepdim=draw(st.booleans()))
    if kind == "normalise" and value.ndim:
        dims = sorted(draw(st.lists(st.integers(0, value.ndim - 1), min_size=1, unique=True)))
        centred = writer.op("sub", value, writer.reduce("max", value, dims, keepdim=True))
        pool.append(centred)
        return writer.op("mul", centred, writer.reduce("sum", writer.op("tanh", centred), dims, keepdim=True))
    if kind == "argmax" and value.ndim:
        return writer.reduce("argmax", value, [draw(st.integers(0, value.ndim - 1))])
    if kind == "scan" and value.ndim:
        return writer.scan(value, draw(st.integers(0, value.ndim - 1)))
    if kind == "join" and value.ndim and _elements(value) < 200:
        return writer.join([value, draw(st.sampled_from([v for v in pool if v.shape == value.shape]))])
    if kind == "gather" and value.ndim == 2 and value.shape[0] != 1:
        return writer.gather(value, writer.input(5, dtype=torch.int64))
    if kind == "view" and value.ndim:
        return _view(draw, value)
    if kind == "pad" and value.ndim and _elements(value) < 200:
        return writer.pad(value, draw(st.integers(0, value.ndim - 1)))
    if kind == "extern":
        return writer.extern(aten.tanh.default, writer.copy(value), shape=value.shape)
    if kind == "copy":
        return writer.copy(value)
    return writer.op(draw(st.sampled_from(_UNARY)), value)


def _view(draw: st.DrawFn, value: TensorValue) -> TensorValue:
    kind = draw(st.sampled_from(("permute", "flatten", "slice", "unsqueeze")))
    if kind == "permute":
        return layout.permute(value, draw(st.permutations(range(value.ndim))))
    if kind == "flatten":
        return layout.reshape(value, (_elements(value),))
    if kind == "slice" and value.shape[0] != 1:
        return layout.slice_axis(value, 0, 1, sub(value.shape[0], 1))
    return layout.unsqueeze(value, draw(st.integers(0, value.ndim)))


def _elements(value: TensorValue) -> int:
    total = 1
    for size in value.shape:
        total *= int(str(size))
    return total


def _broadcasts(left: Sequence[Index], right: Sequence[Index]) -> bool:
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)
