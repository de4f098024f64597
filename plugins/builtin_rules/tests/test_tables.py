"""The tables as data, and that the rule book says what they say."""

from __future__ import annotations

import copy
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path

import numpy
import pytest
import torch

from armature import plugins
from armature.introspection import (
    MISSING,
    describe,
    find_loaded,
    is_module,
    is_written_in_c,
    layers,
    same_function,
    wrapped_by_decorator,
)
from armature.plugin_api import Decision, RuleOrigin, Subject
from armature.rules import RuleBook
from armature.testing.rules_kit import RulesConformance, book_with
from armature_builtin_rules import builtin_functions, derived, load, plugin

ROWS = [rule for table in load.rules() for rule in table.rules("test")]
BY_FILE = {
    path.name: [rule for table in load.read(path) for rule in table.rules("test")]
    for path in sorted(load.DATA.glob("*.toml"))
}


@pytest.fixture(scope="module")
def book() -> RuleBook:
    return book_with(builtin_rules=plugin)


class TestRules(RulesConformance):
    plugin = plugin
    verdicts = {
        "torch.add": Decision.IN_GRAPH,
        "torch.nn.functional.softmax": Decision.IN_GRAPH,
        "torch.nn.Linear#forward": Decision.INLINE,
        "torch.nn.Linear": Decision.INLINE,
        "torch.manual_seed": Decision.SKIP,
        "torch.Tensor#split": Decision.IN_GRAPH,
        "torch.Tensor#add": Decision.IN_GRAPH,
        "torch.Tensor#norm": Decision.INLINE,
        "torch.save": Decision.SKIP,
        "torch.autograd.backward": Decision.SKIP,
        "copy.deepcopy": Decision.INLINE,
        "copy._reconstruct": Decision.SKIP,
        "numpy.testing.assert_equal": Decision.SKIP,
        "builtins.print": Decision.SKIP,
        "builtins.len": Decision.IN_GRAPH,
        "math.sqrt": Decision.IN_GRAPH,
        torch.ops.aten.add.Tensor: Decision.IN_GRAPH,
        torch.ops.aten.add: Decision.IN_GRAPH,
    }
    # Names of other devices, versions and builds of torch.
    absent = frozenset(str(rule.target) for rule in ROWS)


def test_how_many() -> None:
    counts = {name: len(rows) for name, rows in BY_FILE.items()}
    assert counts["torch_c.toml"] > 1_250
    assert counts["torch_python.toml"] > 290
    assert counts["acts.toml"] > 850
    assert sum(counts.values()) == len(ROWS)


def test_no_name_twice() -> None:
    assert [name for name, count in Counter(rule.target for rule in ROWS).items() if count > 1] == []


@pytest.mark.parametrize("file", BY_FILE)
def test_each_row_knows_its_line(file: str) -> None:
    lines = (load.DATA / file).read_text().splitlines()
    for rule in BY_FILE[file]:
        assert rule.origin is not None
        assert str(rule.target).endswith(lines[rule.origin.line - 1])
        assert len(rule.reason) > 15


def test_most_names_exist_here() -> None:
    known = [rule for rule in ROWS if find_loaded(str(rule.target)) is not MISSING]
    assert len(known) > 0.85 * len(ROWS)


def test_the_book_agrees_with_the_tables(book: RuleBook) -> None:
    """What two names stand for is one object: the tables must not contradict each other about it either."""
    wrong = []
    for rule in ROWS:
        found = find_loaded(str(rule.target))
        if found is MISSING or is_module(found):
            continue
        verdict = book.verdict(found)
        if verdict.decision is not rule.decision:
            wrong.append((rule.target, rule.decision, verdict))
    assert wrong == []


@pytest.mark.parametrize("decision", [Decision.INLINE, Decision.SKIP])
def test_functions_of_listed_modules(book: RuleBook, decision: Decision) -> None:
    """A Python function that no row names has the verdict of its module: inline where any list above says so."""
    objects = [layer for rule in ROWS for layer in same_function(find_loaded(str(rule.target)))]
    functions = [layer for layer in objects if type(layer) is types.FunctionType]
    named = {id(layer) for layer in objects} | {id(f) for g in functions for f in wrapped_by_decorator(g)}
    named |= {id(polyfill.original) for polyfill in plugin.armature_polyfills()}
    lists = {d: {str(r.target) for r in ROWS if r.decision is d} for d in Decision}
    seen = 0
    for rule in ROWS:
        module = sys.modules.get(str(rule.target).removesuffix(".__init__"))
        if rule.decision is not decision or type(module) is not types.ModuleType:
            continue
        for function in list(vars(module).values()):
            if type(function) is not types.FunctionType or function.__globals__ is not vars(module):
                continue
            if id(function) in named or decision is not expected(module.__name__, lists):
                continue
            assert book.verdict(function).decision is decision, function
            seen += 1
    assert seen > 100


