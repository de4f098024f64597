"""Derivatives of gradients that a compiled backward graph computes.

Autograd can't differentiate a backward graph. When a gradient is differentiated, the captured graph is run once more,
operator by operator, and autograd finds what it would have found in eager mode. That needs the inputs of the call,
which are only referenced weakly, because almost no training differentiates twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Any

import attrs
import torch
from torch import Tensor, fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from armature.torch_abi.eval_frame import skip_code
from armature.torch_abi.grad_modes import AUTOCAST_DEVICES
from armature.torch_abi.operators import drops_nothing

Gradients = tuple[Tensor | None, ...]

_C: Any = torch._C
_version: Callable[[Tensor], int] = _C.TensorBase._version.__get__


@attrs.frozen(eq=False)
class Replay:
    """A captured graph as a function that autograd can differentiate."""

    module: fx.GraphModule
    learning: tuple[int, ...]  # inputs that require a gradient
    casts: tuple[tuple[str, bool, torch.dtype], ...]  # autocast state per device during the call

    def gradients(self, inputs: Sequence[Any], pulled: Sequence[tuple[int, Tensor]]) -> Gradients:
        """The gradients of all inputs, given those of the outputs by position."""
        with torch.enable_grad(), ExitStack() as modes:
            # Fused attention has no second derivative.
            modes.enter_context(sdpa_kernel(SDPBackend.MATH))
            for device, enabled, dtype in self.casts:
                modes.enter_context(torch.autocast(device, dtype, enabled))
            own = _with_separate_histories(inputs)
            outputs = self.module.forward(*own)
            wanted = [own[k] for k in self.learning]
            ends = [outputs[k] for k, _ in pulled]
            found = torch.autograd.grad(ends, wanted, [g for _, g in pulled], create_graph=True, allow_unused=True)
        by_input = dict(zip(self.learning, found, strict=True))
        return tuple(by_input.get(k) for k in range(len(inputs)))


def replay_of(module: fx.GraphModule, forward: fx.GraphModule, learning: tuple[int, ...]) -> Replay | None:
    """A Replay for the captured graph. None if running it again would have effects or a different result.

    forward: the functional graph made from it.
    """
    if not all(_is_repeatable(node) for node in forward.graph.nodes if node.op == "call_function"):
        return None
    casts = ((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in AUTOCAST_DEVICES)
    return Replay(module, learning, tuple(casts))


def _is_repeatable(node: fx.Node) -> bool:
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return bool(target.__module__ == "_operator")
    if target.namespace not in ("aten", "prims", "armature") or target._schema.is_mutable:
        return False
    return torch.Tag.nondeterministic_seeded not in target.tags or drops_nothing(target, node.args, node.kwargs)


def _with_separate_histories(values: Sequence[Any]) -> list[Any]:
    """The tensors, each with a history of its own that continues in theirs: a derivative by one leaves out the
    others."""
    return [v.view_as(v) if isinstance(v, Tensor) and v.requires_grad else v for v in values]


# The inputs of a graph's call, held weakly, and the sum of their versions. A plain tuple: one is made in every call.
Inputs = tuple[list[Any], int]


def unchanged(held: Inputs) -> list[Any] | None:
    """The inputs of a call; None if one is gone or was written to since."""
    given, versions = held
    found = [each() if type(each) is weakref.ref else each for each in given]
    tensors = [value for value in found if isinstance(value, Tensor)]
    if any(value is None for value in found) or sum(map(_version, tensors)) != versions:
        return None
    for tensor in tensors:
        if fix := getattr(tensor, "_fix_weakref", None):  # restores its reference count, if only C++ held it
            fix()
    return found


def remembering(numbers: Collection[int], own: Collection[int]) -> Callable[[Sequence[Any]], Inputs | None]:
    """A function that captures weak references to a call's inputs. numbers: positions of inputs that are not tensors;
    own: of tensors that only the call holds."""
    held, ref, version = frozenset((*numbers, *own)), weakref.ref, _version

    def remember(args: Sequence[Any]) -> Inputs | None:
        try:
            if not held:
                return [*map(ref, args)], sum(map(version, args))
            versions = sum(version(arg) for k, arg in enumerate(args) if k not in numbers)
            return [arg if k in held else ref(arg) for k, arg in enumerate(args)], versions
        except RuntimeError:  # a tensor of inference mode has no version counter
            return None

    return remember


class _Gradients(torch.autograd.Function):
    """Gradients that a compiled graph has computed, differentiable by their inputs."""

    @staticmethod
    def forward(ctx: Any, replay: Replay, made: Gradients, pulled: Sequence[int], *causes: Any) -> Gradients:
        ctx.set_materialize_grads(False)
        ctx.replay, ctx.pulled = replay, pulled
        ctx.numbers = {k: cause for k, cause in enumerate(causes) if not isinstance(cause, Tensor)}
        ctx.save_for_backward(*(None if k in ctx.numbers else cause for k, cause in enumerate(causes)))
        return tuple(None if g is None else g.detach() for g in made)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            own = _with_separate_histories([ctx.numbers.get(k, cause) for k, cause in enumerate(ctx.saved_tensors)])
            inputs = len(own) - len(ctx.pulled)
            made = ctx.replay.gradients(own[:inputs], [*zip(ctx.pulled, own[inputs:], strict=True)])
            pairs = [
                (first, second)
                for first, second in zip(made, gradients, strict=True)
                if first is not None and second is not None and first.requires_grad
            ]
            wanted = [k for k, cause in enumerate(own) if isinstance(cause, Tensor) and cause.requires_grad]
            found: Any = torch.autograd.grad(
                [first for first, _ in pairs],
                [own[k] for k in wanted],
                [second for _, second in pairs],
                create_graph=again,
                allow_unused=True,
            )
        by_cause = dict(zip(wanted, found, strict=True))
        return (None, None, None, *(by_cause.get(k) for k in range(len(own))))


skip_code(_Gradients.backward.__code__, below=True)
_differentiable: Callable[..., Gradients] = _Gradients.apply


def differentiable(
    replay: Replay, inputs: Sequence[Any], made: Gradients, pulled: Sequence[tuple[int, Tensor]]
) -> Gradients:
    """The gradients of the inputs that a compiled graph has `made`, from those of outputs by position, made
    differentiable any number of times."""
    return _differentiable(replay, made, [k for k, _ in pulled], *inputs, *(g for _, g in pulled))
