"""The frame hook: what happens when torch meets a Python frame for which it has no cached code.

Skip it, or compile it and hand code and guards to torch, or let it run eagerly. What compiling means comes from outside
(`FrameCompiler`): this stage knows frames, guards and the cache only.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import CellType, CodeType
from typing import Any, Protocol

import attrs

from armature import interrupts
from armature.frame import recompile, skip
from armature.frame.data import FrameRequest, resume_point
from armature.frame.guards import tree
from armature.frame.guards.kinds import Guard
from armature.frame.recompile import CodeState, Entry
from armature.torch_abi import recorders
from armature.torch_abi.eval_frame import (
    COMPILE,
    COMPILE_ALONE,
    SKIP,
    SKIP_BELOW,
    FrameOutcome,
    GuardedCode,
    InterpreterFrame,
    callback,
    dispatch_modes,
    set_code_strategy,
)
from armature.torch_abi.wrappers import in_dispatch

EMPTY_CALLS_BEFORE_SKIP = 3
EAGER_ENTRIES = 3  # kinds of arguments for which it is cached that a frame runs eagerly; then all others do
OWNERS = 8  # compiled callables whose compilations of one code object are counted each for itself
RECORDS = "records or reads programs for another tool of torch: what it calls runs as it is"
EAGER = FrameOutcome(SKIP, False)
"""Run this one frame as it is."""
HOOK_OFF = FrameOutcome(SKIP_BELOW, False)
"""Run this one frame, and all below it, as they are."""


class RunEagerly(Exception):
    """The frame is not compiled: it runs as it is, and so do later frames of its code for which nothing is cached.

    for_all: whatever the options (there is nothing to compile), not only for those of this hook. guards: what the
    reason rests on; later frames for which they do not hold are looked at anew. once: only this frame, and all below
    it.
    """

    def __init__(
        self, reason: str, *, for_all: bool = False, guards: tuple[Guard, ...] = (), once: bool = False
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.for_all = for_all
        self.guards = guards
        self.once = once


@attrs.frozen(eq=False)
class CompiledFrame:
    """Code to run in place of the frame's, and the guards under which it may. `alone`: it calls no user code."""

    code: CodeType
    guards: tuple[Guard, ...]
    alone: bool = True


class FrameCompiler(Protocol):
    """What the hook asks of the rest of armature."""

    fullgraph: bool
    dynamic: bool | None

    def reason_to_skip(self, code: CodeType, variables: Mapping[str, object]) -> str | None:
        """Why rules leave this frame alone; None: trace it."""

    def recompile_limit(self) -> int:
        """Compilations of one code object before it is left to eager."""

    def compile(self, request: FrameRequest) -> CompiledFrame:
        """Compile. Raises RunEagerly, or what the user is to see."""

    def installed(self, request: FrameRequest, guards: tuple[str, ...]) -> None:
        """Told when compiled code was handed to torch, with its guards in words."""

    def guards_unbuildable(self, request: FrameRequest, error: Exception) -> None:
        """Told when the guards could not be built, before the frame runs eagerly. May raise."""

    def skipped(self, code: CodeType, reason: str) -> None:
        """Told of each code object that is left alone."""

    def recompiling(self, request: FrameRequest, failures: tuple[str, ...]) -> None:
        """Told before a code object is compiled again, with the guard of each earlier compilation that failed."""

    def limit_reached(self, request: FrameRequest, failures: tuple[str, ...], advice: tuple[str, ...]) -> None:
        """Told once per code object when it was compiled too often. advice: calls that would take sizes as symbols."""


COMPILE_LOCK = threading.RLock()
"""One compilation at a time: tracing and AOTAutograd share state of the process."""


