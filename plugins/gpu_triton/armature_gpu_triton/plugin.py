"""The plugin's hook implementations, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from armature.backend_api import DeviceBackend, LaunchRecorder
from armature.plugin_api import BreakType, Handler, ValueType, collect, hookimpl
from armature_gpu_triton import user_kernels
from armature_gpu_triton.backend import TritonBackend
from armature_gpu_triton.cuda_graphs import CudaGraphs
from armature_gpu_triton.features import RANDOM


@hookimpl
def armature_device_backend(device_type: str) -> DeviceBackend | None:
    """The back end for "cuda"."""
    return TritonBackend() if device_type == "cuda" else None


@hookimpl
def armature_launch_recorder(device_type: str) -> LaunchRecorder | None:
    """CUDA graphs."""
    return CudaGraphs(RANDOM) if device_type == "cuda" and torch.cuda.is_available() else None


@hookimpl
def armature_value_types() -> Iterable[ValueType]:
    """Value types for the program's own kernels."""
    return user_kernels.VALUE_TYPES


@hookimpl
def armature_handlers() -> Iterable[Handler]:
    """Handlers for torch's functions on the program's own kernels."""
    return collect(user_kernels)


@hookimpl
def armature_break_types() -> Iterable[BreakType]:
    """Break types for launches that can't be in the graph."""
    return user_kernels.BREAKS
