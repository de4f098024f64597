"""What the trace did not rely on may change: the compiled code is used again, and gives what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

SCALE = 2.0
UNUSED = 1
TABLE = {"a": 1, "b": 2}


class Plain:
    shared = 1

    def __init__(self) -> None:
        self.depth = 1
        self.other = [1]

    def method(self, t: Any) -> Any:
        return t * self.depth

    def unused(self) -> None:
        return None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.register_buffer("offset", torch.ones(3))
        self.drop = nn.Dropout(0.5)
        self.note = "a"

    def forward(self, t: Any) -> Any:
        return self.second(self.first(t)) + self.offset


def x() -> torch.Tensor:
    return torch.arange(3.0)


def helper(t: Any, by: Any = 2) -> Any:
    return t * by


INPUTS: dict[str, tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]] = {
    "other numbers": (x, lambda: x() + 1),
    "a part of another tensor": (x, lambda: torch.arange(6.0)[3:]),
    "detached": (x, lambda: x().requires_grad_().detach()),
    "changed before": (x, lambda: x().add_(1)),
    "with a gradient": (lambda: x().requires_grad_(), lambda: with_gradient()),
    "not a leaf": (lambda: x().requires_grad_(), lambda: x().requires_grad_() * 1),
    "with an attribute": (x, lambda: with_attribute()),
}


def with_gradient() -> torch.Tensor:
    t = x().requires_grad_()
    t.grad = torch.ones(3)
    return t


def with_attribute() -> torch.Tensor:
    t = x()
    t.tag = 1  # type: ignore[attr-defined]
    return t


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str, watch: Any) -> None:
    watched = watch(lambda t: t * 2 + 1)
    first, second = INPUTS[name]
    assert watched.compiles(lambda: (first(),))
    assert not watched.compiles(lambda: (second(),))


ARGUMENTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "unused number": (lambda t, n: t * 2, (1,), (2,)),
    "unused, another type": (lambda t, n: t * 2, (1,), ("text",)),
    "unused tensor": (lambda t, u: t * 2, (torch.ones(2),), (torch.ones(3, 3),)),
    "unused item": (lambda t, d: t * d["a"], ({"a": 1, "b": 2},), ({"a": 1, "b": 3},)),
    "another key": (lambda t, d: t * d["a"], ({"a": 1},), ({"a": 1, "z": 3},)),
    "keys, of which only the number counts": (lambda t, d: t * len(d), ({"a": 1},), ({"b": 1},)),
    "an equal list": (lambda t, n: t * n[0], ([1, 2],), ([1, 2],)),
    "an equal tuple": (lambda t, n: t * n[0], ((1, 2),), ((1, 2),)),
    "another object with equal attributes": (lambda t, p: t * p.depth, (Plain(),), (Plain(),)),
    "objects in lists that are only counted": (lambda t, n: t * len(n), ([Plain(), 1],), ([Plain(), 1],)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str, watch: Any) -> None:
    fn, first, second = ARGUMENTS[name]
    watched = watch(fn)
    assert watched.compiles(lambda: (x(), *first))
    assert not watched.compiles(lambda: (x(), *second))


def test_a_function_made_anew(watch: Any) -> None:
    def make(by: Any) -> Any:
        return lambda t: t * by

    watched = watch(lambda t, f: f(t))
    assert watched.compiles(lambda: (x(), make(2)))
    assert not watched.compiles(lambda: (x(), make(2)))


Change = Callable[[Any, pytest.MonkeyPatch], Any]
OBJECT: dict[str, Change] = {
    "another attribute": lambda p, patch: setattr(p, "other", [2, 3]),
    "new attribute": lambda p, patch: setattr(p, "extra", 1),
    "same value again": lambda p, patch: setattr(p, "depth", 1),
    "class attribute": lambda p, patch: patch.setattr(Plain, "shared", 9),
    "other method": lambda p, patch: patch.setattr(Plain, "unused", lambda self: 1),
    "unused global": lambda p, patch: patch.setitem(globals(), "UNUSED", 5),
    "new global": lambda p, patch: patch.setitem(globals(), "NEW", 5),
    "equal global": lambda p, patch: patch.setitem(globals(), "SCALE", 2.0),
    "unused item of a global": lambda p, patch: patch.setitem(TABLE, "b", 5),
    "default that is not used": lambda p, patch: patch.setattr(helper, "__defaults__", (7,)),
    "attribute of a function": lambda p, patch: patch.setattr(helper, "note", 1, raising=False),
}


@pytest.mark.parametrize("name", OBJECT)
def test_objects(name: str, watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Plain()
    watched = watch(lambda t, p: helper(p.method(t), 3) * SCALE * TABLE["a"])
    assert watched.compiles(lambda: (x(), held))
    OBJECT[name](held, monkeypatch)
    assert not watched.compiles(lambda: (x(), held))


def train_a_step(net: Net) -> None:
    net(torch.ones(3)).sum().backward()
    torch.optim.SGD(net.parameters(), 0.1).step()


MODULE: dict[str, Callable[[Net], Any]] = {
    "weights trained": train_a_step,
    "weights loaded": lambda net: net.load_state_dict(Net().state_dict()),
    "parameter replaced by one like it": lambda net: setattr(net.first, "weight", nn.Parameter(torch.ones(3, 3))),
    "layer replaced by one like it": lambda net: setattr(net, "first", nn.Linear(3, 3)),
    "layers shared": lambda net: setattr(net, "first", net.second),
    "buffer replaced by one like it": lambda net: setattr(net, "offset", torch.zeros(3)),
    "attribute that is not read": lambda net: setattr(net, "note", "b"),
    "module that is not called": lambda net: setattr(net.drop, "p", 0.1),
    "training flag that is not read": lambda net: net.drop.eval(),
    "new buffer": lambda net: net.register_buffer("more", torch.ones(1)),
    "gradients dropped": lambda net: net.zero_grad(),
    "hook added and removed": lambda net: net.first.register_forward_hook(lambda m, a, o: o + 1).remove(),
    "state dict read": lambda net: net.state_dict(),
    "hook for state dicts": lambda net: net.register_state_dict_post_hook(lambda *a: None),
}


@pytest.mark.parametrize("name", MODULE)
def test_modules(name: str, watch: Any) -> None:
    net = Net()
    watched = watch(lambda m, t: m(t))
    assert watched.compiles(lambda: (net, x()))
    MODULE[name](net)
    assert not watched.compiles(lambda: (net, x()))


def test_another_module_of_the_class_with_equal_attributes(watch: Any) -> None:
    watched = watch(lambda m, t: m(t))
    nets = [Net(), Net()]
    assert watched.compiles(lambda: (nets[0], x()))
    assert not watched.compiles(lambda: (nets[1], x()))


def test_state_that_was_left_as_it_was(watch: Any) -> None:
    watched = watch(lambda t: t * 2)
    assert watched.compiles(lambda: (x(),))
    with torch.no_grad():
        pass
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float32)
    assert not watched.compiles(lambda: (x(),))


def test_a_cell_that_is_not_read(watch: Any) -> None:
    seen, hidden = 2, 3

    def fn(t: Any) -> Any:
        if t is None:
            return hidden
        return t * seen

    watched = watch(fn)
    assert watched.compiles(lambda: (x(),))
    hidden = 4
    assert not watched.compiles(lambda: (x(),))
