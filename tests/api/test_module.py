"""A compiled module behaves as the original: state, attributes, modes, hooks, copies."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn

import armature
from armature.pipeline.session import session


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.drop = nn.Dropout(0.5)
        self.calls = 0

    def forward(self, x: Any) -> Any:
        return self.drop(torch.relu(self.linear(x)))

    def greet(self) -> str:
        return "hello"


@pytest.fixture
def pair() -> tuple[Net, Any]:
    torch.manual_seed(0)
    net = Net()
    return net, armature.compile(net, backend="eager")


X = torch.randn(2, 4)


def test_same_result_state_and_attributes(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    compiled.eval()
    assert torch.equal(compiled(X), net(X))
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert [name for name, _ in compiled.named_parameters()] == ["linear.weight", "linear.bias"]
    assert compiled.linear is net.linear and compiled.greet() == "hello"
    compiled.calls = 5
    assert net.calls == 5
    del compiled.calls
    assert not hasattr(net, "calls")
    assert isinstance(compiled, nn.Module) and "Linear" in repr(compiled)


def test_mode_moves_and_loading_are_shared(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    assert compiled.eval() is compiled and not net.training
    assert compiled.train() is compiled and net.linear.training
    assert compiled.to(torch.float64) is compiled and net.linear.weight.dtype is torch.float64
    state = {name: torch.zeros_like(value) for name, value in net.state_dict().items()}
    compiled.load_state_dict(state)
    assert not net.linear.weight.any()


def test_train_and_eval_are_compiled_apart(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    compiled.eval()
    compiled(X)
    compiled.train()
    compiled(X)
    assert "training" in "".join(session().compilations[-1].recompiled_for)
    compiled.eval()
    assert torch.equal(compiled(X), net(X))
    assert len(session().compilations) == 2


def test_as_part_of_a_larger_module(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    whole = nn.Sequential(compiled, nn.Linear(3, 2)).eval()
    assert list(whole.state_dict()) == ["0.linear.weight", "0.linear.bias", "1.weight", "1.bias"]
    assert len(list(whole.parameters())) == 4 and not net.training
    assert whole(X).shape == (2, 2)
    whole.to(torch.float64)
    assert net.linear.weight.dtype is torch.float64


def test_forward_hooks_run(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    seen: list[int] = []
    compiled.register_forward_hook(lambda module, args, result: seen.append(1))
    compiled(X)
    assert seen == [1] and net._forward_hooks


def test_training_gives_the_same_gradients(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    compiled.eval()
    reference = copy.deepcopy(net)
    compiled(X).sum().backward()
    reference(X).sum().backward()
    for ours, theirs in zip(net.parameters(), reference.parameters()):
        assert ours.grad is not None and theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_copies_are_compiled_and_independent(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    compiled.eval()
    for made in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert type(made) is type(compiled)
        assert made.linear is not net.linear
        assert torch.equal(made(X), net(X))
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(X), net(X))


def test_instances_of_one_class_share_compiled_code() -> None:
    nets = [armature.compile(Net().eval(), backend="eager") for _ in range(10)]
    for net in nets:
        assert torch.equal(net(X), net.__armature_original__(X))
    assert len(session().compilations) == 1


def test_a_compiled_module_has_the_class_of_the_original_and_equals_it() -> None:
    model, other = nn.Linear(3, 3), nn.Linear(3, 3)
    compiled, again = armature.compile(model), armature.compile(model)
    assert isinstance(compiled, nn.Linear) and compiled.__class__ is nn.Linear
    assert compiled == model and model == compiled and compiled == again
    assert compiled != other and compiled != armature.compile(other)
    assert {model: 1}[compiled] == 1 and len({model, compiled, again, other}) == 2
    assert copy.deepcopy(compiled) != compiled


def test_a_compiled_module_is_changed_by_what_gives_it_another_class() -> None:
    """So do `register_parametrization` and `fully_shard`."""

    class Symmetric(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight + weight.T

    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    compiled = armature.compile(model)
    before = model.weight.detach().clone()
    nn.utils.parametrize.register_parametrization(compiled, "weight", Symmetric())
    torch.testing.assert_close(compiled(x), nn.functional.linear(x, before + before.T, model.bias))
    assert nn.utils.parametrize.is_parametrized(model) and nn.utils.parametrize.is_parametrized(compiled)
    nn.utils.parametrize.remove_parametrizations(compiled, "weight")
    assert type(model) is nn.Linear
    torch.testing.assert_close(compiled(x), model(x))


def test_forward_is_compiled_and_runs_no_hooks(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    compiled.eval()
    seen: list[Any] = []
    compiled.register_forward_hook(lambda *_: seen.append(1))
    assert torch.equal(compiled.forward(X), net.forward(X)) and not seen
    assert [c.function for c in session().compilations if c.module is not None] == ["Net.forward"]
    compiled.forward = lambda x: x * 3
    assert torch.equal(compiled.forward(X), X * 3) and torch.equal(net(X), X * 3)


def test_a_wrapper_of_forward_can_take_its_place(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    net.eval()
    expected = net(X)
    assert inspect.signature(compiled.forward) == inspect.signature(net.forward)
    assert compiled.forward == compiled.forward

    def doubled(forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: forward(*args) * 2

    compiled.forward = doubled(compiled.forward)
    torch.testing.assert_close(compiled(X), expected * 2)
    del compiled.forward
    compiled.forward = MethodType(doubled(compiled.forward.__func__), compiled)
    torch.testing.assert_close(compiled(X), expected * 2)
    torch.testing.assert_close(compiled.forward(X), expected * 2)
    torch.testing.assert_close(net(X), expected * 2)


def test_a_wrapper_with_a_graph_break_can_take_the_place_of_forward(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    net.eval()
    expected = net(X)
    forward = compiled.forward.__func__

    def called(*args: Any) -> Any:
        torch._dynamo.graph_break()
        return unseen(*args) + 1

    unseen = armature.disable(forward, recursive=False)
    compiled.forward = MethodType(called, compiled)
    torch.testing.assert_close(compiled(X), expected + 1)


def test_forward_of_a_compiled_module_is_traced_in_a_compiled_function(pair: tuple[Net, Any]) -> None:
    net, compiled = pair
    net.eval()
    output = armature.explain(lambda x: compiled.forward(x) + 1)(X)
    assert (output.graph_count, output.break_count) == (1, 0)
