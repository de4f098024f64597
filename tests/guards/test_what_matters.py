"""One thing is changed after compiling: the next call compiles again and gives what eager gives."""

from __future__ import annotations

import functools
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import armature
from armature.pipeline.session import session

SCALE = 2.0
NAMES = ["a", "b"]
TABLE = {"a": 1, "b": 2}
MODULE = types.ModuleType("settings_of_the_program")
MODULE.factor = 3  # type: ignore[attr-defined]

Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], Callable[[], Any]]


class Kind(Enum):
    LOW = 1
    HIGH = 2


class Plain:
    shared = 1
    __slots__ = ("__dict__", "slot")

    def __init__(self, depth: Any = 1) -> None:
        self.depth = depth
        self.slot = 5

    def method(self, t: Any) -> Any:
        return t * self.depth

    @property
    def double(self) -> Any:
        return self.depth * 2


class Child(Plain):
    pass


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("steps", torch.zeros(()))
        self.scale = 2

    def forward(self, t: Any) -> Any:
        t = t * self.weight + self.steps
        return t * self.scale if self.training else t


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.by_name = nn.ModuleDict({"only": Layer()})

    def forward(self, t: Any) -> Any:
        for layer in self.layers:
            t = layer(t)
        return sum(part(t) for part in self.by_name.values())


class Tagged(torch.Tensor):
    pass


def x() -> torch.Tensor:
    return torch.arange(3.0)


def helper(t: Any, by: Any = 2, *, shift: Any = 0) -> Any:
    return t * by + shift


def other_helper(t: Any, by: Any = 2, *, shift: Any = 0) -> Any:
    return t - by + shift


def set_default(fn: Any, *values: Any) -> None:
    fn.__defaults__ = values


INPUTS: dict[str, tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]] = {
    "dtype": (x, lambda: x().double()),
    "shape": (x, lambda: torch.ones(4)),
    "rank": (x, lambda: torch.ones(3, 1)),
    "stride": (lambda: torch.ones(2, 3), lambda: torch.ones(3, 2).t()),
    "expanded": (lambda: torch.ones(2, 3), lambda: torch.ones(3).expand(2, 3)),
    "requires_grad": (x, lambda: x().requires_grad_()),
    "no longer requires_grad": (lambda: x().requires_grad_(), x),
    "parameter": (x, lambda: nn.Parameter(x(), requires_grad=False)),
    "subclass": (x, lambda: x().as_subclass(Tagged)),
    "device": (x, lambda: torch.ones(3, device="meta")),
    "layout": (x, lambda: x().to_sparse()),
    "conjugate": (lambda: torch.ones(3) * 1j, lambda: (torch.ones(3) * 1j).conj()),
    "negative view": (lambda: torch.ones(3), lambda: torch._neg_view(torch.ones(3))),
    "empty": (x, lambda: torch.ones(0)),
    "not a tensor": (x, lambda: 3),  # type: ignore[dict-item,return-value]
    "none": (x, lambda: None),  # type: ignore[dict-item,return-value]
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str, watch: Any) -> None:
    def fn(t: Any) -> Any:
        if t is None:
            return torch.zeros(1)
        if not isinstance(t, torch.Tensor):
            return torch.ones(1) * t
        return (t * 2).shape, t.stride() if t.layout is torch.strided else 0, str(t.dtype), t.is_conj(), type(t)

    first, second = INPUTS[name]
    compiled = watch(fn).compiled
    assert str(compiled(first())) == str(fn(first()))
    before = len(records())
    assert str(compiled(second())) == str(fn(second()))
    assert len(records()) > before, "the frame was not looked at again"


def records() -> Any:
    return session().compilations


def case_global(patch: Any) -> Case:
    return (lambda t: t * SCALE), lambda: (x(),), lambda: patch.setitem(globals(), "SCALE", 5.0)


def case_global_type(patch: Any) -> Case:
    return (lambda t: t * (SCALE if SCALE else 1)), lambda: (x(),), lambda: patch.setitem(globals(), "SCALE", False)


