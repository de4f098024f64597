"""Divides a plan into segments: runs of steps whose launches one device can record, between steps that it can't."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs
import torch

from armature.lower.data import Argument, ExternCall, PassedOn
from armature.schedule.data import Allocate, KernelPlan, Launch, Release, Segment, Step
from armature.schedule.memory import touched
from armature.schedule.score import FEWEST_RECORDED

Refusal = Callable[[torch.device | None, Launch | ExternCall], str | None]
"""Why a step on a device can't be recorded; None if it can. Without a device: it has tensors of several, or none."""


@attrs.frozen
class Division:
    """Which steps of a plan are recorded. plan: with its segments. device: if it is given, all steps are, as one.
    refused: those that can't be, by the reason."""

    plan: KernelPlan
    device: torch.device | None = None
    refused: Mapping[str, tuple[Launch | ExternCall, ...]] = attrs.field(factory=dict)


def divide(plan: KernelPlan, refusal: Refusal) -> Division:
    """Find the segments of a plan that can't be recorded whole."""
    work = [step for step in plan.steps if isinstance(step, Launch | ExternCall)]
    reasons = {id(step): refusal(_device_of(step, plan), step) for step in work}
    if work and not any(reasons.values()) and len(everywhere := {one.device for one in plan.buffers.values()}) == 1:
        return Division(plan, everywhere.pop())
    refused: dict[str, tuple[Launch | ExternCall, ...]] = {}
    for step in work:
        if reason := reasons[id(step)]:
            refused[reason] = (*refused.get(reason, ()), step)
    units = [_unit(steps, plan, reasons) for steps in _grouped(plan.steps)]
    runs = list(_runs(_moved_forward(units)))
    plan = attrs.evolve(plan, steps=tuple(step for unit in itertools.chain(*runs) for step in unit.steps))
    spans: list[tuple[torch.device, range]] = []
    at = 0
    for run in runs:
        span = range(at, at + sum(len(unit.steps) for unit in run))
        if run[0].device is not None and len(run) >= FEWEST_RECORDED:
            spans.append((run[0].device, span))
        at = span.stop
    owner = {at: number for number, (_, span) in enumerate(spans) for at in span}
    creators = {name: owner.get(at) for at, step in enumerate(plan.steps) for name in _created(step)}
    segments = tuple(_segment(plan, number, device, span, creators) for number, (device, span) in enumerate(spans))
    return Division(attrs.evolve(plan, segments=segments), refused=refused)


@attrs.frozen
class _Unit:
    """A kernel or call with the allocations before it and the releases after it. device: on which it is recorded.
    names: of buffers. devices: where they are."""

    steps: tuple[Step, ...]
    device: torch.device | None
    names: frozenset[str]
    devices: frozenset[torch.device]


def _grouped(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps of each unit; releases of inputs that nothing uses are the first one."""
    unit: list[Step] = []
    worked = True
    for step in steps:
        if worked and not isinstance(step, Release):
            if unit:
                yield unit
            unit, worked = [], False
        unit.append(step)
        worked = worked or isinstance(step, Launch | ExternCall)
    if unit:
        yield unit


def _unit(steps: Sequence[Step], plan: KernelPlan, reasons: Mapping[int, str | None]) -> _Unit:
    work = next((step for step in steps if isinstance(step, Launch | ExternCall)), None)
    device = None if work is None or reasons[id(work)] else _device_of(work, plan)
    names = {name for step in steps for name in (*_used(step), *_created(step))}
    buffers = [plan.buffers[name] for name in names if name in plan.buffers]
    return _Unit(tuple(steps), device, frozenset(names), frozenset(buffer.device for buffer in buffers))


def _moved_forward(units: Sequence[_Unit]) -> list[_Unit]:
    """The units, with those that are not recorded moved before others that have nothing to do with them: a number that
    is drawn on the CPU then divides nothing. Those on one device keep their order, and so their random numbers."""
    order: list[_Unit] = []
    for unit in units:
        at = len(order)
        while unit.device is None and unit.devices and at and _independent(order[at - 1], unit):
            at -= 1
        order.insert(at, unit)
    return order


def _independent(one: _Unit, other: _Unit) -> bool:
    return bool(one.devices) and not one.devices & other.devices and not one.names & other.names


def _runs(units: Iterable[_Unit]) -> Iterator[list[_Unit]]:
    """Successive units for one device."""
    for _, run in itertools.groupby(units, lambda unit: unit.device):
        yield list(run)


def _device_of(step: Launch | ExternCall, plan: KernelPlan) -> torch.device | None:
    """The device that all tensors of the step are on."""
    names = touched(step.kernel if isinstance(step, Launch) else step)
    devices = {plan.buffers[name].device for name in names if name in plan.buffers}
    return devices.pop() if len(devices) == 1 else None


def _created(step: Step) -> tuple[str, ...]:
    """Buffers that exist from this step on."""
    if isinstance(step, Allocate):
        return (step.buffer,)
    return tuple(filter(None, step.outputs)) if isinstance(step, ExternCall) else ()


def _segment(
    plan: KernelPlan, number: int, device: torch.device, span: range, creators: dict[str, int | None]
) -> Segment:
    """creators: which segment makes a buffer, None for other steps."""
    needed: dict[str, None] = {}
    own: dict[str, None] = {}
    ended: set[str] = set()
    replaced: dict[str, None] = {}  # what is written to, or whose memory is taken over
    for step in (plan.steps[at] for at in span):
        used = _used(step)
        needed.update(dict.fromkeys(name for name in used if name not in own))
        own.update(dict.fromkeys(_created(step)))
        if isinstance(step, Release):
            ended.add(step.buffer)
        elif isinstance(step, Allocate) and step.reuse is not None:
            ended.add(step.reuse)
            replaced[step.reuse] = None
        elif isinstance(step, Launch | ExternCall):
            replaced.update(dict.fromkeys(step.mutates if isinstance(step, ExternCall) else step.kernel.writes))
    inputs = [name for name in needed if name not in plan.constants]
    inputs += [size.name for size in plan.sizes if not size.definition]
    changed = [name for name in inputs if name in replaced]
    lent = {name for name in changed if name in ended and name in creators and creators[name] is None}
    return Segment(
        f"segment_{number}",
        device,
        span,
        tuple(inputs),
        tuple(name for name in own if name not in ended),
        ended=tuple(name for name in inputs if name in ended),
        fixed=tuple(name for name in changed if name not in lent),
        copied=tuple(name for name in changed if name in lent),
    )


def _used(step: Step) -> tuple[str, ...]:
    """What the step reads or writes, by name."""
    if isinstance(step, Allocate):
        return () if step.reuse is None else (step.reuse,)
    if isinstance(step, Release):
        return (step.buffer,)
    if isinstance(step, Launch):
        return touched(step.kernel)
    made = set(_created(step))
    given = _names_given((*step.args, *step.kwargs.values()))
    return (*(name for name in touched(step) if name not in made or name in step.mutates), *given)


def _names_given(arguments: Sequence[Argument]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, PassedOn):
            yield argument.name
        elif isinstance(argument, tuple):
            yield from _names_given(argument)
