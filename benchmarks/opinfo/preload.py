"""Imported once, in the process from which the operators' processes are forked. Starts no threads and runs nothing."""

from __future__ import annotations

import importlib
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads do not survive a fork

import armature.pipeline.compiler  # noqa: F401
from armature.plugins import manager
from benchmarks.opinfo import samples  # noqa: F401

manager().tables()
for name in ("aot_autograd", "partitioners", "config"):  # takes seconds, and every graph with gradients needs it
    importlib.import_module(f"torch._functorch.{name}")
