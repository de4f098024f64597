"""The whole plugin contract on one page.

A plugin is a distribution with an entry point in group `armature` that names a module (or object) whose functions are
decorated with `@hookimpl`. It implements the hooks it needs and no others. Hooks that return rows are called when
the set of plugins changes, and their rows are collected into tables; `..._event` hooks observe and return nothing; the
`firstresult` hooks answer one question each, once, and the answer is cached. No hook runs while a compiled function is
called.

Each hook below says who calls it, when, with what, and what None means. docs/plugins.md has a worked example of each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import typer

    from armature.breaks.types import BreakEvent, BreakType
    from armature.codegen.backend import DeviceBackend
    from armature.events import CompileEvent
    from armature.graph.data import Decomposition, Lowering, Pass
    from armature.graph.facts import Operator
    from armature.introspection import Subject
    from armature.rules.data import Rule, Verdict
    from armature.run.replay import LaunchRecorder
    from armature.schedule.data import FusionRule
    from armature.torch_abi.functions import Function
    from armature.trace.base import FrameView, Tracing
    from armature.trace.handlers import Handler, Polyfill, ValueType
    from armature.trace.signatures import Signature

PROJECT = "armature"
API_VERSION = (1, 0)

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def armature_rules() -> Iterable[Rule]:
    """Rows that say which callables go in the graph, are traced into, or are skipped.

    Called by the tables when they are first needed after the set of plugins changed. None: no rows.

        return [Rule("mylib.fast.normalize", Decision.INLINE, "plain Python over torch functions")]
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def armature_decide(subject: Subject) -> Verdict | None:
    """Compute a verdict on a callable that no rule names, from the object itself. Must not run user code.

    Called by the rule book once per callable that no rule for the very object matches. None: no opinion, ask the next.
    Look at names and types: instances that nothing can watch (numbers, those of a class with empty `__slots__`) share
    the answer to one of them.

        if subject.module.startswith("mylib._generated"):
            return Verdict(Decision.SKIP, "generated lookup tables", ORIGIN)
    """
    raise NotImplementedError


@hookspec
def armature_handlers() -> Iterable[Handler]:
    """How a call of a given function is traced: functions decorated with `@handles`.

    Called by the tables when they are first needed. None: no rows.

        return collect(creation, queries)    # the modules' functions that bear @handles
    """
    raise NotImplementedError


@hookspec
def armature_value_types() -> Iterable[ValueType]:
    """Tracer value classes for Python types: exact types, or a predicate, in the order given.

    Called by the tables when they are first needed. None: no rows.

        return [ValueType(mylib.Batch, BatchValue)]
    """
    raise NotImplementedError


@hookspec
def armature_polyfills() -> Iterable[Polyfill]:
    """Python functions that are traced in place of functions written in C. Same signature, same result.

    Called by the tables when they are first needed. None: no rows.

        return [Polyfill(mylib._c.pairs, pairs)]
    """
    raise NotImplementedError


@hookspec
def armature_signatures() -> Iterable[Signature]:
    """The parameters of C functions that have no signature; modules in which all C functions have arguments checked.

    A call with other arguments breaks the graph.

    Called when tables are built. None: no rows.

        return [Signature(itertools.zip_longest, keywords=("fillvalue",))]
    """
    raise NotImplementedError


@hookspec
def armature_break_types() -> Iterable[BreakType]:
    """Rows of the graph-break catalogue: id, title, explanation, hints.

    Called by the tables when they are first needed. None: no rows.

        return [BreakType("mylib-io", "Reading a file", "`{call}` reads a file.", ("Read it before the call.",))]
    """
    raise NotImplementedError


@hookspec
def armature_graph_break(event: BreakEvent) -> None:
    """Observe a graph break. Called by `breaks` at each break, while compiling. Returns nothing.

    print(event.type.id, event.stack[-1])
    """


@hookspec(firstresult=True)
def armature_extend_break(frame: FrameView, tracing: Tracing) -> Collection[int] | None:
    """The instructions that run as they are along with the one at which a frame is cut, because no graph pays there.

    Called when a frame is cut at a graph break, before its instruction at `frame.position`. The positions are of
    `decode(program_of(frame.code))`, are reached from that instruction, and include no handler of exceptions. None:
    no opinion, the next plugin is asked; None from all: only that instruction.

        return range(frame.position + 1, end) if reads_a_header(frame) else None
    """
    raise NotImplementedError


@hookspec
def armature_decompositions() -> Iterable[Decomposition]:
    """Operators replaced by others while the ATen graph is traced. Called when tables are built. None: no rows.

    return [Decomposition(torch.ops.mylib.swish.default, lambda x: x * torch.sigmoid(x))]
    """
    raise NotImplementedError


@hookspec
def armature_lowerings() -> Iterable[Lowering]:
    """Operators turned into loops: functions decorated with `@lowers`. Called when tables are built. None: no rows.

    return collect_lowerings(pointwise, reductions)
    """
    raise NotImplementedError


@hookspec
def armature_operators() -> Iterable[Operator]:
    """Facts about operators that schemas don't state: a faster way to call them, and the layout of their results.

    Called by the tables when they are first needed. None: no rows.

        return [Operator(torch.ops.mylib.rotate.default, function=mylib._c.rotate, reliable_strides=True)]
    """
    raise NotImplementedError


@hookspec
def armature_functions() -> Iterable[Function]:
    """Facts about functions: which give the same, which may raise because of tensors' values, what numbers may be.

    Called by the tables when they are first needed. None: no rows.

        return [Function(mylib.twice, same_as=mylib.double)]
    """
    raise NotImplementedError


@hookspec
def armature_passes() -> Iterable[Pass]:
    """Optimisation passes with their stage and order. Called when tables are built. None: no rows.

    return [Pass("mylib-fold-scale", "post_grad", fold_scale, after=("dead-code",))]
    """
    raise NotImplementedError


@hookspec
def armature_fusion_rules() -> Iterable[FusionRule]:
    """Rules on which kernels may become one, and what that saves. Called when tables are built. None: no rows.

    return [FusionRule("mylib-short-rows", allows=lambda pair: max(pair.one.inner, pair.other.inner) <= 4096)]
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def armature_device_backend(device_type: str) -> DeviceBackend | None:
    """The back end for a device type ("cpu", "cuda", "mydev"). Called once per device type.

    None: not mine, the next plugin is asked; None from all: operators on that device run as ATen calls.

        return MyBackend() if device_type == "mydev" else None
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def armature_launch_recorder(device_type: str) -> LaunchRecorder | None:
    """An object that records launches on a device type and replays them as one. Called once per device type.

    None: not mine, the next plugin is asked; None from all: graphs on that device launch each kernel separately.

        return MyGraphs() if device_type == "mydev" else None
    """
    raise NotImplementedError


@hookspec
def armature_graph_backends() -> Mapping[str, Callable[..., Any]]:
    """Names for `armature.compile(backend=...)`, each `fn(gm, example_inputs) -> callable`. Called for the tables.

    example_inputs are fake tensors, and SymInts. What the function raises is a fault of the plugin: the frame runs
    eagerly, with a warning.

    return {"eager": lambda gm, inputs: gm.forward}
    """
    raise NotImplementedError


@hookspec
def armature_compile_event(event: CompileEvent) -> None:
    """Observe a compilation: start, finish, recompile, cache hit, fallback, skip, stage. Returns nothing.

    progress.update(event.kind.value)
    """


@hookspec
def armature_cli(app: typer.Typer) -> None:
    """Add subcommands to the `armature` command. Called once by the CLI at start. Returns nothing.

    app.command("mylib")(show_mylib_status)
    """
