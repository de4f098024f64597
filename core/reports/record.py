"""The record of a run: plain frozen data, from which every report is made. `schema` derives the JSON schema from it.

Times are in seconds since the recording began, sizes in bytes. Frames, breaks and graphs refer to each other by number.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import zip_longest

import attrs

from armature.frame.guards.explain import FailedGuard
from armature.reports import carets
from armature.reports.fields import told

FORMAT = 1  # of the JSON form; larger when a reader of an older one would misread it


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

    file: str = told("path of the file")
    line: int = told("its number, the first one is 1")
    function: str = told("the function that it is in", default="")
    text: str = told("the line without its indentation", default="")
    column: int = told("where the expression begins in `text`, from 0; -1: not known", default=-1)
    end_column: int = told("the column after the expression, in `text`; -1: not known", default=-1)
    own: bool = told("whether it is of the program or a library of models, and not of Python or torch", default=True)

    @property
    def where(self) -> str:
        """`model.py:41`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"

    @property
    def caret(self) -> str:
        """A line to stand under `text`, with carets under the expression; "" where it is not known."""
        return carets.under(self.text, self.column, self.end_column)


@attrs.frozen
class SeenValue:
    """A value that a line works on."""

    expression: str = told("the program's name for it")
    description: str = told("type, and for tensors dtype, sizes and device")


@attrs.frozen
class GuardFailure(FailedGuard):
    """Something that compiled code relied on and that was otherwise."""

    text: str = told("the guard in words")
    expression: str = told("the program's expression for the value; empty where it is about more than one", default="")
    before: str = told("what was relied on", default="")
    now: str = told("what was there; empty where that can't be told", default="")
    user: str = told("the line that relies on it", default="")


@attrs.frozen
class Frame:
    """One look at a frame of the program: a compilation, or a decision to leave it alone."""

    id: int = told("its number in this record")
    function: str = told("qualified name")
    file: str = told("path of the file")
    line: int = told("first line of the function")
    outcome: Outcome = told("what became of it")
    reason: str = told("why, in words; never empty")
    parent: int | None = told("the frame that called it, of those in this record")
    at: float = told("when it was looked at")
    seconds: float = told("for which it was compiled", default=0.0)
    operators: int = told("operators in its graphs", default=0)
    backend: str = told("what compiled it", default="")
    callers: tuple[Place, ...] = told("the lines that led to it, the nearest first", default=())
    failures: tuple[GuardFailure, ...] = told("guards of code compiled before that did not hold", default=())
    breaks: tuple[int, ...] = told("numbers of the graph breaks in it", default=())
    graphs: tuple[int, ...] = told("numbers of its graphs", default=())
    guards: tuple[str, ...] = told("what the compiled code relies on", default=())

    @property
    def where(self) -> str:
        """`model.py:41`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@attrs.frozen
class Break:
    """Graph breaks of one type at one place."""

    id: int = told("its number in this record")
    type: str = told("id of the break type, for `armature breaks show`")
    title: str = told("of the break type")
    explanation: str = told("why the graph broke, with the facts of this place")
    hints: tuple[str, ...] = told("what to do")
    hint_kinds: tuple[str, ...] = told(
        "what following each of the hints comes to: fundamental (the program has to be written otherwise), supportable "
        "(a setting, a rule or a plugin keeps it in the graph), user error, or ours (it is not compiled yet)",
        default=(),
    )
    code: str = told("number of the break type that stays, for search", default="")
    cause: str = told("why no graph can hold it, or why it is not traced", default="")
    docs_url: str = told("where there is more, empty where there is not", default="")
    plugin: str = told("the plugin that describes the type", default="")
    stack: tuple[Place, ...] = told("lines of the program, the innermost last", default=())
    values: tuple[SeenValue, ...] = told("what the innermost line works on", default=())
    count: int = told("how often it was met while compiling", default=1)
    seconds: float = told("spent on it: tracing again to cut the frame, and compiling what follows apart", default=0.0)
    outcome: str = told("what was done", default="")
    frames: tuple[int, ...] = told("the frames it was met in", default=())

    @property
    def advice(self) -> tuple[tuple[str, str], ...]:
        """What to do and of what kind that is, "" where a record does not say."""
        return tuple(zip_longest(self.hints, self.hint_kinds[: len(self.hints)], fillvalue=""))

    @property
    def name(self) -> str:
        """What people search for: `GB0170 data-dependent-branch`."""
        return f"{self.code} {self.type}".lstrip()

    @property
    def place(self) -> Place | None:
        """The innermost line that is not of Python or torch; the innermost of all where there is none."""
        return next((place for place in reversed(self.stack) if place.own), self.stack[-1] if self.stack else None)


@attrs.frozen
class Node:
    """A node of a graph."""

    name: str = told("unique in its graph")
    kind: str = told('"input", "operator" or "output"')
    target: str = told("what it calls; of an input, the program's expression for it", default="")
    inputs: tuple[str, ...] = told("names of the nodes it uses", default=())
    type: str = told("dtype and sizes of its result", default="")
    place: Place | None = told("the line of the program that it comes from", default=None)
    kernels: tuple[str, ...] = told("names of the kernels that compute it", default=())


@attrs.frozen
class Kernel:
    """A kernel of ours, or a call of one of torch's."""

    name: str = told("as in the trace and the code")
    generated: bool = told("whether armature made it; false: an operator of torch is called")
    device: str = told("where it runs", default="")
    language: str = told("of its code", default="")
    code: str = told("its own part of the generated code", default="")
    operators: tuple[str, ...] = told("what is fused in it", default=())
    nodes: tuple[str, ...] = told("names of the graph's nodes that it computes", default=())
    reads: tuple[str, ...] = told("buffers it reads", default=())
    writes: tuple[str, ...] = told("buffers it writes", default=())
    bytes_read: int | None = told("size of what it reads; null where sizes are symbols", default=None)
    bytes_written: int | None = told("size of what it writes; null where sizes are symbols", default=None)
    places: tuple[Place, ...] = told("the lines of the program that it comes from", default=())


