"""Tensors that hold other tensors and take over operators, by `__torch_dispatch__`: one graph, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

import armature
from armature.pipeline.session import Outcome, session

aten = torch.ops.aten
KEEPING = {aten.detach.default, aten.alias.default, aten.clone.default, aten.view.default, aten.t.default}


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    armature.reset()


class Scaled(torch.Tensor):
    """Numbers with one scale: what torchao's weights are like. Operators give plain tensors."""

    @staticmethod
    def __new__(cls, numbers, scale, block=1):
        return torch.Tensor._make_wrapper_subclass(
            cls, numbers.shape, strides=numbers.stride(), dtype=scale.dtype, device=numbers.device
        )

    def __init__(self, numbers, scale, block=1):
        self.numbers, self.scale, self.block = numbers, scale, block

    def __tensor_flatten__(self):
        return ["numbers", "scale"], {"block": self.block}

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["numbers"], inner["scale"], context["block"])

    @classmethod
    def of(cls, x, block=1):
        scale = x.detach().abs().amax() / 127
        return cls((x.detach() / scale).round().to(torch.int8), scale, block)

    def plain(self):
        return self.numbers.to(self.scale.dtype) * self.scale * self.block

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        if func in KEEPING:
            return cls(func(args[0].numbers, *args[1:]), args[0].scale, args[0].block)
        args, kwargs = pytree.tree_map_only(Scaled, lambda t: t.plain(), (args, kwargs or {}))
        return func(*args, **kwargs)


