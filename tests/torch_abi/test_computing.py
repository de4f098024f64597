"""The mode under which only operators run that always give the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from armature.torch_abi.computing import NotKnown, OnlyConstants


def test_what_always_gives_the_same_is_computed() -> None:
    with OnlyConstants():
        found = torch.where(torch.arange(4) >= 2, 1.0, torch.full((4,), 2.0)).expand(2, 4)
    torch.testing.assert_close(found, torch.tensor([[2.0, 2.0, 1.0, 1.0]] * 2))


@pytest.mark.parametrize(
    "refused",
    [lambda: torch.rand(3), lambda: torch.zeros(3).add_(1), lambda: torch.nn.functional.dropout(torch.ones(3), 0.5)],
    ids=["random", "written to", "dropout"],
)
def test_what_does_not_is_refused(refused: Callable[[], object]) -> None:
    with OnlyConstants(), pytest.raises(NotKnown):
        refused()
