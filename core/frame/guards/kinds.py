"""The kinds of guards: facts that tracing relied on.

Each kind defines its record, its check in torch's C++ guard tree and its text (`guard.py` has the base class and the
builder of the tree), so that a new kind is one class here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import CodeType, MappingProxyType, MemberDescriptorType
from typing import Any, ClassVar, Self, cast

import attrs
import torch

from armature.frame.guards import memory
from armature.frame.guards.guard import Condition, Guard, Quantity, TreeBuilder
from armature.frame.guards.text import described_tensor, groups, name_of, short, shown
from armature.frame.guards.values import CONTAINERS, Form, is_by_equality, is_by_identity, same
from armature.frame.keys import WeakKey, stored_key
from armature.frame.lookups import has_instance_dict
from armature.frame.source import Expressions, Source
from armature.frame.sources import DictOfSource
from armature.introspection import is_written_in_c
from armature.torch_abi import guard_tree, symbols
from armature.torch_abi.overrides import KINDS, without_overrides

SHORT = 16  # most items of a list or tuple that are compared one by one
_GLOBAL_STATE = "grad mode, autocast, default dtype, determinism, thread count and function modes are unchanged"
FOUND_TWICE = "Duplicate tensor found where not expected!"  # torch's message when two arguments are the same tensor


@attrs.frozen(eq=False)
class TypeGuard(Guard):
    """`type(source) is type_`."""

    only_type: ClassVar[bool] = True
    source: Source
    type_: type
    user: str = ""

    @property
    def words(self) -> str:
        return f"type({self.source.expr}) is {self.type_.__qualname__}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        tree.watch(self.type_)
        tree.manager(self.source).add_type_match_guard(id(self.type_), parts, None)

    def of_type(self) -> Guard:
        return self

    @classmethod
    def now(cls, found: Any) -> str:
        return type(found).__qualname__


@attrs.frozen(eq=False)
class IdGuard(Guard):
    """`source is obj`: functions, classes, modules' identity, dtypes, enum members."""

    holds_type: ClassVar[bool] = True
    source: Source
    obj: object
    user: str = ""

    @property
    def words(self) -> str:
        return f"{self.source.expr} is the same object: {name_of(self.obj)}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        tree.watch(self.obj)
        tree.manager(self.source).add_id_match_guard(id(self.obj), parts, None)

    def of_type(self) -> Guard:
        kind = type(self.obj)
        return self if issubclass(kind, (type, CodeType)) else TypeGuard(self.source, kind, self.user)


@attrs.frozen(eq=False)
class ValueGuard(Guard):
    """`source == value` and same type: ints, floats (NaN equals NaN), strings, None, bools, torch.dtype/device, ..."""

    holds_type: ClassVar[bool] = True
    source: Source
    value: object
    user: str = ""

    @property
    def words(self) -> str:
        return f"{self.source.expr} == {shown(self.value)}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        _add_value(tree, tree.manager(self.source), self.source.expr, self.value, parts)

    def of_type(self) -> Guard:
        kind = type(self.value)
        if issubclass(kind, CONTAINERS):
            return MetadataGuard(self.source, Form(self.value), self.user)
        return self if kind is bool else TypeGuard(self.source, kind, self.user)


def _add_value(tree: TreeBuilder, manager: guard_tree.Manager, expr: str, value: object, parts: list[str]) -> None:
    """Guard that an object is this constant. A short list or tuple is compared item by item in C++: calling `same` in
    Python would take longer than all other guards of a convolution together."""
    if value is None:
        manager.add_none_match_guard(parts, None)
    elif is_by_identity(value):
        tree.watch(value)
        manager.add_id_match_guard(id(value), parts, None)
    elif is_by_equality(value):
        manager.add_equals_match_guard(value, parts, None)
    elif type(value) is float:
        # Zeros and NaN are compared by their text, with a method written in C: a Python function takes five times as
        # long.
        manager.add_type_match_guard(id(float), parts, None)
        spelled = value.hex()
        manager.lambda_manager(float.hex, f"{expr}.hex()", spelled, None).add_equals_match_guard(spelled, parts, None)
    elif type(value) in (list, tuple) and len(items := cast("Sequence[object]", value)) <= SHORT:
        manager.add_type_match_guard(id(type(value)), parts, None)
        manager.add_length_check_guard(len(items), parts, None)
        item = manager.list_getitem_manager if type(value) is list else manager.tuple_getitem_manager
        for k, member in enumerate(items):
            _add_value(tree, item(k, f"{expr}[{k}]", member, None), f"{expr}[{k}]", member, parts)
    else:
        manager.add_lambda_guard(lambda found: same(found, value), parts, None)


