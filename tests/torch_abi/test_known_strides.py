"""Where fakes are said to have the strides of the real tensors, they have them along axes of size 1 too."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from armature.plugins import manager
from armature.torch_abi.fake import FakeWorld
from armature.torch_abi.known_strides import are_known

ROUNDS = 60


def given(draw: random.Random, *shape: int) -> Tensor:
    """A tensor in some layout, with any strides along axes of size 1."""
    order = draw.sample(range(len(shape)), len(shape))
    x = torch.rand([shape[axis] for axis in order]).permute([order.index(axis) for axis in range(len(shape))])
    steps = [draw.choice((step, 1, 7)) if size == 1 else step for size, step in zip(shape, x.stride(), strict=True)]
    return x.as_strided(x.shape, steps).requires_grad_(draw.random() < 0.3)


def sizes(draw: random.Random, count: int) -> list[int]:
    return [draw.choice((1, 1, 2, 3)) for _ in range(count)]


KNOWN: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "view": lambda x, y, m: x.view(1, *x.shape, 1),
    "reshape": lambda x, y, m: (x.reshape(-1), x.reshape(-1, 1, x.shape[-1]), x.flatten(0, 1), x.unflatten(0, (1, -1))),
    "transpose": lambda x, y, m: (x.transpose(0, 2), x.mT, x.movedim(0, 1), x.permute(2, 0, 1)),
    "squeeze": lambda x, y, m: (x.squeeze(), x.squeeze(0), x.unsqueeze(1)),
    "expand": lambda x, y, m: x.expand(2, *x.shape),
    "part": lambda x, y, m: (x[:1], x[0], x[..., ::2], x[:, None], x.narrow(1, 0, 1), x.diagonal(), x.unfold(1, 1, 1)),
    "parts": lambda x, y, m: (x.unbind(0), x.split(1), x.chunk(2, 1), x.split([1] * x.shape[2], 2)),
    "as strided": lambda x, y, m: x.as_strided((1, 1), (3, 5)),
    "copies": lambda x, y, m: (x.clone(), x.contiguous(), x.double(), x.flip(0), torch.zeros_like(x), x.detach()),
    "new": lambda x, y, m: (x.new_zeros(1, 2, 1), x.new_full((1, 1), 2.0), torch.ones(2, 1), torch.arange(1)),
    "elementwise": lambda x, y, m: (x + y, x * 2, -x, x.exp(), torch.where(x > 1, x, y), x.clamp(0, 1), F.gelu(x)),
    "in place": lambda x, y, m: (x.detach().clone().add_(1), x.detach().mT.mul_(2)),
    "broadcast": lambda x, y, m: (x + m, x * m[:, :1], x - x.sum(0, keepdim=True)),
    "masked fill": lambda x, y, m: (x.masked_fill(y > 0.5, 1.0), x.masked_fill(m > 0.5, torch.tensor(1.0))),
    "triangles": lambda x, y, m: (x.tril(), x.triu()),
    "softmax": lambda x, y, m: (x.softmax(0), x.log_softmax(2)),
    "layer norm": lambda x, y, m: torch.native_layer_norm(x, [x.shape[2]], None, None, 1e-5),
    "reductions": lambda x, y, m: (x.sum(0), x.mean(1, keepdim=True), x.amax(2), x.argmax(0), x.cumsum(1)),
    "matrices": lambda x, y, m: (m @ m.mT, x @ y.mT, F.linear(x, m), torch.einsum("abc,adc->abd", x, y)),
    "with a third": lambda x, y, m: (torch.addmm(m @ m.mT, m, m.mT), torch.baddbmm(x @ y.mT, x, y.mT)),
    "joined": lambda x, y, m: (torch.cat((x, y)), torch.stack((x, y), 1), x.repeat(1, 2, 1), F.pad(x, (0, 1))),
    "rows": lambda x, y, m: (x.index_select(0, torch.tensor([0])), F.embedding(torch.tensor([[0]]), m)),
    "conversion": lambda x, y, m: x.double().type_as(x).masked_fill(y > 0.5, 1.0).transpose(0, 1).reshape(-1, 1),
}
# The fakes of these have other strides for some arguments, and so has what follows.
GUESSED: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "indexed": lambda x, y, m: x[torch.tensor([0])],
    "written by index": lambda x, y, m: torch.index_put(x, (torch.tensor([0]),), torch.tensor(1.0)),
    "sorted": lambda x, y, m: x.sort(0)[0],
    "a view of such": lambda x, y, m: x[torch.tensor([0])].mT.unsqueeze(0),
    "a sum with such": lambda x, y, m: x.sort(0)[0] + y,
}


def calls(program: Callable[..., Any], seed: int) -> list[tuple[Tensor, Tensor]]:
    """The results of a call, real and fake."""
    draw = random.Random(seed)
    a, b, c = sizes(draw, 3)
    args = (given(draw, a, b, c), given(draw, a, b, c), given(draw, b, c))
    world = FakeWorld(rules=manager().tables().fake_rules)
    fakes = [world.of(one) for one in args]
    with world.mode:
        told = program(*fakes)
    return list(zip(pytree.tree_leaves(program(*args)), pytree.tree_leaves(told), strict=True))


@pytest.mark.parametrize("name", KNOWN)
def test_strides_are_known(name: str) -> None:
    for seed in range(ROUNDS):
        for position, (real, fake) in enumerate(calls(KNOWN[name], seed)):
            assert are_known(fake), position
            assert fake.stride() == real.stride(), (seed, position, real.shape)


@pytest.mark.parametrize("name", GUESSED)
def test_strides_are_guessed(name: str) -> None:
    found = [pair for seed in range(ROUNDS) for pair in calls(GUESSED[name], seed)]
    assert any(fake.stride() != real.stride() for real, fake in found)
    for real, fake in found:
        assert not are_known(fake) or fake.stride() == real.stride()


def test_what_follows_a_guess_with_strides_of_its_own_is_known() -> None:
    world = FakeWorld(rules=manager().tables().fake_rules)
    x = world.of(torch.rand(1, 3))
    with world.mode:
        guessed = x.sort(0)[0]
        made = [guessed @ guessed.mT, guessed.new_zeros(1, 2), guessed.as_strided((1, 2), (2, 1))]
    assert not are_known(guessed)
    assert all(map(are_known, made))
