"""A cache of the results of operators on fakes, keyed by the layouts and plain values of the arguments.

torch's own cache takes several times as long for tensors of fixed sizes, and does not know the corrections of
`fake_rules`. Its check of which results can be cached is used here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import Any, cast

import attrs
import torch
from torch._subclasses.fake_tensor import (
    _DISPATCH_HANDLE_DIRECTLY,
    _DISPATCH_META_HANDLERS,
    FakeTensor,
    FakeTensorMode,
    _BypassDispatchCache,
)

GUESSED = "_strides_are_guessed"  # set on fakes whose strides along axes of size 1 may not be the kernel's
ATOMS = frozenset({
    int, float, complex, bool, str, NoneType, torch.dtype, torch.device, torch.layout, torch.memory_format,
})  # fmt: skip
SEQUENCES = frozenset({list, tuple, torch.Size})
MOST = 1 << 13  # most cached results; when there are more, all are dropped
QUERIES: Mapping[Any, Callable[[Any], Any]] = MappingProxyType(_DISPATCH_META_HANDLERS)  # of devices and sizes
UNSAFE_VIEW: Any = torch.ops.aten._unsafe_view.default  # torch's cache would make a result with memory of its own


@attrs.frozen(eq=False, slots=True)
class FakeRecipe:
    """How to recreate one fake of a cached result. shares: the position, among the tensor arguments, of the one whose
    memory it shares. state: the attributes that torch set on the original fake, without its mode."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    offset: int
    shares: int | None
    state: dict[str, Any]

    def build(self, mode: FakeTensorMode, tensors: list[FakeTensor]) -> FakeTensor:
        """Recreate the fake."""
        meta = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device="meta")
        if self.shares is not None:
            meta.set_(tensors[self.shares].untyped_storage(), self.offset, self.size, self.stride)
        fake: Any = torch.Tensor._make_subclass(
            FakeTensor, meta, False, dispatch_device=True, device_for_backend_keys=self.device
        )
        if mode._allow_unsafe_data_ptr_access:
            torch._C._set_warn_deprecated_on_mutable_data_ptr(fake)
        else:
            torch._C._set_throw_on_mutable_data_ptr(fake)
        vars(fake).update(self.state, fake_mode=mode)
        return cast(FakeTensor, fake)


@attrs.frozen(eq=False, slots=True)
class CachedResult:
    """The cached result of an operator: how to recreate each part. kind: the type of the sequence that holds the parts,
    if any."""

    recipes: tuple[FakeRecipe | int | None, ...]
    kind: type[Any] | None

    def build(self, mode: FakeTensorMode, tensors: list[FakeTensor]) -> Any:
        """Recreate the result for other arguments with the same layouts."""
        with torch._C._DisableTorchDispatch():
            made = [part.build(mode, tensors) if type(part) is FakeRecipe else part for part in self.recipes]
        return made[0] if self.kind is None else self.kind(made)


class KeyedCall:
    """A call of an operator: the key of its result, and the tensor arguments in order."""

    __slots__ = ("key", "tensors")

    def __init__(self, key: tuple[Any, ...], tensors: list[FakeTensor]) -> None:
        self.key = key
        self.tensors = tensors


def keyed_call(mode: FakeTensorMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> KeyedCall | None:
    """The key and the tensors of a call; None if its result can't be cached."""
    key: list[Any] = [
        op, torch.get_default_dtype(), torch._C._get_default_device(), torch.is_inference_mode_enabled()
    ]  # fmt: skip
    tensors: list[FakeTensor] = []
    if mode.in_kernel_invocation or not _describe(mode, args, key, tensors):
        return None
    if kwargs:
        key.extend(kwargs)
        if not _describe(mode, kwargs.values(), key, tensors):
            return None
    return KeyedCall(tuple(key), tensors)


def _describe(mode: FakeTensorMode, values: Iterable[Any], key: list[Any], tensors: list[FakeTensor]) -> bool:
    """Add everything that the result may depend on to the key. False if a value can't be described."""
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value._has_symbolic_sizes_strides or value.layout is not torch.strided or value.is_quantized:
                return False
            state, memory = vars(value), value.untyped_storage().nbytes()
            if state["fake_mode"] is not mode or state["constant"] is not None or type(memory) is not int:
                return False
            key += (
                kind, value.shape, value.stride(), value.storage_offset(), memory, value.dtype,
                value.fake_device, value.requires_grad, value.is_inference(), value.is_conj(),
                value.is_neg(), state.get(GUESSED, False),
            )  # fmt: skip
            tensors.append(value)
        elif kind in ATOMS:
            key += (kind, value)
        elif kind in SEQUENCES:
            key += (kind, len(value))
            if not _describe(mode, value, key, tensors):
                return False
        else:
            return False
    return True


def cached_result(
    mode: FakeTensorMode, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: KeyedCall, result: Any
) -> CachedResult | None:
    """How to recreate the result of a call; None if it has to be computed each time."""
    if op in _DISPATCH_HANDLE_DIRECTLY:
        return None
    kind = type(result) if type(result) in (list, tuple) else None
    try:
        if op is not UNSAFE_VIEW:
            mode._validate_cache_key(op, args, kwargs)
        recipes = tuple([_recipe(mode, one, call.tensors) for one in (result if kind else (result,))])
    except _BypassDispatchCache:
        return None
    found = CachedResult(recipes, kind)
    return found if _facts(mode, found.build(mode, call.tensors)) == _facts(mode, result) else None


def _facts(mode: FakeTensorMode, result: Any) -> list[Any]:
    """The facts in which a recreated result must agree with the original."""
    tensors: list[FakeTensor] = []
    facts: list[Any] = []
    _describe(mode, (result,), facts, tensors)
    memories = [one.untyped_storage()._cdata for one in tensors]
    return [*facts, *map(torch._C._dispatch_key_set, tensors), *map(memories.index, memories)]


def _recipe(mode: FakeTensorMode, one: Any, tensors: list[FakeTensor]) -> FakeRecipe | int | None:
    """How to recreate a part of a result; a part that is not a tensor is returned unchanged."""
    if one is None or type(one) is int:
        return one
    if type(one) is not FakeTensor or not _describe(mode, (one,), [], []):
        raise _BypassDispatchCache("not described by its layout")
    if one.requires_grad or one.is_conj() or one.is_neg() or any(one is other for other in tensors):
        raise _BypassDispatchCache("more than a new tensor")
    memory, offset = one.untyped_storage()._cdata, int(one.storage_offset())
    shares = next((n for n, other in enumerate(tensors) if other.untyped_storage()._cdata == memory), None)
    if shares is None and offset != 0:
        raise _BypassDispatchCache("part of other memory")
    state = {name: value for name, value in vars(one).items() if name != "fake_mode"}
    return FakeRecipe(tuple(one.shape), one.stride(), one.dtype, one.fake_device, offset, shares, state)
