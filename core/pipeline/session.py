"""What armature has done in this process: one record per compilation, for people and tools."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import attrs
from torch import fx, nn

from armature.breaks.types import BreakEvent
from armature.codegen.data import KernelSource
from armature.events import CompileEvent
from armature.frame.data import FrameRequest, resume_point
from armature.frame.guards.explain import FailedGuard, Mismatch
from armature.graph.data import PassRun
from armature.pipeline.callers import Caller, callers
from armature.rules.reliance import Relied
from armature.run.data import CompiledGraph
from armature.run.timeline import Timeline
from armature.torch_abi.eval_frame import COMPILE, reset_code, set_code_strategy, skip_code

if TYPE_CHECKING:
    from armature.plugins.tables import Tables

MOST_RECORDS = 512  # compilations whose full records are stored


class Outcome(Enum):
    """How a compilation ended."""

    COMPILED = "compiled"
    EMPTY = "nothing to compile"
    BREAK = "graph break"
    FALLBACK = "fell back to eager"
    FAILED = "the backend failed"  # a user's backend function: its error was raised


def failed_guards(failures: Iterable[Mismatch], request: FrameRequest) -> tuple[FailedGuard, ...]:
    """The guards that fail for a frame, with its values, each once."""
    return tuple(dict.fromkeys(guard for one in failures for guard in one.guards(request)))


@attrs.define(eq=False)
class Compilation:
    """The record of one frame. `graphs` grows when the backward graph is compiled; `module` is the captured graph.

    started: in seconds of `time.perf_counter`. callers: the user's lines that led to the frame, the nearest one first.
    """

    id: int
    function: str
    file: str
    line: int
    backend: str = ""
    outcome: Outcome = Outcome.EMPTY
    reason: str = ""
    seconds: float = 0.0
    module: fx.GraphModule | None = None
    captured: str = ""  # the captured graph as a readable program
    graphs: list[CompiledGraph] = attrs.field(factory=list)
    guards: tuple[str, ...] = ()
    breaks: tuple[BreakEvent, ...] = ()
    recompiled_for: tuple[str, ...] = ()  # failed guards of earlier compilations
    failed_guards: tuple[FailedGuard, ...] = ()  # the same with values
    started: float = attrs.field(factory=time.perf_counter)
    callers: tuple[Caller, ...] = ()
    resumes: bool = False  # whether it is the rest of a function after a graph break
    events: list[CompileEvent] = attrs.field(factory=list)
    inputs: tuple[tuple[str, object], ...] = ()  # of the captured graph: expressions of their sources, and fakes
    script_folder: Path | None = None  # the folder written so far for `ARMATURE_REPRO_DIR`
    passes: list[PassRun] = attrs.field(factory=list)  # executed passes, if the settings ask for them

    def note_failed(self, failures: Iterable[Mismatch], request: FrameRequest) -> None:
        """Record which guards of earlier code fail for this frame, with the current values."""
        kept = tuple(failures)
        self.recompiled_for, self.failed_guards = tuple(map(str, kept)), failed_guards(kept, request)

    @property
    def where(self) -> str:
        """File and first line of the function."""
        return f"{self.file}:{self.line}"

    @property
    def operators(self) -> int:
        """ATen calls of the compiled graphs; calls of the captured graph if a backend took that."""
        modules = [graph.aten.module for graph in self.graphs] or ([self.module] if self.module else [])
        return sum(node.op.startswith("call_") for module in modules for node in module.graph.nodes)


@attrs.frozen
class Skip:
    """A code object that is not compiled."""

    function: str
    file: str
    line: int
    reason: str
    callers: tuple[Caller, ...] = attrs.field(default=(), eq=False)
    at: float = attrs.field(factory=time.perf_counter, eq=False)


@attrs.frozen
class Limit:
    """A function that was compiled too often and is left to eager, with the last failed guards."""

    function: str
    file: str
    line: int
    reason: str
    failed_guards: tuple[FailedGuard, ...]
    callers: tuple[Caller, ...] = ()
    at: float = attrs.field(factory=time.perf_counter, eq=False)


@attrs.frozen
class Totals:
    """Sums over compilations."""

    graphs: int = 0
    breaks: int = 0
    fallbacks: int = 0
    operators: int = 0
    kernels: int = 0
    fused: int = 0
    extern: int = 0
    seconds: float = 0.0


@attrs.define(eq=False)
class Records:
    """Everything recorded from some moment on, including records that the session drops."""

    compilations: list[Compilation] = attrs.field(factory=list)
    skips: list[Skip] = attrs.field(factory=list)
    limits: list[Limit] = attrs.field(factory=list)

    def breaks(self) -> tuple[BreakEvent, ...]:
        """All graph breaks."""
        return tuple(event for c in self.compilations for event in c.breaks)


@attrs.define(eq=False)
class Session:
    """All records since the start or the last reset. followers: further receivers of each record.

    timeline: receives each run of code that is compiled from now on; None: nothing does.
    """

    compilations: deque[Compilation] = attrs.field(factory=lambda: deque(maxlen=MOST_RECORDS))
    skips: deque[Skip] = attrs.field(factory=lambda: deque(maxlen=MOST_RECORDS))
    limits: deque[Limit] = attrs.field(factory=lambda: deque(maxlen=MOST_RECORDS))
    followers: list[Records] = attrs.field(factory=list)
    timeline: Timeline | None = None
    given_up: str = ""  # why nothing is compiled any more
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)
    _codes: dict[int, ReferenceType[CodeType]] = attrs.field(factory=dict)
    _relied: dict[int, Relied] = attrs.field(factory=dict)
    _requested: dict[int, ReferenceType[CodeType]] = attrs.field(factory=dict)
    _idle: dict[int, ReferenceType[CodeType]] = attrs.field(factory=dict)
    _skip_reasons: dict[int, set[str]] = attrs.field(factory=dict)  # why code objects are not compiled
    # those that torch skips without calling the hook
    _skipped: dict[int, ReferenceType[CodeType]] = attrs.field(factory=dict)
    _reported: set[object] = attrs.field(factory=set)

    def separate(self) -> Session:
        """A session with records of its own. It also owns the code cached meanwhile, and may forget it."""
        return Session(codes=self._codes, relied=self._relied, requested=self._requested)

    @contextlib.contextmanager
    def recording(self) -> Iterator[Records]:
        """Records of what happens in the body of a `with`."""
        records = Records()
        self.followers.append(records)
        try:
            yield records
        finally:
            self.followers.remove(records)

    def begin(self, code: CodeType, backend: str) -> Compilation:
        """A record for the compilation of a code object."""
        self._remember(code)
        made = Compilation(next(self._numbers), code.co_qualname, code.co_filename, code.co_firstlineno, backend)
        made.callers, made.resumes = callers(), resume_point(code) is not None
        self.compilations.append(made)
        for records in self.followers:
            records.compilations.append(made)
        return made

    def withdraw(self, record: Compilation) -> None:
        """Drop the record of a frame that was merely skipped."""
        for kept in (self.compilations, *(records.compilations for records in self.followers)):
            with contextlib.suppress(ValueError):
                kept.remove(record)

    def skip(self, code: CodeType, reason: str, for_good: bool = False) -> bool:
        """Record a code object that is not compiled (from now on, if for_good). Returns whether that is new."""
        self._remember(code)
        if for_good:
            session()._skip_for_good(code)
        reported = self._skip_reasons.setdefault(id(code), set())
        if reason in reported:
            return False
        reported.add(reason)
        left = Skip(code.co_qualname, code.co_filename, code.co_firstlineno, reason, callers())
        for kept in (self.skips, *(records.skips for records in self.followers)):
            kept.append(left)
        return True

    def limit(self, code: CodeType, reason: str, failed: tuple[FailedGuard, ...]) -> None:
        """Record a code object that was compiled too often."""
        place = (code.co_qualname, code.co_filename, code.co_firstlineno)
        found = Limit(*place, reason, failed, callers())
        for kept in (self.limits, *(records.limits for records in self.followers)):
            kept.append(found)

    def _skip_for_good(self, code: CodeType) -> None:
        self._remember(code)
        if id(code) not in self._skipped:
            _store_weakly(self._skipped, code)

    @contextlib.contextmanager
    def showing_skipped(self) -> Iterator[None]:
        """In this context the hook sees skipped frames as if they were not; afterwards everything is restored."""
        before, self._skipped = self._skipped, {}
        _for_each_alive(before, lambda code: set_code_strategy(code, COMPILE))
        try:
            yield
        finally:
            _for_each_alive(self._skipped, lambda code: set_code_strategy(code, COMPILE))
            self._skipped = before
            _for_each_alive(before, skip_code)

    def request(self, fn: object) -> None:
        """Note that the user wants this function, or this module's forward, compiled, even in a library."""
        method = getattr(fn, "forward", fn) if isinstance(fn, nn.Module) else fn
        code = getattr(getattr(method, "__func__", method), "__code__", None)
        if not isinstance(code, CodeType):
            return
        if id(code) not in self._codes:  # torch.compile marks torch's own code as skipped for everyone
            set_code_strategy(code, COMPILE)
        elif not self.is_requested(code):  # it may have been skipped when another function called it
            reset_code(code)
        if not self.is_requested(code):
            _store_weakly(self._requested, code)

    def is_requested(self, code: CodeType) -> bool:
        """Whether the user passed this very code to `compile`."""
        held = self._requested.get(id(code))
        return held is not None and held() is code

    def note_idle(self, codes: Iterable[CodeType]) -> None:
        """Note code objects in which a trace found nothing to compile."""
        for code in codes:
            if id(code) not in self._idle:
                _store_weakly(self._idle, code)

    def is_idle(self, code: CodeType) -> bool:
        """Whether this very code object was noted as idle."""
        held = self._idle.get(id(code))
        return held is not None and held() is code

    def first_time(self, what: object) -> bool:
        """True once per `what`, for things to be reported once."""
        if what in self._reported:
            return False
        self._reported.add(what)
        return True

    def totals(self) -> Totals:
        """Sums over the records kept."""
        graphs = [graph for c in self.compilations for graph in c.graphs]
        return Totals(
            graphs=sum(c.outcome is Outcome.COMPILED and c.module is not None for c in self.compilations),
            breaks=sum(len(c.breaks) for c in self.compilations),
            fallbacks=sum(c.outcome is Outcome.FALLBACK for c in self.compilations),
            operators=sum(c.operators for c in self.compilations),
            kernels=sum(graph.program.kernel_count for graph in graphs),
            fused=sum(graph.program.fused_count for graph in graphs),
            extern=sum(graph.program.extern_count for graph in graphs),
            seconds=sum(c.seconds for c in self.compilations),
        )

    def breaks(self) -> tuple[BreakEvent, ...]:
        """All graph breaks."""
        return tuple(event for c in self.compilations for event in c.breaks)

    def kernel_sources(self) -> tuple[KernelSource, ...]:
        """The generated sources of all graphs, in order."""
        return tuple(s for c in self.compilations for graph in c.graphs for s in graph.program.sources)

    def relied(self, code: CodeType) -> Relied:
        """The rules' answers that the compiled code of a code object relied on; callers add to it."""
        found = self._relied.get(id(code))
        if found is None:
            self._remember(code)
            found = self._relied[id(code)] = Relied()
        return found

    def forget_code(self) -> None:
        """Forget all code that torch has cached for us, and which frames are skipped; the records stay."""
        for key, held in self._codes.copy().items():
            self._forget(key, held())

    def rules_changed(self, tables: Callable[[], Tables]) -> None:
        """Forget the code that relied on rules that the new tables answer differently. The tables are only made if
        there is code."""
        for key, held in self._codes.copy().items():
            code, relied = held(), self._relied.get(key)
            if code is None or relied is None or not relied.holds(tables(), code):
                self._forget(key, code)

    def _forget(self, key: int, code: CodeType | None) -> None:
        if code is None or reset_code(code):
            self._codes.pop(key, None)
            self._relied.pop(key, None)
            self._skip_reasons.pop(key, None)
            self._skipped.pop(key, None)
            self._idle.pop(key, None)

    def reset(self) -> None:
        """Forget the records and all code that torch has cached for us."""
        self.forget_code()
        self.compilations.clear()
        self.skips.clear()
        self.limits.clear()
        self._skip_reasons.clear()
        self._idle.clear()
        self._reported.clear()
        self.given_up = ""

    def _remember(self, code: CodeType) -> None:
        if id(code) not in self._codes:
            _store_weakly(self._codes, code, self._relied, self._skip_reasons)


def _store_weakly(held: dict[int, ReferenceType[CodeType]], code: CodeType, *others: dict[int, Any]) -> None:
    """Store a weak reference by identity, because code objects with equal text are equal. `others` are dropped with
    it."""
    key = id(code)

    def forget(_: object) -> None:
        for entries in (held, *others):
            entries.pop(key, None)

    held[key] = ref(code, forget)


def _for_each_alive(held: dict[int, ReferenceType[CodeType]], act: Callable[[CodeType], None]) -> None:
    for code in [code for kept in held.values() if (code := kept()) is not None]:
        act(code)


@cache
def session() -> Session:
    """The session of this process."""
    return Session()
