"""Attention of nested tensors: one graph for any lengths, with gradients, and random numbers as in eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nested import nested_tensor_from_jagged

import armature

LENGTHS = [(2, 3), (1, 4), (2, 3, 5), (1,), (9, 1, 1)]


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    armature.reset()


def offsets(*lengths: int) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0)


def heads(lengths: tuple[int, ...], size: int, o: torch.Tensor, known: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Parts of two heads, and the tensor they are views of."""
    held = torch.randn(sum(lengths), 2, size, requires_grad=True)
    longest = {"min_seqlen": min(lengths), "max_seqlen": max(lengths)} if known else {}
    return nested_tensor_from_jagged(held, o, **longest), held  # type: ignore[arg-type]


def inputs(
    lengths: tuple[int, ...], *, size: int = 3, known: bool = True, crossed: bool = False
) -> tuple[list[Any], list[Any]]:
    """Query, key and value, and what they are views of. crossed: keys are of other lengths than queries."""
    torch.manual_seed(0)
    others = tuple(length + 1 for length in lengths) if crossed else lengths
    one = offsets(*lengths)
    other = offsets(*others) if crossed else one
    pairs = [heads(lengths, 3, one, known), heads(others, 3, other, known), heads(others, size, other, known)]
    return [whole for whole, _ in pairs], [held for _, held in pairs]


def attention(query: Any, key: Any, value: Any, **named: Any) -> Any:
    found = F.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), **named)
    return found, found.shape[1], found.size(2) == query.size(1), found.transpose(1, 2).flatten(-2) * 2


def seen(function: Any, lengths: tuple[int, ...], **kinds: Any) -> list[Any]:
    given, held = inputs(lengths, **kinds)
    found, count, same, merged = function(*given)
    merged.values().pow(2).sum().backward()
    numbers = [found.transpose(1, 2).values(), merged.values(), *(one.grad for one in held), torch.rand(2)]
    kept = [found.requires_grad, found.dtype, found.dim(), found._ragged_idx, found.offsets().tolist(), count, same]
    return [*kept, *[one.double().mul(1e4).round().tolist() for one in numbers]]


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("kinds", [{}, {"known": False}, {"size": 5}, {"crossed": True}], ids=str)
def test_attention_in_one_graph(kinds: dict[str, Any], backend: str) -> None:
    compiled = armature.compile(attention, backend=backend, fullgraph=True)
    for lengths in LENGTHS:
        assert seen(compiled, lengths, **kinds) == seen(attention, lengths, **kinds)


@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("named", [{"scale": 0.3}, {"dropout_p": 0.5}], ids=str)
def test_arguments_of_attention(named: dict[str, Any], backend: str) -> None:
    def function(query: Any, key: Any, value: Any) -> Any:
        return attention(query, key, value, **named)

    compiled = armature.compile(function, backend=backend, fullgraph=True)
    for lengths in LENGTHS:
        assert seen(compiled, lengths) == seen(function, lengths)


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_under_autocast(backend: str) -> None:
    def function(query: Any, key: Any, value: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return attention(query, key, value)

    compiled = armature.compile(function, backend=backend, fullgraph=True)
    for lengths in LENGTHS:
        assert seen(compiled, lengths) == seen(function, lengths)


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.out = nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [part.contiguous().unflatten(-1, [2, 2]).transpose(1, 2) for part in self.wide(x).chunk(3, -1)]
        return self.out(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(-2))


def test_a_module() -> None:
    module = SelfAttention()
    compiled = armature.compile(module, backend="auto", fullgraph=True)
    for lengths in LENGTHS:
        x = torch.nested.nested_tensor([torch.randn(length, 4) for length in lengths], layout=torch.jagged)
        torch.testing.assert_close(compiled(x).values(), module(x).values())


def test_what_eager_mode_refuses() -> None:
    def causal(query: Any, key: Any, value: Any) -> Any:
        return attention(query, key, value, is_causal=True)

    def mixed(query: Any, key: Any, value: Any) -> Any:
        return F.scaled_dot_product_attention(query.transpose(1, 2), key, value)

    for function in (causal, mixed):
        given, _ = inputs((2, 3))
        with pytest.raises((RuntimeError, ValueError)) as eager:
            function(*given)
        with pytest.raises(eager.type, match=str(eager.value)[:20]):
            armature.compile(function, backend="eager")(*given)


def test_dense_tensors_and_ragged_heads() -> None:
    def dense(x: Any) -> Any:
        return F.scaled_dot_product_attention(x, x, x)

    compiled = armature.compile(dense, backend="eager", fullgraph=True)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(compiled(x), dense(x))
    for lengths in LENGTHS:
        y = nested_tensor_from_jagged(torch.randn(sum(lengths), 4, 3), offsets(*lengths))
        torch.testing.assert_close(compiled(y).values(), dense(y).values())
