"""Mutations of objects that outlive the frame: held back while tracing, replayed by the generated code.

An object made in the frame is simply built in its last state. For the others the last state is prepared first, all of
them, then written: preparing reads the program's objects as they were before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from armature.trace.values.base import Value, Write
from armature.trace.values.function import CellValue

if TYPE_CHECKING:
    from armature.trace.rebuild import Rebuilder


@attrs.define(eq=False)
class Effects:
    """What the frame has changed, in the order of the first change of each object."""

    changed: dict[Value, None] = attrs.field(factory=dict)
    count: int = 0  # of changes to what outlives the frame
    watched: dict[Value, None] | None = None  # where someone watches: all that was changed, made in the frame or not
    class_attributes: dict[tuple[type, str], Value] = attrs.field(factory=dict)
    globals_: dict[tuple[int, str], tuple[dict[str, object], Value | None]] = attrs.field(factory=dict)

    def record(self, value: Value) -> None:
        """The object of a value is changed. One made in the frame needs no replay."""
        if self.watched is not None:
            self.watched[value] = None
        if value.source is not None or (isinstance(value, CellValue) and value.real is not None):
            self.changed[value] = None
            self.count += 1

    def store_global(self, namespace: dict[str, object], name: str, value: Value | None) -> None:
        """A global variable is set; None: deleted."""
        self.count += 1
        if value is None and name not in namespace:  # made and deleted by the frame
            self.globals_.pop((id(namespace), name), None)
        else:
            self.globals_[(id(namespace), name)] = (namespace, value)

    def global_of(self, namespace: dict[str, object], name: str) -> tuple[dict[str, object], Value | None] | None:
        """What the frame has stored in a global, None when it has not."""
        return self.globals_.get((id(namespace), name))

    @property
    def empty(self) -> bool:
        """Whether nothing that outlives the frame was changed."""
        return not self.changed and not self.globals_ and not self.class_attributes

    def writes(self, out: Rebuilder) -> list[Write]:
        """The calls that bring all objects to their last state."""
        found: list[Write] = []
        for changed in list(self.changed):
            found += changed.writes(out)
        for (cls, attribute), held in self.class_attributes.items():
            found.append(Write(type.__setattr__, (out.value(cls), out.value(attribute), held)))
        for (_, name), (namespace, value) in self.globals_.items():
            where = out.namespace_value(namespace)
            if value is None:
                found.append(Write(dict.__delitem__, (where, out.value(name))))
            else:
                found.append(Write(dict.__setitem__, (where, out.value(name), value)))
        return [*found, *out.tracer.overrides.writes(out)]
