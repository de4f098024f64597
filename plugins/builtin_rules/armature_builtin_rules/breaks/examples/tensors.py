"""Tensors: what they are, their methods and attributes, operators that refuse."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import BaseTorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor


def sparse_tensor(x: Tensor) -> Tensor:
    return (x + x).to_dense()


def sparse_tensor_inputs() -> tuple[object, ...]:
    return (torch.eye(3).to_sparse(),)


def sparse_tensor_mended(x: Tensor) -> Tensor:
    return x + x


def sparse_tensor_mended_inputs() -> tuple[object, ...]:
    return (torch.eye(3),)


tensor_layout_mended_inputs = view_of_changed_base_mended_inputs = sparse_tensor_mended_inputs


def tensor_layout(x: Tensor) -> Tensor:
    return (x + x).to_dense()


def tensor_layout_inputs() -> tuple[object, ...]:
    return (torch.ones(2, 2).to_mkldnn(),)


def tensor_layout_mended(x: Tensor) -> Tensor:
    return x + x


def view_of_changed_base(x: Tensor) -> Tensor:
    return x * 2


def view_of_changed_base_inputs() -> tuple[object, ...]:
    base = torch.ones(4, requires_grad=True) * 1
    first, _ = base.unbind(0)[:2]
    with torch.no_grad():
        first.add_(1)
    return (first,)


def view_of_changed_base_mended(x: Tensor) -> Tensor:
    return x * 2


class Careless(TwoTensor):
    """A tensor subclass that is rebuilt as its base class."""


def opaque_subclass(x: Tensor) -> Tensor:
    return x + 1


def opaque_subclass_inputs() -> tuple[object, ...]:
    return (Careless(torch.ones(2), torch.ones(2)),)  # type: ignore[no-untyped-call]


def opaque_subclass_mended(x: Tensor) -> Tensor:
    return x + 1


def opaque_subclass_mended_inputs() -> tuple[object, ...]:
    return (torch.ones(2),)


class Watched(Tensor):
    """A tensor subclass with an attribute lookup of its own."""

    def __getattr__(self, name: str) -> object:
        raise AttributeError(name)


def tensor_subclass(x: Tensor) -> Tensor:
    return x + 1


def tensor_subclass_inputs() -> tuple[object, ...]:
    return (torch.ones(2).as_subclass(Watched),)


def tensor_subclass_mended(x: Tensor) -> Tensor:
    return x + 1


def tensor_subclass_mended_inputs() -> tuple[object, ...]:
    return (torch.ones(2),)


class Halving(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x / 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad / 2


def overridden_call(x: Tensor) -> object:
    with BaseTorchFunctionMode():
        return Halving.apply(x)  # type: ignore[no-untyped-call]


def overridden_call_mended(x: Tensor) -> object:
    return Halving.apply(x)  # type: ignore[no-untyped-call]


class Shy(Tensor):
    """A tensor subclass that refuses all functions."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        return NotImplemented


def no_override_takes_it(x: Tensor) -> object:
    try:
        return torch.sin(x)
    except TypeError:
        return 1


def no_override_takes_it_inputs() -> tuple[object, ...]:
    return (torch.ones(2).as_subclass(Shy),)


def no_override_takes_it_mended(x: Tensor) -> object:
    return torch.sin(x)


def no_override_takes_it_mended_inputs() -> tuple[object, ...]:
    return (torch.ones(2),)


def mode_not_entered(x: Tensor) -> object:
    try:
        torch.overrides._pop_mode()
    except Exception:
        return x + 1
    return x


def mode_not_entered_mended(x: Tensor) -> object:
    with BaseTorchFunctionMode():
        return x + 1


def tensor_backward(x: Tensor) -> object:
    w = x.detach().requires_grad_()
    w.sin().sum().backward()
    return w.grad


def tensor_backward_mended(x: Tensor) -> object:
    return torch.func.grad(lambda w: w.sin().sum())(x)


def tensor_requires_grad(x: Tensor) -> object:
    y = x * 1
    y.requires_grad_(False)
    return y + 1


def with_history() -> tuple[object, ...]:
    return (torch.ones(2, requires_grad=True),)


tensor_requires_grad_inputs = with_history


def tensor_requires_grad_mended(x: Tensor) -> object:
    return (x * 1).detach() + 1


def tensor_retain_grad(x: Tensor) -> object:
    x.retain_grad()
    return x * 2


def an_intermediate() -> tuple[object, ...]:
    return (torch.ones(2, requires_grad=True) * 1,)


tensor_retain_grad_inputs = an_intermediate


def tensor_retain_grad_mended(x: Tensor) -> object:
    y = x * 2
    y.retain_grad()
    return y


def tensor_detach(x: Tensor) -> object:
    x.detach_()
    return x * 2


tensor_detach_inputs = an_intermediate


def tensor_detach_mended(x: Tensor) -> object:
    return x.detach() * 2


