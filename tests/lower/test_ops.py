"""The table of loop operations: a new one is a row there, and one in each back end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from armature.lower.ops import FAMILIES, OPS, REDUCTIONS
from armature.testing.kernel_cases import family_case
from armature.testing.lowering_kit import EVERYTHING

ROOT = Path(__file__).resolve().parents[2]
BACK_ENDS = ("plugins/cpu_cpp/armature_cpu_cpp", "plugins/gpu_triton/armature_gpu_triton")
STAGES = ("core/lower", "core/schedule", "core/codegen", "core/testing", *BACK_ENDS)
FILES = {path: path.read_text() for stage in STAGES for path in (ROOT / stage).rglob("*.py")}
FUNCTIONS = [name for name, info in OPS.items() if info.family in ("trigonometric", "hyperbolic", "special")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_operation_is_named_in_three_files(name: str) -> None:
    named = re.compile(rf"[\"']{name}[\"']|^{name} = |\b{name}=OpInfo\(", re.MULTILINE)
    found = {str(path.relative_to(ROOT)) for path, text in FILES.items() if named.search(text)}
    assert found == {"core/lower/ops.py", *(f"{folder}/ops.py" for folder in BACK_ENDS)}


@pytest.mark.parametrize(("family", "dtype"), [(family, dtypes[-1]) for family, dtypes in FAMILIES.items()])
def test_the_conformance_kit_tries_each_operation(family: str, dtype: torch.dtype) -> None:
    sketch = family_case(family, dtype).make(torch.device("cpu"), EVERYTHING)
    tried = {name.removeprefix("out_") for name in sketch.buffers if name.startswith("out_")}
    assert tried == {name for name, info in OPS.items() if info.family == family} != set()


@pytest.mark.parametrize("name", [name for name, info in OPS.items() if info.family])
def test_the_meaning_gives_the_dtype_that_the_row_says(name: str) -> None:
    info = OPS[name]
    for dtype in FAMILIES[info.family]:
        assert info.meaning is not None
        result = info.meaning(*[torch.ones(2, dtype=dtype)] * info.arity)
        assert result.dtype == (torch.bool if info.gives_bool else dtype)


def test_reductions_combine_by_operations() -> None:
    assert {info.combine for info in REDUCTIONS.values()} - {None} <= OPS.keys()