def case_global_removed(patch: Any) -> Case:
    def fn(t: Any) -> Any:
        try:
            return t * SCALE
        except NameError:
            return t

    return fn, lambda: (x(),), lambda: patch.delitem(globals(), "SCALE")


def case_builtin_hidden(patch: Any) -> Case:
    return (lambda t: t * len(NAMES)), lambda: (x(),), lambda: patch.setitem(globals(), "len", lambda _: 9)


def case_global_list(patch: Any) -> Case:
    return (lambda t: t * len(NAMES)), lambda: (x(),), lambda: patch.setitem(globals(), "NAMES", ["a"])


def case_global_list_item(patch: Any) -> Case:
    return (lambda t: t * len(NAMES[0])), lambda: (x(),), lambda: patch.setitem(globals(), "NAMES", ["abc", "b"])


def case_dict_item(patch: Any) -> Case:
    return (lambda t: t * TABLE["a"]), lambda: (x(),), lambda: patch.setitem(TABLE, "a", 7)


def case_dict_key(patch: Any) -> Case:
    return (lambda t: t * ("z" in TABLE)), lambda: (x(),), lambda: patch.setitem(TABLE, "z", 7)


def case_dict_key_gone(patch: Any) -> Case:
    return (lambda t: t * TABLE.get("a", 9)), lambda: (x(),), lambda: patch.delitem(TABLE, "a")


def case_dict_length(patch: Any) -> Case:
    return (lambda t: t * len(TABLE)), lambda: (x(),), lambda: patch.setitem(TABLE, "z", 7)


def case_dict_order(patch: Any) -> Case:
    def fn(t: Any) -> Any:
        return t * (2 if next(iter(TABLE)) == "a" else 3)

    return fn, lambda: (x(),), lambda: patch.setitem(globals(), "TABLE", dict(reversed(TABLE.items())))


def case_module_attribute(patch: Any) -> Case:
    return (lambda t: t * MODULE.factor), lambda: (x(),), lambda: patch.setattr(MODULE, "factor", 4)


def case_enum(patch: Any) -> Case:
    held = Plain(Kind.LOW)

    def fn(t: Any, p: Any) -> Any:
        return t * 2 if p.depth is Kind.LOW else t

    return fn, lambda: (x(), held), lambda: setattr(held, "depth", Kind.HIGH)


def case_closure(patch: Any) -> Case:
    inner = 2

    def change() -> None:
        nonlocal inner
        inner = 3

    return (lambda t: t * inner), lambda: (x(),), change


def case_closure_below(patch: Any) -> Case:
    inner = 2

    def scaled(t: Any) -> Any:
        return t * inner

    def change() -> None:
        nonlocal inner
        inner = 3

    return (lambda t: scaled(t) + 1), lambda: (x(),), change


def case_closure_tensor(patch: Any) -> Case:
    inner = torch.ones(3)

    def change() -> None:
        nonlocal inner
        inner = torch.ones(1, 3)

    return (lambda t: t * inner), lambda: (x(),), change


def case_attribute(patch: Any) -> Case:
    held = Plain()
    return (lambda t, p: t * p.depth), lambda: (x(), held), lambda: setattr(held, "depth", 4)


def case_attribute_gone(patch: Any) -> Case:
    held = Plain()
    return (lambda t, p: t * hasattr(p, "depth")), lambda: (x(), held), lambda: delattr(held, "depth")


def case_attribute_new(patch: Any) -> Case:
    held = Plain()
    return (lambda t, p: t * getattr(p, "extra", 2)), lambda: (x(), held), lambda: setattr(held, "extra", 4)


def case_attribute_of_the_class_new(patch: Any) -> Case:
    held = Plain()
    fn = lambda t, p: t * getattr(p, "extra", 2)  # noqa: E731
    return fn, lambda: (x(), held), lambda: patch.setattr(Plain, "extra", 4, raising=False)


def case_attribute_of_the_base_hidden(patch: Any) -> Case:
    held = Child()
    return (lambda t, p: t * p.shared), lambda: (x(), held), lambda: patch.setattr(Child, "shared", 4, raising=False)


