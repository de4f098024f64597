"""Chooses among the alternatives of a group: the stored result of an earlier measurement, else the fastest one,
measured now on the device, else the choice of the rules.

Each is measured on memory of its own with the sizes of the call, once per device and kernel: the choice is a small file
under a digest of everything that it depends on, so it can be copied to other machines with the same device.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import attrs
import torch

from armature.codegen.alternatives import Alternative, GroupSpec
from armature.codegen.data import KernelChoice, KernelSource, Tried
from armature.run.joined import Launch

if TYPE_CHECKING:
    from armature.services import Services

CHOICE = ".json"

ONE_AT_A_TIME = threading.Lock()


class NothingMeasured(Exception):
    """No alternative could be measured, so there is no result to store. choice: that of the rules."""

    def __init__(self, choice: KernelChoice) -> None:
        super().__init__(choice.how)
        self.choice = choice


class Timer(Protocol):
    """Measures calls on a device."""

    def __call__(self, label: str, call: Callable[[], None]) -> float:
        """Seconds of one call whose inputs are not in a cache of the device."""


def arguments(group: GroupSpec, place: torch.device) -> list[torch.Tensor | int]:
    """Arguments for measuring, in new memory: normal random numbers, and zeros for integers, which may be positions.

    The state of the program's generators is unchanged.
    """
    numbers = torch.Generator(place).manual_seed(0)
    made: list[torch.Tensor | int] = []
    for given in group.arguments:
        if given.dtype is None:
            made.append(given.size)
        elif given.by_value:
            made.append(torch.ones(given.size, dtype=given.dtype))
        elif given.dtype.is_floating_point:
            made.append(torch.randn(given.size, device=place, generator=numbers).to(given.dtype))
        else:
            made.append(torch.zeros(given.size, dtype=given.dtype, device=place))
    return made


@attrs.frozen
class Measurement:
    """The result of measuring. seconds: by label. problems: why other alternatives were not measured."""

    seconds: Mapping[str, float]
    problems: Mapping[str, str]

    @property
    def fastest(self) -> str | None:
        """The label of the fastest; None if none could be measured."""
        return min(self.seconds, key=self.seconds.__getitem__, default=None)


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return str(error).strip().partition("\n")[0]


Bound = Callable[[Alternative], Launch]


def measure(
    group: GroupSpec, bound: Bound, problems: Mapping[str, str], place: torch.device, timer: Timer
) -> Measurement:
    """Measure all alternatives that have no problem. One that can't be loaded or launched has one, and all have one if
    there is not enough memory."""
    seconds: dict[str, float] = {}
    found = dict(problems)
    with ONE_AT_A_TIME, torch.no_grad():
        try:
            args = arguments(group, place)
        except RuntimeError as error:
            return Measurement({}, {each.label: first_line(error) for each in group.alternatives})
        for each in group.alternatives:
            if each.label in found:
                continue
            try:
                seconds[each.label] = timer(each.label, partial(bound(each), *args))
            except (RuntimeError, OSError) as error:  # too much shared memory or registers, or no memory left
                found[each.label] = first_line(error)
    return Measurement(seconds, found)


def as_text(choice: KernelChoice) -> str:
    """A choice as the text of a file."""
    tried = [attrs.asdict(each) for each in choice.tried]
    return json.dumps({"chosen": choice.chosen, "device": choice.device, "tried": tried}, indent=1)


def from_text(text: str, group: GroupSpec) -> KernelChoice:
    """A choice from a file. Errors: ValueError if it does not name one of the group's alternatives."""
    data = json.loads(text)
    labels = {each.label for each in group.alternatives}
    tried = tuple(Tried(**each) for each in data["tried"])
    if data["chosen"] not in labels or not labels.issuperset(each.label for each in tried):
        raise ValueError(f"{data['chosen']} is no alternative of {group.name}")
    return KernelChoice(group.name, str(data["chosen"]), "kept", str(data["device"]), tried)


def choice_of(group: GroupSpec, found: Measurement, device: str) -> KernelChoice:
    """The choice after measuring. Errors: NothingMeasured."""
    tried = tuple(
        Tried(each.label, found.seconds.get(each.label), found.problems.get(each.label, ""))
        for each in group.alternatives
    )
    fastest = found.fastest
    if fastest is None:
        how = "by rule: none could be measured"
        raise NothingMeasured(KernelChoice(group.name, group.alternatives[0].label, how, device, tried))
    return KernelChoice(group.name, fastest, "measured", device, tried)


def by_rule(group: GroupSpec, reason: str, device: str) -> KernelChoice:
    """The choice of the rules."""
    tried = tuple(Tried(each.label, None, "") for each in group.alternatives)
    return KernelChoice(group.name, group.alternatives[0].label, f"by rule: {reason}", device, tried)


def read(path: Path, group: GroupSpec) -> KernelChoice:
    """Read a stored choice. Errors: ValueError, KeyError, TypeError for an invalid file."""
    return from_text(path.read_text(encoding="utf-8"), group)


def with_choice(group: GroupSpec, choice: KernelChoice) -> GroupSpec:
    """The group with the chosen alternative."""
    return group.taking(next(each for each in group.alternatives if each.label == choice.chosen))


@attrs.frozen(eq=False)
class Chooser:
    """Chooses among alternatives of the groups of one source, and notes each choice in it.

    device: the name of the one that a group is measured on. key: everything that its choice depends on. measured:
    measures it. reason_not_to: why nothing can be measured; "" if measuring is possible.
    """

    source: KernelSource
    ctx: Services
    device: Callable[[GroupSpec], str]
    key: Callable[[GroupSpec], tuple[str, ...]]
    measured: Callable[[GroupSpec], Measurement]
    reason_not_to: str = ""

    def run(self, groups: Sequence[GroupSpec]) -> tuple[GroupSpec, ...]:
        """The groups, each with the chosen alternative."""
        return tuple(self.chosen(group) if group.alternatives else group for group in groups)

    @property
    def reason(self) -> str:
        """Why nothing is measured; "" if it is."""
        return self.reason_not_to if self.ctx.config.measure else "measuring is switched off"

    def chosen(self, group: GroupSpec) -> GroupSpec:
        """A group with the chosen alternative: known from the store, measured now, or by rule."""
        device = self.device(group)
        fresh: list[KernelChoice] = []

        def write(path: Path) -> None:
            if self.reason:  # the stored file does not hold a valid choice
                raise NothingMeasured(by_rule(group, self.reason, device))
            fresh.append(choice_of(group, self.measured(group), device))
            path.write_text(as_text(fresh[0]), encoding="utf-8")

        try:
            key = self.key(group)
            if self.reason and not self.ctx.choices.holds(key, CHOICE):
                choice = by_rule(group, self.reason, device)
            else:
                choice = self.ctx.choices.load(key, CHOICE, write, partial(read, group=group))
        except NothingMeasured as nothing:
            choice = nothing.choice
        choice = fresh[0] if fresh else choice
        self.source.choices.append(choice)
        return with_choice(group, choice)
