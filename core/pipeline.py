"""The stages in their order: a frame in, code to run out. Falls back to eager where something goes wrong.

`compile_frame` is the path itself; `Compiler` is what the frame hook calls, and decides what a failure means: eager
with one warning, or an error in strict mode and under fullgraph.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import attrs
import torch
from torch import fx

from armature import config
from armature.api.errors import ArmatureWarning, BackendFunctionFailed, DeviceBackendUnready, NoDeviceBackend, NoPlugins
from armature.api.session import Compilation, Outcome, Session, failed_guards, session
from armature.aten_compiler import AtenCompiler, event_of, timed
from armature.breaks import events as breaks
from armature.breaks.types import BreakEvent
from armature.config import Config
from armature.context import CompileContext
from armature.errors import ArmatureError, InvariantError, Unsupported, invariant
from armature.events import CompileEvent, EventKind
from armature.frame import skip
from armature.frame import verify as frame_spec
from armature.frame.data import FrameRequest, resume_point
from armature.frame.guards.explain import Mismatch
from armature.frame.guards.kinds import StorageGuard
from armature.frame.hook import CompiledFrame, RunEagerly
from armature.graph import inference, learning, pieces, segments
from armature.graph.functional import compile_graph, gives_other_forms
from armature.graph.in_place import loses_layout
from armature.plugins.plugin_manager import manager
from armature.plugins.tables import Tables
from armature.rules.book import Decision
from armature.rules.user import USER
from armature.run.cache import Cache
from armature.run.workers import Workers
from armature.torch_abi import symbols
from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.jagged import meets_jagged
from armature.torch_abi.overrides import suspended
from armature.trace import verify as trace_spec
from armature.trace.data import GraphInput, TracedFrame
from armature.trace.emit.rollback import Undo
from armature.trace.errors import GraphBreak, SkipFrame
from armature.trace.recording import graph_calls
from armature.trace.resume.continuation import capture_frame
from armature.trace.show import show as show_captured
from armature.users_backend import UsersBackend

__all__ = ["Compiler", "compile_frame", "new_context", "session"]

# In one graph or not at all: then numbers are kept in the graph, where a break would be an error.
ONE_GRAPH = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
FOUND_IDLE = "tracing found no tensor in it, and there is none in its reach"
NATIVE = ("auto", "armature")  # backends that are the stages of this package
REPORT = (
    "Please report it with the output of `armature doctor` and of a run with ARMATURE_STRICT=1, "
    "which shows the whole error."
)

GraphCallable = Callable[..., Any]
GraphBackend = Callable[[TracedFrame, CompileContext, Compilation], GraphCallable]


def new_context(settings: Config, tables: Tables, compile_id: int) -> CompileContext:
    """The context of one compilation."""
    return CompileContext(
        config=settings,
        tables=tables,
        cache=_cache(settings.cache_dir),
        workers=_workers(settings.threads),
        compile_id=compile_id,
    )


@cache
def _cache(folder: Path) -> Cache:
    return Cache(folder)


@cache
def _workers(threads: int) -> Workers:
    return Workers(threads)


def runs_as_captured(traced: TracedFrame, module: fx.GraphModule) -> bool:
    """Whether a graph runs operator by operator."""
    return (
        traced.as_it_is
        # Inputs that overlap, one written to: eager refuses some such calls, which a functional graph can't see.
        or any(isinstance(guard, StorageGuard) and guard.together for guard in traced.guards)
        or meets_jagged(module.graph)
        or symbols.depends_on_numbers(module.graph)  # lowering has no sizes that are known only half-way
        or inference.gives_others(module)
        or gives_other_forms(module)
        or loses_layout(module.graph)
        or graph_calls.only_as_captured(module.graph)
    )


def native_backend(traced: TracedFrame, ctx: CompileContext, record: Compilation) -> GraphCallable:
    """The captured graph through the stages of this package."""
    module = traced.graph
    if module is not None and learning.learns_inside(module):
        whole = learning.begun_with_gradients(module)
        with torch.enable_grad():
            run = native_backend(attrs.evolve(traced, graph=whole), ctx, record)
        return module.forward if run == whole.forward else learning.with_gradients(run)
    check_devices(traced, ctx, record)
    if module is None or not inference.enters(module):
        return as_kernels(traced, ctx, record)
    inner = inference.without(module)
    if inner is None:
        return module.forward
    with torch.inference_mode():
        run = as_kernels(attrs.evolve(traced, graph=inner), ctx, record)
    return module.forward if run == inner.forward else inference.inside(run)


def as_kernels(traced: TracedFrame, ctx: CompileContext, record: Compilation) -> GraphCallable:
    """The graph compiled, in the mode of now; as it is where it has to run operator by operator."""
    if traced.graph is not None and runs_as_captured(traced, traced.graph):
        return traced.graph.forward
    if traced.graph is not None and any(map(pieces.is_apart_for_kernels, traced.graph.graph.nodes)):
        run = pieces.compiled(traced, lambda piece: as_kernels(piece, ctx, record), pieces.is_apart_for_kernels)
        return traced.graph.forward if run is None else run
    # The backward graph is compiled later and keeps what it is made from; guards hold the example tensors.
    free = attrs.evolve(traced, guards=(), size_guards=tuple)
    run = segments.compiled(free, ctx, lambda piece: compile_graph(piece, ctx, AtenCompiler(record)))
    if run is None:
        run = compile_graph(free, ctx, AtenCompiler(record))
    for graph in record.graphs:  # a kernel that can't be built is found here, where eager can still take over
        graph.ready()
    return run


@attrs.frozen
class ForeignBackend:
    """A backend that takes captured graphs with their inputs."""

    compile_graph: Callable[[fx.GraphModule, tuple[GraphInput, ...]], GraphCallable]

    def __call__(self, traced: TracedFrame, ctx: CompileContext, record: Compilation) -> GraphCallable:
        """What it makes of the graph, or of each piece of one that has to be cut."""
        module = traced.graph
        if module is None:
            raise InvariantError(what="a backend is given a graph", details=traced.name)
        if graph_calls.only_as_captured(module.graph):
            return module.forward
        if any(map(pieces.is_apart, module.graph.nodes)):
            around = pieces.compiled(traced, lambda piece: self(piece, ctx, record), pieces.is_apart)
            return module.forward if around is None else around
        return segments.compiled(traced, ctx, self.whole) or self.whole(traced)

    def whole(self, traced: TracedFrame) -> GraphCallable:
        """What it makes of a graph, or of a piece of one."""
        if traced.graph is None:
            raise InvariantError(what="a backend is given a graph", details=traced.name)
        return self.compile_graph(traced.graph, traced.inputs)


def plugins_backend(fn: Callable[..., Any]) -> Callable[[fx.GraphModule, tuple[GraphInput, ...]], GraphCallable]:
    """What compiles graphs with a backend that a plugin gives, `fn(graph_module, fakes) -> callable`."""

    def compile_graph(module: fx.GraphModule, inputs: tuple[GraphInput, ...]) -> GraphCallable:
        result = fn(module, [given.fake for given in inputs])
        invariant(callable(result), "a backend returns a callable", backend=fn, returned=result)
        return result  # type: ignore[no-any-return]

    return compile_graph


def backend_for(backend: str | Callable[..., Any], tables: Tables, record: Compilation) -> GraphBackend:
    """The backend of a name or function, for one compilation. KeyError: no such name."""
    if callable(backend):
        return ForeignBackend(UsersBackend(backend, record))
    return native_backend if backend in NATIVE else ForeignBackend(plugins_backend(tables.graph_backends[backend]))


def compile_frame(
    request: FrameRequest, ctx: CompileContext, backend: GraphBackend, record: Compilation
) -> tuple[TracedFrame, CodeType]:
    """Trace a frame and compile its graph. Errors: GraphBreak, SkipFrame, and whatever a stage raises."""
    if ctx.config.strict:
        frame_spec.verify(request)
    traced = timed(record, "trace", ctx, lambda: capture_frame(request, ctx))
    if ctx.config.strict:
        trace_spec.verify(traced)
    record.module, record.captured = traced.graph, show_captured(traced)
    if "fx" in ctx.config.show:
        print(f"# {record.function}    {record.where}    fx\n{record.captured}", file=sys.stderr)
    if traced.graph is None:
        return traced, traced.code
    run = timed(record, "graph", ctx, lambda: backend(traced, ctx, record))
    as_captured = run == traced.graph.forward or backend is not native_backend  # those of others may run it as it is
    return traced, fill_slot(traced, undoing(traced.undo, run, traced.graph if as_captured else None))


@contextlib.contextmanager
def imports_collected() -> Iterator[None]:
    """Afterwards no frame of an import holds the frames below it, and with them what the program has given them.

    torch imports much of itself when it is first needed, and `torch.fx.wrap`, which such modules call, refers to its
    own frame. It happens in the first compilation of a process.
    """
    before = len(sys.modules)
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.collect()


def undoing(undo: Undo, run: GraphCallable, captured: fx.GraphModule | None) -> GraphCallable:
    """The graph's callable, which leaves nothing behind when it raises. captured: the graph, if it runs itself."""
    return undo.around(with_hook_off(run), None if captured is None else type(captured).forward.__code__)


