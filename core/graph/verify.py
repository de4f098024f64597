"""The spec of a functional ATen graph, for strict mode."""

from __future__ import annotations

import operator

import torch
from torch import fx

from armature.errors import InvariantError, invariant
from armature.graph.data import AtenGraph

MUTATES_INPUTS = frozenset((torch.ops.aten.copy_.default,))


def verify(aten: AtenGraph) -> None:
    """Check that there are ATen operators only, with layouts, functional but for `copy_` into inputs. Errors:
    InvariantError naming the node."""
    try:
        aten.module.graph.lint()
    except Exception as error:
        raise InvariantError(what="the graph is not well formed", details=str(error)) from error
    places = [n for n in aten.module.graph.nodes if n.op == "placeholder"]
    invariant(
        len(places) == len(aten.fake_inputs),
        "the graph does not have one fake input per placeholder",
        placeholders=len(places),
        fakes=len(aten.fake_inputs),
    )
    outside = [k for k in aten.static_inputs if not 0 <= k < len(places)]
    invariant(aten.kind.value == "forward" or not outside, "a static input does not exist", positions=outside)
    for node in aten.module.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            _check(node)


def _check(node: fx.Node) -> None:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return  # arithmetic on symbolic sizes, or something that lowering will reject by name
    has_result = "val" in node.meta or not target._schema.returns
    invariant(has_result, "an operator has no fake result", node=node.name, op=str(target))
    if target._schema.is_mutable and target in MUTATES_INPUTS:
        first = node.args[0]
        inside = isinstance(first, fx.Node) and first.op == "placeholder"
        invariant(inside, "the graph writes to something other than an input", node=node.name)
