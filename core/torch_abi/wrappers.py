"""Seam to traceable wrapper subclasses: tensors that hold inner tensors and override operators, below autograd.

Such a class takes its tensors apart (`__tensor_flatten__`) and rebuilds them (`__tensor_unflatten__`).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import torch
from torch._library.fake_class_registry import FakeScriptObject
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import is_traceable_wrapper_subclass_type

from armature.introspection import existing
from armature.torch_abi.jagged import NestedTensor
from armature.torch_abi.overrides import DEFAULT, KINDS, NO_FUNCTION, dispatches

# The older name warns if the newer one exists.
OPAQUE: tuple[type, ...] = existing("torch._custom_class_base.CustomClassBase") or existing(
    "torch._opaque_base.OpaqueBase"
)
PLAIN = frozenset({*KINDS, FakeTensor})


@attrs.frozen(eq=False)
class Flattened:
    """The parts of a wrapper: inner tensors and other objects by name, and other metadata."""

    tensors: dict[str, Any]
    objects: dict[str, Any]
    context: object


def is_wrapper(kind: type) -> bool:
    """Whether the class is a wrapper subclass: its tensors hold others, and it says which."""
    return kind not in PLAIN and issubclass(kind, torch.Tensor) and dispatches(kind) and _has_flatten(kind)


def _has_flatten(kind: type) -> bool:
    return bool(is_traceable_wrapper_subclass_type(kind))


def asks_as_tensors_do(kind: type) -> bool:
    """Whether the class's `__torch_function__` is torch's own, or it has none. That of nested tensors is torch's."""
    if kind is NestedTensor:
        return True
    method = getattr(kind, "__torch_function__", NO_FUNCTION)
    return method is NO_FUNCTION or getattr(method, "__func__", None) is DEFAULT


def flatten(tensor: torch.Tensor) -> Flattened:
    """The parts of a wrapper. Errors: those of the class."""
    wrapper: Any = tensor
    names, context = wrapper.__tensor_flatten__()
    found = {name: getattr(tensor, name) for name in names}
    tensors = {name: part for name, part in found.items() if isinstance(part, torch.Tensor)}
    return Flattened(tensors, {name: part for name, part in found.items() if name not in tensors}, context)


def is_part_placeholder(obj: object) -> bool:
    """Whether AOTAutograd has put the object in a graph for a non-tensor part of a wrapper."""
    return isinstance(obj, FakeScriptObject)


def is_known(part: object) -> bool:
    """Whether a non-tensor part is of a class whose objects are immutable: torch calls them opaque."""
    return isinstance(part, OPAQUE)


def innermost(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The plain tensors in a wrapper, at any depth; any other tensor itself."""
    if not is_wrapper(type(tensor)):
        yield tensor
        return
    for inner in flatten(tensor).tensors.values():
        yield from innermost(inner)


def fake_mode_of(fakes: Iterable[object]) -> Any:
    """The mode of the first fake tensor, including one in a wrapper; None if there is none."""
    tensors = (inner for fake in fakes if isinstance(fake, torch.Tensor) for inner in innermost(fake))
    return next((inner.fake_mode for inner in tensors if isinstance(inner, FakeTensor)), None)


def attributes_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """All attributes of a wrapper and its inner wrappers, for comparison by identity."""
    found: list[object] = []
    for name, value in tensor.__dict__.items():
        found += [name, value]
        if isinstance(value, torch.Tensor) and is_wrapper(type(value)):
            found += attributes_of(value)
    return tuple(found)


def like(tensor: torch.Tensor) -> Callable[[Any], bool]:
    """A test whether another tensor of the class has parts of the same names and an equal context.

    Errors: TypeError if a copy of the context does not equal it, so that the test could never succeed.
    """
    found = flatten(tensor)
    kind = type(tensor)
    own: Callable[[Any, Any], Any] | None = getattr(kind, "__metadata_guard__", None)
    with unset_fake_temporarily():
        context = copy.deepcopy(found.context)

    def test(other: Any) -> bool:
        theirs = flatten(other)
        if [*theirs.tensors] != [*found.tensors] or [*theirs.objects] != [*found.objects]:
            return False
        if any(part is not theirs.objects[name] for name, part in found.objects.items()):
            return False
        given = theirs.context
        return bool(own(context, given) if own is not None else given == context)

    if own is not None and inspect.ismethod(own) and own.__self__ is not kind:
        raise TypeError("__metadata_guard__ is no class method")
    if not test(tensor):
        raise TypeError("its metadata is not equal to a copy of it")
    return test


def takes_strides(tensor: torch.Tensor) -> bool:
    """Whether views of a wrapper can be made from sizes and strides, as AOTAutograd makes them of its memory.

    Not if its sizes differ from its inner tensor's, as on a mesh.
    """
    if flatten(tensor).objects:
        return False
    try:
        with torch.no_grad():
            tensor.as_strided((), ())
    # the class refuses it, or does not implement it (torch's dispatcher raises TypeError)
    except (RuntimeError, TypeError):
        return False
    return True


def survives_rebuilding(tensor: torch.Tensor) -> bool:
    """Whether the class rebuilds an equal wrapper from its parts, at any depth. Errors: those of the class."""
    found = flatten(tensor)
    kind: Any = type(tensor)
    again = kind.__tensor_unflatten__({**found.tensors, **found.objects}, found.context, tensor.size(), tensor.stride())
    inner = (value for value in found.tensors.values() if is_wrapper(type(value)))
    return type(again) is kind and all(map(survives_rebuilding, inner))


def in_dispatch() -> bool:
    """Whether a `__torch_dispatch__` is running: autograd has handled the operator and must not again."""
    return bool(torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.PythonTLSSnapshot))
