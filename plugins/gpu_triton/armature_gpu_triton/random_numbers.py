"""The generators of CUDA devices, as eager's dropout uses them."""

from __future__ import annotations

import threading

import attrs
import torch

from armature.backend_api import Numbering, philox

BLOCK = 256  # threads of a block of eager's kernel
WIDEST = (16, 8, 4)  # elements that a thread of it may work on at once
CHANCE = 0.5
TAIL = 64  # elements compared at either end


@attrs.define(eq=False)
class CudaRandomNumbers:
    """The default generators. How eager numbers what it draws is found by comparison, once per device and dtype: it
    differs between versions of torch, and if none of the known ways fits, dropout stays eager's."""

    found: dict[tuple[torch.device, torch.dtype], Numbering | None] = attrs.field(factory=dict)
    lock: threading.Lock = attrs.field(factory=threading.Lock)

    def numbering(self, device: torch.device, dtype: torch.dtype) -> Numbering | None:
        """The way that gives what eager draws; None if none does, or if it can't be found out now."""
        if device.type != "cuda" or not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
            return None
        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        with self.lock:
            if (device, dtype) not in self.found:
                with torch.cuda.device(device):
                    self.found[device, dtype] = compared(device, dtype)
            return self.found[device, dtype]

    def reserve(self, device: torch.device, count: int) -> torch.Tensor:
        """Seed and offset of the device's generator, which moves on by `count`.

        What a recording draws has to differ in each replay: there, the seed is drawn on the device.
        """
        if torch.cuda.is_current_stream_capturing():
            return torch.randint(1 << 62, (2,), device=device)
        generator = generator_of(device)
        seed, offset = generator.initial_seed(), generator.get_offset()
        generator.set_offset(offset + count)
        state = torch.tensor([signed(seed), offset], device="cpu")
        return state.to(device, non_blocking=True)


def generator_of(device: torch.device) -> torch.Generator:
    """The default generator of the device."""
    index = torch.cuda.current_device() if device.index is None else device.index
    found: torch.Generator = torch.cuda.default_generators[index]
    return found


def signed(seed: int) -> int:
    """The seed's 64 bits as a signed integer."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def threads_of(device: torch.device) -> int:
    """Most threads of eager's kernel: as many as the device runs at once."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count * (properties.max_threads_per_multi_processor // BLOCK) * BLOCK


def compared(device: torch.device, dtype: torch.dtype) -> Numbering | None:
    """The numbering with which the first and the last elements of a long dropout are eager's.

    It is long enough for a thread to come to a second step. The generator is left as it was.
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
