"""Every test runs in strict mode: a fault inside the compiler fails the test instead of falling back to eager."""

from __future__ import annotations

import os

os.environ.setdefault("ARMATURE_STRICT", "1")
# Test processes run side by side: one thread each, unless asked otherwise.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
