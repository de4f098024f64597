"""Records launches on a CUDA device as CUDA graphs; those of an arena share memory."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable

import attrs
import torch

from armature.backend_api import Arenas, NotRecorded, no_collection, raw_stream_getter
from armature_gpu_triton.random_numbers import CudaRandomNumbers, Reservations

Begin = Callable[[torch.cuda.CUDAGraph], None]


def begin_in_new_pool(graph: torch.cuda.CUDAGraph) -> None:
    """Begin a recording in memory of its own."""
    graph.capture_begin(capture_error_mode="thread_local")


@attrs.frozen(eq=False)
class Pool:
    """Shared by the recordings of an arena, which never run at once: memory, and the stream on which they are made.

    begin: begins a recording in this memory. anchor: an empty recording that keeps the pool alive, because torch drops
    a pool with its last recording.
    """

    begin: Begin
    stream: torch.cuda.Stream
    anchor: torch.cuda.CUDAGraph


@attrs.define(eq=False)
class CudaGraphs:
    """Records with `torch.cuda.CUDAGraph`.

    numbers: the generators that kernels draw random numbers from. pools: by device, stream and arena. failed: the pool
    of the last recording that failed; the call that was to be recorded then runs on inputs in that memory.
    """

    numbers: CudaRandomNumbers = attrs.field(factory=CudaRandomNumbers)
    arenas: Arenas = attrs.field(factory=Arenas)
    pools: dict[tuple[torch.device, int, int], Pool] = attrs.field(factory=dict)
    failed: Pool | None = None
    lock: threading.Lock = attrs.field(factory=threading.Lock)
    stream_of: Callable[[int], int] = attrs.field(factory=raw_stream_getter)

    def place(self, device: torch.device) -> Hashable | None:
        """The current stream, if the device is the current one and the program itself is not recording."""
        if device.index != torch.cuda.current_device() or torch.cuda.is_current_stream_capturing():
            return None
        return self.stream_of(device.index)

    def refusal(self, operator: torch._ops.OpOverload) -> str | None:
        """Whether the CPU waits for what the operator computes: for the size of its result, or for its value."""
        waits = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
        return "the CPU waits for its result" if waits.intersection(operator.tags) else None

    def pool(self, device: torch.device, stream: int, arena: int) -> Pool:
        """The pool of an arena of a device's stream."""
        key = device, stream, arena
        if key not in self.pools:
            handle, own = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)

            def begin(graph: torch.cuda.CUDAGraph) -> None:
                graph.capture_begin(pool=handle, capture_error_mode="thread_local")

            with torch.cuda.stream(own):
                self.pools[key] = Pool(begin, own, record_nothing(begin))
        return self.pools[key]

    def record(
        self, device: torch.device, call: Callable[[list[object]], tuple[object, ...]], args: list[object], arena: int
    ) -> tuple[Callable[[], None], tuple[object, ...]]:
        """Capture the launches of the call. Errors: NotRecorded with the message of torch or the driver."""
        graph = torch.cuda.CUDAGraph()
        with self.lock, no_collection():
            key = (device, self.stream_of(device.index), arena)
            pool = self.pool(*key)
            current = torch.cuda.current_stream(device)
            pool.stream.wait_stream(current)
            with torch.cuda.stream(pool.stream):
                try:
                    pool.begin(graph)
                    try:
                        with self.numbers.recorded() as reserved:
                            results = call(args)
                    finally:
                        graph.capture_end()
                except Exception as error:
                    # torch still counts the pool as in use, and would refuse it for the next recording
                    self.failed = self.pools.pop(key)
                    record_nothing()
                    first = error.__context__ or error
                    raise NotRecorded(str(first).strip().partition("\n")[0]) from error
            current.wait_stream(pool.stream)
        return renewing(graph.replay, reserved) if reserved.states else graph.replay, results


def renewing(replay: Callable[[], None], reserved: Reservations) -> Callable[[], None]:
    """Wrap a replay so that each one draws new random numbers, the same that eager mode would draw."""

    def run() -> None:
        reserved.renew()
        replay()

    return run


def record_nothing(begin: Begin = begin_in_new_pool) -> torch.cuda.CUDAGraph:
    """Make an empty recording on the current stream.

    One is made after a failed capture for the random number generator: torch only tells it the end of a successful
    capture, and until then every draw in the process raises "Offset increment outside graph capture".
    """
    empty = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the recording is empty
        begin(empty)
        empty.capture_end()
    return empty
