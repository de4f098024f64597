"""Seam to AOTAutograd's partitioner: a joint graph of forward and backward is split in two."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, cast

import torch
from torch import fx
from torch.fx import node as fx_node


def functorch(name: str) -> ModuleType:
    """A module of AOTAutograd. It takes seconds to import, and a graph without gradients or writes doesn't need it."""
    return importlib.import_module(f"torch._functorch.{name}")


def storage_of(node: fx.Node) -> int | None:
    """The memory of a node's tensor, equal for tensors that share it; None for what is no dense tensor."""
    found = (node.meta[key] for key in ("val", "traced_value", "example_value") if key in node.meta)
    value = next(found, None)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return int(value.untyped_storage()._cdata)


def _pass_on_what_reads(node: fx.Node) -> None:
    """Mark values that are computed from a written input, or from a view of it, to be saved if backward needs them."""
    for user in node.users:
        target = user.target
        if isinstance(target, torch._ops.OpOverload) and target.is_view:
            _pass_on_what_reads(user)
        elif "recompute" not in user.meta and target is not torch.ops.aten.copy_.default:
            user.meta["recompute"] = torch.utils.checkpoint.CheckpointPolicy.MUST_SAVE


def min_cut(
    joint: fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, static_lifetime_input_indices: Any = None, **_: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split the joint graph with a minimum cut of the saved bytes. Cheap operators are recomputed, unless they read an
    input that is written to, because backward would then read the new value."""
    for place in joint.graph.find_nodes(op="placeholder"):
        if any(user.target is torch.ops.aten.copy_.default and user.args[0] is place for user in place.users):
            _pass_on_what_reads(place)
    _share_equal_values(joint)
    unused = _return_unused_draws(joint, num_fwd_outputs)
    forward: fx.GraphModule
    backward: fx.GraphModule
    with functorch("config").patch(cse=False):
        forward, backward = functorch("partitioners").min_cut_rematerialization_partition(
            joint,
            inputs,
            num_fwd_outputs=num_fwd_outputs + unused,
            static_lifetime_input_indices=static_lifetime_input_indices,
        )
    if unused:
        _change_results(forward, slice(num_fwd_outputs, num_fwd_outputs + unused), ())
        forward.recompile()
    return forward, backward


def _return_unused_draws(joint: fx.GraphModule, outputs: int) -> int:
    """Add random numbers that nothing reads to the results of forward; returns their count. The partitioner drops
    what is no result."""
    draws = [node for node in joint.graph.nodes if not node.users and _draws(node.target)]
    _change_results(joint, slice(outputs, outputs), draws)
    return len(draws)


def _change_results(graph: fx.GraphModule, place: slice, nodes: Sequence[fx.Node]) -> None:
    """Put nodes in this place among a graph's results, also in their descriptions, which have as many."""
    returned = graph.graph.output_node()
    results = list(cast(Sequence[Any], returned.args[0]))
    results[place] = nodes
    returned.args = (tuple(results),)
    if "desc" in returned.meta:
        described = list(returned.meta["desc"])
        described[place] = [None] * len(nodes)
        returned.meta["desc"] = described


def _share_equal_values(joint: fx.GraphModule) -> None:
    """Compute equal values once, but draw random numbers each time. The partitioner does so too, but knows only some of
    the operators that draw (it would make one of two `exponential`), and imports torch's other compiler for it, which
    takes a second."""
    joint.graph.eliminate_dead_code()
    results = {storage_of(node) for node in joint.graph.output_node().all_input_nodes} - {None}
    known: dict[Hashable, fx.Node] = {}
    writes = 0
    for node in list(joint.graph.nodes):
        schema = getattr(node.target, "_schema", None)
        writes += bool(schema is not None and schema.is_mutable)  # what is read before and after may differ
        # results stay tensors of their own, as in eager mode
        if node.op != "call_function" or storage_of(node) in results or _differs_each_time(node.target):
            continue
        first = known.setdefault((writes, node.target, _identity(node.args), _identity(node.kwargs)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            joint.graph.erase_node(node)
    joint.recompile()


def _differs_each_time(target: Any) -> bool:
    """Whether two calls with the same arguments give different values: random numbers, or memory as it is."""
    made = isinstance(target, torch._ops.OpOverload) and target.overloadpacket is torch.ops.aten.empty
    return made or _draws(target)


class _Impure(set[Any]):
    """torch.fx's set of functions with side effects, with operators that draw random numbers."""

    def __contains__(self, target: object) -> bool:
        return super().__contains__(target) or _draws(target)


@contextlib.contextmanager
def draws_kept() -> Iterator[None]:
    """In this context no step of AOTAutograd removes random numbers that nothing reads: those drawn afterwards would
    differ from eager mode's. It does so unless its other compiler is told to draw like eager mode."""
    before = fx_node._side_effectful_functions
    fx_node._side_effectful_functions = _Impure(before)
    try:
        yield
    finally:
        fx_node._side_effectful_functions = before


def _draws(target: object) -> bool:
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def _identity(value: object) -> Hashable:
    """Equal for arguments that are the same: not for 1, 1.0 and True, nor for 0. and -0."""
    if isinstance(value, (tuple, list)):
        return type(value), *map(_identity, value)
    if isinstance(value, Mapping):
        return type(value), *((key, _identity(item)) for key, item in value.items())
    if isinstance(value, slice):
        return slice, *map(_identity, (value.start, value.stop, value.step))
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return type(value), value.node
    return type(value), repr(value) if isinstance(value, (float, complex)) else value
