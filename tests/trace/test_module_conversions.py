"""`Module.to` and its kind, parameters put in the place of others, and classes of tensors called, inside a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import armature


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(3.0))
        self.inner = nn.Linear(3, 3, bias=False)
        self.register_buffer("table", torch.ones(3))
        nn.init.eye_(self.inner.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.weight + self.table


def to_double(m, x):
    return m.to(torch.float64)(x.double())


def to_the_dtype_of_a_tensor(m, x):
    return m.to(x.double())(x.double())


def to_a_tensor_like_it(m, x):
    return m.to(x, non_blocking=True)(x)


def half(m, x):
    return m.half()(x.half())


def nothing(m, x):
    m.to("cpu").float().to(torch.float32)
    return m(x)


def frozen(m, x):
    m.requires_grad_(False)
    z = m(x)
    m.inner.requires_grad_(True)
    return z, m(x)


def made(m, x):
    other = Scale().double()
    return other(x.double()), other.table.dtype


def replaced(m, x):
    m.weight = nn.Parameter(m.weight.detach() * 2)
    return m(x)


def replaced_by_another(m, x):
    m.weight = m.inner.weight
    return m(x)


def removed(m, x):
    m.weight = None
    return m.inner(x), m.weight


PROGRAMS = [
    to_double, to_the_dtype_of_a_tensor, to_a_tensor_like_it, half, nothing, frozen, made, replaced,
    replaced_by_another, removed,
]  # fmt: skip


def facts(module: nn.Module) -> dict[str, Any]:
    held = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    return {
        name: (type(t), t.dtype, t.requires_grad, t.is_leaf, t.tolist(), None if t.grad is None else t.grad.tolist())
        for name, t in held.items()
    }


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda function: function.__name__)
def test_modules(program: Callable[..., Any], gradients: bool) -> None:
    armature.reset()
    compiled = armature.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        seen = []
        for function in (program, compiled):
            module, x = Scale(), torch.linspace(1, 2, 3)
            before = dict(module.named_parameters())
            if gradients:
                module(x).sum().backward()
            result = function(module, x)
            outputs = [result] if isinstance(result, torch.Tensor) else [t for t in result if torch.is_tensor(t)]
            if outputs[0].requires_grad:
                outputs[0].sum().backward()
            same = [before[name] is p for name, p in module.named_parameters()]
            seen.append((facts(module), same, [(t.tolist(), t.dtype, t.requires_grad) for t in outputs]))
        assert seen[0] == seen[1]


def test_the_setting_that_modules_ask_is_guarded() -> None:
    armature.reset()
    compiled = armature.compile(to_double, backend="eager", fullgraph=True)
    for overwrite in (False, True, False):
        torch.__future__.set_overwrite_module_params_on_conversion(overwrite)
        try:
            module = Scale()
            weight = module.weight
            compiled(module, torch.ones(3))
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(False)
        assert (module.weight is weight) is not overwrite
        assert (type(module.weight), module.weight.dtype) == (nn.Parameter, torch.float64)


def test_wrong_arguments_of_a_conversion() -> None:
    def program(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        try:
            m.to(torch.int32)
        except TypeError:
            return m(x) + 1
        return m(x)

    torch.testing.assert_close(
        armature.compile(program, backend="eager", fullgraph=True)(Scale(), torch.ones(3)),
        program(Scale(), torch.ones(3)),
    )


def test_a_hook_that_watches_parameters_is_called() -> None:
    seen: list[str] = []
    module = Scale()
    weight = module.weight.detach().clone()
    compiled = armature.compile(lambda x: replaced(module, x), backend="eager")
    watch = torch.nn.modules.module.register_module_parameter_registration_hook
    handle = watch(lambda module, name, p: seen.append(name))
    try:
        compiled(torch.ones(3))
        assert seen == ["weight"]
        torch.testing.assert_close(compiled(torch.ones(3)), 4 * weight + 1)
    finally:
        handle.remove()
    assert seen == ["weight", "weight"]
    torch.testing.assert_close(compiled(torch.ones(3)), 8 * weight + 1)
    assert seen == ["weight", "weight"]


def of_a_tensor(x, w):
    return torch.Tensor(w) * 2, type(x)(x), torch.Tensor(x).add_(1), x * 1


def of_sizes(x, w):
    return torch.Tensor(2, 3).shape, torch.LongTensor(2).dtype, x + 1


def of_numbers(x, w):
    return torch.Tensor([1, 2.5]), torch.Tensor([[1], [2]]), torch.FloatTensor([1.0]), torch.LongTensor([1, 2]), x + 1


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("program", [of_a_tensor, of_sizes, of_numbers])
def test_classes_of_tensors(program: Callable[..., Any], backend: str) -> None:
    armature.reset()
    compiled = armature.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        seen = []
        for function in (program, compiled):
            x, w = torch.ones(3), torch.ones(3, requires_grad=True)
            seen.append([(t.tolist(), t.dtype, t.requires_grad) if torch.is_tensor(t) else t for t in function(x, w)])
        assert seen[0] == seen[1]


def test_the_default_dtype_of_numbers_is_guarded() -> None:
    armature.reset()
    compiled = armature.compile(lambda x: torch.Tensor([1.5]) * x, backend="eager", fullgraph=True)
    assert compiled(torch.ones(1)).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(torch.ones(1)).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_hook_on_a_parameter_that_was_made() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        w = nn.Parameter(x)
        w.register_hook(lambda g: g * 2)
        return w * 3, w

    z, w = armature.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    z.sum().backward()
    assert w.grad.tolist() == [6, 6]
