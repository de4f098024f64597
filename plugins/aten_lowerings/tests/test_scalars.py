"""CPU tensors without axes in operators of another device: one copy for all of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import armature
from armature.pipeline.session import session
from armature_aten_lowerings.scalars import gather_scalars

aten = torch.ops.aten


def traced(count: int) -> fx.GraphModule:
    """A graph on tensors without memory: GPU tensors divided by what is computed of numbers on the CPU."""

    def program(xs: list[Tensor], steps: list[Tensor], other: Tensor) -> list[Tensor]:
        results = []
        for x, step in zip(xs, steps):
            results.append(x.sin() / (1 - torch.pow(0.9, step)) + x.sum() * step)
        together = torch.stack([step.sqrt() for step in steps]).unbind()
        return [*(x * number for x, number in zip(results, together)), other + 1]

    with FakeTensorMode():
        xs = [torch.empty(4, device="cuda") for _ in range(count)]
        steps = [torch.empty((), dtype=torch.float32) for _ in range(count)]
        return make_fx(program, tracing_mode="real")(xs, steps, torch.empty(3))


def test_one_copy_serves_all() -> None:
    module = traced(3)
    gather_scalars(module, None)
    module.graph.lint()
    calls = [n for n in module.graph.nodes if n.op == "call_function"]
    copies = [n for n in calls if n.target is aten._to_copy.default]
    assert len(copies) == 1 and copies[0].meta["val"].shape == (9,) and copies[0].meta["val"].device.type == "cuda"
    for node in calls:
        value = node.meta["val"]
        if isinstance(value, Tensor) and value.device.type == "cuda" and node is not copies[0]:
            assert all(given.meta["val"].device.type == "cuda" for given in node.all_input_nodes)


def test_numbers_that_vary_are_on_the_cpu_too() -> None:
    """A bias correction of a learning rate that changes."""

    def program(x: Tensor, step: Tensor, rate: Tensor) -> Tensor:
        return x.sin() * (step / (rate.item() * 0.5 + 1)).neg()

    with FakeTensorMode(shape_env=ShapeEnv()):
        numbers = torch.empty(()), torch.empty((), dtype=torch.float64)
        module = make_fx(program, tracing_mode="real")(torch.empty(4, device="cuda"), *numbers)
    gather_scalars(module, None)
    module.graph.lint()
    (product,) = module.graph.find_nodes(op="call_function", target=aten.mul.Tensor)
    assert [given.meta["val"].device.type for given in product.all_input_nodes] == ["cuda", "cuda"]


def test_a_graph_without_them_stays() -> None:
    with FakeTensorMode():
        x = torch.empty(4, device="cuda")
        module = make_fx(lambda x: x.sin() * 2)(x)
    before = [n.name for n in module.graph.nodes]
    gather_scalars(module, None)
    assert [n.name for n in module.graph.nodes] == before


@pytest.mark.gpu
def test_an_optimizers_step_calls_no_operator_for_its_numbers() -> None:
    def run(compiled: bool) -> list[Tensor]:
        torch.manual_seed(0)
        xs = [torch.randn(64, 3, device="cuda").requires_grad_() for _ in range(4)]
        optimizer = torch.optim.Adam(xs, lr=0.1, foreach=True)
        step = armature.compile(lambda: optimizer.step()) if compiled else optimizer.step
        for _ in range(3):
            for x in xs:
                x.grad = torch.randn_like(x)
            step()
        return [x.detach() for x in xs]

    armature.reset()
    torch.testing.assert_close(run(True), run(False))
    graph = session().compilations[-1].graphs[-1]
    externs = [str(s.target) for s in graph.plan.steps if hasattr(s, "target")]
    assert len(externs) == 1, externs
