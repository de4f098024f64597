"""The kit for device back ends: in Triton's interpreter on CPU tensors, and with `-m gpu` on a GPU."""

from __future__ import annotations

from armature.codegen.backend import DeviceBackend
from armature.testing.backend_kit import BackendConformance
from armature_gpu_triton.backend import TritonBackend


class TestInterpreted(BackendConformance):
    device = "cpu"

    def make_backend(self) -> DeviceBackend:
        return TritonBackend(interpret=True, device_types=frozenset(("cpu",)))
