"""Imported once, in the process from which those of the models are forked.

It imports the libraries, and compiles a module with both front ends, which imports the rest of them: seconds that each
model would take again. It starts no threads, which do not outlive a fork.
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
    """Import what is installed; a library that is not, or is broken, says so for its models."""
    modules = [module for library in LIBRARIES.values() for module in library.modules]
    for module in [*modules, "transformers.modeling_utils", "torch_geometric.nn"]:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def warm_up() -> None:
    """Compile a module for inference, which starts none of autograd's threads, and forget it."""
    backend = measure.counting([])
    ways: tuple[Any, ...] = (armature.compile, torch.compile)
    for compiled in ways:
        with torch.no_grad():
            compiled(nn.Linear(2, 2).eval(), backend=backend)(torch.ones(1, 2))
    measure.forget()


import_libraries()
warm_up()
