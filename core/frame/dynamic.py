"""Decides which sizes, strides and numbers of inputs become symbols: those that have changed, or that the user has
marked."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import nn

from armature.frame.data import FrameRequest
from armature.frame.guards.loops import sized_by_values
from armature.frame.sources import (
    AttrSource,
    DictOfSource,
    ItemSource,
    LocalSource,
    Source,
)
from armature.torch_abi.jagged import is_jagged
from armature.torch_abi.varying import Axes, Varying, unexplained
from armature.torch_abi.wrappers import flatten, is_wrapper

DYNAMIC_MARK = "_armature_dynamic_dims"
STATIC_MARK = "_armature_static_dims"
MOST_REMEMBERED = 64  # longest list or tuple of constants whose items are remembered


def is_registered(source: Source) -> bool:
    """Whether the source is a parameter or buffer of a module."""
    if not isinstance(source, ItemSource):
        return False
    base = source.base
    return (
        isinstance(base, ItemSource) and isinstance(base.base, DictOfSource) and base.key in ("_parameters", "_buffers")
    )


def axes_of(request: FrameRequest, tensor: torch.Tensor, source: Source, known: Container[int]) -> Varying | Axes:
    """The axes of a tensor of the program whose sizes or strides become symbols. known: ids of tensors met before."""
    registered = is_registered(source)
    if is_jagged(tensor):  # a jagged tensor has no sizes of its own
        return Axes(frozenset(), _inner_axes(request, tensor, source, registered))
    own = _axes(request, tensor, source, registered)
    if not is_wrapper(type(tensor)):
        return Varying(own, _strided_axes(request, tensor, source))
    held = flatten(tensor).tensors
    if isinstance(tensor, nn.Parameter) or any(
        is_wrapper(type(inner)) or id(inner) in known for inner in held.values()
    ):
        return Axes()
    return Axes(own, _inner_axes(request, tensor, source, registered))


def _inner_axes(
    request: FrameRequest, tensor: torch.Tensor, source: Source, registered: bool
) -> dict[str, frozenset[int]]:
    places = ((name, inner, AttrSource(source, name)) for name, inner in flatten(tensor).tensors.items())
    return {name: _axes(request, inner, place, registered) for name, inner, place in places}


def _axes(request: FrameRequest, tensor: torch.Tensor, source: Source, registered: bool) -> frozenset[int]:
    marks = tensor.__dict__
    chosen = request.history.changed_axes(source.expr, tensor.shape)
    if isinstance(tensor, nn.Parameter) or request.dynamic is False or source.is_fixed:
        chosen = frozenset()
    elif tensor.dim() and _depends_on_values(request, source):
        chosen |= {0}
    elif request.dynamic and not registered:
        chosen = frozenset(range(tensor.dim()))
    chosen = (chosen | frozenset(marks.get(DYNAMIC_MARK, ()))) - frozenset(marks.get(STATIC_MARK, ()))
    request.history.mark_changed(source.expr, tensor.dim(), chosen)
    return chosen


def _depends_on_values(request: FrameRequest, source: Source) -> bool:
    """Whether a tensor's first size depends on values: it is what an operator gave that broke the graph for that."""
    while isinstance(source, ItemSource):  # `where` gives a tuple
        source = source.base
    return isinstance(source, LocalSource) and source.name == sized_by_values(request)


def _strided_axes(request: FrameRequest, tensor: torch.Tensor, source: Source) -> frozenset[int]:
    """The axes whose stride becomes a symbol, with dynamic=True too only once it has changed: that of most tensors
    follows from their sizes."""
    chosen = request.history.changed_strides(source.expr, unexplained(tensor))
    fixed = isinstance(tensor, nn.Parameter) or request.dynamic is False or source.is_fixed
    static = tensor.__dict__.get(STATIC_MARK, ())
    return frozenset() if fixed or len(static) == tensor.dim() else chosen


def number_changes(request: FrameRequest, number: int, source: Source) -> bool:
    """Whether an int of the program becomes a symbol."""
    changed = request.history.changed_number(source.expr, number)
    if request.dynamic is False or source.is_fixed:
        return False
    return changed or (request.dynamic is True and _is_argument(source))


def float_changes(request: FrameRequest, number: float, source: Source) -> bool:
    """Whether a float of the program had two other values before; otherwise each value would get code of its own. One
    that is computed from symbols varies at once: they are symbols because they had other values."""
    often = request.history.changes_often(source.expr, number)
    of_symbols = source.is_computed and request.dynamic is None
    return (often or of_symbols) and request.dynamic is not False and not source.is_fixed


def items_change(request: FrameRequest, items: Any, source: Source) -> bool:
    """Whether a list or tuple of constants differs from an earlier one, so that its ints may be symbols."""
    for position, item in enumerate(items[:MOST_REMEMBERED]):
        if type(item) is int:
            request.history.changed_number(ItemSource(source, position).expr, item)
    changed = request.history.changed_number(source.expr, tuple(items))
    if request.dynamic is False or source.is_fixed:
        return False
    return changed or (request.dynamic is True and _is_argument(source))


def _is_argument(source: Source) -> bool:
    """Whether a value is passed by the call, not read from the function or a module."""
    while isinstance(source, ItemSource):
        source = source.base
    return source.of_call
