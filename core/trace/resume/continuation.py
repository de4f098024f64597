"""Graph breaks with resumption: the part traced before the break is compiled; the rest is traced when it runs.

A break is found in the middle of an instruction, when the trace has already changed. So the frame is traced again up to
that instruction, or to the call of the innermost function that can't be cut, and cut there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armature.breaks import events
from armature.frame.data import FrameRequest, program_of
from armature.torch_abi.overrides import without_overrides
from armature.trace import inlining
from armature.trace.base import Tracing, Value
from armature.trace.bytecode.instructions import decode
from armature.trace.data import CompiledGraphSlot, TracedFrame
from armature.trace.errors import GraphBreak, SkipFrame, UserRaised
from armature.trace.frame_state import Frame, Stopped
from armature.trace.interpreter import check_generators, root_frame, trace_of, traced_frame, tracing
from armature.trace.locations import Location, Moment
from armature.trace.resume.cut import CutFrame, CutWriter, calls_directly, cut_frame, why_not
from armature.trace.resume.frame_writer import CannotResume
from armature.trace.values.context import end_grad

if TYPE_CHECKING:
    from armature.breaks.types import BreakEvent
    from armature.context import CompileContext

ATTEMPTS = 6  # positions at which we try to cut a frame
DEEPEST_CUT = 32  # frames that are cut together, each a piece of code; deeper calls are compiled on their own


def is_cut(request: FrameRequest, stop: GraphBreak) -> bool:
    """Whether a frame is cut at this break; otherwise the break is raised again. Errors: SkipFrame."""
    if request.fullgraph:
        return False
    if stop.idle and not request.promising:
        raise _nothing_until(stop) from None
    return bool(stop.locations)


def _nothing_until(stop: GraphBreak) -> SkipFrame:
    """The SkipFrame for a frame not worth cutting, because only its callees may compute with tensors."""
    where = events.where(stop.event)
    found = SkipFrame(f"it has met no tensor before a graph break ({stop.event.type.title}, {where})", idle=True)
    found.guards = stop.guards
    return found


@without_overrides
def resumed(request: FrameRequest, ctx: CompileContext, stop: GraphBreak) -> TracedFrame | None:
    """Cut the frame at a break; None if that can't be done."""
    locations, tried = stop.locations, set[Moment]()
    for _ in range(ATTEMPTS):
        depth = deepest(request, ctx, locations, tried)
        if depth is None:
            break
        tried.add(locations[depth].moment)
        try:
            return cut(request, ctx, locations[depth].moment, stop.event)
        except CannotResume as reason:
            stop.not_resumed = str(reason)
            locations = origin_of(reason.blame) or locations
        except GraphBreak as other:
            stop.not_resumed = str(other)
            # if an object can't be rebuilt, let it be made in Python
            locations = (other.locations if other.assumed else origin_of(other.blame)) or locations
    return None


def deepest(request: FrameRequest, ctx: CompileContext, stack: tuple[Location, ...], tried: set[Moment]) -> int | None:
    """The depth of the innermost frame that can be cut; each frame around it must do nothing but call the next."""
    found, end = None, ctx.tables.rule_book.innermost(stack) + 1
    with trace_of(request, ctx) as tracer:
        for depth, place in enumerate(stack[: min(end, DEEPEST_CUT)]):
            if depth and not calls_directly(tracer, stack[depth - 1], place.code):
                break
            if why_not(program_of(place.code)) is not None:
                break
            if place.moment not in tried:
                found = depth
    return found


def origin_of(value: Value | None) -> tuple[Location, ...]:
    """Where a value was made, if that was recorded."""
    return getattr(value, "raised_at", ()) or getattr(value, "made_at", ())


def cut(request: FrameRequest, ctx: CompileContext, moment: Moment, event: BreakEvent) -> TracedFrame:
    """Trace up to a moment, and write the code that continues from there. Errors: CannotResume, GraphBreak."""
    with trace_of(request, ctx) as tracer:
        tracer.stack.stop = moment
        with tracing(tracer):
            frames = run_until(root_frame(tracer, request))
            tracer.stack.frames.extend(frames)
            check_generators(tracer.stack, tracer.breaks, frames[0])
            cuts = [cut_frame(frame, frame.position - 1) for frame in frames[:-1]]
            steps = ctx.tables.extend_break(frames[-1], tracer)
            cuts.append(cut_frame(frames[-1], frames[-1].position, steps))
            leave_contexts(tracer, cuts)
        request.resumes.note(event.type.id, cuts[-1].origin, decode(cuts[-1].origin)[cuts[-1].position].offset)
        slot, computes = CompiledGraphSlot(), tracer.recorder.computes
        out = CutWriter(tracer, request.code)
        code = out.write(cuts, slot if computes else None)
        lines = [decode(cuts[-1].origin)[step].line for step in cuts[-1].steps]
        return traced_frame(tracer, out, code, slot, computes, (events.resumed(event, lines),))


def run_until(frame: Frame) -> tuple[Frame, ...]:
    """Run a frame up to the moment at which the tracer is to stop. Returns the frames, the outermost first."""
    try:
        inlining.run_frame(frame)
    except Stopped as stopped:
        return stopped.frames
    except UserRaised:
        pass
    raise CannotResume("traced again, it took another way")


def leave_contexts(tracer: Tracing, cuts: list[CutFrame]) -> None:
    """End the graph in the torch state in which it began; the code after it enters the context managers itself."""
    for check in tracer.ending.checks:
        check(tracer, cuts[-1].frame, None)
    for each in reversed(cuts):
        each.leave_contexts()
    end_grad(tracer)
    for context in tracer.effects.entered:
        raise CannotResume(f"{context.describe()} was entered without `with`", context)
    if tracer.ending.undo:
        raise CannotResume("a level of torch.func was entered")
