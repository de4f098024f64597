"""The object at a source, in a frame about to run, and the Python expression that reaches it from a dict of locals."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import CellType
from typing import Any

import torch

from armature.errors import invariant
from armature.frame.data import FrameRequest
from armature.frame.sources import (
    ArrayMemorySource,
    AttrSource,
    BuiltinSource,
    CallSource,
    CellSource,
    DictOfSource,
    GlobalSource,
    ItemSource,
    KeptSource,
    LocalSource,
    MemberSource,
    ModeSource,
    ObjectSource,
    ReferentSource,
    Source,
    TypeOfSource,
    WeakKey,
    call_text,
    real_key,
)
from armature.introspection import dict_of
from armature.torch_abi.numpy import as_tensor
from armature.torch_abi.overrides import mode_at


class Resolver:
    """Objects at sources of one frame, each read once."""

    def __init__(self, request: FrameRequest) -> None:
        self.request = request
        self._values: dict[Source, object] = {}

    def value(self, source: Source) -> Any:
        """The object at the source. Errors: whatever reading it raises."""
        if source not in self._values:
            self._values[source] = _READ[type(source)](self, source)
        return self._values[source]

    def local(self, source: LocalSource) -> object:
        value = self.request.locals[source.name]
        if type(value) is CellType and source.name in self.request.code.co_freevars:
            return value.cell_contents
        return value

    def builtin(self, source: BuiltinSource) -> object:
        return self.request.builtins[source.name]

    def kept(self, source: KeptSource) -> object:
        return calling(source)(self.value(source.base), *map(self.value, source.args))


def calling(source: KeptSource) -> Callable[..., object]:
    """Calls the function that it is given with the other arguments, as the source says."""
    names, grad = source.names, source.grad

    def call(function: Callable[..., object], *args: object) -> object:
        positional = len(args) - len(names)
        named = dict(zip(names, args[positional:], strict=True))
        if grad is None:
            return function(*args[:positional], **named)
        with torch.set_grad_enabled(grad):
            return function(*args[:positional], **named)

    return call if names or grad is not None else operator.call


_READ: dict[type, Callable[[Resolver, Any], object]] = {
    LocalSource: Resolver.local,
    GlobalSource: lambda r, s: r.request.globals[s.name],
    BuiltinSource: Resolver.builtin,
    ObjectSource: lambda r, s: s.obj,
    AttrSource: lambda r, s: getattr(r.value(s.base), s.name),
    DictOfSource: lambda r, s: dict_of(r.value(s.base)),
    TypeOfSource: lambda r, s: type(r.value(s.base)),
    ItemSource: lambda r, s: r.value(s.base)[real_key(s.key)],
    ReferentSource: lambda r, s: r.value(s.base)(),
    MemberSource: lambda r, s: s.kind.__getitem__(r.value(s.base), real_key(s.key)),
    CellSource: lambda r, s: r.value(s.base).cell_contents,
    ModeSource: lambda r, s: mode_at(s.position),
    CallSource: lambda r, s: s.fn(r.value(s.base)),
    KeptSource: Resolver.kept,
    ArrayMemorySource: lambda r, s: as_tensor(r.value(s.base)),
}


class Expressions:
    """Python text over `L`, the dict of the frame's locals; what text can't name stands in `namespace`."""

    def __init__(self, request: FrameRequest) -> None:
        self.namespace: dict[str, Any] = {
            "G": request.globals,
            "B": request.builtins,
            "max": max,
            "min": min,
            "abs": abs,
        }

    def of(self, source: Source) -> str:
        """The expression that reaches the object at the source."""
        return _WRITE[type(source)](self, source)

    def name(self, obj: object) -> str:
        """A name bound to the object in `namespace`."""
        name = f"k{len(self.namespace)}"
        self.namespace[name] = obj
        return name

    def kept(self, source: KeptSource, function: str) -> str:
        """The expression of what a function keeps, by the expression of the function."""
        args = [self.of(arg) for arg in source.args]
        if source.grad is None:
            return call_text(function, args, source.names)
        return call_text(self.name(calling(source)), [function, *args], ())

    def key(self, key: object) -> str:
        """The expression of a dict's key."""
        return self.name(key) + "()" * isinstance(key, WeakKey)


_WRITE: dict[type, Callable[[Expressions, Any], str]] = {
    LocalSource: lambda e, s: f"L[{s.name!r}]",
    GlobalSource: lambda e, s: f"G[{s.name!r}]",
    BuiltinSource: lambda e, s: f"B[{s.name!r}]",
    ObjectSource: lambda e, s: e.name(s.obj),
    AttrSource: lambda e, s: f"{e.of(s.base)}.{s.name}",
    DictOfSource: lambda e, s: f"{e.of(s.base)}.__dict__",
    TypeOfSource: lambda e, s: f"type({e.of(s.base)})",
    ItemSource: lambda e, s: (
        f"{e.of(s.base)}[{s.key!r}]" if type(s.key) in (int, str) else f"{e.of(s.base)}[{e.key(s.key)}]"
    ),
    ReferentSource: lambda e, s: f"{e.of(s.base)}()",
    MemberSource: lambda e, s: f"{e.name(s.kind.__getitem__)}({e.of(s.base)}, {e.key(s.key)})",
    CellSource: lambda e, s: f"{e.of(s.base)}.cell_contents",
    ModeSource: lambda e, s: f"{e.name(mode_at)}({s.position})",
    CallSource: lambda e, s: f"{e.name(s.fn)}({e.of(s.base)})",
    KeptSource: lambda e, s: e.kept(s, e.of(s.base)),
    ArrayMemorySource: lambda e, s: f"{e.name(as_tensor)}({e.of(s.base)})",
}

invariant(_READ.keys() == _WRITE.keys(), "every source can be read and written", read=len(_READ), write=len(_WRITE))
