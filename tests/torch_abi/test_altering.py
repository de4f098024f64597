"""Contract: what changes a tensor does so on fakes too, and what a tensor was can be put back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from armature.torch_abi.altering import (
    can_restore_histories,
    history_of,
    is_cut_off,
    is_leaf,
    is_parameter,
    is_view,
    memory_of,
    reach_all,
    restore,
    set_data_,
    snapshot,
)
from armature.torch_abi.fake import FakeWorld, set_versions


def test_fakes_are_changed_as_tensors_are() -> None:
    world, x = FakeWorld(), torch.ones(3, requires_grad=True)
    fake, other = world.of(x), world.of(torch.zeros(2, 2, dtype=torch.float64))
    with world.mode:
        set_data_(fake, other)
        made = nn.Parameter(other)
        assert (fake.shape, fake.dtype, fake.requires_grad) == ((2, 2), torch.float64, True)
        assert memory_of(fake)._cdata == memory_of(other)._cdata == memory_of(made)._cdata
        assert is_parameter(made)
        assert not is_parameter(made * 2)
        assert not is_parameter(fake)
        before = other._version
        with torch.no_grad():
            made.add_(1)
        assert other._version == before + 1


def test_memory_of_a_tensor_of_a_transform() -> None:
    x = torch.ones(2, 3)
    found = []
    torch.vmap(lambda row: found.append(memory_of(row)._cdata) or row)(x)
    assert found == [x.untyped_storage()._cdata]


def test_a_tensor_is_put_back() -> None:
    x = torch.ones(3)
    address, kept = x.data_ptr(), snapshot([x])
    x.data = torch.zeros(2)
    x.requires_grad_()
    restore(kept)
    assert (x.data_ptr(), x.requires_grad, x.tolist()) == (address, False, [1, 1, 1])


def test_which_tensors_gradients_come_to() -> None:
    p, q = (torch.ones(3, requires_grad=True) for _ in range(2))
    z, w = p * 2, q * 2
    result = (z * 3).sum()
    assert reach_all([result, 3], [p, z])
    assert not reach_all([result], [p, q])
    assert not reach_all([result], [w])
    assert reach_all([result, w.exp()], [p, q, z, w])


def test_leaves_and_views_are_told_even_where_torch_refuses() -> None:
    weight = torch.ones(2, 2, requires_grad=True)
    base = weight * 1
    assert is_view(base.t()) and not is_view(base) and not is_view(weight)
    assert is_leaf(weight) and not is_leaf(base) and not is_leaf(base.t())
    with torch.no_grad():
        view, other = weight.t(), base.t()
    assert view.requires_grad and is_leaf(view) and is_view(view)
    base.add_(1)
    with pytest.raises(RuntimeError, match="modified inplace"):
        _ = other.is_leaf
    assert not is_leaf(other) and is_view(other)


def test_a_view_of_unbind_can_not_be_asked_after_a_change_of_its_base() -> None:
    base = torch.ones(2, 3, requires_grad=True) * 2
    view = base.unbind(0)[0]
    assert not is_cut_off(view)
    base.add_(1)
    assert is_cut_off(view)
    assert not is_cut_off(base)


def test_a_history_is_that_before_writes_again() -> None:
    weight = torch.ones(2, 3, requires_grad=True)
    made = (weight * 2).t()
    changed, plain = made.clone(), torch.zeros(3)
    part = changed[0]
    held, alone = history_of(changed), history_of(plain)
    assert held is not None and alone is not None
    version = changed._version
    changed.mul_(5).add_(1)
    plain.add_(weight[0])
    with torch.no_grad():
        changed.untyped_storage().copy_((made * 1).detach().clone().untyped_storage())
    held.restore()
    alone.restore()
    set_versions([changed], [version])
    assert changed.stride() == made.stride() and torch.equal(changed, made)
    assert plain.is_leaf and not plain.requires_grad
    (changed.sum() + part.sum() * 10).backward()
    assert torch.equal(weight.grad, torch.tensor([[22.0, 2.0, 2.0], [22.0, 2.0, 2.0]]))  # type: ignore[arg-type]
    held.restore()
    assert changed.grad_fn is not held.before  # it has another node with the same gradients


def test_histories_that_can_not_be_restored() -> None:
    weight = torch.ones(2, 3, requires_grad=True)
    made, other = weight * 2, weight * 3
    assert can_restore_histories([made, 3, other], (0, 2))
    assert not can_restore_histories([made, made[0]], (0,))
    assert not can_restore_histories([made, made.detach()], (0,))
    assert not can_restore_histories([made, 3], (1,))
    assert not can_restore_histories([made[0]], (0,))
    made.retain_grad()
    assert not can_restore_histories([made], (0,))
