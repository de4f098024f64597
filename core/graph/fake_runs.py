"""Runs a captured graph on fakes to find out what it does, and restores torch's state afterwards, wherever the run
ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import fx

from armature.frame.rerun import Leave
from armature.torch_abi.grad_modes import switches_set_back
from armature.trace.data import LEAVE


@contextmanager
def state_set_back(module: fx.GraphModule) -> Iterator[None]:
    """Inside the block, nodes of the graph are called one after another; contexts still entered at its end are left.

    Torch's passes do not expose the results of nodes, and raise where they don't support a call. So the calls that
    enter a context record it themselves.
    """
    entering = {node: node.target for node in module.graph.nodes if LEAVE in node.meta}
    leaving = {user: user.target for node in entering for user in node.users if "changes_state" in user.meta}
    opened: list[tuple[Leave, Any]] = []
    for node in entering:
        node.target = _noted(node.target, node.meta[LEAVE], opened)
    for node in leaving:
        node.target = _forgotten(node.target, opened)
    try:
        with switches_set_back():
            try:
                yield
            finally:
                for leave, context in reversed(opened):
                    leave(context)
    finally:
        for node, target in (entering | leaving).items():
            node.target = target


def _noted(enter: Any, leave: Leave, opened: list[tuple[Leave, Any]]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        context = enter(*args)
        opened.append((leave, context))
        return context

    return call


def _forgotten(leave: Any, opened: list[tuple[Leave, Any]]) -> Callable[[Any], Any]:
    def call(context: Any) -> Any:
        opened[:] = [entry for entry in opened if entry[1] is not context]
        return leave(context)

    return call
