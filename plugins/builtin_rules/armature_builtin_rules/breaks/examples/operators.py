"""Operators that refuse, their arguments and results."""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

import armature


def operator_runtime_error(x: Tensor) -> object:
    try:
        return x @ x
    except RuntimeError:
        return x


def operator_runtime_error_mended(x: Tensor) -> object:
    return x @ x.T


def operator_type_error(x: Tensor) -> object:
    try:
        return torch.cat(x, "rows")  # type: ignore[arg-type]
    except TypeError:
        return x


def operator_type_error_mended(x: Tensor) -> object:
    return torch.cat((x, x), 0)


def operator_index_error(x: Tensor) -> object:
    try:
        return x.sum(7)
    except IndexError:
        return x


def operator_index_error_mended(x: Tensor) -> object:
    return x.sum(1)


def operator_value_error(x: Tensor) -> object:
    try:
        return nn.functional.interpolate(x[None], size=(1, 2), scale_factor=2.0)
    except ValueError:
        return x


def operator_value_error_mended(x: Tensor) -> object:
    return nn.functional.interpolate(x[None], scale_factor=2.0)


@torch.library.custom_op("armature_examples::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2


@torch.library.custom_op("armature_examples::tripled", mutates_args=())
def tripled(x: Tensor) -> Tensor:
    return x * 3


tripled.register_fake(torch.empty_like)


def overlapping_write(x: Tensor) -> object:
    row = x[0]
    try:
        return row[1:].add_(row[:-1])
    except RuntimeError:
        return x


def overlapping_write_mended(x: Tensor) -> object:
    row = x[0]
    return row[1:].add_(row[:-1].clone())


def writes_to_inference_tensor(x: Tensor) -> object:
    try:
        return x.add_(1)
    except RuntimeError:
        return 1


def writes_to_inference_tensor_inputs() -> tuple[object, ...]:
    with torch.inference_mode():
        return (torch.ones(2),)


def writes_to_inference_tensor_mended(x: Tensor) -> object:
    return x + 1


@armature.allow_in_graph
def opaque(x: Tensor, kind: Any = None) -> Tensor:
    return x + 1


def class_as_argument(x: Tensor) -> object:
    return opaque(x, dict)


def class_as_argument_mended(x: Tensor) -> object:
    return opaque(x, "dict")


def function_as_argument(x: Tensor) -> object:
    return opaque(x, math.sin)


def function_as_argument_mended(x: Tensor) -> object:
    return opaque(x, "sin")


class Options:
    """An object of the program."""


OPTIONS = Options()


def argument_not_in_graph(x: Tensor) -> object:
    return opaque(x, OPTIONS)


def argument_not_in_graph_mended(x: Tensor) -> object:
    return opaque(x, None)


class Names(list[Any]):
    """A list with an item lookup of its own."""

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(0)


NAMES = Names([torch.ones(3), torch.zeros(3)])


def argument_of_derived_class(x: Tensor) -> object:
    return torch.stack(NAMES) + x.sum()


def argument_of_derived_class_mended(x: Tensor) -> object:
    return torch.stack([*NAMES]) + x.sum()


class Result:
    """The result of a function in the graph."""


@armature.allow_in_graph
def gives_object(x: Tensor) -> object:
    return RESULT


RESULT = Result()


def operator_result(x: Tensor) -> object:
    return x + 1, gives_object(x)


def operator_result_mended(x: Tensor) -> object:
    return x + 1, RESULT


def random_number_as_argument(x: Tensor) -> object:
    return opaque(x, random.random() < 2)


def random_number_as_argument_mended(x: Tensor) -> object:
    return opaque(x, True)


try:
    import numpy

    FLOAT16: Any = numpy.float16(1.5)
except ImportError:
    FLOAT16 = 1.5


def may_raise_after_change(x: Tensor, at: Tensor) -> object:
    x.mul_(2)
    return x.sin()[at]


def may_raise_after_change_inputs() -> tuple[object, ...]:
    return (torch.ones(4, requires_grad=True) * 1)[:3], torch.tensor([1, 2])


def may_raise_after_change_mended(x: Tensor, at: Tensor) -> object:
    y = x * 2
    return y.sin()[at]


CALLS: list[int] = []


@armature.trace_through
def noisy(x: Tensor) -> Tensor:
    CALLS.append(1)
    return x + 1


@armature.trace_through
def quiet(x: Tensor) -> Tensor:
    return x + 1


@armature.trace_through
def gives_generator(x: Tensor) -> object:
    return RESULT


def trace_through_result(x: Tensor) -> object:
    return x + 1, gives_generator(x)


def trace_through_result_mended(x: Tensor) -> object:
    return x + 1, quiet(x)


def operator_without_fake(x: Tensor) -> object:
    return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize()


def operator_without_fake_mended(x: Tensor) -> object:
    return torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)