class FrameHook:
    """The callback for `set_eval_frame`. Cached code is filed under `key`: one per set of options.

    Each compiled callable has a hook of its own, so that compilations are counted per callable: twelve layers of one
    class, each compiled, use each other's code, but not each other's tries.
    """

    def __init__(self, compiler: FrameCompiler, key: object) -> None:
        self.compiler = compiler
        self._torchdynamo_orig_backend = key

    def for_one(self) -> FrameHook:
        """A hook for one more callable, which shares cached code with this one."""
        return FrameHook(self.compiler, self._torchdynamo_orig_backend)

    @callback
    def __call__(self, frame: InterpreterFrame, cache_entry: object, frame_state: dict[Any, Any]) -> FrameOutcome:
        state = recompile.state_of(frame_state)
        if self._torchdynamo_orig_backend in state.left or self in state.left:
            return EAGER
        if recorders.at_work() or dispatch_modes() or in_dispatch():
            return HOOK_OFF  # they want to see each operator, and run Python code of their own for it
        code = frame.f_code
        if recorders.begins(code):
            self.compiler.skipped(code, RECORDS)
            return FrameOutcome(SKIP_BELOW, True, skip_reason=RECORDS)
        reason = skip.reason_of_code(code) or self.compiler.reason_to_skip(code, frame.f_globals)
        if reason is not None:
            self.compiler.skipped(code, reason)
            return FrameOutcome(SKIP, True, skip_reason=reason)
        if not self.compiler.fullgraph:
            reason = skip.reason_of_frame(code, frame.f_locals, frame.f_globals)
            if reason is not None:
                return self._nothing_here(code, state, reason)
        with COMPILE_LOCK, interrupts.held():
            return self._compile(frame, state)

    def _nothing_here(self, code: CodeType, state: CodeState, reason: str) -> FrameOutcome:
        state.empty_calls += 1
        for_code = state.empty_calls >= EMPTY_CALLS_BEFORE_SKIP and not state.entries
        if for_code:
            self.compiler.skipped(code, reason)
        if state.entries:
            self._look_below(code, state)
        return FrameOutcome(SKIP, for_code, skip_reason=reason)

    def _look_below(self, code: CodeType, state: CodeState) -> None:
        """A frame of this code runs as it is: the frames that it calls, part of the compiled code, are looked at."""
        if not state.below and state.entries:
            set_code_strategy(code, COMPILE)
        state.below = True

    def _compile(self, frame: InterpreterFrame, state: CodeState) -> FrameOutcome:
        request = self._request(frame, state)
        entries = state.of(self._torchdynamo_orig_backend)
        if entries:
            failures = recompile.failures(entries, frame.f_locals)
            if len(failures) < len(entries):
                return EAGER  # another thread compiled just this while we waited: the next call finds it
            own, limit = sum(entry.owner is self for entry in entries), self.compiler.recompile_limit()
            if own >= limit or len(entries) >= OWNERS * limit:
                return self._too_often(request, state, failures)
            self.compiler.recompiling(request, failures)
        try:
            compiled = self.compiler.compile(request)
        except RunEagerly as left:
            if left.once:
                return HOOK_OFF
            if left.guards and sum(entry.eager for entry in entries) < EAGER_ENTRIES:
                return self._install_eager(request, left, state)
            return self._leave(frame.f_code, state, left)
        return self._install(request, compiled, state)

    def _install_eager(self, request: FrameRequest, left: RunEagerly, state: CodeState) -> FrameOutcome:
        """Cache the frame's own code, under the guards that lead to the reason for leaving it."""
        try:
            guards = self._hold(left.guards, request)
        except Exception:
            return self._leave(request.code, state, left)
        own = CompiledFrame(request.code.replace(), left.guards, alone=False)
        return self._cached(request, own, guards, state, eager=True)

    def _leave(self, code: CodeType, state: CodeState, left: RunEagerly) -> FrameOutcome:
        if left.for_all and not state.entries:
            return FrameOutcome(SKIP, True, skip_reason=left.reason)
        # Not torch's own "skip this code": another backend, or one with fullgraph, has to look for itself.
        return self._leave_to(self._torchdynamo_orig_backend, code, state)

    def _leave_to(self, whom: object, code: CodeType, state: CodeState) -> FrameOutcome:
        """Run what is not cached eagerly from now on, for all hooks of a key or for this hook only."""
        state.left.add(whom)
        self._look_below(code, state)
        return EAGER

    def _install(self, request: FrameRequest, compiled: CompiledFrame, state: CodeState) -> FrameOutcome:
        try:
            guards = self._hold(compiled.guards, request)
        except Exception as error:
            self.compiler.guards_unbuildable(request, error)
            return self._leave(request.code, state, RunEagerly(str(error)))
        return self._cached(request, compiled, guards, state)

    def _hold(self, guards: tuple[Guard, ...], request: FrameRequest) -> tree.GuardTree:
        """The tree of the guards. Errors: GuardsDoNotHold, and those of reading a source."""
        built = tree.build(guards, request)
        if not built.check(_plain_locals(request)):
            raise GuardsDoNotHold("; ".join(recompile.failures([Entry(None, built)], _plain_locals(request))))
        return built

    def _cached(
        self,
        request: FrameRequest,
        compiled: CompiledFrame,
        guards: tree.GuardTree,
        state: CodeState,
        eager: bool = False,
    ) -> FrameOutcome:
        state.entries.append(Entry(self._torchdynamo_orig_backend, guards, eager, self))
        state.below |= not compiled.alone
        self.compiler.installed(request, guards.texts)
        strategy = COMPILE if state.below else COMPILE_ALONE
        return FrameOutcome(strategy, True, GuardedCode(compiled.code, guards.holder))

    def _too_often(self, request: FrameRequest, state: CodeState, failures: tuple[str, ...]) -> FrameOutcome:
        if not state.limit_told:
            state.limit_told = True
            entries = state.of(self._torchdynamo_orig_backend)
            self.compiler.limit_reached(request, failures, recompile.changing_sizes(entries, request))
        return self._leave_to(self, request.code, state)

    def _request(self, frame: InterpreterFrame, state: CodeState) -> FrameRequest:
        code = frame.f_code
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_varnames else None
        point = resume_point(code)
        cells = dict(zip(code.co_freevars, frame.closure, strict=True)) if code.co_freevars else {}
        return FrameRequest(
            code=code,
            locals={**frame.f_locals, **cells},
            globals=frame.f_globals,
            builtins=frame.f_builtins,
            closure=tuple(frame.closure) if code.co_freevars else (),
            fullgraph=self.compiler.fullgraph,
            dynamic=self.compiler.dynamic,
            history=state.history(self._torchdynamo_orig_backend, first),
            resumes=(None if point is None else point.table()) or state.resumes,
        )


class GuardsDoNotHold(Exception):
    """The guards fail for the very frame they were made for."""


def _plain_locals(request: FrameRequest) -> dict[str, object]:
    """The frame's locals as torch's guards see them: cells opened."""
    opened = dict(request.locals)
    for name in request.code.co_freevars:
        cell = opened.get(name)
        if isinstance(cell, CellType):
            try:
                opened[name] = cell.cell_contents
            except ValueError:  # empty
                del opened[name]
    return opened
