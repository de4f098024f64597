"""Compiled graphs whose launches are recorded once, and from then on replayed as one (if a device supports that).

A recording is made for fixed addresses. Inputs are copied to fixed places, except those that stay where they are from
call to call (parameters, tensors that the graph writes to, results of other recordings): a recording is for their
addresses. Results are in the memory of the recording's arena, which the next replay overwrites. So a recording is only
replayed when the program has released them, and those that were put where it works; until then another recording is
made, or the graph runs normally.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from sys import getrefcount
from typing import Any, Protocol

import attrs
import torch
from torch import Tensor

from armature.lower.data import ExternCall
from armature.run.arenas import Arena, Arenas, ResultMemory
from armature.schedule.data import KernelPlan, Launch
from armature.torch_abi.alloc import reinterpret
from armature.torch_abi.devices import current_index, index_of, on_device
from armature.torch_abi.memory import (
    Layout,
    StorageWeakRef,
    copy_all,
    same_addresses,
    storage_at,
    storage_number,
    tensor_in,
)  # fmt: skip
from armature.torch_abi.views import may_overlap_itself

MOST = 8
"""Recordings of one graph for one owner; calls that need another one run normally."""
MOST_IN_ALL = 128
"""Recordings of one graph in all."""

Call = Callable[[list[Any]], tuple[Any, ...]]
Arguments = list[Any] | Mapping[int, Any]
Result = Callable[[Arguments], Any]


class NotRecorded(Exception):
    """A call can't be recorded; the text says why."""


