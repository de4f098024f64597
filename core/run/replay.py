"""Compiled graphs whose launches are recorded once, and from then on replayed as one (if a device supports that).

A recording is made for fixed addresses. Inputs are copied to fixed places, except those that stay where they are from
call to call (parameters, tensors that the graph writes to, results of other recordings): a recording is for their
addresses. Results are in the recording's own memory, which the next replay overwrites. So a recording is only replayed
when the program has released all of them; until then another recording is made, or the graph runs normally.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

import attrs
import torch
from torch import Tensor

from armature.lower.data import ExternCall
from armature.schedule.data import KernelPlan, Launch
from armature.torch_abi.alloc import reinterpret
from armature.torch_abi.memory import copy_all, same_addresses, storage_number, uses
from armature.torch_abi.views import may_overlap_itself

MOST = 8
"""Recordings of one graph; calls that need another one run normally."""

Call = Callable[[list[Any]], tuple[Any, ...]]
Result = Callable[[list[Any]], Any]


class NotRecorded(Exception):
    """A call can't be recorded; the text says why."""


class LaunchRecorder(Protocol):
    """A device's ability to record launches and replay them as one.

    memory: numbers of the storages that hold results of recordings. One recorder serves a process.
    """

    memory: set[int]

    def place(self, device: torch.device) -> Hashable | None:
        """What a recording depends on besides its arguments, such as the device's current stream. None: nothing can be
        recorded now."""

    def record(self, device: torch.device, call: Call, args: list[Any]) -> tuple[Callable[[], None], tuple[Any, ...]]:
        """Record the call without executing it. Returns a function that replays its launches, and the results, which
        own their memory while they live. Errors: NotRecorded."""


@attrs.frozen(eq=False)
class Recording:
    """Launches for fixed addresses.

    positions: inputs whose addresses are fixed. addresses: per input, None for others. copied: positions of the others,
    whose values are copied to `places`. results: how each result is made from the arguments. storages: those of
    results, with their reference counts when the program has released them.
    """

    positions: list[int]
    addresses: list[int | None]
    copied: tuple[int, ...]
    places: list[Tensor]
    launch: Callable[[], None]
    results: tuple[Result, ...]
    storages: tuple[tuple[int, int], ...]

    def fits(self, args: list[Any]) -> bool:
        """Whether the arguments have the recorded addresses, and the program has released the last replay's results."""
        return same_addresses(args, self.addresses, self.positions) and all(
            uses(storage) <= count for storage, count in self.storages
        )

    def run(self, args: list[Any]) -> tuple[Any, ...]:
        """Replay for these arguments; the list is emptied."""
        if self.places:
            copy_all(self.places, [args[k] for k in self.copied])
        made = tuple(result(args) for result in self.results)
        args.clear()
        self.launch()
        return made


