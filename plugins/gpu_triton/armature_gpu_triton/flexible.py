"""Flexible attention (`torch.nn.attention.flex_attention`) as kernels that never store the scores.

The functions that modify scores and mask them are part of the kernels, and blocks that the block mask leaves out are
not computed. What the kernels can't compute is left to torch's own operator: gradients of what the functions close
over, float64, and functions with operators that have no loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import torch
from torch.autograd.function import once_differentiable

from armature.backend_api import GraphCall, autocast_to
from armature_gpu_triton.attention_plan import AttentionInputs, Build, Functions, Mask, Plan, Planning, Unfit
from armature_gpu_triton.attention_printer import DELTA, FORWARD, OF_KEYS, OF_QUERY

Tensors = tuple[torch.Tensor, ...]
FLEX_ATTENTION: Callable[..., Tensors] = torch.ops.higher_order.flex_attention


def compile_call(call: GraphCall, build: Build, device: str) -> Attention | None:
    """A callable for a call of flexible attention; None if it is left to torch. Errors: BackendError."""
    query, key, value, score, block_mask, scale, _, *rest = call.args
    own = tuple(tensor for group in rest for tensor in group)
    if not all(isinstance(one, torch.Tensor) and one.device.type == device for one in (query, key, value, *own)):
        return None
    if not isinstance(scale, float) or (call.gradients and any(one.requires_grad for one in own)):
        return None
    shared = len(rest[0]) if rest else 0
    made = Attention(Functions(score, block_mask[-1], shared, scale, call.expression), call.gradients, build)
    try:
        given = AttentionInputs(query, key, value, Mask.of(block_mask), own)
        if given.is_static:
            made.prepare(given)
    except Unfit:
        return None
    return made


@attrs.define(eq=False, repr=False)
class Attention:
    """Takes the operator's arguments; returns the output, and the log-sum-exp and the largest score of each row, to
    base 2. A plan is made for each layout of the arguments. learns: whether backward may run."""

    functions: Functions
    learns: bool
    build: Build
    plans: dict[object, Plan] = attrs.field(factory=dict)

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        score: object,
        block_mask: Sequence[object],
        scale: float,
        options: object,
        *rest: Sequence[torch.Tensor],
    ) -> Tensors:
        query, key, value = map(autocast_to, (query, key, value))
        own = tuple(tensor for group in rest for tensor in group)
        try:
            given = AttentionInputs(query, key, value, Mask.of(block_mask), own)
            plan = self.prepare(given)
        except Unfit:
            return FLEX_ATTENTION(query, key, value, score, block_mask, scale, options, *rest)
        if torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value)):
            return differentiable(plan, given.mask, query, key, value, *own)
        return forward(plan, given)

    def prepare(self, given: AttentionInputs) -> Plan:
        """The plan for a layout, made on first use. Errors: Unfit, BackendError."""
        layout = given.layout
        if layout not in self.plans:
            self.plans[layout] = Planning.of(self.functions, given, self.learns).run(self.build, self.learns)
        return self.plans[layout]


def lists_of(found: Sequence[torch.Tensor | None]) -> Tensors:
    """The four lists of blocks that a kernel takes. Instead of a missing list, another one is passed, which the kernel
    does not read."""
    count, places, full, full_places = (one if one is None else one.contiguous() for one in found)
    if count is None or places is None:
        raise Unfit
    return count, places, count if full is None else full, places if full_places is None else full_places


def forward(plan: Plan, given: AttentionInputs) -> Tensors:
    """Output, log-sum-exp and largest scores."""
    query, value = given.query, given.value
    out = query.new_empty_strided((*query.shape[:3], value.shape[3]), plan.strides["out"])
    total, largest = (query.new_empty(query.shape[:3], dtype=torch.float32) for _ in range(2))
    lists = lists_of(given.mask.of_rows)
    plan.launches[FORWARD](query, given.key, value, out, total, largest, *lists, *given.own, *plan.numbers[FORWARD])
    return out, total, largest


def backward(plan: Plan, given: AttentionInputs, results: Tensors, grads: Sequence[torch.Tensor | None]) -> Tensors:
    """Gradients of query, key and value. results: output and log-sum-exp. grads: the gradients of these."""
    query, key, value = given.query, given.key, given.value
    (out, total), (grad_out, grad_total) = results, grads
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    if grad_out.stride() != out.stride():
        grad_out = torch.empty_like(out).copy_(grad_out)
    delta = torch.empty_like(total)
    plan.launches[DELTA](out, grad_out, delta, *plan.numbers[DELTA])
    if grad_total is not None:
        delta -= grad_total * math.log2(math.e)
    shared = (query, key, value, grad_out, total, delta)
    of_query = query.new_empty_strided(query.shape, plan.strides["grad_query"])
    plan.launches[OF_QUERY](*shared, of_query, *lists_of(given.mask.of_rows), *given.own, *plan.numbers[OF_QUERY])
    of_key, of_value = (
        like.new_empty_strided((query.shape[0], *like.shape[1:]), plan.strides[name])
        for like, name in ((key, "grad_key"), (value, "grad_value"))
    )
    plan.launches[OF_KEYS](
        *shared, of_key, of_value, *lists_of(given.mask.of_columns), *given.own, *plan.numbers[OF_KEYS]
    )
    if key.shape[0] != query.shape[0]:  # all batches read the same keys
        of_key, of_value = of_key.sum(0, keepdim=True), of_value.sum(0, keepdim=True)
    return of_query, of_key, of_value


class Context(Protocol):
    """What backward needs of a call. m, n: rows and columns of a block of the mask."""

    plan: Plan
    m: int
    n: int

    @property
    def saved_tensors(self) -> Tensors: ...

    def save_for_backward(self, *tensors: torch.Tensor | None) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None: ...


class Differentiable(torch.autograd.Function):
    """Flexible attention as an autograd function. The largest scores have no gradient."""

    @staticmethod
    def forward(ctx: Context, plan: Plan, mask: Mask, *tensors: torch.Tensor) -> Tensors:
        query, key, value, *own = tensors
        out, total, largest = forward(plan, AttentionInputs(query, key, value, mask, tuple(own)))
        ctx.plan, ctx.m, ctx.n = plan, mask.m, mask.n
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(largest)
        ctx.save_for_backward(query, key, value, out, total, *mask.of_rows, *mask.of_columns, *own)
        return out, total, largest

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        query, key, value, out, total, *rest = ctx.saved_tensors
        mask = Mask(tuple(rest[:4]), tuple(rest[4:8]), ctx.m, ctx.n)
        given = AttentionInputs(query, key, value, mask, tuple(rest[8:]))
        found = backward(ctx.plan, given, (out, total), grads[:2])
        return (None, None, *found, *(None for _ in given.own))


differentiable: Callable[..., Tensors] = Differentiable.apply
