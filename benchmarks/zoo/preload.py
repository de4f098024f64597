"""Imported once, in the process from which those of the models are forked. Starts no threads and runs no model."""

from __future__ import annotations

import contextlib
import importlib
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # many models run side by side, and threads do not outlive a fork
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch._dynamo  # noqa: F401

from armature.plugins import manager
from benchmarks.zoo import measure  # noqa: F401
from benchmarks.zoo.libraries import LIBRARIES

manager().tables()
for library in LIBRARIES.values():
    for module in library.modules:
        with contextlib.suppress(Exception):  # one that is not installed, or is broken: its models say so
            importlib.import_module(module)
with contextlib.suppress(Exception):
    importlib.import_module("transformers.modeling_utils")
with contextlib.suppress(Exception):
    importlib.import_module("torch_geometric.nn")
