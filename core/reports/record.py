"""The record of a run: plain frozen data, from which every report is made. `schema` derives the JSON schema from it.

Times are in seconds since the recording began, sizes in bytes. Frames, breaks and graphs refer to each other by number.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import zip_longest

import attrs

from armature.frame.guards.explain import FailedGuard
from armature.reports import carets
from armature.reports.fields import documented

FORMAT = 1  # version of the JSON form; increased when older readers would misread it


class Outcome(StrEnum):
    """What became of a frame."""

    COMPILED = "compiled"
    RECOMPILED = "recompiled"
    BROKEN = "broken"
    EMPTY = "nothing to compile"
    SKIPPED = "skipped"
    FELL_BACK = "fell back"
    FAILED = "failed"
    LIMIT = "hit the limit"


class End(StrEnum):
    """How the program ended."""

    ENDED = "ended"
    EXITED = "exited"
    RAISED = "raised"


@attrs.frozen
class Place:
    """A line of the program."""

    file: str = documented("path of the file")
    line: int = documented("its number, the first one is 1")
    function: str = documented("the function that it is in", default="")
    text: str = documented("the line without its indentation", default="")
    column: int = documented("where the expression begins in `text`, from 0; -1: not known", default=-1)
    end_column: int = documented("the column after the expression, in `text`; -1: not known", default=-1)
    own: bool = documented(
        "whether it is of the program or a library of models, and not of Python or torch", default=True
    )

    @property
    def where(self) -> str:
        """`model.py:41`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"

    @property
    def caret(self) -> str:
        """A line to print below `text`, with carets under the expression; "" if its columns are not known."""
        return carets.caret_line(self.text, self.column, self.end_column)


@attrs.frozen
class SeenValue:
    """A value that a line works on."""

    expression: str = documented("the program's name for it")
    description: str = documented("type, and for tensors dtype, sizes and device")


@attrs.frozen
class GuardFailure(FailedGuard):
    """A guard that failed: compiled code relied on a value that has changed."""

    text: str = documented("the guard in words")
    expression: str = documented(
        "the program's expression for the value; empty where it is about more than one", default=""
    )
    before: str = documented("what was relied on", default="")
    now: str = documented("what was there; empty where that can't be told", default="")
    user: str = documented("the line that relies on it", default="")


