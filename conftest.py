"""Every test runs in strict mode: a fault inside the compiler fails the test instead of falling back to eager."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("ARMATURE_STRICT", "1")
# Test processes run side by side: one thread each, unless asked otherwise.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # after the settings, which it reads

pytest_plugins = ("pytester",)  # for tests of the conformance kits


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu") is not None:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
