"""Casts in inference mode: operators that autocast does not know are taken apart with autocast on, others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from armature.torch_abi import casts
from armature.torch_abi.dispatch_mode import DispatchMode

X, IMAGES = torch.randn(2, 4, 4), torch.randn(1, 2, 4, 4)
WIDE, NARROW = torch.float32, torch.bfloat16


class Seen(DispatchMode):
    """Notes products and convolutions, with the dtype of their first argument."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, torch.dtype | None]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ("bmm", "mm", "linear", "conv2d", "convolution", "einsum"):
            self.found.append((name, args[0].dtype if isinstance(args[0], Tensor) else None))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("fn", "shown", "hidden"),
    [
        (lambda: torch.einsum("bij,bjk->bik", X, X), [("bmm", NARROW)], [("einsum", None)]),
        (lambda: F.linear(X, X[0]), [("linear", NARROW)], [("linear", NARROW)]),
        (lambda: F.conv2d(IMAGES, IMAGES, padding="same"), [("conv2d", NARROW)], None),
    ],
)
def test_what_modes_see(fn: Callable[[], Tensor], shown: list[Any], hidden: list[Any] | None) -> None:
    with torch.inference_mode(), torch.autocast("cpu", NARROW):
        with Seen() as seen, casts.shown():
            fn()
        with Seen() as unaided:
            fn()
        assert torch.is_autocast_enabled("cpu")
    assert [one for one in seen.found if one[0] != "convolution"] == shown
    if hidden is not None:
        assert unaided.found == hidden


def test_parts_of_what_autocast_knows_are_not_cast() -> None:
    """`F.layer_norm` and the like are computed in float32 inside, as in eager mode."""
    with torch.inference_mode(), torch.autocast("cpu", NARROW), casts.shown():
        assert torch.ops.aten.layer_norm(X.to(NARROW), [4]).dtype == F.layer_norm(X.to(NARROW), [4]).dtype


@pytest.mark.parametrize(("inference", "enabled"), [(True, False), (False, True), (False, False)])
def test_elsewhere_it_is_nothing(inference: bool, enabled: bool) -> None:
    with torch.inference_mode(inference), torch.autocast("cpu", NARROW, enabled=enabled):
        assert casts.shown() is casts.NOTHING
        wrapped: Callable[[], Tensor] = casts.casting(lambda: X @ X)
        assert wrapped().dtype == (NARROW if enabled else WIDE)