def case_slot(patch: Any) -> Case:
    held = Plain()
    return (lambda t, p: t * p.slot), lambda: (x(), held), lambda: setattr(held, "slot", 4)


def case_class_attribute(patch: Any) -> Case:
    return (lambda t: t * Plain.shared), lambda: (x(),), lambda: patch.setattr(Plain, "shared", 4)


def case_method(patch: Any) -> Case:
    held = Plain()
    fn = lambda t, p: p.method(t)  # noqa: E731
    return fn, lambda: (x(), held), lambda: patch.setattr(Plain, "method", lambda self, t: t - 1)


def case_method_of_the_object(patch: Any) -> Case:
    held = Plain()
    return (lambda t, p: p.method(t)), lambda: (x(), held), lambda: setattr(held, "method", lambda t: t - 1)


def case_property(patch: Any) -> Case:
    held = Plain()
    fn = lambda t, p: t * p.double  # noqa: E731
    return fn, lambda: (x(), held), lambda: patch.setattr(Plain, "double", property(lambda self: 7))


def case_type_of_argument(patch: Any) -> Case:
    held = [Plain(), Child()]
    fn = lambda t, p: t * 2 if type(p) is Plain else t  # noqa: E731
    return fn, lambda: (x(), held[0]), lambda: held.reverse()


def case_function(patch: Any) -> Case:
    return (lambda t: helper(t)), lambda: (x(),), lambda: patch.setitem(globals(), "helper", other_helper)


def case_function_argument(patch: Any) -> Case:
    held = [helper, other_helper]
    return (lambda t, f: f(t)), lambda: (x(), held[0]), lambda: held.reverse()


def case_code(patch: Any) -> Case:
    return (lambda t: helper(t)), lambda: (x(),), lambda: patch.setattr(helper, "__code__", other_helper.__code__)


def case_code_of_a_method(patch: Any) -> Case:
    held = Plain()
    code = (lambda self, t: t - self.depth).__code__
    return (lambda t, p: p.method(t)), lambda: (x(), held), lambda: patch.setattr(Plain.method, "__code__", code)


def case_default(patch: Any) -> Case:
    return (lambda t: helper(t)), lambda: (x(),), lambda: patch.setattr(helper, "__defaults__", (4,))


def case_more_defaults(patch: Any) -> Case:
    def inner(a: Any, b: Any = 2, c: Any = 3) -> Any:
        return a * b + c

    def fn(t: Any) -> Any:
        try:
            return inner(t)
        except TypeError:
            return t

    return fn, lambda: (x(),), lambda: setattr(inner, "__defaults__", (3,))


def case_shifted_defaults(patch: Any) -> Case:
    def inner(a: Any, b: Any = 2, c: Any = 3) -> Any:
        return a * b + c

    def fn(t: Any) -> Any:
        try:
            return t + inner(1)
        except TypeError:
            return t

    return fn, lambda: (x(),), lambda: set_default(inner, 2, 3, 5)


def case_keyword_default(patch: Any) -> Case:
    return (lambda t: helper(t)), lambda: (x(),), lambda: patch.setattr(helper, "__kwdefaults__", {"shift": 4})


def case_own_default(patch: Any) -> Case:
    def fn(t: Any, by: Any = 2) -> Any:
        return t * by

    return fn, lambda: (x(),), lambda: set_default(fn, 3)


def case_partial(patch: Any) -> Case:
    held = [functools.partial(helper, by=2), functools.partial(helper, by=3)]
    return (lambda t, f: f(t)), lambda: (x(), held[0]), lambda: held.reverse()


def case_local_function(patch: Any) -> Case:
    def make(by: Any) -> Any:
        return lambda t: t * by

    held = [make(2), make(3)]
    return (lambda t, f: f(t)), lambda: (x(), held[0]), lambda: held.reverse()


