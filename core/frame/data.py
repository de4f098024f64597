"""The input of tracing: a Python frame about to run, frozen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import CellType, CodeType
from typing import TypeAlias
from weakref import ReferenceType

import attrs

from armature.frame.history import History
from armature.torch_abi.overrides import Overriding, overriding

SIZED = "dynamic-shape-operator"  # the break at an operator whose result has a size that depends on values
STACK = "__armature_stack_"  # prefix of the variables that hold a resumed frame's stack


@attrs.define(eq=False)
class ResumeTable:
    """The codes of the resume functions made for one code object and its callees: the same break yields the same
    code.

    Python's cycle collector does not see code objects, so a reference cycle through one would never be freed. The
    table therefore belongs to the code object that was compiled first and refers only to a copy of it, and resume
    functions find each other's code through the table (`CodeReference`).

    sized: the instructions, by code and byte offset, at which it was cut since the size of their result depends on
    values.
    """

    codes: dict[Hashable, CodeType] = attrs.field(factory=dict)
    sized: set[tuple[CodeType, int]] = attrs.field(factory=set)
    _copies: dict[tuple[CodeType, str], CodeType] = attrs.field(factory=dict)

    def note(self, break_id: str, code: CodeType, offset: int) -> None:
        """Note which break an instruction was cut at."""
        if break_id == SIZED:
            self.sized.add((self.copy_of(code), offset))

    def copy_of(self, code: CodeType) -> CodeType:
        """A copy of a code object; always the same one."""
        known = self._copies.get((code, code.co_filename))
        if known is None:
            known = code.replace()
            self._copies[(known, known.co_filename)] = known
        return known


@attrs.frozen(eq=False)
class CodeReference:
    """A weak reference from one code object of a table to another one. The table lives while any of its code runs."""

    table: ReferenceType[ResumeTable]
    key: Hashable

    def __call__(self) -> CodeType:
        table = self.table()
        if table is None:
            raise ReferenceError("the code that this one continues with is gone")
        return table.codes[self.key]


Path: TypeAlias = tuple[int, ...]  # the items that lead to a part of a value: (1, 0) is value[1][0]


@attrs.frozen
class Loop:
    """A loop around an instruction. expression: what it iterates over, as the program writes it; "" where source code
    is missing. targets: the local variables that each round sets, and where in the iterator's value theirs is."""

    expression: str
    targets: tuple[tuple[str, Path], ...]


@attrs.define(eq=False)
class ResumePoint:
    """Where a resume function continues. It is the last constant of that function's code.

    That code contains no copy of the program's instructions, because copying would take time for each break of a long
    function. Tracing goes from `prologue`, a position in the code, which restores stack and variables, to `entry`, a
    position in `origin`, a copy of the program's code. `write` writes code for eager mode when it is needed. names:
    globals and attributes that the program may look up from there on. offset: the byte offset of the instruction at
    `entry`. loops: the surrounding loops, outermost first; found on first use. sized: the variable of a tensor whose
    size depends on values, "" for none; the same.
    """

    origin: CodeType
    entry: int
    prologue: int
    table: ReferenceType[ResumeTable]
    write: Callable[[], CodeType]
    names: frozenset[str]
    offset: int = 0
    loops: Sequence[Loop] | None = None
    sized: str | None = None
    _eager_code: CodeType | None = None

    def eager_code(self) -> CodeType:
        """A code object with the same arguments and cells that runs the program's code from here to its end."""
        if self._eager_code is None:
            self._eager_code = self.write()
        return self._eager_code


def resume_point(code: CodeType) -> ResumePoint | None:
    """Where a code object resumes; None if it is not a resume function's."""
    last = code.co_consts[-1] if code.co_consts else None
    return last if isinstance(last, ResumePoint) else None


def program_of(code: CodeType) -> CodeType:
    """The program's code object that a resume function continues; for any other code object, that object itself."""
    point = resume_point(code)
    return code if point is None else point.origin


def names_of(code: CodeType) -> Iterable[str]:
    """The names of globals and attributes that a code object may look up."""
    point = resume_point(code)
    return code.co_names if point is None else point.names


def eager_code(code: CodeType) -> CodeType:
    """A code object that runs in eager mode and has the same effect as this one."""
    point = resume_point(code)
    return code.replace() if point is None else point.eager_code()


@attrs.frozen(eq=False)
class FrameRequest:
    """A frame to compile. `locals` holds the arguments by name, and unopened cells under the names of
    `code.co_cellvars` (for an argument that is a cell: its value) and `code.co_freevars` (`closure`).

    promising: whether a quick search found a tensor among the frame's variables; if not, tracing gives up as soon as
    it becomes costly.
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

    @property
    def is_resumed(self) -> bool:
        """Whether it resumes in the middle of a frame of the program."""
        return resume_point(self.code) is not None

    @property
    def is_in_loop(self) -> bool:
        """Whether it resumes within a `for` loop, whose iterator is on its stack."""
        return any(hasattr(type(held), "__next__") for name, held in self.locals.items() if name.startswith(STACK))

    def is_on_stack(self, obj: object) -> bool:
        """Whether an object is on the stack of a resumed frame: the iterator of a loop that it is in."""
        return any(held is obj for name, held in self.locals.items() if name.startswith(STACK))
