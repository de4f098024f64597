"""Functions of the library, compiled: one graph, the results of eager mode, and breaks that say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tinyframe
import torch
from armature_tinyframe import passes
from tinyframe import Frame, Options, files

import armature
from armature.plugin_api import BreakEvent, CompileEvent, EventKind, Pass, hookimpl
from armature.plugins import PluginManager


class Watcher:
    """Counts compilations and breaks, and the calls of `finite` that the pass has left."""

    def __init__(self) -> None:
        self.compiled = 0
        self.breaks: list[BreakEvent] = []
        self.left: list[int] = []

    @hookimpl
    def armature_compile_event(self, event: CompileEvent) -> None:
        self.compiled += event.kind is EventKind.FINISH

    @hookimpl
    def armature_graph_break(self, event: BreakEvent) -> None:
        self.breaks.append(event)

    @hookimpl
    def armature_passes(self) -> list[Pass]:
        return [Pass("count-finite", "pre_grad", self.count, after=("tinyframe-merge-finite",))]

    def count(self, module: Any, ctx: object) -> Any:
        self.left.append(sum(passes.is_finite(node) for node in module.graph.nodes))
        return module


@pytest.fixture
def watcher(manager: PluginManager) -> Iterator[Watcher]:
    armature.reset()
    watching = Watcher()
    with manager.registered(watching, "watcher"):
        yield watching
    armature.reset()


def frame(*names: str, rows: int = 16) -> Frame:
    torch.manual_seed(0)
    return Frame(**{name: torch.randn(rows) for name in names})


def test_a_frame_is_traced_in_one_graph(watcher: Watcher) -> None:
    compiled = armature.compile(tinyframe.standardize, fullgraph=True)
    prices, options = frame("price", "amount"), Options(epsilon=1e-3)
    for _ in range(2):
        torch.testing.assert_close(compiled(prices, options), tinyframe.standardize(prices, options))
    assert watcher.compiled == 1
    assert not watcher.breaks


def test_other_columns_are_noticed(watcher: Watcher) -> None:
    compiled = armature.compile(tinyframe.standardize, fullgraph=True)
    options = Options()
    for names in (("price", "amount"), ("price", "amount", "weight"), ("price",)):
        found = compiled(frame(*names), options)
        assert found.shape == (16, len(names))
        torch.testing.assert_close(found, tinyframe.standardize(frame(*names), options))
    assert watcher.compiled == 3


def test_other_options_are_noticed(watcher: Watcher) -> None:
    compiled = armature.compile(tinyframe.total, fullgraph=True)
    prices = frame("price", "amount")
    for options in (Options(), Options(scale=2.0), Options(scale=-1.0)):
        torch.testing.assert_close(compiled(prices, options), tinyframe.total(prices, options))
    assert watcher.compiled == 3


def test_the_pass_merges_calls_in_the_captured_graph(watcher: Watcher) -> None:
    armature.compile(tinyframe.total, fullgraph=True)(frame("price", "amount"), Options())
    assert watcher.left == [1]


def test_a_frame_may_be_made_and_returned(watcher: Watcher) -> None:
    def double(given: Frame) -> Frame:
        return Frame(price=given.price * 2, rest=given.amount - 1)

    given = frame("price", "amount")
    found, expected = armature.compile(double, fullgraph=True)(given), double(given)
    assert type(found) is Frame
    assert found.names == expected.names
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right)


def test_a_missing_column_raises_what_eager_raises(watcher: Watcher) -> None:
    def missing(given: Frame) -> torch.Tensor:
        return given.weight * 2

    with pytest.raises(AttributeError, match="there is no column 'weight'"):
        armature.compile(missing)(frame("price"))


def test_a_file_breaks_the_graph_by_name(watcher: Watcher, tmp_path: Path) -> None:
    prices = frame("price", "amount")
    files.save(prices, tmp_path / "prices.pt")

    def loaded(path: Path, scale: torch.Tensor) -> torch.Tensor:
        return tinyframe.load(path).price * scale

    scale = torch.tensor(3.0)
    torch.testing.assert_close(armature.compile(loaded)(tmp_path / "prices.pt", scale), prices.price * 3)
    (event,) = [event for event in watcher.breaks if event.stack[0].file == __file__]
    assert event.type.id == "tinyframe-file"
    assert event.facts["call"] == "tinyframe.load"
