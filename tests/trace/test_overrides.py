"""`__torch_function__`: tensor subclasses and function modes, traced into as the user code that they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor

import armature
from armature.pipeline.session import session
from tests.support.tensor_programs import compare, same

HANDLED: dict[Any, Callable[..., Any]] = {}
SEEN: list[Any] = []


class Labelled(torch.Tensor):
    label: str = "none"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, cls):
            result.label = func.__name__
        return result

    def twice(self):
        return self * 2

    @property
    def first(self):
        return self[0]

    @classmethod
    def name(cls):
        return cls.__name__


class Plain(torch.Tensor):
    pass


class Scaled(torch.Tensor):
    @property
    def scale(self):
        return self.held[0]

    @scale.setter
    def scale(self, given):
        self.held = [given * 2, self.sum()]


class Doubling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.Tensor.add else result


class Table(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in HANDLED:
            return HANDLED[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)


class Operators(torch.Tensor):
    def __add__(self, other):
        return torch.sub(self, other)

    def __getitem__(self, key):
        return super().__getitem__(key) + 100

    def __len__(self):
        return 17

    def __neg__(self):
        return self * 5

    def __abs__(self):
        return self * 7

    def __round__(self, digits=0):
        return self * digits

    def __iadd__(self, other):
        return self - other

    def __radd__(self, other):
        return self * 11


class Made(torch.Tensor):
    @staticmethod
    def __new__(cls, data, scale):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, scale):
        self.scale = scale


class Weight(nn.Parameter):
    pass


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def cos(x):
    with torch._C.DisableTorchFunctionSubclass():
        return torch.sin(x) + 7


HANDLED[torch.cos] = cos


class Adding(TorchFunctionMode):
    def __init__(self, by: float = 1.0) -> None:
        super().__init__()
        self.by = by

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result + self.by if func in (torch.sin, F.relu, torch.zeros) else result


class Watching(TorchFunctionMode):
    """Keeps what it is called with."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        SEEN.append((func.__name__, [kind.__name__ for kind in types], len(args), sorted(kwargs or {})))
        return func(*args, **(kwargs or {}))


def of(kind: type, **attributes: Any) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        made = torch.arange(12.0).reshape(3, 4).as_subclass(kind)
        for name, value in attributes.items():
            setattr(made, name, value)
        return made, torch.linspace(1, 2, 4)

    return make


def plain() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(12.0).reshape(3, 4), torch.linspace(1, 2, 4)


def arithmetic(x, y):
    z = torch.sin(x) * y - 1
    return z, 2 - z, y + x, x @ y, -x, x == y, F.relu(x), x.sum(0), torch.stack([x[0], y]), F.softmax(x, dim=-1)


def attributes(x, y):
    return x.shape, x.ndim, x.dtype, x.T, x.size(-1), len(x), x.numel(), x.stride(), x.is_contiguous(), x.requires_grad


def labels(x, y):
    return x.label, (x + y).label, torch.sin(x).label, x.twice().label, x.first.label, x.name(), hasattr(x, "nothing")


def operators(x, y):
    z = x * 1
    z += y
    return x + y, x[0], len(x), -x, y + x, abs(x), round(x, 2), z, 3 + x


def containers(x, y):
    low, high = x.split(2)
    values, indices = x.max(dim=0)
    return low, high, values, indices, list(x), [row.sum() for row in x], torch.cat((x, x)), x.unbind(1)


def kinds(x, y):
    return (
        type(x).__name__,
        isinstance(x, Plain),
        isinstance(x, torch.Tensor),
        type(x + y) is type(x),
        torch.is_tensor(x),
    )


def in_place(x, y):
    x.add_(y)
    x[0] = 5
    x += 1
    return x, x * 2


def changes_attributes(x, y):
    x.seen = 3
    z = x * 2
    z.seen = x.seen + 1
    return x, z, z.seen


def as_subclass(x, y):
    z = x.as_subclass(Labelled) + y
    return z, z.label, z.as_subclass(torch.Tensor), Plain(y) * 2


def switched_off(x, y):
    with torch._C.DisableTorchFunctionSubclass():
        z = x + y
    with torch._C.DisableTorchFunction():
        w = torch.sin(x)
    return z, w, x + y


