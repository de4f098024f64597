"""What torch's optimizers do differently while they are compiled, brought back to what they do in eager mode.

They read numbers such as the count of steps out of tensors with `.item()`; compiled, they compute with the tensors. In
double precision, which is that of Python's floats, the results are the same.
"""

from __future__ import annotations

from typing import Any

import torch

from armature.plugin_api import Call, TracedTensor, Value, existing, handles


@handles(*existing("torch.optim.optimizer._get_value"))
def number_of(call: Call, x: Value) -> Value | None:
    """The number in a tensor, as a tensor of double precision without dimensions."""
    if not isinstance(x, TracedTensor) or not x.dtype.is_floating_point or x.fake.numel() != 1:
        return None
    return call.graph_call("reshape", call.graph_call("double", x), call.constant(()))


@handles(torch.Tensor.addcdiv_, torch.Tensor.addcmul_)
def scaled_addition(call: Call, self: Value, *args: Value, value: Value | None = None, **kwargs: Value) -> Value | None:
    """With a factor that is a tensor: torch itself would ask for its number."""
    if not isinstance(value, TracedTensor) or len(args) != 2 or kwargs:
        return None
    added = add_quotient if call.fn is torch.Tensor.addcdiv_ else add_product
    return call.polyfill(added, self, *args, value)


def add_quotient(self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, value: Any) -> torch.Tensor:
    """`self.addcdiv_(tensor1, tensor2, value=value)`."""
    return self.add_(value * tensor1 / tensor2)


def add_product(self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, value: Any) -> torch.Tensor:
    """`self.addcmul_(tensor1, tensor2, value=value)`."""
    return self.add_(value * tensor1 * tensor2)


@handles(torch._foreach_addcdiv_, torch._foreach_addcmul_)
def scaled_additions(call: Call, *args: Value, **kwargs: Value) -> Value | None:
    """The same on lists of tensors, with a tensor that holds one factor for each."""
    if len(args) != 4 or kwargs or not isinstance(args[3], TracedTensor):
        return None
    return call.polyfill(add_quotients if call.fn is torch._foreach_addcdiv_ else add_products, *args)


def add_quotients(self: Any, tensors1: Any, tensors2: Any, scalars: torch.Tensor) -> None:
    """`torch._foreach_addcdiv_(self, tensors1, tensors2, scalars)`."""
    for own, tensor1, tensor2, value in zip(self, tensors1, tensors2, scalars.unbind()):
        add_quotient(own, tensor1, tensor2, value)


def add_products(self: Any, tensors1: Any, tensors2: Any, scalars: torch.Tensor) -> None:
    """`torch._foreach_addcmul_(self, tensors1, tensors2, scalars)`."""
    for own, tensor1, tensor2, value in zip(self, tensors1, tensors2, scalars.unbind()):
        add_product(own, tensor1, tensor2, value)
