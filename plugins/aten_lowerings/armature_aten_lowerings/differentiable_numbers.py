"""Functions of torch with derivatives that never ask for a number: it may be one that varies, and not be known while
a graph is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import torch

Tensors = tuple[torch.Tensor | None, ...]
Axes = int | Sequence[int] | None
Operand = torch.Tensor | float  # one of the two is a tensor


class Context(Protocol):
    """autograd's record of a call. number: a float, or a SymFloat if it varies, as are all floats here."""

    number: float
    shapes: tuple[torch.Size, ...]
    saved_tensors: tuple[torch.Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: torch.Tensor) -> None: ...


class _Lerp(torch.autograd.Function):
    """`torch.lerp`; its own derivative asks for the weight."""

    @staticmethod
    def forward(ctx: Context, start: torch.Tensor, end: torch.Tensor, weight: float) -> torch.Tensor:
        ctx.number, ctx.shapes = weight, (start.shape, end.shape)
        return torch.lerp(start, end, weight)

    @staticmethod
    def backward(ctx: Context, grad: torch.Tensor) -> Tensors:
        factors = (1 - ctx.number, ctx.number)
        wanted = zip(ctx.needs_input_grad, factors, ctx.shapes)
        return (*((grad * factor).sum_to_size(shape) if needed else None for needed, factor, shape in wanted), None)


class _Power(torch.autograd.Function):
    """`base ** number`; the operator's own derivative asks whether the number is 0."""

    @staticmethod
    def forward(ctx: Context, base: torch.Tensor, exponent: float) -> torch.Tensor:
        ctx.save_for_backward(base)
        ctx.number = exponent
        return torch.pow(base, exponent)

    @staticmethod
    def backward(ctx: Context, grad: torch.Tensor) -> Tensors:
        (base,) = ctx.saved_tensors
        slope = grad * (ctx.number * base.pow(ctx.number - 1))
        return torch.where(_as_tensor(ctx.number, base) == 0, 0.0, slope), None


class _PowerOfNumber(torch.autograd.Function):
    """`number ** exponent`; the operator's own derivative asks for the number."""

    @staticmethod
    def forward(ctx: Context, base: float, exponent: torch.Tensor) -> torch.Tensor:
        result = torch.pow(base, exponent)
        ctx.save_for_backward(exponent, result)
        ctx.number = base
        return result

    @staticmethod
    def backward(ctx: Context, grad: torch.Tensor) -> Tensors:
        exponent, result = ctx.saved_tensors
        base = _as_tensor(ctx.number, exponent)
        slope = grad * (result * base.log())
        return None, torch.where((base == 0) & (exponent >= 0), 0.0, slope)


class _Celu(torch.autograd.Function):
    """`torch.celu`; its own derivative asks for `alpha`."""

    @staticmethod
    def forward(ctx: Context, input: torch.Tensor, alpha: float) -> torch.Tensor:
        ctx.save_for_backward(input)
        ctx.number = alpha
        return torch.celu(input, alpha)

    @staticmethod
    def backward(ctx: Context, grad: torch.Tensor) -> Tensors:
        (input,) = ctx.saved_tensors
        return torch.where(input <= 0, grad * (input / ctx.number).exp(), grad), None


class _Norm(torch.autograd.Function):
    """The norm of order `order` over axes; the operator's own derivative asks for the order."""

    @staticmethod
    def forward(ctx: Context, input: torch.Tensor, order: float, axes: list[int]) -> torch.Tensor:
        result: torch.Tensor = torch.linalg.vector_norm(input, order, axes, keepdim=True)
        ctx.save_for_backward(input, result)
        ctx.number = order
        return result

    @staticmethod
    def backward(ctx: Context, grad: torch.Tensor) -> Tensors:
        input, result = ctx.saved_tensors
        power = ctx.number - 1
        slope = (input.sgn() * input.abs().pow(power)).masked_fill(input == 0, 0)
        return slope * (grad / result.pow(power)).masked_fill(result == 0, 0), None, None


