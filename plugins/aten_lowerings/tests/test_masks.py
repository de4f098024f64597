"""Attention masks that are known while the graph is compiled go away; all others stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

import armature
from armature.graph.data import Pass
from armature.pipeline.session import session
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature_aten_lowerings.masks import PARAMETERS, expanded

L = 7
Mask = Callable[[Tensor], Tensor]


def query(length: int = L) -> Tensor:
    return torch.randn(2, 3, length, 4)


class Seen:
    """A pass behind all others: how attention is called in the end."""

    def __init__(self) -> None:
        self.calls: list[Mapping[str, Any]] = []

    @hookimpl
    def armature_passes(self) -> list[Pass]:
        return [Pass("look", "pre_grad", self.look, after=("attention-masks",))]

    def look(self, module: fx.GraphModule, ctx: object) -> fx.GraphModule:
        for node in module.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention):
            given = dict(zip(PARAMETERS, node.args)) | node.kwargs
            self.calls.append({name: given.get(name) for name in ("attn_mask", "is_causal")})
        return module


def called(program: Callable[..., Tensor], *args: Tensor) -> Mapping[str, Any]:
    """How the program's one call of attention stands in the graph; checks the result on the way."""
    armature.reset()
    seen = Seen()
    with manager().registered(seen, "seen"):
        found = armature.compile(program, fullgraph=True)(*args)
    torch.testing.assert_close(found, program(*args), equal_nan=True)
    [call] = seen.calls
    return call


def with_mask(mask: Mask) -> Callable[[Tensor], Tensor]:
    return lambda q: F.scaled_dot_product_attention(q, q, q, mask(q))


def positions(q: Tensor) -> Tensor:
    return torch.arange(q.shape[-2], device=q.device)


def lowest(q: Tensor) -> float:
    return torch.finfo(q.dtype).min


NOTHING: dict[str, Mask] = {
    "a condition that always holds": lambda q: (positions(q) + 0)[None, None, :, None].ge(0).expand(2, -1, L, L),
    "ones": lambda q: torch.ones(2, 1, L, L, dtype=torch.bool),
    "ones from a mask of padding": lambda q: torch.ones(2, L)[:, None, None, :].bool(),
    "zeros": lambda q: torch.zeros(L, L),
    "turned into numbers": lambda q: (1.0 - torch.ones(2, L)[:, None, None, :]) * lowest(q),
}
CAUSAL: dict[str, Mask] = {
    "tril": lambda q: torch.ones(L, L, dtype=torch.bool).tril(),
    "a comparison": lambda q: positions(q)[:, None] >= positions(q),
    "with heads": lambda q: (positions(q)[:, None] >= positions(q)).expand(2, 3, L, L),
    "triu of infinities": lambda q: torch.full((L, L), float("-inf")).triu(1),
    "the lowest number": lambda q: torch.zeros(L, L).masked_fill(torch.ones(L, L).triu(1).bool(), lowest(q)),
    "where": lambda q: torch.where(torch.ones(L, L, dtype=torch.bool).tril(), 0.0, float("-inf")),
}
OTHERS: dict[str, Mask] = {
    "a window": lambda q: (positions(q)[:, None] - positions(q)).abs() < 3,
    "anti-causal": lambda q: torch.ones(L, L, dtype=torch.bool).triu(),
    "causal but for one": lambda q: torch.ones(L, L, dtype=torch.bool).tril() & (positions(q) != 2)[:, None],
    "a bias": lambda q: torch.full((L, L), 0.5),
    "of the input": lambda q: q[0, 0] @ q[0, 0].t() > 0,
    "random": lambda q: torch.rand(L, L) > -1,
    "written to": lambda q: torch.ones(L, L, dtype=torch.bool).fill_(False).logical_not_(),
    "a view written to": lambda q: written_through_a_view(q),
}


# What is left of a mask made of a bias and of parts that change nothing is the bias.
BIASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "where": lambda q, bias: torch.where((positions(q)[:, None] >= 0).expand(2, 1, L, L), bias, lowest(q)),
    "added": lambda q, bias: bias + (1.0 - torch.ones(2, L)[:, None, None, :]) * lowest(q),
    "added to": lambda q, bias: torch.zeros(2, 1, L, L) + bias,
    "both": lambda q, bias: torch.where(torch.ones(L, L).bool(), torch.zeros(2, 1, L, L) + bias, lowest(q)),
}


def written_through_a_view(q: Tensor) -> Tensor:
    mask = torch.ones(L, L, dtype=torch.bool)
    mask[:, 0].fill_(False)
    return mask


