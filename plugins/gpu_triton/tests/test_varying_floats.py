"""Floats that vary: kernels of a GPU take them by value, of which each call has its own. In Triton's interpreter, on a
GPU, and compiled for one that is not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import armature
from armature.codegen.data import KernelSource
from armature.config import current
from armature.graph.data import AtenGraph, GraphKind
from armature.lower.lower import lower
from armature.pipeline.session import session
from armature.pipeline.stages import new_context
from armature.plugins import manager
from armature.schedule.data import Batch, KernelPlan
from armature.schedule.schedule import schedule
from armature.torch_abi.recorder import record
from armature.torch_abi.symbols import Symbols
from armature_gpu_triton import launch, toolchain
from armature_gpu_triton.backend import TritonBackend

VALUES = (0.1, 0.2, 0.3, 0.37, 0.55)
MOST = 4  # compilations of a step: the first, two more values of the rate, and any value
ON_GPU = pytest.mark.gpu
FLOATS = (
    torch.float32, torch.bfloat16, pytest.param(torch.float64, marks=ON_GPU), pytest.param(torch.float16, marks=ON_GPU),
)  # fmt: skip
USES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "factor": lambda x, y, f: (x * f).exp(),
    "divisor": lambda x, y, f: y - x / f,
    "subtracted from": lambda x, y, f: f - x,
    "alpha": lambda x, y, f: torch.add(x, y, alpha=f),
    "value": lambda x, y, f: torch.addcmul(x, x, y, value=f),
    "bounds": lambda x, y, f: torch.clamp(x, -f, f),
    "weight": lambda x, y, f: torch.lerp(x, y, f),
    "slope": lambda x, y, f: nn.functional.leaky_relu(x, f),
    "filled": lambda x, y, f: x * torch.full((70,), f, dtype=x.dtype, device=x.device),
    "reduced": lambda x, y, f: torch.softmax(x * f + y, -1),
    "list": lambda x, y, f: torch._foreach_add([x, y], [y, x], alpha=f)[0],
    "in place": lambda x, y, f: x.mul_(1 - f * 0.5).add_(y, alpha=-f),
}


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """A device, with nothing compiled."""
    request.getfixturevalue("interpreted" if request.param == "cpu" else "fresh")
    torch.manual_seed(0)
    return str(request.param)


EVERYWHERE = pytest.mark.parametrize("place", ["cpu", pytest.param("cuda", marks=ON_GPU)], indirect=True)


def launches(place: str) -> int:
    """The number of launches in the last compilation's graphs, all on one device; ATen calls are nowhere."""
    plans = [graph.plan for graph in session().compilations[-1].graphs]
    assert plans and not [step for plan in plans for step in plan.steps if hasattr(step, "target")]
    assert all(work.device.type == place for plan in plans for work in plan.launches)
    return sum(len(plan.launches) for plan in plans)


@EVERYWHERE
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("use", USES)
def test_kernels_are_built_once_for_all_values(use: str, dtype: torch.dtype, place: str) -> None:
    fn, bound = USES[use], 4 * torch.finfo(dtype).eps
    run = armature.compile(fn)
    for value in VALUES:
        x, y = torch.randn(2, 3, 70, device=place).to(dtype)
        expected = fn(x.clone(), y.clone(), value)
        torch.testing.assert_close(run(x, y, value), expected, rtol=bound, atol=bound)
    assert len(session().compilations) == 3  # two values get code of their own
    assert launches(place) == 1


@EVERYWHERE
@pytest.mark.parametrize("use", [use for use in USES if use != "in place"])
def test_gradients(use: str, place: str) -> None:
    fn = USES[use]
    run = armature.compile(fn)
    for value in VALUES:
        x, y = torch.randn(2, 3, 70, device=place)
        grads = []
        for each in (fn, run):
            given = [one.clone().requires_grad_() for one in (x, y)]
            each(given[0].sin(), given[1].sin(), value).square().sum().backward()
            grads.append([one.grad for one in given])
        torch.testing.assert_close(grads[1], grads[0])
    assert len(session().compilations) == 3
    assert all(graph.plan.launches for graph in session().compilations[-1].graphs[:1])


