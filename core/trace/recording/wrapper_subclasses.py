"""Wrapper subclasses while tracing: tensors that hold other tensors and override operators.

Operators on them enter the graph unchanged; the class's own code runs on fakes, here and when the graph is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

from armature.frame.sources import AttrSource
from armature.torch_abi import wrappers as abi
from armature.torch_abi.fake import is_wrapped
from armature.torch_abi.jagged import is_jagged
from armature.torch_abi.overrides import suspended
from armature.torch_abi.pytree import tree_leaves
from armature.trace.base import Args, Kwargs, Value
from armature.trace.errors import SkipFrame
from armature.trace.recording.overriding import refuse
from armature.trace.values.sequence import leaves
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.frame.sources import Source
    from armature.trace.base import Tracing
    from armature.trace.values.classes import ClassValue

Holding = list[tuple[torch.Tensor, tuple[object, ...]]]


def check_inner_tensors(tracer: Tracing, tensor: torch.Tensor) -> None:
    """Break the graph unless every tensor that a wrapper holds is supported as an inner tensor."""
    kind = type(tensor)
    try:
        found = abi.flatten(tensor)
    except Exception as error:
        refuse(tracer, kind, f"`__tensor_flatten__` raises {type(error).__name__}: {error}")
    for name, part in found.objects.items():
        if not abi.is_known(part):
            refuse(tracer, kind, f"`{name}`, which it holds, is not a tensor")
    for name, inner in found.tensors.items():
        if abi.is_wrapper(type(inner)):
            if not abi.asks_as_tensors_do(type(inner)):
                refuse(tracer, kind, f"`{name}`, which it holds, has a `__torch_function__`")
            check_inner_tensors(tracer, inner)
        elif type(inner) not in abi.PLAIN or inner.layout is not torch.strided:
            refuse(tracer, kind, f"`{name}`, which it holds, is not a plain tensor")


def accept_fake(tracer: Tracing, tensor: torch.Tensor, fake: torch.Tensor) -> None:
    """Break the graph unless a wrapper's fake, rebuilt from the fakes of its inner tensors, has the same structure."""
    if type(fake) is not type(tensor):
        refuse(tracer, type(tensor), "`__tensor_unflatten__` gives a tensor of another class")
    for name, inner in abi.flatten(tensor).tensors.items():
        if abi.is_wrapper(type(inner)):
            accept_fake(tracer, inner, getattr(fake, name))


def accept(tracer: Tracing, tensor: torch.Tensor) -> None:
    """Check a tensor of the program. Raises SkipFrame if another tracer or transform of torch has wrapped it."""
    check_inner_tensors(tracer, tensor)
    if any(map(is_wrapped, abi.innermost(tensor))):
        raise SkipFrame("it runs inside another tracer or transform of torch")


def guard(tracer: Tracing, tensor: torch.Tensor, fake: torch.Tensor, source: Source) -> None:
    """Guard the inner tensors and metadata of a wrapper, as far as its fake shows them."""
    try:
        test = abi.like(tensor)
        kept = test(fake)
    except Exception as error:
        refuse(tracer, type(tensor), f"its metadata can't be guarded: {type(error).__name__}: {error}")
    if not kept:
        refuse(tracer, type(tensor), "`__tensor_unflatten__` loses some of its metadata")
    tracer.guards.metadata(source, test)
    for name, inner in abi.flatten(tensor).tensors.items():
        place = AttrSource(source, name)
        inner_fake = getattr(fake, name)
        tracer.guards.tensor(place, inner, inner_fake)
        if any(isinstance(size, torch.SymInt) for size in inner_fake.shape):
            tracer.objects.wrap(inner, place)  # registers the source of its symbolic sizes
        if abi.is_wrapper(type(inner)):
            guard(tracer, inner, inner_fake, place)


def call_wrapper_class(tracer: Tracing, value: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """A call of a wrapper class, as one node of the graph."""
    tracer.overrides.accept(value.cls)
    given = [leaf for argument in (*args, *kwargs.values()) for leaf in leaves(argument)]
    kinds = {leaf.python_type() for leaf in given if isinstance(leaf, TensorValue)}
    if tracer.overrides.has_modes or not all(kind in abi.PLAIN or _is_quiet(kind) for kind in kinds):
        tracer.graph_break("overridden-call", function=value.cls.__qualname__)
    found = tracer.graph.call(value.cls, args, kwargs)
    if isinstance(found, TensorValue):
        if abi.is_wrapper(type(found.fake)):
            check_inner_tensors(tracer, found.fake)
        if found.fake.requires_grad and found.fake.is_leaf:
            tracer.graph_break("creates-wrapper-leaf", type=value.cls.__qualname__)
    return found


def _is_quiet(kind: type) -> bool:
    return abi.is_wrapper(kind) and abi.asks_as_tensors_do(kind)


def is_atomic_call(fn: object, args: Args) -> bool:
    """Whether a call can't be overridden: of a wrapper class, or a read of one of a wrapper's inner tensors."""
    if isinstance(fn, type):
        return abi.is_wrapper(fn)
    return fn is getattr and isinstance(args[0], TensorValue) and args[0].holds(str(args[1].as_constant()))


def asking(fakes: Iterable[object]) -> AbstractContextManager[object]:
    """The context for running torch's functions on fakes. Nested tensors override some by `__torch_function__`."""
    return suspended() if any(map(is_jagged, tree_leaves(list(fakes)))) else nullcontext()


def holding(fakes: Iterable[object]) -> Holding:
    """The wrappers among the fakes of arguments, and the objects that each holds."""
    found = (leaf for leaf in tree_leaves(list(fakes)) if isinstance(leaf, torch.Tensor))
    return [(tensor, abi.attributes_of(tensor)) for tensor in found if abi.is_wrapper(type(tensor))]


def check_unchanged(tracer: Tracing, before: Holding) -> None:
    """Break the graph if an operator has replaced a wrapper's attributes; a compiled graph would not."""
    for tensor, held in before:
        now = abi.attributes_of(tensor)
        if len(now) != len(held) or any(one is not other for one, other in zip(now, held)):
            refuse(tracer, type(tensor), "an operator changes its attributes")
