"""The seam to nested tensors of the jagged layout: which tensor a ragged size stands for, and how fakes of it are told."""

from __future__ import annotations

from typing import Any

import torch
from torch.nested import nested_tensor_from_jagged

from armature.torch_abi import fake, jagged, overrides, wrappers
from armature.torch_abi.varying import Axes


def offsets() -> torch.Tensor:
    return torch.tensor([0, 2, 5])


def nested(o: torch.Tensor, lengths: torch.Tensor | None = None) -> Any:
    return nested_tensor_from_jagged(torch.zeros(5, 4), o, lengths)


def test_what_it_is_made_of() -> None:
    one = nested(offsets())
    assert jagged.is_jagged(one)
    assert not jagged.is_jagged(torch.nested.nested_tensor([torch.zeros(2)], layout=torch.strided))
    assert wrappers.is_wrapper(type(one)) and wrappers.asks_as_tensors_do(type(one))
    assert not overrides.is_overriding(type(one))
    assert list(wrappers.flatten(one).tensors) == ["_values", "_offsets"]
    assert (jagged.ragged_name(one), jagged.ragged_axis(one)) == ("_offsets", 1)
    assert jagged.ragged_name(nested(offsets(), torch.tensor([1, 2]))) == "_lengths"
    assert jagged.ragged_axis(one.transpose(1, 2)) == 2


def test_a_ragged_size_stands_for_one_tensor() -> None:
    o, other = offsets(), offsets()
    assert jagged.ragged_number(o) is None
    one, two, third = nested(o), nested(o), nested(other)
    assert jagged.is_ragged(one.size(1)) and not jagged.is_ragged(one.size(0))
    assert one.size(1) == two.size(1) and one.size(1) != third.size(1)
    assert jagged.ragged_number(o) == one.size(1).node.nested_int() != jagged.ragged_number(other)


def test_fakes_have_one_symbol_for_one_tensor() -> None:
    o = offsets()
    one, two, third = nested(o), nested(o), nested(offsets())
    world = fake.FakeWorld()
    axes = Axes(inner={"_values": frozenset({0}), "_offsets": frozenset({0})})
    first, second, other = world.of(one, axes, "x"), world.of(two, axes, "y"), world.of(third, Axes(), "z")
    alone = world.of(o)
    with world.mode:
        assert first.shape[1] == second.shape[1]
        assert first.shape[1] != other.shape[1]
        assert alone.nested_int_memo == first.shape[1]  # type: ignore[attr-defined]
    assert jagged.stands_for_ragged(alone) and not jagged.stands_for_ragged(world.of(torch.zeros(2)))
    assert isinstance(first.shape[0], torch.SymInt) and isinstance(first._values.shape[0], torch.SymInt)
    assert other.shape[0] == 2
    assert len(world.symbols.ragged) == 2
    assert all(condition.free_symbols.isdisjoint(world.symbols.ragged) for condition, _ in world.symbols.conditions())
