"""Answers are kept by identity, and an id that is used again does not bring back another object's answer."""

from __future__ import annotations

import gc
import importlib
import random
import sys
import timeit
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from armature.hookspecs import hookimpl
from armature.plugins import PluginManager
from armature.rules import Decision, Rule
from armature.testing.rules_kit import book_of, rows


def make(source: str, module: str) -> types.FunctionType:
    namespace: dict[str, object] = {"__name__": module}
    exec(source, namespace)
    made = namespace["f"]
    assert isinstance(made, types.FunctionType)
    return made


class Callable_:
    __slots__ = ()

    def __call__(self) -> int:
        return 1


def test_reused_ids() -> None:
    book = book_of(Rule("inlined", Decision.INLINE, "in"), Rule("skipped", Decision.SKIP, "out"))
    chance, ids, reused = random.Random(0), set(), 0
    alive: list[types.FunctionType] = []
    for step in range(20_000):
        module = chance.choice(["inlined", "skipped"])
        function = make("def f(): return 1", module)
        reused += id(function) in ids
        ids.add(id(function))
        assert book.verdict(function).reason == {"inlined": "in", "skipped": "out"}[module]
        if step % 3 == 0:
            alive.append(function)
        if step % 5_000 == 0:
            alive.clear()
            gc.collect()
    assert reused > 1_000


def test_an_entry_dies_with_its_object() -> None:
    book = book_of(Rule("inlined", Decision.INLINE, "in"))
    function = make("def f(): return 1", "inlined")
    book.verdict(function)
    key = id(function)
    assert key in book._cache.verdicts
    del function
    gc.collect()
    assert key not in book._cache.verdicts


def test_instances_that_cannot_be_watched_are_not_kept_alive() -> None:
    book = book_of()
    held = Callable_()
    assert book.verdict(held).decision is Decision.INLINE
    assert id(held) not in book._cache.verdicts


def test_a_class_whose_instances_cannot_be_watched_goes_with_its_verdict() -> None:
    book = book_of()

    class Own:
        __slots__ = ()

        def __call__(self) -> type:
            return __class__  # type: ignore[name-defined,no-any-return]  # its function leads to the class

    assert book.verdict(Own()).decision is Decision.INLINE
    assert len(book._cache.classes) == 1
    del Own
    gc.collect()
    assert book._cache.classes == {}


def test_a_module_that_is_loaded_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "late_module.py").write_text("def f():\n    return 1\n\ng = f\n")
    book = book_of(Rule("late_module.g", Decision.SKIP, "late"))
    assert book.verdict(torch.add).decision is Decision.SKIP
    assert "late_module" not in sys.modules
    module = importlib.import_module("late_module")
    assert book.verdict(module.f).reason == "late"


def test_a_module_that_is_reloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "again_module.py").write_text("def f():\n    return 1\n")
    book = book_of(Rule("again_module.f", Decision.SKIP, "named"))
    module = importlib.import_module("again_module")
    first = module.f
    assert book.verdict(first).reason == "named"
    importlib.reload(module)
    assert module.f is not first
    assert book.verdict(module.f).reason == "named"


def reloaded(path: Path, text: str) -> types.ModuleType:
    """The module made anew in place, from another text."""
    module = sys.modules[path.stem]
    path.write_text(text)
    for name in [name for name in vars(module) if not name.startswith("__")]:
        delattr(module, name)
    exec(compile(text, str(path), "exec"), vars(module))
    return module


