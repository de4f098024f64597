"""A captured graph run on fakes to find what it does: torch's state is afterwards what it was, wherever that ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import fx

from armature.torch_abi.grad_modes import switches_set_back
from armature.trace.data import LEAVE

Leave = Callable[[Any], Any]


@contextmanager
def state_set_back(module: fx.GraphModule) -> Iterator[None]:
    """While nodes of the graph are called one after another: what they have entered by the end of the block is left.

    Torch's passes keep the results of nodes to themselves, and raise where a call has no form that they can use. So
    the calls that enter a context note it themselves.
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
