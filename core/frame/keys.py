"""Keys of dicts, as sources and guards hold them: those that are compared by identity weakly."""

from __future__ import annotations

import enum
import weakref
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import attrs
import torch

from armature.frame.source import Expressions, Loader

# Types whose objects a program creates once, or whose objects are identified by their code.
LASTING: frozenset[type] = frozenset({BuiltinFunctionType, FunctionType, ModuleType})


@attrs.frozen(eq=False, repr=False)
class WeakKey:
    """A weak reference to a dict key: a tensor, or an object that equals only itself. It compares by identity, because
    `==` of tensors compares elements. Calling it returns the object; None when that is gone."""

    reference: weakref.ref[Any]

    def __call__(self) -> Any:
        return self.reference()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WeakKey) and other.reference is self.reference

    def __hash__(self) -> int:
        return id(self.reference)

    def __repr__(self) -> str:
        return f"{type(self.reference()).__name__} at {id(self.reference):#x}"


def stored_key(key: object) -> Any:
    """The key in the form in which a source or a guard holds it."""
    kind = type(key)
    if not issubclass(kind, torch.Tensor):
        if kind.__hash__ is not object.__hash__ or kind.__eq__ is not object.__eq__ or not kind.__weakrefoffset__:
            return key
        if kind in LASTING or issubclass(kind, (type, enum.Enum)):
            return key
    return WeakKey(weakref.ref(key))


def real_key(key: object) -> Any:
    """The key as it is in the dict."""
    return key() if isinstance(key, WeakKey) else key


def key_text(texts: Expressions, key: object) -> str:
    """The expression of a dict's key."""
    return texts.name(key) + "()" * isinstance(key, WeakKey)


def load_key(out: Loader, key: object) -> None:
    """Push a key of a dict."""
    if isinstance(key, WeakKey):
        out.null_function(key)
        out.call(0)
    else:
        out.constant(key)
