"""Seam to traceable wrapper subclasses: tensors that hold other tensors and take over operators, below autograd.

Such a class says what its tensors are made of (`__tensor_flatten__`) and makes one again (`__tensor_unflatten__`).
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

# The older name warns where there is the newer one.
OPAQUE: tuple[type, ...] = existing("torch._custom_class_base.CustomClassBase") or existing(
    "torch._opaque_base.OpaqueBase"
)
PLAIN = frozenset({*KINDS, FakeTensor})


@attrs.frozen(eq=False)
class Flattened:
    """What a wrapper is made of: tensors and other objects by name, and what else there is to know."""

    tensors: dict[str, Any]
    objects: dict[str, Any]
    context: object


def is_wrapper(kind: type) -> bool:
    """Whether tensors of the class hold others, and the class says which."""
    return kind not in PLAIN and issubclass(kind, torch.Tensor) and dispatches(kind) and _says_parts(kind)


def _says_parts(kind: type) -> bool:
    return bool(is_traceable_wrapper_subclass_type(kind))


def asks_as_tensors_do(kind: type) -> bool:
    """Whether the class has no `__torch_function__` of its own: torch's, or none. That of nested tensors is torch's."""
    if kind is NestedTensor:
        return True
    method = getattr(kind, "__torch_function__", NO_FUNCTION)
    return method is NO_FUNCTION or getattr(method, "__func__", None) is DEFAULT


def flatten(tensor: torch.Tensor) -> Flattened:
    """What a wrapper is made of. Errors: those of the class."""
    wrapper: Any = tensor
    names, context = wrapper.__tensor_flatten__()
    found = {name: getattr(tensor, name) for name in names}
    tensors = {name: part for name, part in found.items() if isinstance(part, torch.Tensor)}
    return Flattened(tensors, {name: part for name, part in found.items() if name not in tensors}, context)


def stands_for_part(obj: object) -> bool:
    """Whether AOTAutograd has put the object in a graph for a part of a wrapper that is no tensor."""
    return isinstance(obj, FakeScriptObject)


def is_known(part: object) -> bool:
    """Whether a part that is no tensor is of a class whose objects do not change: those that torch calls opaque."""
    return isinstance(part, OPAQUE)


def innermost(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors with numbers of their own in a wrapper, at any depth; any other tensor itself."""
    if not is_wrapper(type(tensor)):
        yield tensor
        return
    for inner in flatten(tensor).tensors.values():
        yield from innermost(inner)


def fake_mode_of(fakes: Iterable[object]) -> Any:
    """The mode of the first fake tensor, also of one in a wrapper; None where there is none."""
    tensors = (inner for fake in fakes if isinstance(fake, torch.Tensor) for inner in innermost(fake))
    return next((inner.fake_mode for inner in tensors if isinstance(inner, FakeTensor)), None)


def held(tensor: torch.Tensor) -> tuple[object, ...]:
    """All attributes of a wrapper and of those in it, to be compared by identity."""
    found: list[object] = []
    for name, value in tensor.__dict__.items():
        found += [name, value]
        if isinstance(value, torch.Tensor) and is_wrapper(type(value)):
            found += held(value)
    return tuple(found)


def like(tensor: torch.Tensor) -> Callable[[Any], bool]:
    """A test whether another tensor of the class has parts of the same names and an equal context.

    Errors: TypeError where a copy of the context is not equal to it, so that nothing could be told later.
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
    """Whether views of a wrapper can be made by sizes and strides, as AOTAutograd makes them of its memory.

    Not where it has other sizes than what it holds, as on a mesh.
    """
    if flatten(tensor).objects:
        return False
    try:
        with torch.no_grad():
            tensor.as_strided((), ())
    except (RuntimeError, TypeError):  # the class refuses it, or has no answer (TypeError of torch's dispatcher)
        return False
    return True


def comes_back(tensor: torch.Tensor) -> bool:
    """Whether the class makes the like of a wrapper out of its parts, at any depth. Errors: those of the class."""
    found = flatten(tensor)
    kind: Any = type(tensor)
    again = kind.__tensor_unflatten__({**found.tensors, **found.objects}, found.context, tensor.size(), tensor.stride())
    inner = (value for value in found.tensors.values() if is_wrapper(type(value)))
    return type(again) is kind and all(map(comes_back, inner))


def in_dispatch() -> bool:
    """Whether a `__torch_dispatch__` is running: autograd is at work on the operator already, and keeps away."""
    return bool(torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.PythonTLSSnapshot))
