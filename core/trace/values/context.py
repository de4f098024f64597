"""Context managers that change torch's state: entered while tracing, and in the graph."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import torch

from armature.frame.sources import AttrSource
from armature.torch_abi.grad_modes import (
    enter_autocast,
    enter_inference,
    exit_autocast,
    exit_inference,
    set_grad_enabled,
)
from armature.trace.places import Place, places_of
from armature.trace.values.base import Args, BoundMethod, Kwargs, Value, Write
from armature.trace.values.constant import ConstantValue

if TYPE_CHECKING:
    from armature.frame.sources import Source
    from armature.trace.values.base import Rebuilding, Tracing


@attrs.define(eq=False)
class ContextValue(Value):
    """A context manager of torch. Subclasses say what entering and leaving do. inside: how often it is entered now."""

    kind: type
    inside: int = attrs.field(default=0, kw_only=True)

    mutable: ClassVar[bool] = True
    reenters: ClassVar[bool] = True  # a graph may end inside, and the next one begin inside

    def python_type(self) -> type:
        return self.kind

    def enter(self, tracer: Tracing) -> Value:
        """`__enter__`: the value that `as` binds."""
        raise NotImplementedError(type(self).__name__)

    def leave(self, tracer: Tracing) -> None:
        """`__exit__`; exceptions pass."""
        raise NotImplementedError(type(self).__name__)

    def again(self) -> Value:
        """A fresh context manager like this one."""
        raise NotImplementedError(type(self).__name__)

    def call(self, tracer: Tracing, args: Args, kwargs: Kwargs) -> Value:
        """As a decorator of a function."""
        if len(args) != 1 or kwargs or not issubclass(args[0].python_type(), (FunctionType, MethodType)):
            return super().call(tracer, args, kwargs)
        return tracer.calls.inline_python(decorated, (self, args[0]), {})

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name in ("__enter__", "__exit__", "clone", "_recreate_cm"):  # the last: as a decorator
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
            return self.again()
        return super().call_method(tracer, name, args, kwargs)


def decorated(context: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """What a context manager of torch makes of a function that it decorates; traced."""

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with context.clone():
            return function(*args, **kwargs)

    return inside


@attrs.define(eq=False)
class NullContextValue(ContextValue):
    """A context manager that does nothing while tracing."""

    result: Value | None = None

    def enter(self, tracer: Tracing) -> Value:
        return self if self.result is None else self.result

    def leave(self, tracer: Tracing) -> None:
        return None

    def again(self) -> Value:
        return NullContextValue(self.kind, self.result)

    def rebuild(self, out: Rebuilding) -> None:
        out.null_function(contextlib.nullcontext)
        out.load(out.none if self.result is None else self.result)
        out.call(1)


@attrs.define(eq=False)
class GradModeValue(ContextValue):
    """torch.no_grad(), torch.enable_grad(), torch.set_grad_enabled(mode).

    prev: the mode that leaving sets, as the object itself keeps it; None: not known, or it has none yet. obj: the
    program's own object, where it was made before the frame.
    """

    enabled: bool
    prev: bool | None = None
    obj: Any = None

    def enter(self, tracer: Tracing) -> Value:
        if self.kind is not torch.set_grad_enabled:  # that one is in force since it was made
            self.prev = torch.is_grad_enabled()
            tracer.effects.record(self)
        switch_grad(tracer, self.enabled)
        return tracer.constant(None)

    def leave(self, tracer: Tracing) -> None:
        before = self._before(tracer)
        if before is None:
            tracer.graph_break("exit-without-enter", type=self.describe())
        switch_grad(tracer, before)

    def _before(self, tracer: Tracing) -> bool | None:
        if self.prev is None and self.source is not None and hasattr(self.obj, "prev"):
            self.prev = bool(tracer.wrap(self.obj.prev, AttrSource(self.source, "prev")).as_constant())
        return self.prev

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "mode" and self.kind is torch.set_grad_enabled:
            return tracer.constant(self.enabled)
        if name == "prev" and self._before(tracer) is not None:
            return tracer.constant(self.prev)
        return super().get_attribute(tracer, name)

    def again(self) -> Value:
        return grad_mode_value(self.kind, self.enabled)

    def rebuild(self, out: Rebuilding) -> None:
        if self.kind is not torch.set_grad_enabled:
            out.null_function(self.kind)
            out.call(0)
        else:
            out.null_function(object.__new__)  # calling the class would switch the mode
            out.constant(self.kind)
            out.call(1)
            out.store_attribute("mode", ConstantValue(self.enabled))
        if self.prev is not None:
            out.store_attribute("prev", ConstantValue(self.prev))

    def writes(self, out: Rebuilding) -> list[Write]:
        return [Write(setattr, (self, out.value("prev"), out.value(self.prev)))]


def grad_mode_value(kind: type, enabled: bool) -> GradModeValue:
    """The value of a context manager of this kind that is made now."""
    now = {torch.no_grad: False, torch.set_grad_enabled: torch.is_grad_enabled()}
    return GradModeValue(kind, enabled, now.get(kind))


def switch_grad(tracer: Tracing, enabled: bool) -> None:
    """Set the grad mode now and in the graph."""
    if tracer.overrides.asks_modes:
        tracer.as_value(set_grad_enabled).call(tracer, (tracer.constant(enabled),), {})
    else:
        put_grad(tracer, enabled)


def put_grad(tracer: Tracing, enabled: bool) -> None:
    """The same, which no function mode is told of."""
    if torch.is_grad_enabled() != enabled:
        tracer.state_call(set_grad_enabled, (enabled,))
        set_grad_enabled(enabled)


def end_grad(tracer: Tracing) -> None:
    """End the graph in the grad mode in which it began. The one of now is set by the code after it."""
    now = torch.is_grad_enabled()
    put_grad(tracer, tracer.effects.grad)
    tracer.effects.grad_after = now


@attrs.define(eq=False)
class PairedContextValue(ContextValue):
    """A context entered by one function, whose result goes to the one that leaves it (autocast)."""

    enter_by: Callable[..., Any]
    arguments: tuple[object, ...]
    leave_by: Callable[[Any], Any]
    made_by: Callable[..., Any] | None = None  # makes the context manager itself from the arguments
    open: list[tuple[Any, Any]] = attrs.field(factory=list)
    made_at: tuple[Place, ...] = ()  # where it was entered last: a graph may have to end there

    def enter(self, tracer: Tracing) -> Value:
        try:
            real = self.enter_by(*self.arguments)
        except (TypeError, ValueError, RuntimeError) as error:  # torch refuses the arguments
            tracer.raise_real(error)
        node = tracer.state_call(self.enter_by, self.arguments, self.leave_by)
        self.open.append((node, real))
        self.made_at = places_of(tracer.frames)
        tracer.on_abort.append((self.leave_by, real))
        tracer.effects.entered[self] = None
        return self

    def leave(self, tracer: Tracing) -> None:
        if not self.open:  # entered before the frame began
            tracer.graph_break("exit-without-enter", type=self.describe())
        node, real = self.open.pop()
        if not self.open:
            tracer.effects.entered.pop(self)
        tracer.on_abort.remove((self.leave_by, real))
        self.leave_by(real)
        tracer.state_call(self.leave_by, (node,))

    def again(self) -> Value:
        return PairedContextValue(self.kind, self.enter_by, self.arguments, self.leave_by, self.made_by)

    def rebuild(self, out: Rebuilding) -> None:
        if self.made_by is None:
            out.cannot(self)
        out.null_function(self.made_by)
        for argument in self.arguments:
            out.constant(argument)
        out.call(len(self.arguments))


@attrs.define(eq=False)
class InferenceModeValue(PairedContextValue):
    """torch.inference_mode(mode)."""

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "mode":
            return tracer.constant(self.arguments[0])
        return super().get_attribute(tracer, name)

    def enter(self, tracer: Tracing) -> Value:
        super().enter(tracer)
        return tracer.constant(None)

    def again(self) -> Value:
        return inference_mode_value(bool(self.arguments[0]))


def inference_mode_value(enabled: bool, source: Source | None = None) -> Value:
    """The value of `torch.inference_mode(enabled)`."""
    kind = torch.inference_mode
    return InferenceModeValue(kind, enter_inference, (enabled,), exit_inference, kind, source=source)


def autocast_value(kind: type, device: str, dtype: object, enabled: bool, cache: object) -> Value:
    """The value of `torch.autocast(device, dtype, enabled, cache)`."""
    return PairedContextValue(kind, enter_autocast, (device, dtype, enabled, cache), exit_autocast, torch.autocast)
