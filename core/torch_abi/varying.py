"""Layouts in which the sizes and strides that vary from call to call are symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import torch

from armature.torch_abi.symbols import Symbols, expression

NO_SIZES: Mapping[int, Any] = MappingProxyType({})


@attrs.frozen
class Layout:
    """Sizes and strides of a fake, with symbols for those that may change."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]


@attrs.frozen
class Varying:
    """The axes of a tensor along which its size becomes a symbol, and those along which its stride does, although no
    size explains it."""

    sizes: frozenset[int] = frozenset()
    strides: frozenset[int] = frozenset()

    def of(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor has such sizes or strides: 0 and 1 stay numbers."""
        sizes, strides = tensor.shape, tensor.stride() if self.strides else ()
        return any(sizes[axis] > 1 for axis in self.sizes) or any(strides[axis] > 1 for axis in self.strides)


@attrs.frozen
class Axes:
    """Which sizes of a wrapper are symbols: its own, and those of its inner tensors by name."""

    own: frozenset[int] = frozenset()
    inner: Mapping[str, frozenset[int]] = attrs.field(factory=dict)


FIXED = Varying()


def spans(sizes: Sequence[int], strides: Sequence[int]) -> dict[int, int | None]:
    """The axes, the innermost first, each with the one whose span, its stride times its size, is this one's stride;
    None if there is none."""
    found: dict[int, int | None] = {}
    axes: dict[int, int] = {}
    for axis in sorted(range(len(sizes)), key=lambda k: (strides[k], -k)):
        found[axis] = axes.get(strides[axis])
        axes[strides[axis] * sizes[axis]] = axis
    return found


def unexplained(tensor: torch.Tensor) -> tuple[int | None, ...]:
    """The strides of a tensor that do not follow from its sizes; None for those that do, and for 0 and 1, which are
    never symbols."""
    inner, strides = spans(tensor.shape, tensor.stride()), tensor.stride()
    return tuple(stride if inner[axis] is None and stride > 1 else None for axis, stride in enumerate(strides))


def layout_of(
    symbols: Symbols, tensor: torch.Tensor, varying: Varying, label: str, known: Mapping[int, Any] = NO_SIZES
) -> Layout:
    """Symbols for sizes, `known` or new, and for strides. A stride that is the span of another axis is computed from
    that; others are constants."""
    sizes, strides = list[Any](tensor.shape), list[Any](tensor.stride())
    for axis in sorted(varying.sizes):
        if axis in known:
            sizes[axis] = known[axis]
        elif sizes[axis] > 1:
            sizes[axis] = symbols.size(sizes[axis], f"{label}.size({axis})")
    for axis, inner in spans(tensor.shape, tensor.stride()).items():
        if inner is not None:
            strides[axis] = strides[inner] * sizes[inner]
        elif axis in varying.strides and strides[axis] > 1:
            strides[axis] = symbols.stride(strides[axis], f"{label}.stride({axis})")
    return Layout(tuple(sizes), tuple(strides))


def laid_out(tensor: torch.Tensor, layout: Layout) -> bool:
    """Whether the tensor has exactly these sizes and strides, including symbols."""
    pairs = [*zip(tensor.shape, layout.sizes), *zip(tensor.stride(), layout.strides)]
    return tensor.dim() == len(layout.sizes) and all(_number(one) == _number(other) for one, other in pairs)


def _number(size: Any) -> Any:
    return expression(size) if isinstance(size, torch.SymInt) else size