def test_a_function_that_is_deleted_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, by another name of its module, as a method, and as a frame."""
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "remade_module.py"
    text = "def f():\n    return {0}\n\ng = lambda: {0}\n\nclass C:\n    def m(self):\n        return {0}\n"
    path.write_text(text.format(1))
    importlib.import_module("remade_module")
    book = book_of(
        Rule("remade_module.f", Decision.SKIP, "function"),
        Rule("remade_module.g", Decision.SKIP, "lambda"),
        Rule("remade_module.C#m", Decision.SKIP, "method"),
    )
    for number in (1, 2, 3):
        module = reloaded(path, text.format(number))
        gc.collect()
        assert [book.verdict(o).reason for o in (module.f, module.g, module.C().m)] == ["function", "lambda", "method"]
        assert book.frame_verdict(module.f.__code__, vars(module)).reason == "function"
        other = make("def f(): return 1", "other_module")
        assert book.verdict(other).decision is Decision.INLINE


def test_an_alias_that_is_loaded_after_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "plain_module.py").write_text("def f():\n    return 1\n")
    (tmp_path / "alias_module.py").write_text("from plain_module import f as other_name\n")
    plain = importlib.import_module("plain_module")
    book = book_of(Rule("alias_module.other_name", Decision.SKIP, "by its alias"))
    assert book.verdict(plain.f).decision is Decision.INLINE
    importlib.import_module("alias_module")
    book.verdict(make("def f(): return 1", "elsewhere"))  # any new question looks at what was loaded
    assert book.verdict(plain.f).reason == "by its alias"


def test_a_second_name_that_is_loaded_later_and_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "first_module.py").write_text("def f():\n    return 1\n")
    (tmp_path / "second_module.py").write_text("from first_module import f as g\n")
    first = importlib.import_module("first_module")
    book = book_of(
        Rule("first_module.f", Decision.SKIP, "its own name"),
        Rule("second_module.g", Decision.IN_GRAPH, "its other name", priority=1),
    )
    assert book.verdict(first.f).reason == "its own name"
    importlib.import_module("second_module")
    book.verdict(make("def f(): return 1", "elsewhere"))
    assert book.verdict(first.f).reason == "its other name"


def test_a_method_in_c_is_that_of_the_class_it_comes_from() -> None:
    """Whatever the class of the object it is bound to makes of its name."""

    class Own(list):  # type: ignore[type-arg]
        def append(self, item: object) -> None: ...

        def __len__(self) -> int:
            return 0

    own, book = (
        Own(),
        book_of(Rule(list.append, Decision.IN_GRAPH, "in C"), Rule(list.__len__, Decision.IN_GRAPH, "in C")),
    )
    assert book.verdict(super(Own, own).append).reason == "in C"
    assert book.verdict(super(Own, own).__len__).reason == "in C"
    assert book.verdict(own.append).decision is Decision.INLINE
    assert book.verdict(own.__len__).decision is Decision.INLINE


def test_plugins_that_come_and_go() -> None:
    function, manager = make("def f(): return 1", "users"), PluginManager(find=lambda: ())
    plain = manager.tables().rule_book.verdict(function)
    assert plain.decision is Decision.INLINE
    for decision in (Decision.SKIP, Decision.IN_GRAPH, Decision.SKIP):
        plugin = types.SimpleNamespace(armature_rules=hookimpl(rows(Rule(function, decision, f"now {decision.value}"))))
        with manager.registered(plugin, "passing"):
            verdict = manager.tables().rule_book.verdict(function)
            assert (verdict.decision, verdict.reason) == (decision, f"now {decision.value}")
        assert manager.tables().rule_book.verdict(function) == plain


def test_questions_from_many_threads() -> None:
    functions = [make("def f(): return 1", name) for name in ("inlined", "skipped") * 50]
    for _ in range(20):
        book = book_of(Rule("inlined", Decision.INLINE, "in"), Rule("skipped", Decision.SKIP, "out"))
        with ThreadPoolExecutor(8) as pool:
            reasons = [verdict.reason for verdict in pool.map(book.verdict, functions)]
        assert reasons == ["in", "out"] * 50
        assert len(book.missing()) == 2  # no module of these names: told once each


def test_an_impostor_is_not_the_function_that_a_rule_names() -> None:
    book = book_of(Rule("torch.nn.functional.one_hot", Decision.SKIP, "the real one"))
    namespace = {"__name__": "torch.nn.functional"}
    exec("def one_hot(): return 1", namespace)
    assert book.verdict(namespace["one_hot"]).reason != "the real one"


def test_the_second_question_is_cheap() -> None:
    book = book_of(Rule("torch.nn", Decision.INLINE, "nn"))
    book.verdict(torch.nn.Linear.forward)
    best = min(timeit.repeat(lambda: book.verdict(torch.nn.Linear.forward), number=1000, repeat=20)) / 1000
    assert best < 20e-6  # the budget is 1 us, measured in the benchmarks; here only "no work is done again"
