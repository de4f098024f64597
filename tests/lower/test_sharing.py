"""Which buffers share memory because an operator returned a part of its argument."""

from __future__ import annotations

from typing import Any

import torch

from armature.lower.data import ExternCall, View
from armature.lower.reasons import Reason
from armature.lower.sharing import shared_memory

aten = torch.ops.aten


def call(target: Any, *args: Any, outputs: tuple[str, ...], may_return_view: bool = False) -> ExternCall:
    given = tuple(View(a, (4,), (1,)) if isinstance(a, str) else a for a in args)
    return ExternCall("call", target, given, {}, outputs, may_return_view=may_return_view, reason=Reason("no-lowering"))


def test_what_shares_memory() -> None:
    calls = [
        call(aten.as_strided.default, "a", (2,), (1,), outputs=("b",)),
        call(aten.mm.default, "b", "b", outputs=("c",)),
        call(aten.split.Tensor, "b", 2, outputs=("d", "e")),
        call(aten.unsafe_split.Tensor, "f", 2, outputs=("g", "h"), may_return_view=True),
    ]
    found = shared_memory(calls)
    assert set(found) == {"a", "b", "d", "e", "f", "g", "h"}
    assert len({found[name] for name in "abde"}) == 1 and len({found[name] for name in "fgh"}) == 1
    assert found["a"] != found["f"]
