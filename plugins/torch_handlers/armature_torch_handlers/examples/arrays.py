"""Arrays of numpy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import numpy as np
except ImportError:  # the examples are then not run
    np = None  # type: ignore[assignment]


def array_value(x: Tensor) -> Any:
    return x + x.numpy().tolist()[0][0]


def array_value_mended(x: Tensor) -> Any:
    return x + x[0, 0]


def array_branch(x: Tensor) -> Any:
    return x + 1 if x.numpy().max() > 0 else x - 1


def array_branch_mended(x: Tensor) -> Any:
    return torch.where(x.max() > 0, x + 1, x - 1)


def tensor_in_numpy(x: Tensor) -> Any:
    return torch.from_numpy(np.add(x.numpy(), x))


def tensor_in_numpy_mended(x: Tensor) -> Any:
    return torch.from_numpy(np.add(x.numpy(), x.numpy()))


def array_dtype(x: Tensor, words: Any) -> Any:
    return x + len(words)


def array_dtype_inputs() -> tuple[Any, ...]:
    return torch.ones(3), np.array(["a", "b"])


def array_dtype_mended(x: Tensor, words: Any) -> Any:
    return x + len(words)


def array_dtype_mended_inputs() -> tuple[Any, ...]:
    return torch.ones(3), ["a", "b"]


class Options:
    """An object of the program."""


OPTIONS = Options()


def tensor_of_array(x: Tensor) -> Any:
    return torch.tensor(x.numpy(), requires_grad=True)


def tensor_of_array_mended(x: Tensor) -> Any:
    return torch.tensor(x.numpy())


def array_as_tensor(x: Tensor) -> Any:
    try:
        return torch.from_numpy([1.0])
    except TypeError:
        return x + 1


def array_as_tensor_mended(x: Tensor) -> Any:
    return torch.from_numpy(x.numpy()) + 1