def fill_slot(traced: TracedFrame, run: GraphCallable) -> CodeType:
    """The traced code with the compiled graph where the slot stands. The graph runs with the frame hook off."""
    run = with_hook_off(run)
    constants = traced.code.co_consts
    found = sum(constant is traced.slot for constant in constants)
    invariant(found == 1, "the traced code has one slot for the compiled graph", found=found, frame=traced.name)
    return traced.code.replace(co_consts=tuple(run if c is traced.slot else c for c in constants))


def with_hook_off(run: GraphCallable) -> GraphCallable:
    """The same callable, if it is written in Python by itself; else a function that calls it."""
    inner = run.__func__ if isinstance(run, MethodType) else run
    if isinstance(inner, FunctionType):
        skip_code(inner.__code__, below=True)
        return run

    def call(*args: Any) -> Any:
        return run(*args)

    skip_code(call.__code__, below=True)
    return call


def check_devices(traced: TracedFrame, ctx: CompileContext, record: Compilation) -> None:
    """Warn of devices that no plugin makes kernels for. Raises DeviceBackendUnready where one can't work."""
    tensors = [given.fake for given in traced.inputs if isinstance(given.fake, torch.Tensor)]
    for device in sorted({tensor.device.type for tensor in tensors} or {"cpu"}):
        found = ctx.tables.device_backend(device)
        if found is None:
            _warn_once(record, ("device", device), str(NoDeviceBackend(device=device, fix=_device_fix(device))))
        elif (missing := found.missing()) is not None:
            raise DeviceBackendUnready(backend=found.name, missing=missing)


