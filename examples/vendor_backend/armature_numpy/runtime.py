"""Helpers that printed kernels call. All points of a loop nest are computed at once, one axis per loop variable."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

REDUCE = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "any": np.logical_or, "all": np.logical_and, "xor": np.bitwise_xor,
}  # fmt: skip


def flat(tensor: torch.Tensor) -> Any:
    """The tensor's memory as one axis, from its first element to the end of the storage."""
    storage = tensor.untyped_storage().nbytes() // tensor.element_size()
    start = tensor.storage_offset()
    return tensor.detach().as_strided((max(storage - start, 0),), (1,), start).numpy()


def counter(axis: int, axes: int, extent: int) -> Any:
    """0, 1, 2 ... along one of the axes."""
    shape = [1] * axes
    shape[axis] = extent
    return np.arange(extent).reshape(shape)


def load(memory: Any, at: Any, mask: Any) -> Any:
    """Read where the mask holds; elsewhere the position may be outside the memory."""
    if not memory.size:
        return np.zeros(np.shape(mask), memory.dtype)
    return memory[np.where(mask, at, 0)]


def store(memory: Any, at: Any, value: Any, space: tuple[int, ...]) -> None:
    """Write one element per point of the space."""
    memory[np.broadcast_to(at, space)] = np.broadcast_to(value, space)


def store_add(memory: Any, at: Any, value: Any, space: tuple[int, ...]) -> None:
    """Add one value per point of the space; several points may target one element."""
    np.add.at(memory, np.broadcast_to(at, space), np.broadcast_to(value, space))


def reduce(op: str, value: Any, space: tuple[int, ...], inner: int, dtype: Any) -> Any:
    """Combine over the last `inner` axes, which are kept with size 1. Sums of floats are computed in float64."""
    outer = space[: len(space) - inner]
    points = np.broadcast_to(value, space).reshape(*outer, int(np.prod(space[len(outer) :])))
    if op in ("argmax", "argmin"):
        found = getattr(np, op)(points, axis=-1)
    else:
        wide = np.float64 if op in ("sum", "prod") and points.dtype.kind == "f" else dtype
        found = REDUCE[op].reduce(points, axis=-1, dtype=wide)
    return np.asarray(found).astype(dtype).reshape(*outer, *[1] * inner)


def cast(value: Any, dtype: Any) -> Any:
    """The value in another dtype; an index expression's value may be a plain int."""
    return np.asarray(value).astype(dtype)


def truncdiv(left: Any, right: Any) -> Any:
    """Division that rounds towards zero."""
    if np.asarray(left).dtype.kind == "f":
        return np.trunc(left / right)
    whole = left // right
    return np.where((left % right != 0) & ((left < 0) != (right < 0)), whole + 1, whole).astype(left.dtype)


def check_index(index: Any, size: Any, mask: Any) -> Any:
    """The index. Errors: IndexError if one is out of range."""
    bad = ((index < 0) | (index >= size)) & mask
    if np.any(bad):
        raise IndexError(f"index {np.asarray(index)[np.broadcast_to(bad, np.shape(index))].flat[0]} is out of range")
    return index
