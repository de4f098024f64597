"""A compile context with a cache of its own, and kernels of the kit printed or built on the spot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import armature.config
from armature.codegen.data import KernelSource
from armature.context import CompileContext
from armature.plugins import manager
from armature.run.cache import Cache
from armature.run.workers import Workers
from armature.testing.backend_kit import CASES, kernel_of, plan_of, with_own_names
from armature.testing.kernel_cases import Sketch
from armature_cpu_cpp.backend import CpuBackend
from armature_cpu_cpp.isa import AVX512


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
