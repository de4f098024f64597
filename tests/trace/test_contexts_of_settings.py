"""Contexts of torch that change little or nothing in a graph, and functions that are decorated with contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.sparse import check_sparse_tensor_invariants

import armature

Function = Callable[[Tensor], Any]


@armature.disable
def checks_now() -> bool:
    return bool(check_sparse_tensor_invariants.is_enabled())


def no_device(x: Tensor) -> Any:
    with torch.cuda.device(-1) as bound:
        y = x * 2
    with torch.cuda.device_of(y):
        y = y + 1
    return y, bound


def checked(x: Tensor) -> Any:
    before = check_sparse_tensor_invariants.is_enabled()
    with check_sparse_tensor_invariants():
        with check_sparse_tensor_invariants(enable=False):
            inner = check_sparse_tensor_invariants.is_enabled()
        return x * 2, before, inner, check_sparse_tensor_invariants.is_enabled()


@check_sparse_tensor_invariants()  # type: ignore[untyped-decorator]
def decorated_by_checks(x: Tensor) -> Any:
    return x * 2, check_sparse_tensor_invariants.is_enabled()


@torch.backends.mkldnn.flags(enabled=False)
def decorated_by_flags(x: Tensor) -> Any:
    return x * 2, torch.backends.mkldnn.enabled


@sdpa_kernel([SDPBackend.MATH])
def decorated_by_kernels(x: Tensor) -> Any:
    return x * 2, torch.backends.cuda.flash_sdp_enabled()


def calls_decorated(x: Tensor) -> Any:
    return decorated_by_checks(x), decorated_by_flags(x), decorated_by_kernels(x)


def broken(x: Tensor) -> Any:
    with check_sparse_tensor_invariants():
        y = x * 2
        inside = checks_now()
        return y + 1, inside, checks_now()


def plain(result: Any) -> Any:
    if isinstance(result, tuple):
        return [plain(part) for part in result]
    return result.tolist() if isinstance(result, Tensor) else result


@pytest.mark.parametrize(
    "function",
    [no_device, checked, decorated_by_checks, decorated_by_flags, decorated_by_kernels, calls_decorated],
)
def test_in_one_graph(function: Function) -> None:
    x = torch.arange(3.0)
    run = armature.compile(function, backend="eager", fullgraph=True)
    assert plain(run(x)) == plain(run(x)) == plain(function(x))
    assert not checks_now()


def test_a_break_inside_keeps_the_setting() -> None:
    x = torch.arange(3.0)
    assert plain(armature.compile(broken, backend="eager")(x)) == plain(broken(x)) == [[1, 3, 5], True, True]
    assert not checks_now()


def test_a_setting_from_outside_is_guarded() -> None:
    run = armature.compile(checked, backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert plain(run(x)) == plain(checked(x))
    with check_sparse_tensor_invariants():
        assert plain(run(x)) == plain(checked(x))
