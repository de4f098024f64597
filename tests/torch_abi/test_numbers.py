"""The seam to `make_fx`: graphs of numbers, with and without a gradient."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from armature.torch_abi.numbers import graph_of_numbers, with_gradient


def captured(fn: Any) -> fx.GraphModule:
    return fx.symbolic_trace(fn)


def targets(module: fx.GraphModule) -> list[object]:
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def test_an_index_may_be_a_tensor() -> None:
    module = captured(lambda score, head, table: score * table[head])
    assert operator.getitem in targets(module)
    inputs = (torch.tensor(2.0), torch.tensor(1, dtype=torch.int32), torch.tensor([3.0, 5.0]))
    made, fakes = graph_of_numbers(module, inputs, {})
    assert torch.ops.aten.index.Tensor in targets(made) and len(fakes) == 3
    assert made(*inputs).item() == 10.0


def test_operators_are_decomposed() -> None:
    rows = {torch.ops.aten.tanh.default: lambda x: 2 * torch.sigmoid(2 * x) - 1}
    made, _ = graph_of_numbers(captured(lambda x: torch.tanh(x)), [torch.tensor(0.5)], rows)
    assert torch.ops.aten.tanh.default not in targets(made)


def test_a_result_with_its_gradient_computes_what_they_share_once() -> None:
    made, fakes = graph_of_numbers(captured(lambda x, k: torch.tanh(x) * k), [torch.ones(()), torch.ones(())], {}, True)
    assert len(fakes) == 3 and targets(made).count(torch.ops.aten.tanh.default) == 1
    x, k, gradient = torch.tensor(0.3), torch.tensor(4.0), torch.tensor(2.0)
    result, found = made(x, k, gradient)
    torch.testing.assert_close(result, torch.tanh(x) * k)
    torch.testing.assert_close(found, (1 - torch.tanh(x) ** 2) * k * gradient)


def test_what_does_not_use_a_number_has_no_gradient_for_it() -> None:
    result, found = with_gradient(lambda x, k: k * 2)(torch.ones(()), torch.ones(()), torch.ones(()))
    assert result.item() == 2.0 and found.item() == 0.0
