"""What the frame hook gives to tracing: a Python frame about to run, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from types import CellType, CodeType

import attrs

from armature.frame.history import History


@attrs.frozen(eq=False)
class FrameRequest:
    """A frame to compile. `locals` holds the arguments under their names, cells unopened under the names of
    `code.co_cellvars` (arguments that are cells: their value) and `code.co_freevars` (`closure`)."""

    code: CodeType
    locals: Mapping[str, object]
    globals: dict[str, object]
    builtins: Mapping[str, object]
    closure: tuple[CellType, ...]
    fullgraph: bool = False
    dynamic: bool | None = None
    history: History = attrs.field(factory=History)