class LaunchRecorder(Protocol):
    """A device's ability to record launches and replay them as one.

    arenas: what the core knows of the memory of recordings, `Arenas()` at first. One recorder serves a process.
    """

    arenas: Arenas

    def place(self, device: torch.device) -> Hashable | None:
        """What a recording depends on besides its arguments, such as the device's current stream. None: nothing can be
        recorded now."""

    def refusal(self, operator: torch._ops.OpOverload) -> str | None:
        """Why a call of the operator can't be recorded on its device; None if it can, as far as is known before. Steps
        before it and after it are then recorded by themselves."""

    def record(
        self, device: torch.device, call: Call, args: list[Any], arena: int
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        """Record the call without executing it. It may empty the list, and takes memory from the arena of this number
        at the place; what the program then releases is free for it and for later recordings. Returns a function that
        replays its launches, and the results, which own their memory while they live. Errors: NotRecorded."""


@attrs.frozen(eq=False)
class Consumed:
    """An input whose memory the recording uses for something else once it has read it.

    uses, references: how many tensors lay in that memory, and how often Python held the input, at the recording's
    start. With more of them the program still holds the input, which a replay would write over.
    """

    position: int
    memory: ResultMemory
    uses: int
    references: int


@attrs.define(eq=False)
class FreshResult:
    """Makes a result in the memory of the recording; `template` is made when the program has released the first one."""

    memory: ResultMemory
    layout: Layout
    arenas: Arenas
    template: Tensor | None = None

    def __call__(self, args: Arguments) -> Tensor:
        """The result of a replay."""
        if self.template is None:
            self.template = tensor_in(self.memory.borrowed(), self.layout)
            self.memory.own += 1
            self.arenas.register(self.memory)
        return self.template.detach()


@attrs.frozen(eq=False)
class InputResult:
    """A result that is an input, or with a layout, lies in its memory `offset` elements further on."""

    position: int
    layout: Layout | None = None
    offset: int = 0

    def __call__(self, args: Arguments) -> Tensor:
        """The result for these inputs."""
        given: Tensor = args[self.position]
        if self.layout is None:
            return given
        return reinterpret(given, self.layout.shape, self.layout.strides, self.offset)


@attrs.frozen(eq=False)
class Recording:
    """Launches for fixed addresses.

    positions: inputs whose addresses are fixed. addresses: per input, None for others. copied: positions of the others,
    whose values are copied to `fixed_inputs`. results: how each result is made from the arguments. result_memory: the
    memory of results. in_use_before: the memory of results that were in use when the recording was made.
    """

    positions: list[int]
    addresses: list[int | None]
    copied: tuple[int, ...]
    fixed_inputs: list[Tensor]
    launch: Callable[[], None]
    results: tuple[Result, ...]
    arena: Arena
    result_memory: tuple[ResultMemory, ...]
    in_use_before: frozenset[ResultMemory]
    consumed: tuple[Consumed, ...]

    def fits(self, args: list[Any]) -> bool:
        """Whether the arguments have the recorded addresses, and a replay writes over nothing that is in use."""
        return (
            same_addresses(args, self.addresses, self.positions)
            and all(memory in self.in_use_before for memory in self.arena.in_use())
            and all(
                one.memory.uses() <= one.uses and getrefcount(args[one.position]) <= one.references
                for one in self.consumed
            )
        )

    def run(self, args: list[Any]) -> tuple[Any, ...]:
        """Replay for these arguments; the list is emptied."""
        if self.fixed_inputs:
            copy_all(self.fixed_inputs, [args[k] for k in self.copied])
        made = tuple(result(args) for result in self.results)
        args.clear()
        self.launch()
        self.arena.recent_results.extend(self.result_memory)
        return made


@attrs.define(eq=False)
class Replayed:
    """A compiled graph that is recorded, called as the graph is.

    fixed: positions of inputs for whose addresses recordings are made. sized: whether sizes are read from arguments.
    constants: storages of tensors that are part of the graph. tell: called with a text about each recording, or about
    why a call is not recorded. owner: position of an input that tells the layers apart that share the graph, -1 if
    there is none, and None before the first call. built: kinds of calls that have run, so that nothing is built or
    measured for them any more.
    """

    call: Call
    recorder: LaunchRecorder
    device: torch.device
    fixed: frozenset[int]
    sized: bool
    constants: frozenset[int]
    tell: Callable[[str], None]
    recordings: dict[Hashable, list[Recording]] = attrs.field(factory=dict)
    counts: Counter[int] = attrs.field(factory=Counter)
    owner: int | None = None
    built: set[Hashable] = attrs.field(factory=set)
    given_up: bool = False
    index: int | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.index = index_of(self.device)

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        """Replay a recording that fits, or run the graph. The first call of a kind runs it, because kernels are built
        then, and so does each owner's first, unless it is given results of recordings."""
        if self.index is not None and current_index() != self.index:
            return on_device(self.index, self, args)
        place = None if self.given_up else self.recorder.place(self.device)
        if place is None:
            return self.call(args)
        with self.recorder.arenas.lock:
            kind = (place, torch.is_inference_mode_enabled(), *self.kind(args))
            key = (self.owner_of(args), *kind)
            known = self.recordings.get(key)
            early = known is None
            if known is None:
                known = self.recordings[key] = []
            for recording in known:
                if recording.fits(args):
                    return recording.run(args)
            built = kind in self.built
            self.built.add(kind)
            if (not early or (built and self.follows(args))) and self.recordable(args):
                return self.recorded(args, place, known)
        return self.call(args)

    def kind(self, args: list[Any]) -> tuple[Hashable, ...]:
        """The key of recordings for such arguments: their numbers, and their layouts if the graph supports several."""
        numbers = tuple(arg for arg in args if not isinstance(arg, Tensor))
        if not self.sized:
            return numbers
        return (*numbers, *((arg.shape, arg.stride()) for arg in args if isinstance(arg, Tensor)))

    def owner_of(self, args: list[Any]) -> int:
        """What tells apart the layers that share the graph: the identity of their first parameter. Another object with
        that identity does no harm, because it lies elsewhere."""
        if self.owner is None:
            self.owner = next((k for k, arg in enumerate(args) if isinstance(arg, torch.nn.Parameter)), -1)
        return id(args[self.owner]) if self.owner >= 0 else 0

    def follows(self, args: list[Any]) -> bool:
        """Whether the results of a recording are among the arguments."""
        return any(isinstance(arg, Tensor) and self.recorder.arenas.result_of(arg) is not None for arg in args)

    def recordable(self, args: list[Any]) -> bool:
        """Whether another recording can be tried."""
        if self.counts.total() == MOST_IN_ALL or self.counts[self.owner_of(args)] == MOST:
            return False
        elsewhere = [k for k, arg in enumerate(args) if isinstance(arg, Tensor) and arg.device != self.device]
        if elsewhere:
            self.give_up(f"input {elsewhere[0]} is on {args[elsewhere[0]].device}, the graph on {self.device}")
        return not elsewhere

    def recorded(self, args: list[Any], place: Hashable, known: list[Recording]) -> tuple[Any, ...]:
        """Make a recording for arguments like these, and launch it for the first time. The list is emptied, so that the
        recording can use the memory of inputs that nobody else holds. If it can't be made, the graph runs normally."""
        owner = self.owner_of(args)
        self.counts[owner] += 1
        arenas = self.recorder.arenas
        tensors = [k for k, arg in enumerate(args) if isinstance(arg, Tensor)]
        given = {k: memory for k in tensors if (memory := arenas.result_of(args[k])) is not None}
        # counted while nothing here refers to the inputs, as in `Recording.fits`
        seen = [Consumed(k, memory, memory.uses(), getrefcount(args[k])) for k, memory in given.items()]
        kept = [k for k in tensors if k in given or k in self.fixed or stays(args[k])]
        addresses = [args[k].data_ptr() if k in kept else None for k in range(len(args))]
        values = {k: args[k] for k in tensors if k not in kept}
        places = {k: unset_like(value) for k, value in values.items()}
        if places:
            copy_all([*places.values()], [*values.values()])
        arena = arenas.choose(place, [*given.values()])
        before = frozenset(arena.in_use())
        inputs = [places.get(k, arg) for k, arg in enumerate(args)]
        sources = {k: Source.of(inputs[k]) for k in tensors}
        spare = [borrowed(arg) if k in given else arg for k, arg in enumerate(args)]
        args.clear()
        try:
            launch, made = self.recorder.record(self.device, self.call, inputs, arena.number)
        except NotRecorded as reason:
            self.give_up(str(reason))
            return self.run_once(spare, [*given])
        del inputs, spare
        passed = self.constants.union(source.number for source in sources.values())
        memories = {
            number: arenas.register(ResultMemory.of(one))
            for number, one in {storage_number(one): one for one in made if isinstance(one, Tensor)}.items()
            if number not in passed
        }
        results = tuple(result_of(one, sources, memories, arenas) for one in made)
        held = tuple(memories.values())
        consumed = tuple(one for one in seen if not one.memory.in_use())
        known.append(
            Recording(
                kept, addresses, tuple(places), [*places.values()], launch, results, arena, held, before, consumed
            )
        )
        last = self.counts[owner] == MOST or self.counts.total() == MOST_IN_ALL
        more = "; this was the last one, other calls run normally" if last else ""
        self.tell(f"recorded: {len(kept)} inputs stay where they are, {len(places)} are copied{more}")
        launch()
        arena.recent_results.extend(held)
        return first_results(made, results, values)

    def run_once(self, args: list[Any], lent: list[int]) -> tuple[Any, ...]:
        """Run the graph on inputs of which those at the positions `lent` do not own their memory. What is returned owns
        its memory."""
        numbers = {storage_number(args[k]) for k in lent}
        made = self.call(args)
        return tuple(one.clone() if isinstance(one, Tensor) and storage_number(one) in numbers else one for one in made)

    def give_up(self, reason: str) -> None:
        """Run the graph normally from now on."""
        self.given_up = True
        self.tell(f"not recorded: {reason}")


@attrs.frozen(eq=False)
class Source:
    """What an input is known by after the recording, which may have consumed it: results may be it, or lie in it."""

    tensor: weakref.ref[Tensor]
    storage: StorageWeakRef
    number: int
    offset: int

    @classmethod
    def of(cls, tensor: Tensor) -> Source:
        """That of an input. The number stays that of its storage: another one gets it only when this is gone."""
        number = storage_number(tensor)
        storage = StorageWeakRef(tensor.untyped_storage())
        return cls(weakref.ref(tensor), storage, number, int(tensor.storage_offset()))


def stays(tensor: Tensor) -> bool:
    """Whether a recording uses the tensor at its own address: the address stays the same from call to call, or the
    tensor can't be copied with its layout."""
    return isinstance(tensor, torch.nn.Parameter) or may_overlap_itself(tensor)


def unset_like(tensor: Tensor) -> Tensor:
    """A tensor of the same layout, with memory of its own that is not set."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def borrowed(tensor: Tensor) -> Tensor:
    """The same memory as a tensor that does not own it."""
    storage = tensor.untyped_storage()
    return tensor_in(storage_at(storage.data_ptr(), storage.nbytes(), tensor.device), Layout.of(tensor))


def result_of(made: Any, sources: Mapping[int, Source], memories: Mapping[int, ResultMemory], arenas: Arenas) -> Result:
    """How a replay makes a result: anew in the recording's memory, or from the input that it is or lies in."""
    if not isinstance(made, Tensor):
        return lambda args: made
    number = storage_number(made)
    if number in memories:
        return FreshResult(memories[number], Layout.of(made), arenas)
    for k, source in sources.items():
        if source.tensor() is made:
            return InputResult(k)
    for k, source in sources.items():
        if source.number == number:
            return InputResult(k, Layout.of(made), int(made.storage_offset()) - source.offset)
    return lambda args: made  # a constant of the graph


def first_results(made: Sequence[Any], results: Sequence[Result], values: Mapping[int, Tensor]) -> tuple[Any, ...]:
    """What the first launch returns: what was recorded, but what is in an input whose value was copied is made from the
    program's own tensor. values: those inputs by position."""
    return tuple(
        result(values) if isinstance(result, InputResult) and result.position in values else one
        for one, result in zip(made, results, strict=True)
    )


def written_inputs(plan: KernelPlan) -> frozenset[int]:
    """Positions of inputs that kernels or operators write to."""
    written: set[str] = set()
    for step in plan.steps:
        if isinstance(step, Launch):
            written.update(step.kernel.writes)
        elif isinstance(step, ExternCall):
            written.update(step.mutates)
    return frozenset(k for k, name in enumerate(plan.inputs) if name in written)
