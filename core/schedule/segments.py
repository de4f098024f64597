"""Divides a plan into segments: runs of steps whose launches one device can record, between steps that it can't."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import torch

from armature.lower.data import Argument, ExternCall, Given
from armature.schedule.data import Allocate, KernelPlan, Launch, Release, Segment, Step
from armature.schedule.memory import touched

FEWEST = 3
"""Steps that a segment has at least: its inputs are copied by one launch, and its replay is another."""

Refusal = Callable[[torch.device | None, Launch | ExternCall], str | None]
"""Why a step on a device can't be recorded; None if it can. Without a device: it has tensors of several, or none."""


@attrs.frozen
class Division:
    """Which steps of a plan are recorded. device: if it is given, all of them, as one. refused: those that can't be, by
    the reason."""

    device: torch.device | None = None
    segments: tuple[Segment, ...] = ()
    refused: Mapping[str, tuple[Launch | ExternCall, ...]] = attrs.field(factory=dict)


def divide(plan: KernelPlan, refusal: Refusal) -> Division:
    """Find the segments of a plan that can't be recorded whole."""
    work = [step for step in plan.steps if isinstance(step, Launch | ExternCall)]
    devices = [_device_of(step, plan) for step in work]
    reasons = [refusal(device, step) for device, step in zip(devices, work, strict=True)]
    if work and not any(reasons) and len(everywhere := {buffer.device for buffer in plan.buffers.values()}) == 1:
        return Division(everywhere.pop())
    places = [None if reason else device for device, reason in zip(devices, reasons, strict=True)]
    runs = [(device, span) for device, span in _runs(plan.steps, places) if device is not None]
    owner = {at: number for number, (_, span) in enumerate(runs) for at in span}
    made = {name: owner.get(at) for at, step in enumerate(plan.steps) for name in _made(step)}
    segments = tuple(_segment(plan, number, device, span, made) for number, (device, span) in enumerate(runs))
    refused: dict[str, tuple[Launch | ExternCall, ...]] = {}
    for step, reason in zip(work, reasons, strict=True):
        if reason:
            refused[reason] = (*refused.get(reason, ()), step)
    return Division(segments=segments, refused=refused)


def _device_of(step: Launch | ExternCall, plan: KernelPlan) -> torch.device | None:
    """The device that all tensors of the step are on."""
    names = touched(step.kernel if isinstance(step, Launch) else step)
    devices = {plan.buffers[name].device for name in names if name in plan.buffers}
    return devices.pop() if len(devices) == 1 else None


def _runs(steps: Sequence[Step], places: Sequence[torch.device | None]) -> Iterator[tuple[torch.device | None, range]]:
    """Successive steps for one device, from the first allocation for them to the last release, if they are enough."""
    devices: list[
        torch.device | None
    ] = []  # by step: an allocation is for the work after it, a release for that before
    number = 0
    for step in steps:
        if isinstance(step, Release):
            devices.append(devices[-1] if number else None)
        else:
            devices.append(places[number] if number < len(places) else None)
            number += isinstance(step, Launch | ExternCall)
    start = 0
    for at in range(1, len(steps) + 1):
        if at == len(steps) or devices[at] != devices[start]:
            span = range(start, at)
            if sum(isinstance(steps[k], Launch | ExternCall) for k in span) >= FEWEST:
                yield devices[start], span
            start = at


def _made(step: Step) -> tuple[str, ...]:
    """Buffers that exist from this step on."""
    if isinstance(step, Allocate):
        return (step.buffer,)
    return tuple(filter(None, step.outputs)) if isinstance(step, ExternCall) else ()


def _segment(plan: KernelPlan, number: int, device: torch.device, span: range, made: dict[str, int | None]) -> Segment:
    """made: which segment makes a buffer, None for other steps."""
    needed: dict[str, None] = {}
    own: dict[str, None] = {}
    ended: set[str] = set()
    replaced: dict[str, None] = {}  # what is written to, or whose memory is taken over
    for step in (plan.steps[at] for at in span):
        used = _used(step)
        needed.update(dict.fromkeys(name for name in used if name not in own))
        own.update(dict.fromkeys(_made(step)))
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
    lent = {name for name in changed if name in ended and name in made and made[name] is None}
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
    made = set(_made(step))
    given = _given((*step.args, *step.kwargs.values()))
    return (*(name for name in touched(step) if name not in made or name in step.mutates), *given)


def _given(arguments: Sequence[Argument]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Given):
            yield argument.name
        elif isinstance(argument, tuple):
            yield from _given(argument)
