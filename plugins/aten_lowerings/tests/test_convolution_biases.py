"""Biases of convolutions on a GPU: added, and their gradients summed, in loops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import armature
from armature.pipeline.session import session
from armature.plugin_api import Pass, hookimpl
from armature.plugins import manager
from armature_aten_lowerings.gradients import compute_images_apart, sum_gradient_of_bias, sum_gradients_of_biases
from armature_aten_lowerings.passes import split_convolution_bias

aten = torch.ops.aten
EVERYTHING: Any = SimpleNamespace(lowered=lambda op: op is not aten.convolution.default)
OPTIONS = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)


class Everywhere:
    """The pass, on every device."""

    @hookimpl
    def armature_passes(self) -> list[Pass]:
        return [Pass("everywhere", "post_grad", self.run)]

    def run(self, module: fx.GraphModule, ctx: object) -> fx.GraphModule:
        for node in module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
            if node.args[-1][2]:  # type: ignore[index]
                sum_gradient_of_bias(node)
        return module


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("learns", ["all", "bias"])
def test_gradients_are_eager_s(kind: type[nn.Module], layout: torch.memory_format, learns: str) -> None:
    armature.reset()
    torch.manual_seed(0)
    model = kind(4, 8, 3, padding=1).to(memory_format=layout)  # type: ignore[call-overload]
    model.weight.requires_grad_(learns == "all")  # type: ignore[operator, union-attr]
    x = torch.randn(3, 4, 6, 6).to(memory_format=layout).requires_grad_(learns == "all")

    def gradients(run: Any) -> list[Tensor | None]:
        model.zero_grad()
        x.grad = None
        run(x).sin().sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    expected = gradients(model)
    with manager().registered(Everywhere(), "everywhere"):
        found = gradients(armature.compile(model))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    backward = session().compilations[-1].graphs[-1].aten.module.graph
    calls = backward.find_nodes(op="call_function", target=aten.convolution_backward.default)
    assert [bool(call.args[-1][2]) for call in calls] == [False] * (learns == "all")  # type: ignore[index]
    assert backward.find_nodes(op="call_function", target=aten.sum.dim_IntList)


def on_gpu(fn: Any, *shapes: tuple[int, ...]) -> fx.GraphModule:
    """The graph on tensors of a GPU without memory."""
    with FakeTensorMode():
        return make_fx(fn)(*(torch.empty(shape, device="cuda") for shape in shapes))


def test_a_result_that_is_saved_for_the_backward_pass_gets_its_bias_in_loops() -> None:
    def step(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        y = aten.convolution(x, w, b, *OPTIONS)
        return y, y.relu()

    module = on_gpu(step, (2, 4, 6, 6), (8, 4, 3, 3), (8,))
    split_convolution_bias(module, EVERYTHING)
    (call,) = module.graph.find_nodes(op="call_function", target=aten.convolution.default)
    assert call.args[2] is None and len(module.graph.find_nodes(op="call_function", target=aten.add.Tensor)) == 1


def test_a_result_that_is_only_returned_keeps_its_bias() -> None:
    module = on_gpu(lambda x, w, b: aten.convolution(x, w, b, *OPTIONS), (2, 4, 6, 6), (8, 4, 3, 3), (8,))
    split_convolution_bias(module, EVERYTHING)
    (call,) = module.graph.find_nodes(op="call_function", target=aten.convolution.default)
    assert isinstance(call.args[2], fx.Node)


def test_the_pass_is_for_gpus() -> None:
    def step(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return tuple(aten.convolution_backward(g, x, w, [8], *OPTIONS, [True, True, True]))

    module = on_gpu(step, (2, 8, 6, 6), (2, 4, 6, 6), (8, 4, 3, 3))
    sum_gradients_of_biases(module, EVERYTHING)
    module.graph.lint()
    (call,) = module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
    assert call.args[-1] == [True, True, False]
    (total,) = module.graph.find_nodes(op="call_function", target=aten.sum.dim_IntList)
    assert total.args[1] == [0, 2, 3] and total.meta["val"].shape == (8,)
    plain = make_fx(step)(torch.ones(2, 8, 6, 6), torch.ones(2, 4, 6, 6), torch.ones(8, 4, 3, 3))
    for node in plain.graph.nodes:
        node.meta["val"] = node.meta.get("val", torch.ones(1))
    sum_gradients_of_biases(plain, EVERYTHING)
    assert not plain.graph.find_nodes(op="call_function", target=aten.sum.dim_IntList)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="no oneDNN")
def test_gradients_of_an_image_by_rows_and_its_weight_are_two_calls() -> None:
    def step(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return tuple(aten.convolution_backward(g, x, w, [8], *OPTIONS, [True, True, True]))

    def masks(side: int, layout: torch.memory_format = torch.contiguous_format) -> list[list[bool]]:
        with FakeTensorMode():
            g, x = (torch.empty(2, n, side, side).to(memory_format=layout) for n in (8, 4))
            module = make_fx(step)(g, x, torch.empty(8, 4, 3, 3))
        compute_images_apart(module, EVERYTHING)
        module.graph.lint()
        calls = module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
        return [list(call.args[-1]) for call in calls]

    assert masks(64) == [[False, True, True], [True, False, False]]
    assert masks(4) == masks(64, torch.channels_last) == [[True, True, True]]
    given = [torch.randn(shape) for shape in ((2, 8, 64, 64), (2, 4, 64, 64), (8, 4, 3, 3))]
    compiled = armature.compile(step, fullgraph=True)
    torch.testing.assert_close(compiled(*given), step(*given), rtol=1e-4, atol=1e-3)
