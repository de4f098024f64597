"""Checks a pass's output in strict mode: nodes must be sound, and results unchanged."""

from __future__ import annotations

import contextlib
from typing import Any

import attrs
import torch
from torch import Tensor, fx

from armature.graph.facts import Rows, may_write

Call = tuple[object, object, object]


@attrs.frozen(eq=False)
class State:
    """A graph before a pass: the calls of its nodes, and the layouts of its results."""

    calls: dict[fx.Node, Call]
    results: tuple[object, ...]

    @classmethod
    def of(cls, module: fx.GraphModule) -> State:
        """The state of a graph now."""
        return cls({node: _call(node) for node in module.graph.nodes}, _results(module))


def problem(before: State, module: fx.GraphModule, rows: Rows) -> str:
    """A description of what is wrong with a graph after a pass; "" if nothing is."""
    try:
        module.graph.lint()
    except Exception as error:
        return f"the graph is not well formed: {error}"
    after = _results(module)
    if after != before.results:
        return f"the graph gives {_first_other(after, before.results)}"
    for node in module.graph.nodes:
        if before.calls.get(node) != _call(node) and (found := _wrong_with(node, rows)):
            return f"{found}{_where(node)}"
    return ""


def _call(node: fx.Node) -> Call:
    return node.target, node.args, node.kwargs


def _results(module: fx.GraphModule) -> tuple[object, ...]:
    """The layouts of the results of a graph of operators; empty for a graph of torch functions, whose results a pass
    need not annotate."""
    returned: Any = module.graph.output_node().args[0]
    items = returned if isinstance(returned, (list, tuple)) else (returned,)
    return tuple(_layout(item.meta.get("val")) if isinstance(item, fx.Node) else None for item in items)


def _layout(value: object) -> object:
    """Sizes, strides, dtype and device of a tensor whose sizes are numbers."""
    if not isinstance(value, Tensor) or not _is_plain(value):
        return None
    return tuple(value.shape), tuple(value.stride()), value.dtype, value.device


def _is_plain(value: Tensor) -> bool:
    return value.layout is torch.strided and all(type(n) is int for n in (*value.shape, *value.stride()))


def _first_other(found: tuple[object, ...], wanted: tuple[object, ...]) -> str:
    if len(found) != len(wanted):
        return f"{len(found)} results, not {len(wanted)}"
    place = next(k for k, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1])
    return f"{found[place]} as result {place}, not {wanted[place]}"


def _wrong_with(node: fx.Node, rows: Rows) -> str:
    """Check that the metadata of nodes which the pass made or changed describes the result that their operator really
    has."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or may_write(target, rows):
        return ""
    if "val" not in node.meta:
        return f"{target} has no meta['val']"
    meta_value = node.meta["val"]
    fakes = [n.meta.get("val") for n in node.all_input_nodes]
    if not isinstance(meta_value, Tensor) or not all(
        isinstance(one, Tensor) and _is_plain(one) for one in (meta_value, *fakes)
    ):
        return ""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    mode: Any = getattr(meta_value, "fake_mode", None) or contextlib.nullcontext()
    try:
        with mode, torch.no_grad():
            given = target(*args, **kwargs)
    except Exception as error:
        return f"{target} refuses its arguments: {type(error).__name__}: {error}"
    kinds = [(tuple(one.shape), one.dtype, one.device) for one in (meta_value, given)]
    return "" if kinds[0] == kinds[1] else f"{target} gives {kinds[1]}, but meta['val'] says {kinds[0]}"


def _where(node: fx.Node) -> str:
    origin = node.meta.get("origin")
    return f" ({origin.file}:{origin.line}: {origin.text})" if origin is not None and origin.file else ""
