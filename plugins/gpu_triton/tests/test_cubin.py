"""Real code generation without a GPU: kernels are compiled to machine code for sm_80 and sm_90."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from armature.codegen.data import KernelSource
from armature.context import CompileContext
from armature.testing.backend_kit import CASES, plan_of, with_own_names
from armature.testing.kernel_cases import Case, Skip
from armature_gpu_triton import launch, toolchain
from armature_gpu_triton.backend import TritonBackend
from armature_gpu_triton.binary import Binary

CAPABILITIES = (80, 90)
ELF = b"\x7fELF"
# One of each kind: flat, strided, halves, integers, rows, columns, positions, passes, gathers, masks, symbolic.
TYPICAL = frozenset(
    (
        "chain_of_a_matrix", "view_across_rows", "half_precision", "division_int64", "trigonometric_float64", "rows",
        "columns_wide", "positions_in_columns", "softmax_one_long_row", "layer_norm", "store_seen_by_the_next_pass",
        "embedding", "padding", "scatter_add_float32", "symbolic_softmax", "all_of_much", "symbolic_transpose", "random_numbers_in_fours", "random_numbers_alone",
        "sums_across_2_x_24_rows_of_600_bfloat16",
    )
)  # fmt: skip


def source_of(case: Case, ctx: CompileContext) -> KernelSource:
    """The generated text of one case."""
    backend = TritonBackend()
    try:
        sketch = with_own_names(case.make(torch.device("cuda"), backend.features))
    except (Skip, AssertionError, RuntimeError):  # a device that is not there: the case fills its buffers
        sketch = with_own_names(case.make(torch.device("cpu"), backend.features))
    plan = plan_of([sketch])
    return backend.generate(plan.kernels, plan, ctx)


def test_one_function_of_a_module_has_the_lines_that_it_has_there(
    compile_context: CompileContext, tmp_path: Path
) -> None:
    source = source_of(next(case for case in CASES if case.name == "softmax_one_long_row"), compile_context)
    path = tmp_path / "kernels.py"
    path.write_text(source.text)
    functions = toolchain.functions_of(source.text, path)
    names = [spec.name for spec in launch.specs_of(source.meta["groups"])]  # type: ignore[arg-type]
    assert len(names) > 1
    for name in names:
        alone = toolchain.python_function(toolchain.function_of(source.text, path, name))
        assert alone.__code__ == toolchain.python_function(functions[name]).__code__
        assert alone.__globals__.keys().isdisjoint(set(names) - {name})


def compile_all(case: Case, capability: int, ctx: CompileContext, folder: Path) -> None:
    source = source_of(case, ctx)
    path = folder / f"{case.name}.py"
    path.write_text(source.text)
    functions = toolchain.functions_of(source.text, path)
    for aligned in launch.specs_of(source.meta["groups"]):  # type: ignore[arg-type]
        for spec in (aligned, aligned.unaligned()):
            built = toolchain.compile_function(functions[spec.name], spec, capability)
            assert built.cubin.startswith(ELF) and built.name == spec.name
            assert built.block == spec.num_warps * 32 and built.shared <= 160 * 1024


def test_triton_s_own_folder_is_not_needed(
    compile_context: CompileContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be impossible to write to, and what it has is not checked."""
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(toolchain.knobs.cache, "dir", str(tmp_path / "file" / "cache"))
    case = next(c for c in CASES if c.name == "rows")
    (tmp_path / "made").mkdir()
    compile_all(case, 90, compile_context, tmp_path / "made")
    assert toolchain.knobs.cache.dir == str(tmp_path / "file" / "cache")


def rows(typical: bool) -> list[Case]:
    return [c for c in CASES if (c.name in TYPICAL) == typical]


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("case", rows(True), ids=lambda c: c.name)
def test_typical_kernels_become_machine_code(
    case: Case, capability: int, compile_context: CompileContext, tmp_path: Path
) -> None:
    compile_all(case, capability, compile_context, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("case", rows(False), ids=lambda c: c.name)
def test_every_other_kernel_becomes_machine_code(
    case: Case, capability: int, compile_context: CompileContext, tmp_path: Path
) -> None:
    try:
        compile_all(case, capability, compile_context, tmp_path)
    except Skip:
        pytest.skip("features do not cover it")


def test_every_typical_case_exists() -> None:
    assert {c.name for c in rows(True)} == TYPICAL


def test_binary_survives_a_file(tmp_path: Path) -> None:
    binary = Binary("add_0", b"\x7fELF\n{}\n\x00", 49152, 128)
    binary.write(tmp_path / "add_0.cubin")
    assert Binary.read(tmp_path / "add_0.cubin") == binary
