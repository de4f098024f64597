"""The catalogue of graph breaks: each place that raises one has a row and each row a place, and the examples do it."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import string
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import armature
from armature import config
from armature.api import public as api
from armature.breaks import events
from armature.breaks.types import BreakEvent, BreakType, Example, HintKind
from armature.errors import Unsupported
from armature.pipeline.session import session
from armature.plugins import manager
from armature.reports.catalogue import Entry
from armature.rules.data import SKIPPED
from armature.testing.handler_kit import Captured, difference_of_outcomes, outcome
from armature_builtin_rules import load

REPOSITORY = Path(__file__).parents[3]
CORE = Path(armature.__file__).parent
PLUGINS = REPOSITORY / "plugins"
ROWS = {row.value.id: row.value for row in manager().tables().registries.break_types.winners()}
WITH_EXAMPLE = [row for row in ROWS.values() if Entry(row, "").example is not None]
OURS = [row for row in ROWS.values() if row.code]
TABLES = [
    importlib.import_module(name) for name in ("armature.trace.break_ids", "armature_torch_handlers.tensor_methods")
]
OF_VERDICTS = frozenset({SKIPPED, "disabled-function", "function-in-c", "handler-declines"})
# Words of the compiler's inside, which say nothing to the author of a program.
INSIDE = ("tracer", "VariableTracker", "Dynamo", "FakeTensor", "AOT", "proxy", "FX", "NotConstant", "GraphBreak")
RAISERS = {"graph_break": 0, "break_at": 1}  # the methods that raise or make one, and which argument is its id
# `call.graph_break` of plugins, whose ids stand where they call it, and the one verb by the other.
PASSES_ON = (CORE / "trace" / "handlers.py", CORE / "trace" / "tracer.py")


def ids_in(node: ast.expr, module: ast.Module) -> Iterator[str]:
    """The ids that an expression in the place of one may be."""
    names = {"verdict.breaks": OF_VERDICTS | {table.breaks for table in load.rules()}}
    held = {name: value for table in TABLES for name, value in vars(table).items() if name.isupper()}
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.IfExp):
        yield from ids_in(node.body, module)
        yield from ids_in(node.orelse, module)
    elif ast.unparse(node) in names:
        yield from names[ast.unparse(node)]
    elif isinstance(node, ast.Call):  # TABLE.get(key, DEFAULT)
        yield from held[ast.unparse(node.func).removesuffix(".get")].values()
        yield held[ast.unparse(node.args[1])]
    elif isinstance(node, ast.Name) and node.id in ("kind", "type_id"):
        found = [
            a.value for a in ast.walk(module) if isinstance(a, ast.Assign) and ast.unparse(a.targets[0]) == node.id
        ]
        for value in found:
            if isinstance(value, ast.Call) and ast.unparse(value.func).endswith(".get"):
                yield from ids_in(value, module)
    else:  # a constant of the module
        for assigned in (a for a in module.body if isinstance(a, ast.Assign)):
            if ast.unparse(assigned.targets[0]) == ast.unparse(node) and isinstance(assigned.value, ast.Constant):
                yield str(assigned.value.value)


def raise_sites() -> Iterator[tuple[str, str, frozenset[str]]]:
    """Each place that raises a graph break: where, the id, and the facts it gives."""
    files = [*CORE.rglob("*.py"), *PLUGINS.glob("*/armature_*/**/*.py")]
    for file in sorted(path for path in files if "examples" not in path.parts):
        module = ast.parse(file.read_text(encoding="utf-8"))
        for call in (node for node in ast.walk(module) if isinstance(node, ast.Call)):
            place = RAISERS.get(ast.unparse(call.func).rpartition(".")[2], len(call.args))
            if place >= len(call.args):
                continue
            facts = frozenset(keyword.arg for keyword in call.keywords if keyword.arg)
            ids = list(ids_in(call.args[place], module))
            assert ids or file in PASSES_ON, f"{file}:{call.lineno}: which types this may raise can't be told"
            for id in ids:
                yield f"{file.name}:{call.lineno}", id, facts


SITES = list(raise_sites())


def fields(row: BreakType) -> set[str]:
    """The facts that a row's texts name."""
    texts = [row.explanation, *(hint.text for hint in row.hints)]
    return {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_each_place_has_a_row_that_names_its_facts() -> None:
    assert len(SITES) > 250
    assert {id for _, id, _ in SITES} - ROWS.keys() == set()
    assert [(where, id) for where, id, facts in SITES if not fields(ROWS[id]) <= facts] == []


def test_each_row_has_a_place() -> None:
    assert {row.id for row in OURS} - {id for _, id, _ in SITES} == set()


@pytest.mark.parametrize("row", OURS, ids=lambda row: row.id)
def test_texts(row: BreakType) -> None:
    assert len(row.hints) >= 2
    assert all(len(hint.text) >= 20 and isinstance(hint.kind, HintKind) for hint in row.hints)
    assert row.cause.endswith(".")
    texts = (row.explanation, row.cause, *(hint.text for hint in row.hints))
    assert [word for word in INSIDE for text in texts if word in text] == []
    assert [word for word in INSIDE if word in row.title] == []
    assert row.explanation.format(**dict.fromkeys(fields(row), "it"))


def test_codes_are_given_once() -> None:
    codes = [code for row in OURS for code in (row.code, *row.also)]
    assert len(codes) == len(set(codes))
    assert all(code[:2] in ("GB", "AB") and code[2:].isdigit() and len(code) == 6 for code in codes)
    assert len(OURS) >= 150


# Types whose examples need what is not on every machine, or in every version of torch. No other type may be without.
WITHOUT_EXAMPLE = {
    *(() if importlib.util.find_spec("triton") else ("triton-launch", "argument-of-outside-call")),
    *(("named-tensor",) if not hasattr(torch.Tensor, "rename") else ()),  # torch before 2.13
}


def test_types_have_examples() -> None:
    assert ROWS.keys() - {row.id for row in WITH_EXAMPLE} == WITHOUT_EXAMPLE
    assert all(row.shown_example and row.shown_example.after for row in WITH_EXAMPLE)


def run(example: Example, *, mended: bool) -> list[BreakEvent]:
    """Run an example in eager mode and compiled, compare, and give its graph breaks."""
    fn, inputs = (example.after, example.inputs_after) if mended else (example.before, example.inputs)
    called = example.called_after if mended else example.called
    assert fn is not None
    compiled = api.compile(fn, backend=Captured(), fullgraph=example.fullgraph)
    with session().recording() as records, config.patch(**dict(example.settings)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with autocast_as_it_was():
            expected = outcome(partial(called, fn), inputs())
        if example.fullgraph and not mended:
            with pytest.raises(Unsupported):
                called(compiled, *inputs())
            expected = found = outcome(partial(called, api.compile(fn, backend=Captured())), inputs())
        else:
            with autocast_as_it_was():
                found = outcome(partial(called, compiled), inputs())
    difference_of_outcomes(as_dense(expected), as_dense(found))
    return [*records.breaks()]


@contextlib.contextmanager
def autocast_as_it_was() -> Iterator[None]:
    """An example leaves autocast on: what comes after is not to see it."""
    enabled, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", enabled)
        torch.set_autocast_dtype("cpu", dtype)
        torch.clear_autocast_cache()


def as_dense(result: Any) -> Any:
    """A result whose layout is not the usual one, as it is compared."""
    return result.to_dense() if isinstance(result, torch.Tensor) and result.layout is not torch.strided else result


@pytest.mark.parametrize("row", WITH_EXAMPLE, ids=lambda row: row.id)
def test_example_breaks(row: BreakType) -> None:
    assert row.shown_example is not None
    found = run(row.shown_example, mended=False)
    assert [event.type.id for event in found[:1]] == [row.id]
    assert fields(row) <= found[0].facts.keys()
    text = events.describe(found[0])
    assert row.id in text and events.explanation(found[0]) in text
    assert found[0].stack[0].file == row.shown_example.before.__code__.co_filename


@pytest.mark.parametrize(
    "row", [row for row in WITH_EXAMPLE if row.shown_example and row.shown_example.after], ids=lambda row: row.id
)
def test_mended_example_is_whole(row: BreakType) -> None:
    assert row.shown_example is not None
    assert run(row.shown_example, mended=True) == []
