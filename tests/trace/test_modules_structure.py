"""nn.Modules: containers, iterators over members, hooks, state, parametrizations, calls with other parameters."""

# ruff: noqa: B007, RUF015 - it is what is tested

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils import parametrizations, parametrize, weight_norm

import armature
from tests.support.tracing import check, trace

X = torch.linspace(-1.0, 1.0, 8).reshape(2, 4)


class Model(nn.Module):
    """What the cases share: some of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4))])
        self.table = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.GELU())
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))])
        self.named = nn.ParameterDict({"a": nn.Parameter(torch.full((4,), 0.5))})
        self.shared = self.fc
        self.register_buffer("offset", torch.arange(4.0))
        self.register_buffer("hidden", torch.ones(4), persistent=False)
        self.register_parameter("absent", None)
        self.depth = 2
        self.calls = 0
        self.history: list[Any] = []
        self.cache: dict[str, Any] = {}
        self.options = {"act": "relu", "sizes": (4, 4)}
        self.activation = F.relu
        self.pre = [nn.Identity()]

    def helper(self, x: Tensor, by: float = 2.0) -> Tensor:
        return x * by

    @property
    def width(self) -> int:
        return self.fc.out_features

    def forward(self, x: Tensor) -> Any:
        return self.fc(x)


def attributes(m, x):
    return (
        m.helper(x) * m.depth + m.width,
        m.training,
        m.options["act"],
        m.activation(x),
        m.absent is None,
        m.hidden + m.offset,
        m.shared is m.fc,
        m.fc.weight.shape,
        m.pre[0](x),
        type(m).__name__,
        m.fc.in_features,
        hasattr(m, "nope"),
        m.fc(x),
        m.__class__ is Model,
    )


def module_lists(m, x):
    for block in m.blocks:
        x = block(x)
    for i, block in enumerate(m.blocks):
        x = x + i * block(x)
    for block in reversed(m.blocks):
        x = block(x)
    for a, b in zip(m.blocks, m.blocks[:1]):
        x = a(x) + b(x)
    return (
        x,
        len(m.blocks),
        m.blocks[0] is m.blocks[-2],
        m.blocks[1:][0](x),
        len(m.blocks[:1]),
        m.fc in m.blocks,
        [type(b).__name__ for b in m.blocks],
        bool(m.blocks),
    )


def module_dicts(m, x):
    for name in m.table:
        x = m.table[name](x)
    for layer in m.table.values():
        x = layer(x)
    return (
        x,
        list(m.table),
        list(m.table.keys()),
        "relu" in m.table,
        len(m.table),
        [k for k, _ in m.table.items()],
        m.table.relu(x),
    )


def sequentials(m, x):
    for layer in m.seq:
        x = layer(x)
    return m.seq(x), m.seq[0](x), len(m.seq), m.seq[-1](x), m.seq[:1](x), [n for n, _ in m.seq.named_children()]


def parameter_containers(m, x):
    for w in m.weights:
        x = x + w
    return (
        x * m.weights[0] + m.named["a"] + m.named.a,
        len(m.weights),
        list(m.named),
        len(m.named),
        [k for k, v in m.named.items()],
        m.weights[-1].sum(),
        "a" in m.named,
        sum(v.sum() for v in m.named.values()),
    )


def named_iterators(m, x):
    return (
        x, [n for n, _ in m.named_parameters()], [n for n, _ in m.named_buffers()], [n for n, _ in m.named_children()], [n for n, _ in m.named_modules()], len(list(m.parameters())), len(list(m.modules())),
        len(list(m.children())), len(list(m.buffers())), sum(p.numel() for p in m.parameters()), sum(p.sum() for p in m.parameters() if p.requires_grad), next(m.parameters()).dtype, next(iter(m.children())) is m.fc,
        [n for n, _ in m.named_parameters(prefix="p", recurse=False)], len([k for k in m.modules() if isinstance(k, nn.Linear)]), next(m.parameters()).device, any(p.is_cuda for p in m.parameters()),
    )  # fmt: skip


def state_dicts(m, x):
    state = m.state_dict()
    return (
        x + state["fc.bias"],
        len(state),
        list(state)[:2],
        "hidden" in state,
        [k for k in state if k.startswith("seq")],
        type(state).__name__,
    )


def get_by_name(m, x):
    return (
        m.get_submodule("seq.0")(x),
        m.get_parameter("fc.weight").sum(),
        m.get_buffer("offset") + x,
        m._modules["fc"](x),
        m._parameters["absent"],
        list(m._buffers),
        m.extra_repr(),
    )


def private_tables(m, x):
    for name, module in m._modules.items():
        if isinstance(module, nn.Linear):
            x = module(x)
    return x, len(m._modules), "fc" in m._modules, list(m.fc._parameters)


def mutates_attributes(m, x):
    m.calls += 1
    m.history.append(m.calls)
    m.cache["last"] = x * 2
    m.note = "fresh"
    m.depth = m.depth + 1
    if not hasattr(m, "lazy"):
        m.lazy = 1
    return x * m.calls, m.cache["last"] + 1, m.note, m.lazy


def mutates_buffers(m, x):
    m.offset += 1
    m.offset.mul_(2)
    m.hidden = m.hidden + x.mean(0).detach()
    m.hidden.data.add_(1)
    return x + m.offset, m.hidden * 2


def mutates_counter_tensor(m, x):
    m.offset[0] += 1
    m.offset.copy_(m.offset * 2)
    return x * m.offset


def sets_attribute_on_child(m, x):
    m.fc.scale = 3
    m.blocks[0].tag = "t"
    return m.fc(x) * m.fc.scale, m.blocks[0].tag


def training_flag(m, x):
    return F.dropout(x, 0.0, m.training), m.training, all(k.training for k in m.modules()), x if m.training else -x


def dict_of_module(m, x):
    return x * m.__dict__["depth"], "depth" in vars(m), "fc" in m.__dict__


def module_arguments(m, x):
    def run(layer, v, *rest, scale=1, **kw):
        return layer(v) * scale

    return (
        run(m.fc, x, scale=2),
        [layer(x) for layer in (m.fc, m.seq)],
        {m.fc: 1}[m.fc],
        (lambda f: f(x))(m.fc),
        list(map(m.fc, [x]))[0],
        m.forward(x),
        type(m).forward(m, x),
        m.__call__(x),
    )


def isinstance_checks(m, x):
    return (
        isinstance(m.fc, nn.Linear),
        isinstance(m.blocks, (nn.ModuleList, list)),
        isinstance(m.fc.weight, nn.Parameter),
        isinstance(m.offset, nn.Parameter),
        isinstance(m.offset, Tensor),
        issubclass(type(m), nn.Module),
        m.fc == m.shared,
        m.fc != m.seq,
        x,
    )


def functional_call(m, x):
    params = {"weight": m.fc.weight * 2, "bias": torch.zeros(4)}
    return torch.func.functional_call(m.fc, params, (x,)), m.fc(x)


def functional_call_of_a_tree(m, x):
    params = {name: p * 0.5 for name, p in m.seq.named_parameters()}
    return torch.func.functional_call(m.seq, params, (x,)), torch.func.functional_call(
        m.seq, (dict(m.seq.named_parameters()), dict(m.seq.named_buffers())), x
    )


def requires_grad_reads(m, x):
    return (
        [p.requires_grad for p in m.parameters()][:2],
        m.fc.weight.is_leaf,
        m.fc.weight.grad is None,
        x,
        m.fc.weight.data.sum(),
        m.fc.weight.detach().sum(),
        m.fc.weight.T.shape,
    )


def applies(m, x):
    seen = []
    m.apply(lambda k: seen.append(type(k).__name__))
    return x, len(seen)


def deepcopies_config(m, x):
    options = copy.deepcopy(m.options)
    options["act"] = "none"
    return x, m.options["act"], options["act"]


CASES = [
    attributes, module_lists, module_dicts, sequentials, parameter_containers, named_iterators, state_dicts, get_by_name, private_tables, mutates_attributes, mutates_buffers,
    mutates_counter_tensor, sets_attribute_on_child, training_flag, dict_of_module, module_arguments, isinstance_checks, functional_call, functional_call_of_a_tree, requires_grad_reads, applies,
    deepcopies_config,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_like_eager(case: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    check(case, Model(), X)


def test_in_eval_mode() -> None:
    check(training_flag, Model().eval(), X)


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.c = self.a
        self.list = nn.ModuleList([self.a, self.a])

    def forward(self, x: Tensor) -> Any:
        return (
            self.b(self.a(x)) + self.c(x) + sum(m(x) for m in self.list),
            self.a.weight is self.b.weight,
            len(list(self.parameters())),
        )


class CustomCall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs) * 2

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


class Delegating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.extra = {"alpha": 0.5}

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in self.__dict__["extra"]:
                return self.__dict__["extra"][name]
            return getattr(self.inner, name)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) * self.alpha


class Outer(nn.Module):
    """Calls a child, so that the child's __call__ is traced."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


