"""Each thing that the trace relied on is guarded, and nothing else."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from armature.frame.guards.kinds import AliasGuard, GlobalStateGuard, IdGuard, NoAliasGuard, TensorGuard
from tests.support.tracing import trace

SCALE = 2
TABLE = {"a": 1, "b": [1, 2]}


def helper(t: torch.Tensor, by: int = 3) -> torch.Tensor:
    return t * by


class Model(nn.Module):
    shift = 1

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.drop = nn.Dropout(0.0)
        self.depth = 2
        self.options = {"on": True}
        self.sizes = (1, 2)

    def part(self, t: torch.Tensor) -> torch.Tensor:
        return t + self.shift

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        t = self.part(self.linear(t)) * self.depth + self.sizes[1]
        for layer in self.layers:
            t = layer(t)
        return self.drop(t) if self.options["on"] else t


class Config:
    width = 4

    def __init__(self) -> None:
        self.depth = 1
        self.names = ["a"]


def x() -> torch.Tensor:
    return torch.ones(2, 3)


def set_attr(name: str, value: Any) -> Callable[[Any], None]:
    return lambda obj: setattr(obj, name, value)


MODEL_CHANGES: dict[str, Callable[[Model], Any]] = {
    "constant": set_attr("depth", 3),
    "constant of another type": set_attr("depth", 2.0),
    "tuple": set_attr("sizes", (1, 3)),
    "dict item": lambda m: m.options.update(on=False),
    "training flag": lambda m: m.eval(),
    "training flag below": lambda m: m.drop.eval(),
    "submodule of another type": set_attr("linear", nn.Identity()),
    "parameter of another shape": lambda m: setattr(m.linear, "bias", nn.Parameter(torch.ones(1, 3))),
    "parameter gone": lambda m: setattr(m.linear, "bias", None),
    "frozen parameter": lambda m: m.linear.weight.requires_grad_(False),
    "longer list": lambda m: m.layers.append(nn.Linear(3, 3)),
    "hook": lambda m: m.linear.register_forward_hook(lambda mod, args, out: out + 1),
    "pre-hook": lambda m: m.layers[1].register_forward_pre_hook(lambda mod, args: None),
    "forward of the object": lambda m: setattr(m.linear, "forward", lambda t: t),
    "method of the object": lambda m: setattr(m, "part", lambda t: t),
    "class attribute hidden": set_attr("shift", 5),
    "dropout": lambda m: setattr(m.drop, "p", 0.5),
}


@pytest.mark.parametrize("change", MODEL_CHANGES)
def test_a_changed_module_is_seen(change: str) -> None:
    model = Model()
    traced = trace(Model.forward, model, x())
    assert traced.holds(Model.forward, model, x())
    MODEL_CHANGES[change](model)
    assert not traced.holds(Model.forward, model, x())


UNRELATED: dict[str, Callable[[Model], Any]] = {
    "new attribute": set_attr("note", "text"),
    "new numbers": lambda m: m.linear.weight.data.mul_(2),
    "new parameter of the same kind": lambda m: setattr(m.linear, "weight", nn.Parameter(torch.zeros(3, 3))),
    "unused item": lambda m: m.options.update(other=1),
    "same value": set_attr("depth", 2),
    "train again": lambda m: m.train(),
    "gradient": lambda m: setattr(m.linear.weight, "grad", torch.ones(3, 3)),
    "state dict": lambda m: m.load_state_dict(m.state_dict()),
}


@pytest.mark.parametrize("change", UNRELATED)
def test_what_does_not_matter_is_not_guarded(change: str) -> None:
    model = Model()
    traced = trace(Model.forward, model, x())
    UNRELATED[change](model)
    assert traced.holds(Model.forward, model, x())


def test_classes_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    traced = trace(Model.forward, model, x())
    with monkeypatch.context() as patch:
        patch.setattr(Model, "part", lambda self, t: t)
        assert not traced.holds(Model.forward, model, x())
    assert traced.holds(Model.forward, model, x())
    with monkeypatch.context() as patch:
        patch.setattr(Model, "shift", 7)
        assert not traced.holds(Model.forward, model, x())


INPUTS: dict[str, torch.Tensor] = {
    "shape": torch.ones(3, 3),
    "rank": torch.ones(2, 3, 1),
    "dtype": torch.ones(2, 3, dtype=torch.float64),
    "strides": torch.ones(3, 2).T,
    "requires_grad": torch.ones(2, 3, requires_grad=True),
    "type": nn.Parameter(torch.ones(2, 3), requires_grad=False),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str) -> None:
    def fn(t):
        return t * 2

    traced = trace(fn, x())
    assert traced.holds(fn, x())
    assert not traced.holds(fn, INPUTS[name])


def test_globals_functions_defaults_and_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = 4

    def fn(t):
        return helper(t) * SCALE + TABLE["b"][1] + len(TABLE) + inner

    traced = trace(fn, x())
    here = fn.__globals__
    for name, value in {"SCALE": 3, "TABLE": {"a": 1}, "helper": lambda t: t}.items():
        with monkeypatch.context() as patch:
            patch.setitem(here, name, value)
            assert not traced.holds(fn, x()), name
    with monkeypatch.context() as patch:
        patch.setattr(helper, "__defaults__", (5,))
        assert not traced.holds(fn, x())
    assert traced.holds(fn, x())
    inner = 5
    assert not traced.holds(fn, x())


def test_objects_and_their_contents() -> None:
    def fn(t, config):
        return t * config.depth + config.width + len(config.names)

    config = Config()
    traced = trace(fn, x(), config)
    assert traced.holds(fn, x(), Config())
    config.unused = 1
    assert traced.holds(fn, x(), config)
    config.width = 9
    assert not traced.holds(fn, x(), config)
    longer = Config()
    longer.names.append("b")
    assert not traced.holds(fn, x(), longer)


def test_container_lengths_keys_and_types() -> None:
    def fn(items, table):
        return sum(items) * len(table)

    t = x()
    traced = trace(fn, [t, t], {"a": 1})
    assert traced.holds(fn, [t, t], {"a": 2})
    assert not traced.holds(fn, [t, t, t], {"a": 1})
    assert not traced.holds(fn, (t, t), {"a": 1})
    assert traced.holds(fn, [t, t], {"b": 1})
    assert not traced.holds(fn, [t, t], {"a": 1, "b": 1})


def test_same_tensor_twice() -> None:
    def fn(a, b):
        return a + b

    t = x()
    traced = trace(fn, t, t)
    assert len(traced.frame.inputs) == 1
    assert len(traced.guards(AliasGuard)) == 1
    assert not traced.holds(fn, t, x())
    assert trace(fn, t, x()).holds(fn, t, t)  # nothing is changed: the same answer either way


def test_distinct_tensors_are_guarded_where_one_changes() -> None:
    def fn(a, b):
        a.add_(1)
        return a * b

    traced = trace(fn, x(), x())
    assert len(traced.guards(NoAliasGuard)) == 1
    t = x()
    assert not traced.holds(fn, t, t)


def test_one_guard_for_torch_and_none_for_what_is_in_it() -> None:
    def fn(t):
        return torch.relu(torch.nn.functional.gelu(F.silu(torch.sin(t))))

    traced = trace(fn, x())
    assert {g.source.expr for g in traced.guards(IdGuard)} == {"globals()['torch']", "globals()['F']"}
    assert len(traced.guards(GlobalStateGuard)) == 1
    assert len(traced.guards(TensorGuard)) == 1


def test_unused_arguments_are_not_guarded() -> None:
    def fn(t, unused, flag):
        return t * 2

    traced = trace(fn, x(), 5, [1, 2])
    assert traced.holds(fn, x(), 6, None)
    assert not any(name.startswith(("unused", "flag")) for name in traced.guarded())


def test_functions_made_anew_do_not_matter() -> None:
    def make(by):
        return lambda t: t * by

    def fn(t, function):
        return function(t)

    traced = trace(fn, x(), make(2))
    assert traced.holds(fn, x(), make(2))
    assert not traced.holds(fn, x(), make(3))
    assert not traced.holds(fn, x(), lambda t: t)


def test_guards_name_the_users_line() -> None:
    traced = trace(Model.forward, Model(), x())
    assert all(g.user.startswith("test_guards.py:") for g in traced.guards(TensorGuard))


def test_grad_mode_is_guarded() -> None:
    def fn(t):
        return t * 2 if torch.is_grad_enabled() else t

    traced = trace(fn, x())
    with torch.no_grad():
        assert not traced.holds(fn, x())
    assert traced.holds(fn, x())


def test_code_loads_shared_paths_once() -> None:
    traced = trace(Model.forward, Model(), x())
    assert isinstance(traced.frame.code, types.CodeType)
    assert list(traced.frame.code.co_names).count("_modules") == 1