@pytest.mark.parametrize("kind", [Labelled, Plain, Doubling, Table])
@pytest.mark.parametrize(
    "function", [arithmetic, attributes, containers, kinds, in_place, as_subclass, switched_off, changes_attributes]
)
def test_subclass(kind: type, function: Callable[..., Any]) -> None:
    compare(function, of(kind), fullgraph=True)


def test_what_a_subclass_adds() -> None:
    compare(labels, of(Labelled, label="mine"), fullgraph=True)
    compare(lambda x, y: (torch.cos(x), x.cos(), torch.sin(x)), of(Table), fullgraph=True)
    compare(operators, of(Operators), fullgraph=True)
    compare(lambda x, y: (x + x.tag, x.tag), of(Labelled, tag=3), fullgraph=True)


def test_the_input_in_another_class_is_all_there_is() -> None:
    compare(lambda x, y: x.as_subclass(Labelled), plain, fullgraph=True)

    class Local(torch.Tensor):
        pass

    def of_a_local_class(x, y):
        class Inner(Local):
            pass

        z = y.as_subclass(Inner)
        return type(z).__name__, x.as_subclass(Local), z + 1

    given = plain()
    assert str(armature.compile(of_a_local_class, backend="eager")(*given)) == str(of_a_local_class(*given))


def test_subclass_made_inside() -> None:
    def program(x, y):
        made = Made(x, 3)
        return made, made.scale, made * made.scale

    compare(program, plain, fullgraph=True)


def sets_properties(x, y):
    x.scale = y
    z = x * 2
    z.scale = 3.0
    made = y.as_subclass(Scaled)
    made.scale = x.scale
    return z, z.held, made.scale, x * z.scale


def test_properties_are_set() -> None:
    compare(sets_properties, of(Scaled), fullgraph=True)
    compiled = armature.compile(lambda x: setattr(x, "scale", 3.0) or x.scale, backend="eager")
    assert compiled(torch.ones(2).as_subclass(Scaled)) == 6
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scaled, "scale", Scaled.scale.setter(lambda self, given: setattr(self, "held", [given * 5])))
        assert compiled(torch.ones(2).as_subclass(Scaled)) == 15


def test_gradients() -> None:
    for kind in (Labelled, Doubling, Plain):

        def make(kind: type = kind) -> tuple[Any, ...]:
            return torch.arange(4.0).as_subclass(kind).requires_grad_(), torch.linspace(1, 2, 4).requires_grad_()

        compare(lambda x, y: (x * y).sin() + x, make, fullgraph=True, backward=True)

        def later(kind: type = kind) -> tuple[Any, ...]:
            return (torch.arange(4.0).requires_grad_() * 2).as_subclass(kind), torch.ones(4)

        compare(lambda x, y: (x * y).sin() + x, later, fullgraph=True)


@pytest.mark.parametrize("backend", ["aot_eager", "auto"])
def test_other_backends(backend: str) -> None:
    fn = lambda x, y: (x * y + 1).relu() - x  # noqa: E731
    for kind in (Labelled, Doubling):
        compiled = armature.compile(fn, backend=backend, fullgraph=True)
        results = []
        for run in (fn, compiled):
            x = torch.arange(4.0).as_subclass(kind).requires_grad_()
            out = run(x, torch.ones(4))
            out.sum().backward()
            results.append((out.detach(), x.grad))
        same(results[1], results[0], "result")
    compiled = armature.compile(lambda x: torch.sin(x) * 2, backend=backend, fullgraph=True)
    with Adding():
        found = compiled(torch.ones(3))
    assert torch.allclose(found, (torch.sin(torch.ones(3)) + 1) * 2)


def test_parameters_of_a_subclass() -> None:
    class Model(nn.Module):
        def __init__(self, kind: type) -> None:
            super().__init__()
            self.w = kind(torch.ones(4))

        def forward(self, x: torch.Tensor) -> Any:
            return x * self.w, type(self.w).__name__, isinstance(self.w, nn.Parameter)

    for kind in (Weight, nn.Parameter):
        compare(lambda m, x: m(x), lambda kind=kind: (Model(kind), torch.ones(4)), fullgraph=True, backward=True)


