"""On a real GPU: the kit's kernels, pointers that are not aligned, streams, and the example models against eager."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import armature
from armature.backend_api import KernelChoice
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


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_floats_of_8_bits_are_eagers(dtype: torch.dtype, all_plugins: None) -> None:
    armature.reset()

    def program(x: torch.Tensor, every: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.to(dtype).view(torch.uint8), x.bfloat16().to(dtype).view(torch.uint8), every.float(), every.half()

    wide = torch.randn(200_000, device="cuda") * 10 ** torch.linspace(-9, 7, 200_000, device="cuda")
    edges = torch.tensor([0.0, -0.0, math.inf, -math.inf, 464, 465, 480, 500, 61440, 61439, 1e30], device="cuda")
    x, every = torch.cat([wide, edges]), torch.arange(256, dtype=torch.uint8, device="cuda").view(dtype)
    found = armature.compile(program, fullgraph=True)(x, every)
    for ours, theirs in zip(found, program(x, every), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    (graph,) = session().compilations[-1].graphs
    assert graph.program.extern_count == 0


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


def check_every_way(fn: Callable[..., torch.Tensor], args: list[torch.Tensor], library: str, folder: Path) -> None:
    """Each alternative of the only choice is right, the fastest one is used, and the choice is kept."""
    expected = fn(*(a.double() for a in args))
    tolerance = {torch.float16: 2e-2, torch.bfloat16: 2e-1, torch.float32: 1e-3}[args[0].dtype]

    def found() -> KernelChoice:
        armature.reset()
        compiled = armature.compile(fn, fullgraph=True, mode="max-autotune-no-cudagraphs")
        torch.testing.assert_close(compiled(*args).double(), expected, rtol=tolerance, atol=tolerance)
        every = [choice for source in session().kernel_sources() for choice in source.choices]
        (choice,) = [c for c in every if any(t.label == library for t in c.tried)]
        return choice

    with armature.config.patch(cache_dir=folder):
        for how in ("measured", "kept"):
            choice = found()
            assert choice.how == how and choice.device == torch.cuda.get_device_name()
            times = {t.label: t.seconds for t in choice.tried if t.seconds is not None}
            assert library in times and len(times) >= 2 and choice.chosen == min(times, key=times.__getitem__)
        backend = TritonBackend(interpret=False)
        for number, label in enumerate(times):
            backend.timer = lambda name, call, label=label: float(name != label)  # type: ignore[misc]
            one_way = armature.config.patch(cache_dir=folder / str(number))
            with manager().registered(Serving(backend), "one-way"), one_way:
                assert found().chosen == label
    armature.reset()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("sizes", [(512, 768, 256), (100, 77, 50), (1, 300, 500)])
def test_every_way_to_compute_a_product(
    sizes: tuple[int, int, int], dtype: torch.dtype, all_plugins: None, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    m, n, k = sizes
    args = [torch.randn(s, device="cuda").to(dtype) for s in ((m, k), (n, k), (n,), (m, n))]
    check_every_way(gelu_of_linear, args, "library", tmp_path)


def relu_of_convolution(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, w, b, stride=2, padding=w.shape[-1] // 2).relu()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("window", [1, 3, 5])
def test_every_way_to_compute_a_convolution(window: int, dtype: torch.dtype, all_plugins: None, tmp_path: Path) -> None:
    torch.manual_seed(0)
    shapes = ((4, 48, 30, 31), (72, 48, window, window))
    x, w = (torch.randn(s, device="cuda").to(dtype).to(memory_format=torch.channels_last) for s in shapes)
    with torch.no_grad():
        check_every_way(
            relu_of_convolution, [x, w / 8, torch.randn(72, device="cuda").to(dtype)], "library, convolution", tmp_path
        )


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
