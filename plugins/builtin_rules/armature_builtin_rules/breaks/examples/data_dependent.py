"""Numbers, texts and addresses of tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def tensor_item(x: Tensor) -> Tensor:
    return x * x.max().item()


def tensor_item_mended(x: Tensor) -> Tensor:
    return x * x.max()


def tensor_to_list(x: Tensor) -> object:
    return [2 * number for number in x[0].tolist()]


def tensor_to_list_mended(x: Tensor) -> object:
    return 2 * x[0]


def number_of_tensor(x: Tensor) -> Tensor:
    return x + float(x.sum())


def number_of_tensor_mended(x: Tensor) -> Tensor:
    return x + x.sum()


def function_of_numbers(x: Tensor) -> Tensor:
    return x * math.sqrt(x.numel() + x.abs().sum())


def function_of_numbers_mended(x: Tensor) -> Tensor:
    return x * torch.sqrt(x.numel() + x.abs().sum())


def range_of_tensor(x: Tensor, n: Tensor) -> Tensor:
    for _ in range(n):
        x = x + 1
    return x


def range_of_tensor_mended(x: Tensor, n: Tensor) -> Tensor:
    return x + n


def range_of_tensor_inputs() -> tuple[object, ...]:
    return torch.linspace(-1, 1, 6).reshape(2, 3), torch.tensor(3)


def index_that_is_a_tensor(x: Tensor, n: Tensor) -> Tensor:
    return [x, x + 1, x + 2][n]


def index_that_is_a_tensor_mended(x: Tensor, n: Tensor) -> Tensor:
    return torch.stack([x, x + 1, x + 2]).index_select(0, n.view(1))[0]


def index_that_is_a_tensor_inputs() -> tuple[object, ...]:
    return torch.linspace(-1, 1, 6).reshape(2, 3), torch.tensor(1)


def tensor_contains(x: Tensor) -> object:
    return x + 1, 1.0 in x


def tensor_contains_mended(x: Tensor) -> object:
    return x + 1, (x == 1.0).any()


def dynamic_shape_operator(x: Tensor) -> Tensor:
    return x[x > 0].sum()


def dynamic_shape_operator_mended(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, 0).sum()


def data_dependent_operator(x: Tensor) -> Tensor:
    return torch.ops.aten._local_scalar_dense.default(x.sum()) + x  # type: ignore[no-any-return]


def data_dependent_operator_mended(x: Tensor) -> Tensor:
    return x.sum() + x


def compares_tensors(x: Tensor) -> object:
    return x + 1, torch.equal(x, x * 1)


def compares_tensors_mended(x: Tensor) -> object:
    return x + 1, (x == x * 1).all()


def text_of_tensor(x: Tensor) -> object:
    return x + 1, len(x.sum().__format__(""))


def text_of_tensor_mended(x: Tensor) -> object:
    return x + 1, f"{x.shape}"


def tensor_to_numpy(x: Tensor) -> object:
    return x + 1, x.__array__().nbytes


def tensor_to_numpy_mended(x: Tensor) -> object:
    return x + 1, x.numel() * x.element_size()


def tensor_address(x: Tensor) -> object:
    return x + 1, x.data_ptr() == x.view(-1).data_ptr()


def tensor_address_mended(x: Tensor) -> object:
    return x + 1, x is x


def tensor_of_tensors(x: Tensor) -> Tensor:
    return torch.tensor([x[0, 0], x[1, 1], 1], dtype=torch.int64) + x.sum()


def tensor_of_tensors_mended(x: Tensor) -> Tensor:
    return torch.stack([x[0, 0], x[1, 1], x.new_ones(())]).to(torch.int64) + x.sum()


def unknown_stride(x: Tensor) -> object:
    y = x[:1].sort(1)[0]
    return y, y.stride()


def unknown_stride_mended(x: Tensor) -> object:
    y = x[:1].sort(1)[0]
    return y, y.is_contiguous()


def format_character(x: Tensor) -> object:
    return x + 1, f"{torch.tensor(65):c}"


def format_character_mended(x: Tensor) -> object:
    return x + 1, f"{65:c}"


def number_of_objects(x: Tensor) -> object:
    return x * abs(complex(Half(), 1))


def number_of_objects_mended(x: Tensor) -> object:
    return x * abs(complex(float(Half()), 1))


class Half:
    """A number of the program."""

    def __float__(self) -> float:
        return 0.5


@torch.library.custom_op("armature_examples::steps_for", mutates_args=())
def steps_for(width: int) -> int:
    """An operator of the program that is given no tensor."""
    return 2 * width


@steps_for.register_fake
def _(width: int) -> int:
    return 2 * width


def unknown_answer(x: Tensor) -> object:
    return x * torch.ops.armature_examples.steps_for(3)


def unknown_answer_mended_inputs() -> tuple[object, ...]:
    return torch.ones(2, 3), steps_for(3)


def unknown_answer_mended(x: Tensor, steps: int) -> object:
    return x * steps
