"""Results that share memory, made anew as eager mode has them; writes that are counted."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

import armature
from armature.torch_abi.views import counting, output_aliases, share_memory, share_version_counter, with_aliases


def eager(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x * 2
    hidden = x + 1
    return z[1:], z, z.detach(), z.detach()[:2], x.view(3), x.detach(), hidden[:2], hidden[1:], x * 3


def of_compiled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same numbers in the same memory, and nothing that tells of it."""
    z, hidden = x * 2, x + 1
    return tuple(t.detach() for t in (z[1:], z, z, z[:2])) + (x, x, hidden[:2].detach(), hidden[1:].detach(), x * 3)


def facts(x: torch.Tensor, results: tuple[torch.Tensor, ...]) -> list[object]:
    seen: list[object] = [(len({id(t) for t in (x, *results)}), [(t._is_view(), t.tolist()) for t in results])]
    follows = torch.ones(2, requires_grad=True)
    for k in (3, 0, 7):
        results[k].mul_(follows if k != 3 else 5)
        seen.append([(t._version, t.requires_grad) for t in (x, *results)])
    for t in results:
        if t.requires_grad:
            seen.append(torch.autograd.grad(t.sum(), follows, retain_graph=True)[0].tolist())
    return seen


def test_results_are_related_as_in_eager_mode() -> None:
    fake = torch.ones(3)
    kinds = output_aliases([fake, 3], eager(fake))
    x, y = torch.arange(3.0), torch.arange(3.0)
    assert facts(y, with_aliases(kinds, (y, 3), of_compiled(y))) == facts(x, eager(x))


def test_what_shares_nothing_is_left_alone() -> None:
    x = torch.ones(3)
    assert output_aliases([x], [x, x * 2, None, 3]) == ()
    kinds = output_aliases([x], [x.view(3)])
    copy = torch.zeros(3)
    assert with_aliases(kinds, (x,), (copy,))[0] is copy


def test_writes_are_counted_once() -> None:
    def kernel(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, w: torch.Tensor) -> None:
        x.data.add_(1)  # in memory, with nobody told
        y.add_(1)
        z.add_(1)

    x, y, z, w = (torch.ones(3) for _ in range(4))
    counting(kernel, {0: True, 1: True, 2: False})(x, y, z, w)
    assert [t._version for t in (x, y, z, w)] == [1, 1, 0, 0]


def test_tensors_that_share_memory() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 6)
        assert share_memory(x, x[:, ::2].reshape(-1)) and share_memory(x[1:], x.detach())
        assert not share_memory(x, x[:, 1:].reshape(-1))


def test_which_tensors_count_writes_together() -> None:
    x = torch.ones(3)
    others = (x.detach(), x[1:], x.data, x.data[1:], torch.ones(3))
    assert [share_version_counter(x, other) for other in others] == [True, True, False, False, False]
    assert [t._version for t in (x, *others)] == [0] * 6


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("part", [slice(None), slice(1, None)])
def test_parameters_first_met_in_vmap_beside_tensors_of_the_same_memory(dynamic: bool, part: slice) -> None:
    layer = torch.nn.Linear(4, 2)
    detached = layer.weight.detach()[part]

    def products(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: detached @ row + (layer.weight @ row).sum())(x)

    x = torch.rand(3, 4)
    compiled = armature.compile(products, fullgraph=True, dynamic=dynamic, backend="eager")
    found, expected = compiled(x), products(x)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), layer.weight) for y in (found, expected)))
