"""Guard records -> torch's C++ guard tree."""

from __future__ import annotations

import collections
import sys
import weakref
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any, get_args

import attrs

from armature.frame.data import FrameRequest
from armature.frame.guards import memory
from armature.frame.guards.kinds import (
    AbsentGuard,
    AliasGuard,
    AnswerGuard,
    AutogradGuard,
    ClassGuard,
    DictKeysGuard,
    FamilyGuard,
    GlobalStateGuard,
    Guard,
    IdGuard,
    LengthGuard,
    NoAliasGuard,
    OffsetGuard,
    PartsGuard,
    ShapeGuard,
    SlotGuard,
    StorageGuard,
    TensorGuard,
    TypeGuard,
    ValueGuard,
)
from armature.frame.guards.paths import Expressions
from armature.frame.guards.reach import Reach, has_instance_dict
from armature.frame.guards.text import describe
from armature.frame.guards.values import is_by_equality, is_by_identity, same
from armature.frame.sources import DictOfSource, Source, WeakKey, held_key
from armature.introspection import lives_on
from armature.torch_abi import eval_frame, guard_tree, overrides, symbols
from armature.torch_abi.eval_frame import GuardHolder

Condition = Callable[[dict[str, Any]], bool]


@attrs.frozen(eq=False)
class Mark:
    """What a guard is about, without the objects that it knows. source: None where it is about more than one."""

    kind: type
    source: Source | None
    user: str

    @classmethod
    def of(cls, guard: Guard) -> Mark:
        """The mark of a guard."""
        return cls(type(guard), getattr(guard, "source", None), guard.user)


@attrs.frozen(eq=False)
class GuardTree:
    """The tree, and what is needed to say later which guard failed: a text and a mark per guard, a test per shape
    condition."""

    holder: GuardHolder
    texts: tuple[str, ...]
    marks: tuple[Mark, ...] = ()
    conditions: tuple[tuple[str, Condition], ...] = ()
    sizes: tuple[tuple[Source, tuple[int | None, ...]], ...] = ()  # of tensors, as guarded

    def check(self, f_locals: dict[str, object]) -> bool:
        """Whether all guards hold for these locals."""
        return bool(self.holder.root.check(f_locals))


def build(guards: Iterable[Guard], request: FrameRequest) -> GuardTree:
    """The tree for a frame's guards; the frame is as it was when it was traced. Errors: those of reading a source."""
    kept = _without_repeats(guards)
    subclass = any(isinstance(g, TensorGuard) and type(g.example) not in overrides.KINDS for g in kept)
    builder = _Builder(request, subclass or bool(request.overriding.modes))
    classes = [g for g in kept if isinstance(g, ClassGuard)]
    for guard in kept:
        if not isinstance(guard, ClassGuard):
            _ADD[type(guard)](builder, guard, [describe(guard)])
    shapes = [g for g in kept if isinstance(g, ShapeGuard)]
    conditions = builder.add_shapes(shapes)
    builder.add_classes(classes)
    sizes = tuple((g.source, g.sizes) for g in kept if isinstance(g, TensorGuard))
    return GuardTree(builder.holder, tuple(describe(g) for g in kept), tuple(map(Mark.of, kept)), conditions, sizes)


def _without_repeats(guards: Iterable[Guard]) -> list[Guard]:
    """Each guard once; no type guard where a stronger one holds the type too."""
    guards = list(guards)
    typed = {g.source for g in guards if isinstance(g, (TensorGuard, IdGuard, ValueGuard))}
    seen: set[object] = set()
    kept: list[Guard] = []
    for guard in guards:
        if isinstance(guard, TypeGuard) and guard.source in typed:
            continue
        key = _identity(guard)
        if key not in seen:
            seen.add(key)
            kept.append(guard)
    return kept


def _identity(guard: Guard) -> object:
    """Equal for guards that check the same."""
    facts = [getattr(guard, f.name) for f in attrs.fields(type(guard)) if f.name != "user"]
    return (type(guard), *(f if issubclass(type(f), _SOURCES) else id(f) for f in facts))


# Iterated by their own methods, whatever `__iter__` a class derived from them defines.
_ITERATED: tuple[Any, ...] = (collections.OrderedDict, dict, set, frozenset)
_SOURCES: tuple[type, ...] = get_args(Source)


