"""Arrays of the program whose lengths vary from call to call: after the second, one compilation serves all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import armature
from armature.pipeline.session import session


def written(array: Any) -> Any:
    tensor = torch.from_numpy(array)
    tensor += 1
    return tensor * 2, array


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "from_numpy": lambda array: torch.from_numpy(array).sum() * 2,
    "tensor": lambda array: (torch.tensor(array) + 1, torch.as_tensor(array)),
    "shape": lambda array: torch.from_numpy(array) * array.shape[0],
    "returned": lambda array: (torch.from_numpy(array) + 1, array, array.dtype),
    "written": written,
    "in a list": lambda array: torch.cat([torch.from_numpy(part) for part in (array, array)]),
}
FIXED: dict[str, Callable[[Any], Any]] = {
    "numpy's functions": lambda array: torch.from_numpy(np.concatenate([array, array * 2])),
    "length": lambda array: torch.from_numpy(array) * len(array),
    "both": lambda array: (torch.from_numpy(array) + 1, array.sum(0), array.size),
    "rows": lambda array: [torch.from_numpy(row) for row in array],
}


def arrays(length: int) -> Any:
    return np.arange(length * 2, dtype=np.float32).reshape(length, 2)


@pytest.mark.parametrize("name", [*PROGRAMS, *FIXED])
def test_as_in_eager_mode(name: str) -> None:
    armature.reset()
    program = (PROGRAMS | FIXED)[name]
    compiled = armature.compile(program, backend="eager", fullgraph=True)
    with session().recording() as records:
        for length in (2, 3, 5, 4, 7, 1, 2, 6):
            mine, eager = arrays(length), arrays(length)
            assert str(compiled(mine)) == str(program(eager))
            assert str(mine) == str(eager)
    most = 3 if name in PROGRAMS else 8  # a length of one has code of its own
    assert len(records.compilations) <= most


def test_arrays_that_may_not_be_written_to() -> None:
    armature.reset()
    compiled = armature.compile(lambda array: torch.tensor(array) * 2, backend="eager", fullgraph=True)
    for length in (2, 3, 4):
        array = arrays(length)
        array.setflags(write=False)
        assert compiled(array).tolist() == (array * 2).tolist()
