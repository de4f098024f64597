"""Floats of the program that vary, in functional graphs.

A captured graph reads each from an input without axes on the CPU, by `item`. In a functional graph, that is a call of
`_local_scalar_dense` whose result is a SymFloat: operators are given a number that is not known, as their schemas say.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from armature.frame.sources import CallSource
from armature.torch_abi.fake import DATA_DEPENDENT, NUMBER, tensor_of_number
from armature.torch_abi.functions import Functions
from armature.torch_abi.memory import on_host
from armature.torch_abi.symbols import MATH_FUNCTIONS, is_unbacked
from armature.trace.data import GraphInput

aten = torch.ops.aten

# Arithmetic on such numbers, and what computes the same from tensors without axes.
COMPUTED: Mapping[object, torch._ops.OpOverload] = MappingProxyType({
    operator.add: aten.add.Tensor, operator.sub: aten.sub.Tensor, operator.mul: aten.mul.Tensor,
    operator.truediv: aten.div.Tensor, operator.floordiv: aten.floor_divide.default,
    operator.mod: aten.remainder.Tensor, operator.pow: aten.pow.Tensor_Tensor, operator.neg: aten.neg.default,
    operator.abs: aten.abs.default, torch.sym_max: aten.maximum.default, torch.sym_min: aten.minimum.default,
    **{target: getattr(aten, function.__name__).default for function, target in MATH_FUNCTIONS.items()},
})  # fmt: skip

# Those that can be called with a Python number in place of a tensor.
TAKES_NUMBER = frozenset({
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.floor_divide.default,
})  # fmt: skip


class NotComputed(Exception):
    """A functional graph computes with such a number in a way that lowering does not support."""


STAYS_AS_CAPTURED: tuple[type[BaseException], ...] = (NotComputed, *DATA_DEPENDENT)


def known_numbers(inputs: Iterable[GraphInput], graph: fx.Graph) -> frozenset[str]:
    """The inputs that hold a number of the program: made for the call, so nothing writes to them."""
    return frozenset(
        place.name
        for given, place in zip(inputs, graph.find_nodes(op="placeholder"))
        if isinstance(given.source, CallSource) and given.source.fn is tensor_of_number
    )


def check(graph: fx.Graph) -> None:
    """Check that lowering supports what a functional graph computes from such numbers. Errors: NotComputed."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.SymFloat) or not is_unbacked(value):
            continue
        if node.target not in COMPUTED and not (node.target is NUMBER and _is_place(node.args[0])):
            raise NotComputed(str(node.target))


def _is_place(node: object) -> bool:
    """Whether a node is a tensor in which a number is passed."""
    fake = node.meta.get("val") if isinstance(node, fx.Node) else None
    return isinstance(fake, torch.Tensor) and not fake.dim() and fake.dtype == torch.float64 and on_host(fake)


def differentiable(node: fx.Node, functions: Functions) -> Callable[..., Any] | None:
    """The function for a captured call with such numbers, with derivatives that never ask for them; None for others."""
    target: Any = node.target
    if not any(isinstance(given.meta.get("example_value"), torch.SymFloat) for given in node.all_input_nodes):
        return None
    if node.op == "call_method":
        target = getattr(torch.Tensor, target, None)
    if target is None or isinstance(target, torch._ops.OperatorBase) or node.op not in ("call_method", "call_function"):
        return None
    return functools.partial(_run, functions, target)


def _run(functions: Functions, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if getattr(function, "__module__", "") == operator.add.__module__ and torch.is_grad_enabled():
        found = functions.differentiable(function)  # a number's own method would come first: the mode is not asked
        if found is not None:
            return found(*args, **kwargs)
    with _Differentiable(functions):
        return function(*args, **kwargs)


class _Differentiable(TorchFunctionMode):
    """In this mode, functions whose derivatives ask for a number that is not known are replaced, as rows say."""

    def __init__(self, functions: Functions) -> None:
        super().__init__()
        self.functions = functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        writes = name.endswith("_") and not name.endswith("__")
        found = self.functions.differentiable(name[:-1] if writes else func) if torch.is_grad_enabled() else None
        varies = any(isinstance(one, torch.SymFloat) for one in (*args, *kwargs.values()))
        if found is None or not varies or kwargs.get("out") is not None:
            return func(*args, **kwargs)
        kwargs = {name: value for name, value in kwargs.items() if name != "out"}  # torch passes `out=None` on
        if not writes:
            return found(*args, **kwargs)
        first, *rest = args
        if isinstance(first, torch.Tensor):  # a derivative may read what it has held
            return first.copy_(found(first.clone(), *rest, **kwargs))
        for one, made in zip(first, found([one.clone() for one in first], *rest, **kwargs), strict=True):
            one.copy_(made)
        return first
