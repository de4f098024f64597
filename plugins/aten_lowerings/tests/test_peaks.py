"""Channels last where a convolution by rows sets the peak of memory."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._C._profiler import _EventType
from torch.fx.experimental.proxy_tensor import make_fx

import armature
from armature.pipeline.session import session
from armature.plugin_api import GraphKind, fake_of
from armature_aten_lowerings.layouts import is_channels_last
from armature_aten_lowerings.peaks import peak_of, turn_gradients_at_the_peak
from armature_aten_lowerings.workspaces import WORKSPACES

aten = torch.ops.aten


class Widened(nn.Module):
    """Two convolutions, the second of an image of more pixels. Its result is read by rows, as by an instance norm."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale
        self.small, self.large = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.interpolate(self.small(x).view(1, -1, 12, 12).tanh(), scale_factor=self.scale)
        y = self.large(y.view(x.shape[0], 32, *y.shape[2:]))
        return torch.softmax(y.view(1, -1, *y.shape[2:]), -1).sum((2, 3))


def graph() -> fx.Graph:
    [found] = session().compilations[-1].graphs
    return found.aten.module.graph


def turned() -> list[bool]:
    """Whether the image of each convolution has channels last."""
    found = graph().find_nodes(op="call_function", target=aten.convolution.default)
    return [is_channels_last(n.args[0].meta["val"]) for n in found]


@pytest.mark.parametrize(("training", "expected"), [(False, [False, True]), (True, [False, False])])
def test_the_convolution_at_the_peak_reads_and_writes_channels_last(training: bool, expected: list[bool]) -> None:
    armature.reset()
    model, x = Widened(4), torch.randn(2, 32, 12, 12)
    with torch.set_grad_enabled(training):
        torch.testing.assert_close(armature.compile(model, fullgraph=True)(x), model(x), rtol=1e-4, atol=1e-5)
    assert turned() == expected


def test_it_stays_where_copies_take_longer() -> None:
    """A window of one row: few operations for each element that is copied."""
    armature.reset()
    model, x = Widened(4), torch.randn(2, 32, 12, 12)
    model.large = nn.Conv2d(32, 32, (1, 2))
    with torch.no_grad():
        torch.testing.assert_close(armature.compile(model, fullgraph=True)(x), model(x), rtol=1e-4, atol=1e-5)
    assert turned() == [False, False]


def traced(layout: torch.memory_format) -> tuple[int, fx.Node | None]:
    """The peak of a graph of one convolution, whose image a kernel makes."""
    x, weight = torch.randn(2, 20, 8, 8).to(memory_format=layout), torch.randn(20, 20, 3, 3)
    made = make_fx(lambda x, weight: torch.conv2d(x.tanh().exp(), weight, padding=1) + 1, tracing_mode="fake")
    return peak_of(made(x, weight).graph)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_convolution_of_an_image_with_channels_last_takes_copies_of_the_weight(layout: torch.memory_format) -> None:
    x = torch.randn(4, 128, 8, 8).to(memory_format=torch.channels_last)
    weight = torch.randn(128, 128, 3, 3).to(memory_format=layout)
    call = (x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        result = aten.convolution.default(*call)
    assert profile.profiler is not None
    taken, events = 0, list(profile.profiler.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        if event.tag == _EventType.Allocation:
            taken += max(event.extra_fields.alloc_size, 0)
    counted = WORKSPACES[aten.convolution.default](call, result)
    assert counted <= taken - result.nbytes <= counted + 2**15


def test_the_peak_counts_copies_of_images_by_rows() -> None:
    image, filled, weight = 4 * 2 * 20 * 64, 4 * 2 * 32 * 64, 4 * 20 * 20 * 9
    by_rows, at = traced(torch.contiguous_format)
    assert by_rows == image + 2 * filled + weight  # channels are filled up to 16 at a time
    assert at is not None and at.target is aten.convolution.default
    assert traced(torch.channels_last)[0] == 2 * image + 2 * weight  # both torch and oneDNN copy the weight


@pytest.mark.parametrize(("channels", "turns"), [((64, 32), True), ((16, 64), False)], ids=["narrower", "wider"])
def test_the_gradient_of_an_image_at_the_peak_has_channels_last(channels: tuple[int, int], turns: bool) -> None:
    """If that takes a smaller copy, of the incoming gradient, than oneDNN's of the result."""
    armature.reset()
    one, two = channels
    model = nn.Sequential(nn.Conv2d(3, one, 3, padding=1), nn.Tanh(), nn.Conv2d(one, two, 3, padding=1), nn.Tanh())
    twin, x = copy.deepcopy(model), torch.randn(2, 3, 40, 40)
    for module, call in ((model, armature.compile(model, fullgraph=True)), (twin, twin)):
        module.zero_grad()
        call(x).square().mean().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    _, backward = session().compilations[-1].graphs
    calls = backward.aten.module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
    [alone] = [call for call in calls if call.args[-1] == [True, False, False]]
    assert is_channels_last(alone.args[1].meta["val"]) is turns
    assert is_channels_last(alone.meta["val"][0]) is turns
    assert is_channels_last(alone.args[0].meta["val"]) is turns
    takes = WORKSPACES[aten.convolution_backward.default](fx.map_arg(alone.args, fake_of), alone.meta["val"])
    weight, incoming = 4 * one * two * 9, 4 * 2 * two * 1600
    assert takes == (2 * weight if turns else incoming + weight)
    [of_weight] = [n for n in calls if n.args[-1] == [False, True, True] and fake_of(n.args[1]).shape[1] == one]
    assert [is_channels_last(fake_of(n)) for n in of_weight.args[:2]] == [turns, turns]


@pytest.mark.parametrize(("size", "turns"), [(40, True), (14, False)], ids=["few", "many"])
def test_a_weight_with_many_bytes_gets_its_gradient_from_images_by_rows(size: int, turns: bool) -> None:
    """Beside the image's: oneDNN takes longer for it with channels last."""
    given = [torch.randn(2, 24, size, size), torch.randn(2, 64, size, size), torch.randn(24, 64, 3, 3)]

    def gradients(gradient: Tensor, image: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        rest: tuple[Any, ...] = ([0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        gradient = gradient.tanh()
        _, first, _ = aten.convolution_backward(gradient, image, weight, *rest, [False, True, False])
        second, _, _ = aten.convolution_backward(gradient, image, weight, *rest, [True, False, False])
        return first, second

    module = make_fx(gradients, tracing_mode="fake")(*given)
    module.meta["kind"] = GraphKind.BACKWARD
    turn_gradients_at_the_peak(module, None)
    calls = module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
    assert [is_channels_last(fake_of(n.args[1])) for n in calls if n.args[-1][1]] == [turns]
    module.recompile()
    torch.testing.assert_close(module(*given), gradients(*given), rtol=1e-3, atol=1e-3)
