"""Polyfills for copy, because the module itself uses reflection. An object that customises copying breaks the graph."""

from __future__ import annotations

import collections
import copy as original
import enum
import re
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

ATOMS = (
    int, float, bool, complex, str, bytes, type(None), type(...), type(NotImplemented), range, slice, type, property,
    types.CodeType, types.FunctionType, types.BuiltinFunctionType, torch.dtype, torch.device, torch.layout,
    torch.memory_format, re.Pattern, re.Match,
)  # fmt: skip
OWN_WAY = (
    "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__",
)  # fmt: skip
OF_CONTAINERS = ("__iter__", "__len__", "__getitem__", "__setitem__", "append", "extend", "add", "update", "items")
HEAP_TYPE = 1 << 9  # in `__flags__`: defined by `class`, not in C
IMMUTABLE_TYPE = 1 << 8  # set for a C class, on the heap or not
CONTAINERS = (list, dict, set, collections.OrderedDict, collections.defaultdict, collections.deque)


Each = Callable[[object, dict[object, object]], object]  # copies an item or attribute; the copies so far


def not_copied(why: str) -> None:
    """Break the graph while tracing: see `handlers`."""
    raise NotImplementedError(why)


def memory_of(tensor: torch.Tensor) -> str:
    """A name for the memory of a tensor whose deep copy is a clone. Tracing replaces this function: see `handlers`."""
    return str(tensor.untyped_storage().data_ptr() or id(tensor))  # tensors without bytes share no memory


def is_copied_by_cloning(tensor: torch.Tensor) -> bool:
    """Whether a clone equals the result of `Tensor.__deepcopy__`, which preserves memory layout, gradients and more."""
    plain = tensor.layout is torch.strided and not (tensor.requires_grad or tensor.is_quantized)
    if not plain or tensor.grad is not None or tensor.is_conj() or tensor.is_neg():
        return False
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return bool(whole and tensor.storage_offset() == 0 and _has_no_gaps(tensor))


