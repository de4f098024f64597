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
    """The outcome of one look at a frame."""

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
    line: int = documented("line number, from 1")
    function: str = documented("the function that contains it", default="")
    text: str = documented("the line without its indentation", default="")
    column: int = documented("column in `text` where the expression begins, from 0; -1 if unknown", default=-1)
    end_column: int = documented("column in `text` after the expression; -1 if unknown", default=-1)
    own: bool = documented(
        "whether it belongs to the program or a library of models, and not to Python or torch", default=True
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
    """A value that a line uses."""

    expression: str = documented("the program's name for it")
    description: str = documented("type, and for tensors dtype, sizes and device")


@attrs.frozen
class GuardFailure(FailedGuard):
    """A guard that failed: compiled code relied on a value that has changed."""

    text: str = documented("description of the guard")
    expression: str = documented(
        "the program's expression for the value; empty if the guard is about several values", default=""
    )
    before: str = documented("the expected value", default="")
    now: str = documented("the value found; empty if unknown", default="")
    user: str = documented("the line that relies on it", default="")


@attrs.frozen
class Frame:
    """One look at a frame of the program: a compilation, or a decision to leave it alone."""

    id: int = documented("its number in this record")
    function: str = documented("qualified name")
    file: str = documented("path of the file")
    line: int = documented("first line of the function")
    outcome: Outcome = documented("how the look at it ended")
    reason: str = documented("why it ended so; never empty")
    parent: int | None = documented("number of the frame in this record that called it; null if there is none")
    at: float = documented("time of the look at it")
    seconds: float = documented("duration of its compilation", default=0.0)
    operators: int = documented("number of operators in its graphs", default=0)
    backend: str = documented("name of the backend that compiled it", default="")
    callers: tuple[Place, ...] = documented("the lines that led to it, the nearest first", default=())
    failures: tuple[GuardFailure, ...] = documented("guards of earlier compiled code that failed", default=())
    breaks: tuple[int, ...] = documented("numbers of the graph breaks in it", default=())
    graphs: tuple[int, ...] = documented("numbers of its graphs", default=())
    guards: tuple[str, ...] = documented("the conditions under which the compiled code is valid", default=())

    @property
    def where(self) -> str:
        """`model.py:41`."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"


@attrs.frozen
class Break:
    """Graph breaks of one type at one place."""

    id: int = documented("its number in this record")
    type: str = documented("id of the break type, for `armature breaks show`")
    title: str = documented("title of the break type")
    explanation: str = documented("why the graph broke, with the facts of this place")
    hints: tuple[str, ...] = documented("advice for the user")
    hint_kinds: tuple[str, ...] = documented(
        "what following each of the hints comes to: fundamental (the program has to be written otherwise), supportable "
        "(a setting, a rule or a plugin keeps it in the graph), user error, or ours (it is not compiled yet)",
        default=(),
    )
    code: str = documented("permanent code of the break type, for searching", default="")
    cause: str = documented("why the operation can't be in a graph, or is not traced", default="")
    docs_url: str = documented("address of its documentation; empty if there is none", default="")
    plugin: str = documented("the plugin that defines the type", default="")
    stack: tuple[Place, ...] = documented("lines of the program, the innermost last", default=())
    values: tuple[SeenValue, ...] = documented("values that the innermost line uses", default=())
    count: int = documented("how often it occurred while compiling", default=1)
    seconds: float = documented(
        "spent on it: tracing again to cut the frame, and compiling what follows apart", default=0.0
    )
    outcome: str = documented("how execution continued", default="")
    frames: tuple[int, ...] = documented("numbers of the frames in which it occurred", default=())

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
    target: str = documented("the function that it calls; for an input, the program's expression", default="")
    inputs: tuple[str, ...] = documented("names of the nodes that it uses", default=())
    type: str = documented("dtype and sizes of its result", default="")
    place: Place | None = documented("the line of the program that it comes from", default=None)
    kernels: tuple[str, ...] = documented("names of the kernels that compute it", default=())


@attrs.frozen
class Tried:
    """A way to compute a kernel that was considered."""

    label: str = documented("torch's operator, or the tile sizes")
    seconds: float | None = documented("duration of one run; null if it was not measured", default=None)
    problem: str = documented("why it was not measured; empty if it was, or if nothing was measured", default="")


@attrs.frozen
class Choice:
    """Which of several ways to compute a kernel was taken (mode max-autotune)."""

    chosen: str = documented("label of the chosen way")
    how: str = documented('"measured", "kept" from an earlier measurement, or "by rule" with the reason')
    device: str = documented("the device of the measurement", default="")
    tried: tuple[Tried, ...] = documented("all ways that were considered", default=())


@attrs.frozen
class Kernel:
    """A generated kernel, or a call of one of torch's operators."""

    name: str = documented("as in the trace and the code")
    generated: bool = documented("whether armature generated it; false for a call of one of torch's operators")
    device: str = documented("the device that it runs on", default="")
    language: str = documented("language of its code", default="")
    code: str = documented("its part of the generated code", default="")
    operators: tuple[str, ...] = documented("operators fused in it", default=())
    nodes: tuple[str, ...] = documented("names of the graph's nodes that it computes", default=())
    reads: tuple[str, ...] = documented("buffers that it reads", default=())
    writes: tuple[str, ...] = documented("buffers that it writes", default=())
    bytes_read: int | None = documented("number of bytes that it reads; null if sizes are symbols", default=None)
    bytes_written: int | None = documented("number of bytes that it writes; null if sizes are symbols", default=None)
    reason: str = documented("why torch's operator is called; empty for a generated kernel", default="")
    detail: str = documented("the dtype, argument or library that is the reason, if known", default="")
    choice: Choice | None = documented("how it was chosen; null if there was only one way", default=None)
    places: tuple[Place, ...] = documented("the lines of the program that it comes from", default=())


@attrs.frozen
class MemoryStep:
    """Memory that a graph has allocated after a step of its plan."""

    step: str = documented("the kernel or call that ran")
    bytes: int = documented("bytes of the live buffers that the graph has allocated, while the step runs")


@attrs.frozen
class Graph:
    """A compiled graph."""

    id: int = documented("its number in this record")
    frame: int = documented("number of its frame")
    name: str = documented("as in the generated code")
    kind: str = documented('"inference", "forward", "backward", or "captured" if a backend took it as captured')
    nodes: tuple[Node, ...] = documented("its nodes, in order")
    kernels: tuple[Kernel, ...] = documented("its kernels, in execution order", default=())
    wrapper: str = documented("the Python code that calls the kernels", default="")
    memory: tuple[MemoryStep, ...] = documented(
        "allocated memory after each step; empty if sizes are symbols", default=()
    )

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
    start: float = documented("start time")
    seconds: float = documented("duration")
    frame: int | None = documented("number of the compiled frame", default=None)
    thread: int = documented("number of the thread that it ran in, from 0", default=0)


@attrs.frozen
class MemorySample:
    """Memory of the process at one moment."""

    at: float = documented("time of the sample")
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

    versions: Versions = documented("versions of the software", factory=Versions)
    program: str = documented("path of the program, or the id of a test", default="")
    arguments: tuple[str, ...] = documented("its arguments", default=())
    folder: str = documented("the working folder", default="")
    end: End = documented("how the program ended", default=End.ENDED)
    status: int = documented("its exit status", default=0)
    error: str = documented("the traceback if it raised", default="")
    seconds: float = documented("duration of the whole run", default=0.0)
    frames: tuple[Frame, ...] = documented("looks at frames, in order", default=())
    breaks: tuple[Break, ...] = documented("graph breaks, each type at each line once", default=())
    graphs: tuple[Graph, ...] = documented("graphs, in the order of their compilation", default=())
    spans: tuple[Span, ...] = documented("durations of stages and runs, by start time", default=())
    memory: tuple[MemorySample, ...] = documented("samples over time", default=())
    problems: tuple[str, ...] = documented("gaps in this record, and faults of plugins", default=())
    format: int = documented("version of this format", default=FORMAT)

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
