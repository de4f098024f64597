"""A kind of source or guard is one class: those that are there say all that is asked of them, and a new one works."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import attrs
import pytest
import torch
from torch import nn

import armature
from armature.frame import sources
from armature.frame.guards import kinds
from armature.frame.guards.explain import explained, failed
from armature.frame.guards.guard import Guard, Quantity, TreeBuilder
from armature.frame.guards.text import short, shown
from armature.frame.guards.tree import build
from armature.frame.source import Expressions, Loader, Reach, Resolver, Source
from armature.torch_abi.guard_tree import Manager
from tests.support.tracing import trace

SOURCES = [kind for kind in vars(sources).values() if isinstance(kind, type) and kind.__base__ is Source]
GUARDS = [kind for kind in vars(kinds).values() if isinstance(kind, type) and kind.__base__ is Guard]


def test_the_kinds_are_found() -> None:
    assert len(SOURCES) > 10 and len(GUARDS) > 10


@pytest.mark.parametrize("kind", SOURCES, ids=lambda kind: kind.__name__)
def test_a_source_says_how_it_is_read_reached_loaded_and_shown(kind: type[Source]) -> None:
    asked = {"expr", "load"} if kind is sources.PrecallSource else {"expr", "read", "text", "manager", "load"}
    assert asked <= vars(kind).keys()


@pytest.mark.parametrize("kind", GUARDS, ids=lambda kind: kind.__name__)
def test_a_guard_says_what_it_records_how_it_is_checked_and_its_words(kind: type[Guard]) -> None:
    assert {"words", "add"} <= vars(kind).keys()
    assert attrs.fields(kind)[-1].name == "user"  # type: ignore[arg-type]


# What a new kind takes: the two classes below, as docs/recipes.md says.


@attrs.frozen(cache_hash=True)
class LastSource(Source):
    """`base[-1]`, whatever the length."""

    base: Source

    @property
    def expr(self) -> str:
        return f"{self.base.expr}[-1]"

    def read(self, frame: Resolver) -> Any:
        return frame.value(self.base)[-1]

    def text(self, texts: Expressions) -> str:
        return f"{texts.of(self.base)}[-1]"

    def manager(self, reach: Reach) -> Manager:
        return reach.manager(self.base).lambda_manager(last, self.expr, None, None)

    def load(self, out: Loader) -> None:
        out.null_function(last)
        out.load_source(self.base)
        out.call(1)


def last(items: list[Any]) -> Any:
    return items[-1]


@attrs.frozen(eq=False)
class EvenGuard(Guard):
    """`source % 2 == 0`."""

    source: Source
    user: str = ""

    @property
    def words(self) -> str:
        return f"{self.source.expr} is even"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        tree.manager(self.source).add_lambda_guard(lambda found: found % 2 == 0, parts, None)


def test_a_new_source_and_a_new_guard(make_request: Callable[..., Any]) -> None:
    def fn(x: Any) -> Any:
        return x

    source = LastSource(sources.LocalSource("x"))
    tree = build([EvenGuard(source, "model.py:3"), EvenGuard(source)], make_request(fn, [1, 2]))
    assert tree.texts == ("x[-1] is even    (model.py:3)",)  # the same guard again is left out
    assert tree.check({"x": [1, 2]}) and tree.check({"x": [4]})
    assert failed(tree, {"x": [2, 1]}) == tree.texts
    shape = kinds.ShapeGuard("n > 2", (("n", Quantity(source)),))
    assert build([shape], make_request(fn, [3])).check({"x": [0, 3]})


@attrs.frozen(eq=False)
class LessGuard(Guard):
    """`first < second`: a kind about two objects."""

    first: Source
    second: Source
    user: str = ""

    @property
    def numbers(self) -> tuple[Quantity, ...]:
        return Quantity(self.first), Quantity(self.second)

    @property
    def words(self) -> str:
        return f"{self.first.expr} < {self.second.expr}"

    def add(self, tree: TreeBuilder, parts: list[str]) -> None:
        writer = Expressions(tree.request)
        text = f"lambda L: {writer.of(self.first)} < {writer.of(self.second)}"
        tree.add_last(eval(text, writer.namespace), parts)


def test_a_failure_of_a_new_kind_about_two_objects_is_explained(make_request: Callable[..., Any]) -> None:
    def fn(x: int, y: int) -> int:
        return x + y

    x, y = sources.LocalSource("x"), sources.LocalSource("y")
    less = LessGuard(x, y, "model.py:3")
    assert less.key != LessGuard(y, x).key and less.key == LessGuard(x, y).key
    tree, request = build([less], make_request(fn, 1, 2)), make_request(fn, 5, 4)
    (text,) = failed(tree, {"x": 5, "y": 4})
    assert explained(tree, text, request).words == "x < y no longer holds: x is now 5 and y is now 4"


def test_code_loads_a_new_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: Any, out: Loader) -> None:
        loaded.append(self.base.expr)
        LastSource(self.base).load(out)

    def fn(items: list[torch.Tensor]) -> torch.Tensor:
        return items[0] + 1

    loaded: list[str] = []
    monkeypatch.setattr(sources.ItemSource, "load", read)
    run = trace(fn, [torch.ones(2)]).run
    assert isinstance(run, FunctionType) and loaded == ["items"]
    assert torch.equal(run([torch.zeros(2), torch.ones(2)]), torch.full((2,), 2.0)), "the last one was loaded"


def test_tables_of_a_module_are_loaded_by_their_names() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    code = trace(lambda m, x: m(x), model, torch.ones(1, 2)).run.__code__
    assert "_modules" in code.co_names and "_modules" not in code.co_consts


def test_an_integer_that_python_does_not_write_can_be_guarded_and_told() -> None:
    large = 1 << 2_000_000
    assert shown(large) == short(large) == "an int of 2000001 bits"
    compiled = armature.compile(lambda x, n: x + (n > 1), backend="eager", dynamic=False)
    x = torch.ones(2)
    assert torch.equal(compiled(x, large), x + 1) and torch.equal(compiled(x, 0), x)
