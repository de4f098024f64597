"""The seam to `__torch_function__`: torch says who overrides a call, and stays silent where it is told to."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch import predispatch
from torch.overrides import TorchFunctionMode

from armature.torch_abi import overrides
from armature.torch_abi.overrides import Off, Overriding


class Base(torch.Tensor):
    heard: list[Any] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Base.heard.append(func)
        return super().__torch_function__(func, types, args, kwargs)


class Derived(Base):
    pass


class Silent(nn.Parameter):
    pass


class Mode(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.heard.append(func)
        return func(*args, **(kwargs or {}))


def test_state() -> None:
    assert overrides.overriding() == Overriding((), Off.NOBODY)
    with Mode() as outer, Mode() as inner:
        assert overrides.overriding() == Overriding((outer, inner), Off.NOBODY)
        with torch._C.DisableTorchFunctionSubclass():
            assert overrides.overriding().off is Off.SUBCLASSES
        with torch._C.DisableTorchFunction():
            assert overrides.overriding().off is Off.ALL


def test_suspended() -> None:
    x = torch.ones(2).as_subclass(Base)
    with Mode() as outer, Mode() as inner:
        Base.heard.clear()
        with overrides.suspended():
            assert overrides.mode_count() == 0
            with torch._C.DisableTorchFunction(), overrides.suspended():
                assert overrides.overriding() == Overriding((), Off.NOBODY)
            assert type(x + 1) is Base
        assert (outer.heard, inner.heard) == ([], [])
        assert overrides.overriding().modes == (outer, inner)
        with pytest.raises(KeyError), overrides.suspended():
            raise KeyError
        assert overrides.overriding().modes == (outer, inner)


def test_suspended_hooks_on_saved_tensors() -> None:
    seen: list[torch.Tensor] = []
    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        with overrides.suspended(), overrides.suspended():
            x.exp()
        assert not seen
        x.exp()
    assert len(seen) == 1


def test_who_overrides() -> None:
    assert [overrides.is_overriding(kind) for kind in (torch.Tensor, nn.Parameter, Silent, Base, int)] == [
        False, False, False, True, False,
    ]  # fmt: skip
    assert not overrides.dispatches(Base)


@pytest.mark.parametrize("kind", [Base, Derived])
def test_asked_for_a_subclass(kind: type) -> None:
    x, y = overrides.stand_in(kind), overrides.stand_in(torch.Tensor)
    given = overrides.override_call(operator.add, (y, x), {}, modes=False)
    assert given is not None
    assert given == (torch.Tensor.add, (kind,), (y, x))
    given = overrides.override_call(F.relu, (x,), {"inplace": False}, modes=False)
    assert given == (F.relu, (kind,), (x,), {"inplace": False})
    assert overrides.override_call(torch.sin, (y,), {}, modes=False) is None
    both = overrides.override_call(torch.add, (overrides.stand_in(Base), overrides.stand_in(Derived)), {}, modes=False)
    assert both is not None and both[1] == (Derived, Base)


def test_asked_for_a_mode() -> None:
    given = overrides.override_call(torch.zeros, (3,), {}, modes=True)
    assert given is not None and given[:3] == (torch.zeros, (), (3,))
    assert overrides.override_call(torch.zeros, (3,), {}, modes=False) is None
    given = overrides.override_call(torch._C._set_grad_enabled, (False,), {}, modes=True)
    assert given is not None and given[0] is torch._C._set_grad_enabled
    assert torch.is_grad_enabled() and overrides.mode_count() == 0


def test_a_function_that_has_another_one_asked() -> None:
    def calls_another(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)

    assert overrides.override_call(calls_another, (overrides.stand_in(Base),), {}, modes=False) is None
    assert overrides.asks(torch.nn.functional.relu)  # type: ignore[arg-type]
    assert not overrides.asks(calls_another)  # type: ignore[arg-type]
    for name in ("_vmap_increment_nesting", "_vmap_decrement_nesting", "_add_batch_dim", "_remove_batch_dim"):
        works_on_levels = getattr(predispatch, name)
        assert overrides.is_of_levels(works_on_levels) and not overrides.asks(works_on_levels)
    assert not overrides.is_of_levels(calls_another)  # type: ignore[arg-type]


def test_plain_runs() -> None:
    x = torch.ones(2).as_subclass(Base)
    with Mode() as mode:
        Base.heard.clear()
        assert type(overrides.run_plain(torch.sin, x)) is torch.Tensor
        assert type(overrides.as_subclass(torch.ones(2), Derived, True)) is Derived
        assert overrides.size(x, 0) == 2
        assert overrides.without_overrides(lambda t: t.shape)(x) == (2,)
    assert Base.heard == [] and mode.heard == [torch.ones]
