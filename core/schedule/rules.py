"""Plugins' rules of fusion: which kernels may become one, and how much that saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from armature.errors import FusionRuleFailed
from armature.schedule.data import FusionPair, FusionPart, FusionRule
from armature.schedule.group import Group
from armature.schedule.score import points

if TYPE_CHECKING:
    from armature.context import CompileContext


def part_of(group: Group, bytes_of: Callable[[str], int]) -> FusionPart:
    """A group as a rule sees it."""
    origins = (origin.op for member in group.members for origin in member.item.origins)
    return FusionPart(
        tuple(dict.fromkeys(origins)),
        points((*group.outer, *group.inner)),
        points(group.inner),
        {name: bytes_of(name) for name in group.loads},
        {name: bytes_of(name) for name in group.stores},
        group.weight,
    )


def saved_bytes(one: FusionPart, other: FusionPart) -> int:
    """Bytes that are not moved if the two are joined."""
    handed = one.writes.keys() & (other.reads.keys() | other.writes.keys()) | one.reads.keys() & other.writes.keys()
    sizes = {**one.reads, **one.writes}
    common = sizes.keys() & (other.reads.keys() | other.writes.keys())
    return sum(sizes[name] * (2 if name in handed else 1) for name in common)


@attrs.frozen(eq=False)
class FusionRules:
    """The rules of all plugins, in order."""

    rules: Sequence[FusionRule]
    ctx: CompileContext

    @classmethod
    def of(cls, ctx: CompileContext) -> FusionRules:
        """The rules of a compilation."""
        return cls(ctx.tables.fusion_rules, ctx)

    def saves(self, one: Group, other: Group, bytes_of: Callable[[str], int]) -> float:
        """What joining two groups saves; negative if a rule keeps them apart. Errors: FusionRuleFailed."""
        device = next(member.item.device for member in (*one.members, *other.members))
        left, right = part_of(one, bytes_of), part_of(other, bytes_of)
        pair = FusionPair(device, left, right, saved_bytes(left, right))
        for rule in self.rules:
            try:
                if rule.allows is not None and not rule.allows(pair):
                    return -1
                if rule.saves is not None:
                    pair = attrs.evolve(pair, saved=float(rule.saves(pair)))
            except Exception as error:
                plugin = self.ctx.tables.owner_of_fusion_rule(rule.name)
                problem = f"{type(error).__name__}: {error}"
                raise FusionRuleFailed(name=rule.name, plugin=plugin, problem=problem) from error
        return pair.saved
