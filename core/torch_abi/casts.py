"""Seam to autocast in inference mode, in which torch's dispatch modes see operators before they are taken apart.

Autocast is off while a mode handles an operator, so that the parts of one that autocast does not know, as of `einsum`,
would not be cast. In other modes autograd has taken such operators apart before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from armature.torch_abi.dispatch_mode import DispatchMode
from armature.torch_abi.grad_modes import AUTOCAST_DEVICES

P = ParamSpec("P")
T = TypeVar("T")
Overload = torch._ops.OpOverload
NOTHING: AbstractContextManager[object] = nullcontext()


@cache
def knows(func: Overload, device: str) -> bool:
    """Whether autocast has a rule for an operator on a type of device."""
    known: bool = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), f"Autocast{device.upper()}")
    return known


class _TakesApart(DispatchMode):
    """Takes operators apart that autocast does not know on `devices`, with autocast on for their parts."""

    def __init__(self, devices: Sequence[str]) -> None:
        super().__init__()
        self.devices = devices

    def __torch_dispatch__(
        self, func: Overload, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "prim" and func._can_decompose() and not self.casts(func, (args, kwargs)):
            with self, _switched_on(self.devices):
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)

    def casts(self, func: Overload, given: object) -> bool:
        """Whether autocast has cast the operator's arguments, so that it is off for its parts."""
        met = {leaf.device.type for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor)}
        return any(knows(func, device) for device in self.devices if device in met)


@contextmanager
def _switched_on(devices: Sequence[str]) -> Iterator[None]:
    for device in devices:
        torch.set_autocast_enabled(device, True)
    try:
        yield
    finally:
        for device in devices:
            torch.set_autocast_enabled(device, False)


def shown() -> AbstractContextManager[object]:
    """In this context dispatch modes see the casts that autocast makes in inference mode."""
    if not (torch._C._is_any_autocast_enabled() and torch.is_inference_mode_enabled()):
        return NOTHING
    return _TakesApart([device for device in AUTOCAST_DEVICES if torch.is_autocast_enabled(device)])


def showing(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of a captured graph whose calls are made in that context."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        copies[node] = copy = graph.node_copy(node, copies.__getitem__)
        if node.op == "call_method":
            copy.op, copy.target = "call_function", casting(_method(str(node.target)))
        elif node.op == "call_function" and not isinstance(node.target, torch._ops.OperatorBase):
            copy.target = casting(node.target)
    return fx.GraphModule(module, graph)


def casting(fn: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function to be called in that context."""

    @wraps(fn)
    def cast(*args: P.args, **kwargs: P.kwargs) -> T:
        with shown():
            return fn(*args, **kwargs)

    return cast


def _method(name: str) -> Callable[..., Any]:
    """A function that calls a method of its first argument."""

    def call(obj: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(obj, name)(*args, **kwargs)

    call.__name__ = name
    return call
