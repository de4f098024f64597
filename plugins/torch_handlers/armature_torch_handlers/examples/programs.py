"""Operators over functions, autograd, state of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.strict_mode import strict_mode
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint


def global_state(x: Tensor) -> object:
    torch.set_flush_denormal(False)
    return x + 1


def global_state_mended(x: Tensor) -> object:
    return x + 1


def cond_predicate(x: Tensor) -> object:
    try:
        return torch.cond(x.dim() + 1, lambda y: y + 1, lambda y: y - 1, (x,))
    except RuntimeError:
        return x


def cond_predicate_mended(x: Tensor) -> object:
    return torch.cond(x.dim() > 1, lambda y: y + 1, lambda y: y - 1, (x,))


def creates_parameter(x: Tensor) -> object:
    try:
        return nn.Parameter([1.0])  # type: ignore[arg-type]
    except (TypeError, AttributeError):
        return x + 1


def creates_parameter_mended(x: Tensor) -> object:
    return nn.Parameter(torch.ones(2)).detach() + x.sum()


def creates_buffer(x: Tensor) -> object:
    return nn.Buffer(x * 2).detach() + 1


def creates_buffer_inputs() -> tuple[object, ...]:
    return (torch.ones(2, requires_grad=True),)


def creates_buffer_mended(x: Tensor) -> object:
    return nn.Buffer(x.detach() * 2) + 1


def tensor_new(x: Tensor) -> object:
    return x.new(range(2)) + 1


def tensor_new_mended(x: Tensor) -> object:
    return x.new_tensor(list(range(2))) + 1


def foreign_memory(x: Tensor) -> object:
    return torch.frombuffer(bytearray(8), dtype=torch.float32) + x.sum()


def foreign_memory_mended(x: Tensor) -> object:
    return torch.zeros(2) + x.sum()


def storage_size(x: Tensor) -> object:
    x.add_(1)
    return x + x.untyped_storage().size()


def storage_size_mended(x: Tensor) -> object:
    size = x.untyped_storage().size()
    x.add_(1)
    return x + size


class Remembering(torch.autograd.Function):
    """Changes something outside of it."""

    calls = [0]

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        Remembering.calls[0] = 1
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class Doubling(torch.autograd.Function):
    """Only computes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


def with_history() -> tuple[object, ...]:
    return (torch.ones(2, requires_grad=True),)


def autograd_function(x: Tensor) -> object:
    return Remembering.apply(x)  # type: ignore[no-untyped-call]


autograd_function_inputs = with_history


def autograd_function_mended(x: Tensor) -> object:
    return Doubling.apply(x)  # type: ignore[no-untyped-call]


def reentrant_checkpoint(x: Tensor) -> object:
    return checkpoint(lambda y: (y.detach() + 1, y * 2), x, use_reentrant=True)


reentrant_checkpoint_inputs = with_history


def reentrant_checkpoint_mended(x: Tensor) -> object:
    return checkpoint(lambda y: (y.detach() + 1, y * 2), x, use_reentrant=False)


def inference_mode(x: Tensor) -> object:
    mode = torch._C._InferenceMode(False)
    return x + 1, mode is None


def inference_mode_mended(x: Tensor) -> object:
    with torch.inference_mode():
        return x + 1, False


def cond_branches(x: Tensor) -> object:
    return torch.cond(x.sum() > 0, torch.sin, lambda a: a, (x,))


def cond_branches_mended(x: Tensor) -> object:
    return torch.cond(x.sum() > 0, torch.sin, lambda a: a + 0, (x,))


def transform_level(x: Tensor) -> object:
    torch._C._functorch._grad_increment_nesting()
    torch._C._functorch._grad_decrement_nesting()
    return x + 1


def transform_level_mended(x: Tensor) -> object:
    return torch.func.grad(lambda a: (a + 1).sum())(x)


WEIGHT = torch.ones(3, requires_grad=True)


def hints_wrapper(x: Tensor) -> object:
    return strict_mode(lambda a: a * WEIGHT, (x,))


def hints_wrapper_mended(x: Tensor) -> object:
    return strict_mode(lambda a: a * 2, (x,))


def flex_attention_arguments(x: Tensor) -> object:
    q = x.new_ones(1, 2, 16, 8)
    try:
        return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + x)
    except RuntimeError:
        return x + 1


def flex_attention_arguments_mended(x: Tensor) -> object:
    q = x.new_ones(1, 2, 16, 8)
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + x[0, 0])


STEPS: list[int] = []


def loop_operator(x: Tensor) -> object:
    def step(row: Tensor, *others: Any) -> Tensor:
        STEPS.append(1)
        return row + 1

    try:
        return torch_map(step, x)
    except RuntimeError:
        return x


def loop_operator_mended(x: Tensor) -> object:
    def step(row: Tensor, *others: Any) -> Tensor:
        return row + 1

    return torch_map(step, x)


def scores() -> tuple[object, ...]:
    return (torch.ones(1, 2, 16, 8),)


def flex_attention_function(q: Tensor) -> object:
    def seen(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        STEPS.append(1)
        return score * 2

    try:
        return flex_attention(q, q, q, score_mod=seen)
    except RuntimeError:
        return q


flex_attention_function_inputs = scores


def flex_attention_function_mended(q: Tensor) -> object:
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score * 2)


BIAS = torch.linspace(0, 1, 16, requires_grad=True)
FIXED = torch.linspace(0, 1, 16)


def blocks_of(bias: Tensor) -> tuple[object, ...]:
    blocks = create_block_mask(lambda b, h, i, j: bias[i] >= bias[j], 1, 1, 16, 16, device="cpu")
    return torch.linspace(-1, 1, 256).reshape(1, 2, 16, 8), blocks


def flex_attention_gradient_inputs() -> tuple[object, ...]:
    return blocks_of(BIAS)


def flex_attention_gradient(q: Tensor, learned_mask: Any) -> object:
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + BIAS[j], block_mask=learned_mask)


def flex_attention_gradient_called(fn: Callable[..., Any], *args: Any) -> object:
    # Without this, torch's eager mode computes it on GPUs only.
    with mock.patch("torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True):
        return fn(*args)


def flex_attention_gradient_mended_inputs() -> tuple[object, ...]:
    return blocks_of(FIXED)


def flex_attention_gradient_mended(q: Tensor, fixed_mask: Any) -> object:
    return flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + FIXED[j], block_mask=fixed_mask)


def flex_attention_gradient_mended_called(fn: Callable[..., Any], *args: Any) -> object:
    return fn(*args)


class Undefined(torch.autograd.Function):
    """Sets what torch keeps for itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> object:
        ctx._materialize_non_diff_grads = False
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> object:
        return grad * 2


def autograd_context_attribute(x: Tensor) -> object:
    return Undefined.apply(x)  # type: ignore[no-untyped-call]


def autograd_context_attribute_mended(x: Tensor) -> object:
    return Doubling.apply(x)  # type: ignore[no-untyped-call]


def casts_inside(x: Tensor) -> object:
    with torch.autocast("cpu"):
        return torch.linalg.pinv(x) * 2


def casts_inside_inputs() -> tuple[object, ...]:
    return (torch.eye(3) + 1,)


def casts_inside_mended(x: Tensor) -> object:
    with torch.autocast("cpu", enabled=False):
        return torch.linalg.pinv(x) * 2
