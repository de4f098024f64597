"""`min` and `max` of tensors without dimensions and numbers, as one value of the graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from armature.trace.values.base import Value
from armature.trace.values.constant import ConstantValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from armature.trace.frame_state import Trace

RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType({"<": operator.lt, ">": operator.gt})


def of_tensors(tracer: Trace, op: str, items: list[Value], rest: Iterator[Value]) -> Value | None:
    """What `min` ("<") or `max` chooses, as a tensor also where it is a number; None: that would be another dtype or
    shape than the program's. For graphs that must be whole: others break, so that the program gets its own object.

    rest: items that were not asked for yet; those that are go to `items`.
    """
    dtype = next((item.fake.dtype for item in items if isinstance(item, TensorValue)), None)
    if dtype is None or not all(_fits(item, dtype) for item in items):
        return None
    for item in rest:
        items.append(item)
        if not _fits(item, dtype):
            return None
    best = items[0]
    for item in items[1:]:  # the first of equal ones stays, as in Python
        if isinstance(item, ConstantValue) and isinstance(best, ConstantValue):
            best = item if RELATIONS[op](item.value, best.value) else best
        else:
            better = tracer.graph_call(RELATIONS[op], (item, best), {})
            best = tracer.graph_call(torch.where, (better, item, best), {})
    return best


def _fits(item: Value, dtype: torch.dtype) -> bool:
    """Whether a choice between the item and tensors of a dtype has that dtype, and no dimensions."""
    if isinstance(item, TensorValue):
        return item.kind is None and item.fake.dim() == 0 and item.fake.dtype is dtype
    number: Any = item.value if isinstance(item, ConstantValue) else None
    if type(number) not in (int, float, bool):
        return False
    return torch.result_type(torch.empty((), dtype=dtype, device="meta"), number) is dtype
