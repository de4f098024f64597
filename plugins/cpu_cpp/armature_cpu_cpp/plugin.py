"""The plugin's hook implementations, and nothing else."""

from __future__ import annotations

from armature.backend_api import DeviceBackend
from armature.plugin_api import hookimpl
from armature_cpu_cpp.backend import CpuBackend


@hookimpl
def armature_device_backend(device_type: str) -> DeviceBackend | None:
    """C++ kernels for tensors on the CPU."""
    return CpuBackend() if device_type == "cpu" else None
