"""Inference with frozen weights: what depends on parameters alone is computed once, and again after they change."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn

import armature
from armature.graph import frozen
from armature.pipeline.session import session

aten = torch.ops.aten


class Scaled(nn.Module):
    """A product with a weight that is normalised in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4))
        self.register_buffer("shift", torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.weight / self.weight.norm(dim=1, keepdim=True)).t() + self.shift.cumsum(0)


def compiled(module: nn.Module) -> Callable[[Tensor], Tensor]:
    armature.reset()
    return armature.compile(module, fullgraph=True, options={"frozen": True})


def operators() -> list[object]:
    [graph] = session().compilations[-1].graphs
    return [node.target for node in graph.aten.module.graph.nodes if node.op == "call_function"]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of inputs of each preparation that ran."""
    made: list[int] = []
    before = frozen.Prepared._prepared

    def counted(self: frozen.Prepared, key: tuple[int, ...], given: list[Tensor]) -> object:
        made.append(len(given))
        return before(self, key, given)

    monkeypatch.setattr(frozen.Prepared, "_prepared", counted)
    return made


@torch.no_grad()
def test_what_depends_on_weights_alone_is_computed_once(runs: list[int]) -> None:
    module, x = Scaled(), torch.randn(3, 4)
    fn = compiled(module)
    for _ in range(3):
        torch.testing.assert_close(fn(x), module(x))
    assert runs == [2]
    assert aten.cumsum.default not in operators() and aten.div.Tensor not in operators()


CHANGES: dict[str, Callable[[Scaled], object]] = {
    "in place": lambda m: m.weight.mul_(torch.arange(1.0, 5.0)),
    "buffer": lambda m: m.shift.add_(1),
    "state": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
    "data": lambda m: setattr(m.weight, "data", m.weight.data + 1),
    "parameter": lambda m: setattr(m, "weight", nn.Parameter(m.weight + 1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@torch.no_grad()
def test_weights_that_change_are_prepared_again(change: Callable[[Scaled], object], runs: list[int]) -> None:
    module, x = Scaled(), torch.randn(3, 4)
    fn = compiled(module)
    fn(x)
    change(module)
    for _ in range(2):
        torch.testing.assert_close(fn(x), module(x))
    assert runs == [2, 2]
    assert len(session().compilations) == 1


@torch.no_grad()
def test_each_module_has_its_own_values(runs: list[int]) -> None:
    layers = nn.Sequential(*(Scaled() for _ in range(3)))
    for layer in layers:
        layer.forward = armature.compile(layer.forward, options={"frozen": True})
        layer.shift.zero_()
    x = torch.randn(3, 4)
    for _ in range(2):
        for layer in layers:
            expected = x @ (layer.weight / layer.weight.norm(dim=1, keepdim=True)).t()
            torch.testing.assert_close(layer(x), expected)
    assert runs == [2, 2, 2]


@torch.no_grad()
def test_values_go_with_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Tensor]] = []
    before = frozen._laid_out

    def noted(value: Tensor, like: Tensor) -> Tensor:
        made.append(weakref.ref(value))
        return before(value, like)

    monkeypatch.setattr(frozen, "_laid_out", noted)
    module = Scaled()
    fn = compiled(copy.deepcopy(module))
    fn(torch.randn(3, 4))
    assert made and all(ref() is not None for ref in made)
    del fn
    gc.collect()
    assert all(ref() is None for ref in made)


def test_training_prepares_nothing(runs: list[int]) -> None:
    module, x = Scaled(), torch.randn(3, 4)
    fn = compiled(module)
    fn(x).sum().backward()
    assert module.weight.grad is not None and runs == []


class Counting(nn.Module):
    """Writes to a buffer that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * self.count.sqrt().cumsum(0) * self.weight.cumsum(0)


@torch.no_grad()
def test_buffers_that_the_graph_writes_are_not_frozen(runs: list[int]) -> None:
    module, x = Counting(), torch.randn(2, 3)
    other = copy.deepcopy(module)
    fn = compiled(module)
    for _ in range(3):
        torch.testing.assert_close(fn(x), other(x))
    assert runs == [1]


class Returning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        product = self.weight @ self.weight
        return x + product.exp(), product, product[0]


@torch.no_grad()
def test_results_are_new_in_each_call() -> None:
    module, x = Returning(), torch.randn(4, 4)
    fn = compiled(module)
    expected = [value.clone() for value in module(x)]
    for _ in range(2):
        found = fn(x)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
        found[1].zero_()


def test_weights_of_inference_mode_are_not_frozen(runs: list[int]) -> None:
    with torch.inference_mode():
        module, x = Scaled(), torch.randn(3, 4)
        fn = compiled(module)
        fn(x)
        module.weight.mul_(torch.arange(1.0, 5.0))
        torch.testing.assert_close(fn(x), module(x))
    assert runs == []


@torch.no_grad()
def test_values_larger_than_what_they_are_made_of_stay_in_the_graph() -> None:
    graph = fx.Graph()
    fake = torch.empty(4096, device="meta")
    weight = graph.placeholder("weight")
    weight.meta.update(val=fake, frozen=True)
    outer = graph.call_function(aten.mul.Tensor, (weight, 2))
    outer.meta["val"] = fake
    wide = graph.call_function(aten.expand.default, (outer, [64, 4096]))
    wide.meta["val"] = fake.expand(64, 4096)
    whole = graph.call_function(aten.clone.default, (wide,), {"memory_format": torch.contiguous_format})
    whole.meta["val"] = torch.empty(64, 4096, device="meta")
    x = graph.placeholder("x")
    graph.output((graph.call_function(aten.add.Tensor, (whole, x)),))
    module = fx.GraphModule({}, graph)
    preparation = frozen.take_out(module, {})
    assert preparation is not None and [len(one.shape) for one in preparation.layouts] == [1]