@attrs.frozen
class Frame:
    """One look at a frame of the program: a compilation, or a decision to leave it alone."""

    id: int = documented("its number in this record")
    function: str = documented("qualified name")
    file: str = documented("path of the file")
    line: int = documented("first line of the function")
    outcome: Outcome = documented("what became of it")
    reason: str = documented("why, in words; never empty")
    parent: int | None = documented("the frame that called it, of those in this record")
    at: float = documented("when it was looked at")
    seconds: float = documented("for which it was compiled", default=0.0)
    operators: int = documented("operators in its graphs", default=0)
    backend: str = documented("what compiled it", default="")
    callers: tuple[Place, ...] = documented("the lines that led to it, the nearest first", default=())
    failures: tuple[GuardFailure, ...] = documented("guards of code compiled before that did not hold", default=())
    breaks: tuple[int, ...] = documented("numbers of the graph breaks in it", default=())
    graphs: tuple[int, ...] = documented("numbers of its graphs", default=())
    guards: tuple[str, ...] = documented("what the compiled code relies on", default=())

    @property
    def where(self) -> str:
        """`model.py:41`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@attrs.frozen
class Break:
    """Graph breaks of one type at one place."""

    id: int = documented("its number in this record")
    type: str = documented("id of the break type, for `armature breaks show`")
    title: str = documented("of the break type")
    explanation: str = documented("why the graph broke, with the facts of this place")
    hints: tuple[str, ...] = documented("what to do")
    hint_kinds: tuple[str, ...] = documented(
        "what following each of the hints comes to: fundamental (the program has to be written otherwise), supportable "
        "(a setting, a rule or a plugin keeps it in the graph), user error, or ours (it is not compiled yet)",
        default=(),
    )
    code: str = documented("number of the break type that stays, for search", default="")
    cause: str = documented("why no graph can hold it, or why it is not traced", default="")
    docs_url: str = documented("where there is more, empty where there is not", default="")
    plugin: str = documented("the plugin that describes the type", default="")
    stack: tuple[Place, ...] = documented("lines of the program, the innermost last", default=())
    values: tuple[SeenValue, ...] = documented("what the innermost line works on", default=())
    count: int = documented("how often it was met while compiling", default=1)
    seconds: float = documented(
        "spent on it: tracing again to cut the frame, and compiling what follows apart", default=0.0
    )
    outcome: str = documented("what was done", default="")
    frames: tuple[int, ...] = documented("the frames it was met in", default=())

    @property
    def advice(self) -> tuple[tuple[str, str], ...]:
        """What the user can do, and what kind of advice that is; "" if the record has none."""
        return tuple(zip_longest(self.hints, self.hint_kinds[: len(self.hints)], fillvalue=""))

    @property
    def name(self) -> str:
        """The code and id that people search for: `GB0170 data-dependent-branch`."""
        return f"{self.code} {self.type}".lstrip()

    @property
    def place(self) -> Place | None:
        """The innermost line outside Python and torch; if there is none, the innermost of all."""
        return next((place for place in reversed(self.stack) if place.own), self.stack[-1] if self.stack else None)


@attrs.frozen
class Node:
    """A node of a graph."""

    name: str = documented("unique in its graph")
    kind: str = documented('"input", "operator" or "output"')
    target: str = documented("what it calls; of an input, the program's expression for it", default="")
    inputs: tuple[str, ...] = documented("names of the nodes it uses", default=())
    type: str = documented("dtype and sizes of its result", default="")
    place: Place | None = documented("the line of the program that it comes from", default=None)
    kernels: tuple[str, ...] = documented("names of the kernels that compute it", default=())


@attrs.frozen
class Tried:
    """A way to compute a kernel that was considered."""

    label: str = documented("torch's operator, or the tile sizes")
    seconds: float | None = documented("of one run; null: it was not measured", default=None)
    problem: str = documented("why it was not measured, empty where it was or nothing was", default="")


@attrs.frozen
class Choice:
    """Which of several ways to compute a kernel was taken (mode max-autotune)."""

    chosen: str = documented("the label of the one taken")
    how: str = documented('"measured", "kept" from an earlier measurement, or "by rule" with the reason')
    device: str = documented("what it was measured on", default="")
    tried: tuple[Tried, ...] = documented("all that were considered", default=())


@attrs.frozen
class Kernel:
    """A kernel of ours, or a call of one of torch's."""

    name: str = documented("as in the trace and the code")
    generated: bool = documented("whether armature made it; false: an operator of torch is called")
    device: str = documented("where it runs", default="")
    language: str = documented("of its code", default="")
    code: str = documented("its own part of the generated code", default="")
    operators: tuple[str, ...] = documented("what is fused in it", default=())
    nodes: tuple[str, ...] = documented("names of the graph's nodes that it computes", default=())
    reads: tuple[str, ...] = documented("buffers it reads", default=())
    writes: tuple[str, ...] = documented("buffers it writes", default=())
    bytes_read: int | None = documented("size of what it reads; null where sizes are symbols", default=None)
    bytes_written: int | None = documented("size of what it writes; null where sizes are symbols", default=None)
    reason: str = documented("why torch's operator is called, in words; empty for a kernel of ours", default="")
    detail: str = documented("which dtype, argument or library that is, if it is known", default="")
    choice: Choice | None = documented("how it was chosen among several; null where there was one way", default=None)
    places: tuple[Place, ...] = documented("the lines of the program that it comes from", default=())


