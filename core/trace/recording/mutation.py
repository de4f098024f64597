"""Finds the arguments that a call writes to: before it from signature and schema, after it from the fakes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from types import MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from armature.frame.rerun import is_small, sets_unread_items
from armature.torch_abi import overlaps
from armature.torch_abi.altering import has_history, unwrapped
from armature.torch_abi.fake import version_of
from armature.torch_abi.operators import WrittenArgument, written_arguments
from armature.torch_abi.pytree import tree_leaves
from armature.torch_abi.wrappers import innermost
from armature.trace.base import Args, Kwargs, Value
from armature.trace.data import REPEATS
from armature.trace.values.sequence import ListValue, TupleValue
from armature.trace.values.tensor import TensorValue

if TYPE_CHECKING:
    from torch import fx

    from armature.torch_abi.functions import Functions
    from armature.trace.base import Tracing
    from armature.trace.stack import Breaks

IN_PLACE_OPERATORS: frozenset[Any] = frozenset({
    operator.setitem, operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod,
    operator.ipow, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
})  # fmt: skip
NOTHING: list[Value] = []


def of_torch(fn: object) -> bool:
    """Whether the function is torch's. Its errors on fakes may differ from those in eager mode."""
    return isinstance(fn, str) or str(getattr(fn, "__module__", "torch") or "torch").startswith("torch")


def method_name(fn: Callable[..., Any] | str) -> str:
    """The name of a tensor method implemented in C; "" for other functions."""
    if isinstance(fn, str):
        return fn
    return fn.__name__ if isinstance(fn, (MethodDescriptorType, WrapperDescriptorType)) else ""


def written(fn: Callable[..., Any] | str, args: Args, kwargs: Kwargs) -> list[Value]:
    """The arguments that a call certainly writes to."""
    if fn in IN_PLACE_OPERATORS:
        return list(args[:1])
    if not of_torch(fn):
        return NOTHING  # in user code, neither a name nor a parameter called `out` means anything
    found = written_arguments(fn)
    if not found:
        return list(args[:1]) if _is_named_in_place(fn) else NOTHING
    values = [_argument(one, args, kwargs) for one in found if _is_on(one, args, kwargs)]
    return [value for value in values if value is not None]


def _is_named_in_place(fn: Callable[..., Any] | str) -> bool:
    """Whether the name has torch's in-place underscore, for methods without an operator: `requires_grad_`."""
    name = fn if isinstance(fn, str) else str(getattr(fn, "__name__", ""))
    return name.endswith("_") and not name.endswith("__") and name not in vars(operator)  # `and_` only reads


def _is_on(one: WrittenArgument, args: Args, kwargs: Kwargs) -> bool:
    """Whether the flag that makes the call write is true."""
    if not one.flag:
        return True
    flag = kwargs.get(one.flag)
    if flag is None and one.flag_position is not None and one.flag_position < len(args):
        flag = args[one.flag_position]
    return flag is not None and flag.is_constant and bool(flag.as_constant())


def _argument(one: WrittenArgument, args: Args, kwargs: Kwargs) -> Value | None:
    """The value of an argument; None if it is not given or is not a tensor or list of tensors."""
    value = kwargs.get(one.name)
    if value is None and one.position is not None and one.position < len(args):
        value = args[one.position]
    if value is None or (isinstance(value, (ListValue, TupleValue)) is not one.many and one.position is not None):
        return None
    return value if value.is_tensor or isinstance(value, (ListValue, TupleValue)) else None


def check(
    tracer: Tracing,
    functions: Functions,
    fn: Callable[..., Any] | str,
    args: Args,
    kwargs: Kwargs,
    targets: list[Value],
) -> None:
    """Break the graph where torch would refuse a write: because memory overlaps, or to a tensor of inference mode."""
    name = fn if isinstance(fn, str) else getattr(fn, "__name__", str(fn))
    given = tensors_among(tracer, [value for value in (*args, *kwargs.values()) if value.is_tensor])
    for written in tensors_among(tracer, [target for target in targets if target.is_tensor]):
        if not overlaps.writes_numbers(name, written) or functions.changes_state(fn):
            continue
        near = overlaps.sharing(written, given)
        part: torch.Tensor | None = written
        if fn is operator.setitem and (near or overlaps.repeats(written)):
            part = _part(tracer, written, args[1])
        if part is not None and overlaps.refuses(part, near):
            tracer.graph_break("overlapping-write", operation=name)
    if torch.is_inference_mode_enabled():
        return
    if any(tensor.is_inference() for tensor in tensors_among(tracer, targets)):  # fakes of views don't show it
        tracer.graph_break("writes-to-inference-tensor", operation=name)


def _part(tracer: Tracing, written: torch.Tensor, index: Value) -> torch.Tensor | None:
    """The view that an assignment to items writes to; None if it writes to single items by their positions."""
    try:
        part = tracer.fakes.getitem(written, index.as_fake(tracer))
    except Exception:  # the assignment itself reports the error
        return None
    is_view = isinstance(part, torch.Tensor) and overlaps.memory_of(part) == overlaps.memory_of(written)
    return part if is_view else None


def tensors_among(tracer: Tracing, values: Iterable[Value]) -> list[torch.Tensor]:
    """The fakes of all tensors among values, including those in containers."""
    return [leaf for leaf in tree_leaves([value.as_fake(tracer) for value in values]) if isinstance(leaf, torch.Tensor)]


def written_by_call(tracer: Tracing, args: Args, kwargs: Kwargs) -> list[torch.Tensor]:
    """The fakes of arguments whose memory the last call on fakes has written to; records the writes as effects."""
    found = tracer.fakes.take_written()
    if not found:
        return []
    memories: dict[int, bool] = {}  # whether the write was counted
    for tensor, version in found:
        for memory in _memories(tensor):
            memories[memory] = memories.get(memory, False) or version_of(tensor) != version
    given = tensors_among(tracer, (*args, *kwargs.values()))
    written = [tensor for tensor in given if not memories.keys().isdisjoint(_memories(tensor))]
    for tensor in written:
        tracer.effects.write_memory(tensor, any(memories.get(memory, False) for memory in _memories(tensor)))
    return written


def note_error(tracer: Tracing, breaks: Breaks, node: fx.Node, first: bool) -> None:
    """Note a node that may raise after tensors with a history have changed: the graph has to end before it unless that
    can be undone. If the `first` change raises, autograd has recorded nothing, and small memory is restored; items
    that it sets are set again."""
    if tracer.request.fullgraph or not breaks.tables.functions.may_raise(node):
        return
    changed = [v for v in tracer.recorder.inputs if isinstance(v, TensorValue) and v.is_written and has_history(v.fake)]
    for value in changed:
        value.guard_autograd(tracer, always=True)
    if not changed or (first and is_small(value.fake for value in changed)):
        return
    given = (value.fake for value in tracer.recorder.inputs if isinstance(value, TensorValue))
    if first and len(changed) == 1 and sets_unread_items(node, changed[0].node, changed[0].fake, given):
        node.meta[REPEATS] = True
    else:
        stop = breaks.break_at(None, "may-raise-after-change")
        stop.assumed = True
        tracer.ending.breaks.append(stop)


def _memories(tensor: torch.Tensor) -> list[int]:
    """Identifies a tensor's memory: a number for each storage; for a tensor without strides, its own id."""
    inner = [part for outer in innermost(unwrapped(tensor)) for part in innermost(unwrapped(outer))]
    return [int(one.untyped_storage()._cdata) if one.layout is torch.strided else id(one) for one in inner]
