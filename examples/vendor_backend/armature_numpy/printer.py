"""Prints a kernel as a Python function over NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from armature.backend_api import (
    PYTHON_INDEX,
    Accumulate,
    Buffer,
    Const,
    Guarded,
    IndexPrinter,
    IndexValue,
    Kernel,
    KernelBody,
    Let,
    Lines,
    Load,
    Node,
    Op,
    Statement,
    Store,
    Write,
    heading,
    origin_of,
    place,
    position,
    print_op,
    walk_kernel,
)
from armature_numpy.ops import DTYPES, FORMS, constant

HEADER = "import numpy as np\nfrom armature_numpy import runtime as rt\n\n\n"


def print_kernel(kernel: Kernel, buffers: Mapping[str, Buffer]) -> str:
    """The text of one kernel: a function of its buffers (tensors) and sizes (ints), which writes its outputs."""
    return _Printer(walk_kernel(kernel), buffers).function()


@attrs.define(eq=False)
class _Printer:
    body: KernelBody
    buffers: Mapping[str, Buffer]
    lines: Lines = attrs.field(factory=Lines)
    masks: list[str] = attrs.field(factory=list)  # conditions under which the statements being printed are needed

    def function(self) -> str:
        kernel = self.body.kernel
        for line in heading(kernel.origins):
            self.lines.add("", line)
        self.lines.add('@np.errstate(all="ignore")')
        with self.lines.indented(f"def {kernel.name}({', '.join(kernel.arguments)}):"):
            for name in (*kernel.reads, *kernel.writes):
                self.lines.add(f"{name}_memory = rt.flat({name})")
            axes = (*kernel.outer, *kernel.inner)
            extents = [PYTHON_INDEX.print(var.extent) for var in axes]
            for axis, (var, extent) in enumerate(zip(axes, extents, strict=True)):
                self.lines.add(f"{var.name} = rt.counter({axis}, {len(axes)}, {extent})")
            outer = extents[: len(kernel.outer)]
            self.lines.add(f"every = {_tuple(extents)}")
            self.lines.add(f"points = {_tuple([*outer, *['1'] * len(kernel.inner)])}")
            for step in self.body.passes:
                self.statements(step.before, "points")
                self.statements(step.inside, "every")
                self.statements(step.after, "points")
        return str(self.lines)

    def statements(self, statements: Iterable[Statement], space: str) -> None:
        for statement in statements:
            note = place(origin_of(statement))
            if isinstance(statement, Let):
                self.lines.add(f"{statement.name} = {self.value(statement.node)}", note)
            elif isinstance(statement, Guarded):
                self.guarded(statement, space)
            elif isinstance(statement, Accumulate):
                node = statement.node
                shape = f"every, {len(self.body.kernel.inner)}, np.{DTYPES[node.dtype]}"
                self.lines.add(f'{statement.name} = rt.reduce("{node.op}", {self.name(node.value)}, {shape})', note)
            elif isinstance(statement, Write):
                store = statement.store
                call = "rt.store_add" if store.atomic else "rt.store"
                where = f"{store.buffer}_memory, {self.address(store)}"
                self.lines.add(f"{call}({where}, {self.name(store.value)}, {space})", note)

    def guarded(self, statement: Guarded, space: str) -> None:
        """A masked value: computed at all points, with loads and checks only where the mask holds."""
        node = statement.node
        self.masks.append(f"{self.masks[-1]} & {self.name(node.cond)}" if self.masks else self.name(node.cond))
        self.statements(statement.body, space)
        self.masks.pop()
        chosen = f"{self.name(node.cond)}, {self.name(node.value)}, {constant(node.other)}"
        self.lines.add(f"{statement.name} = np.where({chosen})")

    def value(self, node: Node) -> str:
        if isinstance(node, Load):
            memory, at = f"{node.buffer}_memory", self.address(node)
            return f"rt.load({memory}, {at}, {self.masks[-1]})" if self.masks else f"{memory}[{at}]"
        if isinstance(node, IndexValue):
            return f"rt.cast({PYTHON_INDEX.print(node.index)}, np.{DTYPES[node.dtype]})"
        assert isinstance(node, Op), node
        operands = [self.name(operand) for operand in node.args]
        if node.op == "check_index":
            return f"rt.check_index({', '.join(operands)}, {self.masks[-1] if self.masks else True})"
        return print_op(FORMS, node, operands)

    def name(self, node: Node) -> str:
        return constant(node) if isinstance(node, Const) else self.body.names[node]

    def address(self, access: Load | Store) -> str:
        """The element of the flat memory; variables bound to computed values go by their names."""
        names = {var: f"{self.name(value)}.astype(np.int64)" for var, value in access.indirect}
        printer: IndexPrinter = attrs.evolve(PYTHON_INDEX, names=names)
        return printer.print(position(access, self.buffers))


def _tuple(parts: Iterable[str]) -> str:
    return "(" + "".join(f"{part}, " for part in parts).rstrip() + ")"