VALUES: dict[str, tuple[Any, Any]] = {
    "int": (2, 3),
    "bool for int": (1, True),
    "float for int": (2, 2.0),
    "sign of zero": (0.0, -0.0),
    "nan": (1.0, float("nan")),
    "string": ("a", "bc"),
    "bytes": (b"a", b"bc"),
    "none": (2, None),
    "complex": (1j, 2j),
    "tuple": ((1, 2), (1, 3)),
    "longer tuple": ((1, 2), (1, 2, 3)),
    "list": ([1, 2], [1, 3]),
    "longer list": ([1, 2], [1, 2, 3]),
    "tuple for list": ([1, 2], (1, 2)),
    "set": ({1}, {2}),
    "frozenset": (frozenset({1}), frozenset({2})),
    "range": (range(3), range(4)),
    "slice": (slice(1, 2), slice(0, 2)),
    "dict": ({"a": 1}, {"a": 2}),
    "dict of another kind": ({"a": 1}, OrderedDict(a=1)),
    "nested": ({"a": [1, (2,)]}, {"a": [1, (3,)]}),
    "dtype": (torch.float32, torch.float64),
    "size": (torch.Size([1]), torch.Size([2])),
    "enum": (Kind.LOW, Kind.HIGH),
    "class": (Plain, Child),
    "deque": (deque([1]), deque([2])),
    "object": (Plain(1), Plain(2)),
    "object in a list": ([Plain(1)], [Plain(2)]),
}


def text_of(value: Any) -> str:
    """Reads all there is to a value."""
    if isinstance(value, Plain):
        return f"plain {value.depth}"
    if isinstance(value, slice):
        return f"{value.start} {value.stop}"
    if isinstance(value, dict):
        return " ".join(f"{key} {text_of(held)}" for key, held in value.items()) + type(value).__name__
    if isinstance(value, (list, tuple, deque, range)):
        return " ".join(text_of(held) for held in value) + type(value).__name__
    return f"{value!r}"


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str, watch: Any) -> None:
    def fn(t: Any, value: Any) -> Any:
        return t * 2, text_of(value)

    first, second = VALUES[name]
    compiled = watch(fn).compiled
    for value in (first, second, first):
        assert compiled(x(), value)[1] == fn(x(), value)[1]


WHOLE: dict[str, tuple[Any, Any]] = {
    "another item": ((1, 2), (1, 3)),
    "shorter": ((1, 2), (1,)),
    "longer": ((1, 2), (1, 2, 3)),
    "empty": ((1,), ()),
    "bool for int": ((1, 2), (True, 2)),
    "float for int": ([1, 2], [1, 2.0]),
    "sign of zero": ((0.0, 1), (-0.0, 1)),
    "none": ((1, None), (1, 0)),
    "list for tuple": ((1, 2), [1, 2]),
    "torch.Size for tuple": ((1, 2), torch.Size((1, 2))),
    "nested": (((1, 2), (3, 4)), ((1, 2), (3, 5))),
    "nested list": (((1, 2), (3,)), ((1, 2), [3])),
    "dtype": ((1, torch.float32), (1, torch.float64)),
    "many items": (tuple(range(40)), (*range(39), 40)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_sequences_taken_whole(name: str, watch: Any) -> None:
    def fn(t: Any, value: Any) -> Any:
        return t * 2, repr(value)

    first, second = WHOLE[name]
    compiled = watch(fn).compiled
    for value in (first, second, first, second):
        assert compiled(x(), value)[1] == fn(x(), value)[1]


def test_no_python_runs_to_check_the_settings_of_layers() -> None:
    """One call of a function for each tuple would take longer than all other guards of the layer."""
    model = nn.Sequential(
        nn.Conv2d(2, 2, 3, stride=2, padding=1), nn.AvgPool2d(2), nn.MaxPool2d((2, 1)), nn.Dropout(0.0)
    )
    compiled, given, called = armature.compile(model), torch.ones(1, 2, 8, 8), []
    compiled(given)
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code) if event == "call" else None)
    try:
        compiled(given)
    finally:
        sys.setprofile(None)
    assert not [code for code in called if "frame/guards" in code.co_filename]


def net_case(change: Callable[[Net], Any]) -> Callable[[Any], Case]:
    def make(patch: Any) -> Case:
        net = Net()
        return (lambda t, m: m(t)), lambda: (x(), net), lambda: change(net)

    return make