class Both(TwoTensor):
    """Overrides functions besides."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.sin:
            return torch.cos(args[0]) * 3
        return super().__torch_function__(func, types, args, kwargs or {})

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Both(inner["a"], inner["b"])


class Adding(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result + 1 if func in (torch.sin, F.relu) else result


class ToScaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        return Scaled((x / scale).round(), scale)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def two(kind: Any = TwoTensor) -> Callable[[], tuple[Any, ...]]:
    return lambda: (kind(torch.arange(12.0).reshape(3, 4), torch.ones(3, 4)), torch.linspace(1, 2, 4))


def nested() -> tuple[Any, ...]:
    return TwoTensor(two()()[0], two()()[0]), torch.linspace(1, 2, 4)


def scaled() -> tuple[Any, ...]:
    return Scaled.of(torch.linspace(-1, 1, 16).reshape(4, 4), 2), torch.linspace(1, 2, 4)


def learning() -> tuple[Any, ...]:
    return nn.Parameter(two()()[0]), torch.linspace(1, 2, 4).requires_grad_()


def facts(value: Any) -> Any:
    """All there is to know of a result: classes, parts, numbers, gradients and what else autograd knows."""
    if isinstance(value, (list, tuple)):
        return [facts(item) for item in value]
    if isinstance(value, dict):
        return {key: facts(item) for key, item in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    known = [type(value), value.shape, value.stride(), value.dtype, value.requires_grad, value.is_leaf]
    known.append(facts(value.grad) if value.is_leaf else None)
    if not hasattr(value, "__tensor_flatten__"):
        return [*known, value.detach().double().mul(1e4).round().tolist()]
    names, context = value.__tensor_flatten__()
    return [*known, context, {name: facts(getattr(value, name)) for name in names}]


def learn(results: Any) -> None:
    """Backward through the results that are plain, with gradients of ones."""
    given = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    torch.autograd.backward(given, [torch.ones_like(leaf.detach()) for leaf in given])


def compare(
    function: Callable[..., Any],
    make: Callable[[], tuple[Any, ...]],
    *,
    backward: bool = False,
    fullgraph: bool = True,
    backends: tuple[str, ...] = ("eager", "auto"),
) -> None:
    """Compiled as eager, in two calls: results, and the arguments afterwards."""
    for backend in backends:
        armature.reset()
        compiled = armature.compile(function, backend=backend, fullgraph=fullgraph)
        for _ in range(2):
            seen = []
            for run in (function, compiled):
                torch.manual_seed(0)
                given = make()
                found = run(*given)
                if backward:
                    learn(found)
                parameters = [dict(m.named_parameters()) for m in given if isinstance(m, nn.Module)]
                seen.append(facts([found, [g for g in given if not isinstance(g, nn.Module)], parameters]))
            assert seen[1] == seen[0]
        if fullgraph:
            assert [record.outcome for record in session().compilations] == [Outcome.COMPILED]


def operators(x, y):
    return x + y, 2 - x, x @ y, -x, x == y, x.sum(0), x.max(), torch.cat([x, x]), F.softmax(x, -1), x.split(2, 1), y * 2


def queries(x, y):
    return (
        type(x), isinstance(x, TwoTensor), isinstance(x, nn.Parameter), x.shape, x.stride(), len(x), x.dtype, x.device,
        x.requires_grad, x.is_leaf, type(x * 2), x * 2,
    )  # fmt: skip


def parts_of(x, y):
    z = x * 2
    return x.a + 1, x.a, z.b, z.a + y, z.get_elem_a(), x.__tensor_flatten__()[0], hasattr(z, "a"), hasattr(z, "c")


def views(x, y):
    return x.view(-1), x.t(), x[0], x.detach(), x.data, x.view(2, 6)[0] + 1, [row.sum() for row in x]


def changes(x, y):
    x.add_(1)
    x.view(-1).mul_(2)
    x[0] = 5.0
    x += y
    return x, x * 2


def made_inside(x, y):
    z = TwoTensor(y, y + 1)
    return z, z * 2, z.a, (z + x).b, TwoTensor(x, x)


def makers(x, y):
    return (
        torch.ones_like(x),
        x.new_zeros(3),
        x.to(torch.float64),
        x.clone(),
        x.contiguous(),
        torch.empty_like(x).zero_(),
    )


@pytest.mark.parametrize("function", [operators, queries, parts_of, views, changes, made_inside, makers])
def test_in_one_graph(function: Callable[..., Any]) -> None:
    compare(function, two())


@pytest.mark.parametrize("function", [views, changes, lambda x, y: (x + y, x.a.b, (x * 2).a.a, TwoTensor(x, x).b.a.b)])
def test_nested(function: Callable[..., Any]) -> None:
    compare(function, nested)


def test_a_quantized_weight() -> None:
    compare(lambda w, y: (w @ y, F.linear(y, w), w.plain(), w.block, w.t(), w.detach().scale), scaled)
    compare(lambda w, y: (Scaled.of(y), Scaled.of(y, 3) + 1, Scaled.of(y, 3).block, Scaled(w.numbers, w.scale)), scaled)


def test_that_overrides_functions_too() -> None:
    compare(lambda x, y: (torch.sin(x) + y, x.sin(), torch.sin(y), type(x + 1).__name__, x.a), two(Both))


def test_under_a_mode() -> None:
    def inside(x: Any, y: Any) -> Any:
        with Adding():
            z = torch.sin(x), F.relu(y), x.a
        return z, torch.sin(x)

    def around(x: Any, y: Any) -> Any:
        return torch.sin(x), x.a + 1, x.sum()

    compare(inside, two())
    with Adding():
        compare(around, two())


def test_parameters_and_buffers() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            self.fc.weight = nn.Parameter(TwoTensor(self.fc.weight.detach(), self.fc.weight.detach() * 2))
            self.fc.bias = nn.Parameter(TwoTensor(self.fc.bias.detach(), self.fc.bias.detach() * 2))
            self.register_buffer("held", TwoTensor(torch.ones(4), torch.zeros(4)))

        def forward(self, x: torch.Tensor) -> Any:
            return self.fc(x).relu() * self.held, isinstance(self.fc.weight, nn.Parameter)

    compare(lambda model, x: model(x), lambda: (Model(), torch.linspace(1, 2, 4)), backward=True)

    def quantized() -> tuple[Any, ...]:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[0].weight = nn.Parameter(Scaled.of(model[0].weight), requires_grad=False)
        return model, torch.linspace(1, 2, 4).requires_grad_()

    compare(lambda model, x: model(x), quantized, backward=True, backends=("eager", "aot_eager", "auto"))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x * 2 + y,
        lambda x, y: (F.linear(y, x), (x * 2).view(-1), y * 3),
        lambda x, y: (x * 2).add_(y),
        lambda x, y: (x.sum().a, (y * x.a).sum()),
        lambda x, y: (y * x.detach().a, x.detach() * 2),
    ],
)
def test_gradients(function: Callable[..., Any]) -> None:
    compare(function, learning, backward=True, backends=("eager", "aot_eager", "auto"))


def test_gradients_that_come_plain_or_not_at_all() -> None:
    def function(x: Any, y: Any) -> Any:
        return x * 2, y * 3, x.sum()

    for used in (0, 1, 2):
        seen = []
        armature.reset()
        for run in (function, armature.compile(function, fullgraph=True)):
            x, y = learning()
            out = run(x, y)[used]
            out.backward(torch.ones_like(out.detach()))
            seen.append(facts([x, y]))
        assert seen[0] == seen[1]


def test_made_by_an_autograd_function() -> None:
    def make() -> tuple[Any, ...]:
        return torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_(), torch.linspace(1, 2, 4).requires_grad_()

    def program(w: Any, y: Any) -> Any:
        return F.linear(y, ToScaled.apply(w, w.detach().abs().amax() / 7))

    compare(program, make, backward=True)


def share(function: Callable[..., Any]) -> Callable[[], tuple[Any, ...]]:
    """Arguments that share memory, which no operator on whole tensors tells."""

    def make() -> tuple[Any, ...]:
        t = torch.ones(4)
        return function(t)

    return make


def test_parts_share_memory() -> None:
    compare(lambda x, y: (x.add_(1), x * 2, y * 2), share(lambda t: (TwoTensor(t, t), t)))
    compare(lambda x, y: (x.add_(1), y * 2), share(lambda t: (TwoTensor(t[:2], t[:2]), t[1:3])))
    compare(lambda x, y: (x.add_(1), TwoTensor(x.a, x.b)), two())
    compare(lambda x, y: (x.a.add_(1), x * 2), two())
    compare(lambda x, y: TwoTensor(y, y + 1).mul_(2) + y, two())

    def seen_later(function: Callable[..., Any]) -> list[Any]:
        x, y = two()()
        out = function(x, y)
        x.a.fill_(7)
        y.fill_(9)
        return facts([out, x, y])

    for program in (
        lambda x, y: (x.view(-1), x.add_(1), x.view(-1).a),
        lambda x, y: TwoTensor(y, y[:]),
        lambda x, y: (y.add_(1), TwoTensor(y, y + 1)),
        lambda x, y: (x.t(), x.view(-1).b[1:]),
    ):
        compiled = armature.compile(program, fullgraph=True)
        assert seen_later(compiled) == seen_later(program)


def test_memory_shared_in_a_later_call() -> None:
    def function(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2, x

    compiled = armature.compile(function, fullgraph=True)
    for make in (two(), share(lambda t: (TwoTensor(t, t), t)), share(lambda t: (TwoTensor(t, t.clone()), t))):
        assert facts(compiled(*make())) == facts(function(*make()))


def compiled_times(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> int:
    """How often the function is compiled for these calls, each of which gives what it gives in eager mode."""
    armature.reset()
    compiled = armature.compile(function, backend="eager", fullgraph=True, dynamic=False)
    for args in calls:
        assert facts(compiled(*args)) == facts(function(*args))
    return len(session().compilations)


def test_what_is_guarded() -> None:
    x, y = torch.ones(3), torch.zeros(3)
    base = (TwoTensor(x, y),)
    other = [
        (Both(x, y),), (TwoTensor(torch.ones(4), torch.ones(4)),), (TwoTensor(x.double(), y.double()),), (x,),
        (TwoTensor(TwoTensor(x, y), TwoTensor(x, y)),), (TwoTensor(x, y).requires_grad_(),),
        (TwoTensor(torch.ones(6)[::2], torch.ones(6)[::2]),),
    ]  # fmt: skip
    for args in other:
        assert compiled_times(lambda t: t + 1, [base, args, base]) == 2
    assert compiled_times(lambda t: t + 1, [base, (TwoTensor(y, x),), (TwoTensor(x, x),)]) == 1
    tagged = TwoTensor(x, y)
    tagged.note = "not read"
    assert compiled_times(lambda t: t + 1, [base, (tagged,)]) == 1


def test_the_inner_tensors_are_guarded() -> None:
    numbers, scale = torch.ones(3, dtype=torch.int8), torch.tensor(2.0)
    base = (Scaled(numbers, scale),)
    for changed in (
        Scaled(numbers.to(torch.int16), scale),
        Scaled(numbers, torch.ones(1)),
        Scaled(numbers, scale, 5),
        Scaled(torch.ones(3, requires_grad=True), scale),
    ):
        assert compiled_times(lambda t: t + 1, [base, (changed,), base]) == 2
    assert compiled_times(lambda t: t + 1, [base, (Scaled(numbers * 2, scale * 3),)]) == 1


def test_parameters_are_told_from_other_tensors() -> None:
    plain, parameter = TwoTensor(torch.ones(3), torch.ones(3)).requires_grad_(), learning()[0]
    same_shape = nn.Parameter(TwoTensor(torch.ones(3), torch.ones(3)))
    calls = [(plain,), (same_shape,), (parameter,), (plain,)]
    assert compiled_times(lambda t: (isinstance(t, nn.Parameter), t.detach() * 2), calls) == 3


class Guarded(Scaled):
    @classmethod
    def __metadata_guard__(cls, before, now):
        return before["block"] % 2 == now["block"] % 2


class Mutable(Scaled):
    def __tensor_flatten__(self):
        return ["numbers", "scale"], self.block

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["numbers"], inner["scale"], context)

    def plain(self):
        return self.numbers * self.scale * self.block[0]


class Packed(Scaled):
    """Half of its rows are stored: its sizes are not those of what it holds."""

    @staticmethod
    def __new__(cls, numbers, scale, block=1):
        return torch.Tensor._make_wrapper_subclass(cls, (numbers.shape[0] * 2, 4), dtype=scale.dtype)

    def plain(self):
        return torch.cat([self.numbers, self.numbers]) * self.scale


def rows(count: int) -> torch.Tensor:
    return torch.linspace(-1, 1, 4 * count).reshape(count, 4)


SIZED: list[tuple[Callable[..., Any], Callable[[int], Any], int]] = [
    (lambda x: (x * 2, x.shape, x.a.shape[0] + 1, x.view(-1), (x + 1).b), lambda n: TwoTensor(rows(n), rows(n) * 2), 2),
    (lambda x: (x @ torch.ones(4), x.plain(), x.t()), lambda n: Scaled.of(rows(n)), 2),
    (lambda x: torch.ones(3) * x.shape[0], lambda n: TwoTensor(rows(n), rows(n) * 2), 2),
    (lambda x: x.add_(1), lambda n: TwoTensor(rows(n), rows(n) * 2), 2),
    (lambda x: (x.sum().a, x.detach()), lambda n: TwoTensor(rows(n), rows(n) * 2).requires_grad_(), 2),
    (lambda x: x + 1, lambda n: Packed(rows(n), torch.tensor(2.0)), 4),
    (lambda x: x + 1, lambda n: TwoTensor(TwoTensor(rows(n), rows(n)), TwoTensor(rows(n), rows(n))), 4),
]


@pytest.mark.parametrize(("function", "make", "times"), SIZED)
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_sizes_that_change(function: Any, make: Any, times: int, backend: str) -> None:
    compiled = armature.compile(function, backend=backend, fullgraph=True)
    for count in (3, 5, 7, 2):
        results = []
        for run in (function, compiled):
            x = make(count)
            results.append(facts([run(x), x]))
        assert results[0] == results[1]
    assert len(session().compilations) == times


def test_sizes_that_agree_may_differ_later() -> None:
    """One symbol stands for the size of the whole and of what it holds."""

    class Padded(Scaled):
        def __init__(self, numbers, scale, block=1):
            super().__init__(numbers, scale, block)

        @staticmethod
        def __new__(cls, numbers, scale, block=1):
            size = (block, *numbers.shape[1:]) if type(block) is int and block > 1 else numbers.shape
            return torch.Tensor._make_wrapper_subclass(cls, size, dtype=scale.dtype)

        def __tensor_flatten__(self):
            return ["numbers", "scale"], None

        @classmethod
        def __tensor_unflatten__(cls, inner, context, size, stride):
            return cls(inner["numbers"], inner["scale"], size[0] if size[0] != inner["numbers"].shape[0] else 1)

    def function(x: Any) -> Any:
        return x.numbers.sum() * x.shape[0], x.numbers.shape

    compiled = armature.compile(function, backend="eager", fullgraph=True)
    for count, block in ((3, 1), (5, 1), (7, 1), (7, 9), (4, 6)):
        x = Padded(rows(count), torch.tensor(2.0), block)
        assert facts(compiled(x)) == facts(function(x))


def test_sizes_changed_in_place() -> None:
    compare(lambda x, y: (x.unsqueeze_(0), x * 2), two())
    compare(lambda x, y: (x.t_(), (x * 2).t_()), two())


def test_metadata_as_the_class_compares_it() -> None:
    numbers, scale = torch.ones(3), torch.tensor(2.0)
    function = armature.compile(lambda t: t.plain(), backend="eager", fullgraph=True)
    for block in (2, 4, 3):
        function(Guarded(numbers, scale, block))
    assert len(session().compilations) == 2 + 1  # the attribute that `plain` reads is guarded for itself

    def add(t: Any) -> Any:
        return t + 1

    armature.reset()
    added = armature.compile(add, backend="eager", fullgraph=True)
    for block in (2, 4, 3):
        added(Guarded(numbers, scale, block))
    assert len(session().compilations) == 2


def test_metadata_that_is_changed_in_place() -> None:
    x = Mutable(torch.ones(3), torch.tensor(2.0), [1])
    compiled = armature.compile(lambda t: t + 1, backend="eager", fullgraph=True)
    for number in (1, 5, 1):
        x.block[0] = number
        assert facts(compiled(x)) == facts(x + 1)


def test_dispatch_code_is_not_compiled() -> None:
    compiled = armature.compile(lambda x, y: (x + y, armature.graph_break(), x * y), backend="eager")
    x, y = two()()
    assert facts(compiled(x, y)[0]) == facts(x + y)
    assert not [record.function for record in session().compilations if record.function.endswith("__torch_dispatch__")]


def test_across_a_graph_break() -> None:
    def program(x: Any, y: Any) -> Any:
        z = TwoTensor(y, y * 2) + x
        armature.graph_break()
        return z * 2, z.a, x.view(-1)

    compare(program, two(), fullgraph=False)


class Opaque(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        args, kwargs = pytree.tree_map_only(Opaque, lambda t: t.inner, (args, kwargs or {}))
        return func(*args, **kwargs)


class Caching(Scaled):
    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        args[0].seen = func
        return super().__torch_dispatch__(func, types, args, kwargs)


class Careless(TwoTensor):
    """Is made again as one of its base class."""


class Holding(Scaled):
    def __tensor_flatten__(self):
        return ["numbers", "block"], {"block": 1}


class Raising(Scaled):
    def __tensor_flatten__(self):
        raise ValueError("not today")


class Incomparable(Mutable):
    pass


class Forgetting(Scaled):
    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["numbers"], inner["scale"])


X, SCALE = torch.ones(3), torch.tensor(2.0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Opaque(X), "does not say by `__tensor_flatten__`"),
        (Careless(X, X), "gives a tensor of another class"),
        (Caching(X, SCALE), "changes its attributes"),
        (Forgetting(X, SCALE, 3), "loses some of its metadata"),
        (Holding(X, SCALE), "is not a tensor"),
        (Raising(X, SCALE), "raises ValueError: not today"),
        (Incomparable(X, SCALE, object()), "can't be guarded"),
        (Incomparable(X, SCALE, [torch.ones(2)]), "can't be guarded"),
        (TwoTensor(Both(X, X), Both(X, X)), "has a `__torch_function__`"),
        (Scaled(X.to_sparse(), SCALE), "is not a plain tensor"),
    ],
)
def test_what_is_left_to_eager_mode(value: Any, reason: str) -> None:
    compiled = armature.compile(lambda t: t + 1, backend="eager")
    try:
        expected = facts(value + 1)
    except Exception as error:
        with pytest.raises(type(error)):
            compiled(value)
    else:
        assert facts(compiled(value)) == expected
    event = session().compilations[0].breaks[0]
    assert event.type.id == "opaque-subclass"
    assert reason in str(event.facts["reason"])


class Labelled(torch.Tensor):
    pass


class Listing(Scaled):
    def __init__(self, numbers, scale, block=1):
        super().__init__(numbers[0], scale, block)

    @staticmethod
    def __new__(cls, numbers, scale, block=1):
        return torch.Tensor._make_wrapper_subclass(cls, numbers[0].shape, dtype=scale.dtype)

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls([inner["numbers"]], inner["scale"], context["block"])


def test_made_of_tensors_that_override_functions() -> None:
    def program(x: Any, scale: Any) -> Any:
        made = Listing([x], scale)
        return type(made.numbers), made.block

    compiled = armature.compile(program, backend="eager")
    for x in (X, X.as_subclass(Labelled)):
        assert compiled(x, SCALE) == program(x, SCALE)
    assert "overridden-call" in {found.type.id for one in session().compilations for found in one.breaks}


def test_a_leaf_made_inside() -> None:
    def program(y: Any) -> Any:
        made = TwoTensor(y, y)
        return made, made.is_leaf

    compare(program, lambda: (torch.ones(3).requires_grad_(),), fullgraph=False)
    assert session().compilations[0].breaks[0].type.id == "creates-wrapper-leaf"


def test_attributes_are_set_in_eager_mode() -> None:
    def program(x: Any, y: Any) -> Any:
        x.b = y
        return x.b, x * 1

    compare(program, lambda: (TwoTensor(torch.zeros(4), torch.zeros(4)), torch.ones(4)), fullgraph=False)
