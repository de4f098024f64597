"""The generators of CUDA devices, as eager's dropout uses them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import torch

from armature.backend_api import Numbering, philox

BLOCK = 256  # threads of a block of eager's kernel
WIDEST = (16, 8, 4)  # elements that a thread of it may work on at once
CHANCE = 0.5
TAIL = 64  # elements compared at each end


@attrs.define(eq=False)
class Reservations:
    """The random numbers that the launches of one recording draw: the places in its memory that receive the generator's
    state before each replay, and how far each advances the generator."""

    states: list[tuple[torch.Tensor, int]] = attrs.field(factory=list)

    def reserve(self, device: torch.device, count: int) -> torch.Tensor:
        """A new place."""
        place = torch.empty(2, dtype=torch.int64, device=device)
        self.states.append((place, count))
        return place

    def renew(self) -> None:
        """Fill the places for the next replay, in the order of the recorded calls."""
        for place, count in self.states:
            place.copy_(drawn_state(place.device, count), non_blocking=True)


@attrs.define(eq=False)
class CudaRandomNumbers:
    """The default generators. How eager mode assigns random numbers to elements differs between versions of torch. The
    right one of the known ways is found by comparing results, once per device and dtype; if none fits, dropout stays an
    ATen call."""

    numberings: dict[tuple[torch.device, torch.dtype], Numbering | None] = attrs.field(factory=dict)
    lock: threading.Lock = attrs.field(factory=threading.Lock)
    threads: threading.local = attrs.field(factory=threading.local)

    @contextmanager
    def recorded(self) -> Iterator[Reservations]:
        """In this context calls of this thread are being recorded: numbers that they reserve are drawn anew before each
        replay."""
        reservations = Reservations()
        self.threads.reservations = reservations
        try:
            yield reservations
        finally:
            self.threads.reservations = None

    def numbering(self, device: torch.device, dtype: torch.dtype) -> Numbering | None:
        """The way of drawing that reproduces eager's numbers; None if none does, or if that can't be determined now."""
        if device.type != "cuda" or not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
            return None
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        with self.lock:
            if (device, dtype) not in self.numberings:
                with torch.cuda.device(device):
                    self.numberings[device, dtype] = compared(device, dtype)
            return self.numberings[device, dtype]

    def reserve(self, device: torch.device, count: int) -> torch.Tensor:
        """Return seed and offset of the device's generator, and advance it by `count`.

        Every replay of a recording has to draw other numbers. If the program itself is recording, the seed is drawn on
        the device, because a replay runs nothing else.
        """
        reservations: Reservations | None = getattr(self.threads, "reservations", None)
        if reservations is not None:
            return reservations.reserve(device, count)
        if torch.cuda.is_current_stream_capturing():
            return torch.randint(1 << 62, (2,), device=device)
        return drawn_state(device, count).to(device, non_blocking=True)


def generator_of(device: torch.device) -> torch.Generator:
    """The default generator of the device."""
    index = torch.cuda.current_device() if device.index is None else device.index
    found: torch.Generator = torch.cuda.default_generators[index]
    return found


def drawn_state(device: torch.device, count: int) -> torch.Tensor:
    """Seed and offset of the device's generator, as a CPU tensor; the generator is then advanced."""
    generator = generator_of(device)
    seed, offset = generator.initial_seed(), generator.get_offset()
    generator.set_offset(offset + count)
    return torch.tensor([signed(seed), offset], device="cpu")


def signed(seed: int) -> int:
    """The seed's 64 bits as a signed integer."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def threads_of(device: torch.device) -> int:
    """Most threads of eager's kernel: as many as the device runs at once."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count * (properties.max_threads_per_multi_processor // BLOCK) * BLOCK


def compared(device: torch.device, dtype: torch.dtype) -> Numbering | None:
    """The numbering with which the first and the last elements of a long dropout are eager's.

    The dropout is long enough for threads to take a second step. The generator's state is restored.
    """
    threads, generator = threads_of(device), generator_of(device)
    count = max(WIDEST) * (threads + TAIL)
    seed, offset = generator.initial_seed(), generator.get_offset()
    kept = torch.native_dropout(torch.ones(count, dtype=dtype, device=device), CHANCE, True)[1]
    generator.set_offset(offset)
    places = torch.tensor([*range(TAIL), *range(count - TAIL, count)], device="cpu")
    expected = kept[places.to(device)].cpu()
    state, before, most = (torch.tensor(part, device="cpu") for part in (signed(seed), offset, threads))
    for vector in WIDEST:
        numbers = philox.uniform(state, before, places, torch.tensor(vector, device="cpu"), most)
        if torch.equal(numbers < 1 - CHANCE, expected):
            return Numbering(vector, threads)
    return None
