"""The context passed to an autograd function's forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType

import attrs
import torch

from armature.plugin_api import (
    Call,
    ObjectValue,
    Rebuilding,
    TracedTensor,
    Tracing,
    TupleValue,
    Value,
    handles,
)
from armature_torch_handlers.programs.subgraphs import NotSeparable

METHODS = ("save_for_backward", "save_for_forward", "mark_dirty", "mark_non_differentiable", "set_materialize_grads")
# the attributes in which torch's methods store their arguments
ATTRIBUTES = ("to_save", "saved_for_forward", "dirty_tensors", "non_differentiable", "materialize_grads")
NOTHING = TupleValue([])


@handles(*(getattr(torch.autograd.function.FunctionCtx, name) for name in METHODS))
def keep(call: Call, *args: Value, **kwargs: Value) -> Value:
    """Methods that only set an attribute of the context."""
    return call.polyfill(call.fn, *args, **kwargs)


@attrs.define(eq=False)
class Context(ObjectValue):
    """`ctx`. reads_saved: whether backward has read the saved tensors."""

    reads_saved: bool = False

    @classmethod
    def of(cls, tracer: Tracing, function: type[torch.autograd.Function], args: Sequence[Value]) -> Context:
        """The context of a call."""
        made = cls(function._backward_cls)
        needs = [isinstance(arg, TracedTensor) and arg.fake.requires_grad for arg in args]
        made.attributes["needs_input_grad"] = TupleValue([tracer.constant(needed) for needed in needs])
        return made

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if name == "saved_tensors":
            self.reads_saved = True
        if name not in self.attributes and is_of_torch(self.cls, name):
            tracer.graph_break("autograd-context-attribute", name=name)
        return super().get_attribute(tracer, name)

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        if name not in ATTRIBUTES and is_of_torch(self.cls, name):
            tracer.graph_break("autograd-context-attribute", name=name)
        super().set_attribute(tracer, name, value)

    def rebuild(self, out: Rebuilding) -> None:
        out.cannot(self)

    def arguments_of(self, name: str, default: Value) -> Value:
        """The arguments that forward has passed to a method of the context."""
        return self.attributes.get(name) or default

    def saved(self, tracer: Tracing) -> list[Value]:
        """The arguments of `save_for_backward`."""
        found: list[Value] = tracer.unpack(self.arguments_of("to_save", NOTHING))
        if not all(isinstance(item, TracedTensor) or is_none(item) for item in found):
            raise NotSeparable("save_for_backward is called with something that is not a tensor")
        return found

    def dirty(self, tracer: Tracing) -> list[Value]:
        """The arguments of `mark_dirty`."""
        found: list[Value] = tracer.unpack(self.arguments_of("dirty_tensors", NOTHING))
        return found

    def constant_outputs(self, tracer: Tracing) -> list[Value]:
        """The arguments of `mark_non_differentiable`."""
        found: list[Value] = tracer.unpack(self.arguments_of("non_differentiable", NOTHING))
        return found

    def materializes(self, tracer: Tracing) -> bool:
        """Whether backward receives zeros, not None, for missing gradients."""
        return self.arguments_of("materialize_grads", tracer.constant(True)).truth(tracer)

    def check(self, tracer: Tracing, outputs: Sequence[Value], args: Sequence[Value], apart: bool) -> None:
        """Raise NotSeparable where torch raises or warns, and for effects on tensors of the program.

        apart: `forward` has no context.
        """
        dirty = self.dirty(tracer)
        if not all(value in args and value in outputs for value in dirty):
            raise NotSeparable("mark_dirty is called with something other than arguments that forward returns")
        if apart and any(value in args and value in outputs and value not in dirty for value in self.saved(tracer)):
            raise NotSeparable("an argument is saved, and returned unchanged")
        foreign = [value for value in outputs if isinstance(value, TracedTensor) and value.real is not None]
        if not all(value in args for value in foreign):
            raise NotSeparable("forward returns a tensor of the program that is not an argument")


def is_none(value: Value) -> bool:
    """Whether it is None."""
    return value.is_constant and value.as_constant() is None


def is_of_torch(cls: type, name: str) -> bool:
    """Whether an attribute of the context is torch's own, and implemented in C."""
    holder = next((base for base in cls.__mro__ if name in vars(base)), object)
    return holder is not object and name[:2] != "__" and not isinstance(vars(holder)[name], FunctionType)