@attrs.frozen
class MemoryStep:
    """Memory that a graph has allocated after a step of its plan."""

    step: str = documented("the kernel or call that ran")
    bytes: int = documented("of buffers alive that the graph has allocated, when it runs")


@attrs.frozen
class Graph:
    """A compiled graph."""

    id: int = documented("its number in this record")
    frame: int = documented("the frame it is of")
    name: str = documented("as in the generated code")
    kind: str = documented('"inference", "forward", "backward", or "captured" where a backend took it as it was')
    nodes: tuple[Node, ...] = documented("in order")
    kernels: tuple[Kernel, ...] = documented("in the order in which they run", default=())
    wrapper: str = documented("the Python code that calls the kernels", default="")
    memory: tuple[MemoryStep, ...] = documented("after each step; empty where sizes are symbols", default=())

    @property
    def operators(self) -> int:
        """The number of calls in the graph."""
        return sum(node.kind == "operator" for node in self.nodes)

    @property
    def peak_bytes(self) -> int:
        """The most bytes that the graph has allocated at one time."""
        return max((step.bytes for step in self.memory), default=0)


@attrs.frozen
class Span:
    """Work that took time: a stage of a compilation, or a run of a graph or kernel."""

    name: str = documented("a function, a stage, a graph or a kernel")
    kind: str = documented('"frame" and "stage" while compiling, "graph" and "kernel" while running')
    start: float = documented("when it began")
    seconds: float = documented("how long it took")
    frame: int | None = documented("the frame compiled", default=None)
    thread: int = documented("in which it ran, 0 is the first", default=0)


@attrs.frozen
class MemorySample:
    """Memory of the process at one moment."""

    at: float = documented("when")
    resident: int = documented("bytes of the process in main memory")
    device: int = documented("bytes of tensors on accelerators", default=0)


@attrs.frozen
class Versions:
    """The versions of the software that ran."""

    armature: str = documented("version of the core", default="")
    torch: str = documented("version of torch", default="")
    python: str = documented("version of Python", default="")
    platform: str = documented("operating system and processor", default="")
    plugins: tuple[str, ...] = documented("distributions with their versions", default=())


@attrs.frozen
class Recording:
    """A run of a program."""

    versions: Versions = documented("what ran", factory=Versions)
    program: str = documented("path of the program, or the id of a test", default="")
    arguments: tuple[str, ...] = documented("its arguments", default=())
    folder: str = documented("where it was run", default="")
    end: End = documented("how the program ended", default=End.ENDED)
    status: int = documented("its exit status", default=0)
    error: str = documented("the traceback where it raised", default="")
    seconds: float = documented("the whole run", default=0.0)
    frames: tuple[Frame, ...] = documented("in the order in which they were looked at", default=())
    breaks: tuple[Break, ...] = documented("each type at each place once", default=())
    graphs: tuple[Graph, ...] = documented("in the order in which they were compiled", default=())
    spans: tuple[Span, ...] = documented("what took time, by its beginning", default=())
    memory: tuple[MemorySample, ...] = documented("over time", default=())
    problems: tuple[str, ...] = documented(
        "what this record lacks or could not tell, and faults of plugins", default=()
    )
    format: int = documented("of this record", default=FORMAT)

    @property
    def recompiled(self) -> tuple[Frame, ...]:
        """Frames that were compiled again, or would have been but for the limit."""
        return tuple(frame for frame in self.frames if frame.failures)

    def count(self, *outcomes: Outcome) -> int:
        """The number of frames with one of these outcomes."""
        return sum(frame.outcome in outcomes for frame in self.frames)

    @property
    def calls(self) -> tuple[Kernel, ...]:
        """All calls of torch's operators in graphs that were compiled to kernels."""
        return tuple(kernel for graph in self.graphs for kernel in graph.kernels if not kernel.generated)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that were generated."""
        return tuple(kernel for graph in self.graphs for kernel in graph.kernels if kernel.generated)