def expected(module: str, lists: dict[Decision, set[str]]) -> Decision:
    parts = module.split(".")
    above = {".".join(parts[:end]) for end in range(1, len(parts) + 1)} | {f"{module}.__init__"}
    return Decision.SKIP if above & lists[Decision.SKIP] and not above & lists[Decision.INLINE] else Decision.INLINE


def test_the_sets_are_computed_by_identity() -> None:
    known = derived.known_objects()
    assert known[id(torch.Tensor.add)].reason == derived.TENSOR_METHOD
    assert known[id(print)].decision is Decision.SKIP
    assert known[id(object.__init__)].reason == derived.OWN_WAY


def test_what_python_does_in_a_way_of_its_own_has_a_handler_or_a_method() -> None:
    """Of each such type a handler makes objects; what their methods do, the values know."""
    own = [known.obj for known in derived.known_objects().values() if known.reason == derived.OWN_WAY]
    tables = plugins.manager().tables()
    assert [obj for obj in own if isinstance(obj, type) and tables.handler(obj) is None] == []


def test_importing_the_plugin_reads_no_table() -> None:
    code = (
        "import tomllib; tomllib.loads = None\n"
        "import armature_builtin_rules.plugin as p\n"
        "assert p.load.rules.cache_info().misses == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_broken_table_is_told(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text('[[rules]]\ndecision = "skip"\nreason = "because"\nnames = \'a\'\n')
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        list(load.read(path))


def test_rows_may_be_limited_and_ranked(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    head = '[[rules]]\ndecision = "skip"\nreason = "because"\npriority = 3\nrequires = "torch>=2.12"\n'
    path.write_text(f"{head}names = '''\na.b\n'''\n")
    (table,) = load.read(path)
    (row,) = table.rules("mine")
    assert row.origin == RuleOrigin("mine", str(path), 7)
    assert (row.target, row.priority, row.requires) == ("a.b", 3, "torch>=2.12")


def test_overridable_functions_are_computed() -> None:
    """Those in C go in the graph, with or without a row: what a later torch adds is known at once."""
    functions = derived.overridable().values()
    assert len(functions) > 500
    assert torch.add in functions
    named = {id(layer) for rule in ROWS for layer in same_function(find_loaded(str(rule.target)))}
    assert sum(id(function) in named for function in functions) > 0.9 * len(functions)
    for function in functions:
        verdict = derived.decide(Subject(function, "", "nameless"))
        assert verdict is not None
        assert verdict.decision is Decision.IN_GRAPH


def test_polyfilled_functions_are_inlined(book: RuleBook) -> None:
    """None of them has a rule that would hide it, also where its module is skipped: its own frames are, still."""
    assert book.frame_verdict(copy.deepcopy.__code__, vars(copy)).decision is Decision.SKIP
    for polyfill in plugin.armature_polyfills():
        verdict = book.verdict(polyfill.original)
        known = derived.known_objects().get(id(polyfill.original))
        assert verdict.decision is (Decision.INLINE if known is None else known.decision), polyfill


def test_numpy_is_one_set(book: RuleBook) -> None:
    """Functions in Python and in C, universal functions and classes of numpy: skipped, by the rule for the package."""
    functions = [fn for name, fn in vars(numpy).items() if callable(fn) and not name.startswith("_")]
    own = [fn for fn in functions if describe(list(layers(fn))[-1]).module.partition(".")[0] == "numpy"]
    assert len(own) > 400
    for function in [*own, numpy.linalg.norm, numpy.random.rand, numpy.fft.fft, numpy.ndarray.sum]:
        verdict = book.verdict(function)
        assert verdict.decision is Decision.SKIP, function
        assert verdict.reason


def test_functions_of_python_are_not_said_to_have_no_rule(book: RuleBook) -> None:
    rows = builtin_functions.handlers()
    targets = [fn for row in rows for fn in row.targets if is_written_in_c(fn)]
    assert len(targets) > 100 and all(row.complete and row.priority < 0 for row in rows)
    assert [fn for fn in targets if "no rule, handler or polyfill" in book.verdict(fn).reason] == []
