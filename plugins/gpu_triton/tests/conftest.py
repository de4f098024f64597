"""A compile context that needs no pipeline: a cache of its own and a pool of two threads."""

from __future__ import annotations

import importlib
import importlib.util
from typing import cast

import pytest

from armature.config import current
from armature.context import CompileContext
from armature.plugins import manager
from armature.plugins.tables import Tables
from armature.run.cache import Cache
from armature.run.workers import Workers


@pytest.fixture(scope="session")
def compile_context(tmp_path_factory: pytest.TempPathFactory) -> CompileContext:
    """The back end uses the cache and the pool of it, and nothing else."""
    cache = Cache(tmp_path_factory.mktemp("kernels"))
    return CompileContext(current(), cast(Tables, None), cache, Workers(2), 0)


@pytest.fixture(scope="session")
def all_plugins() -> None:
    """Every plugin of the source tree, also where nothing is installed and no entry point names them."""
    found = {p.name for p in manager().plugins}
    for name in ("builtin_rules", "torch_handlers", "aten_lowerings", "cpu_cpp", "gpu_triton"):
        module = f"armature_{name}"
        if name not in found and importlib.util.find_spec(module):
            manager().register(importlib.import_module(f"{module}.plugin"), name)
