"""Channels last within a graph: fewer turns, and nothing of it to be seen from outside."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn

import armature
from armature.graph.data import Pass
from armature.pipeline.session import session
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.testing.differential import difference
from armature_aten_lowerings.layouts import is_channels_last, with_channels_last

aten = torch.ops.aten


class Everywhere:
    """Passes that choose channels last where few bytes are copied for it, on any device."""

    @hookimpl
    def armature_passes(self) -> list[Pass]:
        return [Pass("always-joint", "joint", self.run), Pass("always", "post_grad", self.run)]

    def run(self, module: fx.GraphModule, ctx: object) -> fx.GraphModule:
        return with_channels_last(module, lambda node: (node.args[0].meta["val"].nbytes + node.meta["val"].nbytes) // 2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.third = nn.Conv2d(16, 16, 3, padding=1, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu()
        x = x + self.second(x)
        return nn.functional.max_pool2d(self.third(x), 2)


ENDINGS: dict[str, Callable[[Tensor], object]] = {
    "the image": lambda y: y,
    "its mean": lambda y: y.mean((2, 3)),
    "flat": lambda y: y.flatten(1),
    "tokens": lambda y: y.flatten(2).transpose(1, 2),
    "both": lambda y: (y, y.sum(1)),
    "strides": lambda y: y.as_strided((2, 4), (y.stride(0), 3)),
    "permuted": lambda y: y.permute(0, 2, 3, 1) * 2,
    "parts": lambda y: y.chunk(2, 1),
    "joined": lambda y: torch.cat((y, y * 2), 1),
}


def graphs_of_last() -> list[fx.Graph]:
    """The graphs of the last compilation."""
    return [g.aten.module.graph for g in session().compilations[-1].graphs]


def convolutions() -> list[fx.Node]:
    return [
        n for graph in graphs_of_last() for n in graph.find_nodes(op="call_function", target=aten.convolution.default)
    ]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_results_and_gradients_are_eagers_in_eagers_layout(ending: Callable[[Tensor], object], training: bool) -> None:
    armature.reset()
    torch.manual_seed(0)
    model = Block().train(training)
    expected_x, given_x = (torch.linspace(-1, 1, 2 * 8 * 12 * 12).view(2, 8, 12, 12) for _ in range(2))

    def run(fn: Callable[[Tensor], object], x: Tensor) -> list[object]:
        with torch.set_grad_enabled(training):
            results = fn(x.requires_grad_(training))
            leaves = [results] if isinstance(results, Tensor) else list(results)  # type: ignore[call-overload]
            if not training:
                return leaves
            sum(leaf.square().mean() for leaf in leaves).backward()
            grads = [x.grad, *(p.grad for p in model.parameters())]
            model.zero_grad()
            return [*(leaf.detach() for leaf in leaves), *grads]

    buffers = {name: value.clone() for name, value in model.named_buffers()}
    expected = run(lambda x: ending(model(x)), expected_x)
    model.load_state_dict({**model.state_dict(), **buffers})
    with manager().registered(Everywhere(), "everywhere"):
        found = run(armature.compile(lambda x: ending(model(x)), fullgraph=True), given_x)
    assert difference(expected, found) < 1e-4
    if not training:
        assert all(is_channels_last(n.args[0].meta["val"]) for n in convolutions())


@pytest.mark.parametrize(("size", "turns"), [(12, 1), (24, 3)], ids=["the image alone", "the image and two weights"])
def test_one_turn_serves_a_chain(size: int, turns: int) -> None:
    armature.reset()
    model = Block().eval()
    with manager().registered(Everywhere(), "everywhere"), torch.no_grad():
        armature.compile(lambda x: model(x).mean((2, 3)), fullgraph=True)(torch.randn(2, 8, size, size))
    [graph] = session().compilations[-1].graphs
    turned = [n for n in graph.aten.module.graph.nodes if n.kwargs.get("memory_format") is not None]
    assert sorted(n.args[0].op for n in turned) == ["placeholder"] * turns


def test_a_convolution_between_operators_of_memory_stays() -> None:
    """Where each convolution would need copies before and after it, nothing is won."""
    armature.reset()
    model = nn.Conv2d(8, 8, 1).eval()

    def program(x: Tensor) -> Tensor:
        return model((x + 1).view(2, 8, 12, 12))

    with manager().registered(Everywhere(), "everywhere"), torch.no_grad():
        x = torch.randn(2, 8, 12, 12)
        torch.testing.assert_close(armature.compile(program, fullgraph=True)(x), program(x))
    assert not any(is_channels_last(n.args[0].meta["val"]) for n in convolutions())


def test_on_a_cpu_where_it_saves_more_than_copies_take() -> None:
    armature.reset()
    model, x = Block().eval(), torch.randn(2, 8, 12, 12)
    with torch.no_grad():
        found = armature.compile(model, fullgraph=True)(x)
        torch.testing.assert_close(found, model(x))
        assert all(is_channels_last(n.args[0].meta["val"]) for n in convolutions())
        armature.compile(model.second, fullgraph=True)(torch.randn(2, 16, 12, 12))
    assert not any(is_channels_last(n.args[0].meta["val"]) for n in convolutions())


class Stem(nn.Module):
    """A wide result of few channels, pooled, and a small window over another image."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 48, 3, padding=1)
        self.small = nn.Conv2d(48, 48, 3, padding=1, groups=48)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return nn.functional.max_pool2d(self.wide(x).relu(), 4), self.small(y)


