"""Guard records: what tracing relied on. `frame/guards/tree.py` turns them into torch's C++ guard tree.

Each record names its source and, in `user`, the line of the user's code that made it necessary ("model.py:41").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MemberDescriptorType
from typing import TypeAlias

import attrs

from armature.frame.sources import Source


@attrs.frozen(eq=False)
class TypeGuard:
    """`type(source) is type_`."""

    source: Source
    type_: type
    user: str = ""


@attrs.frozen(eq=False)
class IdGuard:
    """`source is obj`: functions, classes, modules' identity, dtypes, enum members."""

    source: Source
    obj: object
    user: str = ""


@attrs.frozen(eq=False)
class ValueGuard:
    """`source == value` and same type: ints, floats (NaN equals NaN), strings, None, bools, torch.dtype/device, ..."""

    source: Source
    value: object
    user: str = ""


@attrs.frozen(eq=False)
class TensorGuard:
    """Type, dispatch keys, dtype, device, requires_grad, sizes and strides. A size or stride of None is not checked."""

    source: Source
    example: object  # the real tensor while tracing; not kept after the tree is built
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    user: str = ""


@attrs.frozen(eq=False)
class PartsGuard:
    """The tensor holds others by the names as while tracing, and what its class says besides is equal."""

    source: Source
    test: Callable[[object], bool]
    user: str = ""


@attrs.frozen(eq=False)
class LengthGuard:
    """`len(source) == length` for list, tuple, dict, set."""

    source: Source
    length: int
    user: str = ""


@attrs.frozen(eq=False)
class DictKeysGuard:
    """The dict's keys, or the set's members, in the order of iteration."""

    source: Source
    keys: tuple[object, ...]
    user: str = ""


@attrs.frozen(eq=False)
class AbsentGuard:
    """`name` is not an attribute in the instance dict (or key not in the dict) at `source`."""

    source: Source
    name: object
    user: str = ""


@attrs.frozen(eq=False)
class SlotGuard:
    """A slot of the object at `source` holds nothing."""

    source: Source
    slot: MemberDescriptorType
    user: str = ""


@attrs.frozen(eq=False)
class ClassGuard:
    """A class has the bases it had, and none of these names of its own."""

    cls: type
    mro: tuple[type, ...]
    names: set[str]
    user: str = ""


@attrs.frozen(eq=False)
class AliasGuard:
    """The two sources are the same object."""

    first: Source
    second: Source
    user: str = ""


@attrs.frozen(eq=False)
class NoAliasGuard:
    """No two of these sources lead to the same object."""

    sources: tuple[Source, ...]
    user: str = ""


@attrs.frozen(eq=False)
class StorageGuard:
    """Tensors share memory as while tracing: those of `together` with the same distances, all others not at all.

    extents: bytes from each tensor's first element to its last, None where sizes may change. together: positions of two
    tensors and the distance of their first elements in bytes.
    """

    sources: tuple[Source, ...]
    extents: tuple[int | None, ...]
    together: tuple[tuple[int, int, int], ...] = ()
    user: str = ""


@attrs.frozen(eq=False)
class FamilyGuard:
    """Tensors are views of the same ones as while tracing. families: two numbers for each, the first equal for those of
    one base, the second for those in one memory."""

    sources: tuple[Source, ...]
    families: tuple[tuple[int, int], ...]
    user: str = ""


@attrs.frozen(eq=False)
class OffsetGuard:
    """`source.storage_offset() == offset`."""

    source: Source
    offset: int
    user: str = ""


@attrs.frozen(eq=False)
class AutogradGuard:
    """`source.is_leaf` and `source.retains_grad` are as while tracing."""

    source: Source
    leaf: bool
    retains: bool
    user: str = ""


@attrs.frozen(eq=False)
class AnswerGuard:
    """`fn(*args, **kwargs) == answer`, of the same type: a setting of torch."""

    fn: Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    answer: object
    user: str = ""


@attrs.frozen(eq=False)
class GlobalStateGuard:
    """Grad mode, autocast, default dtype, deterministic algorithms, number of threads: as while tracing."""

    user: str = ""


@attrs.frozen
class Quantity:
    """A number that symbols stand for: the int at `source`, or along `axis` a size or stride of the tensor there."""

    source: Source
    axis: int = -1
    stride: bool = False

    def read(self, base: str) -> str:
        """Python text that reads it; `base` is the text of the source."""
        if self.axis < 0:
            return base
        return f"{base}.{'stride' if self.stride else 'size'}({self.axis})"

    @property
    def expr(self) -> str:
        """For people."""
        return self.read(self.source.expr)


@attrs.frozen(eq=False)
class ShapeGuard:
    """A condition over symbols, as a Python expression over `names`, and what each of these stands for."""

    expr: str
    names: tuple[tuple[str, Quantity], ...]
    user: str = ""


Guard: TypeAlias = (
    TypeGuard
    | IdGuard
    | ValueGuard
    | TensorGuard
    | PartsGuard
    | LengthGuard
    | DictKeysGuard
    | AbsentGuard
    | SlotGuard
    | ClassGuard
    | AliasGuard
    | NoAliasGuard
    | StorageGuard
    | FamilyGuard
    | OffsetGuard
    | AutogradGuard
    | AnswerGuard
    | GlobalStateGuard
    | ShapeGuard
)
