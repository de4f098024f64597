"""Floats of the program that vary, in functional graphs.

A captured graph reads each from an input without axes on the CPU, by `item`. In a functional graph, that is a call of
`_local_scalar_dense` whose result is a SymFloat: operators are given a number that is not known, as their schemas say.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from armature.frame.sources import CallSource
from armature.torch_abi.fake import DATA_DEPENDENT, NUMBER, tensor_of_number
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


def differentiable(node: fx.Node) -> Callable[..., Any] | None:
    """The function for a captured call with such numbers, with derivatives that never ask for them; None for others."""
    target: Any = node.target
    if not any(isinstance(given.meta.get("example_value"), torch.SymFloat) for given in node.all_input_nodes):
        return None
    if node.op == "call_method":
        target = getattr(torch.Tensor, target, None)
    if target is None or isinstance(target, torch._ops.OperatorBase) or node.op not in ("call_method", "call_function"):
        return None
    return functools.partial(_run, target)


def _run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if function is operator.pow and torch.is_grad_enabled():
        return _pow(*args)
    with _Differentiable():
        return function(*args, **kwargs)


class _Differentiable(TorchFunctionMode):
    """In this mode, functions whose derivatives ask for a number that is not known are replaced."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        writes = name.endswith("_") and not name.endswith("__")
        found = OF_NUMBERS.get(name[:-1] if writes else name) if torch.is_grad_enabled() else None
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


class _Celu(torch.autograd.Function):
    """`torch.celu`; its own derivative asks for `alpha`."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, alpha: float) -> torch.Tensor:
        ctx.save_for_backward(input)
        ctx.alpha = alpha
        return torch.celu(input, alpha)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (input,) = ctx.saved_tensors
        return torch.where(input <= 0, grad * (input / ctx.alpha).exp(), grad), None


class _Norm(torch.autograd.Function):
    """The norm of order `order` over axes; the operator's own derivative asks for the order."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, order: float, axes: list[int]) -> torch.Tensor:
        result: torch.Tensor = torch.linalg.vector_norm(input, order, axes, keepdim=True)
        ctx.save_for_backward(input, result)
        ctx.order = order
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        input, result = ctx.saved_tensors
        power = ctx.order - 1
        slope = (input.sgn() * input.abs().pow(power)).masked_fill(input == 0, 0)
        return slope * (grad / result.pow(power)).masked_fill(result == 0, 0), None, None


def _as_tensor(number: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.full((), number, dtype=torch.float64, device=like.device)


def _as_operand(number: Any, like: torch.Tensor) -> torch.Tensor:
    """The number as an operand that leaves the dtype of a result as a number does."""
    dtype = like.dtype if like.is_floating_point() or like.is_complex() else torch.get_default_dtype()
    return torch.full((), number, dtype=dtype, device=like.device)


def _of_operands(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of two operands that is called with a tensor in place of a number."""

    def call(input: Any, other: Any) -> Any:
        if isinstance(input, torch.Tensor):
            return function(input, _as_operand(other, input))
        return function(_as_operand(input, other), other)

    return call


def _celu(input: torch.Tensor, alpha: Any = 1.0, inplace: bool = False) -> torch.Tensor:
    apply: Callable[..., torch.Tensor] = _Celu.apply
    return input.copy_(apply(input.clone(), alpha)) if inplace else apply(input, alpha)


def _vector_norm(
    x: torch.Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    given = x if dtype is None else x.to(dtype)
    if not given.is_floating_point() or not isinstance(ord, torch.SymFloat) or ord == math.inf or ord == -math.inf:
        found: torch.Tensor = torch.linalg.vector_norm(x, ord, dim, keepdim, dtype=dtype)
        return found
    axes = range(given.dim()) if dim is None else ((dim,) if isinstance(dim, int) else dim)
    apply: Callable[..., torch.Tensor] = _Norm.apply
    axes = [axis % max(given.dim(), 1) for axis in axes]
    made = apply(given, ord, axes)
    return made if keepdim else made.squeeze(axes)


def _norm(
    input: torch.Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> torch.Tensor:
    return _vector_norm(input, p, dim, keepdim, dtype=dtype)


def _linalg_norm(
    A: torch.Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    axes = A.dim() if dim is None else 1 if isinstance(dim, int) else len(dim)
    found: Callable[..., torch.Tensor] = _vector_norm if axes == 1 else torch.linalg.norm
    return found(A, ord, dim, keepdim, dtype=dtype)


def _normalize(input: torch.Tensor, p: Any = 2.0, dim: int = 1, eps: Any = 1e-12) -> torch.Tensor:
    return input / _vector_norm(input, p, dim, True).clamp_min(eps)


def _dist(input: torch.Tensor, other: torch.Tensor, p: Any = 2) -> torch.Tensor:
    return _vector_norm(input - other, p)


def _renorm(input: torch.Tensor, p: Any, dim: int, maxnorm: Any) -> torch.Tensor:
    axes = [axis for axis in range(input.dim()) if axis != dim % input.dim()]
    norm = _vector_norm(input, p, axes, True)
    return input * torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)


def _pow(input: Any, exponent: Any) -> torch.Tensor:
    given = input if isinstance(input, torch.Tensor) else exponent
    if not given.is_floating_point():
        return torch.pow(input, exponent)
    apply: Callable[..., torch.Tensor] = (_Power if given is input else _PowerOfNumber).apply
    return apply(input, exponent)


def _lerp(input: torch.Tensor, end: torch.Tensor, weight: Any) -> torch.Tensor:
    apply: Callable[..., torch.Tensor] = _Lerp.apply
    return apply(input, end, weight)


def _foreach_lerp(self: Sequence[torch.Tensor], tensors1: Sequence[torch.Tensor], weight: Any) -> list[torch.Tensor]:
    return [_lerp(start, end, weight) for start, end in zip(self, tensors1, strict=True)]


OF_NUMBERS: Mapping[str, Callable[..., Any]] = MappingProxyType({
    "lerp": _lerp, "_foreach_lerp": _foreach_lerp, "pow": _pow, "__pow__": _pow, "celu": _celu, "renorm": _renorm,
    "__rpow__": lambda exponent, base: _pow(base, exponent), "norm": _norm, "linalg_vector_norm": _vector_norm,
    "vector_norm": _vector_norm, "dist": _dist, "normalize": _normalize, "linalg_norm": _linalg_norm,
    **{name: _of_operands(function) for name, function in {
        "xlogy": torch.xlogy, "special_xlogy": torch.xlogy, "special_xlog1py": torch.special.xlog1py,
        "special_zeta": torch.special.zeta,
    }.items()},
})  # fmt: skip
