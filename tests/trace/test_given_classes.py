"""Tensors that are given a class where gradients are recorded, or are not: what autograd knows of them."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn

import armature
from tests.support.tensor_programs import same


class Plain(torch.Tensor):
    pass


def history_of(x: torch.Tensor) -> tuple[object, ...]:
    return type(x), x.requires_grad, x.is_leaf, type(x.grad_fn).__name__


def test_autograd_knows_of_a_class_what_it_does_in_eager_mode() -> None:
    """A view wants gradients under no_grad if what it is a view of does: not if the view alone was asked to."""

    def inputs(asked: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x.as_subclass(Plain)

    def computed(asked: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.set_grad_enabled(not torch.is_grad_enabled()):
            made, viewed = (x * 2).as_subclass(Plain), x.view_as(x).as_subclass(Plain)
        return made, viewed

    def goes_on(asked: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            made = x.as_subclass(nn.Parameter)
        return made * 2 + asked

    leaf, computed_before = torch.ones(6).requires_grad_(), torch.ones(6).requires_grad_() * 2
    view_that_asks, view_of_leaf = torch.ones(2, 3).reshape(6).requires_grad_(), torch.ones(6).requires_grad_().view(6)
    for fn, recorded in itertools.product((inputs, computed, goes_on), (True, False)):
        for x in (leaf, computed_before, view_that_asks, view_of_leaf):
            with torch.set_grad_enabled(recorded):
                compiled = armature.compile(fn, backend="eager", fullgraph=True)
                expected, found = fn(torch.ones(6), x), compiled(torch.ones(6), x)
            pairs = zip(as_tuple(expected), as_tuple(found), strict=True)
            assert [(history_of(e), history_of(f)) for e, f in pairs if history_of(e) != history_of(f)] == []
            same(found, expected, "result")


def as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)