@attrs.frozen
class MemoryStep:
    """Memory that a graph has allocated after a step of its plan."""

    step: str = told("the kernel or call that ran")
    bytes: int = told("of buffers alive that the graph has allocated, when it runs")


@attrs.frozen
class Graph:
    """A compiled graph."""

    id: int = told("its number in this record")
    frame: int = told("the frame it is of")
    name: str = told("as in the generated code")
    kind: str = told('"inference", "forward", "backward", or "captured" where a backend took it as it was')
    nodes: tuple[Node, ...] = told("in order")
    kernels: tuple[Kernel, ...] = told("in the order in which they run", default=())
    wrapper: str = told("the Python code that calls the kernels", default="")
    memory: tuple[MemoryStep, ...] = told("after each step; empty where sizes are symbols", default=())

    @property
    def operators(self) -> int:
        """Calls in it."""
        return sum(node.kind == "operator" for node in self.nodes)

    @property
    def peak_bytes(self) -> int:
        """The most that it has allocated at a time."""
        return max((step.bytes for step in self.memory), default=0)


@attrs.frozen
class Span:
    """Something that took time."""

    name: str = told("a function, a stage, a graph or a kernel")
    kind: str = told('"frame" and "stage" while compiling, "graph" and "kernel" while running')
    start: float = told("when it began")
    seconds: float = told("how long it took")
    frame: int | None = told("the frame compiled", default=None)
    thread: int = told("in which it ran, 0 is the first", default=0)


@attrs.frozen
class MemorySample:
    """Memory of the process at a time."""

    at: float = told("when")
    resident: int = told("bytes of the process in main memory")
    device: int = told("bytes of tensors on accelerators", default=0)


@attrs.frozen
class Versions:
    """What ran."""

    armature: str = told("version of the core", default="")
    torch: str = told("version of torch", default="")
    python: str = told("version of Python", default="")
    platform: str = told("operating system and processor", default="")
    plugins: tuple[str, ...] = told("distributions with their versions", default=())


@attrs.frozen
class Recording:
    """A run of a program."""

    versions: Versions = told("what ran", factory=Versions)
    program: str = told("path of the program, or the id of a test", default="")
    arguments: tuple[str, ...] = told("its arguments", default=())
    folder: str = told("where it was run", default="")
    end: End = told("how the program ended", default=End.ENDED)
    status: int = told("its exit status", default=0)
    error: str = told("the traceback where it raised", default="")
    seconds: float = told("the whole run", default=0.0)
    frames: tuple[Frame, ...] = told("in the order in which they were looked at", default=())
    breaks: tuple[Break, ...] = told("each type at each place once", default=())
    graphs: tuple[Graph, ...] = told("in the order in which they were compiled", default=())
    spans: tuple[Span, ...] = told("what took time, by its beginning", default=())
    memory: tuple[MemorySample, ...] = told("over time", default=())
    problems: tuple[str, ...] = told("what this record lacks or could not tell, and faults of plugins", default=())
    format: int = told("of this record", default=FORMAT)

    @property
    def recompiled(self) -> tuple[Frame, ...]:
        """Frames that were compiled again, or would have been but for the limit."""
        return tuple(frame for frame in self.frames if frame.failures)

    def count(self, *outcomes: Outcome) -> int:
        """How many frames came to one of these."""
        return sum(frame.outcome in outcomes for frame in self.frames)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels that were generated."""
        return tuple(kernel for graph in self.graphs for kernel in graph.kernels if kernel.generated)
