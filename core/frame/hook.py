"""The frame hook: handles each Python frame for which torch has no cached code.

A frame is skipped, compiled (torch gets code and guards), or run eagerly. `FrameCompiler` supplies the compilation:
this stage only knows frames, guards and the cache.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import CellType, CodeType
from typing import Any, Protocol
from weakref import ref

import attrs

from armature import interrupts
from armature.frame import idle, recompile, skip
from armature.frame.data import FrameRequest, eager_code, resume_point
from armature.frame.guards import tree
from armature.frame.guards.explain import Mismatch
from armature.frame.guards.guard import Guard
from armature.frame.history import History
from armature.frame.idle import Idle
from armature.frame.recompile import CodeState, Entry
from armature.garbage import no_collection
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

EAGER_ENTRIES = 3  # most argument patterns cached as "run eagerly"; beyond that, all others run eagerly too
OWNERS = 8  # compiled callables and modules that share a code object and get a recompile limit each
RECORDS = "records or reads programs for another tool of torch: its callees run uncompiled"
EAGER = FrameOutcome(SKIP, False)
"""Run this one frame uncompiled."""
HOOK_OFF = FrameOutcome(SKIP_BELOW, False)
"""Run this one frame, and all below it, uncompiled."""
SEEN_BY_OTHERS = "a dispatch mode or another tool of torch is active, which has to see each operator"


class RunEagerly(Exception):
    """The frame is not compiled: it runs eagerly, and so do later frames of its code for which nothing is cached.

    for_all: this holds for all compile options, not only for this hook's. guards: what the reason depends on; later
    frames for which they fail are traced again. once: only this frame and its callees run eagerly, not later frames.
    idle: tracing found nothing to compile in the frame; idle_callees: nor in its callees.
    """

    def __init__(
        self,
        reason: str,
        *,
        for_all: bool = False,
        guards: tuple[Guard, ...] = (),
        once: bool = False,
        idle: bool = False,
        idle_callees: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.for_all = for_all
        self.guards = guards
        self.once = once
        self.idle = idle
        self.idle_callees = idle_callees


@attrs.frozen(eq=False)
class CompiledFrame:
    """Code that replaces the frame's, and the guards under which it is valid.

    computes: it computes something with tensors, or what follows a graph break in it may.
    """

    code: CodeType
    guards: tuple[Guard, ...]
    computes: bool = True


class FrameCompiler(Protocol):
    """The interface through which the hook uses the rest of armature."""

    fullgraph: bool
    dynamic: bool | None

    def reason_to_skip(self, code: CodeType, variables: Mapping[str, object]) -> str | None:
        """Why rules skip this frame; None to trace it."""

    def recompile_limit(self, request: FrameRequest) -> int:
        """How often a frame's code object may be compiled before it runs eagerly for good."""

    def compile(self, request: FrameRequest) -> CompiledFrame:
        """Compile a frame. Raises RunEagerly, or an error for the user."""

    def installed(self, request: FrameRequest, guards: tuple[str, ...]) -> None:
        """Called when compiled code was handed to torch, with its guards as text."""

    def guards_unbuildable(self, request: FrameRequest, error: Exception) -> None:
        """Called when the guards could not be built, before the frame runs eagerly. May raise."""

    def known_idle(self, request: FrameRequest) -> RunEagerly | None:
        """The cached answer if a trace of this code found nothing to compile and its guards don't show when that may
        change; None to trace the frame."""

    def skipped(self, code: CodeType, reason: str, for_good: bool = False) -> None:
        """Called for each skipped frame. for_good: the hook will not be asked about this code object again."""

    def recompiling(self, request: FrameRequest, failures: tuple[Mismatch, ...]) -> None:
        """Called before a code object is compiled again, with the failed guard of each earlier compilation."""

    def limit_reached(
        self, request: FrameRequest, failures: tuple[Mismatch, ...], advice: tuple[str, ...], modules: int
    ) -> None:
        """Called once per code object when it reaches the recompile limit. advice: `mark_dynamic` calls that would
        help. modules: how many the code was compiled for, if it is their number that is too large; else 0."""


NEVER_COMPUTED = "it was compiled up to the recompile limit, and computed nothing with tensors"

COMPILE_LOCK = threading.RLock()
"""One compilation at a time: tracing and AOTAutograd share state of the process."""


