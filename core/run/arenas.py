"""The memory that recordings share, and whether one may be replayed while the program holds results of others.

Recordings of an arena take memory from it one after the other, as the calls of a program do: where one keeps something
only while it runs, a later one may put its results. Replaying the earlier one would then write over them. So one may be
replayed if all results in use were in use too when it was made, because it took none of their memory.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import Self
from weakref import WeakValueDictionary

import attrs
import torch
from torch import Tensor

from armature.torch_abi.memory import StorageWeakRef, storage_at, storage_number, uses


@attrs.define(eq=False)
class ResultMemory:
    """The memory of a recording's results.

    first: the storage that owns the memory until the program releases it, which returns it to the arena. later: what
    replays put their results in from then on, a storage that does not own the memory. number: that of the storage in
    use. own: how often it is counted as used although the program does not hold it.
    """

    first: StorageWeakRef
    address: int
    size: int
    device: torch.device
    number: int
    own: int = 1
    later: torch.UntypedStorage | None = None

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """The memory of a tensor that a recording returned."""
        storage = tensor.untyped_storage()
        number = storage_number(tensor)
        return cls(StorageWeakRef(storage), storage.data_ptr(), storage.nbytes(), tensor.device, number)

    def uses(self) -> int:
        """How many tensors of the program lie in it."""
        return max(uses(self.number) - self.own, 0)

    def in_use(self) -> bool:
        """Whether the program holds it."""
        return self.uses() > 0 if self.later is not None else not self.first.expired()

    def borrowed(self) -> torch.UntypedStorage:
        """The storage for results of replays. The program must have released the first results."""
        if self.later is None:
            self.later = storage_at(self.address, self.size, self.device)
            self.number = self.later._cdata
        return self.later


@attrs.define(eq=False)
class Arena:
    """Memory that recordings share. recent_results: those that were in use when last looked at, or were made since."""

    number: int
    recent_results: list[ResultMemory] = attrs.field(factory=list)

    def in_use(self) -> list[ResultMemory]:
        """The results that the program holds."""
        self.recent_results = [memory for memory in self.recent_results if memory.in_use()]
        return self.recent_results

    def may_grow(self) -> bool:
        """Whether another recording can take memory: that of results which do not own it looks free."""
        return all(memory.later is None for memory in self.in_use())


@attrs.define(eq=False)
class Arenas:
    """All arenas of a recorder, by the place where recordings are made. lock: held while one is made or replayed."""

    by_place: dict[Hashable, list[Arena]] = attrs.field(factory=dict)
    results: WeakValueDictionary[int, ResultMemory] = attrs.field(factory=WeakValueDictionary)
    lock: threading.RLock = attrs.field(factory=threading.RLock)

    def result_of(self, tensor: Tensor) -> ResultMemory | None:
        """The memory of a recording that a tensor lies in, if it does."""
        return self.results.get(storage_number(tensor))

    def choose(self, place: Hashable, given: Sequence[ResultMemory]) -> Arena:
        """The arena for a new recording: one that its arguments lie in, so that it can take over their memory; else one
        without results in use, because its recordings can be replayed beside those of the others."""
        arenas = self.by_place.setdefault(place, [])
        for arena in arenas:
            if any(memory in arena.recent_results for memory in given) and arena.may_grow():
                return arena
        for arena in arenas:
            if not arena.in_use():
                return arena
        arenas.append(Arena(len(arenas)))
        return arenas[-1]

    def register(self, memory: ResultMemory) -> ResultMemory:
        """Register the memory of a result, or the storage that it is in from now on."""
        self.results[memory.number] = memory
        return memory
