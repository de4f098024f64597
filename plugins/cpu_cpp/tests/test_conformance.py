"""The kit's kernels, built and run."""

from __future__ import annotations

import pytest

from armature.codegen.backend import DeviceBackend
from armature.testing.backend_kit import BackendConformance
from armature_cpu_cpp import isa
from armature_cpu_cpp.backend import CpuBackend


class TestThisMachine(BackendConformance):
    """With all instructions that this machine has."""

    def make_backend(self) -> DeviceBackend:
        return CpuBackend()


@pytest.mark.slow
@pytest.mark.skipif(isa.detect().register_bytes < 32, reason="no AVX2 here")
class TestAvx2(BackendConformance):
    """With registers of 32 bytes."""

    def make_backend(self) -> DeviceBackend:
        return CpuBackend(target=isa.AVX2)


@pytest.mark.slow
class TestBaseline(BackendConformance):
    """With what every processor has: portable code only."""

    def make_backend(self) -> DeviceBackend:
        return CpuBackend(target=isa.BASELINE)