def _device_fix(device: str) -> str:
    extras = {"cpu": "cpu", "cuda": "gpu"}
    if device in extras:
        return f'pip install "torch-armature[{extras[device]}]"'
    return "Install a plugin that has a back end for it; `armature plugins` lists what is installed."


def _warn_once(record: Compilation, what: object, text: str) -> None:
    if session().first_time(what):
        warnings.warn_explicit(text, ArmatureWarning, record.file, record.line)


@attrs.define(eq=False)
class Compiler:
    """What the frame hook asks: compiles frames by one set of options, keeps records, and decides what failures mean.

    changes: settings of `options` that apply to these compilations only.
    """

    backend: str | Callable[..., Any] = "auto"
    fullgraph: bool = False
    dynamic: bool | None = None
    changes: Mapping[str, object] = attrs.field(factory=dict)
    records: Session = attrs.field(factory=session)
    current: Compilation | None = None
    failed: tuple[Mismatch, ...] = ()  # guards of code compiled before, for the record that follows

    @property
    def backend_name(self) -> str:
        """The backend's name, as people read it."""
        return self.backend if isinstance(self.backend, str) else getattr(self.backend, "__name__", "custom")

    @property
    def settings(self) -> Config:
        """The settings here and now, with what `fullgraph` changes, and then `options`."""
        changes = {**ONE_GRAPH, **self.changes} if self.fullgraph else self.changes
        return config.current().changed(changes) if changes else config.current()

    def reason_to_skip(self, code: CodeType, variables: Mapping[str, object]) -> str | None:
        """Why rules leave the frame alone."""
        resumes = resume_point(code) is not None
        glue = skip.is_glue(code)
        if glue is not None and not resumes and not session().is_asked_for(code):
            return f"part of {glue}: compiled with the functions that call it, or when it is given to armature.compile"
        verdict = manager().tables().rule_book.frame_verdict(code, variables)
        module = variables.get("__name__")
        self.records.relied(code).frame = (module if isinstance(module, str) else "", verdict.decision)
        return verdict.reason if verdict.decision is Decision.SKIP else None

    def recompile_limit(self) -> int:
        """Compilations of one code object before it is left to eager."""
        return self.settings.recompile_limit

    def compile(self, request: FrameRequest) -> CompiledFrame:
        """Compile a frame. Raises RunEagerly; in strict mode and under fullgraph what went wrong instead."""
        settings, tables = self.settings, manager().tables()
        record = self.current = self.records.begin(request.code, self.backend_name)
        record.note_failed(self.failed, request)
        self.failed = ()
        if all(plugin.name == USER for plugin in tables.plugins):
            self._no_plugins(record, settings)
        ctx = new_context(settings, tables, record.id)
        ctx.users_backend = callable(self.backend)
        record.events = ctx.events
        ctx.emit(event_of(record, EventKind.START))
        start, hits, rebuilt = time.perf_counter(), ctx.cache.hits, len(ctx.cache.rebuilt)
        try:
            with suspended(), imports_collected():
                backend = backend_for(self.backend, tables, record)
                traced, code = compile_frame(request, ctx, backend, record)
        except SkipFrame as nothing:
            raise self._nothing(nothing, request, record, ctx) from None
        except GraphBreak as stop:
            raise self._broken(stop, record, ctx) from None
        except BackendFunctionFailed as fault:
            record.outcome, record.reason = Outcome.FAILED, str(fault)
            raise  # here: a function that is given it would keep it, and its frames, until garbage is collected
        except Exception as error:
            raise self._failed(error, record, ctx) from error
        except BaseException as error:
            record.outcome, record.reason = Outcome.FAILED, f"{type(error).__name__} while it was compiled"
            raise
        finally:
            record.seconds = time.perf_counter() - start
            self.records.relied(request.code).add(tables, ctx.asked.values())
        record.outcome = Outcome.COMPILED
        record.breaks = traced.breaks
        for event in traced.breaks:
            ctx.tables.observe_break(event)
        if ctx.cache.hits > hits:
            ctx.emit(event_of(record, EventKind.CACHE_HIT, f"{ctx.cache.hits - hits} built files"))
        for what in ctx.cache.rebuilt[rebuilt:]:
            ctx.emit(event_of(record, EventKind.CACHE_REBUILD, what))
        ctx.emit(event_of(record, EventKind.FINISH, seconds=record.seconds))
        guards = (*traced.guards, *traced.size_guards())
        return CompiledFrame(code, guards)

    def installed(self, request: FrameRequest, guards: tuple[str, ...]) -> None:
        """Keep the guards in words."""
        if self.current is not None:
            self.current.guards = guards
        self.current = None

    def guards_unbuildable(self, request: FrameRequest, error: Exception) -> None:
        """A failure after all: the frame runs eagerly. Raises in strict mode."""
        record = self.current
        invariant(record is not None, "guards are built for a compilation", function=request.code.co_qualname)
        if record is not None:
            self._failed(error, record, new_context(self.settings, manager().tables(), record.id))

    def skipped(self, code: CodeType, reason: str, for_good: bool = False) -> None:
        """Keep a record, and tell observers, once for each code object and reason."""
        if not self.records.skip(code, reason, for_good):
            return
        event = CompileEvent(EventKind.SKIP, -1, code.co_qualname, code.co_filename, code.co_firstlineno, reason)
        manager().tables().observe_compile(event)

    def known_idle(self, request: FrameRequest) -> RunEagerly | None:
        """The answer to frames of functions that were traced to a break only, or with what calls them; for nothing."""
        code = request.code
        if request.promising or not self.records.is_idle(code):
            return None
        self.skipped(code, FOUND_IDLE)
        return RunEagerly(FOUND_IDLE, for_all=not session().is_asked_for(code), idle=True)

    def recompiling(self, request: FrameRequest, failures: tuple[Mismatch, ...]) -> None:
        """Keep why, for the record that follows, and tell observers."""
        self.failed = failures
        code = request.code
        place = (code.co_qualname, code.co_filename, code.co_firstlineno)
        manager().tables().observe_compile(CompileEvent(EventKind.RECOMPILE, -1, *place, "; ".join(map(str, failures))))

    def limit_reached(self, request: FrameRequest, failures: tuple[Mismatch, ...], advice: tuple[str, ...]) -> None:
        """Say once that the function is left to eager, which guards failed, and which sizes to mark."""
        code, limit = request.code, self.recompile_limit()
        seen = "\n".join(f"    {text}" for text in dict.fromkeys(map(str, failures)))
        sizes = f"mark the sizes that change, {', '.join(advice)}" if advice else "pass such values as tensors"
        text = (
            f"armature compiled {code.co_qualname} {limit} times and now runs it eagerly for new inputs. "
            f"Guards that failed, one per compilation:\n{seen}\n"
            f"  What to do: {sizes}; ARMATURE_RECOMPILE_LIMIT raises the limit."
        )
        self.records.limit(code, f"compiled {limit} times: {sizes}", failed_guards(failures, request))
        _warn_at(code, text)
        place = (code.co_qualname, code.co_filename, code.co_firstlineno)
        manager().tables().observe_compile(CompileEvent(EventKind.FALLBACK, -1, *place, "recompile limit"))

    def _nothing(
        self, nothing: SkipFrame, request: FrameRequest, record: Compilation, ctx: CompileContext
    ) -> RunEagerly:
        record.reason = nothing.reason
        if nothing.idle:  # a frame that was traced by itself, to its end, has guards that tell when to look again
            others = [code for code in nothing.whole if code is not request.code]
            self.records.note_idle(others if nothing.whole else [request.code])
            self.records.withdraw(record)
            self.skipped(request.code, nothing.reason)
        else:
            ctx.emit(event_of(record, EventKind.SKIP, nothing.reason))
        if nothing.frees:
            nothing.__traceback__ = None
            gc.collect()
        # With fullgraph a break is an error, if nothing came before it too.
        for_all = bool(nothing.whole) or not session().is_asked_for(request.code) if nothing.idle else not nothing.frees
        return RunEagerly(
            nothing.reason,
            for_all=for_all,
            guards=() if nothing.frees else nothing.guards,
            once=nothing.once,
            idle=nothing.idle,
            whole=bool(nothing.whole),
        )

    def _broken(self, stop: GraphBreak, record: Compilation, ctx: CompileContext) -> Exception:
        event = stop.event
        reason = f"{event.type.id} ({stop.not_resumed})" if stop.not_resumed else event.type.id
        record.outcome, record.breaks, record.reason = Outcome.BREAK, (event,), reason
        ctx.tables.observe_break(event)
        ctx.emit(event_of(record, EventKind.FALLBACK, f"graph break: {event.type.id}"))
        if self.fullgraph:
            return unsupported(event)
        return RunEagerly(f"graph break: {event.type.title}", guards=stop.guards)

    def _failed(self, error: Exception, record: Compilation, ctx: CompileContext) -> Exception:
        record.outcome, record.reason = Outcome.FALLBACK, f"{type(error).__name__}: {error}"
        ctx.emit(event_of(record, EventKind.FALLBACK, record.reason))
        if ctx.config.strict:
            raise error
        if ctx.config.fallback_warning:
            _warn_fallback(error, record)
        return RunEagerly(record.reason)

    def _no_plugins(self, record: Compilation, settings: Config) -> None:
        error = NoPlugins()
        record.outcome, record.reason = Outcome.FALLBACK, error.text
        if settings.strict:
            raise error
        _warn_once(record, "no plugins", str(error))
        raise RunEagerly(error.text)


def unsupported(event: BreakEvent) -> Unsupported:
    """What fullgraph=True raises: the user's place and stack first."""
    return Unsupported(
        where=breaks.where(event),
        title=event.type.title,
        explanation=breaks.explanation(event),
        stack=breaks.stack_text(event),
        hints="\n    ".join(breaks.hints(event)),
    )


def _warn_fallback(error: Exception, record: Compilation) -> None:
    lead = f"armature runs {record.function} eagerly, since compiling it failed: "
    if isinstance(error, DeviceBackendUnready):
        text = f"{lead}{error}"
    else:
        what = str(error) if isinstance(error, ArmatureError) else f"{type(error).__name__}: {error}"
        text = f"{lead}{what}\n  {REPORT}"
    warnings.warn_explicit(text, ArmatureWarning, record.file, record.line)


def _warn_at(code: CodeType, text: str) -> None:
    warnings.warn_explicit(text, ArmatureWarning, code.co_filename, code.co_firstlineno)
