"""Writes the code that makes objects again. How the object of a value is pushed, `value_writer.py` says."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import attrs
from bytecode.instr import CellVar, FreeVar

from armature.trace.emit.emitter import Emitter

if TYPE_CHECKING:
    from armature.frame.sources import Source

V = TypeVar("V")
W_contra = TypeVar("W_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


@attrs.define(eq=False)
class ObjectWriter(Emitter, Generic[V, W_contra, T_co]):
    """Writes instructions that leave one object more on the stack, for values V, writes W and the trace T, which has
    ended."""

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
        """A value for an object that the code keeps."""

    @abstractmethod
    def dict_of(self, items: dict[str, V]) -> V:
        """A dict of names to values."""

    @abstractmethod
    def cannot(self, value: V) -> NoReturn:
        """The object can't be made again: a graph break, taken where it was made."""

    @abstractmethod
    def load(self, value: V) -> None:
        """Push the object of a value, made once however often it is loaded."""

    @abstractmethod
    def hold(self, value: V) -> None:
        """Keep the object on top of the stack for when it is loaded again."""

    @abstractmethod
    def output(self, value: Any) -> None:
        """Push a tensor that the graph computes."""

    @abstractmethod
    def symbolic(self, value: Any) -> None:
        """Push a number computed from sizes and ints of the program, as they were when the frame began."""

    @abstractmethod
    def load_source(self, source: Source) -> None:
        """Push the object at a source, as it was when the frame began; what is on the way to several is walked once."""

    @abstractmethod
    def do(self, write: W_contra) -> None:
        """Make a call whose result is dropped."""

    def variable(self, name: str) -> Any:
        """A variable of the code as an operand of an instruction: in its cells or not."""
        if name in self.code.co_cellvars:
            return CellVar(name)
        return FreeVar(name) if name in self.code.co_freevars else name

    def keep(self, value: V) -> str:
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

    def constant(self, obj: object) -> None:
        """Push an object that the code keeps."""
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
