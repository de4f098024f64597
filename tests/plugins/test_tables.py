"""Tables: rows found by identity, ranked by priority, and asked without running anybody's code."""

from __future__ import annotations

import functools
import math
from collections import OrderedDict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from armature import config
from armature.errors import DuplicateRow, InvalidRow, PassOrderCycle, UnknownBreakType
from armature.plugin_api import (
    BreakType,
    Decomposition,
    Handler,
    Lowering,
    Pass,
    Polyfill,
    Rule,
    RuleOrigin,
    ValueType,
    hookimpl,
)
from armature.plugins import PluginManager
from armature.plugins.registry import identity_key, name_of
from armature.plugins.tables import Tables
from armature.rules import Decision

ADD = torch.ops.aten.add.Tensor


def tables_with(manager: PluginManager, **rows: Any) -> Tables:
    """Tables of a plugin that gives these rows: `tables_with(manager, handlers=[...])`."""
    plugin = SimpleNamespace()
    for name, value in rows.items():
        setattr(plugin, f"armature_{name}", hookimpl(lambda value=value: value))
    manager.register(plugin, f"plugin-{len(manager.plugins)}")
    return manager.tables()


def trace(call: Any, *args: Any) -> None:
    return None


def build(obj: Any, source: Any, tracer: Any) -> Any:
    return obj


