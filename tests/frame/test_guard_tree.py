"""Each kind of guard holds for what it was made from, fails for what it excludes, and says so."""

from __future__ import annotations

import enum
import gc
import math
from typing import Any

import pytest
import torch
from torch import nn

from armature.frame.guards import kinds
from armature.frame.guards.explain import failed
from armature.frame.guards.guard import Quantity
from armature.frame.guards.tree import GuardTree, build
from armature.frame.sources import (
    AttrSource,
    CellSource,
    DictOfSource,
    GlobalSource,
    ItemSource,
    LocalSource,
    ObjectSource,
    TypeOfSource,
)

LIMIT = 3
X = LocalSource("x")


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    pass


def one(x: Any) -> Any:
    return x


def two(x: Any, y: Any) -> Any:
    return x, y


def tree_of(make_request: Any, value: object, *guards: kinds.Guard) -> GuardTree:
    return build(guards, make_request(one, value))


def tensor_guard(source: Any, value: torch.Tensor, **changes: Any) -> kinds.TensorGuard:
    facts = {"sizes": tuple(value.shape), "strides": value.stride()} | changes
    return kinds.TensorGuard(source, value, **facts)


@pytest.mark.parametrize(
    ("value", "others"),
    [
        (3, [4, 3.0, True, None, "3"]),
        (True, [1, False, None]),
        (None, [0, False]),
        ("a", ["b", b"a"]),
        (1.5, [2.5, 1, math.nan]),
        (0.0, [-0.0, 0, 1.0, False]),
        (-0.0, [0.0]),
        (math.nan, [0.0, None]),
        (complex(0.0, -0.0), [0j]),
        ((1, 2.0), [(1, 2), (True, 2.0), [1, 2.0], (1,)]),
        (torch.float32, [torch.float64]),
        (torch.device("cpu"), [torch.device("meta"), "cpu"]),
        (torch.Size([1, 2]), [(1, 2), torch.Size([2, 1])]),
        (Color.RED, [Color.BLUE, 1]),
        (slice(0, None), [slice(0, 1), slice(False, None)]),
        (int, [float]),
        (len, [min]),
    ],
)
def test_value(make_request: Any, value: object, others: list[object]) -> None:
    tree = tree_of(make_request, value, kinds.ValueGuard(X, value, "model.py:7"))
    assert tree.check({"x": value})
    for other in others:
        assert not tree.check({"x": other}), other
        assert any(repr(value) in text and "model.py:7" in text for text in failed(tree, {"x": other}))


def test_nan_made_anew_is_the_same_constant(make_request: Any) -> None:
    tree = tree_of(make_request, math.nan, kinds.ValueGuard(X, math.nan))
    assert tree.check({"x": float("nan")})


@pytest.mark.parametrize(
    "other",
    [
        torch.ones(4, 4, dtype=torch.float64),
        torch.ones(5, 4),
        torch.ones(4, 4).t().contiguous().t(),
        torch.ones(4, 4, requires_grad=True),
        torch.ones(4, 4, device="meta"),
        nn.Parameter(torch.ones(4, 4)),
        "no tensor",
    ],
)
def test_tensor(make_request: Any, other: object) -> None:
    value = torch.ones(4, 4)
    tree = tree_of(make_request, value, tensor_guard(X, value))
    assert tree.check({"x": torch.zeros(4, 4)})
    assert not tree.check({"x": other})
    assert failed(tree, {"x": other})


def test_sizes_that_may_change_are_not_checked(make_request: Any) -> None:
    value = torch.ones(4, 2)
    guard = tensor_guard(X, value, sizes=(None, 2), strides=(2, 1))
    tree = tree_of(make_request, value, guard)
    assert tree.check({"x": torch.ones(9, 2)})
    assert not tree.check({"x": torch.ones(4, 3)})
    assert "any" in tree.texts[0]


