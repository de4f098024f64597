"""The kit's kernels, built and run."""

from __future__ import annotations

from armature.codegen.backend import DeviceBackend
from armature.testing.backend_kit import BackendConformance
from armature_cpu_cpp.backend import CpuBackend


class TestCpu(BackendConformance):
    """On this machine's instructions."""

    def make_backend(self) -> DeviceBackend:
        return CpuBackend()