@attrs.frozen(eq=False)
class TensorGuard(Guard):
    """Type, dispatch keys, dtype, device, requires_grad, sizes and strides. A size or stride of None is not checked."""

    holds_type: ClassVar[bool] = True
    source: Source
    example: Any  # the real tensor while tracing; dropped once the tree is built
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    user: str = ""

    @property
    def fixes_layout(self) -> bool:
        return None not in (*self.sizes, *self.strides)

    @property
    def of_subclass(self) -> bool:
        return type(self.example) not in KINDS

    @property
    @without_overrides
    def words(self) -> str:
        return f"{self.source.expr} is {described_tensor(self.example, self.sizes, self.strides)}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        if self.of_subclass:  # torch compares its address, which a later class may have
            tree.watch(type(self.example))
        manager = tree.manager(self.source)
        guard_tree.tensor_match(manager, self.example, self.sizes, self.strides, self.source.expr, parts)

    @classmethod
    def is_told_by(cls, message: str, expr: str) -> bool:
        return f"tensor '{expr}'" in message


@attrs.frozen(eq=False)
class MetadataGuard(Guard):
    """A wrapper subclass has inner tensors of the same names as while tracing, and equal metadata."""

    source: Source
    test: Callable[[object], bool]
    user: str = ""

    @property
    def words(self) -> str:
        held = "parts of the same names, with equal metadata, or the same members"
        return f"{self.source.expr} holds what it held: {held}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        same_parts = tree.without_overrides(self.test)

        def as_before(found: Any) -> bool:
            try:
                return same_parts(found)
            except Exception:  # an error of the class: let the program see it
                return False

        tree.manager(self.source).add_lambda_guard(as_before, parts, None)


@attrs.frozen(eq=False)
class LengthGuard(Guard):
    """`len(source) == length` for list, tuple, dict, set."""

    source: Source
    length: int
    user: str = ""

    @property
    def words(self) -> str:
        return f"len({self.source.expr}) == {self.length}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        manager, kind, length = tree.manager(self.source), type(tree.value(self.source)), self.length
        if kind is MappingProxyType:  # C++ does not treat it as a sequence
            manager.add_lambda_guard(lambda found: len(found) == length, parts, None)
        elif issubclass(kind, dict):
            manager.add_dict_length_check_guard(length, parts, None)
        else:
            manager.add_length_check_guard(length, parts, None)

    @classmethod
    def now(cls, found: Any) -> str:
        return str(len(found))


@attrs.frozen(eq=False)
class DictKeysGuard(Guard):
    """The dict's keys, or the set's members, in the order of iteration."""

    source: Source
    keys: tuple[object, ...]
    user: str = ""

    @property
    def words(self) -> str:
        return f"list({self.source.expr}) == {short(list(self.keys))}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        manager, kind, keys = tree.manager(self.source), type(tree.value(self.source)), self.keys
        in_c = (base for base in kind.__mro__ if is_written_in_c(base))
        # by the builtin type's method, even if a derived class overrides it
        iterate: Any = next((vars(base)["__iter__"] for base in in_c if "__iter__" in vars(base)), iter)
        if is_written_in_c(kind) and issubclass(kind, dict) and all(type(key) is str for key in keys):
            manager.add_mapping_keys_guard(dict.fromkeys(keys), parts, None)
        else:
            manager.add_lambda_guard(lambda found: same(tuple(map(stored_key, iterate(found))), keys), parts, None)

    @classmethod
    def now(cls, found: Any) -> str:
        return short(list(found))


@attrs.frozen(eq=False)
class AbsentGuard(Guard):
    """`name` is not in the instance dict (or key not in the dict) at `source`."""

    source: Source
    name: object
    user: str = ""

    @property
    def key(self) -> Hashable:
        return AbsentGuard, self.source, self.name

    @property
    def words(self) -> str:
        return f"{shown(self.name)} is not in {self.source.expr}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        owner, name = tree.value(self.source), self.name
        if isinstance(name, WeakKey):
            tree.manager(self.source).add_lambda_guard(lambda found: name() not in found, parts, None)
        elif issubclass(type(owner), dict):
            tree.manager(self.source).add_dict_contains_guard(False, name, parts, None)
        elif has_instance_dict(owner):
            tree.manager(DictOfSource(self.source)).add_dict_contains_guard(False, name, parts, None)
        else:
            manager = tree.manager(self.source)
            manager.add_lambda_guard(lambda found: name not in getattr(found, "__dict__", ()), parts, None)


