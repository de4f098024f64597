"""Prints a kernel's values as C++ expressions: literals, operations, loads, indices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import attrs
import torch

from armature.backend_api import (
    Buffer,
    Const,
    Index,
    IndexPrinter,
    IndexValue,
    KernelBody,
    Lines,
    Load,
    Node,
    Op,
    Size,
    Var,
    bounds,
    divisions,
    sizes,
    stride_of,
    substitute,
    variables,
    walk_kernel,
)
from armature_cpu_cpp.loops import STEPS, Nest
from armature_cpu_cpp.ops import FORMS, IMPLICIT, STORED_AS_THEY_ARE, in_float
from armature_cpu_cpp.segments import BELOW, edge_of
from armature_cpu_cpp.vector import HALVES, cpp_type, literal

MOST_POINTS = 1 << 30  # differences of two such positions are numbers of 32 bits


DIVIDED = IndexPrinter(short_floordiv="quotient<{1}>({0})", short_mod="remainder<{1}>({0})")


def _is_between(value: Index, low: int, high: int) -> bool:
    least, most = bounds(value)
    return least is not None and least >= low and most is not None and most < high


def _is_short(index: Index) -> bool:
    """Whether the index fits in 32 bits, and every dividend in it is non-negative and fits in 31 bits."""
    return _is_between(index, -(1 << 31), 1 << 31) and all(
        isinstance(part.den, int) and _is_between(part.num, 0, 1 << 31) for part in divisions(index)
    )


def identifier(name: str) -> str:
    """A C++ identifier for one of our names."""
    return re.sub(r"\W", "_", name)


class ValuePrinter:
    """Prints the operands of statements, and tracks which values are vectors."""

    def __init__(self, nest: Nest, buffers: Mapping[str, Buffer], lines: Lines) -> None:
        self.nest = nest
        self.buffers = buffers
        self.lines = lines
        self.body: KernelBody = walk_kernel(nest.kernel)
        self.kernel = self.body.kernel
        # Names are numbered by position, so that equivalent kernels have the same text, and share it.
        names: dict[Var | Size, str] = {v: f"i{k}" for k, v in enumerate(nest.outer)}
        names.update({v: f"r{k}" for k, v in enumerate(nest.inner)})
        self.index = IndexPrinter(
            signed_floordiv="floordiv<i64>({0}, {1})",
            signed_mod="mod<i64>({0}, {1})",
            short_floordiv="i64(u32({0}) / {1}u)",  # processors have no vector multiplication for quotients of 64 bits
            short_mod="i64(u32({0}) % {1}u)",
            names=names,
        )
        self.pointers = {
            **{n: f"in{k}" for k, n in enumerate(self.kernel.reads)},
            **{n: f"out{k}" for k, n in enumerate(self.kernel.writes)},
        }
        self.one_lane = False  # whether the vector's loop has a single point here
        self.mask = ""  # lanes outside of which no memory may be accessed
        self.spilled: set[str] = set()
        self.decided: Mapping[Node, bool] = {}  # conditions with a constant answer in the current piece
        self.uniform: frozenset[Node] = frozenset()  # values that are the same in all lanes there

    def lanes_vary(self, node: Node) -> bool:
        """Whether the node is a vector here."""
        if isinstance(node, Const) or node in self.decided or node in self.uniform:
            return False
        return self.nest.vector in self.body.depends[node]

    def value_type(self, node: Node) -> str:
        """The C++ type of the node's value."""
        name = cpp_type(node.dtype)
        return f"Vec<{name}, N>" if self.lanes_vary(node) else name

    def text(self, node: Node) -> str:
        """The text of the value as an operand."""
        if node in self.decided:
            return "true" if self.decided[node] else "false"
        return literal(node.value, node.dtype) if isinstance(node, Const) else self.body.names[node]

    def spread(self, node: Node, dtype: str = "") -> str:
        """The value as a vector."""
        text = self.text(node)
        return text if self.lanes_vary(node) else f"Vec<{dtype or cpp_type(node.dtype)}, N>({text})"

    def operation(self, node: Op) -> str:
        """The expression of an operation."""
        if node.op == "check_index":
            return self.check_index(node)
        wide = self.lanes_vary(node)
        if wide and (text := self._within(node)):
            return text
        if node.op == "where" and node.args[0] in self.decided:
            chosen = node.args[1 if self.decided[node.args[0]] else 2]
            return self.spread(chosen) if wide else self.text(chosen)
        operands = [self.text(a) for a in node.args]
        if wide and node.op not in IMPLICIT:
            operands = [self.spread(a) for a in node.args]
        elif wide and not any(self.lanes_vary(a) for a in node.args[-2:]):  # a `where` on two scalars
            operands = [*operands[:-1], self.spread(node.args[-1])]
        form = FORMS[node.op]
        halves = any(a.dtype in HALVES for a in (node, *node.args))
        if halves and node.op not in STORED_AS_THEY_ARE:
            return in_float(node, form, operands)
        return form.format(*operands) if isinstance(form, str) else form(node, operands)

    def _within(self, node: Op) -> str:
        """A comparison of the vector's variable with a constant, printed as a comparison of lane numbers with a limit:
        lane numbers have 32 bits, so a register holds twice as many. "" for all other operations."""
        vector = self.nest.vector
        if vector is None or not isinstance(vector.extent, int) or vector.extent > MOST_POINTS:
            return ""
        edge = edge_of(node, vector)
        if edge is None or abs(edge) > MOST_POINTS:
            return ""
        name = "lanes_below" if node.op in BELOW else "lanes_from"
        return f"{name}(l, i32({edge} - {self.index.names[vector]}))"

    def check_index(self, node: Op) -> str:
        """The index, checked; only active lanes may report an error."""
        at, size = node.args
        if not self.lanes_vary(node):
            return f"check_index(true, {self.text(at)}, {self.text(size)}, bad)"
        needed = self.mask or "active(l)"
        return f"check_index({needed}, {self.spread(at)}, {self.spread(size)}, bad)"

    def indexer(self, indirect: Sequence[tuple[Var, Node]], lane: bool) -> IndexPrinter:
        """Prints positions; with `lane`, those of lane k."""
        names: dict[Var | Size, str] = dict(self.index.names)
        if lane and self.nest.vector is not None:
            names[self.nest.vector] = f"({names[self.nest.vector]} + k)"
        for var, node in indirect:
            text = self.text(node)
            names[var] = f"{self.spill(node)}.at[k]" if self.lanes_vary(node) else text
        return attrs.evolve(self.index, names=names)

    def spill(self, node: Node) -> str:
        """The name of an array with the value's lanes."""
        name = f"{self.text(node)}_lanes"
        if name not in self.spilled:
            self.spilled.add(name)
            self.lines.add(f"const auto {name} = spill({self.text(node)});")
        return name

    def stride(self, index: Index, indirect: Sequence[tuple[Var, Node]]) -> Index | None:
        """The difference in position between neighbouring lanes; None if there is no fixed one."""
        if self.nest.vector is None:
            return 0
        if any(self.lanes_vary(node) for _, node in indirect):
            return None
        return stride_of(index, self.nest.vector)

    def load(self, node: Load) -> str:
        """The expression of a load."""
        pointer = self.pointers[node.buffer]
        stride = self.stride(node.index[0], node.indirect)
        if stride == 0:
            return f"{pointer}[{self.indexer(node.indirect, False).print(node.index[0])}]"
        where = "_where" if self.mask else ""
        lanes = f"l, {self.mask}" if self.mask else "l"
        if isinstance(stride, int) and (stride == 1 or stride in STEPS or self.one_lane):
            stride = 1 if self.one_lane else stride
            first = self.indexer(node.indirect, False).print(node.index[0])
            form = f"load{where}" if stride == 1 else f"load_steps{where}<{stride}>"
            return f"{form}({lanes}, {pointer} + {first})"
        if isinstance(stride, int):
            first = self.indexer(node.indirect, False).print(node.index[0])
            return f"gather_steps{where}<{stride}>({lanes}, {pointer} + {first})"
        if places := self.divided_positions(node.index[0], node.indirect):
            return f"gather_at{where}({lanes}, {pointer}, {places})"
        if linear := self.linear_positions(node):
            return f"gather_at{where}({lanes}, {pointer} + {linear[0]}, {linear[1]})"
        return f"gather{where}({lanes}, {pointer}, {self.lane_place(node.index[0], node.indirect)})"

    def linear_positions(self, node: Load) -> tuple[str, str] | None:
        """A first position, and a vector of offsets from it, if the position is a sum of multiples of indirect parts
        and of the vector's variable."""
        index, vector = node.index[0], self.nest.vector
        varying = {var: value for var, value in node.indirect if self.lanes_vary(value)}
        if vector is None or not varying:
            return None
        steps = {var: stride_of(index, var) for var in (vector, *varying)}
        if not all(isinstance(step, int) for step in steps.values()):
            return None
        terms = [
            f"{self._as_i64(value)}" + (f" * Vec<i64, N>(i64({steps[var]}))" if steps[var] != 1 else "")
            for var, value in varying.items()
        ]
        if steps[vector] != 0:
            terms.append(f"index_steps<i64>(l, 0, {steps[vector]})")
        same = [(var, value) for var, value in node.indirect if var not in varying]
        first = substitute(index, dict.fromkeys(varying, 0))
        return self.indexer(same, False).print(first), " + ".join(terms)

    def divided_positions(self, index: Index, indirect: Sequence[tuple[Var, Node]]) -> str:
        """A vector of positions with quotients and remainders of the vector's variable, if numbers of 32 bits suffice;
        "" for all others."""
        vector = self.nest.vector
        if vector is None or vector not in variables(index) or sizes(index):
            return ""
        if any(self.lanes_vary(value) for _, value in indirect) or not _is_short(index):
            return ""
        names = {var: f"i32({text})" for var, text in self.indexer(indirect, False).names.items()}
        names[vector] = f"(iota<i32, N>() + {names[vector]})"
        return attrs.evolve(DIVIDED, names=names).print(index)

    def _as_i64(self, node: Node) -> str:
        text = self.text(node)
        return text if node.dtype == torch.int64 else f"cast<i64>({text})"

    def lane_place(self, index: Index, indirect: Sequence[tuple[Var, Node]]) -> str:
        """A function from lane to position."""
        return f"[&](i64 k) {{ return {self.indexer(indirect, True).print(index)}; }}"

    def index_value(self, node: IndexValue) -> str:
        """The expression of an index used as a value."""
        vector, name = self.nest.vector, cpp_type(node.dtype)
        if not self.lanes_vary(node) or vector is None:
            return f"cast<{name}>(i64({self.index.print(node.index)}))"
        stride = stride_of(node.index, vector)
        if stride is not None and vector not in variables(stride):
            return f"index_steps<{name}>(l, {self.index.print(node.index)}, {self.index.print(stride)})"
        if places := self.divided_positions(node.index, ()):
            return f"cast<{name}>({places})"
        return f"index_lanes<{name}>(l, {self.lane_place(node.index, ())})"
