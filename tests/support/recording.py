"""A recorder of launches for the CPU, whose launches run the call again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

import armature
from armature.events import EventKind
from armature.pipeline.session import session
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.run.arenas import Arenas
from armature.run.replay import NotRecorded
from armature.torch_abi.memory import Layout, StorageWeakRef, storage_at, storage_number, tensor_in

OPTIONS: dict[str, Any] = {"mode": "reduce-overhead"}
MEMORY = 1 << 20


@attrs.define(eq=False)
class Taken:
    """Part of an arena's memory that a result owns."""

    start: int
    end: int
    storage: StorageWeakRef


@attrs.define(eq=False)
class Memory:
    """An arena's memory. Each result lies as near to its start as there is room. top: the end of what was ever used."""

    data: Any = attrs.field(factory=lambda: np.empty(MEMORY, np.uint8))
    taken: list[Taken] = attrs.field(factory=list)
    top: int = 0

    def free(self) -> list[tuple[int, int]]:
        """What no result owns, as pairs of start and end."""
        self.taken = sorted((one for one in self.taken if not one.storage.expired()), key=lambda one: one.start)
        edges = [0, *(edge for one in self.taken for edge in (one.start, one.end)), MEMORY]
        return list(zip(edges[::2], edges[1::2], strict=True))

    def own(self, result: Tensor) -> Tensor:
        """A tensor of the same layout in this memory, which owns its part."""
        size = result.untyped_storage().nbytes()
        start = next(start for start, end in self.free() if end - start >= size)
        storage = storage_at(self.data.ctypes.data + start, size, result.device)
        self.taken.append(Taken(start, start + -(-size // 64) * 64, StorageWeakRef(storage)))
        self.top = max(self.top, self.taken[-1].end)
        return tensor_in(storage, Layout.of(result))


@attrs.define(eq=False)
class Recorder:
    """Stands for a device. Each launch first destroys what was free in its arena when the recording was made.

    replays: how often a recording was launched. refuses: why nothing can be recorded. refused: operators that can't be.
    """

    arenas: Arenas = attrs.field(factory=Arenas)
    stream: int | None = 0
    refuses: str = ""
    refused: frozenset[str] = frozenset()
    records: int = 0
    replays: int = 0
    memories: dict[tuple[int | None, int], Memory] = attrs.field(factory=dict)

    def place(self, device: torch.device) -> int | None:
        return self.stream

    def refusal(self, operator: torch._ops.OpOverload) -> str | None:
        return "it can't be" if str(operator) in self.refused else None

    def record(
        self, device: torch.device, call: Callable[[list[Any]], tuple[Any, ...]], args: list[Any], arena: int
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        if self.refuses:
            args.clear()
            raise NotRecorded(self.refuses)
        self.records += 1
        memory = self.memories.setdefault((self.stream, arena), Memory())
        before = [arg.detach().clone() if isinstance(arg, Tensor) else arg for arg in args]
        inputs = [fixed(arg) if isinstance(arg, Tensor) else arg for arg in args]
        numbers = {storage_number(arg) for arg in args if isinstance(arg, Tensor)}
        with torch.no_grad():
            results = call(args)
            for given, old in zip(inputs, before, strict=True):
                if isinstance(given, Tensor) and not torch.equal(given, old):
                    given.copy_(old)
        own = [isinstance(one, Tensor) and storage_number(one) not in numbers for one in results]
        scratch = memory.free()
        results = tuple(memory.own(one) if mine else one for one, mine in zip(results, own, strict=True))
        made = [fixed(one) for one, mine in zip(results, own, strict=True) if mine]

        def launch() -> None:
            self.replays += 1
            old = [arg.clone() if isinstance(arg, Tensor) else arg for arg in inputs]
            read = [arg.clone() if isinstance(arg, Tensor) else arg for arg in inputs]
            with torch.no_grad():
                for start, end in scratch:
                    memory.data[start:end] = 255
                found = call([*read])
                for given, was, now in zip(inputs, old, read, strict=True):
                    if isinstance(given, Tensor) and not torch.equal(was, now):
                        given.copy_(now)
                for one, new in zip(made, (one for one, mine in zip(found, own, strict=True) if mine), strict=True):
                    one.copy_(new)

        return launch, results


def fixed(tensor: Tensor) -> Tensor:
    """The same memory, not owned: as a recording knows it."""
    storage = tensor.untyped_storage()
    return tensor_in(storage_at(storage.data_ptr(), storage.nbytes(), tensor.device), Layout.of(tensor))


@contextmanager
def recording() -> Iterator[Recorder]:
    """In this context there is such a recorder."""
    made = Recorder()

    class Plugin:
        @hookimpl
        def armature_launch_recorder(self, device_type: str) -> Recorder | None:
            return made if device_type == "cpu" else None

    with manager().registered(Plugin(), "recorder"):
        armature.reset()
        yield made
    armature.reset()


def told() -> list[str]:
    """What was said of recordings."""
    events = [event for record in session().compilations for event in record.events]
    return [event.detail for event in events if event.kind is EventKind.REPLAY]
