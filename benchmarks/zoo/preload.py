"""Imported once, in the process from which the models' processes are forked.

It imports the libraries, and compiles a module with both front ends, which imports the rest of them: seconds that each
model would spend again. It starts no threads, which do not survive a fork.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import torch
import torch._dynamo
from torch import nn

import armature
from benchmarks.zoo import measure
from benchmarks.zoo.libraries import LIBRARIES


def import_libraries() -> None:
    """Import installed libraries; a missing or broken one is reported for its models."""
    modules = [module for library in LIBRARIES.values() for module in library.modules]
    for module in [*modules, "transformers.modeling_utils", "torch_geometric.nn"]:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def warm_up() -> None:
    """Compile a module for inference, which does not start autograd's threads, and forget it."""
    backend = measure.counting([])
    ways: tuple[Any, ...] = (armature.compile, torch.compile)
    for compiled in ways:
        with torch.no_grad():
            compiled(nn.Linear(2, 2).eval(), backend=backend)(torch.ones(1, 2))
    measure.forget()


import_libraries()
warm_up()