class Hostile:
    """A callable whose equality and hash must never be asked for."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("equality was asked for")

    def __call__(self) -> None: ...


class Thing:
    def method(self) -> None: ...


def test_handlers_are_found_by_identity(manager: PluginManager) -> None:
    hostile = Hostile()
    row = Handler((torch.numel, torch.Tensor.add, hostile, math.sqrt), trace)
    tables = tables_with(manager, handlers=[row])
    assert tables.handler(torch.numel) is row
    assert tables.handler(torch.Tensor.add) is row
    assert tables.handler(hostile) is row
    assert tables.handlers[math.sqrt] is row
    assert tables.handler(Hostile()) is None
    assert tables.handler(torch.add) is None
    assert hostile in tables.handlers
    assert len(tables.handlers) == 4


def test_bound_methods_are_found_though_made_anew_at_each_access(manager: PluginManager) -> None:
    thing = Thing()
    row = Handler((thing.method, dict.fromkeys, [].append), trace)
    tables = tables_with(manager, handlers=[row])
    assert tables.handler(thing.method) is row
    assert tables.handler(Thing().method) is None
    assert tables.handler(dict.fromkeys) is row
    assert tables.handler([].append) is None


def test_keys_tell_objects_apart() -> None:
    assert identity_key(1.0) != identity_key(1)
    assert identity_key(Thing.method) == identity_key(Thing.method)
    assert identity_key(functools.partial(len)) != identity_key(functools.partial(len))


@pytest.mark.parametrize(
    ("obj", "name"),
    [
        (torch.nn.Linear, "torch.nn.modules.linear.Linear"),
        ("json.dumps", "json.dumps"),
        (3, "3"),
        (len, "builtins.len"),
    ],
)
def test_names_of_keys(obj: object, name: str) -> None:
    assert name_of(obj) == name


def test_the_larger_priority_answers_and_the_loser_is_kept(manager: PluginManager) -> None:
    first, second = Handler((torch.numel,), trace), Handler((torch.numel,), trace, priority=1)
    tables_with(manager, handlers=[first])
    tables = tables_with(manager, handlers=[second])
    assert tables.handler(torch.numel) is second
    (contest,) = tables.contests()
    assert not contest.tie
    assert (contest.table, contest.key) == ("handler", "torch._VariableFunctionsClass.numel")
    assert [row.value for row in contest.losers] == [first]


@pytest.mark.usefixtures("lenient")
def test_a_tie_goes_to_the_first_and_is_reported(manager: PluginManager) -> None:
    first, second = Polyfill(math.sqrt, trace), Polyfill(math.sqrt, build)
    tables_with(manager, polyfills=[first])
    tables = tables_with(manager, polyfills=[second])
    assert tables.polyfill(math.sqrt) is first
    (problem,) = manager.problems
    assert isinstance(problem.error, DuplicateRow)
    assert problem.hook == "armature_polyfills"
    assert f"{__file__}:" in str(problem.error)


def test_value_types_by_exact_type_then_by_predicate_in_order(manager: PluginManager) -> None:
    exact = ValueType(OrderedDict, build)
    early = ValueType(lambda obj: isinstance(obj, dict), build, priority=1)
    late = ValueType(lambda obj: isinstance(obj, (dict, list)), build)
    tables = tables_with(manager, value_types=[late, exact, early])
    assert next(tables.value_types(OrderedDict())) is exact
    assert next(tables.value_types({})) is early
    assert next(tables.value_types([])) is late
    assert list(tables.value_types(3)) == []


def test_a_value_type_for_derived_classes_comes_last(manager: PluginManager) -> None:
    class Special(OrderedDict[str, int]):
        pass

    nearest = ValueType(OrderedDict, build, derived=True)
    says_so = ValueType(lambda obj: isinstance(obj, OrderedDict), build)
    tables = tables_with(manager, value_types=[ValueType(dict, build, derived=True), nearest, says_so])
    assert list(tables.value_types(Special())) == [says_so, nearest]
    assert tables.value_type_of_class(Special) is nearest
    assert tables.value_type_of_class(list) is None


def test_a_value_type_is_not_inherited(manager: PluginManager) -> None:
    class Special(OrderedDict[str, int]):
        pass

    tables = tables_with(manager, value_types=[ValueType(OrderedDict, build)])
    assert list(tables.value_types(Special())) == []


def test_break_types_by_id(manager: PluginManager) -> None:
    row = BreakType("mine", "Mine", "`{what}` is mine.", ("Ask.",))
    tables = tables_with(manager, break_types=[row])
    assert tables.break_type("mine") is row
    with pytest.raises(UnknownBreakType, match="yours"):
        tables.break_type("yours")


def test_lowerings_form_a_chain(manager: PluginManager) -> None:
    plain, special = Lowering(ADD, trace), Lowering(ADD, trace, priority=5)
    tables_with(manager, lowerings=[plain])
    tables = tables_with(manager, lowerings=[special])
    assert tables.lowerings[ADD] is special
    assert tables.lowering_chain(ADD) == (special, plain)
    assert tables.lowering_chain(torch.ops.aten.mul.Tensor) == ()


def test_decompositions_by_operator(manager: PluginManager) -> None:
    row = Decomposition(ADD, lambda x, y, alpha=1: x + alpha * y)
    assert tables_with(manager, decompositions=[row]).decompositions == {ADD: row}


@pytest.mark.usefixtures("lenient")
def test_a_packet_is_no_operator(manager: PluginManager) -> None:
    tables = tables_with(manager, lowerings=[Lowering(torch.ops.aten.add, trace)])  # type: ignore[arg-type]
    assert tables.lowerings == {}
    (problem,) = manager.problems
    assert isinstance(problem.error, InvalidRow)
    assert "torch.ops.aten.add.Tensor" in str(problem.error)


def identity(program: object, ctx: object) -> object:
    return program


def order_of(manager: PluginManager, *passes: Pass) -> list[str]:
    return [found.name for found in tables_with(manager, passes=passes).passes("joint")]


def test_passes_run_as_before_and_after_ask(manager: PluginManager) -> None:
    assert order_of(
        manager,
        Pass("last", "joint", identity, after=("middle", "absent")),
        Pass("middle", "joint", identity),
        Pass("first", "joint", identity, before=("middle",)),
        Pass("elsewhere", "loops", identity),
    ) == ["first", "middle", "last"]


def test_passes_that_ask_for_nothing_keep_their_order(manager: PluginManager) -> None:
    assert order_of(manager, *(Pass(name, "joint", identity) for name in "cab")) == ["c", "a", "b"]


@pytest.mark.usefixtures("lenient")
def test_a_cycle_of_passes_is_reported(manager: PluginManager) -> None:
    rows = [Pass("a", "joint", identity, before=("b",)), Pass("b", "joint", identity, before=("a",))]
    assert order_of(manager, *rows) == ["a", "b"]
    (problem,) = manager.problems
    assert isinstance(problem.error, PassOrderCycle)
    with config.patch(strict=True), pytest.raises(PassOrderCycle, match="joint"):
        manager.tables()


def test_a_device_is_asked_for_once(manager: PluginManager) -> None:
    asked: list[str] = []

    class Vendor:
        @hookimpl
        def armature_device_backend(self, device_type: str) -> object | None:
            asked.append(device_type)
            return SimpleNamespace(name="mine") if device_type == "mydev" else None

    manager.register(Vendor(), "vendor")
    tables = manager.tables()
    assert tables.device_backend("mydev") is tables.device_backend("mydev")
    assert tables.device_backend("cpu") is None
    assert tables.device_backend("cpu") is None
    assert asked == ["mydev", "cpu"]


def test_graph_backends_by_name(manager: PluginManager) -> None:
    tables = tables_with(manager, graph_backends={"mine": identity})
    assert dict(tables.graph_backends) == {"mine": identity}


def test_a_row_from_data_names_its_own_place(manager: PluginManager) -> None:
    row = Rule("json", Decision.SKIP, "text", origin=RuleOrigin("whoever", "rules.toml", 7))
    ((_, origin),) = tables_with(manager, rules=[row]).rules
    assert origin == RuleOrigin("plugin-0", "rules.toml", 7)


def test_rules_for_other_versions_do_not_collide(manager: PluginManager) -> None:
    old = Rule("json", Decision.SKIP, "broken", requires="torch<2")
    new = Rule("json", Decision.INLINE, "mended", requires="torch>=2")
    assert list(tables_with(manager, rules=[old, new]).contests()) == []


def test_rows_may_come_from_a_generator_and_none_means_no_rows(manager: PluginManager) -> None:
    class Mine:
        @hookimpl
        def armature_rules(self) -> Iterator[Rule]:
            yield Rule("json", Decision.SKIP, "text")

        @hookimpl
        def armature_handlers(self) -> None:
            return None

    plugin = manager.register(Mine(), "mine")
    tables = manager.tables()
    assert tables.counts(plugin) == {"rules": 1}
    assert len(tables.handlers) == 0
