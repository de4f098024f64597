"""A product of matrices as a call of torch's, with kernels for what surrounds it: what the default mode does.

A factor that is computed, or that is not a strided matrix in memory, is stored first. The call writes the final result
if only rounding follows, and includes an addition that torch's operator supports (addmm).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import attrs
import torch

from armature.codegen.alternatives import LibrarySpec
from armature.codegen.printer import PYTHON_INDEX, position
from armature.codegen.products import Product
from armature.lower.data import Buffer, Load, Node, Op, Reduce, Store
from armature.lower.index import Index, Size, Var, contiguous_strides, mul, sizes, stride_of, substitute, variables
from armature.schedule.data import Kernel, Pass
from armature.schedule.rewrite import nodes_of
from armature.schedule.walk import operands, rebuild, rename_store, store_roots

HALVES = frozenset((torch.float16, torch.bfloat16))


@attrs.frozen
class Matrix:
    """A strided view of a buffer. In elements."""

    buffer: str
    shape: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index

    def text(self, name: str) -> str:
        """A Python expression of an argument, whose own memory may begin anywhere in its storage."""
        shape, strides = (f"[{', '.join(map(PYTHON_INDEX.print, v))}]" for v in (self.shape, self.strides))
        start = f", {name}.storage_offset() + {PYTHON_INDEX.print(self.offset)}" if self.offset != 0 else ""
        return f"{name}.as_strided({shape}, {strides}{start})"

    def sizes(self) -> frozenset[Size]:
        """Symbolic sizes in it."""
        return frozenset().union(*map(sizes, (*self.shape, *self.strides, self.offset)))


@attrs.frozen(eq=False)
class LibraryCall:
    """A call of torch's operator. arguments: names of buffers and sizes, in order. options: texts of what it takes
    after the factors."""

    name: str
    operator: str
    factors: tuple[Matrix, ...]
    out: Matrix
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Buffers, then symbolic sizes."""
        every = (*self.factors, self.out)
        found = sorted({size.name for view in every for size in view.sizes()})
        return (*dict.fromkeys(view.buffer for view in every), *found)

    def spec(self) -> LibrarySpec:
        """The call as a Python function."""
        names = dict.fromkeys(view.buffer for view in (*self.factors, self.out))
        parameters = {name: f"in{at}" for at, name in enumerate(names)} | {self.out.buffer: "out0"}
        lines = [
            f"def {self.name}({', '.join((*(parameters[n] for n in names), *self.arguments[len(names) :]))}):",
            "    with torch.no_grad():  # out= takes no arguments that need gradients, as parameters do",
            f"        torch.{self.operator}(",
            *(f"            {view.text(parameters[view.buffer])}," for view in self.factors),
            *(f"            {option}," for option in self.options),
            f"            out={self.out.text(parameters[self.out.buffer])},",
            "        )",
        ]
        return LibrarySpec(self.name, "\n".join(lines) + "\n")


@attrs.frozen(eq=False)
class Calls:
    """What computes the product: kernels and a call, in order, and the memory that only they use."""

    steps: tuple[Kernel | LibraryCall, ...]
    workspaces: Mapping[str, Buffer]


def matrix(place: Index, buffer: str, over: tuple[Var, ...]) -> Matrix | None:
    """The elements at `place` for all values of the variables; as a matrix; None if it has no constant stride along one
    of them.

    Along an extent of 1 any stride is right, so it gets that of a dense matrix, which libraries expect.
    """
    strides: list[Index] = []
    dense: Index = 1
    for var in reversed(over):
        step = stride_of(place, var)
        if step is None:
            return None
        strides.insert(0, dense if var.extent == 1 else step)
        dense = mul(strides[0], var.extent)
    rest = substitute(place, dict.fromkeys(over, 0))
    return None if variables(rest) else Matrix(buffer, tuple(v.extent for v in over), tuple(strides), rest)


def loaded(node: Node, over: tuple[Var, ...], buffers: Mapping[str, Buffer]) -> Matrix | None:
    """A node that is only loaded, as a matrix."""
    if not isinstance(node, Load) or node.indirect:
        return None
    return matrix(position(node, buffers), node.buffer, over)


def uncast(node: Node) -> Node:
    """The node below a widening of its dtype."""
    wider = isinstance(node, Op) and node.op == "cast" and node.args[0].dtype in HALVES and node.dtype == torch.float32
    return node.args[0] if isinstance(node, Op) and wider else node


