"""Where a value comes from: a path from the frame's locals or globals, as a Python expression.

A source has three readers: the guard tree (how to reach the object in C++), the rebuilder (bytecode that loads it
again) and people (`expr`). All three switch over the class, each in a table of its own.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeAlias

import attrs
import torch

from armature.introspection import label_of

# What a program makes once, or what code is known by.
LASTING: frozenset[type] = frozenset({BuiltinFunctionType, FunctionType, ModuleType})


@attrs.frozen(eq=False, repr=False)
class WeakKey:
    """A dict's key, not kept alive: a tensor, or an object that equals only itself. Equal to another of the same
    object: `==` of tensors compares their elements. Called, it gives the object; None when that is gone."""

    held: weakref.ref[Any]

    def __call__(self) -> Any:
        return self.held()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WeakKey) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)

    def __repr__(self) -> str:
        return f"{type(self.held()).__name__} at {id(self.held):#x}"


def held_key(key: object) -> Any:
    """The key as a source or a guard keeps it."""
    kind = type(key)
    if not issubclass(kind, torch.Tensor):
        if kind.__hash__ is not object.__hash__ or kind.__eq__ is not object.__eq__ or not kind.__weakrefoffset__:
            return key
        if kind in LASTING or issubclass(kind, (type, enum.Enum)):
            return key
    return WeakKey(weakref.ref(key))


def real_key(key: object) -> Any:
    """The key as the dict has it."""
    return key() if isinstance(key, WeakKey) else key


@attrs.frozen(cache_hash=True)
class LocalSource:
    """A local variable or argument; `cell` when it is a cell or free variable (the value inside the cell is meant)."""

    name: str
    cell: bool = False

    @property
    def expr(self) -> str:
        return self.name


@attrs.frozen(cache_hash=True)
class GlobalSource:
    """A global of the frame being compiled."""

    name: str

    @property
    def expr(self) -> str:
        return f"globals()[{self.name!r}]"


@attrs.frozen(cache_hash=True)
class BuiltinSource:
    """A name of the builtins."""

    name: str

    @property
    def expr(self) -> str:
        return f"builtins.{self.name}"


@attrs.frozen(cache_hash=True)
class ObjectSource:
    """An object reached in no other way (the globals of an inlined function, a module in sys.modules), kept alive by
    the compiled code. Guarded by nothing itself; attributes and items below it are."""

    obj: object = attrs.field(eq=id, hash=False)
    label: str

    @property
    def expr(self) -> str:
        return self.label


def object_source(obj: object, label: str = "") -> ObjectSource:
    """A source for an object that the compiled code keeps alive. label: what guards and reports call it."""
    return ObjectSource(obj, label or label_of(obj))


@attrs.frozen(cache_hash=True)
class AttrSource:
    """`base.name` by getattr."""

    base: Source
    name: str

    @property
    def expr(self) -> str:
        return f"{self.base.expr}.{self.name}"


@attrs.frozen(cache_hash=True)
class DictOfSource:
    """`base.__dict__`, read without running user code."""

    base: Source

    @property
    def expr(self) -> str:
        return f"{self.base.expr}.__dict__"


@attrs.frozen(cache_hash=True)
class TypeOfSource:
    """`type(base)`."""

    base: Source

    @property
    def expr(self) -> str:
        return f"type({self.base.expr})"


@attrs.frozen(cache_hash=True)
class ItemSource:
    """`base[key]` for a list, tuple or dict; `key` is an int, a hashable constant, or a `WeakKey`."""

    base: Source
    key: object

    @property
    def expr(self) -> str:
        return f"{self.base.expr}[{self.key!r}]"


@attrs.frozen(cache_hash=True)
class ReferentSource:
    """`base()` of the weak reference at `base`."""

    base: Source

    @property
    def expr(self) -> str:
        return f"{self.base.expr}()"


@attrs.frozen(cache_hash=True)
class MemberSource:
    """`kind.__getitem__(base, key)`: an item of an object whose class derives from a builtin container, `kind`, read
    as that container has it, whatever `__getitem__` the class defines."""

    base: Source
    kind: Any
    key: object

    @property
    def expr(self) -> str:
        return f"{self.kind.__name__}.__getitem__({self.base.expr}, {self.key!r})"


@attrs.frozen(cache_hash=True)
class CellSource:
    """The contents of the cell object at `base` (an element of a function's `__closure__`)."""

    base: Source

    @property
    def expr(self) -> str:
        return f"{self.base.expr}.cell_contents"


@attrs.frozen(cache_hash=True)
class ModeSource:
    """The function mode at a position of torch's stack, the outermost first."""

    position: int

    @property
    def expr(self) -> str:
        return f"function_modes()[{self.position}]"


@attrs.frozen(cache_hash=True)
class CallSource:
    """`fn(base)`, of a function of armature's own that changes nothing."""

    base: Source
    fn: Any
    name: str

    @property
    def expr(self) -> str:
        return f"{self.name}({self.base.expr})"


@attrs.frozen(cache_hash=True)
class KeptSource:
    """`base(*args)` of a function of the program that changes nothing and keeps its results (`functools.lru_cache`):
    the one that it has kept. names: of the last arguments, that are passed by name. grad: the grad mode in which it is
    called; None: the one in which the frame begins."""

    base: Source
    args: tuple[Source, ...]
    names: tuple[str, ...] = ()
    grad: bool | None = None

    @property
    def expr(self) -> str:
        return call_text(self.base.expr, [arg.expr for arg in self.args], self.names)


def call_text(function: str, args: Sequence[str], names: tuple[str, ...]) -> str:
    """The text of a call, of the texts of its parts."""
    positional = len(args) - len(names)
    named = [f"{name}={text}" for name, text in zip(names, args[positional:], strict=True)]
    return f"{function}({', '.join((*args[:positional], *named))})"


@attrs.frozen(cache_hash=True)
class ArrayMemorySource:
    """A tensor over the memory of the numpy array at `base`."""

    base: Source

    @property
    def expr(self) -> str:
        return f"torch.from_numpy({self.base.expr})"


@attrs.frozen(cache_hash=True)
class EarlySource:
    """What a call of the compiled code before its graph gives, by its number. Nothing can be guarded of it."""

    number: int

    @property
    def expr(self) -> str:
        return f"drawn_{self.number}"


def is_early(source: Source) -> bool:
    """Whether what stands there is made by the compiled code itself."""
    while isinstance(source, (ItemSource, CallSource)):
        source = source.base
    return isinstance(source, EarlySource)


Source: TypeAlias = (
    LocalSource
    | GlobalSource
    | BuiltinSource
    | ObjectSource
    | AttrSource
    | DictOfSource
    | TypeOfSource
    | ItemSource
    | MemberSource
    | ReferentSource
    | CellSource
    | ModeSource
    | CallSource
    | KeptSource
    | ArrayMemorySource
    | EarlySource
)
