"""Collects the guards of one trace; each fact is recorded once."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

import attrs
import torch

from armature.frame.guards import kinds
from armature.frame.guards.guard import Guard
from armature.frame.keys import stored_key
from armature.frame.sources import ItemSource, ObjectSource, Source
from armature.torch_abi.grad_modes import AUTOCAST_DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterable

PYTHONS_OWN = frozenset(dir(builtins))


def autocast_dtypes() -> Mapping[str, torch.dtype]:
    """The dtype that autocast uses by default, for each device."""
    return {device: torch.get_autocast_dtype(device) for device in AUTOCAST_DEVICES}


@attrs.define(eq=False)
class GuardRecorder:
    """Collects guards in the order in which facts were relied on. `user` returns the user's line for a record.

    An object that the compiled code itself keeps alive (`ObjectSource`) needs no guard of its identity, type or value,
    unless its contents change.
    """

    user: Callable[[], str]
    records: dict[Hashable, Guard] = attrs.field(factory=dict)
    lookups: set[Hashable] = attrs.field(factory=set)  # class lookups that were relied on
    autocast: Mapping[str, torch.dtype] = attrs.field(factory=autocast_dtypes)  # as of the start of tracing

    def add(self, guard: Guard) -> None:
        """Add a guard."""
        if (held := self.records.setdefault(guard.key, guard)) is guard:
            guard.set_user(self.user())
        else:
            held.join(guard)

    def global_state(self) -> None:
        """Guard the grad mode, autocast, the default dtype and the like."""
        self.records.setdefault(kinds.GlobalStateGuard, kinds.GlobalStateGuard())

    def autocast_dtype(self, device: str) -> None:
        """The default dtype of autocast on the device as of the start, because the trace may enter contexts."""
        before = self.autocast.get(device)
        answer = torch.get_autocast_dtype(device) if before is None else before
        self.answers(torch.get_autocast_dtype, (device,), {}, answer)

    def type_is(self, source: Source, kind: type) -> None:
        """`type(source) is kind`."""
        if not source.is_fixed:
            self.add(kinds.TypeGuard(source, kind))

    def same(self, source: Source, obj: object) -> None:
        """`source is obj`."""
        if not source.is_fixed:
            self.add(kinds.IdGuard(source, obj))

    def equal(self, source: Source, value: object) -> None:
        """`source == value`, of the same type."""
        if not source.is_fixed or type(value) is list:
            self.add(kinds.ValueGuard(source, value))

    def tensor(self, source: Source, tensor: torch.Tensor, fake: torch.Tensor) -> None:
        """Guard the properties that the fake tensor was made from; sizes and strides only where the fake has numbers,
        not symbols. A tensor that the code keeps alive is guarded too, because it may still be changed."""
        sizes = tuple(size if isinstance(size, int) else None for size in fake.shape)
        strides = tuple(stride if isinstance(stride, int) else None for stride in fake.stride())
        self.add(kinds.TensorGuard(source, tensor, sizes, strides))

    def metadata(self, source: Source, test: Callable[[object], bool]) -> None:
        """Guard the metadata of a wrapper subclass or the members of a container by a test."""
        self.add(kinds.MetadataGuard(source, test))

    def length(self, source: Source, length: int) -> None:
        """`len(source) == length`."""
        self.add(kinds.LengthGuard(source, length))

    def keys(self, source: Source, keys: Iterable[object]) -> None:
        """The keys of a dict, in order."""
        self.add(kinds.DictKeysGuard(source, tuple(map(stored_key, keys))))

    def absent(self, source: Source, name: object) -> None:
        """Guard that `name` is not in the dict at `source`."""
        self.add(kinds.AbsentGuard(source, stored_key(name)))

    def lacks(self, cls: type, *names: str) -> None:
        """Guard that neither the class nor its bases have any of these names."""
        self.add(kinds.ClassGuard(cls, cls.__mro__, set(names)))

    def builtin(self, held: Mapping[str, object], name: str) -> Source | None:
        """The source of a builtin name, None if it needs none. A builtin that is not Python's own may change."""
        where = ObjectSource(held, "builtins")
        if name not in held:
            self.absent(where, name)
            return None
        return ObjectSource(held[name], f"builtins.{name}") if name in PYTHONS_OWN else ItemSource(where, name)

    def sized(self, source: Source) -> bool:
        """Whether all sizes and strides of the tensor at the source are guarded."""
        held = self.records.get((kinds.TensorGuard, source))
        return held is not None and held.fixes_layout

    def offset(self, source: Source, offset: int) -> None:
        """Guard the offset of the tensor in its storage."""
        self.add(kinds.OffsetGuard(source, offset))

    def answers(
        self, fn: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object], answer: object
    ) -> None:
        """`fn(*args, **kwargs) == answer`."""
        self.add(kinds.AnswerGuard(fn, args, kwargs, answer))

    def alias(self, first: Source, second: Source) -> None:
        """Guard that two sources lead to the same object."""
        if first != second:
            self.add(kinds.AliasGuard(first, second))
