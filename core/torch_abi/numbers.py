"""Seam to `make_fx`: ATen graphs of functions of numbers, which operators such as flexible attention take."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from armature.torch_abi.attention import item_by_tensors


class _Reading(fx.Interpreter):
    """Runs a captured graph in which a one-element tensor is an index like any other."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(item_by_tensors if target is operator.getitem else target, args, kwargs)


def graph_of_numbers(
    module: fx.GraphModule,
    examples: Sequence[torch.Tensor],
    decompositions: Mapping[Any, Callable[..., Any]],
    derivative: bool = False,
) -> tuple[fx.GraphModule, tuple[torch.Tensor, ...]]:
    """The ATen graph of a captured one, and fakes of its inputs. examples: tensors like the inputs; their values are
    not read. derivative: with the gradient of the first input as a second result; then the last input is the gradient
    of the first result."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device) for one in examples]
        run: Callable[..., Any] = _Reading(module).run
        if derivative:
            fakes.append(run(*fakes).clone())
            run = with_gradient(run)
    with mode, torch.no_grad():
        made = make_fx(run, decomposition_table=dict(decompositions))(*fakes)
    return made, tuple(fakes)


def with_gradient(run: Callable[..., torch.Tensor]) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """A function of the inputs and of the result's gradient: the result, and the gradient of the first input."""

    def both(first: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        *others, given = rest
        with torch.enable_grad():
            leaf = first.detach().requires_grad_()
            result = run(leaf, *others)
            if not result.requires_grad:
                return result, torch.zeros_like(first)
            (found,) = torch.autograd.grad(result, leaf, given, allow_unused=True)
        return result.detach(), torch.zeros_like(first) if found is None else found.detach()

    return both