def _as_tensor(number: float, like: torch.Tensor) -> torch.Tensor:
    return torch.full((), number, dtype=torch.float64, device=like.device)


def _as_operand(number: float, like: torch.Tensor) -> torch.Tensor:
    """The number as an operand that leaves the dtype of a result as a number does."""
    dtype = like.dtype if like.is_floating_point() or like.is_complex() else torch.get_default_dtype()
    return torch.full((), number, dtype=dtype, device=like.device)


def _of_operands(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function of two operands that is called with a tensor in place of a number."""

    def call(input: Operand, other: Operand) -> torch.Tensor:
        like = next(one for one in (input, other) if isinstance(one, torch.Tensor))
        return function(*(one if isinstance(one, torch.Tensor) else _as_operand(one, like) for one in (input, other)))

    return call


def _celu(input: torch.Tensor, alpha: float = 1.0, inplace: bool = False) -> torch.Tensor:
    apply: Callable[..., torch.Tensor] = _Celu.apply
    return input.copy_(apply(input.clone(), alpha)) if inplace else apply(input, alpha)


def _vector_norm(
    x: torch.Tensor, ord: float = 2, dim: Axes = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
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
    input: torch.Tensor, p: float = 2, dim: Axes = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> torch.Tensor:
    return _vector_norm(input, p, dim, keepdim, dtype=dtype)


def _linalg_norm(
    A: torch.Tensor,
    ord: float | str | None = None,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    axes = A.dim() if dim is None else 1 if isinstance(dim, int) else len(dim)
    found: Callable[..., torch.Tensor] = _vector_norm if axes == 1 else torch.linalg.norm
    return found(A, ord, dim, keepdim, dtype=dtype)


def _normalize(input: torch.Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> torch.Tensor:
    return input / _vector_norm(input, p, dim, True).clamp_min(eps)


def _dist(input: torch.Tensor, other: torch.Tensor, p: float = 2) -> torch.Tensor:
    return _vector_norm(input - other, p)


def _renorm(input: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    axes = [axis for axis in range(input.dim()) if axis != dim % input.dim()]
    norm = _vector_norm(input, p, axes, True)
    return input * torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)


def _pow(input: Operand, exponent: Operand) -> torch.Tensor:
    power: Callable[..., torch.Tensor] = torch.pow
    if isinstance(input, torch.Tensor):
        if input.is_floating_point():
            power = _Power.apply
    elif isinstance(exponent, torch.Tensor) and exponent.is_floating_point():
        power = _PowerOfNumber.apply
    return power(input, exponent)


def _lerp(input: torch.Tensor, end: torch.Tensor, weight: float) -> torch.Tensor:
    apply: Callable[..., torch.Tensor] = _Lerp.apply
    return apply(input, end, weight)


def _foreach_lerp(self: Sequence[torch.Tensor], tensors1: Sequence[torch.Tensor], weight: float) -> list[torch.Tensor]:
    return [_lerp(start, end, weight) for start, end in zip(self, tensors1, strict=True)]


# By the names of the functions, operators and tensor methods that they stand for.
DIFFERENTIABLE: Mapping[str, Callable[..., object]] = MappingProxyType({
    "lerp": _lerp, "_foreach_lerp": _foreach_lerp, "pow": _pow, "__pow__": _pow, "celu": _celu, "renorm": _renorm,
    "__rpow__": lambda exponent, base: _pow(base, exponent), "norm": _norm, "linalg_vector_norm": _vector_norm,
    "vector_norm": _vector_norm, "dist": _dist, "normalize": _normalize, "linalg_norm": _linalg_norm,
    **{name: _of_operands(function) for name, function in {
        "xlogy": torch.xlogy, "special_xlogy": torch.xlogy, "special_xlog1py": torch.special.xlog1py,
        "special_zeta": torch.special.zeta,
    }.items()},
})  # fmt: skip
