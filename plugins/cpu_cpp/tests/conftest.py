"""A compile context with a cache of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import armature.config
from armature.context import CompileContext
from armature.plugins import manager
from armature.run.cache import Cache
from armature.run.workers import Workers


@pytest.fixture(scope="class")
def compile_context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompileContext]:
    """Compiles with two threads, whatever the machine has, so that parallel kernels are covered."""
    with armature.config.patch(cpu_threads=2):
        config = armature.config.current()
        cache = Cache(tmp_path_factory.mktemp("kernels"))
        yield CompileContext(config, manager().tables(), cache, Workers(1), 0)
