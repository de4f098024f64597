"""Finds the parameters that a kernel of the program does not write through, from its source.

A parameter is followed through names and arithmetic to loads. Any other use (a store, a function of the program, a
method) counts as a write.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from types import FunctionType

import attrs

LANGUAGE = "triton.language"
READS = frozenset(("load",))
# Functions whose result points to the same memory.
LEAD_ON = frozenset(("make_block_ptr", "advance", "broadcast_to", "multiple_of", "max_contiguous", "max_constancy"))
PLAIN = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Tuple, ast.List, ast.Subscript, ast.Slice,
    ast.Starred, ast.Constant, ast.Name,
)  # fmt: skip
STEPS = (ast.Expr, ast.If, ast.While, ast.For, ast.Pass, ast.Break, ast.Continue, ast.Assert, ast.Return)
ASSIGNS = (ast.Assign, ast.AugAssign, ast.AnnAssign)


class Escapes(Exception):
    """A parameter is used where it may be written through."""


def read_only(fn: FunctionType, text: str | None = None) -> frozenset[str]:
    """The parameters of a Python function in Triton's language that are never written through. text: its source."""
    try:
        tree = ast.parse(textwrap.dedent(text or inspect.getsource(fn)))
        function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        known = {**fn.__globals__, **inspect.getclosurevars(fn).nonlocals}
    except (OSError, SyntaxError, StopIteration, TypeError, ValueError):
        return frozenset()
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    known = {name: held for name, held in known.items() if name not in own.union(names)}
    return frozenset(name for name in names if _is_read_only(name, function, known))


def makes_pointers(text: str) -> bool:
    """Whether a kernel's text mentions pointer types, as one does that makes pointers from numbers."""
    return "pointer_type" in text


def _is_read_only(name: str, function: ast.FunctionDef, known: Mapping[str, object]) -> bool:
    flow = Flow(known, {name})
    try:
        size = 0
        while len(flow.names) != size:  # repeat until no name is added
            size = len(flow.names)
            for statement in function.body:
                flow.step(statement)
    except Escapes:
        return False
    return True


@attrs.define(eq=False)
class Flow:
    """The flow of a parameter. names: those that point to its memory."""

    constants: Mapping[str, object]
    names: set[str]

    def step(self, node: ast.stmt) -> None:
        """One statement, with those in it."""
        if isinstance(node, ASSIGNS):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            leads = node.value is not None and self.leads(node.value)
            for target in targets:
                self.assign(target, leads)
            return
        if not isinstance(node, STEPS):
            raise Escapes
        if isinstance(node, ast.For):
            self.assign(node.target, self.leads(node.iter))
        for part in own_expressions(node):
            if self.leads(part) and isinstance(node, ast.Return):
                raise Escapes
        for inner in (*getattr(node, "body", ()), *getattr(node, "orelse", ())):
            self.step(inner)

    def assign(self, target: ast.expr, leads: bool) -> None:
        """A value is assigned to names."""
        if isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self.assign(one, leads)
        elif isinstance(target, ast.Name):
            self.names |= {target.id} if leads else set()
        elif leads or self.leads(target):
            raise Escapes

    def leads(self, node: ast.expr) -> bool:
        """Whether the value of an expression points to the memory."""
        if isinstance(node, ast.Name):
            return node.id in self.names
        if isinstance(node, ast.Attribute):
            return self.leads(node.value) and node.attr != "dtype"
        if isinstance(node, ast.Call):
            return self.call(node)
        found = [self.leads(part) for part in expressions(node)]
        if not isinstance(node, PLAIN) and any(
            isinstance(one, ast.Name) and one.id in self.names for one in ast.walk(node)
        ):
            raise Escapes
        return any(found)

    def call(self, node: ast.Call) -> bool:
        """A call: its effect depends on which of Triton's functions it is."""
        name = self.function(node.func)
        found = [self.leads(part) for part in (*node.args, *(one.value for one in node.keywords))]
        if name in READS or not (any(found) or self.leads(node.func)):
            return False
        if name not in LEAD_ON:
            raise Escapes
        return True

    def function(self, node: ast.expr) -> str:
        """The name of a function of Triton's language; "" for others."""
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.append(node.attr)
            node = node.value
        held = self.constants.get(node.id) if isinstance(node, ast.Name) else None
        for name in reversed(path):
            held = vars(held).get(name) if inspect.ismodule(held) else None
        of_triton = callable(held) and str(getattr(held, "__module__", "")).startswith(LANGUAGE)
        return str(getattr(held, "__name__", "")) if of_triton else ""


def own_expressions(node: ast.stmt) -> Iterator[ast.expr]:
    """The expressions of a statement, without those of nested statements."""
    return (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def expressions(node: ast.AST) -> Iterator[ast.expr]:
    """The direct subexpressions of an expression."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
