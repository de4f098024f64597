"""The plugin's hook implementation, and nothing else."""

from __future__ import annotations

from armature.backend_api import DeviceBackend
from armature.plugin_api import hookimpl
from armature_numpy.backend import NumpyBackend


@hookimpl
def armature_device_backend(device_type: str) -> DeviceBackend | None:
    """NumPy kernels for tensors on the CPU. A vendor would check for its own device type."""
    return NumpyBackend() if device_type == "cpu" else None