class FrameHook:
    """The callback for `set_eval_frame`. Cached code is filed under `key`: one per set of options.

    Each compiled callable has a hook of its own, so that compilations are counted per callable: twelve layers of one
    class, each compiled separately, share code but not the recompile limit.
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
        if self._torchdynamo_orig_backend in state.eager_keys or self in state.eager_keys:
            return EAGER
        code = frame.f_code
        if recorders.at_work() or dispatch_modes() or in_dispatch():
            self.compiler.skipped(code, SEEN_BY_OTHERS)
            return HOOK_OFF  # these tools run Python code of their own for each operator
        if recorders.begins(code):
            self.compiler.skipped(code, RECORDS)
            return FrameOutcome(SKIP_BELOW, True, skip_reason=RECORDS)
        reason = skip.reason_of_code(code) or self.compiler.reason_to_skip(code, frame.f_globals)
        if reason is not None:
            if skip.is_import(code):
                self.compiler.skipped(code, reason)
                return FrameOutcome(SKIP_BELOW, True, skip_reason=reason)
            return self._skip(code, reason)
        reached = (*frame.f_locals.values(), *frame.closure) if code.co_freevars else frame.f_locals.values()
        promising = self.compiler.fullgraph or skip.tensors_in_reach(code, reached, frame.f_globals)
        with COMPILE_LOCK, interrupts.deferred(), no_collection():
            return self._compile(frame, state, promising)

    def _skip(self, code: CodeType, reason: str) -> FrameOutcome:
        """Run all frames of the code eagerly from now on."""
        self.compiler.skipped(code, reason, for_good=True)
        return FrameOutcome(SKIP, True, skip_reason=reason)

    def _compile(self, frame: InterpreterFrame, state: CodeState, promising: bool) -> FrameOutcome:
        """Compile a frame that no cached code fits, or decide that it runs eagerly. `state`: of its code object."""
        if not (self.compiler.fullgraph or state.visits_callees):
            # Frames below must stay visible to the hook even if this code calls none of the program's code: torch
            # stores the strategy per code object, and with other arguments they may have to be checked.
            state.visits_callees = True
            set_code_strategy(frame.f_code, COMPILE)
        request = self._request(frame, state, promising)
        known = state.entries_of(self._torchdynamo_orig_backend)
        over = next((entry.idle for entry in known if entry.idle is not None and entry.idle.is_over), None)
        if over is not None:
            return self._end_idle_entry(request.code, state, over)
        failures = recompile.failures(known, frame.f_locals)
        if len(failures) < len(known):
            return EAGER  # another thread compiled it while we waited: the next call will find it
        answer = self.compiler.known_idle(request)
        if answer is not None:
            return self._inspected(request, answer, state)
        if not promising and state.idle[self._torchdynamo_orig_backend] >= idle.MOST_TRACES:
            return EAGER
        entries = [entry for entry in known if entry.idle is None]
        if entries:
            own, limit = [entry for entry in entries if entry.owner is self], self.compiler.recompile_limit(request)
            own = recompile.for_the_same_module(own, request)
            if len(own) >= limit or len(entries) >= OWNERS * limit:
                return self._reach_limit(request, state, failures, for_modules=len(own) < limit)
            self.compiler.recompiling(request, failures)
        try:
            compiled = self.compiler.compile(request)
        except RunEagerly as outcome:
            if outcome.once:
                return HOOK_OFF
            if outcome.idle:
                return self._idle(request, outcome, state)
            if outcome.guards and sum(entry.eager for entry in entries) < EAGER_ENTRIES:
                return self._install_eager(request, outcome, state)
            return self._run_eagerly(request.code, state, outcome)
        return self._install(request, compiled, state)

    def _install_eager(self, request: FrameRequest, outcome: RunEagerly, state: CodeState) -> FrameOutcome:
        """Cache the frame's own code, under the guards that led to the reason for running it eagerly."""
        try:
            guards = self._build_tree(outcome.guards, request)
        except Exception:
            return self._run_eagerly(request.code, state, outcome)
        own = CompiledFrame(eager_code(request.code), outcome.guards)
        return self._cached(own, Entry(self._torchdynamo_orig_backend, guards, eager=True, owner=self), request, state)

    def _idle(self, request: FrameRequest, outcome: RunEagerly, state: CodeState) -> FrameOutcome:
        if not outcome.idle_callees:
            return EAGER  # the guards don't cover the rest of the frame
        state.idle[self._torchdynamo_orig_backend] += 1
        checked = idle.idle_guards(outcome.guards, state.idle[self._torchdynamo_orig_backend], request.promising)
        return self._install_idle(request, outcome, state, checked)

    def _inspected(self, request: FrameRequest, outcome: RunEagerly, state: CodeState) -> FrameOutcome:
        """Handle a frame that is inspected instead of traced again, because no tensor is in reach."""
        state.inspections[self._torchdynamo_orig_backend] += 1
        if state.inspections[self._torchdynamo_orig_backend] <= idle.MOST_INSPECTIONS:
            return EAGER
        state.idle[self._torchdynamo_orig_backend] += 1
        return self._install_idle(request, outcome, state, idle.types_of_arguments(request))

    def _install_idle(
        self, request: FrameRequest, outcome: RunEagerly, state: CodeState, checked: tuple[Guard, ...]
    ) -> FrameOutcome:
        """Cache the frame's own code until there may be something to compile."""
        key = self._torchdynamo_orig_backend
        if state.idle[key] >= idle.MOST_TRACES or not checked:
            return self._run_idle_eagerly(request.code, state, outcome)
        try:
            guards = self._build_tree(checked, request)
        except Exception:
            return self._run_idle_eagerly(request.code, state, outcome)
        calls = Idle(outcome.reason, outcome.for_all)
        guards.holder.root.add_epilogue_lambda_guard(calls, [f"it was idle for {idle.MANY_CALLS} calls"], None)
        state.entries.append(Entry(key, guards, idle=calls, owner=self))
        # A frame traced to its end has nothing to compile in its callees either.
        strategy = SKIP_BELOW if outcome.idle_callees else SKIP
        return FrameOutcome(strategy, False, GuardedCode(eager_code(request.code), guards.holder))

    def _run_idle_eagerly(self, code: CodeType, state: CodeState, outcome: RunEagerly) -> FrameOutcome:
        """Run the frame eagerly; all later ones too, if none was worth compiling."""
        if outcome.for_all and not state.compiled:
            return self._skip(code, outcome.reason)
        if state.idle[self._torchdynamo_orig_backend] >= idle.MOST_TRACES * OWNERS:
            return self._run_rest_eagerly(self._torchdynamo_orig_backend, state)
        return EAGER

    def _end_idle_entry(self, code: CodeType, state: CodeState, over: Idle) -> FrameOutcome:
        if over.for_all and not state.compiled:
            return self._skip(code, over.reason)
        over.renew()
        return EAGER

    def _run_eagerly(self, code: CodeType, state: CodeState, outcome: RunEagerly) -> FrameOutcome:
        if outcome.for_all and not state.compiled:
            return self._skip(code, outcome.reason)
        # Don't use torch's own "skip this code": it would also skip the code for other backends and for fullgraph
        # hooks, which decide for themselves.
        return self._run_rest_eagerly(self._torchdynamo_orig_backend, state)

    def _run_rest_eagerly(self, key: object, state: CodeState) -> FrameOutcome:
        """From now on run frames without cached code eagerly, for all hooks of a key or for this hook only."""
        state.eager_keys.add(key)
        return EAGER

    def _install(self, request: FrameRequest, compiled: CompiledFrame, state: CodeState) -> FrameOutcome:
        try:
            guards = self._build_tree(compiled.guards, request)
        except Exception as error:
            self.compiler.guards_unbuildable(request, error)
            return self._run_eagerly(request.code, state, RunEagerly(str(error)))
        entry = Entry(self._torchdynamo_orig_backend, guards, owner=self, computes=compiled.computes)
        return self._cached(compiled, entry, request, state)

    def _build_tree(self, guards: tuple[Guard, ...], request: FrameRequest) -> tree.GuardTree:
        """Build the tree of the guards. Errors: GuardsDoNotHold, and those of reading a source."""
        built = tree.build(guards, request)
        if not built.check(_plain_locals(request)):
            failures = recompile.failures([Entry(None, built)], _plain_locals(request))
            raise GuardsDoNotHold("; ".join(map(str, failures)))
        return built

    def _cached(self, compiled: CompiledFrame, entry: Entry, request: FrameRequest, state: CodeState) -> FrameOutcome:
        module = recompile.module_of(request.code, request.locals)
        entry.module = None if module is None else ref(module)
        state.entries.append(entry)
        self.compiler.installed(request, entry.tree.texts)
        strategy = COMPILE if state.visits_callees else COMPILE_ALONE
        return FrameOutcome(strategy, True, GuardedCode(compiled.code, entry.tree.holder))

    def _reach_limit(
        self, request: FrameRequest, state: CodeState, failures: tuple[Mismatch, ...], for_modules: bool
    ) -> FrameOutcome:
        entries = state.entries_of(self._torchdynamo_orig_backend)
        if not any(entry.computes or entry.eager for entry in entries if entry.idle is None):
            # Nothing is lost: the hook still sees the functions that it calls.
            self.compiler.skipped(request.code, NEVER_COMPUTED)
        elif not state.limit_reported:
            state.limit_reported = True
            modules = recompile.modules_of(entries) if for_modules else 0
            sizes = recompile.changing_sizes(recompile.for_the_same_module(entries, request), request)
            self.compiler.limit_reached(request, failures, sizes, modules)
        return self._run_rest_eagerly(self, state)

    def _request(self, frame: InterpreterFrame, state: CodeState, promising: bool) -> FrameRequest:
        code = frame.f_code
        module = recompile.module_of(code, frame.f_locals)
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
            # Without tensors, changing numbers don't become symbols: nothing would be compiled for either.
            history=state.history(self._torchdynamo_orig_backend, module) if promising else History(),
            resumes=(None if point is None else point.table()) or state.resumes,
            promising=promising,
        )


class GuardsDoNotHold(Exception):
    """The guards fail for the very frame they were made for."""


def _plain_locals(request: FrameRequest) -> dict[str, object]:
    """The frame's locals as torch's guards see them, with cells opened."""
    opened = dict(request.locals)
    for name in request.code.co_freevars:
        cell = opened.get(name)
        if isinstance(cell, CellType):
            try:
                opened[name] = cell.cell_contents
            except ValueError:  # an empty cell
                del opened[name]
    return opened
