"""The guards of one trace: each relied-on fact is recorded once."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Hashable, Mapping
from types import MemberDescriptorType
from typing import TYPE_CHECKING

import attrs
import torch

from armature.frame.guards.guard import Guard
from armature.frame.guards.kinds import (
    AbsentGuard,
    AliasGuard,
    AnswerGuard,
    AutogradGuard,
    ClassGuard,
    DictKeysGuard,
    GlobalStateGuard,
    IdGuard,
    LengthGuard,
    NoAliasGuard,
    OffsetGuard,
    PartsGuard,
    SlotGuard,
    TensorGuard,
    TypeGuard,
    ValueGuard,
)
from armature.frame.sources import ItemSource, ObjectSource, Source, held_key

if TYPE_CHECKING:
    from collections.abc import Iterable

PYTHONS_OWN = frozenset(dir(builtins))


def autocast_dtypes() -> Mapping[str, torch.dtype]:
    """By device, what autocast takes now where it is not told."""
    return {device: torch.get_autocast_dtype(device) for device in ("cpu", "cuda")}


@attrs.define(eq=False)
class GuardRecorder:
    """Collects guards in the order in which facts were relied on. `user` gives the user's line for a record.

    An object that the compiled code itself keeps alive (`ObjectSource`) needs no guard of its identity, type or value,
    unless what it holds changes.
    """

    user: Callable[[], str]
    records: dict[Hashable, Guard] = attrs.field(factory=dict)
    lookups: set[Hashable] = attrs.field(factory=set)  # in classes, that were relied on
    autocast: Mapping[str, torch.dtype] = attrs.field(factory=autocast_dtypes)  # as they were when tracing began

    def global_state(self) -> None:
        """Grad mode, autocast, default dtype and the like."""
        self.records.setdefault("state", GlobalStateGuard())

    def autocast_dtype(self, device: str) -> None:
        """The dtype that autocast takes on the device where it is not told. What the trace itself enters changes it."""
        before = self.autocast.get(device)
        answer = torch.get_autocast_dtype(device) if before is None else before
        self.answers(torch.get_autocast_dtype, (device,), {}, answer)

    def type_is(self, source: Source, kind: type) -> None:
        """`type(source) is kind`."""
        if type(source) is not ObjectSource and (key := ("type", source)) not in self.records:
            self.records[key] = TypeGuard(source, kind, self.user())

    def same(self, source: Source, obj: object) -> None:
        """`source is obj`."""
        if type(source) is not ObjectSource and (key := ("is", source)) not in self.records:
            self.records[key] = IdGuard(source, obj, self.user())

    def equal(self, source: Source, value: object) -> None:
        """`source == value`, of the same type."""
        changes = type(source) is not ObjectSource or type(value) is list
        if changes and (key := ("value", source)) not in self.records:
            self.records[key] = ValueGuard(source, value, self.user())

    def tensor(self, source: Source, tensor: torch.Tensor, fake: torch.Tensor) -> None:
        """Everything that a fake tensor was made from; sizes and strides where the fake has numbers, not symbols. A
        tensor that the code keeps alive may still be changed."""
        if (key := ("tensor", source)) not in self.records:
            sizes = tuple(size if isinstance(size, int) else None for size in fake.shape)
            strides = tuple(stride if isinstance(stride, int) else None for stride in fake.stride())
            self.records[key] = TensorGuard(source, tensor, sizes, strides, self.user())

    def metadata(self, source: Source, test: Callable[[object], bool]) -> None:
        """What a tensor that holds others says of itself."""
        if (key := ("metadata", source)) not in self.records:
            self.records[key] = PartsGuard(source, test, self.user())

    def length(self, source: Source, length: int) -> None:
        """`len(source) == length`."""
        if (key := ("length", source)) not in self.records:
            self.records[key] = LengthGuard(source, length, self.user())

    def keys(self, source: Source, keys: Iterable[object]) -> None:
        """The keys of a dict, in order."""
        if (key := ("keys", source)) not in self.records:
            self.records[key] = DictKeysGuard(source, tuple(map(held_key, keys)), self.user())

    def absent(self, source: Source, name: object) -> None:
        """`name` is not in the dict at `source`."""
        name = held_key(name)
        if (key := ("absent", source, name)) not in self.records:
            self.records[key] = AbsentGuard(source, name, self.user())

    def lacks(self, cls: type, *names: str) -> None:
        """The class itself has none of these names, and its bases."""
        held = self.records.setdefault(("class", id(cls)), ClassGuard(cls, cls.__mro__, set(), self.user()))
        if isinstance(held, ClassGuard):
            held.names.update(names)

    def unset(self, source: Source, slot: MemberDescriptorType) -> None:
        """The slot of the object at `source` holds nothing."""
        if (key := ("unset", source, id(slot))) not in self.records:
            self.records[key] = SlotGuard(source, slot, self.user())

    def builtin(self, held: Mapping[str, object], name: str) -> Source | None:
        """The source of a name of the builtins, None where there is none. One that is not Python's own may change."""
        where = ObjectSource(held, "builtins")
        if name not in held:
            self.absent(where, name)
            return None
        return ObjectSource(held[name], f"builtins.{name}") if name in PYTHONS_OWN else ItemSource(where, name)

    def sized(self, source: Source) -> bool:
        """Whether all sizes and strides of the tensor at the source are guarded as they are."""
        held = self.records.get(("tensor", source))
        return isinstance(held, TensorGuard) and None not in (*held.sizes, *held.strides)

    def offset(self, source: Source, offset: int) -> None:
        """Where in its storage the tensor begins."""
        if (key := ("offset", source)) not in self.records:
            self.records[key] = OffsetGuard(source, offset, self.user())

    def autograd(self, source: Source, leaf: bool, retains: bool) -> None:
        """How the tensor stands in autograd's graph."""
        if (key := ("autograd", source)) not in self.records:
            self.records[key] = AutogradGuard(source, leaf, retains, self.user())

    def distinct(self, first: Source, second: Source) -> None:
        """Two ways lead to two objects."""
        if (key := ("distinct", frozenset((first, second)))) not in self.records:
            self.records[key] = NoAliasGuard((first, second), self.user())

    def answers(
        self, fn: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object], answer: object
    ) -> None:
        """`fn(*args, **kwargs) == answer`."""
        key = ("answer", id(fn), repr(args), repr(kwargs))  # the record keeps the function
        if key not in self.records:
            self.records[key] = AnswerGuard(fn, args, kwargs, answer, self.user())

    def alias(self, first: Source, second: Source) -> None:
        """Two ways to the same object."""
        if first != second and (key := ("alias", first, second)) not in self.records:
            self.records[key] = AliasGuard(first, second, self.user())
