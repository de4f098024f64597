"""What the frame hook gives to tracing: a Python frame about to run, frozen."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import CellType, CodeType
from weakref import ReferenceType

import attrs

from armature.frame.history import History
from armature.torch_abi.overrides import Overriding, overriding


@attrs.define(eq=False)
class ResumeTable:
    """The resume functions' codes made for one code object and what it calls: the same break gives the same code.

    Code objects are no part of Python's search for cycles. So a table belongs to the code object that was compiled
    first; what is made for a resume function finds other codes through it (`HeldCode`), and nothing in it holds that
    object.
    """

    made: dict[Hashable, CodeType] = attrs.field(factory=dict)


@attrs.frozen(eq=False)
class HeldCode:
    """A code object of a table, for code that the table holds itself. The table lives while any of its codes run."""

    table: ReferenceType[ResumeTable]
    key: Hashable

    def __call__(self) -> CodeType:
        table = self.table()
        if table is None:
            raise ReferenceError("the code that this one goes on with is gone")
        return table.made[self.key]


@attrs.frozen(eq=False)
class ResumePoint:
    """What a resume function's code goes on with. It stands last among the constants of that code.

    positions: for each instruction of the code, the position of the instruction of `origin` that it is a copy of, -1
    in the prologue. The origin and the table live while the code runs.
    """

    origin: ReferenceType[CodeType]
    positions: tuple[int, ...]
    table: ReferenceType[ResumeTable]


def resume_point(code: CodeType) -> ResumePoint | None:
    """What a code object resumes, None when it is no resume function's."""
    last = code.co_consts[-1] if code.co_consts else None
    return last if isinstance(last, ResumePoint) else None


@attrs.frozen(eq=False)
class FrameRequest:
    """A frame to compile. `locals` holds the arguments under their names, cells unopened under the names of
    `code.co_cellvars` (arguments that are cells: their value) and `code.co_freevars` (`closure`).

    promising: whether a tensor is in reach, at a look; if none is, tracing does not go on where it becomes costly.
    """

    code: CodeType
    locals: Mapping[str, object]
    globals: dict[str, object]
    builtins: Mapping[str, object]
    closure: tuple[CellType, ...]
    fullgraph: bool = False
    dynamic: bool | None = None
    history: History = attrs.field(factory=History)
    resumes: ResumeTable = attrs.field(factory=ResumeTable)
    overriding: Overriding = attrs.field(factory=overriding)
    promising: bool = True
