"""Recording launches on a CUDA device: CUDA graphs, of which those of one stream share memory."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import torch

from armature.backend_api import NotRecorded, raw_stream_getter


@attrs.frozen(eq=False)
class Pool:
    """What recordings for one stream share, since they never run at once: memory, and the stream they are made on.

    anchor: an empty recording, as long as which the pool lives; torch ends a pool with the last of its recordings.
    """

    handle: Any
    stream: torch.cuda.Stream
    anchor: torch.cuda.CUDAGraph


@attrs.define(eq=False)
class CudaGraphs:
    """Records with `torch.cuda.CUDAGraph`."""

    memory: set[int] = attrs.field(factory=set)
    pools: dict[tuple[torch.device, int], Pool] = attrs.field(factory=dict)
    lock: threading.Lock = attrs.field(factory=threading.Lock)
    stream_of: Callable[[int], int] = attrs.field(factory=raw_stream_getter)

    def place(self, device: torch.device) -> Hashable | None:
        """The device's stream of now, if it is the device of now and the program does not record itself."""
        if device.index != torch.cuda.current_device() or torch.cuda.is_current_stream_capturing():
            return None
        return self.stream_of(device.index)

    def pool(self, device: torch.device, stream: int) -> Pool:
        """That of a stream of the device."""
        if (device, stream) not in self.pools:
            handle, own = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)
            with torch.cuda.stream(own):
                self.pools[device, stream] = Pool(handle, own, record_nothing(handle))
        return self.pools[device, stream]

    def record(
        self, device: torch.device, call: Callable[[list[Any]], tuple[Any, ...]], args: list[Any]
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        """Capture what the call launches. Errors: NotRecorded with what torch or the driver says."""
        graph = torch.cuda.CUDAGraph()
        with self.lock, no_collection():
            key = (device, self.stream_of(device.index))
            pool = self.pool(*key)
            current = torch.cuda.current_stream(device)
            pool.stream.wait_stream(current)
            with torch.cuda.stream(pool.stream):
                try:
                    graph.capture_begin(pool=pool.handle, capture_error_mode="thread_local")
                    try:
                        results = call(args)
                    finally:
                        graph.capture_end()
                except Exception as error:
                    self.pools.pop(key)  # torch counts the pool as in use, and would refuse it the next time
                    record_nothing()
                    first = error.__context__ or error
                    raise NotRecorded(str(first).strip().partition("\n")[0]) from error
            current.wait_stream(pool.stream)
        return graph.replay, results


def record_nothing(pool: Any = None) -> torch.cuda.CUDAGraph:
    """An empty recording on the stream of now, in a pool of its own if none is given.

    After a capture that failed one is made for the random number generator: torch tells it of the end only where a
    capture succeeds, and until then every draw in the process raises "Offset increment outside graph capture".
    """
    empty = torch.cuda.CUDAGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is empty
        empty.capture_begin(pool=pool, capture_error_mode="thread_local")
        empty.capture_end()
    return empty


@contextmanager
def no_collection() -> Iterator[None]:
    """Nothing is collected meanwhile: the end of a CUDA object may be something that can't be recorded."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