def test_type_identity_and_length(make_request: Any) -> None:
    value = [1, 2]
    tree = tree_of(make_request, value, kinds.TypeGuard(X, list), kinds.LengthGuard(X, 2))
    assert tree.check({"x": [5, 6]})
    assert not tree.check({"x": (5, 6)})
    assert failed(tree, {"x": [5]}) == ("len(x) == 2",)
    thing = Plain()
    tree = tree_of(make_request, thing, kinds.IdGuard(X, thing))
    assert tree.check({"x": thing})
    assert not tree.check({"x": Plain()})


@pytest.mark.parametrize("value", [{1, 2}, {"a": 1, "b": 2}, (1, 2), frozenset({1, 2})])
def test_length_of_containers(make_request: Any, value: Any) -> None:
    tree = tree_of(make_request, value, kinds.LengthGuard(X, 2))
    assert tree.check({"x": value})
    assert not tree.check({"x": type(value)()})


def test_dict_keys_are_ordered(make_request: Any) -> None:
    tree = tree_of(make_request, {"a": 1, "b": 2}, kinds.DictKeysGuard(X, ("a", "b")))
    assert tree.check({"x": {"a": 5, "b": 6}})
    assert not tree.check({"x": {"b": 6, "a": 5}})
    tree = tree_of(make_request, {1: 1}, kinds.DictKeysGuard(X, (1,)))
    assert tree.check({"x": {1: 7}})
    assert not tree.check({"x": {True: 7}})


def test_absent_from_dict_and_object(make_request: Any) -> None:
    tree = tree_of(make_request, {}, kinds.AbsentGuard(X, "k"))
    assert tree.check({"x": {"other": 1}})
    assert failed(tree, {"x": {"k": 1}}) == ("'k' is not in x",)
    thing, with_it = Plain(), Plain()
    with_it.k = 1  # type: ignore[attr-defined]
    tree = tree_of(make_request, thing, kinds.AbsentGuard(X, "k"))
    assert tree.check({"x": thing})
    assert not tree.check({"x": with_it})


def test_alias_and_no_alias(make_request: Any) -> None:
    a, b = torch.ones(2), torch.ones(2)
    y = LocalSource("y")
    same = build([kinds.AliasGuard(X, y)], make_request(two, a, a))
    assert same.check({"x": b, "y": b})
    assert not same.check({"x": a, "y": b})
    different = build([kinds.NoAliasGuard((X, y))], make_request(two, a, b))
    assert different.check({"x": b, "y": a})
    assert not different.check({"x": a, "y": a})


def test_global_state(make_request: Any) -> None:
    tree = tree_of(make_request, 1, kinds.GlobalStateGuard())
    assert tree.check({"x": 1})
    with torch.no_grad():
        assert not tree.check({"x": 1})
    with torch.device("meta"):
        assert not tree.check({"x": 1})
    with torch.device("cpu"):
        tree = tree_of(make_request, 1, kinds.GlobalStateGuard())
        assert tree.check({"x": 1})
    assert not tree.check({"x": 1})


def test_shape_conditions_name_the_one_that_broke(make_request: Any) -> None:
    a, b = torch.ones(4, 2), torch.ones(8)
    y = LocalSource("y")
    guards = [
        tensor_guard(X, a, sizes=(None, 2)),
        tensor_guard(y, b, sizes=(None,)),
        kinds.ShapeGuard("s0 > 2", (("s0", Quantity(X, 0)),)),
        kinds.ShapeGuard("2 * s0 == s1", (("s0", Quantity(X, 0)), ("s1", Quantity(y, 0))), "model.py:3"),
    ]
    tree = build(guards, make_request(two, a, b))
    assert tree.check({"x": torch.ones(5, 2), "y": torch.ones(10)})
    assert not tree.check({"x": torch.ones(2, 2), "y": torch.ones(4)})
    (text,) = failed(tree, {"x": torch.ones(5, 2), "y": torch.ones(9)})
    assert text == "2 * x.size(0) == y.size(0)    (model.py:3)"


