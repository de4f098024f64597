"""Values back to bytecode: load the inputs, call the graph, build what the frame returns, make its changes."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
from bytecode import Bytecode, CompilerFlags, Instr, Label
from bytecode.instr import CellVar, FreeVar, TryBegin, TryEnd
from torch import fx

from armature.frame.sources import EarlySource, LocalSource, Source
from armature.torch_abi import overrides, symbols
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.fake import of_transform
from armature.trace.data import CompiledGraphSlot
from armature.trace.emit.emitter import Emitter
from armature.trace.emit.precalls import EarlyWriter
from armature.trace.emit.rerun import Again, can_run_again, run_again
from armature.trace.emit.rollback import Undo, plan
from armature.trace.errors import GraphBreak
from armature.trace.resume.trampoline import forget_caller
from armature.trace.values.base import Value, Write
from armature.trace.values.constant import NONE, ConstantValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.symbolic import SymbolicValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace

GENERATOR_FLAGS = CompilerFlags.GENERATOR | CompilerFlags.COROUTINE | CompilerFlags.ASYNC_GENERATOR


@attrs.define(eq=False)
class Rebuilder(Emitter):
    """Writes the code that runs instead of the frame's. `main`: instructions after the call of the graph."""

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
    undo: Undo = attrs.field(factory=Undo)
    _late: list[tuple[Callable[..., object], str, object]] = attrs.field(factory=list)
    _temporaries: int = 0
    _into: list[Any] | None = None
    _again: Again | None = None  # runs the frame in eager mode when the graph raises
    _failed: Label = attrs.field(factory=Label)
    _before: EarlyWriter = attrs.field(factory=EarlyWriter)

    @property
    def none(self) -> Value:
        """The value of None."""
        return NONE

    def emit(self, name: str, *arg: Any) -> None:
        """Add an instruction."""
        (self.main if self._into is None else self._into).append(Instr(name, *arg))

    def cannot(self, value: Value) -> NoReturn:
        """The object can't be made again."""
        try:
            self.tracer.graph_break("value-not-rebuilt", type=value.describe())
        except GraphBreak as stop:
            stop.blame = value
            raise

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
        outer, paths, self._into, self._paths = self._into, self._paths, self._early, {}
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
        self._into, self._paths = outer, paths

    def constant(self, obj: object) -> None:
        """Push an object that the code keeps."""
        self.emit("LOAD_CONST", obj)

    def value(self, obj: object) -> Value:
        """A value for an object that the code keeps."""
        return ConstantValue(obj)

    def namespace_value(self, namespace: dict[str, object]) -> Value:
        """A value for a dict of globals."""
        return ConstantValue(namespace)

    def namespace(self, namespace: dict[str, object]) -> None:
        """Push a dict of globals."""
        self.constant(namespace)

    def build(self, name: str, count: int) -> None:
        """A BUILD_ instruction."""
        self.emit(name, count)

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

    def asks(self, source: Source) -> bool:
        """Whether the class of the object at a source looks up attributes itself."""
        return source in self.tracer.own_lookups

    def count_uses(self, sources: list[Source]) -> None:
        """Count how often each prefix of the sources is walked."""
        for source in sources:
            step: Source | None = source
            while step is not None:
                self._uses[step] = self._uses.get(step, 0) + 1
                step = getattr(step, "base", None) if self._uses[step] == 1 else None

    def variable(self, name: str) -> Any:
        """A variable of the code: in its cells or not."""
        if name in self.code.co_cellvars:
            return CellVar(name)
        return FreeVar(name) if name in self.code.co_freevars else name

    # The whole.

    def finish(self, result: Value, slot: CompiledGraphSlot | None) -> CodeType:
        """The code: call the graph, prepare the result and the changes, make the changes, return the result."""
        prologue = self.prologue(slot)
        self._body(result)
        return self._assemble([*prologue, *self._early, *self.epilogue(slot), *self.main, *self.after_failure()])

    def prologue(self, slot: CompiledGraphSlot | None) -> list[Any]:
        """The instructions up to the call of the graph."""
        for name in self.code.co_freevars:
            cell = self.tracer.frames_cells.get(name)
            if cell is not None:
                self._cells[id(cell)] = name
        self.count_uses([value.source for value in self.tracer.inputs if value.source is not None])
        written: list[Any] = []
        self._into = written
        self._prologue(slot)
        self._into = None
        return written

    def after_failure(self) -> list[Any]:
        """The instructions that run when the graph raises: the frame from its start, in eager mode."""
        if self._again is None:
            return []
        written: list[Any] = [self._failed]
        self._into = written
        self.null_function(self._again.failed)
        self.emit("COPY", 3)
        self.call(1)
        again, out, problem = Label(), Label(), self.temporary()
        self.emit("COPY", 1)
        self.emit("STORE_FAST", problem)
        self.jump_if_not_none(again)
        self.emit("RERAISE", 0)
        written.append(again)
        self.emit("POP_TOP")
        begin = TryBegin(out, False, 0)
        written.append(begin)
        self._before.undo(self)
        self._call_own(self._again)
        written.append(TryEnd(begin))
        result = self.temporary()
        self.emit("STORE_FAST", result)
        self.null_function(self._again.finished)
        self.emit("LOAD_FAST", result)
        self.emit("LOAD_FAST", problem)
        self.constant(None)
        self.emit("STORE_FAST", problem)  # an error has this frame: no cycle
        self.call(2)
        self.emit("RETURN_VALUE")
        written.append(out)
        self.constant(None)
        self.emit("STORE_FAST", problem)
        self.null_function(forget_caller)
        self.emit("COPY", 3)
        self.call(1)
        self.emit("POP_TOP")
        self.emit("RERAISE", 0)
        self._into = None
        return written

    def _call_own(self, again: Again) -> None:
        """Push the result of a call of a copy of the frame's code, with the frame's arguments."""
        code = again.code
        names = code.co_varnames
        positional, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        stars = bool(code.co_flags & CompilerFlags.VARARGS)
        self.function(lambda: self._own_function(again))
        for name in names[:positional]:
            self.load_source(LocalSource(name))
        self.build("BUILD_LIST", positional)
        if stars:
            self.load_source(LocalSource(names[total]))
            self.emit("LIST_EXTEND", 1)
        self.list_to_tuple()
        for name in names[positional:total]:
            self.constant(name)
            self.load_source(LocalSource(name))
        self.build("BUILD_MAP", code.co_kwonlyargcount)
        if code.co_flags & CompilerFlags.VARKEYWORDS:
            self.load_source(LocalSource(names[total + stars]))
            self.emit("DICT_MERGE", 1)
        self.emit("CALL_FUNCTION_EX", 1)

    def _own_function(self, again: Again) -> None:
        code = again.code
        self.null_function(FunctionType)
        self.null_function(again.own_code)
        self.call(0)
        self.namespace(self.tracer.request.globals)
        self.constant(code.co_name)
        self.constant(None)
        for name in code.co_freevars:
            self.load_cell(FreeVar(name))
        if code.co_freevars:
            self.build("BUILD_TUPLE", len(code.co_freevars))
        else:
            self.constant(None)
        self.call(5)

    def epilogue(self, slot: CompiledGraphSlot | None) -> list[Any]:
        """The instructions that put the graph's outputs in variables."""
        written: list[Any] = []
        self._into = written
        self._outputs(slot)
        self._into = None
        return written

    def _prologue(self, slot: CompiledGraphSlot | None) -> None:
        if self.code.co_freevars:
            self.emit("COPY_FREE_VARS", len(self.code.co_freevars))
        for name in self.code.co_cellvars:
            self.emit("MAKE_CELL", CellVar(name))
        self.emit("RESUME", 0)
        self.undo = Undo() if slot is None else plan(self.tracer)
        repeats, early = slot is not None and can_run_again(self.tracer, self.undo), bool(self.tracer.precalls.calls)
        if self.tracer.rerun_breaks and (self.undo.remembered or not repeats):
            raise self.tracer.rerun_breaks[0]
        self._again = run_again(self.tracer, self.code, self.undo) if repeats or early else None
        begin = TryBegin(self._failed, False, 0)
        if early:
            self._before.save(self)
            self._mark(begin)
            self._early, early_of_body = self._into or [], self._early  # numbers they need are read here
            self._before.calls(self)
            self._early = early_of_body
            if not repeats:
                self._mark(TryEnd(begin))
        if slot is None:
            return
        alone = not self.tracer.overrides.present
        self.null_function(slot if alone else overrides.run_plain)  # type: ignore[arg-type]
        if not alone:
            self.constant(slot)
        for value in self.tracer.inputs:
            if value.source is not None:
                self.load_source(value.source)
        if repeats and not early:
            self._mark(begin)
            self.emit("NOP")  # Python 3.13 may look for the handler one place before the call
        self.call(len(self.tracer.inputs) + (not alone))
        if repeats:
            self._mark(TryEnd(begin))

    def _mark(self, place: Any) -> None:
        """The beginning or end of what is caught."""
        if self._into is not None:
            self._into.append(place)

    def load_early(self, source: EarlySource) -> None:
        """What a call before the graph gave."""
        self.emit("LOAD_FAST", self._before.names[source.number])

    def _body(self, result: Value) -> None:
        writes = self.tracer.effects.writes(self)
        self.load(result)
        self.make_writes(self.prepare(writes))
        self.emit("RETURN_VALUE")

    def keep(self, value: Value) -> str:
        """Put the object of a value in a variable of its own."""
        self.load(value)
        name = self.temporary()
        self.emit("STORE_FAST", name)
        return name

    def prepare(self, writes: list[Write]) -> list[tuple[Callable[..., object], list[str]]]:
        """Put the operands of all writes in variables."""
        return [(write.function, [self.keep(operand) for operand in write.operands]) for write in writes]

    def make_writes(self, prepared: list[tuple[Callable[..., object], list[str]]]) -> None:
        """Change the program's objects."""
        for function, names in prepared:
            self.null_function(function)
            for name in names:
                self.emit("LOAD_FAST", name)
            self.call(len(names))
            self.emit("POP_TOP")
        for function, name, argument in self._late:
            self.null_function(function)
            self.emit("LOAD_FAST", name)
            self.constant(argument)
            self.call(2)
            self.emit("POP_TOP")

    def _outputs(self, slot: CompiledGraphSlot | None) -> None:
        if slot is None:
            return
        if not self.outputs:
            self.emit("POP_TOP")
            return
        self.emit("UNPACK_SEQUENCE", len(self.outputs))
        for position in range(len(self.outputs)):
            self.emit("STORE_FAST", output_name(position))

    def _assemble(self, instructions: list[Any], stacksize: int | None = None) -> CodeType:
        code = self.code
        made = Bytecode(instructions)
        for inst in made:
            if isinstance(inst, Instr) and inst.location is None:
                inst.lineno = code.co_firstlineno
        made.name, made.qualname, made.filename = code.co_name, code.co_qualname, code.co_filename
        made.first_lineno, made.flags = code.co_firstlineno, CompilerFlags(code.co_flags & ~GENERATOR_FLAGS)
        made.argcount, made.posonlyargcount = code.co_argcount, code.co_posonlyargcount
        made.kwonlyargcount = code.co_kwonlyargcount
        extra = bool(code.co_flags & CompilerFlags.VARARGS) + bool(code.co_flags & CompilerFlags.VARKEYWORDS)
        made.argnames = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra])
        made.freevars, made.cellvars = list(code.co_freevars), list(code.co_cellvars)
        if stacksize is None:
            return made.to_code()
        # With handlers of the program: the depths in the exception table are its own.
        return made.to_code(stacksize=stacksize, compute_exception_stack_depths=False)


def output_name(position: int) -> str:
    """The local variable of an output of the graph."""
    return f"__armature_out_{position}"