class Tripling(torch.autograd.Function):
    """The hook."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 3


def tensor_resize(x: Tensor) -> object:
    y = x * 1
    y.resize_(3, 2)
    return y + 1


def tensor_resize_mended(x: Tensor) -> object:
    return (x * 1).reshape(3, 2) + 1


def tensor_resize_as(x: Tensor) -> object:
    y = x * 1
    return y.resize_as_(x.T) + 1


def tensor_resize_as_mended(x: Tensor) -> object:
    return (x * 1).reshape(3, 2) + 1


def tensor_share_memory(x: Tensor) -> object:
    return (x * 1).share_memory_() + 1


def tensor_share_memory_mended(x: Tensor) -> object:
    return x * 1 + 1


def tensor_storage(x: Tensor) -> object:
    return x + 1, (x * 2).untyped_storage().nbytes()


def tensor_storage_mended(x: Tensor) -> object:
    y = x * 2
    return x + 1, y.numel() * y.element_size()


def tensor_apply(x: Tensor) -> object:
    return (x * 1).apply_(math.sin) + 1


def tensor_apply_mended(x: Tensor) -> object:
    return (x * 1).sin() + 1


def exports_memory(x: Tensor) -> object:
    return x + 1, x.__dlpack__() is None


def exports_memory_mended(x: Tensor) -> object:
    return x + 1, False


def pins_memory(x: Tensor) -> object:
    try:
        return x.pin_memory() + 1
    except RuntimeError:
        return x + 1


def pins_memory_mended(x: Tensor) -> object:
    return x + 1


def tensor_method(x: Tensor) -> object:
    return x + 1, x.__sizeof__() > 0


def tensor_method_mended(x: Tensor) -> object:
    return x + 1, x.numel() > 0


def as_subclass(x: Tensor) -> object:
    return x.as_subclass(TwoTensor).shape


def as_subclass_mended(x: Tensor) -> object:
    return TwoTensor(x, x).shape


def gradient_of_intermediate(x: Tensor) -> object:
    y = x * 2
    return y, y.grad_fn is not None


gradient_of_intermediate_inputs = with_history


def gradient_of_intermediate_mended(x: Tensor) -> object:
    y = x * 2
    return y, y.requires_grad


def version_of_tensor(x: Tensor) -> object:
    x.add_(1)
    return x._version


def version_of_tensor_mended(x: Tensor) -> object:
    version = x._version
    x.add_(1)
    return version


def sets_tensor_attribute(x: Tensor) -> Any:
    y = x * 1
    try:
        y.shape = (3, 2)  # type: ignore[assignment]
    except AttributeError:
        return y + 1


def sets_tensor_attribute_mended(x: Tensor) -> object:
    y = x * 1
    y.note = 1  # type: ignore[attr-defined]
    return y + 1


def sets_data(x: Tensor) -> object:
    y = x * 1
    y.data = x.to_dense() if x.is_sparse else nn.Parameter(x).as_subclass(Plainly)
    return y + 1


class Plainly(Tensor):
    """A subclass that adds nothing."""


def sets_data_mended(x: Tensor) -> object:
    y = x * 1
    y.copy_(x)
    return y + 1


def sets_data_of_other_size(x: Tensor) -> object:
    x.grad = torch.ones_like(x)
    x.data = torch.ones(5)
    return x + 1


def sets_data_of_other_size_mended(x: Tensor) -> object:
    return torch.ones(5) + 1


def tensor_hook(x: Tensor) -> object:
    y = x * 2
    try:
        y.register_hook(lambda gradient: gradient * 3)
    except RuntimeError:  # nothing wants its gradient
        return y + 1
    return y


def tensor_hook_mended(x: Tensor) -> object:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3)
    return y + 1


tensor_hook_mended_inputs = with_history


def attribute_of_tensor(x: Tensor) -> object:
    return x + len(x.__dict__)


def attribute_of_tensor_mended(x: Tensor) -> object:
    return x + len(x.shape)


def quantized_tensor(x: Tensor) -> object:
    return x.dequantize() + 1


def quantized_tensor_inputs() -> tuple[object, ...]:
    return (torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.quint8),)


def quantized_tensor_mended(x: Tensor) -> object:
    return x + 1


def quantized_tensor_mended_inputs() -> tuple[object, ...]:
    return (torch.ones(2, 3),)


SENTENCES = [torch.ones(2), torch.ones(3)]
with warnings.catch_warnings(action="ignore"):  # torch warns that they are a prototype
    STRIDED = torch.nested.nested_tensor(SENTENCES)
JAGGED = torch.nested.nested_tensor(SENTENCES, layout=torch.jagged)


def nested_tensor(x: Tensor) -> object:
    return x + STRIDED.is_nested


def nested_tensor_mended(x: Tensor) -> object:
    return x + JAGGED.is_nested


def tensor_set(x: Tensor) -> object:
    y = torch.empty(0).set_(x.untyped_storage(), 0, (2,), (1,))
    return y + 1


def tensor_set_mended(x: Tensor) -> object:
    y = torch.empty(2).copy_(x[0, :2])
    return y + 1


if hasattr(Tensor, "rename"):  # torch 2.13 has no names of dimensions

    def named_tensor(x: Tensor) -> object:
        named: Any = x
        return named.rename("rows", "columns").sum("rows").rename(None)

    def named_tensor_mended(x: Tensor) -> object:
        return x.sum(0)
