"""Storages of tensors of the program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from armature.api import public as api
from armature.testing.handler_kit import break_id


def counts(x: Tensor) -> tuple[Tensor, int, int]:
    storage = x.untyped_storage()
    return x + storage.size(), storage.nbytes(), len(x.untyped_storage())


@pytest.mark.parametrize("options", [{"backend": "eager"}, {}], ids=str)
def test_the_bytes_are_counted_and_guarded(options: dict[str, Any]) -> None:
    compiled = api.compile(counts, fullgraph=True, **options)
    for x in (torch.ones(4), torch.ones(8)[:4], torch.ones(4), torch.ones(5), torch.ones(6), torch.ones(9)[::2]):
        found, expected = compiled(x), counts(x)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]


@pytest.mark.parametrize("fn", [
    lambda x: x + (x * 2).untyped_storage().size(),
    lambda x: x + x.untyped_storage().data_ptr(),
    lambda x: x.untyped_storage().resize_(64) and x + 1,
    lambda x: x.add_(1) + x.untyped_storage().size(),
    lambda x: (x + 1, x.untyped_storage()),
    lambda x: x.set_(torch.ones(9)) + x.untyped_storage().size(),
    lambda x: torch.add(x, 1, out=x) + x.untyped_storage().size(),
    lambda x: (setattr(x, "data", torch.ones(9)), x + x.untyped_storage().size()),
])  # fmt: skip
def test_what_breaks(fn: Any) -> None:
    assert break_id(fn, (torch.ones(4),))
    x, y = torch.ones(4), torch.ones(4)
    if "data_ptr" not in fn.__code__.co_names:
        assert str(api.compile(fn, backend="eager")(x)) == str(fn(y))
