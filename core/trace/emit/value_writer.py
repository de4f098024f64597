"""Turns values back into bytecode that pushes their objects; values implement it with `Value.rebuild`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import attrs
from bytecode import Instr, Label
from bytecode.instr import TryBegin, TryEnd
from torch import fx

from armature.frame.sources import PrecallSource, Source
from armature.torch_abi import overrides, symbols
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.fake import of_transform
from armature.trace.base import Value, Write
from armature.trace.bytecode.object_writer import ObjectWriter
from armature.trace.emit.precalls import PrecallWriter
from armature.trace.frame_state import Trace
from armature.trace.values.constant import NONE, ConstantValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue


@attrs.define(eq=False)
class ValueWriter(ObjectWriter[Value, Write, Trace]):
    """Writes code that pushes values' objects. `main`: the code after the graph's call, which returns `outputs`."""

    main: list[Instr] = attrs.field(factory=list)
    outputs: dict[fx.Node, int] = attrs.field(factory=dict)
    _variables: dict[Value, str] = attrs.field(factory=dict)
    _open: set[Value] = attrs.field(factory=set)
    _paths: dict[Source, str] = attrs.field(factory=dict)
    _uses: dict[Source, int] = attrs.field(factory=dict)
    _cells: dict[int, str] = attrs.field(factory=dict)
    _symbols: dict[Any, str] = attrs.field(factory=dict)
    _size_reads: list[Instr] = attrs.field(factory=list)
    _read_early: dict[Source, str] = attrs.field(factory=dict)  # variables of what is read before the graph
    # the list being written to
    _now: list[Any] = attrs.field(default=attrs.Factory(lambda self: self.main, takes_self=True))
    _before: PrecallWriter = attrs.field(factory=PrecallWriter)

    @property
    def none(self) -> Value:
        return NONE

    def emit(self, name: str, *arg: Any) -> None:
        self._now.append(Instr(name, *arg))

    def mark(self, place: Label | TryBegin | TryEnd) -> None:
        """Add a label, or the start or end of a range that an exception handler covers."""
        self._now.append(place)

    @contextmanager
    def into(self, instructions: list[Any]) -> Iterator[list[Any]]:
        """Write the instructions of the block to another list than `main`."""
        outer, self._now = self._now, instructions
        yield instructions
        self._now = outer

    def cannot(self, value: Value) -> NoReturn:
        raise self.tracer.breaks.break_at(None, "value-not-rebuilt", type=value.describe()).blaming(value)

    def load(self, value: Value) -> None:
        held = self._variables.get(value)
        if held is not None:
            self.emit("LOAD_FAST", held)
        elif isinstance(value, ConstantValue):
            value.rebuild(self)
        elif id(value) in self._cells:
            self.load_cell(self.variable(self._cells[id(value)]))
        elif value.source is not None:
            self.load_source(value.source)
        else:
            self._make(value)

    def _make(self, value: Value) -> None:
        if value in self._open:
            self.cannot(value)  # it contains itself
        self._open.add(value)
        value.rebuild(self)
        self._open.discard(value)
        if value.mutable and value not in self._variables:
            self.hold(value)

    def hold(self, value: Value) -> None:
        name = self.temporary()
        self._variables[value] = name
        self.emit("STORE_FAST", name)
        self.emit("LOAD_FAST", name)

    def output(self, value: TensorValue) -> None:
        node = value.as_argument(self.tracer)
        if not isinstance(node, fx.Node) or of_transform(value.fake):
            self.cannot(value)
        given = next((found for found in self.tracer.recorder.inputs if found.node is node), None)
        if given is not None and given.source is not None:
            self.load_source(given.source)  # an input returned as is: the graph may not have to run at all
            return
        position = self.outputs.setdefault(node, len(self.outputs))
        self.emit("LOAD_FAST", output_name(position))

    def symbolic(self, value: SymbolicValue) -> None:
        expr = symbols.expression(value.fake)
        names = [str(symbol) for symbol in symbols.symbols_of(expr)]
        for symbol in symbols.symbols_of(expr):
            computed = self.tracer.sizes.computed(symbol)
            if computed is None:
                self._read_symbol(symbol)
            else:
                self._symbols[symbol] = output_name(self.outputs.setdefault(computed, len(self.outputs)))
        if str(expr) in names:
            self.emit("LOAD_FAST", self._symbols[expr])
            return
        compute = eval(f"lambda {', '.join(names)}: {symbols.text(expr)}", dict(symbols.NAMESPACE))
        skip_code(compute.__code__)
        self.null_function(compute)
        for symbol in symbols.symbols_of(expr):
            self.emit("LOAD_FAST", self._symbols[symbol])
        self.call(len(names))

    def _read_symbol(self, symbol: Any) -> None:
        """Load the number that a symbol stands for into a variable, before anything is changed."""
        if symbol in self._symbols:
            return
        quantity = self.tracer.sizes.quantities[symbol]
        name = self._symbols[symbol] = self.temporary()
        paths, self._paths = self._paths, {}
        with self.into(self._size_reads):
            if quantity.axis < 0:
                self.load_source(quantity.source)
            elif self.tracer.overrides.present:
                self.function(lambda: self.constant(overrides.stride if quantity.stride else overrides.size))
                self.load_source(quantity.source)
                self.constant(quantity.axis)
                self.call(2)
            else:
                self.load_source(quantity.source)
                self.method("stride" if quantity.stride else "size")
                self.constant(quantity.axis)
                self.call(1)
            self.emit("STORE_FAST", name)
        self._paths = paths

    def value(self, obj: object) -> Value:
        return ConstantValue(obj)

    def do(self, write: Write) -> None:
        self.null_function(write.function)
        for operand in write.operands:
            self.load(operand)
        self.call(len(write.operands))
        self.emit("POP_TOP")

    def dict_of(self, items: dict[str, Value]) -> Value:
        return DictValue({name: (ConstantValue(name), value) for name, value in items.items()})

    def load_source(self, source: Source) -> None:
        held = self._paths.get(source) or self._read_early.get(source)
        if held is not None:
            self.emit("LOAD_FAST", held)
            return
        source.load(self)
        if self._uses.get(source, 0) > 1 and not source.loaded_at_once:
            name = self.temporary()
            self._paths[source] = name
            self.emit("COPY", 1)
            self.emit("STORE_FAST", name)

    def load_precall(self, source: PrecallSource) -> None:
        """Push the result of a call made before the graph."""
        self.emit("LOAD_FAST", self._before.names[source.number])

    def asks(self, source: Source) -> bool:
        """Whether the class of the object at a source customises attribute lookup."""
        return source in self.tracer.objects.own_lookups


def output_name(position: int) -> str:
    """The local variable that holds an output of the graph."""
    return f"__armature_out_{position}"
