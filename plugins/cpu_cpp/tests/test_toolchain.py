"""Finding and running the compiler, loading what it built."""

from __future__ import annotations

import linecache
import runpy
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import torch

import armature.config
from armature.codegen.data import KernelSource
from armature.context import CompileContext
from armature.errors import BackendError
from armature.testing.backend_kit import kernel_of, plan_of
from armature_cpu_cpp import isa, launch, toolchain
from armature_cpu_cpp.backend import CpuBackend
from armature_cpu_cpp.plugin import armature_device_backend

from .conftest import kit_case

Printed = Callable[..., KernelSource]


def test_a_compiler_that_is_not_there_names_the_fix() -> None:
    with pytest.raises(BackendError, match="no-such-compiler") as raised:
        toolchain.find("no-such-compiler")
    assert "apt install g++" in str(raised.value)


def test_no_compiler_at_all_names_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    toolchain.probe.cache_clear()
    try:
        said = CpuBackend().missing()
    finally:
        toolchain.probe.cache_clear()
    assert said is not None and "there is no C++ compiler" in said and "apt install g++" in said


def test_a_compilers_error_is_told_with_its_command(compile_context: CompileContext, printed: Printed) -> None:
    source = printed("scalar_point")
    broken = attrs.evolve(source, text=source.text + "\nthis is no C++;\n")
    with pytest.raises(BackendError, match=r"error: .*this") as raised:
        CpuBackend().build(broken, compile_context)
    assert "-std=c++17" in str(raised.value)


def test_the_command_of_an_error_can_be_run(
    compile_context: CompileContext, printed: Printed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source that it names is still there when the build is over."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = printed("scalar_point")
    broken = attrs.evolve(source, text=source.text + "\nthis is no C++;\n")
    with pytest.raises(BackendError) as raised:
        CpuBackend().build(broken, compile_context)
    command = shlex.split(str(raised.value).split("See all it says with: ")[1].splitlines()[0])
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode
    assert "this is no C++" in again.stderr


def test_a_second_build_comes_from_the_cache(compile_context: CompileContext) -> None:
    backend, sketch = CpuBackend(), kit_case("scalar_point")
    plan = plan_of([sketch])
    for _ in range(2):
        kernels = backend.build(backend.generate(plan.kernels, plan, compile_context), compile_context)
    assert compile_context.cache.hits >= 1
    assert list(kernels) == [kernel_of(sketch).name]


MODEL = """
import torch

def layer(x):
    return torch.tanh(x * 3) - 1
"""


def test_lines_that_move_need_no_new_library(tmp_path: Path) -> None:
    with armature.config.patch(cache_dir=tmp_path / "cache"):
        for lines in (0, 7):
            armature.reset()
            path = tmp_path / "model.py"
            path.write_text("\n" * lines + MODEL)
            linecache.clearcache()
            x = torch.linspace(-1, 1, 5)
            torch.testing.assert_close(armature.compile(runpy.run_path(str(path))["layer"])(x), torch.tanh(x * 3) - 1)
            assert len([*(tmp_path / "cache").rglob("*.so")]) == 1


def test_options_are_part_of_the_key(printed: Printed) -> None:
    plain = printed("scalar_point")
    assert toolchain.header_digest() in plain.flags
    assert set(toolchain.FLAGS) <= set(plain.flags)


def test_flags_from_settings_are_used(compile_context: CompileContext) -> None:
    plan = plan_of([kit_case("scalar_point")])
    with armature.config.patch(cpp_flags=("-DEXTRA=1",)):
        ctx = attrs.evolve(compile_context, config=armature.config.current())
        assert "-DEXTRA=1" in CpuBackend().generate(plan.kernels, plan, ctx).flags


def test_features_of_the_processor_choose_the_instructions() -> None:
    info = "processor : 0\nflags\t\t: fpu avx2 fma f16c bmi2 abm\n"
    assert isa.best(isa.cpu_flags(info)) is isa.AVX2
    assert isa.best(isa.cpu_flags("")) is isa.BASELINE
    assert isa.best(isa.NEEDS["avx512"]) is isa.AVX512


def test_gathers_are_used_where_no_mitigation_slows_them() -> None:
    assert isa.GATHERS in isa.with_gathers(isa.AVX512, "Not affected\n").flags
    assert isa.with_gathers(isa.AVX512, "Mitigation: Microcode\n") is isa.AVX512
    assert isa.with_gathers(isa.AVX2, "Not affected\n") is isa.AVX2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_kernels_share_the_openmp_runtime_of_torch(compile_context: CompileContext, printed: Printed) -> None:
    def runtimes() -> set[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return {line.split()[-1] for line in lines if "omp" in line.rpartition("/")[2]}

    before = runtimes()
    source = printed("large_and_contiguous")
    assert "parallel(" in source.text
    CpuBackend().build(source, compile_context)
    assert runtimes() == before


def test_views_that_do_not_start_their_storage(compile_context: CompileContext) -> None:
    sketch = kit_case("in_place")
    plan, backend = plan_of([sketch]), CpuBackend()
    kernels = backend.build(backend.generate(plan.kernels, plan, compile_context), compile_context)
    whole = torch.zeros(60)
    kernels["in_place"](whole[5:55])
    assert whole.tolist() == [0.0] * 5 + [1.0] * 50 + [0.0] * 5


def test_kernels_work_without_the_view_function(
    compile_context: CompileContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launch, "view_function", lambda: None)
    ctx = attrs.evolve(compile_context, cache=type(compile_context.cache)(tmp_path))
    plan, backend = plan_of([kit_case("in_place")]), CpuBackend()
    x = torch.nn.Parameter(torch.zeros(50), requires_grad=False)
    backend.build(backend.generate(plan.kernels, plan, ctx), ctx)["in_place"](x)
    assert x.tolist() == [1.0] * 50


def test_a_wrong_number_of_arguments_is_an_error(compile_context: CompileContext) -> None:
    plan, backend = plan_of([kit_case("in_place")]), CpuBackend()
    kernels = backend.build(backend.generate(plan.kernels, plan, compile_context), compile_context)
    with pytest.raises(TypeError, match="in_place takes 1 arguments, got 2"):
        kernels["in_place"](torch.zeros(50), torch.zeros(50))


def test_the_hook_answers_for_cpus_only() -> None:
    assert isinstance(armature_device_backend("cpu"), CpuBackend)
    assert armature_device_backend("cuda") is None
