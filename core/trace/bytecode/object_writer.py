"""The interface with which values write code that rebuilds their objects; `value_writer.py` implements it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import attrs
from bytecode.instr import CellVar, FreeVar

from armature.trace.bytecode.emitter import Emitter

if TYPE_CHECKING:
    from armature.frame.sources import Source

V = TypeVar("V")
W_contra = TypeVar("W_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


@attrs.define(eq=False)
class ObjectWriter(Emitter, Generic[V, W_contra, T_co]):
    """Writes instructions that push one object, for values V, writes W and the finished trace T."""

    tracer: T_co
    code: CodeType
    _late: list[tuple[Callable[..., object], str, object]] = attrs.field(factory=list)
    _temporaries: int = 0

    @property
    @abstractmethod
    def none(self) -> V:
        """The value of None."""

    @abstractmethod
    def value(self, obj: object) -> V:
        """A value for an object that the code holds as a constant."""

    @abstractmethod
    def dict_of(self, items: dict[str, V]) -> V:
        """A dict of names to values."""

    @abstractmethod
    def cannot(self, value: V) -> NoReturn:
        """Break the graph, at the place where the object was made, because it can't be rebuilt."""

    @abstractmethod
    def load(self, value: V) -> None:
        """Push the object of a value. It is built once, however often it is loaded."""

    @abstractmethod
    def hold(self, value: V) -> None:
        """Remember the object on top of the stack for the next time it is loaded."""

    @abstractmethod
    def output(self, value: Any) -> None:
        """Push a tensor that the graph computes."""

    @abstractmethod
    def symbolic(self, value: Any) -> None:
        """Push a number computed from sizes and ints of the program as they were when the frame began."""

    @abstractmethod
    def load_source(self, source: Source) -> None:
        """Push the object at a source as it was when the frame began. A prefix of several sources is walked once."""

    @abstractmethod
    def do(self, write: W_contra) -> None:
        """Make a call and drop its result."""

    def variable(self, name: str) -> Any:
        """Turn the name of a variable into the operand of an instruction, depending on whether it is a cell."""
        if name in self.code.co_cellvars:
            return CellVar(name)
        return FreeVar(name) if name in self.code.co_freevars else name

    def keep(self, value: V) -> str:
        """Store the object of a value in a variable of its own."""
        self.load(value)
        name = self.temporary()
        self.emit("STORE_FAST", name)
        return name

    def later(self, function: Callable[..., object], argument: object) -> None:
        """After all changes are made, call a function with the object on top of the stack and an argument."""
        name = self.temporary()
        self.emit("COPY", 1)
        self.emit("STORE_FAST", name)
        self._late.append((function, name, argument))

    def temporary(self) -> str:
        """The name of a fresh local variable."""
        self._temporaries += 1
        return f"__armature_{self._temporaries}"

    def constant(self, obj: object) -> None:
        """Push an object that the code holds as a constant."""
        self.emit("LOAD_CONST", obj)

    def build(self, name: str, count: int) -> None:
        """A BUILD_ instruction."""
        self.emit(name, count)

    def new_function(
        self,
        code: CodeType | Callable[[], None],
        namespace: dict[str, object],
        name: str,
        defaults: Sequence[V] = (),
        cells: Sequence[V | str] = (),
    ) -> None:
        """Push a function. code: its code, or a function that pushes it. cells: values, or this frame's variables."""
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

    def set_attribute(self, owner: V, name: str, value: V) -> None:
        """`object.__setattr__(owner, name, value)`."""
        self.null_function(object.__setattr__)
        self.load(owner)
        self.constant(name)
        self.load(value)
        self.call(3)
        self.emit("POP_TOP")

    def spread(self, fn: Callable[..., Any], args: tuple[V, ...], kwargs: dict[str, V]) -> None:
        """Push the result of `fn(*args, **kwargs)`."""
        self.null_function(fn)
        for value in args:
            self.load(value)
        self.build("BUILD_TUPLE", len(args))
        self.load(self.dict_of(kwargs))
        self.emit("CALL_FUNCTION_EX", 1)

    def store_attribute(self, name: str, value: V) -> None:
        """Set an attribute of the object on the stack, which stays there."""
        self.emit("COPY", 1)
        self.load(value)
        self.emit("SWAP", 2)
        self.emit("STORE_ATTR", name)
