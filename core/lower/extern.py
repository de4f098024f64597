"""Operators called unchanged: their arguments get eager's layout, their results have the layout of the fake tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

import attrs
import torch

from armature.errors import LoweringError
from armature.lower import layout
from armature.lower.builder import Builder
from armature.lower.data import Argument, AsNumber, ExternCall, View
from armature.lower.index import contiguous_strides
from armature.lower.reasons import NotSupported, Reason
from armature.lower.values import ScalarValue, Spec, TensorValue


def as_view(builder: Builder, value: TensorValue) -> View:
    """The value with exactly eager's strides, copied first if its buffer has others."""
    found = layout.strided_view(value, builder.buffers)
    if found is not None and layout.same_strides(value.shape, found.strides, value.strides):
        return attrs.evolve(found, strides=value.strides)
    overlap = layout.overlapping(value.shape, value.strides)
    strides = contiguous_strides(value.shape) if overlap else value.strides
    try:
        copied = builder.realize(value, strides)
    except NotSupported as missing:
        raise LoweringError(op="clone", message=f"a view can't be copied: {missing}") from missing
    return View(copied.buffer, copied.shape, copied.strides)


def call_extern(
    builder: Builder,
    target: torch._ops.OpOverload,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    specs: Sequence[Spec | None],
    reason: Reason,
    used: Iterable[bool] | None = None,
    run: Callable[..., object] | None = None,
    may_return_view: bool = False,
    workspace: int = 0,
) -> tuple[TensorValue | None, ...]:
    """Append the call; returns one value per result, None for a result that is None.

    `reason`: why it is no loop. `used`: whether result number k is read; an unread result gets no buffer. `run`: called
    instead of the operator. `may_return_view`: results may be views, though the schema does not say so. `workspace`:
    bytes that the call takes besides.
    """
    mutated = _mutated(target, args, kwargs)
    new_args = tuple(_argument(builder, a) for a in args)
    new_kwargs = {k: _argument(builder, a) for k, a in kwargs.items()}
    wanted = tuple(used) if used is not None else (True,) * len(specs)
    names = tuple(builder.new_buffer(s) if s is not None and u else None for s, u in zip(specs, wanted, strict=True))
    origins = () if builder.origin is None else (builder.origin,)
    name = builder.fresh(builder.name)
    about = (mutated, origins, run, may_return_view, workspace)
    builder.nodes.append(ExternCall(name, target, new_args, new_kwargs, names, *about, reason=reason))
    return tuple(None if n is None else builder.whole(n) for n in names)


def as_number(value: ScalarValue) -> AsNumber:
    """The value as a Python number."""
    return AsNumber(value.tensor.buffer, (), ())


def _argument(builder: Builder, value: object) -> Argument:
    if isinstance(value, TensorValue):
        return as_view(builder, value)
    if isinstance(value, ScalarValue):
        return as_number(value)
    if isinstance(value, (list, tuple)):
        return tuple(_argument(builder, item) for item in value)
    return cast(Argument, value)


def _mutated(target: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[str, ...]:
    """Buffers behind the arguments that the operator writes, according to its schema."""
    out: list[str] = []
    for position, formal in enumerate(target._schema.arguments):
        if formal.alias_info is None or not formal.alias_info.is_write:
            continue
        given = args[position] if position < len(args) else kwargs.get(formal.name)
        for value in given if isinstance(given, (list, tuple)) else (given,):
            if isinstance(value, TensorValue):
                out.append(value.buffer)
    return tuple(out)
