"""Values back to bytecode: what pushes the object of a value. Values write themselves with it (`Value.rebuild`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
from bytecode import Instr, Label
from bytecode.instr import CellVar, FreeVar, TryBegin, TryEnd
from torch import fx

from armature.frame.sources import EarlySource, Source
from armature.torch_abi import overrides, symbols
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.fake import of_transform
from armature.trace.emit.emitter import Emitter
from armature.trace.emit.precalls import EarlyWriter
from armature.trace.values.base import Value, Write
from armature.trace.values.constant import NONE, ConstantValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace


@attrs.define(eq=False)
class ValueWriter(Emitter):
    """Pushes objects of values. `main`: instructions after the call of the graph, which returns `outputs`."""

    tracer: Trace
    code: CodeType
    main: list[Instr] = attrs.field(factory=list)
    outputs: dict[fx.Node, int] = attrs.field(factory=dict)
    _held: dict[Value, str] = attrs.field(factory=dict)
    _open: set[Value] = attrs.field(factory=set)
    _paths: dict[Source, str] = attrs.field(factory=dict)
    _uses: dict[Source, int] = attrs.field(factory=dict)
    _cells: dict[int, str] = attrs.field(factory=dict)
    _symbols: dict[Any, str] = attrs.field(factory=dict)
    _early: list[Instr] = attrs.field(factory=list)
    _late: list[tuple[Callable[..., object], str, object]] = attrs.field(factory=list)
    _temporaries: int = 0
    _now: list[Any] = attrs.field(default=attrs.Factory(lambda self: self.main, takes_self=True))  # is written
    _before: EarlyWriter = attrs.field(factory=EarlyWriter)

    @property
    def none(self) -> Value:
        """The value of None."""
        return NONE

    def emit(self, name: str, *arg: Any) -> None:
        """Add an instruction."""
        self._now.append(Instr(name, *arg))

    def mark(self, place: Label | TryBegin | TryEnd) -> None:
        """Add a label, or the beginning or end of what a handler catches."""
        self._now.append(place)

    @contextmanager
    def into(self, instructions: list[Any]) -> Iterator[list[Any]]:
        """Add what is written in the block to other instructions than those after the call of the graph."""
        outer, self._now = self._now, instructions
        yield instructions
        self._now = outer

    def cannot(self, value: Value) -> NoReturn:
        """The object can't be made again."""
        raise self.tracer.break_at(None, "value-not-rebuilt", type=value.describe()).blaming(value)

    # What values use to rebuild themselves.

    def load(self, value: Value) -> None:
        """Push the object of a value, made once however often it is loaded."""
        held = self._held.get(value)
        if held is not None:
            self.emit("LOAD_FAST", held)
        elif isinstance(value, ConstantValue):
            self.constant(value.value)
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
        if value.mutable and value not in self._held:
            self.hold(value)

    def hold(self, value: Value) -> None:
        """Keep the object on top of the stack for when it is loaded again."""
        name = self.temporary()
        self._held[value] = name
        self.emit("STORE_FAST", name)
        self.emit("LOAD_FAST", name)

    def keep(self, value: Value) -> str:
        """Put the object of a value in a variable of its own."""
        self.load(value)
        name = self.temporary()
        self.emit("STORE_FAST", name)
        return name

    def later(self, function: Callable[..., object], argument: object) -> None:
        """Call a function with the object on top of the stack and an argument, when the changes have been made."""
        name = self.temporary()
        self.emit("COPY", 1)
        self.emit("STORE_FAST", name)
        self._late.append((function, name, argument))

    def temporary(self) -> str:
        """The name of a fresh local variable."""
        self._temporaries += 1
        return f"__armature_{self._temporaries}"

    def output(self, value: TensorValue) -> None:
        """Push a tensor that the graph computes."""
        node = value.as_argument(self.tracer)
        if not isinstance(node, fx.Node) or of_transform(value.fake):
            self.cannot(value)
        given = next((found for found in self.tracer.inputs if found.node is node), None)
        if given is not None and given.source is not None:
            self.load_source(given.source)  # there may be no other reason to run the graph
            return
        position = self.outputs.setdefault(node, len(self.outputs))
        self.emit("LOAD_FAST", output_name(position))

    def symbolic(self, value: SymbolicValue) -> None:
        """Push a number computed from sizes and ints of the program, as they were when the frame began."""
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
        """Have the number that a symbol stands for in a variable, before anything is changed."""
        if symbol in self._symbols:
            return
        quantity = self.tracer.sizes.places[symbol]
        name = self._symbols[symbol] = self.temporary()
        paths, self._paths = self._paths, {}
        with self.into(self._early):
            if quantity.axis < 0:
                self.load_source(quantity.source)
            elif self.tracer.overrides.present:
                self.function(lambda: self.constant(overrides.size))
                self.load_source(quantity.source)
                self.constant(quantity.axis)
                self.call(2)
            else:
                self.load_source(quantity.source)
                self.method("size")
                self.constant(quantity.axis)
                self.call(1)
            self.emit("STORE_FAST", name)
        self._paths = paths

    def constant(self, obj: object) -> None:
        """Push an object that the code keeps."""
        self.emit("LOAD_CONST", obj)

    def value(self, obj: object) -> Value:
        """A value for an object that the code keeps."""
        return ConstantValue(obj)

    def build(self, name: str, count: int) -> None:
        """A BUILD_ instruction."""
        self.emit(name, count)

    def new_function(
        self,
        code: CodeType | Callable[[], None],
        namespace: dict[str, object],
        name: str,
        defaults: Sequence[Value] = (),
        cells: Sequence[Value | str] = (),
    ) -> None:
        """Push a function. code: or what pushes it. cells: values, or names of variables of this frame."""
        self.null_function(FunctionType)
        if isinstance(code, CodeType):
            self.constant(code)
        else:
            code()
        self.constant(namespace)
        self.constant(name)
        for held in (defaults, cells):
            for part in held:
                if isinstance(part, str):
                    self.load_cell(FreeVar(part))
                else:
                    self.load(part)
            if held:
                self.build("BUILD_TUPLE", len(held))
            else:
                self.constant(None)
        self.call(5)

    def set_attribute(self, owner: Value, name: str, value: Value) -> None:
        """`object.__setattr__(owner, name, value)`."""
        self.null_function(object.__setattr__)
        self.load(owner)
        self.constant(name)
        self.load(value)
        self.call(3)
        self.emit("POP_TOP")

    def spread(self, fn: Callable[..., Any], args: tuple[Value, ...], kwargs: dict[str, Value]) -> None:
        """Push the result of `fn(*args, **kwargs)`."""
        self.null_function(fn)
        for value in args:
            self.load(value)
        self.build("BUILD_TUPLE", len(args))
        self.load(self.dict_of(kwargs))
        self.emit("CALL_FUNCTION_EX", 1)

    def do(self, write: Write) -> None:
        """Make a call whose result is dropped."""
        self.null_function(write.function)
        for operand in write.operands:
            self.load(operand)
        self.call(len(write.operands))
        self.emit("POP_TOP")

    def store_attribute(self, name: str, value: Value) -> None:
        """Set an attribute of the object on the stack, which stays there."""
        self.emit("COPY", 1)
        self.load(value)
        self.emit("SWAP", 2)
        self.emit("STORE_ATTR", name)

    def dict_of(self, items: dict[str, Value]) -> Value:
        """A dict of names to values."""
        return DictValue({name: (ConstantValue(name), value) for name, value in items.items()})

    # Sources.

    def load_source(self, source: Source) -> None:
        """Push the object at a source; what is on the way to several objects is walked once."""
        held = self._paths.get(source)
        if held is not None:
            self.emit("LOAD_FAST", held)
            return
        source.load(self)
        if self._uses.get(source, 0) > 1 and not source.loaded_at_once:
            name = self.temporary()
            self._paths[source] = name
            self.emit("COPY", 1)
            self.emit("STORE_FAST", name)

    def load_early(self, source: EarlySource) -> None:
        """What a call before the graph gave."""
        self.emit("LOAD_FAST", self._before.names[source.number])

    def asks(self, source: Source) -> bool:
        """Whether the class of the object at a source looks up attributes itself."""
        return source in self.tracer.own_lookups

    def variable(self, name: str) -> Any:
        """A variable of the code: in its cells or not."""
        if name in self.code.co_cellvars:
            return CellVar(name)
        return FreeVar(name) if name in self.code.co_freevars else name


def output_name(position: int) -> str:
    """The local variable of an output of the graph."""
    return f"__armature_out_{position}"