class Maker:
    """Makes the steps around a library call. kernel: the one to replace. total: its sum. over: the variables of the
    call's result, in the order of memory that is made for it; some may have a single value and be no loops of the
    kernel. factor: dtype of the factors."""

    def __init__(
        self, kernel: Kernel, total: Reduce, over: tuple[Var, ...], factor: torch.dtype, buffers: Mapping[str, Buffer]
    ) -> None:
        self.kernel = kernel
        self.total = total
        self.over = over
        self.buffers = dict(buffers)
        self.workspaces: dict[str, Buffer] = {}
        self.steps: list[Kernel | LibraryCall] = []
        self.dtype = factor if factor in HALVES else total.dtype  # torch's result

    def workspace(self, dtype: torch.dtype, over: tuple[Var, ...]) -> Matrix:
        """New memory for a value at each point."""
        name = f"{self.kernel.name}_work{len(self.workspaces)}"
        shape = tuple(v.extent for v in over)
        strides = contiguous_strides(shape)
        made = Buffer(name, dtype, self.kernel.device, shape, strides)
        self.workspaces[name] = self.buffers[name] = made
        return Matrix(name, shape, strides, 0)

    def pointwise(self, outer: tuple[Var, ...], stores: tuple[Store, ...]) -> None:
        """Make a separate pointwise kernel for these stores."""
        name = f"{self.kernel.name}_step{len(self.steps)}"
        writes = tuple(dict.fromkeys(s.buffer for s in stores))
        made = attrs.evolve(
            self.kernel, name=name, outer=outer, inner=(), passes=(Pass((), (), stores),), writes=writes
        )
        reads = dict.fromkeys(n.buffer for n in nodes_of(made) if isinstance(n, Load) and n.buffer not in writes)
        self.steps.append(attrs.evolve(made, reads=tuple(reads)))

    def factor(self, node: Node, over: tuple[Var, ...]) -> Matrix:
        """A factor as a matrix in memory, stored first if necessary."""
        found = loaded(node, over, self.buffers)
        if found is None:
            found = self.workspace(node.dtype, over)
            self.pointwise(over, (Store(found.buffer, over, node),))
        return found

    def users(self, node: Node) -> list[Node]:
        """The nodes of the epilogue that use a node."""
        return [user for user in nodes_of(self.kernel) if node in operands(user)]

    def added(self, one_row: bool) -> tuple[Node, Matrix] | None:
        """The node that adds a matrix, or, if `one_row`, a row of one, to the product, and that matrix."""
        users, total = self.users(self.total), self.total
        roots = {root for s in self.kernel.stores for root in store_roots(s)}
        if len(users) != 1 or total in roots or not isinstance(users[0], Op) or users[0].op != "add":
            return None
        (other,) = [arg for arg in users[0].args if arg is not total] or [total]
        found = loaded(uncast(other), self.over, self.buffers)
        if found is None or self.buffers[found.buffer].dtype != self.dtype:
            return None
        *_, along_m, along_n = found.strides
        if one_row and along_m == 0 and along_n == 1:
            found = Matrix(found.buffer, found.shape[-1:], (1,), found.offset)
        return users[0], found

    def rounded(self, node: Node) -> Node:
        """The value that torch's operator returns for a sum: the rounded sum, if the kernel uses it only after
        rounding."""
        users = self.users(node)
        roots = {root for s in self.kernel.stores for root in store_roots(s)}
        first = users[0] if users else node
        only = len(users) == 1 and node not in roots and isinstance(first, Op) and first.op == "cast"
        return first if only and first.dtype == self.dtype else node

    def result(self, node: Node) -> Matrix:
        """The matrix that the call writes `node` to. `finish` adds kernels for whatever else is computed from it."""
        stores = self.kernel.stores
        if len(stores) == 1 and stores[0].value is node and not stores[0].indirect and not stores[0].atomic:
            place = position(stores[0], self.buffers)
            found = matrix(place, stores[0].buffer, self.over)
            if found is not None and self.buffers[found.buffer].dtype == self.dtype:
                return found
        return self.workspace(self.dtype, self.over)

    def finish(self, node: Node, made: Matrix) -> None:
        """The epilogue over the stored product."""
        place = tuple(v if v in self.kernel.outer else 0 for v in self.over)
        value: Node = Load(made.buffer, place, self.dtype)
        if value.dtype != node.dtype:
            value = Op("cast", (value,), node.dtype)
        roots = [root for s in self.kernel.stores for root in store_roots(s)]
        new = rebuild(roots, lambda each: value if each is node else each)
        self.pointwise(self.kernel.outer, tuple(rename_store(s, {}, new) for s in self.kernel.stores))

    def calls(self, node: Node, out: Matrix, call: LibraryCall) -> Calls:
        """The steps so far, the call, which writes the value of `node`, and what is computed from that."""
        self.steps.append(call)
        if out.buffer in self.workspaces:
            self.finish(node, out)
        return Calls(tuple(self.steps), self.workspaces)


def calls(product: Product, buffers: Mapping[str, Buffer]) -> Calls | None:
    """The product by torch's operator; None if it has none for it."""
    if product.tap is not None or (product.left.dtype == torch.int8 and product.batch is not None):
        return None
    batch = () if product.batch is None else (product.batch,)
    maker = Maker(product.kernel, product.total, product.outer, product.left.dtype, buffers)
    left = maker.factor(product.left, (*batch, product.m, product.k))
    right = maker.factor(product.right, (*batch, product.k, product.n))
    plain = "_int_mm" if product.left.dtype == torch.int8 else "bmm" if batch else "mm"
    found = None if plain == "_int_mm" else maker.added(one_row=not batch)
    operator, node = plain, cast(Node, product.total)
    given: tuple[Matrix, ...] = (left, right)
    if found is not None:
        node, more = found
        operator, given = ("baddbmm" if batch else "addmm"), (more, *given)
    node = maker.rounded(node)
    out = maker.result(node)
    return maker.calls(node, out, LibraryCall(f"{product.kernel.name}_library", operator, given, out))