def test_on_a_cpu_an_image_of_few_channels_is_turned_for_a_wide_result() -> None:
    armature.reset()
    model, given = Stem().eval(), (torch.randn(2, 3, 64, 48), torch.randn(64, 48, 16, 16))
    with torch.no_grad():
        torch.testing.assert_close(armature.compile(model, fullgraph=True)(*given), model(*given))
    assert [is_channels_last(n.args[0].meta["val"]) for n in convolutions()] == [True, False]


def up(inputs: int, outputs: int, kernel: int = 4, stride: int = 2, **options: int) -> nn.Module:
    return nn.ConvTranspose2d(inputs, outputs, kernel, stride, **{"padding": 1, **options})


TRANSPOSED: dict[str, Callable[[], nn.Module]] = {
    "strided": lambda: up(16, 24),
    "of three channels": lambda: up(16, 3),
    "from one channel": lambda: nn.Sequential(nn.Conv2d(16, 1, 1), up(1, 24)),
    "without a bias": lambda: up(16, 24, bias=False),
    "filled up": lambda: up(16, 24, 3, output_padding=1),
    "dilated": lambda: up(16, 24, 3, 1, dilation=2),
    "in groups": lambda: up(16, 24, groups=2),
    "each channel alone": lambda: up(16, 16, groups=16),
    "side by side": lambda: up(16, 24, 2, padding=0),
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("layer", TRANSPOSED.values(), ids=TRANSPOSED)
def test_transposed_convolutions_on_a_cpu_take_channels_last(layer: Callable[[], nn.Module], frozen: bool) -> None:
    armature.reset()
    torch.manual_seed(0)
    layers = (up(16, 16), nn.BatchNorm2d(16), nn.ReLU(), layer(), nn.Tanh(), nn.AvgPool2d(2))
    model = nn.Sequential(*layers).eval()
    x = torch.randn(2, 16, 12, 12)
    with torch.no_grad():
        expected, found = model(x), armature.compile(model, fullgraph=True, options={"frozen": frozen})(x)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
    calls = [n for n in convolutions() if n.args[6]]
    assert len(calls) == 2
    assert all(is_channels_last(given.meta["val"]) for n in calls for given in (n.args[0], n))
    assert all(is_channels_last(n.args[1].meta["val"]) for n in calls)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: up(32, 32, 3, dilation=2),
        lambda: nn.Sequential(up(32, 1), up(1, 1)),
        lambda: up(64, 256),
        lambda: up(72, 8),
    ],
    ids=["dilated with a stride", "of one channel", "a large weight", "many channels"],
)
def test_transposed_convolutions_that_win_nothing_by_it_stay_row_major(layer: Callable[[], nn.Module]) -> None:
    armature.reset()
    model = nn.Sequential(nn.Tanh(), layer(), nn.Tanh()).eval()
    [inputs] = {p.shape[0] for p in model.parameters() if p.dim() == 4 and p.shape[0] > 1}
    x = torch.randn(2, inputs, 4, 4)
    with torch.no_grad():
        expected, found = model(x), armature.compile(model, fullgraph=True)(x)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
    assert not any(n.kwargs.get("memory_format") for g in graphs_of_last() for n in g.nodes)


def test_transposed_convolutions_in_training_stay_row_major() -> None:
    armature.reset()
    model = nn.Sequential(up(16, 16), nn.BatchNorm2d(16), nn.ReLU(), up(16, 8))
    armature.compile(model, fullgraph=True)(torch.randn(2, 16, 12, 12)).mean().backward()
    assert len(convolutions()) == 2
    assert not any(is_channels_last(n.args[0].meta["val"]) for n in convolutions())


def test_training_on_a_cpu_takes_channels_last_where_blocks_of_channels_would_be_filled_up() -> None:
    armature.reset()
    model, x = nn.Sequential(nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 24, 3)), torch.randn(2, 8, 32, 32)
    model(x).square().mean().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    model.zero_grad(set_to_none=True)
    result = armature.compile(model, fullgraph=True)(x)
    assert result.is_contiguous()
    result.square().mean().backward()
    assert len(convolutions()) == 2
    assert all(is_channels_last(n.args[0].meta["val"]) for n in convolutions())
    found = [parameter.grad for parameter in model.parameters()]
    torch.testing.assert_close(found, expected)
    assert [n.stride() for n in found if n is not None] == [n.stride() for n in expected if n is not None]


def test_training_on_a_cpu_takes_channels_last_where_batch_norm_reads_what_convolutions_make() -> None:
    armature.reset()
    layers = (nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.BatchNorm2d(32))
    model, x = nn.Sequential(*layers), torch.randn(2, 16, 32, 32)
    other = copy.deepcopy(model)
    expected, found = model(x), armature.compile(other, fullgraph=True)(x)
    torch.testing.assert_close(found, expected)
    assert found.is_contiguous()
    for result in (expected, found):
        result.square().sin().mean().backward()
    assert len(convolutions()) == 2
    assert all(is_channels_last(n.args[0].meta["val"]) for n in convolutions())
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(two.grad, one.grad)
        assert one.grad is not None and two.grad is not None and one.grad.stride() == two.grad.stride()


def test_training_on_a_cpu_stays_row_major_where_most_blocks_are_full() -> None:
    armature.reset()
    armature.compile(Block(), fullgraph=True)(torch.randn(2, 8, 12, 12)).mean().backward()
    assert len(convolutions()) == 3
    assert not any(is_channels_last(n.args[0].meta["val"]) for n in convolutions())