@EVERYWHERE
def test_sizes_that_change_too(place: str) -> None:
    fn = USES["reduced"]
    run = armature.compile(fn, dynamic=True)
    for rows, value in zip((3, 5, 8, 13, 21), VALUES, strict=True):
        x, y = torch.randn(2, rows, 70, device=place)
        torch.testing.assert_close(run(x, y, value), fn(x, y, value))
    assert len(session().compilations) == 3 and launches(place) == 1


@EVERYWHERE
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_a_step_with_a_learning_rate_that_changes_has_kernels(kind: str, foreach: bool, place: str) -> None:
    first = [torch.randn(40, 5, device=place) for _ in range(5)]
    grads = [[torch.randn_like(p) for p in first] for _ in range(6)]
    results = []
    for compiled in (False, True):
        parameters = [p.clone().requires_grad_() for p in first]
        optimizer = getattr(torch.optim, kind)(parameters, lr=0.1, foreach=foreach)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        step = armature.compile(lambda one=optimizer: one.step()) if compiled else optimizer.step
        for given in grads:
            for p, grad in zip(parameters, given, strict=True):
                p.grad = grad.clone()
            step()
            schedule.step()
        results.append(parameters)
    torch.testing.assert_close(results[1], results[0])
    plan = session().compilations[-1].graphs[-1].plan
    assert len(session().compilations) <= MOST
    assert [work for work in plan.launches if isinstance(work, Batch) and work.device.type == place]


@pytest.mark.gpu
@pytest.mark.usefixtures("fresh")
def test_recordings_do_not_hold_a_number() -> None:
    fn = USES["factor"]
    run = armature.compile(fn, mode="reduce-overhead")
    for value in (*VALUES, *VALUES):
        x = torch.randn(3, 70, device="cuda")
        torch.testing.assert_close(run(x, x, value), fn(x, x, value))


@pytest.mark.gpu
@pytest.mark.usefixtures("fresh")
def test_a_product_that_is_measured_with_what_follows() -> None:
    def fn(x: Tensor, y: Tensor, f: float) -> Tensor:
        return torch.clamp((x * f) @ y, max=f)

    run = armature.compile(fn, mode="max-autotune")
    for value in VALUES:
        x, y = torch.randn(2, 128, 128, device="cuda").bfloat16()
        torch.testing.assert_close(run(x, y, value), fn(x, y, value), rtol=0.02, atol=0.02)
    assert len(session().compilations) == 3


def for_a_gpu(count: int) -> tuple[KernelPlan, KernelSource]:
    """The kernels for `count` tensors of a GPU, each scaled by a number and then clamped."""
    graph = fx.Graph()
    given = [graph.placeholder(f"x{k}") for k in range(count)]
    number = graph.call_method("item", (graph.placeholder("number"),))
    made = [graph.call_function(torch.mul, (x, number)) for x in given]
    graph.output(tuple(graph.call_method("clamp", (one,), {"max": number}) for one in made))
    with FakeTensorMode(shape_env=Symbols(scalar_outputs=True)):
        fakes = [torch.empty(40 + k, 70, device="cuda:0", dtype=torch.bfloat16) for k in range(count)]
        fakes.append(torch.empty((), dtype=torch.float64))
    ctx = new_context(current(), manager().tables(), 0)
    module = record(fx.GraphModule({}, graph), fakes, {})
    aten = AtenGraph("scaled", GraphKind.INFERENCE, module, tuple(fakes))
    plan = schedule(lower(aten, ctx), ctx)
    source = TritonBackend(interpret=False).generate(plan.launches, plan, ctx)
    return plan, source


@pytest.mark.parametrize("count", [1, 3])
def test_a_kernel_for_a_gpu_takes_the_number_by_value(count: int, all_plugins: None, tmp_path: Path) -> None:
    plan, source = for_a_gpu(count)
    assert len(plan.launches) == 1 and not [step for step in plan.steps if hasattr(step, "target")]
    path = tmp_path / "kernels.py"
    path.write_text(source.text)
    functions = toolchain.functions_of(source.text, path)
    (spec,) = launch.specs_of(source.meta["groups"])
    assert spec.signature.count("fp64") == 1 and launch.kinds_of(spec).count("n") == 1
    assert spec.signature.index("fp64") not in spec.aligned
    assert toolchain.compile_function(functions[spec.name], spec, 90).cubin.startswith(b"\x7fELF")