def test_no_class_takes_the_call() -> None:
    x = torch.ones(3).as_subclass(Refusing)
    errors = []
    for run in (fn := lambda x: x + 1, armature.compile(fn, backend="eager")):
        with pytest.raises(TypeError) as raised:
            run(x)
        errors.append(str(raised.value))
    assert errors[0] == errors[1]


def test_operators_of_a_subclass_run_eagerly() -> None:
    def make() -> tuple[Any, ...]:
        return TwoTensor(torch.ones(3), torch.zeros(3)), torch.ones(3)

    compiled = armature.compile(lambda x, y: (x + y, y * 2), backend="eager")
    found, expected = compiled(*make()), (make()[0] + make()[1], make()[1] * 2)
    assert type(found[0]) is TwoTensor
    same((found[0].a, found[0].b, found[1]), (expected[0].a, expected[0].b, expected[1]), "result")


class Duck:
    """No tensor, and torch's functions take it."""

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        inner = [arg.held if isinstance(arg, Duck) else arg for arg in args]
        return Duck(func(*inner, **(kwargs or {})))


def test_object_that_is_no_tensor() -> None:
    def program(x, y):
        return (torch.sin(x) if isinstance(x, torch.Tensor) else torch.add(torch.sin(x), y)).held, torch.cos(
            Duck(y)
        ).held

    compare(program, lambda: (Duck(torch.arange(4.0)), torch.ones(4)), fullgraph=True)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.conv = nn.Linear(3, 3), nn.LayerNorm(3), nn.Conv2d(1, 2, 3)
        self.attention = nn.MultiheadAttention(3, 1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.linear(x))
        attended, _ = self.attention(y[None], y[None], y[None])
        image = F.max_pool2d(self.conv(x.new_ones(1, 1, 5, 5)), 2).sum()
        with torch.no_grad():
            shift = torch.einsum("ij,ij->", y, y) + 2 ** x[0, 0]
        return F.cross_entropy(y, torch.zeros(2, dtype=torch.long)) + attended.sum() + image + shift


def test_layers() -> None:
    torch.manual_seed(0)
    model = Net()
    x = torch.arange(6.0).reshape(2, 3)
    compiled = armature.compile(model, backend="eager", fullgraph=True)
    same(compiled(x.as_subclass(Labelled)), model(x.as_subclass(Labelled)), "result")
    heard = []
    for run in (model, compiled):
        SEEN.clear()
        with Watching():
            run(x)
        heard.append(list(SEEN))
    assert heard[0] == heard[1] and len(heard[0]) > 20


# Modes.


def with_mode(x, y):
    with Adding(3):
        z = torch.sin(x)
        w = F.relu(z)
    return z, w, torch.sin(x)


def nested_modes(x, y):
    with Adding(3), Adding(y.shape[0]) as inner:
        z = torch.sin(x)
        inner.by = 7
        w = torch.sin(x)
    return z, w, inner.by


def factories(x, y):
    with Adding(2):
        return torch.zeros(3), torch.ones(2)


def mode_and_grad(x, y):
    with Adding(2), torch.no_grad():
        z = torch.sin(x)
    return z, torch.is_grad_enabled()


def mode_and_subclass(x, y):
    with Adding(2):
        return torch.sin(x.as_subclass(Labelled)), torch.sin(x)


def mode_raises(x, y):
    try:
        with Adding(2):
            raise ValueError("inside")
    except ValueError:
        return torch.sin(x)


def device_context(x, y):
    with torch.device("meta"):
        z = torch.zeros(3)
        d = torch.get_default_device()
    return z.device, d, torch.zeros(2).device, torch.ones(2, device="cpu")


GLOBAL_MODE = Adding(4)


def mode_of_the_program(x, y):
    with GLOBAL_MODE:
        return torch.sin(x)


def passing_modes(x, y):
    with torch.overrides.BaseTorchFunctionMode():
        return torch.sin(x) + y, x.shape, len(x), [row * 2 for row in x]


