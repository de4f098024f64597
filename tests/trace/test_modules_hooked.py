"""Hooks of every kind on modules, reads of their members, containers changed in forward: as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from tests.support.tensor_programs import compare
from tests.support.tracing import break_of


def values() -> torch.Tensor:
    return torch.linspace(-1, 1, 8).reshape(2, 4)


def before(module, args):
    module.seen.append("before")
    return (args[0] * 2,)


def before_with_names(module, args, kwargs):
    module.seen.append("before, by name")
    return args, {name: value * 2 for name, value in kwargs.items()}


def after(module, args, out):
    module.seen.append("after")
    return out + 1


def after_with_names(module, args, kwargs, out):
    module.seen.append(tuple(kwargs))
    return out * 2


def looks(module, args, out):
    module.seen.append("looks")


def backward(module, given, taken):
    module.seen.append("backward")


def backward_pre(module, taken):
    module.seen.append("before backward")


HOOKS: dict[str, Callable[[nn.Module], Any]] = {
    "before": lambda m: m.register_forward_pre_hook(before),
    "before, by name": lambda m: m.register_forward_pre_hook(before_with_names, with_kwargs=True),
    "after": lambda m: m.register_forward_hook(after),
    "after, by name": lambda m: m.register_forward_hook(after_with_names, with_kwargs=True),
    "looks": lambda m: m.register_forward_hook(looks),
    "always": lambda m: m.register_forward_hook(looks, always_call=True),
    "two": lambda m: [m.register_forward_pre_hook(before), m.register_forward_pre_hook(before)],
    "first": lambda m: [m.register_forward_hook(after), m.register_forward_hook(looks, prepend=True)],
}


def hooked(register: Callable[[nn.Module], Any]) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        torch.manual_seed(0)
        module = nn.Linear(4, 4)
        module.seen = []
        register(module)
        return module, values()

    return make


def called(m, x):
    return m(x), list(m.seen)


def called_by_name(m, x):
    return m(input=x), list(m.seen)


@pytest.mark.parametrize("name", HOOKS)
def test_hook(name: str) -> None:
    compare(called_by_name if "name" in name else called, hooked(HOOKS[name]), fullgraph=True, backward=True)


@pytest.mark.parametrize("hook", ["register_full_backward_hook", "register_full_backward_pre_hook"])
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_a_hook_of_backward_breaks(hook: str) -> None:
    fn = backward if hook == "register_full_backward_hook" else backward_pre
    make = hooked(lambda m: getattr(m, hook)(fn))
    assert break_of(called, *make())
    compare(called, make, fullgraph=False, backward=True)


def registers_a_hook(m, x):
    handle = m.register_forward_hook(lambda module, args, out: out * 3)
    y = m(x)
    handle.remove()
    return y, m(x)


def test_a_hook_of_the_function() -> None:
    compare(registers_a_hook, hooked(lambda m: None), fullgraph=False)


def net() -> tuple[Any, ...]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))
    module.add_module("again", module[0])
    module.register_buffer("count", torch.zeros(()))
    module.register_buffer("hidden", torch.ones(2), persistent=False)
    return module, values()


READS = [
    "list(m.state_dict())",
    "list(m.state_dict(prefix='a.', keep_vars=True))",
    "sum(v.sum() for v in m.state_dict().values())",
    "sum(v.sum() for v in m.state_dict(keep_vars=True).values())",
    "[k for k, _ in m.named_parameters()]",
    "[k for k, _ in m.named_parameters(prefix='q', recurse=False)]",
    "[k for k, _ in m.named_parameters(remove_duplicate=False)]",
    "[k for k, _ in m.named_buffers()]",
    "[k for k, _ in m.named_buffers(prefix='z', recurse=True, remove_duplicate=False)]",
    "[k for k, _ in m.named_modules()]",
    "[k for k, _ in m.named_modules(prefix='p', remove_duplicate=False)]",
    "[k for k, _ in m.named_children()], [type(c).__name__ for c in m.children()]",
    "[type(c).__name__ for c in m.modules()]",
    "len(list(m.parameters(recurse=False)))",
    "m.get_parameter('0.weight').shape, m.get_submodule('2.1').in_features, m.get_buffer('count')",
    "sum(p.numel() for p in m.parameters() if p.requires_grad)",
    "m.training, m.eval().training, m.train().training",
    "repr(m), m._get_name(), m.extra_repr()",
    "len(m), m[0] is m[-1], 'again' in dict(m.named_children())",
    "hasattr(m, 'count'), hasattr(m, 'no_such'), getattr(m, 'no_such', 3)",
    "m.count.add_(1), m.count",
    "setattr(m, 'count', m.count + 1), m.count",
    "m.append(nn.ReLU())(x)",
    "m.pop(0) is not None",
    "m.register_buffer('more', torch.ones(2)), m.more",
    "delattr(m, 'count'), hasattr(m, 'count')",
    "m.zero_grad()",
]
BREAKS = ["m.requires_grad_(False) is m", "m.float() is m", "m.double()(x.double())", "m.insert(0, nn.Tanh())"]


def program(text: str) -> Callable[..., Any]:
    made: Callable[..., Any] = eval(f"lambda m, x: (m(x), {text}, x + 1)", {"nn": nn, "torch": torch})
    return made


@pytest.mark.parametrize("text", READS)
def test_members(text: str) -> None:
    compare(program(text), net, fullgraph=True)


@pytest.mark.parametrize("text", BREAKS)
def test_members_after_a_break(text: str) -> None:
    compare(program(text), net, fullgraph=False)


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).t()

    def right_inverse(self, w):
        return w.triu()


def symmetric() -> nn.Module:
    module = nn.Linear(4, 4)
    parametrize.register_parametrization(module, "weight", Symmetric())
    return module


PARAMETRIZED: dict[str, Callable[[], nn.Module]] = {
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(4, 4)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(4, 4)),
    "spectral norm, evaluated": lambda: parametrizations.spectral_norm(nn.Linear(4, 4)).eval(),
    "spectral norm by a hook": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(4, 4)),
    "symmetric": symmetric,
}


def called_with_state(m, x):
    return m(x), dict(m.state_dict())


@pytest.mark.parametrize("name", PARAMETRIZED)
def test_parametrized(name: str) -> None:
    torch.manual_seed(0)
    module, x = PARAMETRIZED[name](), values()
    start = {key: value.clone() for key, value in module.state_dict().items()}

    def make() -> tuple[Any, ...]:  # one module: each parametrized one has a class of its own
        module.load_state_dict(start)
        module.zero_grad()
        return module, x

    compare(called_with_state, make, fullgraph=True)


def uses_cached(m, x):
    with parametrize.cached():
        return m(x) + m(x)


def test_cached_parametrizations_break() -> None:
    module = symmetric()
    compare(uses_cached, lambda: (module, values()), fullgraph=False)


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.table = nn.ModuleDict({"a": nn.Linear(4, 4)})
        self.scales = nn.ParameterList([torch.ones(4)])
        self.named = nn.ParameterDict({"k": torch.ones(4)})
        self.calls = 0
        self.history: list[int] = []

    def forward(self, x):
        self.calls += 1
        self.history.append(self.calls)
        for layer in reversed(self.layers):
            x = layer(x)
        for layer in self.table.values():
            x = layer(x)
        return x * self.scales[0] * self.named["k"] + len(self.layers) + ("a" in self.table) + self.calls


def stack() -> tuple[Any, ...]:
    torch.manual_seed(0)
    return Stack(), values()


def calls_twice(m, x):
    return m(x), m(x), m.calls, list(m.history)


def appends(m, x):
    m.layers.append(nn.Identity())
    return m(x), len(m.layers)


def adds_to_a_table(m, x):
    m.table["b"] = m.layers[0]
    return m(x), list(m.table)


def deletes(m, x):
    del m.layers[0]
    return m(x), len(m.layers)


def replaces(m, x):
    m.layers[0] = m.layers[1]
    return m(x)


@pytest.mark.parametrize("case", [calls_twice, appends, adds_to_a_table, deletes])
def test_container(case: Callable[..., Any]) -> None:
    compare(case, stack, fullgraph=True, backward=True)


def test_a_replaced_member() -> None:
    compare(replaces, stack, fullgraph=False, backward=True)
