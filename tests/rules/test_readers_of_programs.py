"""Code that reads programs runs as it is: compiled, it would be guarded on each node of a syntax tree."""

from __future__ import annotations

import ast
import warnings

import torch

import armature
from armature.errors import ArmatureWarning
from armature.pipeline.session import Outcome, session
from armature.rules.data import Decision


class Reader(ast.NodeVisitor):
    def __init__(self, by: torch.Tensor) -> None:
        self.by = by


def scaled(x: torch.Tensor, tree: ast.AST) -> torch.Tensor:
    reader = Reader(x * 2)
    reader.visit(tree)
    return reader.by + 1


def test_a_visitor_of_many_trees_is_not_compiled_for_each() -> None:
    armature.reset()
    compiled = armature.compile(scaled, backend="eager")
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for count in range(1, 13):
            tree = ast.parse(" + ".join(f"n{number}" for number in range(count)))
            assert compiled(torch.ones(2), tree).tolist() == [3, 3]
    assert [each for each in shown if each.category is ArmatureWarning] == []
    assert sum(record.outcome is Outcome.COMPILED for record in session().compilations) == 2


def test_the_compiler_of_kernels_is_left_alone() -> None:
    """By its name: it need not be installed."""
    verdict = armature.why("triton.compiler.code_generator")
    assert verdict.decision is Decision.SKIP
    assert "syntax tree" in verdict.reason