def wrapped_forward(net: Net) -> None:
    layer = net.layers[0]
    plain = layer.forward
    layer.forward = lambda t: plain(t) + 1  # type: ignore[method-assign]


NET_CHANGES: dict[str, Callable[[Net], Any]] = {
    "training flag": lambda net: net.eval(),
    "training flag of a layer": lambda net: net.layers[1].eval(),
    "attribute of a layer": lambda net: setattr(net.layers[1], "scale", 5),
    "parameter replaced by another shape": lambda net: setattr(net.layers[0], "weight", nn.Parameter(torch.ones(1))),
    "parameter replaced by another dtype": lambda net: net.double(),
    "parameter frozen": lambda net: net.layers[0].weight.requires_grad_(False),
    "parameter gone": lambda net: delattr(net.layers[0], "weight"),
    "buffer of another shape": lambda net: setattr(net.layers[0], "steps", torch.ones(3)),
    "layer added": lambda net: net.layers.append(Layer()),
    "layer removed": lambda net: net.layers.pop(1),
    "layer of another class": lambda net: net.layers.__setitem__(0, nn.Identity()),
    "entry added": lambda net: net.by_name.update({"more": Layer()}),
    "forward replaced": wrapped_forward,
    "forward hook": lambda net: net.layers[0].register_forward_hook(lambda m, args, out: out + 1),
    "forward pre-hook": lambda net: net.layers[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
    "backward hook": lambda net: net.layers[0].register_full_backward_hook(lambda m, a, b: None),
    "hook of the outermost": lambda net: net.register_forward_hook(lambda m, args, out: out + 1),
}


def case_global_hook(patch: Any) -> Case:
    net = Net()
    hooks = torch.nn.modules.module._global_forward_hooks
    return (lambda t, m: m(t)), lambda: (x(), net), lambda: patch.setitem(hooks, -1, lambda m, args, out: out + 1)


CASES: dict[str, Callable[[Any], Case]] = {
    **{name.removeprefix("case_"): held for name, held in globals().items() if name.startswith("case_")},
    **{name: net_case(change) for name, change in NET_CHANGES.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_changes(name: str, watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fn, make, change = CASES[name](monkeypatch)
    watched = watch(fn)
    assert watched.compiles(make)
    assert not watched.compiles(make), "the second call is served by the cache"
    before = len(records())
    change()
    watched.compiles(make)
    assert len(records()) > before, "the frame was not looked at again"


class Twice(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return found * 2 if func is torch.sin else found


STATES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "function mode": Twice,
}


@pytest.mark.parametrize("name", STATES)
def test_state_of_torch(name: str, watch: Any) -> None:
    def fn(t: Any) -> Any:
        made = torch.ones(3)
        product = t.unsqueeze(0) @ t.unsqueeze(1)
        return torch.sin(t), made.device.type, product.dtype, torch.is_grad_enabled(), product.requires_grad

    arguments = (torch.ones(3, requires_grad=True),)
    watched = watch(fn)
    assert watched.compiles(lambda: arguments)
    with STATES[name]():
        before = len(records())
        watched.compiles(lambda: arguments)
        assert len(records()) > before
    assert not watched.compiles(lambda: arguments)


def test_default_dtype(watch: Any) -> None:
    watched = watch(lambda t: torch.ones(3) + t)
    assert watched.compiles(lambda: (1,))
    torch.set_default_dtype(torch.float64)
    try:
        assert watched.compiles(lambda: (1,))
    finally:
        torch.set_default_dtype(torch.float32)
    assert not watched.compiles(lambda: (1,))


def test_deterministic_algorithms(watch: Any) -> None:
    watched = watch(lambda t: t + torch.are_deterministic_algorithms_enabled())
    assert watched.compiles(lambda: (x(),))
    torch.use_deterministic_algorithms(True)
    try:
        assert watched.compiles(lambda: (x(),))
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_int_of_a_comparison_is_an_int(watch: Any) -> None:
    def fn(t: Any, n: int) -> Any:
        return t * n, int(n > 4), str(int(n % 2 == 0))

    watched = watch(fn)
    for n in (3, 4, 5, 6, 7):
        watched.compiles(lambda n=n: (x(), n))