MODES = [
    with_mode, nested_modes, factories, mode_and_grad, mode_and_subclass, mode_raises, device_context,
    mode_of_the_program, passing_modes,
]  # fmt: skip


@pytest.mark.parametrize("function", MODES)
def test_mode(function: Callable[..., Any]) -> None:
    compare(function, plain, fullgraph=True)
    compare(function, plain, fullgraph=True, around=lambda: Adding(10))


@pytest.mark.parametrize("function", [arithmetic, attributes, containers, in_place])
@pytest.mark.parametrize("make", [plain, of(Labelled)], ids=["plain", "subclass"])
def test_mode_sees_what_it_sees_in_eager_mode(function: Callable[..., Any], make: Callable[[], Any]) -> None:
    compiled = armature.compile(function, backend="eager", fullgraph=True)
    heard = []
    for run in (function, compiled, compiled):
        SEEN.clear()
        arguments = make()
        with Watching():
            run(*arguments)
        heard.append(list(SEEN))
    assert heard[0] and heard[1] == heard[0] and heard[2] == heard[0]


def test_break_inside_a_mode() -> None:
    def program(x, y):
        with Adding(3):
            z = torch.sin(x)
            armature.graph_break("here")
            w = torch.sin(z)
        return z, w, torch.sin(y)

    compare(program, plain, fullgraph=False)
    compare(program, plain, fullgraph=False, around=lambda: Adding(10))


def test_break_with_overriding_off() -> None:
    def program(x, y):
        with torch._C.DisableTorchFunctionSubclass():
            z = x + y
            armature.graph_break("here")
            w = z + x
        return z, w, x + y

    compare(program, of(Doubling), fullgraph=False)


def test_mode_entered_without_with() -> None:
    def program(x, y):
        GLOBAL_MODE.__enter__()
        z = torch.sin(x)
        armature.graph_break("here")
        GLOBAL_MODE.__exit__(None, None, None)
        return z, torch.sin(x)

    compare(program, plain, fullgraph=False)


def test_dynamic_sizes_are_read_without_asking() -> None:
    fn = lambda x: torch.sin(x) * x.shape[0] + x.shape[0]  # noqa: E731
    compiled = armature.compile(fn, backend="eager", fullgraph=True, dynamic=True)
    for rows in (2, 3, 4):
        for x in (torch.ones(rows, 2), torch.ones(rows, 2).as_subclass(Labelled)):
            heard = []
            for run in (fn, compiled):
                SEEN.clear()
                with Watching():
                    heard.append((run(x), list(SEEN)))
            same(heard[1][0], heard[0][0], "result")
            assert heard[1][1] == heard[0][1]


# Guards.


def compilations() -> int:
    return len(session().compilations)


def test_guards_on_classes_and_attributes() -> None:
    class Local(torch.Tensor):
        factor = 2

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            result = super().__torch_function__(func, types, args, kwargs)
            return result * cls.factor if func is torch.sin else result

    fn = lambda x: torch.sin(x)  # noqa: E731
    compiled = armature.compile(fn, backend="eager", fullgraph=True)

    def check(x: torch.Tensor, again: bool) -> None:
        before = compilations()
        same(compiled(x), fn(x), "result")
        assert (compilations() > before) == again

    data = torch.ones(3)
    check(data, True)
    check(data.as_subclass(Local), True)
    check(data.as_subclass(Local), False)
    check(data.as_subclass(Plain), True)
    check(data, False)
    Local.factor = 5
    check(data.as_subclass(Local), True)
    Local.__torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: "mine")  # type: ignore
    assert compiled(data.as_subclass(Local)) == "mine"


def test_guards_on_modes() -> None:
    fn = lambda x: torch.sin(x)  # noqa: E731
    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(3)

    def check(again: bool) -> None:
        before = compilations()
        same(compiled(x), fn(x), "result")
        assert (compilations() > before) == again

    check(True)
    mode = Adding(2)
    with mode:
        check(True)
        check(False)
        mode.by = 5
        check(True)
        with Adding(5):
            check(True)
        check(False)
    with Adding(5):
        check(False)
    with Watching():
        check(True)
    check(False)
    with torch.device("cpu"):
        check(True)
