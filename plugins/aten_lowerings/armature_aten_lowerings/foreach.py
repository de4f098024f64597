"""Operators over lists of tensors (`_foreach_*`), used by optimizers: the same operator for each tensor.

A list operator means what ATen's own slow path computes: the plain operator on the n-th element of every list. As plain
operators they become loops, and fusion makes one kernel of everything that is done to a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from armature.plugin_api import Decomposition, overload

aten = torch.ops.aten
Overload = torch._ops.OpOverload

# List operators with a plain operator of the same name.
SAME_NAME = (
    "abs", "acos", "add", "asin", "atan", "ceil", "clamp_max", "clamp_min", "clone", "copy",
    "cos", "cosh", "div", "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p",
    "log2", "max", "mm", "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "sub", "tan", "tanh", "trunc",
)  # fmt: skip


def zero(x: Tensor) -> Tensor:
    """A tensor of zeros like `x`."""
    return torch.zeros_like(x)


def maximum(x: Tensor, other: Tensor | float) -> Tensor:
    """`_foreach_maximum` also takes numbers, for which the plain operator has another name."""
    found: Tensor = aten.maximum(x, other) if isinstance(other, Tensor) else aten.clamp_min(x, other)
    return found


def minimum(x: Tensor, other: Tensor | float) -> Tensor:
    """See `maximum`."""
    found: Tensor = aten.minimum(x, other) if isinstance(other, Tensor) else aten.clamp_max(x, other)
    return found


def addcmul(x: Tensor, p: Tensor, q: Tensor, factor: float = 1) -> Tensor:
    """The plain operator takes the factor by keyword."""
    return torch.addcmul(x, p, q, value=factor)


def addcdiv(x: Tensor, p: Tensor, q: Tensor, factor: float = 1) -> Tensor:
    """See `addcmul`."""
    return torch.addcdiv(x, p, q, value=factor)


def norm(x: Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> Tensor:
    """The vector norm of all elements."""
    found: Tensor = torch.linalg.vector_norm(x, ord, dtype=dtype)
    return found


OTHERS: Mapping[str, Callable[..., Tensor]] = {
    "addcdiv": addcdiv, "addcmul": addcmul, "maximum": maximum, "minimum": minimum, "norm": norm, "zero": zero,
}  # fmt: skip


def is_list(argument: torch.Argument) -> bool:
    """Whether an argument of a schema is a list of tensors or of numbers."""
    return isinstance(argument.type, torch.ListType)


def each(target: Overload, plain: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """The decomposition of a list operator: `plain` on the n-th elements; other arguments are passed to every call."""
    arguments = target._schema.arguments

    def decompose(*args: object, **kwargs: object) -> tuple[Tensor, ...]:
        given = [*zip(arguments, args), *((a, kwargs[a.name]) for a in arguments[len(args) :] if a.name in kwargs)]
        results = []
        for number in range(next(len(value) for a, value in given if is_list(a) and isinstance(value, (list, tuple)))):
            positional, named = [], {}
            for argument, value in given:
                mine = value[number] if is_list(argument) and isinstance(value, (list, tuple)) else value
                if argument.kwarg_only:
                    named[argument.name] = mine
                else:
                    positional.append(mine)
            results.append(plain(*positional, **named))
        return tuple(results)

    return decompose


def overloads(name: str) -> Iterator[Overload]:
    """The functional overloads of a list operator that this torch has."""
    packet = getattr(aten, f"_foreach_{name}", None)
    for which in packet.overloads() if packet is not None else ():
        found = overload(f"_foreach_{name}.{which}")
        if found is not None and not any(a.is_out for a in found._schema.arguments) and not reads_factors(found):
            yield found


def reads_factors(target: Overload) -> bool:
    """Whether factors are a tensor, whose values the operator reads at run time."""
    return any(a.name == "scalars" and not is_list(a) for a in target._schema.arguments)


def rows() -> Iterable[Decomposition]:
    """A row for each overload of each list operator."""
    plain = {name: getattr(aten, name) for name in SAME_NAME} | dict(OTHERS)
    return [Decomposition(op, each(op, fn)) for name, fn in plain.items() for op in overloads(name)]
