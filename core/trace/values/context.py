"""Context managers that change torch's state, both while tracing and in the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import torch

from armature.torch_abi.grad_modes import set_grad_enabled
from armature.trace.base import Args, BoundMethod, Kwargs, Value

if TYPE_CHECKING:
    from armature.trace.base import Tracing


@attrs.define(eq=False)
class ContextValue(Value):
    """A torch context manager. Subclasses implement entering and leaving. inside: how often it is entered now."""

    kind: type
    inside: int = attrs.field(default=0, kw_only=True)

    mutable: ClassVar[bool] = True
    slots = frozenset({"__call__"})
    reenters: ClassVar[bool] = True  # whether a graph may end inside it, with the next graph beginning inside

    def python_type(self) -> type:
        return self.kind

    def enter(self, tracer: Tracing) -> Value:
        """`__enter__`: returns the value that `as` binds."""
        raise NotImplementedError(type(self).__name__)

    def leave(self, tracer: Tracing) -> None:
        """`__exit__`; exceptions propagate."""
        raise NotImplementedError(type(self).__name__)

    def clone(self) -> Value:
        """A fresh copy of this context manager."""
        raise NotImplementedError(type(self).__name__)

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        """Decorate a function with the context."""
        if len(args) != 1 or kwargs or not issubclass(args[0].python_type(), (FunctionType, MethodType)):
            return super().call(tracer, args, kwargs)
        return tracer.calls.inline_python(decorated, (self, args[0]), {})

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in ("__enter__", "__exit__", "clone", "_recreate_cm"):  # torch's decorators call `_recreate_cm`
            return BoundMethod(self, name)
        return super().get_attribute(tracer, name)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__enter__":
            self.inside += 1
            return self.enter(tracer)
        if name == "__exit__":
            self.inside -= 1
            self.leave(tracer)
            return tracer.constant(None)
        if name in ("clone", "_recreate_cm"):
            return self.clone()
        return super().call_method(tracer, name, args, kwargs)


def decorated(context: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The wrapper that a torch context manager makes when it decorates a function; traced."""

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with context.clone():
            return function(*args, **kwargs)

    return inside


def put_grad(tracer: Tracing, enabled: bool) -> None:
    """Set the grad mode now and in the graph, without notifying function modes."""
    if torch.is_grad_enabled() != enabled:
        tracer.graph.change_state(set_grad_enabled, (enabled,))
        set_grad_enabled(enabled)


def end_grad(tracer: Tracing) -> None:
    """End the graph in the grad mode in which it began; the code after it sets the current one."""
    now = torch.is_grad_enabled()
    put_grad(tracer, tracer.effects.grad)
    tracer.effects.grad_after = now
