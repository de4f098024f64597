"""Hooks on modules that a compiled function registers and removes: one graph, with the effects of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.utils.hooks import RemovableHandle

import armature
from armature.pipeline.session import Outcome, session


def double(module: nn.Module, args: Any, out: Tensor) -> Tensor:
    return out * 2


def halve_input(module: nn.Module, args: Any) -> Any:
    return (args[0] / 2,)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
        self.handles: list[RemovableHandle] = []
        self.installed = False

    def forward(self, x: Tensor) -> Any:
        raise NotImplementedError


class Removed(Model):
    def forward(self, x: Tensor) -> Any:
        handle = self.body[0].register_forward_hook(double)
        y = self.body(x)
        handle.remove()
        return y, self.body(x)


class InContext(Model):
    def forward(self, x: Tensor) -> Any:
        with self.body[0].register_forward_pre_hook(halve_input):
            return self.body(x) + 1


class Kept(Model):
    def forward(self, x: Tensor) -> Any:
        self.handles.append(self.body[0].register_forward_hook(double))
        return self.body(x)


class Once(Model):
    def forward(self, x: Tensor) -> Any:
        if not self.installed:
            for part in self.body.modules():
                if isinstance(part, nn.Linear):
                    part.register_forward_hook(double)
            self.installed = True
        return self.body(x)


class Recorded(Model):
    """As libraries record what parts of a model give."""

    def install(self, part: nn.Module, seen: list[Tensor]) -> None:
        for _, child in part.named_children():
            self.install(child, seen)
        if isinstance(part, nn.Linear):

            def record(module: nn.Module, args: Any, out: Tensor) -> None:
                seen.append(out)

            self.handles.append(part.register_forward_hook(record, always_call=True))

    def forward(self, x: Tensor) -> Any:
        seen: list[Tensor] = []
        self.install(self.body, seen)
        y = self.body(x)
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        return y, seen


class ForAll(Model):
    def forward(self, x: Tensor) -> Any:
        handle = modules.register_module_forward_hook(double)
        y = self.body(x)
        handle.remove()
        return y


class TwoInOrder(Model):
    def forward(self, x: Tensor) -> Any:
        first = self.body[0].register_forward_hook(double)
        second = self.body[0].register_forward_hook(lambda module, args, out: out + 1, prepend=True)
        y = self.body(x)
        first.remove()
        z = self.body(x)
        second.remove()
        return y, z


MODELS: list[Callable[[], Model]] = [Removed, InContext, Kept, Once, Recorded, TwoInOrder]


def tables(model: nn.Module) -> list[int]:
    return [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()]


@pytest.mark.parametrize("make", MODELS)
def test_hooks_are_in_the_graph(make: Callable[[], Model]) -> None:
    armature.reset()
    eager, model = make(), make()
    quick = armature.compile(model, backend="eager", fullgraph=True)
    for _ in range(3):
        x = torch.randn(2, 4, requires_grad=True)
        torch.testing.assert_close(quick(x), eager(x))
        assert tables(model) == tables(eager)
    assert {record.outcome for record in session().compilations} == {Outcome.COMPILED}


def test_hooks_on_all_modules() -> None:
    """Their tables belong to nobody that the frame holds: the graph breaks where one is asked for."""
    armature.reset()
    eager, quick = ForAll(), armature.compile(ForAll(), backend="eager")
    for _ in range(2):
        x = torch.randn(2, 4)
        torch.testing.assert_close(quick(x), eager(x))
        assert not modules._global_forward_hooks


def test_one_that_is_removed_needs_one_compilation() -> None:
    armature.reset()
    quick = armature.compile(Removed(), backend="eager", fullgraph=True)
    for _ in range(4):
        quick(torch.ones(2, 4))
    assert len(session().compilations) == 1


def test_numbers_are_drawn_as_in_eager_mode() -> None:
    armature.reset()
    layer = nn.Linear(2, 2)

    def program(x: Tensor) -> Any:
        handles = [layer.register_forward_hook(double), layer.register_forward_pre_hook(halve_input)]
        return layer(x), handles

    quick = armature.compile(program, fullgraph=True)
    for handle in quick(torch.ones(2))[1]:  # compiling draws some itself
        handle.remove()
    before = RemovableHandle.next_id
    _, handles = quick(torch.ones(2))
    assert [handle.id for handle in handles] == [before, before + 1]
    assert RemovableHandle.next_id == before + 2
    assert list(layer._forward_hooks) == [before]
    known = layer.register_forward_hook(double)
    assert vars(known).keys() == vars(handles[0]).keys()
    assert handles[0].hooks_dict_ref() is known.hooks_dict_ref() is layer._forward_hooks
    for handle in (known, *handles):
        handle.remove()
    assert tables(layer) == [0]


def test_a_graph_that_raises_leaves_no_hook() -> None:
    armature.reset()
    layer = nn.Embedding(3, 2)

    def program(x: Tensor) -> Any:
        handle = layer.register_forward_hook(double)
        y = layer(x)
        handle.remove()
        return y

    quick = armature.compile(program, fullgraph=True)
    quick(torch.tensor([1]))
    before = RemovableHandle.next_id
    with pytest.raises(IndexError):
        quick(torch.tensor([7]))
    assert RemovableHandle.next_id == before + 1
    assert tables(layer) == [1]  # eager mode has run, and left it


def test_a_number_as_a_key_of_the_program() -> None:
    """Its tables may hold an equal number: the graph breaks, and Python looks."""
    armature.reset()
    layer = nn.Linear(2, 2)
    names = {RemovableHandle.next_id: "first"}

    def program(x: Tensor) -> Any:
        handle = layer.register_forward_hook(double)
        name = names.get(handle.id)
        handle.remove()
        return layer(x), name

    assert armature.compile(program)(torch.ones(2))[1] == "first"