def test_paths_below_a_module(make_request: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    first = AttrSource(X, "0")
    weight = AttrSource(first, "weight")
    guards = [
        kinds.TypeGuard(X, nn.Sequential),
        kinds.TypeGuard(ItemSource(AttrSource(X, "_modules"), "1"), nn.ReLU),
        kinds.ValueGuard(AttrSource(first, "training"), True),
        kinds.LengthGuard(ItemSource(DictOfSource(first), "_forward_hooks"), 0),
        kinds.AbsentGuard(first, "forward"),
        tensor_guard(weight, model[0].weight),
        kinds.IdGuard(AttrSource(TypeOfSource(X), "forward"), nn.Sequential.forward),
    ]
    tree = tree_of(make_request, model, *guards)
    assert tree.check({"x": model})
    model[0].weight = nn.Parameter(torch.zeros(3, 2))
    assert tree.check({"x": model})
    model[0].eval()
    assert failed(tree, {"x": model}) == ("x.0.training == True",)
    model[0].train()
    handle = model[0].register_forward_hook(lambda *_: None)
    assert not tree.check({"x": model})
    handle.remove()
    model[0].weight = nn.Parameter(torch.zeros(3, 3))
    assert not tree.check({"x": model})


def test_globals_objects_cells(make_request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"k": 1}
    scale = 2

    def inner(x: Any) -> Any:
        return x * scale

    guards = [
        kinds.ValueGuard(GlobalSource("LIMIT"), 3),
        kinds.ValueGuard(ItemSource(ObjectSource(held, "held"), "k"), 1),
        kinds.ValueGuard(LocalSource("scale", cell=True), 2),
        kinds.ValueGuard(CellSource(ItemSource(AttrSource(ObjectSource(inner, "inner"), "__closure__"), 0)), 2),
    ]
    tree = build(guards, make_request(inner, 1))
    assert tree.check({"x": 1, "scale": 2})
    assert not tree.check({"x": 1, "scale": 3})
    held["k"] = 2
    assert failed(tree, {"x": 1, "scale": 2}) == ("held['k'] == 1",)
    held["k"] = 1
    monkeypatch.setitem(globals(), "LIMIT", 4)
    assert failed(tree, {"x": 1, "scale": 2}) == ("globals()['LIMIT'] == 3",)
    monkeypatch.undo()
    scale = 5
    assert not tree.check({"x": 1, "scale": 2})


def test_a_property_is_read_by_getattr(make_request: Any) -> None:
    class Owner:
        @property
        def size(self) -> int:
            return len(vars(self))

    owner = Owner()
    owner.__dict__["size"] = 99  # hidden by the property
    tree = tree_of(make_request, owner, kinds.ValueGuard(AttrSource(X, "size"), 1))
    assert tree.check({"x": owner})
    owner.other = 1  # type: ignore[attr-defined]
    assert not tree.check({"x": owner})


def test_the_tree_keeps_no_guarded_object_alive(make_request: Any) -> None:
    model = nn.Linear(2, 2)
    gone = []
    guards = [kinds.IdGuard(X, model), tensor_guard(AttrSource(X, "weight"), model.weight)]
    tree = build(guards, make_request(one, model))
    weakref_of = torch.utils.weak.WeakTensorKeyDictionary()
    weakref_of[model.weight] = gone
    del model, guards
    gc.collect()
    assert len(weakref_of) == 0
    assert tree.holder.keep_alive == []  # the death of the model dropped what was cached for it


def test_a_tree_ends_with_the_class_of_a_tensor(make_request: Any) -> None:
    """torch compares the address of the class, which a class made later may have."""
    kind = type("Sub", (torch.Tensor,), {})
    value = torch.ones(2).as_subclass(kind)
    tree = build([tensor_guard(X, value)], make_request(one, value))
    assert tree.check({"x": value}) and len(tree.holder.keep_alive) == 1
    del kind, value
    gc.collect()
    assert tree.holder.keep_alive == []


def test_repeats_and_implied_guards_are_left_out(make_request: Any) -> None:
    value = torch.ones(2)
    guards = [
        kinds.TypeGuard(X, torch.Tensor),
        tensor_guard(X, value),
        kinds.LengthGuard(X, 2),
        kinds.LengthGuard(X, 2),
    ]
    assert len(tree_of(make_request, value, *guards).texts) == 2
