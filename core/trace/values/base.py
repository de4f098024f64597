"""What the tracer pushes on its stack: a value stands for a Python object of the traced program."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs

if TYPE_CHECKING:
    from armature.frame.sources import Source


@attrs.define(eq=False)
class Value:
    """Base of all values. `source` says where the object can be loaded again, None for one made while tracing.

    Plugins subclass this for third-party types and override the verbs that the type supports; a verb that is not overridden
    breaks the graph with a catalogue id. `tracer` arguments give access to the graph, guards and tables.
    """

    source: Source | None = attrs.field(default=None, kw_only=True)

    is_tensor: ClassVar[bool] = False
    is_constant: ClassVar[bool] = False