@attrs.define(eq=False)
class Replayed:
    """A compiled graph that is recorded, called as the graph is.

    fixed: positions of inputs for whose addresses recordings are made. sized: whether sizes are read from arguments.
    constants: storages of tensors that are part of the graph. tell: called with a text about each recording, or about
    why a call is not recorded.
    """

    call: Call
    recorder: LaunchRecorder
    device: torch.device
    fixed: frozenset[int]
    sized: bool
    constants: frozenset[int]
    tell: Callable[[str], None]
    recordings: dict[Hashable, list[Recording]] = attrs.field(factory=dict)
    count: int = 0
    given_up: bool = False
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        """Replay a recording that fits, or run the graph. The first call of a kind runs it, because kernels are built
        then."""
        place = None if self.given_up else self.recorder.place(self.device)
        if place is None:
            return self.call(args)
        with self.lock:
            key = (place, torch.is_inference_mode_enabled(), *self.kind(args))
            known = self.recordings.get(key)
            if known is None:
                self.recordings[key] = []
            else:
                for recording in known:
                    if recording.fits(args):
                        return recording.run(args)
                made = self.recorded(args)
                if made is not None:
                    known.append(made)
                    return made.run(args)
        return self.call(args)

    def kind(self, args: list[Any]) -> tuple[Hashable, ...]:
        """The key of recordings for such arguments: their numbers, and their layouts if the graph supports several."""
        numbers = tuple(arg for arg in args if not isinstance(arg, Tensor))
        if not self.sized:
            return numbers
        return (*numbers, *((arg.shape, arg.stride()) for arg in args if isinstance(arg, Tensor)))

    def recorded(self, args: list[Any]) -> Recording | None:
        """A new recording for arguments like these; None if there can't be one."""
        if self.count == MOST:
            return None
        self.count += 1
        tensors = [k for k, arg in enumerate(args) if isinstance(arg, Tensor)]
        if elsewhere := [k for k in tensors if args[k].device != self.device]:
            self.give_up(f"input {elsewhere[0]} is on {args[elsewhere[0]].device}, the graph on {self.device}")
            return None
        kept = [k for k in tensors if k in self.fixed or self.stays(args[k])]
        copied = tuple(k for k in tensors if k not in kept)
        inputs = list(args)
        for k in copied:
            inputs[k] = torch.empty_strided(args[k].shape, args[k].stride(), dtype=args[k].dtype, device=args[k].device)
        try:
            launch, made = self.recorder.record(self.device, self.call, list(inputs))
        except NotRecorded as reason:
            self.give_up(str(reason))
            return None
        fresh = {storage_number(one) for one in made if isinstance(one, Tensor)} - self.constants
        fresh -= {storage_number(inputs[k]) for k in tensors}
        self.recorder.memory |= fresh
        results = tuple(self.result(one, inputs, fresh) for one in made)
        del made
        more = "; this was the last one, other calls run normally" if self.count == MOST else ""
        self.tell(f"recorded: {len(kept)} inputs stay where they are, {len(copied)} are copied{more}")
        return Recording(
            positions=kept,
            addresses=[args[k].data_ptr() if k in kept else None for k in range(len(args))],
            copied=copied,
            places=[inputs[k] for k in copied],
            launch=launch,
            results=results,
            storages=tuple((storage, uses(storage)) for storage in fresh),
        )

    def give_up(self, reason: str) -> None:
        """Run the graph normally from now on."""
        self.given_up = True
        self.tell(f"not recorded: {reason}")

    def stays(self, tensor: Tensor) -> bool:
        """Whether a recording uses the tensor at its own address: the address stays the same from call to call, or the
        tensor can't be copied with its layout."""
        if isinstance(tensor, torch.nn.Parameter) or storage_number(tensor) in self.recorder.memory:
            return True
        return may_overlap_itself(tensor)

    def result(self, made: Any, inputs: Sequence[Any], fresh: Iterable[int]) -> Result:
        """How to make a result: it is an input, or is reconstructed from the recorded result."""
        if not isinstance(made, Tensor):
            return lambda args: made
        storage = storage_number(made)
        if storage in fresh:
            return lambda args: made.detach()
        for k, given in enumerate(inputs):
            if made is given:
                return lambda args: args[k]
        for k, given in enumerate(inputs):
            if isinstance(given, Tensor) and storage_number(given) == storage:
                shape, strides, offset = (
                    tuple(made.shape),
                    made.stride(),
                    made.storage_offset() - given.storage_offset(),
                )
                return lambda args: reinterpret(args[k], shape, strides, int(offset))
        return lambda args: made  # a constant of the graph


def written_inputs(plan: KernelPlan) -> frozenset[int]:
    """Positions of inputs that kernels or operators write to."""
    written: set[str] = set()
    for step in plan.steps:
        if isinstance(step, Launch):
            written.update(step.kernel.writes)
        elif isinstance(step, ExternCall):
            written.update(step.mutates)
    return frozenset(k for k, name in enumerate(plan.inputs) if name in written)


def device_of(plan: KernelPlan) -> torch.device | None:
    """The device that all tensors of the graph are on; None if there are several, or none."""
    devices = {buffer.device for buffer in plan.buffers.values()}
    return devices.pop() if len(devices) == 1 else None