class _Builder:
    def __init__(self, request: FrameRequest, overridden: bool) -> None:
        self.request = request
        self.overridden = overridden
        self.root = guard_tree.new_root()
        self.holder = GuardHolder(self.root)
        self.reach = Reach(self.root, request)
        self._watched: set[int] = set()

    def quiet(self, test: Callable[[Any], bool]) -> Callable[[Any], bool]:
        """A test of tensors that no `__torch_function__` is to hear of."""
        return overrides.quietly(test) if self.overridden else test

    def watch(self, obj: object) -> None:
        """Drop the cached code when the object dies, before another one can take its address."""
        if id(obj) in self._watched:
            return
        self._watched.add(id(obj))
        if lives_on(obj):
            self.holder.keep_alive.append(obj)
            return
        holder = weakref.ref(self.holder)

        def died(_: object, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
            held = holder()  # at the very end of the process, globals are gone
            if held is not None and not is_finalizing():
                eval_frame.invalidate(held, guard_tree.never())

        try:
            self.holder.keep_alive.append(weakref.ref(obj, died))
        except TypeError:
            self.holder.keep_alive.append(obj)

    def add_type(self, guard: TypeGuard, parts: list[str]) -> None:
        self.watch(guard.type_)
        self.reach.manager(guard.source).add_type_match_guard(id(guard.type_), parts, None)

    def add_id(self, guard: IdGuard, parts: list[str]) -> None:
        self.watch(guard.obj)
        self.reach.manager(guard.source).add_id_match_guard(id(guard.obj), parts, None)

    def add_value(self, guard: ValueGuard, parts: list[str]) -> None:
        manager, value = self.reach.manager(guard.source), guard.value
        if value is None:
            manager.add_none_match_guard(parts, None)
        elif is_by_identity(value):
            self.watch(value)
            manager.add_id_match_guard(id(value), parts, None)
        elif is_by_equality(value):
            manager.add_equals_match_guard(value, parts, None)
        else:
            manager.add_lambda_guard(lambda found: same(found, value), parts, None)

    def add_tensor(self, guard: TensorGuard, parts: list[str]) -> None:
        manager = self.reach.manager(guard.source)
        example: Any = guard.example
        guard_tree.tensor_match(manager, example, guard.sizes, guard.strides, guard.source.expr, parts)

    def add_parts(self, guard: PartsGuard, parts: list[str]) -> None:
        same_parts = self.quiet(guard.test)

        def as_before(found: Any) -> bool:
            try:
                return same_parts(found)
            except Exception:  # what the class raises now, the program is to see
                return False

        self.reach.manager(guard.source).add_lambda_guard(as_before, parts, None)

    def add_length(self, guard: LengthGuard, parts: list[str]) -> None:
        manager, value = self.reach.manager(guard.source), self.reach.resolver.value(guard.source)
        if type(value) is MappingProxyType:  # no sequence to C++
            manager.add_lambda_guard(lambda found: len(found) == guard.length, parts, None)
        elif issubclass(type(value), dict):
            manager.add_dict_length_check_guard(guard.length, parts, None)
        else:
            manager.add_length_check_guard(guard.length, parts, None)

    def add_keys(self, guard: DictKeysGuard, parts: list[str]) -> None:
        manager, keys = self.reach.manager(guard.source), guard.keys
        owner = self.reach.resolver.value(guard.source)
        iterate = next((kind.__iter__ for kind in _ITERATED if issubclass(type(owner), kind)), iter)
        if type(owner) in _ITERATED[:2] and all(type(key) is str for key in keys):
            manager.add_mapping_keys_guard(dict.fromkeys(keys), parts, None)
        else:
            manager.add_lambda_guard(lambda found: same(tuple(map(held_key, iterate(found))), keys), parts, None)

    def add_absent(self, guard: AbsentGuard, parts: list[str]) -> None:
        owner, name = self.reach.resolver.value(guard.source), guard.name
        if isinstance(name, WeakKey):
            manager = self.reach.manager(guard.source)
            manager.add_lambda_guard(lambda found: name() not in found, parts, None)
        elif issubclass(type(owner), dict):
            self.reach.manager(guard.source).add_dict_contains_guard(False, name, parts, None)
        elif has_instance_dict(owner):
            held = self.reach.manager(DictOfSource(guard.source))
            held.add_dict_contains_guard(False, name, parts, None)
        else:
            manager = self.reach.manager(guard.source)
            manager.add_lambda_guard(lambda found: name not in getattr(found, "__dict__", ()), parts, None)

    def add_slot(self, guard: SlotGuard, parts: list[str]) -> None:
        read = guard.slot.__get__

        def holds_nothing(found: Any) -> bool:
            try:
                read(found)
            except AttributeError:
                return True
            return False

        self.reach.manager(guard.source).add_lambda_guard(holds_nothing, parts, None)

    def add_classes(self, guards: list[ClassGuard]) -> None:
        """One test for all classes."""
        if not guards:
            return
        # A view of a class' names follows them.
        known = tuple((g.cls, g.mro, g.cls.__dict__.keys().isdisjoint, tuple(g.names)) for g in guards)

        def as_before(_: object) -> bool:
            for cls, mro, lacks, names in known:  # noqa: SIM110 - `all` is slower, and this is run in each call
                if cls.__mro__ is not mro or not lacks(names):
                    return False
            return True

        self.root.add_epilogue_lambda_guard(as_before, [describe(guard) for guard in guards], None)

    def add_alias(self, guard: AliasGuard, parts: list[str]) -> None:
        guard_tree.same_object(self.reach.manager(guard.first), self.reach.manager(guard.second), parts)

    def add_no_alias(self, guard: NoAliasGuard, parts: list[str]) -> None:
        if len(guard.sources) > 1:
            managers = [self.reach.manager(source) for source in guard.sources]
            guard_tree.different_objects(managers, [source.expr for source in guard.sources], parts)

    def add_storage(self, guard: StorageGuard, parts: list[str]) -> None:
        self.root.add_epilogue_lambda_guard(self.quiet(memory.condition(guard, self.request)), parts, None)

    def add_family(self, guard: FamilyGuard, parts: list[str]) -> None:
        self.root.add_epilogue_lambda_guard(self.quiet(memory.family_condition(guard, self.request)), parts, None)

    def add_offset(self, guard: OffsetGuard, parts: list[str]) -> None:
        offset = guard.offset
        test = self.quiet(lambda found: found.storage_offset() == offset)
        self.reach.manager(guard.source).add_lambda_guard(test, parts, None)

    def add_autograd(self, guard: AutogradGuard, parts: list[str]) -> None:
        known = (guard.leaf, guard.retains)
        test = self.quiet(lambda found: (found.is_leaf, found.retains_grad) == known)
        self.reach.manager(guard.source).add_lambda_guard(test, parts, None)

    def add_global_state(self, guard: GlobalStateGuard, parts: list[str]) -> None:
        guard_tree.global_state(self.root, parts)

    def add_answer(self, guard: AnswerGuard, parts: list[str]) -> None:
        def as_before(_: object) -> bool:
            try:
                return same(guard.fn(*guard.args, **guard.kwargs), guard.answer)
            except Exception:  # what it raises now, the program is to see
                return False

        self.root.add_epilogue_lambda_guard(as_before, parts, None)

    def add_shape(self, guard: ShapeGuard, parts: list[str]) -> None:
        """Added at the end, all in one test: see `add_shapes`."""

    def add_shapes(self, guards: list[ShapeGuard]) -> tuple[tuple[str, Condition], ...]:
        """One test for all shape conditions, run after all other guards; returns one test each, for `explain`."""
        if not guards:
            return ()
        writer = Expressions(self.request)
        writer.namespace.update(symbols.NAMESPACE)
        texts = [describe(guard) for guard in guards]
        everything = self.quiet(_condition(writer, guards))
        self.root.add_epilogue_lambda_guard(everything, texts, None)
        return tuple((text, self.quiet(_condition(writer, [guard]))) for text, guard in zip(texts, guards))


def _condition(writer: Expressions, guards: list[ShapeGuard]) -> Condition:
    """`lambda L: (lambda s0, s1: (expr) and (expr))(L['x'].size(0), L['y'].size(1))`: each number is read once."""
    names = dict(item for guard in guards for item in guard.names)
    values = (quantity.read(writer.of(quantity.source)) for quantity in names.values())
    clauses = " and ".join(f"({guard.expr})" for guard in guards)
    condition: Condition = eval(
        f"lambda L: (lambda {', '.join(names)}: {clauses})({', '.join(values)})", writer.namespace
    )
    return condition


_ADD: dict[type, Callable[[_Builder, Any, list[str]], None]] = {
    TypeGuard: _Builder.add_type,
    IdGuard: _Builder.add_id,
    ValueGuard: _Builder.add_value,
    TensorGuard: _Builder.add_tensor,
    PartsGuard: _Builder.add_parts,
    LengthGuard: _Builder.add_length,
    DictKeysGuard: _Builder.add_keys,
    AbsentGuard: _Builder.add_absent,
    SlotGuard: _Builder.add_slot,
    AliasGuard: _Builder.add_alias,
    NoAliasGuard: _Builder.add_no_alias,
    StorageGuard: _Builder.add_storage,
    FamilyGuard: _Builder.add_family,
    OffsetGuard: _Builder.add_offset,
    AutogradGuard: _Builder.add_autograd,
    GlobalStateGuard: _Builder.add_global_state,
    AnswerGuard: _Builder.add_answer,
    ShapeGuard: _Builder.add_shape,
}
