"""A position out of range raises, wherever the memory that it is a position in comes from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature

TABLE = torch.arange(36.0).view(9, 4)

TABLES: dict[str, Callable[[], Tensor]] = {
    "one row": lambda: TABLE[:1],
    "one row, computed": lambda: TABLE[:1] * 2 + 1,
    "one row, of many": lambda: TABLE[:1].expand(5, 4),
    "zeros": lambda: torch.zeros(5, 4),
    "numbers": lambda: torch.arange(20.0).view(5, 4),
    "rows of one number": lambda: torch.arange(5.0)[:, None].expand(5, 4),
    "columns": lambda: torch.arange(4.0).expand(5, 4),
}
READ: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "embedding": lambda i, table: F.embedding(i, table) * 2,
    "index": lambda i, table: table[i] + 1,
    "index_select": lambda i, table: table.index_select(0, i).sum(1),
    "gather": lambda i, table: table.gather(0, i[:, None]) * 2,
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("table", TABLES)
def test_a_read(table: str, read: str) -> None:
    def program(i: Tensor) -> Tensor:
        return READ[read](i, TABLES[table]())

    armature.reset()
    compiled = armature.compile(program, fullgraph=True)
    last = len(TABLES[table]()) - 1
    good = torch.tensor([0, last, 0])
    torch.testing.assert_close(compiled(good), program(good))
    with pytest.raises((IndexError, RuntimeError)):
        program(torch.tensor([0, last + 1, 0]))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(torch.tensor([0, last + 1, 0]))


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32])
def test_a_table_of_positions_is_read_at_a_computed_position(kind: torch.dtype) -> None:
    def program(i: Tensor) -> Tensor:
        return torch.arange(1024.0).view(256, 4)[i.to(kind).long()] * 2

    armature.reset()
    i = torch.tensor([3.0, 250.0])
    torch.testing.assert_close(armature.compile(program, fullgraph=True)(i), program(i))
