"""Iterators: streams of values, and generators of the program that the frame consumes."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, cast

import attrs

from armature.errors import invariant
from armature.trace.base import Value
from armature.trace.errors import UserRaised
from armature.trace.values.exception import ExceptionValue
from armature.trace.values.mapping import DictValue
from armature.trace.values.methods import BuiltinObject
from armature.trace.values.sequence import TupleValue
from armature.trace.values.streams import Steps

if TYPE_CHECKING:
    from armature.trace.base import FrameView, Rebuilding, Tracing
    from armature.trace.locations import Location
    from armature.trace.values.function import CellValue


LIST_ITERATOR: Any = type(iter([]))


@attrs.define(eq=False)
class IteratorValue(BuiltinObject):
    """An iterator whose values the tracer can produce: list iterators, zip, enumerate, map, ...

    requested, returned: how many values were requested and returned; ended: whether it is exhausted. remake: pushes an
    equivalent iterator; None if that can't be done. made_at: where the iterator was made. indexed: the program's object
    whose `__getitem__` produces the values.
    """

    values: Iterator[Value]
    kind: type = LIST_ITERATOR
    remake: Callable[[Rebuilding, IteratorValue], None] | None = None
    made_at: tuple[Location, ...] = ()
    requested: int = 0
    returned: int = 0
    ended: bool = False
    indexed: Value | None = None

    mutable: ClassVar[bool] = True
    slots = frozenset({"__iter__", "__next__", "__hash__"})

    def python_type(self) -> type:
        return self.kind

    def advance(self, tracer: Tracing) -> Value:
        self.requested += 1
        try:
            value = next(self.values)
        except StopIteration:
            self.ended = True
            raise
        self.returned += 1
        return value

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        return Steps(lambda: self.advance(tracer))

    def rebuild(self, out: Rebuilding) -> None:
        if self.remake is None:
            out.cannot(self)
        self.remake(out, self)


@attrs.frozen(eq=False)
class Original:
    """The C function whose iterator a generator replaces. None: it is an internal part of the replacement."""

    fn: Callable[..., object] | None

    def kind(self) -> type | None:
        """The type of the iterator, where that is known: the class that is called, or whose class method is."""
        owner = self.fn if isinstance(self.fn, type) else getattr(self.fn, "__self__", None)
        return owner if isinstance(owner, type) else None


@attrs.define(eq=False)
class GeneratorValue(BuiltinObject):
    """A generator of the program: an interpreter frame, suspended between its values.

    original: the C call whose result it replaces, unless it is a generator of the program.
    """

    frame: FrameView
    original: Original | None = None
    started: bool = False
    finished: bool = False
    running: bool = False
    made_at: tuple[Location, ...] = ()

    mutable: ClassVar[bool] = True
    slots = frozenset({"__iter__", "__next__", "__hash__"})

    def python_type(self) -> type:
        kind = None if self.original is None else self.original.kind()
        return type(_ for _ in ()) if kind is None else kind

    def describe(self) -> str:
        return f"generator {self.frame.code.co_qualname}"

    def advance(self, tracer: Tracing) -> Value:
        """The next value. Raises StopIteration with the value that the generator returned."""
        return self.send(tracer, tracer.constant(None))

    def send(self, tracer: Tracing, value: Value) -> Value:
        """Resume with a value. Raises StopIteration at the end."""
        if self.finished:
            raise StopIteration(tracer.constant(None))
        if self.running:
            tracer.raise_error(ValueError, "generator already executing")
        if not self.started and not (value.is_constant and value.as_constant() is None):
            tracer.raise_error(TypeError, "can't send non-None value to a just-started generator")
        self.frame.push(value)  # also pushed at the start, where the frame's code pops it
        return self._run(tracer)

    def throw(self, tracer: Tracing, error: ExceptionValue) -> Value:
        """Raise an exception where the generator is suspended. Returns the next value it yields."""
        if self.running:
            tracer.raise_error(ValueError, "generator already executing")
        if self.finished or not self.started:
            self.finished = True
            raise UserRaised(error)
        delegate = self.delegate()
        if isinstance(delegate, GeneratorValue):
            try:
                if not issubclass(error.kind, GeneratorExit):
                    return delegate.throw(tracer, error)
                delegate.close(tracer)
            except StopIteration as end:
                return self._after_delegate(tracer, end)
            except UserRaised as raised:
                error = tracer.as_exception(raised.value)
        self.frame.push(tracer.constant(None))
        self.frame.thrown = error
        return self._run(tracer)

    def delegate(self) -> Value | None:
        """The object that a `yield from` delegates to; None if the generator is not suspended in one."""
        before = self.frame.instructions[max(self.frame.position - 2, 0)]
        return self.frame.stack[-1] if before.opname == "SEND" else None

    def _after_delegate(self, tracer: Tracing, end: StopIteration) -> Value:
        """Continue after a `yield from` that has ended with a value."""
        value = end.value if end.value is not None else tracer.constant(None)
        end_of_loop = self.frame.instructions[self.frame.position - 2].target
        if self.frame.instructions[end_of_loop].opname == "END_SEND":  # it drops the delegate, from 3.12 on
            self.frame.push(value)
        else:
            self.frame.stack[-1] = value
        self.frame.position = end_of_loop
        return self._run(tracer)

    def close(self, tracer: Tracing) -> None:
        """End the generator as `close()` does."""
        if self.finished or not self.started:
            self.finished = True
            return
        try:
            self.throw(tracer, ExceptionValue(GeneratorExit, []))
        except UserRaised as raised:
            if not issubclass(raised.value.python_type(), (GeneratorExit, StopIteration)):
                raise
        except StopIteration:
            pass
        else:
            tracer.raise_error(RuntimeError, "generator ignored GeneratorExit")
        self.finished = True

    def rebuild(self, out: Rebuilding) -> None:
        """Rebuild a generator that has not started by calling its function again."""
        if self.started or self.finished:
            out.cannot(self)
        if self.original is not None:
            if self.original.fn is None or self.original.kind() is None:
                out.cannot(self)
            args, named = self._arguments()
            for value in (*args, *named.values()):
                if hasattr(value.python_type(), "__next__") and not isinstance(value, (IteratorValue, GeneratorValue)):
                    out.cannot(value)  # its `__iter__` was called once
            out.spread(self.original.fn, tuple(args), named)
            return
        args, named = self._arguments()
        code, frame = self.frame.code, self.frame
        cells = [frame.cells[name] for name in code.co_freevars]
        out.function(lambda: out.new_function(code, frame.namespace, code.co_name, cells=cells))
        for value in args:
            out.load(value)
        out.build("BUILD_TUPLE", len(args))
        out.load(out.dict_of(named))
        out.emit("CALL_FUNCTION_EX", 1)

    def _arguments(self) -> tuple[list[Value], dict[str, Value]]:
        code, names = self.frame.code, iter(self.frame.code.co_varnames)
        args = [self._argument(name) for name in itertools.islice(names, code.co_argcount)]
        named = {name: self._argument(name) for name in itertools.islice(names, code.co_kwonlyargcount)}
        if code.co_flags & inspect.CO_VARARGS and isinstance(rest := self._argument(next(names)), TupleValue):
            args += rest.items
        if code.co_flags & inspect.CO_VARKEYWORDS and isinstance(more := self._argument(next(names)), DictValue):
            named |= {str(key.as_constant()): value for key, value in more.entries.values()}
        return args, named

    def _argument(self, name: str) -> Value:
        value = self.frame.variables.get(name) or cast("CellValue", self.frame.cells[name]).content
        invariant(value is not None, "a generator that has not begun has its arguments", name=name)
        return cast("Value", value)

    def is_inside_try(self) -> bool:
        """Whether it is suspended inside a `try` or `with`, whose end CPython runs when it drops the generator."""
        if not self.started or self.finished:
            return False
        protection = self.frame.instructions[self.frame.position - 1].protection
        # From 3.12 on the whole generator is protected by code that turns StopIteration into RuntimeError.
        return protection is not None and self.frame.instructions[protection.target].opname != "CALL_INTRINSIC_1"

    def _run(self, tracer: Tracing) -> Value:
        self.started = self.running = True
        try:
            result = tracer.calls.resume(self.frame)
        except UserRaised as raised:
            self.finished = True
            if issubclass(raised.value.python_type(), StopIteration):
                tracer.raise_error(RuntimeError, "generator raised StopIteration")
            raise
        except BaseException:
            self.finished = True
            raise
        finally:
            self.running = False
        if self.frame.done:
            self.finished = True
            raise StopIteration(result)
        return result

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        return Steps(lambda: self.advance(tracer))
