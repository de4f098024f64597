"""The kit's kernels, each computed by NumPy and compared with the reference."""

from __future__ import annotations

from armature_numpy.backend import NumpyBackend

from armature.testing import BackendConformance


class TestNumpy(BackendConformance):
    device = "cpu"

    def make_backend(self) -> NumpyBackend:
        return NumpyBackend()
