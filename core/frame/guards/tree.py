"""Builds torch's C++ guard tree from guard records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import attrs
import torch

from armature.frame.data import FrameRequest
from armature.frame.guards.guard import Condition, Guard, Quantity, TreeBuilder
from armature.frame.source import Source
from armature.torch_abi.eval_frame import GuardHolder


class Mark(NamedTuple):
    """The description of a guard, without references to objects. source: None if the guard concerns several. It is a
    plain tuple because there are many and most are never read.

    numbers: those that a condition compares. objects: those whose identity the guard compares.
    """

    kind: type[Guard]
    source: Source | None
    user: str
    numbers: tuple[Quantity, ...] = ()
    objects: tuple[Source, ...] = ()


def marks_of(guards: Iterable[Guard]) -> tuple[Mark, ...]:
    """The marks of guards."""
    return tuple(map(_mark, guards))


def _mark(guard: Guard) -> Mark:
    return Mark(type(guard), guard.source, guard.user, guard.numbers, guard.objects)


STATES: Mapping[str, Callable[[], object]] = MappingProxyType(
    {
        "grad_mode": torch.is_grad_enabled,
        "default_dtype": torch.get_default_dtype,
        "allow_tf32": torch.get_float32_matmul_precision,
        "num_threads": torch.get_num_threads,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "deterministic_algorithms_warn_only": torch.is_deterministic_algorithms_warn_only_enabled,
    }
)
"""How a program asks for the states of torch that every tree guards, by torch's names for them."""


def states_now() -> Mapping[str, object]:
    """The values of these states."""
    return {name: read() for name, read in STATES.items()}


@attrs.frozen(eq=False)
class GuardTree:
    """The tree, and what explains a failed guard later: a text and a `Mark` per guard, and a test per shape
    condition."""

    holder: GuardHolder
    texts: tuple[str, ...]
    marks: tuple[Mark, ...] = ()
    conditions: tuple[tuple[str, Condition], ...] = ()
    sizes: tuple[tuple[Source, tuple[int | None, ...]], ...] = ()  # the guarded sizes of tensors
    state: Mapping[str, object] = attrs.field(factory=states_now)  # of torch, when the tree was built

    def check(self, f_locals: dict[str, object]) -> bool:
        """Whether all guards hold for these locals."""
        return bool(self.holder.root.check(f_locals))


def build(guards: Iterable[Guard], request: FrameRequest) -> GuardTree:
    """Build the tree for a frame's guards; the frame is in the state in which it was traced. Errors: those of reading a
    source."""
    kept = _without_repeats(guards)
    builder = TreeBuilder(request, any(g.of_subclass for g in kept) or bool(request.overriding.modes))
    texts = tuple(guard.text for guard in kept)
    for guard, text in zip(kept, texts, strict=True):
        guard.add(builder, [text])
    builder.finish()
    sizes = tuple((g.source, g.sizes) for g in kept if g.source is not None and g.sizes is not None)
    return GuardTree(builder.holder, texts, marks_of(kept), tuple(builder.conditions), sizes)


def _without_repeats(guards: Iterable[Guard]) -> list[Guard]:
    """Each guard once, without type guards that a stronger guard implies."""
    guards = list(guards)
    typed = {guard.source for guard in guards if guard.holds_type}
    unlike: dict[object, Guard] = {}
    for guard in guards:
        if not (guard.only_type and guard.source in typed):
            unlike.setdefault(guard.identity, guard)
    return list(unlike.values())
