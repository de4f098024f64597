"""Each kind of row is picked up, and nothing of armature was changed for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tinyframe
import torch
import torch.fx
from armature_tinyframe import handlers, passes, polyfills, values
from tinyframe import files, operations
from typer.testing import CliRunner

from armature.cli.app import make_app
from armature.plugin_api import Decision
from armature.plugins import PluginManager
from armature.rules.provenance import why


def test_rules() -> None:
    assert why("tinyframe.finite").decision is Decision.IN_GRAPH
    assert why(files.load).decision is Decision.SKIP
    assert "tinyframe" in why("tinyframe.finite").origin.plugin
    assert why("tinyframe.finite").origin.line > 0


def test_what_no_rule_covers_is_traced_into() -> None:
    assert why("tinyframe.standardize").decision is Decision.INLINE


def test_handlers(manager: PluginManager) -> None:
    tables = manager.tables()
    found = tables.handler(tinyframe.option)
    assert found is not None
    assert found.fn is handlers.option
    assert tables.handler(files.load) is tables.handler(files.save)


def test_value_types(manager: PluginManager) -> None:
    found = list(manager.tables().value_types(tinyframe.Frame(price=torch.ones(2))))
    assert [value_type.build for value_type in found] == [values.build]


@pytest.mark.parametrize(
    ("original", "replacement"), [(tinyframe.width, polyfills.width), (tinyframe.joined, polyfills.joined)]
)
def test_polyfills(manager: PluginManager, original: Callable[..., object], replacement: Callable[..., object]) -> None:
    found = manager.tables().polyfill(original)
    assert found is not None
    assert found.replacement is replacement


@pytest.mark.parametrize("columns", [[], [1], [1, 2, 3]])
def test_polyfills_do_what_the_originals_do(columns: list[int]) -> None:
    assert polyfills.width(columns) == tinyframe.width(columns)
    assert polyfills.joined(columns, columns) == tinyframe.joined(columns, columns)
    assert polyfills.joined(tuple(columns), ()) == tinyframe.joined(tuple(columns), ())


def test_break_types(manager: PluginManager) -> None:
    found = manager.tables().break_type("tinyframe-file")
    assert found.explanation.format(call="tinyframe.load").startswith("`tinyframe.load` works on a file")


def test_passes(manager: PluginManager) -> None:
    assert "tinyframe-merge-finite" in [found.name for found in manager.tables().passes("pre_grad")]


@pytest.mark.parametrize(("limits", "left"), [((1e4, 1e4), 1), ((1e4, 1e3), 2)])
def test_the_pass_merges_equal_neighbours_only(limits: tuple[float, float], left: int) -> None:
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    for limit in limits:
        value = graph.call_function(operations.finite, (value, limit))
    graph.output(value)
    module = passes.merge_finite(torch.fx.GraphModule(torch.nn.Module(), graph), None)
    assert sum(passes.is_finite(node) for node in module.graph.nodes) == left
    x = torch.tensor([1.0, float("nan"), float("inf"), -5e3])
    expected = operations.finite(operations.finite(x, limits[0]), limits[1])
    torch.testing.assert_close(module(x), expected)


def test_command(manager: PluginManager) -> None:
    found = CliRunner().invoke(make_app(manager), ["tinyframe"])
    assert found.exit_code == 0
    assert "tinyframe.files: skip" in found.stdout
