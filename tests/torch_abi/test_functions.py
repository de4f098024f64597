"""What rows tell of functions, asked of nodes of captured graphs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from armature.torch_abi.functions import Function, Functions, tensors_of, values_of


def node_of(fn: Callable[..., Any], value: object = None) -> fx.Node:
    """The only call of a captured function, with its value."""
    (node,) = (n for n in fx.symbolic_trace(fn).graph.nodes if n.op.startswith("call"))
    node.meta["example_value"] = value
    return node


def test_a_row_names_a_function_or_the_beginning_of_names() -> None:
    rows = Functions.of(
        [
            Function(torch.special.expit, same_as=torch.sigmoid, unused=frozenset(("out",))),
            Function(torch.bincount, raises=lambda node: len(node.args) > 1),
            Function(re.compile("linalg_|cholesky"), raises=lambda node: True),
        ]
    )
    assert rows.same[torch.special.expit] is torch.sigmoid and rows.unused[torch.special.expit] == {"out"}
    assert not rows.may_raise(node_of(lambda x: torch.sin(x)))
    assert not rows.may_raise(node_of(lambda x: torch.bincount(x)))
    assert rows.may_raise(node_of(lambda x: torch.bincount(x, x)))
    assert rows.may_raise(node_of(lambda x: x.cholesky()))
    assert rows.may_raise(node_of(lambda x: torch.linalg.inv(x))) and not rows.may_raise(node_of(lambda x: x.sort()))


def test_modules_may_raise_whatever_they_are() -> None:
    module = fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    (call,) = module.graph.find_nodes(op="call_module", target="0")
    assert Functions().may_raise(call)


def test_values_of_a_node() -> None:
    x = torch.ones(2)
    node = node_of(lambda x: torch.sin(x), value=(x, [3, x]))
    assert values_of(node)[1] == 3 and len(values_of(node)) == 3
    assert [one is x for one in tensors_of(node)] == [True, True]