@pytest.mark.parametrize("mask", NOTHING.values(), ids=NOTHING)
def test_a_mask_of_all_ones_goes_away(mask: Mask) -> None:
    assert called(with_mask(mask), query()) == {"attn_mask": None, "is_causal": None}


@pytest.mark.parametrize("mask", CAUSAL.values(), ids=CAUSAL)
def test_a_causal_mask_becomes_a_flag(mask: Mask) -> None:
    assert called(with_mask(mask), query()) == {"attn_mask": None, "is_causal": True}


@pytest.mark.parametrize("mask", OTHERS.values(), ids=OTHERS)
def test_other_masks_stay(mask: Mask) -> None:
    assert called(with_mask(mask), query())["attn_mask"] is not None


def test_a_mask_that_broadcasts_is_not_causal() -> None:
    """One row of keys for all queries: `is_causal` would be another mask."""
    mask = torch.ones(1, 1, dtype=torch.bool)
    call = called(lambda q: F.scaled_dot_product_attention(q, q, q, torch.ones(1, L).tril().bool()), query())
    assert call["attn_mask"] is not None and mask.all()


def test_a_flag_next_to_a_mask_is_left_to_torch() -> None:
    """Some versions refuse it, others apply both."""

    def program(q: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, q, q, torch.ones(L, L, dtype=torch.bool), is_causal=True)

    q = query()
    try:
        expected = program(q)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error)[:40]):
            armature.compile(program)(q)
    else:
        assert called(program, q)["attn_mask"] is not None
        torch.testing.assert_close(armature.compile(program)(q), expected)


@pytest.mark.parametrize("combined", BIASES.values(), ids=BIASES)
def test_a_bias_is_left_alone(combined: Callable[[Tensor, Tensor], Tensor]) -> None:
    def program(q: Tensor, bias: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, q, q, combined(q, bias))

    call = called(program, query(), torch.randn(3, L, L))
    made = call["attn_mask"]
    assert made.target is expanded and made.args[0].op == "placeholder"


def test_a_bias_with_a_condition_that_may_fail_stays() -> None:
    def program(q: Tensor, bias: Tensor) -> Tensor:
        mask = torch.where(positions(q)[:, None] >= 1, bias, lowest(q))
        return F.scaled_dot_product_attention(q, q, q, mask)

    assert called(program, query(), torch.randn(3, L, L))["attn_mask"].target is torch.where


def test_a_copy_has_one_row_for_those_that_broadcast() -> None:
    bias = torch.randn(L, L, 3).permute(2, 0, 1).expand(2, 3, L, L)
    found = expanded(bias, (2, 3, L, L), True)
    torch.testing.assert_close(found, bias, rtol=0, atol=0)
    assert found.stride() == (0, L * L, L, 1)
    key = expanded(torch.randn(2, 1, L, 1).expand(2, 3, L, L), (2, 3, L, L), True)
    assert key.stride() == (L * L, 0, L, 1)


@pytest.mark.gpu
def test_attention_with_a_bias_is_one_fused_operator() -> None:
    def program(q: Tensor, table: Tensor) -> Tensor:
        bias = table[(positions(q)[:, None] - positions(q)).abs()].permute(2, 0, 1)
        mask = torch.where((positions(q)[:, None] >= 0).expand(2, 1, L, L), bias, lowest(q))
        return F.scaled_dot_product_attention(q, q, q, mask)

    armature.reset()
    q, table = (x.cuda().bfloat16() for x in (torch.randn(2, 3, L, 16), torch.randn(L, 3)))
    found = armature.compile(program, fullgraph=True)(q, table)
    torch.testing.assert_close(found, program(q, table), rtol=0.02, atol=0.02)
    [graph] = session().compilations[-1].graphs
    targets = {str(n.target) for n in graph.aten.module.graph.nodes}
    assert any("scaled_dot_product" in target for target in targets), targets


@pytest.mark.parametrize("mask", [NOTHING["ones"], CAUSAL["tril"]], ids=["ones", "causal"])
def test_gradients_are_eagers(mask: Mask) -> None:
    program = with_mask(mask)
    first, second = (torch.linspace(-1, 1, 2 * 3 * L * 4).view(2, 3, L, 4).requires_grad_() for _ in range(2))
    program(first).square().sum().backward()
    armature.compile(program, fullgraph=True)(second).square().sum().backward()
    torch.testing.assert_close(second.grad, first.grad)


def test_masks_made_in_vmap_stay() -> None:
    """A tensor inside of vmap has no memory to look at, and no value outside of it."""

    def nearby(q: Tensor) -> Tensor:
        at = positions(q)
        return torch.vmap(lambda row: torch.vmap(lambda column: column <= row)(at))(at)

    call = called(with_mask(nearby), query())
    assert isinstance(call["attn_mask"], fx.Node)