@attrs.frozen(eq=False)
class SlotGuard(Guard):
    """A slot of the object at `source` is unset."""

    source: Source
    slot: MemberDescriptorType
    user: str = ""

    @property
    def key(self) -> Hashable:
        return SlotGuard, self.source, id(self.slot)

    @property
    def words(self) -> str:
        return f"{self.source.expr}.{self.slot.__name__} is not set"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        read = self.slot.__get__

        def holds_nothing(found: Any) -> bool:
            try:
                read(found)
            except AttributeError:
                return True
            return False

        tree.manager(self.source).add_lambda_guard(holds_nothing, parts, None)


@attrs.frozen(eq=False)
class ClassGuard(Guard):
    """A class has the same bases, and defines none of these names itself."""

    cls: type
    mro: tuple[type, ...]
    names: set[str]
    user: str = ""

    @property
    def key(self) -> Hashable:
        return ClassGuard, id(self.cls)

    def join(self, other: Self) -> None:
        self.names.update(other.names)

    @property
    def words(self) -> str:
        names = f", and no attribute {', '.join(sorted(self.names))} of its own" if self.names else ""
        return f"{name_of(self.cls)} has the same bases{names}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        tree.defer(self)

    @classmethod
    def add_deferred(cls, tree: TreeBuilder, guards: Sequence[Self]) -> None:
        # A `keys()` view of a class's names is live.
        known = tuple((g.cls, g.mro, g.cls.__dict__.keys().isdisjoint, tuple(g.names)) for g in guards)

        def as_before(_: object) -> bool:
            for cls, mro, lacks, names in known:  # noqa: SIM110 - `all` is slower, and this is run in each call
                if cls.__mro__ is not mro or not lacks(names):
                    return False
            return True

        tree.add_last(as_before, [guard.text for guard in guards])


@attrs.frozen(eq=False)
class AliasGuard(Guard):
    """The two sources lead to the same object."""

    identical: ClassVar[bool] = True
    first: Source
    second: Source
    user: str = ""

    @property
    def objects(self) -> tuple[Source, ...]:
        return self.first, self.second

    @property
    def key(self) -> Hashable:
        return AliasGuard, self.first, self.second

    @property
    def words(self) -> str:
        return f"{self.first.expr} is {self.second.expr}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        guard_tree.same_object(tree.manager(self.first), tree.manager(self.second), parts)


@attrs.frozen(eq=False)
class NoAliasGuard(Guard):
    """No two of these sources lead to the same object."""

    sources: tuple[Source, ...]
    user: str = ""

    @property
    def objects(self) -> tuple[Source, ...]:
        return self.sources

    @property
    def key(self) -> Hashable:
        return NoAliasGuard, frozenset(self.sources)

    @property
    def words(self) -> str:
        return f"no two of these are one object: {', '.join(source.expr for source in self.sources)}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        # A temporary object aliases none of the others, though it may reuse a freed address.
        lasting = [source for source in self.sources if tree.is_permanent(source)]
        if len(lasting) > 1:
            names = [source.expr for source in lasting]
            guard_tree.different_objects(list(map(tree.manager, lasting)), names, parts)

    @classmethod
    def is_told_by(cls, message: str, expr: str) -> bool:
        return message == FOUND_TWICE


@attrs.frozen(eq=False)
class StorageGuard(Guard):
    """Tensors share memory with those that change as they did while tracing: only the pairs in `overlapping`, at the
    same distances.

    extents: bytes from each tensor's first element to its last, None where sizes may change. changed: which of them the
    graph may write to. overlapping: positions of two tensors and the distance of their first elements in bytes.
    """

    sources: tuple[Source, ...]
    extents: tuple[int | None, ...]
    changed: tuple[bool, ...]
    overlapping: tuple[tuple[int, int, int], ...] = ()
    user: str = ""

    @property
    def words(self) -> str:
        names = [source.expr for source in self.sources]
        if not self.overlapping and all(self.changed):
            return f"no two of these share memory: {', '.join(names)}"
        if not self.overlapping:
            written = ", ".join(name for name, changes in zip(names, self.changed) if changes)
            return f"of {', '.join(names)} none shares memory with what is written to: {written}"
        pairs = ", ".join(f"{names[i]} and {names[j]} at {distance} bytes" for i, j, distance in self.overlapping)
        return f"of {', '.join(names)} these share memory: {pairs}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        test = memory.sharing_condition(self.sources, self.extents, self.changed, self.overlapping, tree.request)
        tree.add_last(tree.without_overrides(test), parts)


@attrs.frozen(eq=False)
class FamilyGuard(Guard):
    """Tensors are views of the same bases as while tracing. families: two numbers for each tensor; the first is equal
    for views of one base, the second for tensors in one memory."""

    sources: tuple[Source, ...]
    families: tuple[tuple[int, int], ...]
    user: str = ""

    @property
    def words(self) -> str:
        names = [source.expr for source in self.sources]
        views, memories = (groups(names, numbers) for numbers in zip(*self.families))
        return f"of {', '.join(names)} these are views of one tensor: {views}; these are in one memory: {memories}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        tree.add_last(tree.without_overrides(memory.family_condition(self.sources, self.families, tree.request)), parts)


