"""Records the launches of a compiled graph, of all of it or of segments, and reports what is not recorded and why."""

from __future__ import annotations

import attrs
import torch

from armature.context import CompileContext
from armature.errors import InvariantError
from armature.events import EventKind
from armature.graph.data import AtenGraph
from armature.lower.data import ExternCall
from armature.pipeline.notices import event_of
from armature.pipeline.session import Compilation
from armature.run.data import CompiledGraph
from armature.run.replay import Call, LaunchRecorder, Replayed, written_inputs
from armature.schedule.data import KernelPlan, Launch, Segment
from armature.schedule.segments import Division, divide
from armature.torch_abi.memory import storage_number

NO_RECORDER = "nothing records launches on {}"
MOST_NAMES = 3
SEVERAL_DEVICES = "its tensors are not all on one device"


@attrs.frozen(eq=False)
class Recordings:
    """The recorded parts of a plan. record: that of the captured frame, which receives the events about them."""

    plan: KernelPlan
    division: Division
    aten: AtenGraph
    record: Compilation
    ctx: CompileContext

    @classmethod
    def of(cls, plan: KernelPlan, aten: AtenGraph, record: Compilation, ctx: CompileContext) -> Recordings:
        """Decide what to record of a plan: nothing if the settings do not ask for it."""

        def refusal(device: torch.device | None, step: Launch | ExternCall) -> str | None:
            recorder = None if device is None else ctx.tables.launch_recorder(device.type)
            if device is None or recorder is None:
                return NO_RECORDER.format(device) if device else SEVERAL_DEVICES
            return recorder.refusal(step.target) if isinstance(step, ExternCall) else None

        division = divide(plan, refusal) if ctx.config.record_launches else Division(plan)
        made = cls(division.plan, division, aten, record, ctx)
        for reason, steps in division.refused.items():
            names = list(dict.fromkeys(s.kernel.name if isinstance(s, Launch) else str(s.target) for s in steps))
            more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            which = f"{', '.join(names[:MOST_NAMES])}{more}: " if division.plan.segments else ""
            made.notify(aten.name, f"not recorded: {which}{reason}")
        return made

    def segment(self, segment: Segment, call: Call) -> Call:
        """The function of a segment, recorded."""
        static = {self.plan.inputs[k] for k in self.aten.static_inputs}.union(segment.fixed)
        fixed = frozenset(k for k, name in enumerate(segment.inputs) if name in static)
        return self.replayed(f"{self.aten.name} {segment.name}", call, segment.device, fixed)

    def graph(self, compiled: CompiledGraph) -> CompiledGraph:
        """The compiled graph; it is recorded as one if it is not recorded in segments."""
        if self.division.device is None:
            return compiled
        fixed = self.aten.static_inputs | written_inputs(self.plan)
        call = self.replayed(self.aten.name, compiled.call, self.division.device, fixed)
        return attrs.evolve(compiled, call=call)

    def replayed(self, name: str, call: Call, device: torch.device, fixed: frozenset[int]) -> Replayed:
        """Wrap a function to record and replay its launches. fixed: positions of the inputs whose addresses a recording
        depends on."""
        return Replayed(
            call,
            self.recorder(device),
            device,
            fixed,
            sized=bool(self.plan.sizes),
            constants=frozenset(map(storage_number, self.plan.constants.values())),
            tell=lambda detail: self.notify(name, detail),
        )

    def recorder(self, device: torch.device) -> LaunchRecorder:
        """The recorder of a device that has one."""
        found = self.ctx.tables.launch_recorder(device.type)
        if found is None:
            raise InvariantError(what="a recording on a device that has no recorder", details=str(device))
        return found

    def notify(self, name: str, detail: str) -> None:
        """Tell observers what was recorded, or why not."""
        self.ctx.emit(event_of(self.record, EventKind.REPLAY, f"{name}: {detail}"))
