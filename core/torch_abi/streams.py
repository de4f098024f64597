"""The current CUDA stream as a number, without making a Python object for it."""

from __future__ import annotations

from collections.abc import Callable

import torch


def raw_stream_getter() -> Callable[[int], int]:
    """A function from a device's index to the handle of its current stream. Errors: RuntimeError without CUDA."""
    # torch.cuda.current_stream(i).cuda_stream is the public way; it takes 1.5 us where this takes 0.1 us.
    getter: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if getter is None:
        raise RuntimeError(f"torch {torch.__version__} was built without CUDA")
    return getter
