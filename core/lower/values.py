"""The arguments and results of lowerings: a tensor as a buffer and coordinates in it."""

from __future__ import annotations

from typing import TypeAlias

import attrs
import torch

from armature.lower.index import Index, Var, contiguous_strides


def axes(shape: tuple[Index, ...], prefix: str = "i") -> tuple[Var, ...]:
    """One loop variable per axis: `i0`, `i1`, ..."""
    return tuple(Var(f"{prefix}{k}", size) for k, size in enumerate(shape))


def coordinates(shape: tuple[Index, ...], prefix: str = "i") -> tuple[Index, ...]:
    """Like `axes`, with 0 for an axis of size 1: the variables of an index."""
    return tuple(0 if size == 1 else Var(f"{prefix}{k}", size) for k, size in enumerate(shape))


@attrs.frozen
class Spec:
    """Layout of a tensor to be made. Shape and strides in elements."""

    shape: tuple[Index, ...]
    dtype: torch.dtype
    device: torch.device
    strides: tuple[Index, ...]

    @staticmethod
    def dense(shape: tuple[Index, ...], dtype: torch.dtype, device: torch.device) -> Spec:
        """Row-major layout."""
        return Spec(shape, dtype, device, contiguous_strides(shape))


@attrs.frozen(eq=False)
class TensorValue:
    """A tensor while lowering: element `i` of `shape` is `buffer[index]`, `index` written in `coordinates(shape)`.

    So a view is just another index into the same buffer. `strides` are eager's, in elements: an extern operator or a
    graph output gets the tensor with these.
    """

    buffer: str
    dtype: torch.dtype
    device: torch.device
    shape: tuple[Index, ...]
    index: tuple[Index, ...]
    strides: tuple[Index, ...]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_whole(self) -> bool:
        """Whether an element's index in the buffer is its index in the tensor: it is the buffer, or its beginning."""
        return self.index == coordinates(self.shape)

    @property
    def spec(self) -> Spec:
        """Its layout in eager."""
        return Spec(self.shape, self.dtype, self.device, self.strides)


@attrs.frozen(eq=False)
class ScalarValue:
    """A float that is only known when the graph runs: the element of a float64 tensor without axes on the CPU.

    `rounded`: the dtype to which its value is rounded before anything is computed from it; None: it is not.
    """

    tensor: TensorValue
    rounded: torch.dtype | None = None


Scalar: TypeAlias = ScalarValue | Index | bool | int | float
"""A number as a lowering is given it, if its signature says so."""