@attrs.frozen(eq=False)
class OffsetGuard(Guard):
    """`source.storage_offset() == offset`."""

    source: Source
    offset: int
    user: str = ""

    @property
    def words(self) -> str:
        return f"{self.source.expr}.storage_offset() == {self.offset}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        offset = self.offset
        test = tree.without_overrides(lambda found: found.storage_offset() == offset)
        tree.manager(self.source).add_lambda_guard(test, parts, None)

    @classmethod
    def now(cls, found: Any) -> str:
        return str(found.storage_offset())


@attrs.frozen(eq=False)
class AutogradGuard(Guard):
    """`source.is_leaf`, `source.retains_grad`, and whether it is a view, are as while tracing."""

    source: Source
    leaf: bool
    retains: bool
    view: bool
    user: str = ""

    @classmethod
    def of(cls, source: Source, tensor: torch.Tensor) -> Self:
        """The guard on what the tensor is now."""
        return cls(source, tensor.is_leaf, tensor.retains_grad, tensor._is_view())

    @property
    def words(self) -> str:
        kind = f"{'a leaf' if self.leaf else 'no leaf'} of autograd's graph"
        more = [", a view"] * self.view + [", and retains its gradient"] * self.retains
        return f"{self.source.expr} is {kind}{''.join(more)}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        known = (self.leaf, self.retains, self.view)
        test = tree.without_overrides(lambda found: (found.is_leaf, found.retains_grad, found._is_view()) == known)
        tree.manager(self.source).add_lambda_guard(test, parts, None)


@attrs.frozen(eq=False)
class AnswerGuard(Guard):
    """`fn(*args, **kwargs)`, which reads a setting of torch, still returns `answer` (same type and value)."""

    fn: Callable[..., object]
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    answer: object
    user: str = ""

    @property
    def key(self) -> Hashable:
        return AnswerGuard, id(self.fn), repr(self.args), repr(self.kwargs)  # the record keeps `fn` alive

    @property
    def words(self) -> str:
        args = [*map(short, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{name_of(self.fn)}({', '.join(args)}) == {short(self.answer)}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        def as_before(_: object) -> bool:
            try:
                return same(self.fn(*self.args, **self.kwargs), self.answer)
            except Exception:  # let the program see the error
                return False

        tree.add_last(as_before, parts)


@attrs.frozen(eq=False)
class GlobalStateGuard(Guard):
    """Grad mode, autocast, default dtype, deterministic algorithms, number of threads: as while tracing."""

    only_for_graphs: ClassVar[bool] = True
    user: str = ""

    @property
    def words(self) -> str:
        return _GLOBAL_STATE

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        guard_tree.global_state(tree.root, parts)


@attrs.frozen(eq=False)
class ShapeGuard(Guard):
    """A condition over symbols, as a Python expression over `names`, with the quantity that each name represents."""

    expr: str
    names: tuple[tuple[str, Quantity], ...]
    user: str = ""

    @property
    def numbers(self) -> tuple[Quantity, ...]:
        return tuple(quantity for _, quantity in self.names)

    @property
    def words(self) -> str:
        texts = {name: quantity.expr for name, quantity in self.names}
        names = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
        return re.sub(rf"\b(?:{names})\b", lambda found: texts[found[0]], self.expr) if texts else self.expr

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        tree.defer(self)

    @classmethod
    def add_deferred(cls, tree: TreeBuilder, guards: Sequence[Self]) -> None:
        writer = Expressions(tree.request)
        writer.namespace.update(symbols.NAMESPACE)
        tree.add_last(tree.without_overrides(_condition(writer, guards)), [guard.text for guard in guards])
        tree.conditions += [(guard.text, tree.without_overrides(_condition(writer, [guard]))) for guard in guards]


def _condition(writer: Expressions, guards: Sequence[ShapeGuard]) -> Condition:
    """Build `lambda L: (lambda s0, s1: (expr) and (expr))(L['x'].size(0), L['y'].size(1))`, which reads each number
    once."""
    names = dict(item for guard in guards for item in guard.names)
    values = (quantity.read(writer.of(quantity.source)) for quantity in names.values())
    clauses = " and ".join(f"({guard.expr})" for guard in guards)
    condition: Condition = eval(
        f"lambda L: (lambda {', '.join(names)}: {clauses})({', '.join(values)})", writer.namespace
    )
    return condition
