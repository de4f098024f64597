"""The overrides of torch functions at a point of the trace: active function modes, and tensor subclasses."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NoReturn

import attrs
import torch

from armature.torch_abi import overrides as abi
from armature.torch_abi.overrides import Off
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.base import Value, Write
from armature.trace.stack import Breaks
from armature.trace.values.classes import find_in_class
from armature.trace.values.sequence import leaves
from armature.trace.values.tensor import TensorValue
from armature.trace.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from armature.trace.base import Effects, Rebuilding, Tracing


@attrs.define(eq=False)
class Overrides:
    """The overrides in effect. present: whether there may be any, so that calls have to be checked. wrappers: whether
    wrapper subclasses were met, which override operators."""

    effects: Effects
    breaks: Breaks
    modes: list[Value] = attrs.field(factory=list)
    first: tuple[Value, ...] = ()  # the modes that were active when the frame began
    off: Off = Off.NOBODY
    present: bool = False
    wrappers: bool = False

    def begin(self, modes: list[Value], off: Off) -> None:
        """The overrides in effect when the frame begins."""
        self.modes, self.first, self.off = modes, tuple(modes), off
        self.present = bool(modes) or off is not Off.NOBODY

    def accept(self, kind: type) -> None:
        """Break the graph unless tensors of a class can be traced; from now on calls are checked for overrides."""
        lookups = ("__getattribute__", "__getattr__", "__setattr__", "__delattr__")
        holds = is_wrapper(kind)
        if abi.dispatches(kind) and not holds:
            reason = "does not say by `__tensor_flatten__` what its tensors are made of"
            raise self.breaks.break_at(None, "opaque-subclass", type=full_name(kind), reason=reason)
        if (
            abi.without_numbers(kind)
            or any(added(kind, name) for name in lookups)
            or not issubclass(kind, torch.Tensor)
        ):
            raise self.breaks.break_at(None, "tensor-subclass", type=full_name(kind))
        self.wrappers |= holds
        self.present |= not holds or abi.is_overriding(kind)

    def push(self, mode: Value) -> None:
        """Enter a function mode."""
        self.modes.append(mode)
        self.present = True
        self.effects.count += 1

    def pop(self) -> Value:
        """Leave the innermost function mode."""
        if not self.modes:
            raise self.breaks.break_at(None, "mode-not-entered")
        self.effects.count += 1
        return self.modes.pop()

    @property
    def moved(self) -> bool:
        """Whether the stack of modes differs from when the frame began."""
        return tuple(self.modes) != self.first

    def writes(self, out: Rebuilding) -> list[Write]:
        """The calls that bring torch's stack of function modes to its final state."""
        same = len(list(itertools.takewhile(lambda pair: pair[0] is pair[1], zip(self.first, self.modes))))
        pops = [Write(abi.pop_mode, ())] * (len(self.first) - same)
        return [*pops, *(Write(abi.push_mode, (mode,)) for mode in self.modes[same:])]

    @property
    def has_modes(self) -> bool:
        """Whether a function mode is active, which every call passes through."""
        return bool(self.modes) and self.off is not Off.ALL

    def is_overriding(self, value: Value) -> bool:
        """Whether a torch function that is given the object calls `__torch_function__` of its class."""
        return self.off is Off.NOBODY and overrides(value)

    def may_be_overridden(self, values: list[Value]) -> bool:
        """Whether calling torch with these values, or lists of them, may call an override."""
        if self.has_modes:
            return True
        return self.off is Off.NOBODY and any(overrides(leaf) for value in values for leaf in leaves(value))


def overrides(value: Value) -> bool:
    """Whether the class of an object has a `__torch_function__` of its own."""
    return isinstance(value, (TensorValue, UserObjectValue)) and abi.is_overriding(value.python_type())


def full_name(kind: type) -> str:
    """A class with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def refuse(tracer: Tracing, kind: type, reason: str) -> NoReturn:
    """Break the graph at a tensor of an unsupported class."""
    tracer.graph_break("opaque-subclass", type=full_name(kind), reason=reason)


def added(kind: type, name: str) -> bool:
    """Whether a tensor subclass adds an attribute or overrides one of torch's."""
    found = find_in_class(kind, name)
    return found is not None and found.holder not in abi.OWN_CLASSES
