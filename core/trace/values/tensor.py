"""Tensors: a node of the graph, and a fake tensor that knows everything except the elements."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterator
from types import GetSetDescriptorType
from typing import TYPE_CHECKING

import attrs
import torch

from armature.frame.sources import AttrSource, DictOfSource
from armature.introspection import MISSING, class_member
from armature.torch_abi.overrides import OWN_CLASSES, as_subclass
from armature.torch_abi.wrappers import is_wrapper
from armature.trace.base import (
    Args,
    BoundMethod,
    Kwargs,
    Value,
    Write,
    length_of,
    raise_missing,
    shares_dict,
    unless_not_implemented,
)
from armature.trace.handlers import tensor_method
from armature.trace.slots import COLLECTION_SLOTS, NUMBER_SLOTS, UNARY
from armature.trace.values.classes import class_attribute, find_in_class, is_data_descriptor, must_be_iterator
from armature.trace.values.graph_tensor import GraphTensor
from armature.trace.values.keys import Identity

if TYPE_CHECKING:
    from armature.trace.base import Rebuilding, Tracing


@functools.cache
def getter_of(name: str) -> Callable[..., object] | None:
    """The function that reads an attribute of tensors, which is the target of its handlers; None for a method."""
    held = class_member(torch.Tensor, name)
    return held.__get__ if isinstance(held, (GetSetDescriptorType, property)) else None


@attrs.define(eq=False)
class TensorValue(GraphTensor):
    """A tensor as the program sees it: its attributes, methods and operators."""

    slots = NUMBER_SLOTS | COLLECTION_SLOTS | {"__hash__", "__getitem__", "__setitem__"}

    def as_key(self) -> object:
        return self.fake if self.real is None else self.real  # a tensor made in the frame is in no dict of the program

    def key(self, tracer: Tracing) -> Hashable:
        if self.own_method(tracer, "__hash__") is not None or self.own_method(tracer, "__eq__") is not None:
            tracer.graph_break("tensor-subclass-as-key", type=self.describe())
        tracer.objects.keys[self] = None
        return Identity(self)

    def get_attribute(self, tracer: Tracing, name: str) -> Value:
        if self._is_looked_at(tracer):
            found = self._overridden(tracer, name)
            if found is not None:
                return found
        return self.torch_attribute(tracer, name)

    def _is_looked_at(self, tracer: Tracing) -> bool:
        """Whether the class may override attributes of torch's tensors."""
        return tracer.overrides.present or is_wrapper(type(self.fake))

    def _overridden(self, tracer: Tracing, name: str) -> Value | None:
        """An attribute from the class of a subclass, or from a `__torch_function__`; None: use torch's own."""
        kind = self.python_type()
        found = find_in_class(kind, name)
        if found is None or name == "__class__":
            return None
        ours = found.holder not in OWN_CLASSES
        if ours and is_data_descriptor(found.obj):
            return class_attribute(tracer, self, kind, name)
        held = self.written.get(name) or self._own_attribute(tracer, name)
        if held is not None or ours:
            return held or class_attribute(tracer, self, kind, name)
        if isinstance(found.obj, (GetSetDescriptorType, property)):
            return tracer.calls.dispatched(getattr, (self, tracer.constant(name)), {})
        return None

    def torch_attribute(self, tracer: Tracing, name: str) -> Value:
        """An attribute that is not overridden."""
        if name in self.written:
            return self.written[name]
        if name == "__class__":
            return tracer.as_value(self.python_type())
        getter = getter_of(name)
        found = None if getter is None else tracer.calls.handled(getter, (self,), {})
        if found is not None:
            return found
        own = self._own_attribute(tracer, name)
        if own is not None:
            return own
        if self.holds(name):
            return tracer.graph.call(getattr, (self, tracer.constant(name)), {})
        held = class_member(torch.Tensor, name)
        if held is not MISSING and (callable(held) or isinstance(held, staticmethod | classmethod)):
            return BoundMethod(self, name)
        if held is MISSING:
            if self.real is not None and self.source is not None:
                tracer.guards.absent(DictOfSource(self.source), name)
            raise_missing(tracer, self.python_type(), name)
        tracer.graph_break("attribute-of-tensor", name=name)

    def _own_attribute(self, tracer: Tracing, name: str) -> Value | None:
        """An attribute that the program has set on the tensor object."""
        if self.real is None or self.source is None:
            return None
        shares_dict(tracer, self, self.real.__dict__)
        if name not in self.real.__dict__:
            return None
        return tracer.objects.wrap(self.real.__dict__[name], AttrSource(self.source, name))

    def set_attribute(self, tracer: Tracing, name: str, value: Value) -> None:
        setter = getattr(class_member(torch.Tensor, name), "__set__", None)
        if setter is not None and tracer.calls.handled(setter, (self, value), {}) is not None:
            return
        kind, wrapper = self.python_type(), is_wrapper(type(self.fake))
        held = find_in_class(kind, name)
        if held is not None and not wrapper and isinstance(held.obj, property) and held.obj.fset is not None:
            described = tracer.as_value(kind).get_attribute(tracer, name)
            described.get_attribute(tracer, "fset").call(tracer, (self, value), {})
            return
        if hasattr(torch.Tensor, name) or wrapper or (held is not None and is_data_descriptor(held.obj)):
            tracer.graph_break("sets-tensor-attribute", name=name)
        if self.real is not None:
            shares_dict(tracer, self, self.real.__dict__)
        self.written[name] = value
        tracer.mutate(self)

    def call_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        own = self.own_method(tracer, name)
        if own is not None:
            return own.call(tracer, args, kwargs)
        return self.torch_method(tracer, name, args, kwargs)

    def own_method(self, tracer: Tracing, name: str) -> Value | None:
        """A method that a subclass adds to torch's."""
        kind = self.python_type()
        found = find_in_class(kind, name) if self._is_looked_at(tracer) else None
        return None if found is None or found.holder in OWN_CLASSES else class_attribute(tracer, self, kind, name)

    def torch_method(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        """`torch.Tensor.name(obj, *args, **kwargs)`."""
        method: Callable[..., object] | None = getattr(torch.Tensor, name, None)
        if method is None:
            return self.get_attribute(tracer, name).call(tracer, args, kwargs)
        if tracer.overrides.present:
            found = tracer.calls.dispatched(method, (self, *args), kwargs)
            if found is not None:
                return found
        known = tracer.calls.handled(method, (self, *args), kwargs)
        known = known or tracer.calls.handled_as(tensor_method, method, (self, *args), kwargs)
        return known or self._in_graph(tracer, name, args, kwargs)

    def _in_graph(self, tracer: Tracing, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__getitem__":
            return tracer.graph.call(operator.getitem, (self, args[0]), {})
        if name == "__setitem__":
            tracer.graph.call(operator.setitem, (self, args[0], args[1]), {})
            return tracer.constant(None)
        if name == "__iter__":
            return tracer.python.iterator(self)
        return tracer.graph.call(name, (self, *args), kwargs)

    def binary(self, tracer: Tracing, name: str, other: Value) -> Value | None:
        method = self.own_method(tracer, name)
        if method is None:
            return None
        return unless_not_implemented(method.call(tracer, (other,), {}))

    def unary(self, tracer: Tracing, name: str) -> Value:
        method = self.get_attribute(tracer, name) if tracer.overrides.present else None
        if method is not None and not isinstance(method, BoundMethod):
            return method.call(tracer, (), {})
        return tracer.graph.call(UNARY[name], (self,), {})

    def get_item(self, tracer: Tracing, key: Value) -> Value:
        method = self.own_method(tracer, "__getitem__")
        if method is not None:
            return method.call(tracer, (key,), {})
        found = None if tracer.overrides.present else tracer.calls.handled(torch.Tensor.__getitem__, (self, key), {})
        return tracer.graph.call(operator.getitem, (self, key), {}) if found is None else found

    def set_item(self, tracer: Tracing, key: Value, value: Value) -> None:
        method = self.own_method(tracer, "__setitem__")
        if method is not None:
            method.call(tracer, (key, value), {})
        elif tracer.overrides.present or tracer.calls.handled(torch.Tensor.__setitem__, (self, key, value), {}) is None:
            tracer.graph.call(operator.setitem, (self, key, value), {})

    def truth(self, tracer: Tracing) -> bool:
        known = tracer.calls.handled(torch.Tensor.__bool__, (self,), {})
        if known is not None:
            return known.truth(tracer)
        tracer.graph_break("data-dependent-branch", test=tracer.stack.expression())

    def length(self, tracer: Tracing) -> int:
        if self._is_looked_at(tracer):
            found = self.own_method(tracer, "__len__")
            given = tracer.calls.dispatched(len, (self,), {}) if found is None else found.call(tracer, (), {})
            if given is not None:
                return length_of(tracer, given)
        if not self.fake.shape:
            tracer.raise_error(TypeError, "len() of a 0-d tensor")
        return int(self.fake.shape[0])

    def stream(self, tracer: Tracing) -> Iterator[Value]:
        if self._is_looked_at(tracer):
            found = self.own_method(tracer, "__iter__")
            if found is not None:
                return must_be_iterator(tracer, found.call(tracer, (), {})).stream(tracer)
            if tracer.overrides.may_be_overridden([self]):
                return tracer.calls.inline_python(torch.Tensor.__iter__, (self,), {}).stream(tracer)
        if not self.fake.shape:
            tracer.raise_error(TypeError, "iteration over a 0-d tensor")
        return tracer.graph.call("unbind", (self, tracer.constant(0)), {}).stream(tracer)

    def contains(self, tracer: Tracing, item: Value) -> bool:
        tracer.graph_break("tensor-contains")

    def rebuild(self, out: Rebuilding) -> None:
        if self.kind is not None:
            out.null_function(as_subclass)
        out.output(self)
        if self.kind is not None:
            out.constant(self.kind)
            out.constant(self.recorded)
            out.call(3)
        if self.written:
            out.hold(self)
        for name, value in self.written.items():
            out.set_attribute(self, name, value)

    def writes(self, out: Rebuilding) -> list[Write]:
        return [Write(setattr, (self, out.value(name), held)) for name, held in self.written.items()]