class KeywordOnly(nn.Module):
    def forward(self, x: Tensor, *, mask: Tensor | None = None, **extra: Any) -> Tensor:
        return x if mask is None else x * mask + len(extra)


class CallsByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = KeywordOnly()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x=x, mask=x > 0, other=1)


class Statistics(nn.Module):
    """Counters of every kind, changed in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4))
        self.count = 0
        self.log: list[Any] = []
        self.seen: dict[str, Any] = {}
        self.kinds: set[str] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        self.mean = self.mean.lerp(x.mean(0), 0.1)
        self.count = self.count + 1
        self.log.append(x.shape)
        self.seen[f"step{self.count}"] = self.mean
        self.kinds.add(str(x.dtype))
        return x - self.mean + self.steps


def with_hooks() -> nn.Module:
    model = Outer(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model.layers[0].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    model.layers[0].register_forward_hook(lambda m, args, out: out + 1)
    model.layers[1].register_forward_hook(lambda m, args, kwargs, out: out * len(kwargs) + out, with_kwargs=True)
    model.layers[2].register_forward_pre_hook(lambda m, args, kwargs: (args, kwargs), with_kwargs=True)
    model.layers[2].register_forward_hook(lambda m, args, out: None, always_call=True)
    return model


def with_recording_hook() -> nn.Module:
    model = Outer(nn.Linear(4, 4), nn.Tanh())
    model.layers[0].seen = []

    def record(module: Any, args: Any, out: Tensor) -> None:
        module.seen.append(out.shape)

    model.layers[0].register_forward_hook(record)
    return model


def parametrized() -> nn.Module:
    class Symmetric(nn.Module):
        def forward(self, w: Tensor) -> Tensor:
            return w.triu() + w.triu(1).T

    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return Outer(layer)


def lazy_after_first_call() -> nn.Module:
    model = Outer(nn.LazyLinear(3), nn.ReLU(), nn.LazyBatchNorm1d())
    model(X)
    return model.eval()


MODULES: dict[str, Callable[[], nn.Module]] = {
    "shared": Shared,
    "custom call": lambda: Outer(CustomCall()),
    "custom getattr": lambda: Outer(Delegating()),
    "keywords": CallsByKeyword,
    "statistics": Statistics,
    "hooks": with_hooks,
    "recording hook": with_recording_hook,
    "parametrization": parametrized,
    "weight norm": lambda: Outer(parametrizations.weight_norm(nn.Linear(4, 4))),
    "spectral norm": lambda: Outer(parametrizations.spectral_norm(nn.Linear(4, 4))).eval(),
    "orthogonal": lambda: Outer(parametrizations.orthogonal(nn.Linear(4, 4))),
    "lazy": lazy_after_first_call,
    "transformer": lambda: Outer(nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2)),
    "batch norm": lambda: Outer(nn.BatchNorm1d(4), nn.Linear(4, 4)),
    "sequential of sequentials": lambda: nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Sequential(nn.ReLU()))),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_forward_like_eager(name: str) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()
    check(type(module).forward, module, X)


def test_weight_norm_by_a_hook() -> None:
    with pytest.warns(FutureWarning):
        module = Outer(weight_norm(nn.Linear(4, 4)))
    traced = trace(Outer.forward, module, X)
    out = traced.run(module, X)
    assert torch.allclose(out, module(X))
    out.sum().backward()
    assert module.layers[0].weight_g.grad is not None


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.shift = 2

    def forward(self, x):
        return self.inner(x).relu() + self.shift


def test_graph_modules_of_fx() -> None:
    inner = fx.symbolic_trace(Branches())
    outer = fx.symbolic_trace(lambda x: x * 2)
    check(lambda x: inner(outer(x)), torch.ones(3, 2))
    check(lambda x: inner(x) + inner.inner.weight, torch.ones(2, 2))


def taken_apart(x, layers):
    taken = layers.pop(0), layers.pop(0)
    length = len(layers)
    layers.insert(0, taken[1])
    del layers[1]
    layers.append(taken[0])
    return layers(x), length, list(layers), [name for name, _ in layers.named_children()]


def test_a_container_is_taken_apart_several_times() -> None:
    def layers() -> nn.Sequential:
        return nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid())

    x = torch.linspace(-1, 1, 3)
    eager, mine = layers(), layers()
    compiled = armature.compile(taken_apart, backend="eager", fullgraph=True)
    assert str(compiled(x, mine)) == str(taken_apart(x, eager))
    assert str(mine) == str(eager) and list(mine.state_dict()) == list(eager.state_dict())


def test_a_list_of_modules_finds_them_by_name() -> None:
    def last(x, layers):
        return layers[-1](x), len(layers)

    layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    del layers._modules["0"]
    compiled = armature.compile(last, backend="eager")
    with pytest.raises(KeyError, match="'0'"):
        last(X, layers)
    with pytest.raises(KeyError, match="'0'"):
        compiled(X, layers)
