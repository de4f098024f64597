"""Sizes, cycles and forbidden imports, measured from the source text."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = sorted([*(ROOT / "core").rglob("*.py"), *(p for p in (ROOT / "plugins").glob("*/armature_*/**/*.py"))])
PRIVATE = re.compile(r"torch(\.\w+)*\._(?!_)")  # a name with one leading underscore somewhere below torch


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def dotted(node: ast.AST) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def test_the_product_is_found() -> None:
    assert len(PRODUCT) > 50


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_nothing_from_the_incumbents_compiler(path: Path) -> None:
    tree = parse(path)
    names = [name for _, name in imports_of(tree)]
    names += [dotted(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    bad = [n for n in names if n.startswith(("torch._dynamo", "torch._inductor"))]
    assert not bad, f"{name_of(path)} uses {bad}"


def private_uses(path: Path) -> list[str]:
    tree = parse(path)
    found = [f"{line}: {name}" for line, name in imports_of(tree) if PRIVATE.match(name)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and PRIVATE.match(dotted(node)):
            found.append(f"{node.lineno}: {dotted(node)}")
    # torch._ops.OpOverload is the documented type of an operator in torch.library; it is named in annotations only.
    return [f for f in found if "torch._ops" not in f]


@pytest.mark.parametrize("path", [p for p in PRODUCT if "core" in p.parts and "torch_abi" not in p.parts], ids=name_of)
def test_private_torch_api_stays_in_torch_abi(path: Path) -> None:
    assert private_uses(path) == []


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_sizes(path: Path) -> None:
    lines = path.read_text().count("\n")
    assert lines <= 600, f"{name_of(path)} has {lines} lines"
    for node in ast.walk(parse(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= 60, f"{name_of(path)}:{node.lineno} {node.name} has {length} lines"


def module_of(path: Path) -> str:
    core = path.is_relative_to(ROOT / "core")
    parts = path.relative_to(ROOT / "core" if core else ROOT / "plugins").with_suffix("").parts
    return ".".join(("armature", *parts) if core else parts[1:]).removesuffix(".__init__")


def cycles(below: Path) -> list[list[str]]:
    """Modules that import one another, by one way or several. Imports for annotations count like those that run."""
    modules = {module_of(p): p for p in PRODUCT if p.is_relative_to(below)}
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for module, path in modules.items():
        for _, name in imports_of(parse(path)):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module and target != "armature":
                graph.add_edge(module, target)
    return [sorted(c) for c in networkx.strongly_connected_components(graph) if len(c) > 1]


def test_no_import_cycles() -> None:
    assert cycles(ROOT / "core") == []
    assert cycles(ROOT / "plugins") == []


TRACES = frozenset({"tracer", "tracing", "trace"})  # names of parameters that are a trace
FRAMES = frozenset({"frame", "frames"})  # and in plugins, frames of it


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_a_trace_is_never_any(path: Path) -> None:
    names = TRACES | FRAMES if path.is_relative_to(ROOT / "plugins") else TRACES
    declared = (one for one in ast.walk(parse(path)) if isinstance(one, ast.arg | ast.AnnAssign) and one.annotation)
    found = [
        one.lineno
        for one in declared
        if (one.arg if isinstance(one, ast.arg) else dotted(one.target).rpartition(".")[2]) in names
        and re.search(r"\bAny\b", ast.unparse(one.annotation or one))
    ]
    assert not found, f"{name_of(path)}:{found} takes Any for the trace"


# The example of a graph break at an import statement.
WORLD = (
    "plugins/builtin_rules/armature_builtin_rules/breaks/examples/world.py"  # of which some are about imports inside
)
IMPORTS_INSIDE = {f"{WORLD} {name}" for name in ("imports_module", "import_from_unclear_module", "imports_math")}


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_no_imports_inside_functions(path: Path) -> None:
    for node in ast.walk(parse(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if f"{name_of(path)} {node.name}" in IMPORTS_INSIDE:
                continue
            inner = [n.lineno for n in ast.walk(node) if isinstance(n, (ast.Import, ast.ImportFrom))]
            assert not inner, f"{name_of(path)}:{inner} imports inside {node.name}"


TRACING = [p for p in PRODUCT if p.is_relative_to(ROOT / "core/trace") or p.is_relative_to(ROOT / "plugins")]


@pytest.mark.parametrize("path", [p for p in TRACING if "core" in p.parts], ids=name_of)
def test_what_leaves_the_middle_of_tracing_is_no_exception(path: Path) -> None:
    """`except Exception`, around code that may trace, would give the program a graph break for an error of its own."""
    classes = [node for node in ast.walk(parse(path)) if isinstance(node, ast.ClassDef)]
    bad = [node.name for node in classes if "Exception" in map(ast.unparse, node.bases)]
    assert not bad, f"{name_of(path)}: {bad} should derive from TraceSignal or ArmatureError"


@pytest.mark.parametrize("path", TRACING, ids=name_of)
def test_nothing_stops_what_leaves_the_middle_of_tracing(path: Path) -> None:
    handlers = [node for node in ast.walk(parse(path)) if isinstance(node, ast.ExceptHandler)]
    named = [(node, "" if node.type is None else ast.unparse(node.type)) for node in handlers]
    wide = [node for node, name in named if not name or "BaseException" in name or "TraceSignal" in name]
    bad = [node.lineno for node in wide if not isinstance(node.body[-1], ast.Raise)]
    assert not bad, f"{name_of(path)}: lines {bad} end without raising again what they have caught"
