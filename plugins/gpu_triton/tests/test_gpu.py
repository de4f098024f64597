"""On a real GPU: the kit's kernels, pointers that are not aligned, streams, and the example models against eager."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import armature
from armature.cli.demo import demo, load_examples
from armature.codegen.backend import DeviceBackend
from armature.context import CompileContext
from armature.pipeline.session import session
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.testing.backend_kit import BackendConformance, plan_of, with_own_names
from armature.testing.differential import compare_runs, run_model
from armature.testing.kernel_cases import Case
from armature.testing.kernel_shapes import SHAPE_CASES
from armature_gpu_triton.backend import TritonBackend

pytestmark = pytest.mark.gpu
# A failed check traps the kernel and with it the process's CUDA context, as in eager: nothing can run after it.
TRAPS = "gathers out of range"


class TestOnGpu(BackendConformance):
    device = "cuda"

    def make_backend(self) -> DeviceBackend:
        return TritonBackend(interpret=False)

    @pytest.fixture(autouse=True)
    def leave_out_what_traps(self, request: pytest.FixtureRequest) -> None:
        case = getattr(request.node, "callspec", None)
        if case is not None and case.params["case"].group == TRAPS:
            pytest.skip("traps")


def built(name: str, ctx: CompileContext) -> tuple[Any, Any]:
    case: Case = next(c for c in SHAPE_CASES if c.name == name)
    backend = TritonBackend(interpret=False)
    sketch = with_own_names(case.make(torch.device("cuda"), backend.features))
    plan = plan_of([sketch])
    return sketch, backend.build(backend.generate(plan.kernels, plan, ctx), ctx)[plan.kernels[0].name]


def test_unaligned_pointers_run_another_variant(compile_context: CompileContext) -> None:
    _, launch = built("chain_of_a_matrix", compile_context)
    x, y = torch.randn(13 * 37 + 1, device="cuda")[1:], torch.randn(37, device="cuda")
    out = torch.empty(13 * 37 + 3, device="cuda")[3:]
    launch(x, y, out)
    total = x.view(13, 37) + y
    torch.testing.assert_close(out.view(13, 37), total * total.clamp(min=0))


def test_kernels_run_on_the_current_stream(compile_context: CompileContext) -> None:
    _, launch = built("chain_of_a_matrix", compile_context)
    x, y = torch.randn(13 * 37, device="cuda"), torch.randn(37, device="cuda")
    out = torch.zeros(13 * 37, device="cuda")
    launch(x, y, out)
    expected = out.clone()
    graph = torch.cuda.CUDAGraph()
    out.zero_()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):  # captures only what its own stream is given
        launch(x, y, out)
    assert not out.any()
    graph.replay()
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", sorted(load_examples()))
def test_model_matches_eager(name: str, mode: str, all_plugins: None) -> None:
    armature.reset()
    torch.manual_seed(0)
    example = load_examples()[name]()
    example.model.to("cuda").train(mode == "train")
    inputs = tuple(t.to("cuda") for t in example.inputs)
    reference = copy.deepcopy(example.model)
    compiled = armature.compile(example.model, fullgraph=True)
    loss = example.loss if mode == "train" else None
    with torch.set_grad_enabled(mode == "train"):
        expected = run_model(reference, reference, inputs, loss)
        found = run_model(example.model, compiled, inputs, loss)
    assert expected.error is None, expected.error
    assert compare_runs(expected, found) <= example.tolerance


def test_demo_runs(all_plugins: None, tmp_path: Path) -> None:
    report = tmp_path / "demo.json"
    demo(device="cuda", models="LeNet,FeedForward", modes="infer,train", budget=0.2, json_file=report)
    rows = json.loads(report.read_text())["rows"]
    assert [r["model"] for r in rows] == ["LeNet", "LeNet", "FeedForward", "FeedForward"]
    assert all(r["graphs"] >= 1 and r["kernels"] >= 1 and r["breaks"] == 0 for r in rows)


@pytest.mark.parametrize("shape", [(3, 100_000), (2, 99_991), (50_000, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_cumulative_sums_of_few_long_rows(shape: tuple[int, int], dtype: torch.dtype, all_plugins: None) -> None:
    armature.reset()
    torch.manual_seed(0)
    x = (torch.rand(shape, device="cuda") < 0.01).to(dtype)  # sums that are exact in bfloat16's float32 too
    for axis in (0, 1):
        expected = x.double().cumsum(axis)
        found = armature.compile(lambda x, axis=axis: x.cumsum(axis), fullgraph=True)(x)
        torch.testing.assert_close(found, expected.to(found.dtype))


def gelu_of_linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b)) + r


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("sizes", [(512, 768, 256), (100, 77, 50), (1, 300, 500)])
def test_every_way_to_compute_a_product(
    sizes: tuple[int, int, int], dtype: torch.dtype, all_plugins: None, tmp_path: Path
) -> None:
    """Each alternative is right, the fastest one is used, and the choice is kept."""
    torch.manual_seed(0)
    m, n, k = sizes
    args = [torch.randn(s, device="cuda").to(dtype) for s in ((m, k), (n, k), (n,), (m, n))]
    expected = gelu_of_linear(*(a.double() for a in args))
    tolerance = {torch.float16: 2e-2, torch.bfloat16: 2e-1, torch.float32: 1e-3}[dtype]
    with armature.config.patch(cache_dir=tmp_path):
        for how in ("measured", "kept"):
            armature.reset()
            compiled = armature.compile(gelu_of_linear, fullgraph=True, mode="max-autotune-no-cudagraphs")
            torch.testing.assert_close(compiled(*args).double(), expected, rtol=tolerance, atol=tolerance)
            (source,) = session().kernel_sources()
            (choice,) = source.choices
            assert choice.how == how and choice.device == torch.cuda.get_device_name()
            times = {t.label: t.seconds for t in choice.tried if t.seconds is not None}
            assert "library" in times and len(times) >= 2 and choice.chosen == min(times, key=times.__getitem__)
        backend = TritonBackend(interpret=False)
        for label in times:
            backend.timer = lambda name, call, label=label: float(name != label)  # type: ignore[misc]
            with manager().registered(Serving(backend), "one-way"), armature.config.patch(cache_dir=tmp_path / label):
                armature.reset()
                compiled = armature.compile(gelu_of_linear, fullgraph=True, mode="max-autotune-no-cudagraphs")
                torch.testing.assert_close(compiled(*args).double(), expected, rtol=tolerance, atol=tolerance)
                assert session().kernel_sources()[0].choices[0].chosen == label
    armature.reset()


class Serving:
    """A plugin that serves CUDA with a back end of its own."""

    ARMATURE_PRIORITY = 100

    def __init__(self, backend: TritonBackend) -> None:
        self.backend = backend

    @hookimpl
    def armature_device_backend(self, device_type: str) -> DeviceBackend | None:
        return self.backend if device_type == "cuda" else None


def test_the_mode_with_recorded_launches_gives_what_eager_gives(all_plugins: None, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).cuda().half()
    x = torch.randn(128, 256, device="cuda", dtype=torch.float16)
    with torch.no_grad(), armature.config.patch(cache_dir=tmp_path):
        armature.reset()
        compiled = armature.compile(model, fullgraph=True, mode="max-autotune")
        for _ in range(4):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-2, atol=1e-2)
    armature.reset()
