"""`associative_scan`, for programs that call it when compiled: its steps are unrolled if they are few."""

from __future__ import annotations

from collections.abc import Callable

import torch

from armature.plugin_api import Call, TracedTensor, Value, existing, handles

FEW = 64  # steps; each adds the combining function to the graph


@handles(*existing("torch._higher_order_ops.associative_scan.associative_scan"))
def associative_scan(
    call: Call,
    combine_fn: Value,
    xs: Value,
    dim: Value,
    reverse: Value | None = None,
    combine_mode: Value | None = None,
) -> Value | None:
    """Scan a tensor, or a tuple or list of tensors."""
    nested = issubclass(xs.python_type(), (tuple, list))
    given = call.tracing.unpack(xs) if nested else [xs]
    leaves = [leaf for leaf in given if isinstance(leaf, TracedTensor) and leaf.has_static_shape]
    if not leaves or len(leaves) != len(given):
        return None
    axis = dim.as_constant()
    if not isinstance(axis, int) or not all(0 < leaf.shape[axis] <= FEW for leaf in leaves):
        return None
    backwards = call.constant(False) if reverse is None else reverse
    return call.polyfill(scan_nest if nested else scan_one, combine_fn, xs, dim, backwards)


def scan_one(
    combine: Callable[[object, object], torch.Tensor], xs: torch.Tensor, dim: int, reverse: bool
) -> torch.Tensor:
    """The running combination of the slices of one tensor."""
    parts = xs.unbind(dim)
    if reverse:
        parts = parts[::-1]
    found = [parts[0]]
    for part in parts[1:]:
        found.append(combine(found[-1], part))
    return torch.stack(found[::-1] if reverse else found, dim)


Nest = list[torch.Tensor] | tuple[torch.Tensor, ...]


def scan_nest(combine: Callable[[Nest, Nest], Nest], xs: Nest, dim: int, reverse: bool) -> Nest:
    """The running combination of the slices of several tensors at once."""
    kind = type(xs)
    columns = [x.unbind(dim) for x in xs]
    parts = [kind(part) for part in zip(*columns)]
    if reverse:
        parts.reverse()
    found = [parts[0]]
    for part in parts[1:]:
        found.append(combine(found[-1], part))
    if reverse:
        found.reverse()
    return kind([torch.stack(column, dim) for column in zip(*found)])
