"""A compile context with a cache of its own, and kernels of the kit printed or built on the spot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import attrs
import pytest
import torch

import armature
import armature.config
from armature.codegen.backend import DeviceBackend
from armature.codegen.data import KernelSource
from armature.context import CompileContext
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.run.cache import Cache
from armature.run.workers import Workers
from armature.testing.backend_kit import CASES, kernel_of, plan_of, with_own_names
from armature.testing.kernel_cases import Sketch
from armature_cpu_cpp.backend import CpuBackend
from armature_cpu_cpp.isa import AVX512, Isa, detect


@pytest.fixture(scope="class")
def compile_context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompileContext]:
    """Compiles for two threads, whatever the machine has, so that parallel kernels are covered."""
    with armature.config.patch(cpu_threads=2):
        config = armature.config.current()
        cache = Cache(tmp_path_factory.mktemp("kernels"))
        yield CompileContext(config, manager().tables(), cache, Workers(1), 0)


def kit_case(name: str) -> Sketch:
    """A case of the kit by name."""
    found = next(case for case in CASES if case.name == name)
    return with_own_names(found.make(torch.device("cpu"), CpuBackend().features))


@pytest.fixture
def printed(compile_context: CompileContext) -> Callable[..., KernelSource]:
    """Prints cases, given by name or as sketches, for AVX-512 wherever the test runs."""

    def generate(*cases: str | Sketch) -> KernelSource:
        sketches = [kit_case(c) if isinstance(c, str) else c for c in cases]
        plan = plan_of(sketches)
        return CpuBackend(target=AVX512).generate([kernel_of(s) for s in sketches], plan, compile_context)

    return generate


@attrs.define
class Bench:
    """The back end with times that are given: the first way whose label has the word in it is the fastest."""

    target: Isa
    word: str
    timed: list[str] = attrs.field(factory=list)
    ARMATURE_PRIORITY = 100

    def time(self, label: str, call: Callable[[], None]) -> float:
        call()
        self.timed.append(label)
        return 0.5 if self.word in label else 1.0

    @hookimpl
    def armature_device_backend(self, device_type: str) -> DeviceBackend | None:
        return CpuBackend(target=self.target, timer=self.time) if device_type == "cpu" else None


@pytest.fixture
def preferring(tmp_path: Path) -> Callable[..., AbstractContextManager[Bench]]:
    """A context in which products are computed in the way whose label has a word in it."""

    @contextmanager
    def prefer(word: str, target: Isa | None = None) -> Iterator[Bench]:
        made = Bench(target or detect(), word)
        armature.reset()
        with manager().registered(made, "bench"), armature.config.patch(cache_dir=tmp_path / word):
            yield made
        armature.reset()

    return prefer
