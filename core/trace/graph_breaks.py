"""Builds graph breaks: a row of the catalogue, and the user's location."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from armature.breaks.types import BreakEvent, BreakType
from armature.errors import UnknownBreakType
from armature.trace.errors import GraphBreak
from armature.trace.locations import Location, locations_of

if TYPE_CHECKING:
    from armature.plugins.tables import Tables
    from armature.trace.stack import FrameStack


@attrs.frozen(eq=False)
class Breaks:
    """Builds the graph breaks of a trace."""

    tables: Tables
    stack: FrameStack[Any]

    def break_at(self, places: tuple[Location, ...] | None, type_id: str, **facts: object) -> GraphBreak:
        """Build a graph break, to raise now or to keep for later. places: where the graph is to end; None: here."""
        try:
            kind = self.tables.break_type(type_id)
        except UnknownBreakType:
            named = ", ".join(f"{name}: {{{name}}}" for name in facts)
            kind = BreakType(type_id, type_id, named or type_id, ("No plugin describes this break.",))
        event = BreakEvent(kind, facts, self.stack.summaries(), values=self.stack.values())
        return GraphBreak(event, locations_of(self.stack.frames) if places is None else places)
