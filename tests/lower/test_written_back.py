"""Which writes to part of an input are copied back into it: rows of plugins say which operators write to a part."""

from __future__ import annotations

import torch
from torch import fx

from armature.graph.facts import Operator
from armature.lower.written_back import is_written_back
from armature.plugins import manager

aten = torch.ops.aten


def written(target: torch._ops.OpOverload, *more: object) -> tuple[fx.Graph, fx.Node]:
    """`x[part] = y` as a functional graph has it."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    made = graph.call_function(target, (x, y, *more))
    graph.call_function(aten.copy_.default, (x, made))
    return graph, made


def test_a_row_says_that_an_operator_changes_a_part() -> None:
    _, made = written(aten.slice_scatter.default, 0, 1, 2)
    op = aten.slice_scatter.default
    assert is_written_back(made, {op: Operator(op, changes_part=True)})
    assert not is_written_back(made, {op: Operator(op)}) and not is_written_back(made, {})


def test_the_rows_of_aten() -> None:
    operators = manager().tables().operators
    assert is_written_back(written(aten.select_scatter.default, 0, 1)[1], operators)
    assert not is_written_back(written(aten.add.Tensor)[1], operators)


def test_an_input_that_is_read_later_is_not_written_to() -> None:
    graph, made = written(aten.slice_scatter.default, 0, 1, 2)
    graph.call_function(aten.sin.default, (made.args[0],))
    assert not is_written_back(made, manager().tables().operators)


def test_an_input_that_gives_its_layout_alone_may_be_written_to() -> None:
    scatter, copy = aten.slice_scatter.default, aten.copy.default
    rows = {scatter: Operator(scatter, changes_part=True)}
    graph, made = written(scatter, 0, 1, 2)
    part = graph.call_function(aten.select.int, (made.args[0], 0, 1))
    graph.call_function(copy, (part, made.args[1]))
    assert not is_written_back(made, rows)
    assert is_written_back(made, {**rows, copy: Operator(copy, layout_only=True)})
