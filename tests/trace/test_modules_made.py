"""Modules made inside the compiled function, slices of module lists, and generators that are dropped half way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import armature

LAYERS = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
SEQUENTIAL = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


class Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.inner = nn.ReLU()
        self.register_buffer("table", torch.full((3,), factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.factor + self.table


def loss(x: torch.Tensor) -> Any:
    return nn.CrossEntropyLoss(label_smoothing=0.1)(x, torch.zeros(2, dtype=torch.long)), nn.MSELoss()(x, x + 1)


def activation(x: torch.Tensor) -> Any:
    return nn.Sequential(nn.GELU(), nn.Softmax(-1))(x)


def with_parameters(x: torch.Tensor) -> Any:
    made = nn.Linear(3, 3)
    nn.init.eye_(made.weight)
    nn.init.zeros_(made.bias)
    return made(x), len(list(made.parameters()))


def own(x: torch.Tensor) -> Any:
    made = Scale(2.0)
    made.eval()
    return made(x), made.training, [name == "table" for name, _ in made.named_buffers()], len(list(made.children()))


def slices(x: torch.Tensor) -> Any:
    for layer in LAYERS[1:3]:
        x = layer(x)
    return SEQUENTIAL[:2](x), len(LAYERS[:-1])


def wraps_existing(x: torch.Tensor) -> Any:
    return nn.Sequential(LAYERS[0], LAYERS[1])(x)


def first(x: torch.Tensor) -> Any:
    def numbers() -> Iterator[int]:
        try:
            yield 1
            yield 2
        except (IndexError, KeyError):
            yield 3

    return x + next(numbers()), any(number == 1 for number in numbers())


def test_after_torch_compile_has_patched_modules() -> None:
    torch.compile(activation, backend="eager")(torch.ones(2, 3))
    assert_same(activation)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "function",
    [loss, activation, with_parameters, own, slices, wraps_existing, first],
    ids=lambda function: function.__name__,
)
def test_as_in_eager_mode(function: Callable[[torch.Tensor], Any]) -> None:
    assert_same(function)


def assert_same(function: Callable[[torch.Tensor], Any]) -> None:
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    expected = function(x)
    torch.testing.assert_close(armature.compile(function, backend="eager", fullgraph=True)(x), expected)


MADE = [
    lambda x: nn.Embedding(3, 2)(torch.tensor([0, 1])) + x,
    lambda x: nn.Linear(2, 2, bias=False)(x),
    lambda x: nn.BatchNorm1d(2, affine=False)(x),
    lambda x: nn.LayerNorm(2, elementwise_affine=False)(x),
    lambda x: nn.MultiheadAttention(2, 1, bias=False)(x, x, x),
    lambda x: nn.LSTM(2, 2)(x),
    lambda x: nn.TransformerEncoderLayer(2, 1, 2).eval()(x),
    lambda x: nn.Upsample(scale_factor=2)(x[None]),
]


@pytest.mark.parametrize("function", MADE)
def test_modules_with_none_for_an_attribute(function: Callable[[torch.Tensor], Any]) -> None:
    def seeded(fn: Callable[[torch.Tensor], Any]) -> str:
        torch.manual_seed(0)
        return str(fn(torch.linspace(-1, 1, 4).reshape(2, 2)))

    assert seeded(armature.compile(function, backend="eager", fullgraph=True)) == seeded(function)


class Symmetric(nn.Module):
    def forward(self, w):
        return w + w.T


def test_a_parametrization_registered_and_used_in_one_frame() -> None:
    def program(x):
        module = nn.Linear(2, 2)
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
        parametrize.register_parametrization(module, "weight", Symmetric())
        return module(x), module.weight, type(module).__name__

    x = torch.ones(2)
    assert str(armature.compile(program, backend="eager")(x)) == str(program(x))


def test_a_module_in_the_making_is_left_alone() -> None:
    made: list[nn.Module] = []

    def make(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        nn.Module.__init__(module)
        made.append(module)
        return x + 1

    armature.reset()
    compiled = armature.compile(make, backend="eager")
    module = nn.Linear.__new__(nn.Linear)
    torch.testing.assert_close(compiled(module, torch.ones(2)), torch.full((2,), 2.0))
    assert made == [module]
    assert module._buffers == {}


class Adopts(nn.Module):
    kind: Any = None

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.Linear(2, 2)
        self.late: Any = None


class IfThereIsNone(Adopts):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "extra"):
            self.extra = nn.Linear(2, 3, bias=False)
            nn.init.ones_(self.extra.weight)
        return self.extra(self.up(x))


class InPlaceOfNone(Adopts):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.late is None:
            self.late = nn.Sequential(nn.ReLU(), nn.Tanh())
        return self.late(self.up(x))


class EachTime(Adopts):
    def forward(self, x: torch.Tensor) -> Any:
        self.extra = nn.Linear(2, 2)
        nn.init.eye_(self.extra.weight)
        nn.init.zeros_(self.extra.bias)
        return self.extra(self.up(x)), [name for name, _ in self.named_modules()]


class InPlaceOfAnother(Adopts):
    def forward(self, x: torch.Tensor) -> Any:
        self.other, self.up = self.up, nn.Identity()
        return self.up(x), self.other(x)


class UnderAnAttribute(Adopts):
    def forward(self, x: torch.Tensor) -> Any:
        self.kind = nn.ReLU()  # the attribute of the class goes first
        self.up.inner = nn.ModuleDict({"a": nn.ReLU()})
        self.up.inner["b"] = nn.Tanh()
        return self.kind is None, self.up.inner["b"](x), list(self.up.inner)


class SetAndDeleted(Adopts):
    def forward(self, x: torch.Tensor) -> Any:
        self.gone = nn.ReLU()
        del self.gone
        self.once = 3 if not hasattr(self, "once") else None
        self.once = nn.Tanh()
        return self.once(x), hasattr(self, "gone")


def state(module: nn.Module) -> Any:
    members = {name: sorted(part.__dict__) for name, part in module.named_modules()}
    return repr(module), members, {name: held.tolist() for name, held in module.state_dict().items()}


@pytest.mark.parametrize(
    "kind", [IfThereIsNone, InPlaceOfNone, EachTime, InPlaceOfAnother, UnderAnAttribute, SetAndDeleted]
)
def test_a_module_is_kept_by_one_of_the_program(kind: type[nn.Module]) -> None:
    eager, module = kind(), kind()
    compiled = armature.compile(module, backend="eager", fullgraph=True)
    for call in range(4):
        x = torch.full((2, 2), float(call))
        assert repr(compiled(x)) == repr(eager(x))
        assert state(module) == state(eager)
        if call == 1:
            eager.eval()
            module.eval()


def test_a_module_is_not_kept_where_its_registration_is_watched() -> None:
    seen: list[str] = []
    eager, module = IfThereIsNone(), IfThereIsNone()
    compiled = armature.compile(module, backend="eager")
    handle = nn.modules.module.register_module_module_registration_hook(lambda owner, name, sub: seen.append(name))
    try:
        assert torch.equal(compiled(torch.ones(2, 2)), eager(torch.ones(2, 2)))
    finally:
        handle.remove()
    assert seen == ["extra", "extra"]
    assert state(module) == state(eager)


class Rebuilt(nn.Module):
    """Makes the layer that it uses in each call, as models do that change their kind of attention."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        return self.second(self.first(x * 2).relu()).sin()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_layers_made_and_used_are_compiled_together(backend: str, grad: bool) -> None:
    rows: list[Any] = []
    for compiled in (False, True):
        module = Rebuilt()
        torch.manual_seed(0)
        x = torch.randn(5, 3)
        with torch.set_grad_enabled(grad):
            result = (armature.compile(module, backend=backend) if compiled else module)(x)
        if grad:
            result.sum().backward()
        parameters = dict(module.named_parameters())
        rows.append((result, parameters, {name: one.grad for name, one in parameters.items()}, torch.rand(2)))
    torch.testing.assert_close(rows[1], rows[0])
    assert all(type(one) is nn.Parameter and one.is_leaf for one in rows[1][1].values())


@pytest.mark.parametrize("grad", [False, True])
def test_layers_made_do_not_separate_what_is_computed(grad: bool) -> None:
    graphs: list[int] = []

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(sum(node.op.startswith("call_") for node in module.graph.nodes))
        return module.forward

    with torch.set_grad_enabled(grad):
        armature.compile(Rebuilt(), backend=backend)(torch.randn(5, 3))
    assert len(graphs) == 1
    assert graphs[0] >= 5
