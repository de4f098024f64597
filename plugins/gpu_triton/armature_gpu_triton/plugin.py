"""The plugin's hook implementations, and nothing else."""

from __future__ import annotations

from armature.plugin_api import DeviceBackend, hookimpl
from armature_gpu_triton.backend import TritonBackend


@hookimpl
def armature_device_backend(device_type: str) -> DeviceBackend | None:
    """The back end for "cuda"."""
    return TritonBackend() if device_type == "cuda" else None
