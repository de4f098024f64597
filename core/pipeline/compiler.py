"""Implements the frame hook's interface: compiles a frame, records it, and decides how to handle a failure.

A failure means eager mode with one warning; in strict mode and under fullgraph it is an error.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

import attrs

from armature import config
from armature.breaks import events as breaks
from armature.breaks.types import BreakEvent
from armature.config import PASS_SETTINGS, PLUGIN_SETTINGS, Config
from armature.context import CompileContext
from armature.errors import (
    ArmatureError,
    ArmatureWarning,
    BackendFunctionFailed,
    DeviceBackendUnready,
    NoPlugins,
    UnknownPass,
    UnknownPlugin,
    Unsupported,
    invariant,
)
from armature.events import CompileEvent, EventKind
from armature.frame import skip
from armature.frame.data import FrameRequest, resume_point
from armature.frame.guards.explain import Mismatch
from armature.frame.hook import CompiledFrame, RunEagerly
from armature.interrupts import GivenUp
from armature.pipeline import logs, repro
from armature.pipeline.backends import backend_for
from armature.pipeline.notices import event_of, warn_once
from armature.pipeline.session import Compilation, Outcome, Session, failed_guards, session
from armature.pipeline.stages import compile_frame, new_context
from armature.plugins.plugin_manager import manager
from armature.plugins.tables import Tables
from armature.rules.data import Decision
from armature.rules.user import USER
from armature.torch_abi.overrides import suspended
from armature.trace.errors import GraphBreak, SkipFrame
from armature.trace.signals import TraceSignal

# With fullgraph a break would be an error, so numbers stay in the graph.
ONE_GRAPH = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
LOOP_FACTOR = (
    4  # factor on the recompile limit for code that resumes in a loop: one call may need code for each iteration
)
MANY_MODULES = (
    "{} modules run it and need code of their own: remove the graph break in the functions that call it "
    "(armature.explain shows it), so that it is compiled as part of them"
)
WITH_CALLERS = "compiled with the functions that call it, or when it is given to armature.compile"
KNOWN_IDLE = "tracing found no tensor in it, and none is in reach"
REPORT = (
    "Please report it with the output of `armature doctor` and of a run with ARMATURE_STRICT=1, "
    "which shows the whole error."
)


@contextlib.contextmanager
def imports_collected() -> Iterator[None]:
    """On exit, free the frames of imports made inside, which would keep the program's objects alive.

    torch imports many of its modules on first use, that is in the first compilation of a process. `torch.fx.wrap`,
    which these modules call, refers to its own frame, a cycle that keeps the frames below alive.
    """
    before = len(sys.modules)
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.collect(0)  # it was off since the compilation began, so all that was made since is in this generation


@attrs.define(eq=False)
class Compiler:
    """The frame hook's compiler for one set of options: compiles frames, keeps records, and decides how to handle
    failures.

    changes: settings from `options` that only apply to these compilations.
    """

    backend: str | Callable[..., Any] = "auto"
    fullgraph: bool = False
    dynamic: bool | None = None
    changes: Mapping[str, object] = attrs.field(factory=dict)
    records: Session = attrs.field(factory=session)
    current: Compilation | None = None
    failures: tuple[Mismatch, ...] = ()  # failed guards of earlier code, for the next record

    @property
    def backend_name(self) -> str:
        """The backend's name for users."""
        return self.backend if isinstance(self.backend, str) else getattr(self.backend, "__name__", "custom")

    @property
    def settings(self) -> Config:
        """The current settings, overridden by those that `fullgraph` implies, and then by `options`."""
        changes = {**ONE_GRAPH, **self.changes} if self.fullgraph else self.changes
        return config.current().changed(changes) if changes else config.current()

    @property
    def tables(self) -> Tables:
        """The tables of the plugins that are enabled for these compilations."""
        chosen = not PLUGIN_SETTINGS.isdisjoint(self.changes)
        return manager().tables(self.settings if chosen else None)

    def reason_to_skip(self, code: CodeType, variables: Mapping[str, object]) -> str | None:
        """Why rules skip the frame."""
        resumes = resume_point(code) is not None
        glue = skip.is_glue(code)
        alone = resumes or session().is_requested(code)
        if glue is not None and not alone:
            return f"part of {glue}: {WITH_CALLERS}"
        verdict = self.tables.rule_book.frame_verdict(code, variables)
        module = variables.get("__name__")
        self.records.relied(code).frame = (module if isinstance(module, str) else "", verdict.decision, verdict.whole)
        if verdict.whole and not alone:
            return f"{verdict.reason}: {WITH_CALLERS}"
        return verdict.reason if verdict.decision is Decision.SKIP else None

    def recompile_limit(self, request: FrameRequest) -> int:
        """How often a frame's code object may be compiled before it runs eagerly for good."""
        return self.settings.recompile_limit * (LOOP_FACTOR if request.is_in_loop else 1)

    def compile(self, request: FrameRequest) -> CompiledFrame:
        """Compile a frame. Raises RunEagerly, or in strict mode and under fullgraph the original error."""
        settings, tables = self.settings, self.tables
        if self.records.given_up:
            self.skipped(request.code, self.records.given_up)
            raise RunEagerly(self.records.given_up)
        record = self.current = self.records.begin(request.code, self.backend_name)
        record.note_failed(self.failures, request)
        self.failures = ()
        if record.failed_guards:
            logs.recompiling(request.code, record.failed_guards)
        if all(plugin.name == USER for plugin in tables.plugins):
            self._no_plugins(record, settings)
        self._check_names(record, settings)
        ctx = new_context(settings, tables, record.id)
        ctx.users_backend, ctx.timeline = callable(self.backend), self.records.timeline
        record.events = ctx.events
        ctx.emit(event_of(record, EventKind.START))
        start, hits, rebuilt = time.perf_counter(), ctx.cache.hits, len(ctx.cache.rebuilt)
        try:
            with suspended(), imports_collected():
                backend = backend_for(self.backend, tables, record)
                traced, code = compile_frame(request, ctx, backend, record)
        except GivenUp as given_up:
            raise self._given_up(str(given_up), record, ctx) from None
        except SkipFrame as nothing:
            raise self._as_idle(nothing, request, record, ctx) from None
        except GraphBreak as stop:
            raise self._as_graph_break(stop, record, ctx) from None
        except BackendFunctionFailed as fault:
            record.outcome, record.reason = Outcome.FAILED, str(fault)
            # raise here: a function that gets the error as an argument would keep its frames alive until the next
            # garbage collection
            raise
        except (Exception, TraceSignal) as error:
            raise self._as_failure(error, record, ctx) from error
        except BaseException as error:
            record.outcome, record.reason = Outcome.FAILED, f"{type(error).__name__} while it was compiled"
            raise
        finally:
            record.seconds = time.perf_counter() - start
            # otherwise the outcome is reported where it is decided
            if record.reason and record.outcome is not Outcome.EMPTY:
                logs.frame(record)
            self.records.relied(request.code).add(tables, ctx.asked.values())
        record.outcome = Outcome.COMPILED
        record.breaks = traced.breaks
        logs.frame(record)
        for event in traced.breaks:
            ctx.tables.observe_break(event)
        if ctx.cache.hits > hits:
            ctx.emit(event_of(record, EventKind.CACHE_HIT, f"{ctx.cache.hits - hits} built files"))
        for what in ctx.cache.rebuilt[rebuilt:]:
            ctx.emit(event_of(record, EventKind.CACHE_REBUILD, what))
        ctx.emit(event_of(record, EventKind.FINISH, seconds=record.seconds))
        guards = (*traced.guards, *traced.size_guards())
        return CompiledFrame(code, guards, computes=traced.graph is not None or bool(traced.breaks))

    def installed(self, request: FrameRequest, guards: tuple[str, ...]) -> None:
        """Record the guards as text."""
        if self.current is not None:
            self.current.guards = guards
            logs.guards(self.current)
        self.current = None

    def guards_unbuildable(self, request: FrameRequest, error: Exception) -> None:
        """Treat it as a failure: the frame runs eagerly. Raises in strict mode."""
        record = self.current
        invariant(record is not None, "guards are built for a compilation", function=request.code.co_qualname)
        if record is not None:
            self._as_failure(error, record, new_context(self.settings, self.tables, record.id))

    def skipped(self, code: CodeType, reason: str, for_good: bool = False) -> None:
        """Record it and notify observers, once for each code object and reason."""
        if not self.records.skip(code, reason, for_good):
            return
        logs.skipped(code, reason)
        event = CompileEvent(EventKind.SKIP, -1, code.co_qualname, code.co_filename, code.co_firstlineno, reason)
        self.tables.observe_compile(event)

    def known_idle(self, request: FrameRequest) -> RunEagerly | None:
        """The cached answer for functions that were only traced up to a break, or as callees, and had nothing to
        compile."""
        code = request.code
        if request.promising or not self.records.is_idle(code):
            return None
        self.skipped(code, KNOWN_IDLE)
        return RunEagerly(KNOWN_IDLE, for_all=not session().is_requested(code), idle=True)

    def recompiling(self, request: FrameRequest, failures: tuple[Mismatch, ...]) -> None:
        """Remember the reason for the next record, and notify observers."""
        self.failures = failures
        code = request.code
        place = (code.co_qualname, code.co_filename, code.co_firstlineno)
        self.tables.observe_compile(CompileEvent(EventKind.RECOMPILE, -1, *place, "; ".join(map(str, failures))))

    def limit_reached(
        self, request: FrameRequest, failures: tuple[Mismatch, ...], advice: tuple[str, ...], modules: int
    ) -> None:
        """Warn once that the function is left to eager, with the failed guards and the sizes to mark."""
        code, limit = request.code, self.recompile_limit(request)
        seen = "\n".join(f"    {text}" for text in dict.fromkeys(map(str, failures)))
        sizes = f"mark the sizes that change, {', '.join(advice)}" if advice else "pass such values as tensors"
        if modules:
            limit, sizes = len(failures), MANY_MODULES.format(modules)
        text = (
            f"armature compiled {code.co_qualname} {limit} times and now runs it eagerly for new inputs. "
            f"Guards that failed, one per compilation:\n{seen}\n"
            f"  What to do: {sizes}; ARMATURE_RECOMPILE_LIMIT raises the limit."
        )
        reason = f"compiled {limit} times: {sizes}"
        self.records.limit(code, reason, failed_guards(failures, request))
        logs.skipped(code, reason)
        _warn_at(code, text)
        place = (code.co_qualname, code.co_filename, code.co_firstlineno)
        self.tables.observe_compile(CompileEvent(EventKind.FALLBACK, -1, *place, "recompile limit"))

    def _as_idle(
        self, nothing: SkipFrame, request: FrameRequest, record: Compilation, ctx: CompileContext
    ) -> RunEagerly:
        """Report a frame with nothing to compile; the record is withdrawn if the frame was found idle. Returns the
        exception for the hook."""
        record.reason = nothing.reason
        if nothing.idle:  # a frame that was itself traced to its end has guards that tell when to trace again
            others = [code for code in nothing.idle_codes if code is not request.code]
            self.records.note_idle(others if nothing.idle_codes else [request.code])
            self.records.withdraw(record)
            self.skipped(request.code, nothing.reason)
        else:
            logs.skipped(request.code, nothing.reason)
            ctx.emit(event_of(record, EventKind.SKIP, nothing.reason))
        if nothing.frees:
            nothing.__traceback__ = None
            gc.collect()
        # With fullgraph a break is an error, if nothing else comes before it.
        for_all = not nothing.frees
        if nothing.idle:
            for_all = bool(nothing.idle_codes) or not session().is_requested(request.code)
        return RunEagerly(
            nothing.reason,
            for_all=for_all,
            guards=() if nothing.frees else nothing.guards,
            once=nothing.once,
            idle=nothing.idle,
            idle_callees=bool(nothing.idle_codes),
        )

    def _as_graph_break(self, stop: GraphBreak, record: Compilation, ctx: CompileContext) -> Exception:
        event = stop.event
        reason = f"{event.type.id} ({stop.not_resumed})" if stop.not_resumed else event.type.id
        record.outcome, record.breaks, record.reason = Outcome.BREAK, (event,), reason
        ctx.tables.observe_break(event)
        ctx.emit(event_of(record, EventKind.FALLBACK, f"graph break: {event.type.id}"))
        if self.fullgraph:
            return unsupported(event)
        return RunEagerly(f"graph break: {event.type.title}", guards=stop.guards)

    def _as_failure(self, error: Exception | TraceSignal, record: Compilation, ctx: CompileContext) -> RunEagerly:
        record.outcome, record.reason = Outcome.FALLBACK, f"{type(error).__name__}: {error}"
        ctx.emit(event_of(record, EventKind.FALLBACK, record.reason))
        if ctx.config.repro_dir and not isinstance(error, DeviceBackendUnready):
            repro.leave(Path(ctx.config.repro_dir), record, error)
        if ctx.config.strict:
            try:
                raise error
            finally:
                del error  # see the comment in `compile`
        if ctx.config.fallback_warning:
            _warn_fallback(error, record)
        return RunEagerly(record.reason)

    def _given_up(self, reason: str, record: Compilation, ctx: CompileContext) -> RunEagerly:
        record.outcome, record.reason = Outcome.FALLBACK, reason
        session().given_up = self.records.given_up = reason
        ctx.emit(event_of(record, EventKind.FALLBACK, reason))
        warnings.warn_explicit(f"{reason} (armature.reset() ends that)", ArmatureWarning, record.file, record.line)
        return RunEagerly(reason)

    def _no_plugins(self, record: Compilation, settings: Config) -> None:
        error = NoPlugins()
        record.outcome, record.reason = Outcome.FALLBACK, error.text
        if settings.strict:
            raise error
        warn_once(record, "no plugins", str(error))
        raise RunEagerly(error.text)

    @staticmethod
    def _check_names(record: Compilation, settings: Config) -> None:
        """Report a setting, from the environment or `config.patch`, that names no plugin or pass."""
        try:
            manager().check_settings(settings, PLUGIN_SETTINGS | PASS_SETTINGS)
        except (UnknownPlugin, UnknownPass) as error:
            if settings.strict:
                record.outcome, record.reason = Outcome.FAILED, str(error)
                raise
            warn_once(record, ("unknown", error.facts["name"]), str(error))


def unsupported(event: BreakEvent) -> Unsupported:
    """The error for fullgraph=True: the user's location and stack first."""
    return Unsupported(
        where=breaks.where(event),
        title=event.type.title,
        explanation=breaks.explanation(event),
        stack=breaks.stack_text(event),
        hints="\n    ".join(breaks.hints(event)),
    )


def _warn_fallback(error: BaseException, record: Compilation) -> None:
    lead = f"armature runs {record.function} eagerly, since compiling it failed: "
    if isinstance(error, DeviceBackendUnready):
        text = f"{lead}{error}"
    else:
        what = str(error) if isinstance(error, ArmatureError) else f"{type(error).__name__}: {error}"
        text = f"{lead}{what}\n  {REPORT}"
    warnings.warn_explicit(text, ArmatureWarning, record.file, record.line)


def _warn_at(code: CodeType, text: str) -> None:
    warnings.warn_explicit(text, ArmatureWarning, code.co_filename, code.co_firstlineno)
