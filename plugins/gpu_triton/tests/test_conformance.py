"""The kit for device back ends: in Triton's interpreter on CPU tensors, and with `-m gpu` on a GPU."""

from __future__ import annotations

import pytest

from armature.codegen.backend import DeviceBackend
from armature.testing.backend_kit import BackendConformance
from armature_gpu_triton.backend import TritonBackend


@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")  # numpy computes what kernels do
class TestInterpreted(BackendConformance):
    device = "cpu"

    def make_backend(self) -> DeviceBackend:
        return TritonBackend(interpret=True, device_types=frozenset(("cpu",)))