def numpy_number_argument(x: Tensor) -> object:
    return torch.xlogy(x, np.bool_(True))  # type: ignore[call-overload]


def numpy_number_argument_mended(x: Tensor) -> object:
    return torch.xlogy(x, True)


def default_dtype_in_parts(x: Tensor) -> object:
    torch.set_default_dtype(torch.float64)
    y = torch.cond(x.sum() > 0, lambda a: a + torch.ones(3), lambda a: a - torch.ones(3), (x,))
    torch.set_default_dtype(torch.float32)
    return y


def default_dtype_in_parts_mended(x: Tensor) -> object:
    one = torch.ones(3, dtype=torch.float64)
    return torch.cond(x.sum() > 0, lambda a: a + one, lambda a: a - one, (x,))


def operator_failed(x: Tensor) -> object:
    try:
        return torch.zeros(2, dtype=torch.quint8) + x
    except NotImplementedError:
        return x + 1


def operator_failed_mended(x: Tensor) -> object:
    return torch.zeros(1, dtype=torch.uint8) + x


class Keeping(torch.autograd.Function):
    """Stores a tensor that it has made."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, box: list[Tensor]) -> Tensor:
        y = x * 2
        box.append(y)
        return x * 3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> object:
        return grad * 3, None


class Returning(torch.autograd.Function):
    """Returns both tensors that it makes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * 2 + grads[1] * 3


def kept_from_inner_graph(x: Tensor) -> object:
    box: list[Tensor] = []
    y = Keeping.apply(x, box)  # type: ignore[no-untyped-call]
    return y + box[0]


def kept_from_inner_graph_inputs() -> tuple[object, ...]:
    return (torch.ones(2, requires_grad=True),)


def kept_from_inner_graph_mended(x: Tensor) -> object:
    kept, y = Returning.apply(x)  # type: ignore[no-untyped-call]
    return y + kept


@armature.trace_through
def counting(x: Tensor, seen: list[int]) -> Tensor:
    seen.append(1)
    return x * 2


def without_the_mark(x: Tensor, seen: list[int]) -> Tensor:
    seen.append(1)
    return x * 2


def trace_through_changes(x: Tensor) -> object:
    seen: list[int] = []
    return counting(x, seen) + len(seen)


def trace_through_changes_mended(x: Tensor) -> object:
    seen: list[int] = []
    return without_the_mark(x, seen) + len(seen)


def value_not_rebuilt(x: Tensor) -> object:
    return x.untyped_storage()


def value_not_rebuilt_called(fn: Callable[..., Any], x: Tensor) -> int:
    return int(fn(x).nbytes())


def value_not_rebuilt_mended(x: Tensor) -> object:
    return x


def value_not_rebuilt_mended_called(fn: Callable[..., Any], x: Tensor) -> int:
    return int(fn(x).untyped_storage().nbytes())


def creates_wrapper_leaf_inputs() -> tuple[object, ...]:
    return (torch.ones(3, requires_grad=True),)


def creates_wrapper_leaf(x: Tensor) -> object:
    return TwoTensor(x, x).is_leaf


def creates_wrapper_leaf_mended(x: Tensor) -> object:
    return TwoTensor(x.detach(), x.detach()).is_leaf


if importlib.util.find_spec("triton") is not None:  # a launch of one of its kernels is such a call
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction

    def add_one(x: Any, n: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

    kernel: Any = InterpretedFunction(add_one)  # on CPU tensors; triton.jit makes one for a GPU

    class Marked(Tensor):
        """A tensor of a class of the program."""

    def argument_of_outside_call(x: Tensor) -> object:
        y = x * 2
        kernel[(1,)](y.as_subclass(Marked), y.numel(), BLOCK=8)
        return y

    def argument_of_outside_call_mended(x: Tensor) -> object:
        y = x * 2
        kernel[(1,)](y, y.numel(), BLOCK=8)
        return y
