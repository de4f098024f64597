"""A compile context that needs no pipeline: a cache of its own and a pool of two threads."""

from __future__ import annotations

from typing import cast

import pytest

from armature.config import current
from armature.context import CompileContext
from armature.run.cache import Cache
from armature.run.workers import Workers
from armature.tables import Tables


@pytest.fixture(scope="session")
def compile_context(tmp_path_factory: pytest.TempPathFactory) -> CompileContext:
    """The back end uses the cache and the pool of it, and nothing else."""
    cache = Cache(tmp_path_factory.mktemp("kernels"))
    return CompileContext(current(), cast(Tables, None), cache, Workers(2), 0)
