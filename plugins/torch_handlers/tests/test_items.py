"""Items of tensors that arrays of numpy choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

np = pytest.importorskip("numpy")


def written(x: Tensor, i: Any) -> Tensor:
    y = x.clone()
    y[i] = 3
    y[:, i] += 1
    return y


PROGRAMS: dict[str, Callable[..., Any]] = {
    "rows": lambda x, i: x[i] * 2,
    "columns": lambda x, i: x[:, i],
    "both": lambda x, i: x[i, i],
    "with others": lambda x, i: x[None, ..., i] + x[i, 1],
    "of two dimensions": lambda x, i: x[:, i.reshape(2, 1)],
    "made inside": lambda x, i: x[np.array([0, 2])] + x[:, np.arange(3)][:2],
    "written": written,
    "a list beside": lambda x, i: x[[0, 1], i],
}


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_chosen_by_arrays(name: str, dtype: str) -> None:
    armature.reset()
    quick = armature.compile(PROGRAMS[name], backend="eager", fullgraph=True)
    x = torch.randn(3, 3, requires_grad=True)
    for places in ([0, 2], [2, 2], [1, -1]):
        index = np.array(places, dtype=dtype)
        torch.testing.assert_close(quick(x, index), PROGRAMS[name](x, index), rtol=0, atol=0)
    assert len(session().compilations) == 1


OTHERS: dict[str, Any] = {
    "mask": np.array([True, False, True]),
    "bytes": np.array([1, 0, 1], dtype="uint8"),
    "floats": np.array([0.0, 2.0]),
    "rows of an array": np.array([[0, 1], [2, 2]]),
    "no dimensions": np.array(1),
    "nothing": np.array([], dtype="int64"),
    "scalar": np.int64(2),
    "out of range": np.array([7]),
}


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", ["rows", "columns", "both", "written"])
def test_other_arrays(name: str, other: str) -> None:
    """As in eager mode, in one graph or not."""
    armature.reset()
    quick = armature.compile(PROGRAMS[name], backend="eager")
    x = torch.randn(3, 3)
    ours, theirs = outcome(quick, x, OTHERS[other]), outcome(PROGRAMS[name], x, OTHERS[other])
    assert type(ours) is type(theirs)
    if isinstance(theirs, Tensor):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    else:
        assert ours[0] is theirs[0]
