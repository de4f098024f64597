"""What classes of the program inherit from types in C: the language's own, and those that plugins have rows for."""

from __future__ import annotations

import collections
import functools
import threading
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

import armature
from armature.plugin_api import ConstantValue, Source, Tracing, Value, ValueType, hookimpl
from armature.plugins.plugin_manager import manager
from armature.trace.type_rules import TypeRules
from armature.trace.values.constant import ATOMS
from armature.trace.values.derived import READERS


def rules() -> TypeRules[Value]:
    tables = manager().tables()
    bases, atoms = READERS | tables.base_readers, tables.constant_types | ATOMS
    return TypeRules(bases, atoms, tables.handler, tables.value_type_of_class, tables.functions.chooses_class)


def derived(*bases: type, **members: object) -> type:
    return type("Derived", bases, members)


@pytest.mark.parametrize(
    "kind",
    [dict, list, tuple, int, float, complex, str, bytes, set, frozenset]
    + [collections.OrderedDict, collections.defaultdict],
)
def test_a_class_derives_from_the_nearest_type_with_a_value(kind: type) -> None:
    assert rules().base_of(derived(derived(kind))) is kind
    assert not rules().has_own(derived(kind), "__getattribute__")


@pytest.mark.parametrize("kind", [object, collections.deque, functools.partial, numpy.float64, torch.Size])
def test_other_types_have_no_value_for_what_is_inherited(kind: type) -> None:
    assert rules().base_of(derived(kind) if kind is not torch.Size else kind) is None


def test_the_core_knows_the_language_alone() -> None:
    alone: TypeRules[Value] = TypeRules(READERS, ATOMS, lambda fn: None, lambda cls: None, lambda kind, method: False)
    assert alone.base_of(derived(dict)) is dict and alone.base_of(derived(int)) is int
    assert alone.base_of(derived(collections.OrderedDict)) is None  # a class in C is in between
    assert alone.has_own(derived(collections.deque), "__getattribute__")
    assert alone.instance_of(derived(torch.nn.Module)) is None
    assert alone.is_atom(3) and alone.is_atom(torch.float32) and not alone.is_atom(numpy.float32(3))
    assert rules().is_atom(numpy.float32(3)) and rules().is_atom(numpy.dtype("int8"))


@pytest.mark.parametrize(
    ("kind", "name", "own"),
    [
        (object, "__getattribute__", False),
        (collections.deque, "__getattribute__", False),
        (SimpleNamespace, "__setattr__", False),
        (functools.partial, "__delattr__", False),
        (ValueError, "__setattr__", False),
        (threading.local, "__getattribute__", True),
        (threading.local, "__setattr__", True),
    ],
)
def test_a_method_with_the_handler_of_objects_own_does_the_same(kind: type, name: str, own: bool) -> None:
    assert rules().has_own(derived(kind), name) is own


def test_a_method_in_python_is_the_class_s_own() -> None:
    def look_up(self: Any, name: str) -> object:
        return object.__getattribute__(self, name)

    assert rules().has_own(derived(dict, __getattribute__=look_up), "__getattribute__")
    assert not rules().has_own(derived(dict, __getattribute__=look_up), "__setattr__")


class Rows:
    """A row for what objects of classes derived from deques inherit: here, their length."""

    def __init__(self) -> None:
        self.asked: list[type] = []

    def base(self, obj: Any, kind: type, source: Source, owner: Value, tracer: Tracing) -> Value:
        self.asked.append(kind)
        tracer.guards.length(source, len(obj))
        return ConstantValue(len(obj))

    @hookimpl
    def armature_value_types(self) -> list[ValueType]:
        return [ValueType(collections.deque, lambda obj, source, tracer: None, priority=1, base=self.base)]


class Recent(collections.deque[int]):
    scale = 3


def test_a_plugin_adds_a_type_to_derive_from() -> None:
    rows = Rows()
    with manager().registered(rows, "recent"):
        assert rules().base_of(Recent) is collections.deque
        compiled = armature.compile(lambda x, recent: x * recent.scale)
        assert torch.equal(compiled(torch.ones(2), Recent([1, 2])), torch.full((2,), 3.0))
    assert rows.asked == [collections.deque]
    assert rules().base_of(Recent) is None


def test_object_new_refuses_a_class_derived_from_a_builtin_type() -> None:
    def made(x: torch.Tensor) -> tuple[torch.Tensor, str]:
        try:
            object.__new__(derived_dict)
        except TypeError as error:
            return x + 1, str(error)
        return x, ""

    derived_dict = derived(dict)
    expected = made(torch.ones(2))
    assert "is not safe" in expected[1]
    found = armature.compile(made, fullgraph=True)(torch.ones(2))
    assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


def test_attributes_of_a_namespace_are_set_by_its_own_method() -> None:
    def put(x: torch.Tensor, held: SimpleNamespace) -> torch.Tensor:
        SimpleNamespace.__setattr__(held, "scale", 2)
        return x * held.scale

    held = SimpleNamespace()
    assert torch.equal(armature.compile(put, fullgraph=True)(torch.ones(2), held), torch.full((2,), 2.0))
    assert held.scale == 2
