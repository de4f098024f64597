"""`Value.slots`: a value supports the operations of the language that its class declares, and no others."""

from __future__ import annotations

import importlib
import pkgutil
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from armature.errors import UndeclaredSlots
from armature.trace.base import Value
from armature.trace.semantics import operators
from armature.trace.slots import VERBS
from armature.trace.values.constant import ConstantValue
from armature.trace.values.mapping import DictValue

# Verbs that work for any class: by another slot, by a constant, or by the object's identity.
GENERAL = {"contains", "advance", "backwards", "key"}
# Verbs that the base class answers by `call_method`.
BY_METHOD = {"get_item", "set_item", "delete_item", "unary"}


class Broken(Exception):
    pass


class Plus:
    """A class whose objects have more special methods than `PlusValue` declares."""

    def __add__(self, other: object) -> object: ...

    def __mul__(self, other: object) -> object: ...

    def __neg__(self) -> object: ...

    def __getitem__(self, key: object) -> object: ...


@attrs.define(eq=False)
class PlusValue(Value):
    """Would answer any operator, by any method."""

    slots = frozenset({"__add__", "__iadd__", "__neg__"})

    def python_type(self) -> type:
        return Plus

    def binary(self, tracer: Any, name: str, other: Value) -> Value:
        return ConstantValue(name)

    def call_method(self, tracer: Any, name: str, args: Any, kwargs: Any) -> Value:
        return ConstantValue(name)


def trace() -> Any:
    def graph_break(type_id: str, **facts: object) -> None:
        raise Broken(type_id)

    overrides = SimpleNamespace(present=False)
    guards = SimpleNamespace(lookups=set(), lacks=lambda *args: None)
    return SimpleNamespace(graph_break=graph_break, overrides=overrides, guards=guards, constant=ConstantValue)


def classes(kind: type[Any] = Value) -> set[type[Any]]:
    return {kind}.union(*(classes(below) for below in kind.__subclasses__()))


def test_an_operator_asks_for_declared_methods_only() -> None:
    value, one = PlusValue(), ConstantValue(1)
    assert operators.by_methods(trace(), "__add__", "__radd__", value, one).as_constant() == "__add__"
    assert operators.by_methods(trace(), "__mul__", "__rmul__", value, one) is None
    assert operators.operate_in_place(trace(), "add", value, one).as_constant() == "__iadd__"
    with pytest.raises(Broken, match="operator-of-objects"):
        operators.operate_in_place(trace(), "mul", value, one)


def test_a_unary_operator_or_an_item_asks_for_declared_methods_only() -> None:
    value = PlusValue()
    assert operators.operate_unary(trace(), "neg", value).as_constant() == "__neg__"
    with pytest.raises(Broken, match="method-of-value"):
        value.get_item(trace(), ConstantValue(1))


def test_truth_follows_from_the_length_where_there_is_one() -> None:
    assert PlusValue().truth(trace())
    assert not DictValue({}).truth(trace())


def test_a_class_that_overrides_what_it_does_not_declare_is_refused() -> None:
    with pytest.raises(UndeclaredSlots, match=r"A114(.|\n)*Longer declares no slot for what it overrides: length"):

        class Longer(PlusValue):
            def length(self, tracer: Any) -> int:
                return 1


def test_a_misspelt_slot_is_refused() -> None:
    with pytest.raises(UndeclaredSlots, match="declares unknown slots: __lenght__"):

        class Misspelt(Value):
            slots = frozenset({"__lenght__"})


def test_every_verb_of_the_table_is_one_of_values() -> None:
    assert all(hasattr(Value, verb) for verb in VERBS.values())


def test_the_classes_of_values_implement_what_they_declare() -> None:
    for plugin in ("armature_builtin_rules", "armature_torch_handlers"):
        found = pkgutil.walk_packages(importlib.import_module(plugin).__path__, f"{plugin}.")
        for module in (one.name for one in found if "examples" not in one.name):
            importlib.import_module(module)
    missing = []
    for cls in classes():
        for name in cls.slots if cls.__module__.startswith("armature") else ():
            verb = VERBS[name]
            own = getattr(cls, verb) is not getattr(Value, verb)
            by_method = verb in BY_METHOD and cls.call_method is not Value.call_method
            if not (own or by_method or verb in GENERAL):
                missing.append(f"{cls.__module__}.{cls.__qualname__} {name}")
    assert missing == []
