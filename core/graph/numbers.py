"""Floats of the program that vary, in functional graphs.

A captured graph reads each from an input without axes on the CPU, by `item`. In a functional graph, that is a call of
`_local_scalar_dense` whose result is a SymFloat: operators are given a number that is not known, as their schemas say.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx

from armature.frame.sources import CallSource
from armature.torch_abi.fake import DATA_DEPENDENT, NUMBER, tensor_of_number
from armature.torch_abi.memory import on_host
from armature.torch_abi.operators import FOREACH_LERP
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


def differentiable(node: fx.Node) -> Callable[..., Any] | None:
    """The function for a captured call whose own derivative asks for a number; None for other calls."""
    found = OF_NUMBERS.get(node.target)
    reads = any(isinstance(given.meta.get("example_value"), torch.SymFloat) for given in node.all_input_nodes)
    return found if reads else None


class _Lerp(torch.autograd.Function):
    """`torch.lerp`; its own derivative asks for the weight."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, end: torch.Tensor, weight: float) -> torch.Tensor:
        ctx.weight, ctx.shapes = weight, (start.shape, end.shape)
        return torch.lerp(start, end, weight)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        factors = (1 - ctx.weight, ctx.weight)
        wanted = zip(ctx.needs_input_grad, factors, ctx.shapes)
        return (*((grad * factor).sum_to_size(shape) if needed else None for needed, factor, shape in wanted), None)


class _Power(torch.autograd.Function):
    """`base ** number`; the operator's own derivative asks whether the number is 0."""

    @staticmethod
    def forward(ctx: Any, base: torch.Tensor, exponent: float) -> torch.Tensor:
        ctx.save_for_backward(base)
        ctx.exponent = exponent
        return torch.pow(base, exponent)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (base,) = ctx.saved_tensors
        slope = grad * (ctx.exponent * base.pow(ctx.exponent - 1))
        return torch.where(_as_tensor(ctx.exponent, base) == 0, 0.0, slope), None


class _PowerOfNumber(torch.autograd.Function):
    """`number ** exponent`; the operator's own derivative asks for the number."""

    @staticmethod
    def forward(ctx: Any, base: float, exponent: torch.Tensor) -> torch.Tensor:
        result = torch.pow(base, exponent)
        ctx.save_for_backward(exponent, result)
        ctx.base = base
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        exponent, result = ctx.saved_tensors
        base = _as_tensor(ctx.base, exponent)
        slope = grad * (result * base.log())
        return None, torch.where((base == 0) & (exponent >= 0), 0.0, slope)


def _as_tensor(number: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.full((), number, dtype=torch.float64, device=like.device)


def _pow(input: Any, exponent: Any) -> torch.Tensor:
    given = input if isinstance(input, torch.Tensor) else exponent
    if not torch.is_grad_enabled() or not given.is_floating_point():
        return torch.pow(input, exponent)
    apply: Callable[..., torch.Tensor] = (_Power if given is input else _PowerOfNumber).apply
    return apply(input, exponent)


def _lerp(input: torch.Tensor, end: torch.Tensor, weight: Any) -> torch.Tensor:
    if not torch.is_grad_enabled():
        return torch.lerp(input, end, weight)
    apply: Callable[..., torch.Tensor] = _Lerp.apply
    return apply(input, end, weight)


def _foreach_lerp(self: Sequence[torch.Tensor], tensors1: Sequence[torch.Tensor], weight: Any) -> list[torch.Tensor]:
    return [_lerp(start, end, weight) for start, end in zip(self, tensors1, strict=True)]


OF_NUMBERS: Mapping[object, Callable[..., Any]] = MappingProxyType({
    "lerp": _lerp, torch.lerp: _lerp, FOREACH_LERP: _foreach_lerp,
    "pow": _pow, torch.pow: _pow, operator.pow: _pow,
})  # fmt: skip