def _has_no_gaps(tensor: torch.Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def has_no_attributes(tensor: torch.Tensor) -> bool:
    """Whether a tensor of the program has no attributes besides its elements, and is copied by cloning."""
    return not tensor.__dict__ and is_copied_by_cloning(tensor)


def copy(x: Any) -> object:
    """A shallow copy."""
    kind = type(x)
    if kind in ATOMS or kind in (tuple, frozenset, torch.Size) or issubclass(kind, (enum.Enum, type)):
        return x
    if kind in CONTAINERS:
        return x.copy()
    copier = getattr(kind, "__copy__", None)
    if copier is not None:
        return copier(x)
    if _looks_up(kind):
        return _asked(x, _same, {})
    return _fill(x, _empty(x), _same, {})


def deepcopy(x: Any, memo: dict[object, object] | None = None) -> object:
    """A deep copy; memo: copies made so far, by address."""
    if memo is not None and type(memo) is not dict:
        not_copied("an object is copied with a memo that is no dict")
    kind = type(x)
    if kind in ATOMS or issubclass(kind, (enum.Enum, type)):
        return x
    memo = {} if memo is None else memo
    if id(x) in memo:
        return memo[id(x)]
    if kind is tuple or kind is torch.Size:
        return _tuple(x, kind, memo)
    if kind is frozenset:
        return frozenset([deepcopy(item, memo) for item in x])
    if kind is torch.Tensor:
        memory = memory_of(x)
        if memory in memo:
            not_copied("tensors that share memory are deep-copied")
        memo[memory] = memory
        memo[id(x)] = made = x.clone()
        return made.copy_(made)  # a deep copy has a bumped version counter, because its memory was set
    copier = getattr(x if _looks_up(kind) else kind, "__deepcopy__", None)
    if copier is not None:
        made = copier(memo) if _looks_up(kind) else copier(x, memo)
        memo[id(x)] = made
        return made
    if _looks_up(kind):
        return _asked(x, deepcopy, memo)
    made = kind() if kind in (list, dict, set, collections.OrderedDict) else _empty(x)
    memo[id(x)] = made
    return _fill(x, made, deepcopy, memo)


def _tuple(x: tuple[object, ...], kind: type, memo: dict[object, object]) -> object:
    items = [deepcopy(item, memo) for item in x]
    if id(x) in memo:  # a container inside the tuple that holds the tuple has caused a copy
        return memo[id(x)]
    for old, new in zip(x, items):
        if old is not new:
            memo[id(x)] = made = kind(items)
            return made
    return x


def _same(x: object, memo: object) -> object:
    return x


def _empty(x: Any) -> object:
    """A new, empty object of the same class."""
    kind = type(x)
    if kind is collections.defaultdict:
        return collections.defaultdict(x.default_factory)
    if kind is collections.deque:
        return collections.deque(maxlen=x.maxlen)
    if kind is types.SimpleNamespace:
        return types.SimpleNamespace()
    for name in OWN_WAY if _base(kind) is object else (*OWN_WAY, *OF_CONTAINERS):
        if getattr(kind, name, None) is not getattr(_base(kind), name, None):
            not_copied(f"{kind.__name__} says how it is copied, by {name}")
    if issubclass(kind, (tuple, frozenset, int, float, complex, str, bytes)):
        not_copied(f"an object of {kind.__name__} is copied")
    if _base(kind) is object and kind is not object and not kind.__flags__ & HEAP_TYPE:
        not_copied(f"an object of {kind.__name__}, which is written in C, is copied")
    base: type[object] = _base(kind)
    return base.__new__(kind)


def _looks_up(kind: type) -> bool:
    """Whether a class of the program customises attribute lookup."""
    fallback = getattr(kind, "__getattr__", None)
    own = fallback is not None and fallback is not torch.nn.Module.__getattr__
    return own or any(_in_python(base) and "__getattribute__" in base.__dict__ for base in kind.__mro__)


def _in_python(kind: type) -> bool:
    return bool(kind.__flags__ & HEAP_TYPE) and not kind.__flags__ & IMMUTABLE_TYPE


def _asked(x: object, each: Each, memo: dict[object, object]) -> object:
    """A copy of an object whose class customises attribute lookup, which is used for everything that copying reads."""
    kind = type(x)
    if _base(kind) is not object or any(base.__dict__.get("__slots__") for base in kind.__mro__):
        not_copied(f"an object of {kind.__name__}, which looks up attributes itself, is copied")
    for name in ("__reduce_ex__", "__reduce__", "__getstate__"):
        if type(getattr(x, name)) is not types.BuiltinFunctionType:
            not_copied(f"{kind.__name__} gives a `{name}` of its own")
    made = _empty(x)
    memo[id(x)] = made
    held = object.__getattribute__(x, "__dict__")
    if held:
        state = {name: each(value, memo) for name, value in held.items()}
        if hasattr(made, "__setstate__"):
            not_copied(f"{kind.__name__} gives a `__setstate__`")
        made.__dict__.update(state)
    return made


def _base(kind: type) -> type:
    for base in (collections.OrderedDict, collections.defaultdict, dict, list, set):
        if issubclass(kind, base):
            return base
    return object


def _fill(x: object, made: object, each: Each, memo: dict[object, object]) -> object:
    """Copy the other object's contents: attributes, slots, items."""
    if hasattr(x, "__dict__") and type(x) not in CONTAINERS:
        for name, value in x.__dict__.items():
            made.__dict__[name] = each(value, memo)
    for base in type(x).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(x, name):
                object.__setattr__(made, name, each(getattr(x, name), memo))
    if isinstance(x, (dict, list, set, collections.deque)):
        _fill_container(x, made, each, memo)
    return made


def _fill_container(x: Iterable[object], made: Any, each: Each, memo: dict[object, object]) -> None:
    if isinstance(x, dict):
        for key, value in x.items():
            made[each(key, memo)] = each(value, memo)
    elif isinstance(x, set):
        for item in x:
            made.add(each(item, memo))
    else:
        for item in x:
            made.append(each(item, memo))


STAND_INS = ((original.copy, copy), (original.deepcopy, deepcopy))
