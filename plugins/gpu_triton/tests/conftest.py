"""A compile context that needs no pipeline, with a cache of its own and a pool of two threads; and programs on a CPU
through Triton's interpreter."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import cast

import attrs
import pytest
import torch

import armature
from armature.backend_api import DeviceBackend, Features
from armature.config import current
from armature.context import CompileContext
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.plugins.tables import Tables
from armature.run.cache import Cache
from armature.run.workers import Workers
from armature_gpu_triton.backend import TritonBackend
from armature_gpu_triton.features import FEATURES

Serving = Callable[[Features], AbstractContextManager[None]]
Preferring = Callable[[str], AbstractContextManager[None]]


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


@attrs.frozen
class Interpreted:
    """A plugin that serves "cpu" through Triton's interpreter, before any other."""

    features: Features
    ARMATURE_PRIORITY = 100

    @hookimpl
    def armature_device_backend(self, device_type: str) -> DeviceBackend | None:
        if device_type != "cpu":
            return None
        return TritonBackend(True, frozenset(("cpu",)), features=self.features)


@pytest.fixture
def serving(all_plugins: None) -> Serving:
    """Compiles programs on a CPU through Triton's interpreter, with these features."""
    for needed in ("builtin_rules", "torch_handlers", "aten_lowerings"):
        pytest.importorskip(f"armature_{needed}")

    @contextmanager
    def serve(features: Features) -> Iterator[None]:
        armature.reset()
        with manager().registered(Interpreted(features), "interpreted-triton"):
            yield
        armature.reset()

    return serve


class Preference:
    """A back end for CPU tensors to which alternatives with a certain word in their name seem the fastest."""

    ARMATURE_PRIORITY = 100

    def __init__(self, word: str) -> None:
        self.word = word
        self.timed: list[str] = []

    def time(self, label: str, call: Callable[[], None]) -> float:
        self.timed.append(label)
        return 1.0 if self.word in label else 2.0

    @hookimpl
    def armature_device_backend(self, device_type: str) -> DeviceBackend | None:
        return TritonBackend(True, frozenset(("cpu",)), timer=self.time) if device_type == "cpu" else None


@pytest.fixture
def preferring(all_plugins: None, tmp_path: Path) -> Preferring:
    @contextmanager
    def serve(word: str) -> Iterator[None]:
        armature.reset()
        with manager().registered(Preference(word), "measured-triton"), armature.config.patch(cache_dir=tmp_path):
            yield
        armature.reset()

    return serve


@pytest.fixture
def interpreted(serving: Serving) -> Iterator[None]:
    """Programs on a CPU run through Triton's interpreter."""
    with serving(FEATURES):
        yield


@pytest.fixture
def fresh(all_plugins: None) -> Iterator[None]:
    """Nothing is compiled, and random numbers start from the same seed."""
    armature.reset()
    torch.manual_seed(0)
    yield
    armature.reset()
