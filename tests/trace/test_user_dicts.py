"""Subclasses of dict, `__dict__`, and `__getattribute__` of the program's own."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature


class Registry(dict):
    """Its keys are made from what it is given, its `in` and iteration are its own."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(str(key), value)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(str(key))

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(str(key), default)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(str(key))

    def __iter__(self) -> Any:
        return iter(sorted(super().keys()))


class Default(dict):
    def __missing__(self, key: Any) -> Any:
        self[key] = made = len(self)
        return made


class Ordered(collections.OrderedDict):
    label = "class"


@dataclasses.dataclass
class Output(collections.OrderedDict):
    """Attributes and items in one, in the manner of Hugging Face's ModelOutput."""

    loss: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = self.__dict__.get(field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, key: Any) -> Any:
        return dict(self.items())[key] if isinstance(key, str) else tuple(self[k] for k in self.keys())[key]

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Config:
    """Attributes under other names."""

    names = {"width": "hidden"}

    def __init__(self) -> None:
        self.hidden = 3

    def __getattribute__(self, name: str) -> Any:
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        if name == "computed":
            return self.width + 1
        raise AttributeError(name)


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


REGISTRY = Registry()
REGISTRY[1] = 5
DEFAULT = Default(a=7)
ORDERED = Ordered(b=2, a=1)
ORDERED.extra = 4
CONFIG = Config()


def reads_registry(x: torch.Tensor) -> Any:
    return x * REGISTRY[1] + REGISTRY.get(2, 3), 1 in REGISTRY, "2" in REGISTRY, list(REGISTRY), len(REGISTRY)


def makes_registry(x: torch.Tensor) -> Any:
    made = Registry()
    made[1] = x + 1
    made[2] = x
    return made, made["1"] * 2


def missing_key(x: torch.Tensor) -> Any:
    made = Default(a=1)
    return x + made["a"] + made["b"] + made["c"], made


def missing_key_of_global(x: torch.Tensor) -> Any:
    return x + DEFAULT["a"]


def ordered(x: torch.Tensor) -> Any:
    made = Ordered(ORDERED)
    made.move_to_end("b")
    made.note = x * 2
    return x + ORDERED["a"], list(ORDERED.items()), made, ORDERED.extra, ORDERED.label, made.note


def from_keys(x: torch.Tensor) -> Any:
    return dict.fromkeys(["a", "b"], x + 1), dict.fromkeys(range(2))


def model_output(x: torch.Tensor) -> Any:
    made = Output(logits=x + 1)
    made["loss"] = x.sum()
    return made, made.loss, made["logits"], made[0], list(made)


def model_output_in(x: torch.Tensor, given: Output) -> Any:
    return x + given.logits, given[0], given.get("loss"), "logits" in given


def own_lookup(x: torch.Tensor) -> Any:
    return x * CONFIG.width + CONFIG.computed, hasattr(CONFIG, "other"), getattr(CONFIG, "hidden", 0)


def live_dict(x: torch.Tensor) -> Any:
    made = Plain(a=x, b=2)
    names = made.__dict__
    made.c = x + names["b"]
    names["d"] = 5
    del made.b
    return made.c + made.d, sorted(names), vars(made)["a"], "b" in names, len(names)


def dict_of_argument(x: torch.Tensor, given: Plain) -> Any:
    given.added = x + 1
    given.__dict__["more"] = given.__dict__["width"] + 1
    return {name: value for name, value in given.__dict__.items() if name != "added"}, given.more


CASES: list[tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = [
    (reads_registry, tuple),
    (makes_registry, tuple),
    (missing_key, tuple),
    (missing_key_of_global, tuple),
    (ordered, tuple),
    (from_keys, tuple),
    (model_output, tuple),
    (model_output_in, lambda: (Output(logits=torch.ones(3)),)),
    (own_lookup, tuple),
    (live_dict, tuple),
    (dict_of_argument, lambda: (Plain(width=2),)),
]


@pytest.mark.parametrize(("function", "more"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_as_in_eager_mode(function: Callable[..., Any], more: Callable[[], tuple[Any, ...]]) -> None:
    x = torch.arange(3.0)
    expected_args, args = more(), more()
    expected = function(x, *expected_args)
    found = armature.compile(function, backend="eager", fullgraph=True)(x, *args)
    assert_equal(found, expected)
    assert_equal(args, expected_args)


def assert_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, dict):
        items = (collections.OrderedDict if isinstance(expected, collections.OrderedDict) else dict).items
        assert_equal([*items(found)], [*items(expected)])
        assert_equal(list(found.keys()), list(expected.keys()))
        assert_equal(getattr(found, "__dict__", None), getattr(expected, "__dict__", None))
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_equal(one, other)
    elif isinstance(expected, Plain):
        assert_equal(vars(found), vars(expected))
    else:
        assert found == expected


def test_writes_to_a_global_are_replayed() -> None:
    held = Registry()

    def write(x: torch.Tensor) -> torch.Tensor:
        held[3] = x + 1
        held[4] = 2
        return x * held[4]

    armature.compile(write, backend="eager", fullgraph=True)(torch.ones(2))
    assert list(dict.keys(held)) == ["3", "4"]
    torch.testing.assert_close(held[3], torch.full((2,), 2.0))


@pytest.mark.parametrize(
    "change",
    [lambda d: d.__setitem__(1, 6), lambda d: d.__setitem__(9, 1), lambda d: d.pop("1")],
    ids=["value", "new key", "gone"],
)
def test_a_change_is_seen(change: Callable[[Registry], Any]) -> None:
    held = Registry()
    held[1] = 5

    def read(x: torch.Tensor) -> torch.Tensor:
        return x + held.get(1, 0) + sum(dict.values(held))

    compiled = armature.compile(read, backend="eager", fullgraph=True)
    x = torch.ones(2)
    torch.testing.assert_close(compiled(x), read(x))
    change(held)
    torch.testing.assert_close(compiled(x), read(x))


def held_of_tensor(x: torch.Tensor) -> Any:
    x.tag = 1
    x.__dict__.pop("tag")
    return x + 1, hasattr(x, "tag")


def held_over_a_break(x: torch.Tensor) -> Any:
    x.tag = 1
    held = x.__dict__
    print(end="")
    held.pop("tag")
    held["other"] = 2
    return x + 1, hasattr(x, "tag"), x.other


def held_of_a_made_tensor(x: torch.Tensor) -> Any:
    y = x * 2
    y.tag = 1
    held = y.__dict__
    held["other"] = held.pop("tag") + 1
    return x + 1, hasattr(y, "tag"), y.other


def held_of_a_function(x: torch.Tensor) -> Any:
    held = marked.__dict__
    marked.tag = 1
    found = [held.pop("tag"), hasattr(marked, "tag")]
    held["tag"] = 2
    found += [marked.tag, held is marked.__dict__]
    del marked.tag
    return x + 1, found, "tag" in held


def marked() -> None: ...


@pytest.mark.parametrize("fn", [held_of_tensor, held_over_a_break, held_of_a_made_tensor, held_of_a_function])
def test_the_dict_of_a_tensor_or_function_is_its_attributes(fn: Callable[[torch.Tensor], Any]) -> None:
    quick = armature.compile(fn, backend="eager")
    for _ in range(2):
        assert str(quick(torch.ones(2))) == str(fn(torch.ones(2)))
        assert not vars(marked)
