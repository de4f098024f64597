"""`min` and `max` of 0-d tensors, and of such tensors and numbers, chosen in the graph."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import attrs
import torch
from torch import fx

from armature.plugin_api import (
    Call,
    ConstantValue,
    FrameView,
    GraphBreak,
    Location,
    Rebuilding,
    TracedTensor,
    Tracing,
    Value,
    locations_of,
)
from armature_builtin_rules.weak_lifetimes import held_by

RELATIONS: dict[str, Callable[[Any, Any], object]] = {"<": operator.lt, ">": operator.gt}
OPERATORS = frozenset({*(vars(operator)[name] for name in operator.__all__), torch.pow}) - {operator.getitem}


@attrs.define(eq=False)
class ChosenTensor(TracedTensor):
    """The tensor that stands for a choice between objects: one of the program's tensors, or a number.

    The graph computes with it. Where the program gets the object, or writes to it, the graph ends before the choice,
    so that it is one of those objects. numbers: whether it may be a number. frames: in which it was
    chosen. made_at: where. test: the choice in the program's words.
    """

    tracing: Tracing = attrs.field(kw_only=True)
    numbers: bool = attrs.field(kw_only=True)
    frames: tuple[weakref.ref[FrameView], ...] = attrs.field(kw_only=True)
    made_at: tuple[Location, ...] = attrs.field(kw_only=True)
    test: str = attrs.field(kw_only=True)

    def end_before(self) -> NoReturn:
        """Break the graph before the choice."""
        try:
            self.tracing.graph_break("data-dependent-branch", test=self.test)
        except GraphBreak as stop:
            stop.locations, stop.blame = self.made_at, self
            raise

    def rebuild(self, out: Rebuilding) -> None:
        self.end_before()


def check_end(tracing: Tracing, frame: FrameView | None, result: Value | None) -> None:
    """Called where the graph ends. What is written to is one of the objects, and what operators compute from choices
    and numbers alone may be a number: the graph ends before the choice if the program gets it."""
    choices = [value for value in tracing.objects.by_fake.values() if isinstance(value, ChosenTensor)]
    for one in choices:
        if one.is_written:
            one.end_before()
    computed = maybe_numbers(tracing, choices)
    frames = [ref() for one in choices for ref in one.frames] if frame is None else []
    for value in reached(tracing, frames, result) if computed else ():
        if isinstance(value, TracedTensor) and value.node in computed:
            computed[value.node].end_before()


def maybe_numbers(tracing: Tracing, choices: Iterable[ChosenTensor]) -> dict[fx.Node, ChosenTensor]:
    """The nodes that operators compute from choices and numbers alone, and one of those choices."""
    origins = {value.node: value for value in choices if value.numbers and value.node is not None}
    computed: dict[fx.Node, ChosenTensor] = {}
    for node in tracing.recorder.graph.nodes:
        given = [used for used in node.all_input_nodes if isinstance(used.meta["example_value"], torch.Tensor)]
        if node.target in OPERATORS and given and all(used in origins for used in given):
            origins[node] = computed[node] = origins[given[0]]
    return computed


def reached(tracing: Tracing, frames: Iterable[FrameView | None], result: Value | None) -> Iterator[Value]:
    """What the program reaches after the graph: its result, or what variables hold of the frames that go on."""
    effects = tracing.effects
    roots: list[object] = [[*effects.changed], [held for _, held in effects.globals_.values()]]
    if result is not None:
        roots.append([result])
    for frame in frames:
        if frame is not None:
            roots += (frame.variables, frame.cells, frame.own_cells, frame.stack)
    return held_by(roots)


def extreme_of_tensors(call: Call, op: str, items: list[Value], rest: Iterator[Value]) -> Value | None:
    """The choice of `min` ("<") or `max` as a tensor, even where it is a number; None if dtype or shape would differ
    from the program's. In a graph that must be whole, the program gets the tensor too.

    rest: items that were not requested yet; requested ones are added to `items`.
    """
    tracing, whole = call.tracing, call.tracing.request.fullgraph
    first = next((item for item in items if isinstance(item, TracedTensor)), None)
    if first is None or not (whole or stands_for_numbers(tracing, first)):
        return None
    dtype = first.fake.dtype
    if not all(fits(item, dtype) for item in items):
        return None
    for item in rest:
        items.append(item)
        if not fits(item, dtype):
            return None
    best = items[0]
    for item in items[1:]:  # the first of equal ones wins, as in Python
        if isinstance(item, ConstantValue) and isinstance(best, ConstantValue):
            best = item if RELATIONS[op](item.value, best.value) else best
        else:
            best = call.graph_call(torch.where, call.graph_call(RELATIONS[op], item, best), item, best)
    if whole or best in items or not isinstance(best, TracedTensor):
        return best
    return chosen(tracing, best, any(isinstance(item, ConstantValue) for item in items))


def stands_for_numbers(tracing: Tracing, tensor: TracedTensor) -> bool:
    """Whether operators give results of the same dtype for such a tensor and for numbers."""
    plain = tensor.is_plain and not tracing.overrides.present and not tracing.recorder.subgraph_depth
    return plain and tensor.fake.dtype in (torch.get_default_dtype(), torch.int64)


def chosen(tracing: Tracing, tensor: TracedTensor, numbers: bool) -> ChosenTensor:
    """The value of a tensor of the graph that stands for a choice. numbers: whether it may be a number."""
    stack = tracing.stack
    value = ChosenTensor(
        tensor.fake,
        tensor.node,
        tracing=tracing,
        numbers=numbers,
        frames=tuple(map(weakref.ref, stack.frames)),
        made_at=locations_of(stack.frames),
        test=stack.expression(),
    )
    tracing.objects.by_fake[id(tensor.fake)] = value
    tracing.ending.checks[check_end] = None
    return value


def fits(item: Value, dtype: torch.dtype) -> bool:
    """Whether choosing between the item and tensors of a dtype results in that dtype, without dimensions."""
    if isinstance(item, TracedTensor):
        return item.kind is None and item.fake.dim() == 0 and item.fake.dtype is dtype
    number: Any = item.value if isinstance(item, ConstantValue) else None
    if type(number) not in (int, float, bool):
        return False
    return torch.result_type(torch.empty((), dtype=dtype, device="meta"), number) is dtype
