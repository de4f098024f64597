"""What schemas do not say of operators is told by rows of plugins."""

from __future__ import annotations

import torch
from torch import fx

from armature.graph.facts import Operator, commuting, may_return_view, may_write
from armature.graph.frozen import frozen_values

aten = torch.ops.aten


def test_a_row_says_that_an_operator_writes() -> None:
    op = aten.native_batch_norm.default
    assert may_write(aten.add_.Tensor, {}) and not may_write(op, {}) and not may_write(op, {op: Operator(op)})
    assert may_write(op, {op: Operator(op, writes=lambda args: (3, 4))})


def test_a_row_says_that_a_result_may_be_a_view() -> None:
    op = aten._unsafe_view.default
    assert may_return_view(aten.view.default, {}) and not may_return_view(op, {})
    assert may_return_view(op, {op: Operator(op, may_return_view=True)})


def test_torchs_function_commutes_as_the_operator_of_its_name() -> None:
    op = aten.maximum.default
    assert commuting({op: Operator(op)}) == frozenset()
    assert commuting({op: Operator(op, commutes=True)}) == {op, torch.maximum}


def test_memory_that_is_not_set_is_no_constant() -> None:
    graph, op = fx.Graph(), aten.empty.memory_format
    made = graph.call_function(op, ([2],))
    assert frozen_values(graph, {}) == {made} and frozen_values(graph, {op: Operator(op, unset=True)}) == set()
