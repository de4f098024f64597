"""Bytecode sequences that differ between Python versions, for every module that writes code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from bytecode.instr import Intrinsic1Op

from armature.trace.bytecode.versions import LOADS_METHODS, NULL_FIRST, VERSION


class Emitter(ABC):
    """Writes instructions one after the other."""

    @abstractmethod
    def emit(self, name: str, *arg: Any) -> None:
        """Add an instruction."""

    def function(self, load: Callable[[], None]) -> None:
        """Push a function and the NULL that its call needs."""
        if NULL_FIRST:
            self.emit("PUSH_NULL")
        load()
        if not NULL_FIRST:
            self.emit("PUSH_NULL")

    def null_function(self, fn: Callable[..., Any]) -> None:
        """Push a function that the code object holds as a constant, ready to be called."""
        self.function(lambda: self.emit("LOAD_CONST", fn))

    def null_below(self) -> None:
        """Add the NULL that makes the callable on the stack ready to be called."""
        self.emit("PUSH_NULL")
        if NULL_FIRST:
            self.emit("SWAP", 2)

    def call(self, count: int) -> None:
        """Call with this many positional arguments."""
        if VERSION < (3, 12):
            self.emit("PRECALL", count)
        self.emit("CALL", count)

    def apply(self, fn: Callable[[Any], Any]) -> None:
        """Replace the object on the stack by `fn(object)`."""
        below: tuple[tuple[Any, ...], ...] = (("PUSH_NULL",), ("LOAD_CONST", fn))
        for push in below if NULL_FIRST else reversed(below):
            self.emit(*push)
            self.emit("SWAP", 2)
        self.call(1)

    def attribute(self, name: str) -> None:
        """Replace the object on the stack by its attribute."""
        self.emit("LOAD_ATTR", name if VERSION < (3, 12) else (False, name))

    def method(self, name: str) -> None:
        """Replace the object on the stack by its method, ready to be called."""
        self.emit(LOADS_METHODS, name if VERSION < (3, 12) else (True, name))

    def load_cell(self, variable: Any) -> None:
        """Push a cell itself."""
        self.emit("LOAD_CLOSURE" if VERSION < (3, 13) else "LOAD_FAST", variable)

    def make_function(self, *, closure: bool) -> None:
        """Make a function of the code on top of the stack. closure: a tuple of cells lies below it."""
        if VERSION < (3, 13):
            self.emit("MAKE_FUNCTION", 8 if closure else 0)
            return
        self.emit("MAKE_FUNCTION")
        if closure:
            self.emit("SET_FUNCTION_ATTRIBUTE", 8)

    def list_to_tuple(self) -> None:
        """Make a tuple of the list on the stack."""
        if VERSION < (3, 12):
            self.emit("LIST_TO_TUPLE")
        else:
            self.emit("CALL_INTRINSIC_1", Intrinsic1Op.INTRINSIC_LIST_TO_TUPLE)

    def jump_if_false(self, label: Any) -> None:
        """Jump if the bool on the stack is False."""
        self.emit("POP_JUMP_FORWARD_IF_FALSE" if VERSION < (3, 12) else "POP_JUMP_IF_FALSE", label)

    def jump_if_not_none(self, label: Any) -> None:
        """Jump if the object on the stack is not None."""
        self.emit("POP_JUMP_FORWARD_IF_NOT_NONE" if VERSION < (3, 12) else "POP_JUMP_IF_NOT_NONE", label)
