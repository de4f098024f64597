"""`Call`: the argument of every handler, with its verbs. With hookspecs.py this is the public plugin API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import attrs

if TYPE_CHECKING:
    from armature.frame.sources import Source
    from armature.trace.base import Tracing, Value

F = TypeVar("F", bound=Callable[..., Any])
MARK = "__armature_handler__"


@attrs.frozen(eq=False)
class Handler:
    """A function `fn(call, *args, **kwargs) -> Value | None` and the callables it handles. It returns None to decline.

    complete: it takes every argument that its targets take; any other argument breaks the graph.
    """

    targets: tuple[Callable[..., object], ...]
    fn: Callable[..., Value | None]
    priority: int = 0
    complete: bool = False


@attrs.frozen(eq=False)
class ValueType:
    """How to make the tracer's value for a Python type: `build(obj, source, tracer) -> Value | None`. `match`: an exact
    type or a predicate. None: treat the object as an opaque one.

    Only for an exact type:
    fresh: `fresh(obj, tracer)`, the value of an object that tracing itself has made, which needs no guards.
    base: `base(obj, kind, source, owner, tracer)`, the builtin part of an object whose class derives from a builtin
    type; owner: the value of the object.
    derived: it also applies to objects of classes that derive from `match`.
    instance: `instance(cls)`, the value of an object of such a class that `object.__new__` has made in the frame.
    constant: its objects are immutable, and compared by value.
    """

    match: type | Callable[[object], bool]
    build: Callable[[Any, Source, Tracing], Value | None]
    priority: int = 0
    fresh: Callable[[Any, Tracing], Value] | None = None
    base: Callable[[Any, type, Source, Value, Tracing], Value] | None = None
    derived: bool = False
    instance: Callable[[type], Value] | None = None
    constant: bool = False


@attrs.frozen(eq=False)
class Polyfill:
    """`replacement` (Python, same signature) is traced wherever `original` is called."""

    original: Callable[..., object]
    replacement: Callable[..., object]
    priority: int = 0


def handles(*targets: Callable[..., object], priority: int = 0) -> Callable[[F], F]:
    """Mark a function as the handler of `targets`; `collect` finds it."""

    def mark(fn: F) -> F:
        vars(fn)[MARK] = Handler(targets, fn, priority)
        return fn

    return mark


def collect(*modules: ModuleType) -> Iterable[Handler]:
    """The handlers of the modules, in the order in which they stand."""
    for module in modules:
        for obj in vars(module).values():
            handler = getattr(obj, MARK, None)
            if isinstance(handler, Handler) and handler.fn.__module__ == module.__name__:
                yield handler


def opaque_function(*args: object, **kwargs: object) -> object:
    """As the target of a handler, it stands for all functions that the user wants as opaque nodes of the graph."""
    raise NotImplementedError


def tensor_method(*args: object, **kwargs: object) -> object:
    """As the target of a handler, it stands for all methods of tensors that no other handler has answered."""
    raise NotImplementedError


def number_asked(*args: object, **kwargs: object) -> object:
    """As the target of a handler it stands for all functions and methods of torch that ask a tensor for its number:
    that tensor, then the arguments."""
    raise NotImplementedError


def fold(tracing: Tracing, fn: Callable[..., object], *operands: object) -> Value:
    """Apply a function to constants; its exceptions are raised in the program."""
    try:
        return tracing.as_value(fn(*operands))
    except Exception as error:
        tracing.raise_real(error)


@attrs.frozen(eq=False)
class Call:
    """A call being traced: the function, its arguments as values, and the verbs that a handler uses.

    fn: the Python object called (unbound; for a method `args[0]` is self). tracing: the trace, for anything that these
    verbs do not cover.
    """

    fn: Callable[..., object]
    args: tuple[Value, ...]
    kwargs: Mapping[str, Value]
    tracing: Tracing

    def constant(self, obj: object) -> Value:
        """A value for a Python constant (int, str, None, dtype, device, torch.Size, tuples of these, ...)."""
        return self.tracing.constant(obj)

    def graph_call(self, fn: Callable[..., object] | str, *args: Value, **kwargs: Value) -> Value:
        """Put a call of `fn` in the graph (a str: that method of args[0]); a run on fakes determines its result."""
        return self.tracing.graph.call(fn, args, kwargs)

    def graph_call_as(
        self, fake: Callable[..., object], fn: Callable[..., object], *args: Value, **kwargs: Value
    ) -> Value:
        """Like `graph_call`, for a function that can't run on fakes: `fake` is called instead to get the result."""
        return self.tracing.graph.call(fn, args, kwargs, fake)

    def inline(self, fn: Value | Callable[..., object], *args: Value, **kwargs: Value) -> Value:
        """Trace into a Python function."""
        return self.tracing.as_value(fn).call(self.tracing, args, kwargs)

    def polyfill(self, fn: Callable[..., object], *args: Value, **kwargs: Value) -> Value:
        """Trace `fn`, a Python stand-in, in place of the function called."""
        return self.tracing.calls.inline_python(fn, args, kwargs)

    def whole(self, fn: Value | Callable[..., object], *args: Value, **kwargs: Value) -> Value:
        """Like `inline`, for a function that must not be cut: breaks inside are reported at the call being handled."""
        return self.tracing.calls.call_whole(fn, args, kwargs)

    def graph_break(self, type_id: str, **facts: object) -> NoReturn:
        """Stop here with a break type of the catalogue; `facts` fill in its explanation."""
        self.tracing.graph_break(type_id, **facts)

    def guard(self, value: Value) -> None:
        """Guard the value's source, so that the next call sees the same object (an equal one for a constant)."""
        value.rely_on(self.tracing)

    def fold(self, fn: Callable[..., object], *operands: object) -> Value:
        """The value of `fn` applied to Python objects. An exception of `fn` is raised in the program."""
        return fold(self.tracing, fn, *operands)

    def new_value(self, obj: object) -> Value:
        """A value for any Python object without a source (made while tracing), built by the value-type tables."""
        return self.tracing.as_value(obj)
