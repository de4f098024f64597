"""Arrays of numpy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import numpy as np
except ImportError:  # the examples are then not run
    np = None  # type: ignore[assignment]


def array_value(x: Tensor) -> object:
    return x + x.numpy().tolist()[0][0]


def array_value_mended(x: Tensor) -> object:
    return x + x[0, 0]


def array_branch(x: Tensor) -> object:
    return x + 1 if x.numpy().max() > 0 else x - 1


def array_branch_mended(x: Tensor) -> object:
    return torch.where(x.max() > 0, x + 1, x - 1)


def tensor_in_numpy(x: Tensor) -> object:
    return torch.from_numpy(np.add(x.numpy(), x))


def tensor_in_numpy_mended(x: Tensor) -> object:
    return torch.from_numpy(np.add(x.numpy(), x.numpy()))


def array_dtype(x: Tensor, words: Any) -> object:
    return x + len(words)


def array_dtype_inputs() -> tuple[object, ...]:
    return torch.ones(3), np.array(["a", "b"])


def array_dtype_mended(x: Tensor, words: Any) -> object:
    return x + len(words)


def array_dtype_mended_inputs() -> tuple[object, ...]:
    return torch.ones(3), ["a", "b"]


class Options:
    """An object of the program."""


OPTIONS = Options()


def tensor_of_array(x: Tensor) -> object:
    return torch.tensor(x.numpy(), requires_grad=True)


def tensor_of_array_mended(x: Tensor) -> object:
    return torch.tensor(x.numpy())


def array_as_tensor(x: Tensor) -> object:
    try:
        return torch.from_numpy([1.0])
    except TypeError:
        return x + 1


def array_as_tensor_mended(x: Tensor) -> object:
    return torch.from_numpy(x.numpy()) + 1


def array_differs(x: Tensor) -> object:
    return x + torch.from_numpy(np.flip(x.numpy()).copy())


def array_differs_mended(x: Tensor) -> object:
    return x + x.flip(0, 1)


def array_attribute(x: Tensor) -> object:
    return x + x.numpy().byteswap().size


def array_attribute_mended(x: Tensor) -> object:
    return x + x.numpy().size


def array_function_fails(x: Tensor) -> object:
    return x + torch.from_numpy(np.linalg.inv((torch.eye(3) * x.max()).numpy()))[:2]


def array_function_fails_mended(x: Tensor) -> object:
    return x + torch.linalg.inv(torch.eye(3) * x.max())[:2]


def array_argument(x: Tensor) -> object:
    try:
        return np.add(x.numpy(), object())  # type: ignore[call-overload]
    except TypeError:
        return x + 1


def array_argument_mended(x: Tensor) -> object:
    return torch.from_numpy(np.add(x.numpy(), x.numpy()))


def tensor_of_numpy_numbers(x: Tensor) -> object:
    return x + torch.tensor([np.float32(1), x.numpy().sum()]).sum()


def tensor_of_numpy_numbers_mended(x: Tensor) -> object:
    return x + torch.stack((torch.ones(()), x.sum())).sum()


def array_errors(x: Tensor) -> object:
    return torch.from_numpy(x.numpy() / 2)


def array_errors_called(fn: Any, x: Tensor) -> object:
    with np.errstate(all="raise"):
        return fn(x)


def array_errors_mended(x: Tensor) -> object:
    return torch.from_numpy(x.numpy() / 2)


def array_errors_mended_called(fn: Any, x: Tensor) -> object:
    with np.errstate(all="ignore"):
        return fn(x)
