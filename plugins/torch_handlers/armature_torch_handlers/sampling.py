"""Functions that draw random numbers, where torch's fake tensor implementation differs from its kernels."""

from __future__ import annotations

import torch
from torch.nn import functional

from armature.plugin_api import Call, TracedTensor, TupleValue, Value, existing, handles


@handles(functional.dropout)
def functional_dropout(
    call: Call, input: Value, p: Value | None = None, training: Value | None = None, inplace: Value | None = None
) -> Value | None:
    """`torch.dropout` with defaults."""
    if inplace is not None and not (inplace.is_constant and inplace.as_constant() is False):
        return None
    return dropout(call, input, p or call.constant(0.5), training or call.constant(True))


@handles(torch.dropout)
def dropout(call: Call, input: Value, p: Value, train: Value) -> Value | None:
    """The tensor itself if nothing is dropped; if everything is, zeros, for which no random numbers are drawn."""
    if not isinstance(input, TracedTensor) or not (p.is_constant and train.is_constant):
        return None
    chance = p.as_constant()
    if not 0 <= chance <= 1:
        return None
    if chance == 0 or not train.as_constant() or any(type(n) is int and n == 0 for n in input.fake.shape):
        return input
    return zeros_like_product(call, input) if chance == 1 else None


def zeros_like_product(call: Call, input: TracedTensor) -> Value:
    """The tensor times 0, which preserves NaN."""
    return call.graph_call("mul", input, call.graph_call("new_zeros", input, call.constant(())))


@handles(torch.native_dropout)
def native_dropout(call: Call, input: Value, p: Value, train: Value) -> Value | None:
    """Draws numbers for its mask even if the probability is 0 or 1."""
    if not isinstance(input, TracedTensor) or not (p.is_constant and train.is_constant):
        return None
    chance = p.as_constant()
    if train.as_constant() is not False and chance not in (0, 1):
        return None
    bools = {"dtype": call.constant(torch.bool), "memory_format": call.constant(torch.contiguous_format)}
    if train.as_constant() is False:
        results = [call.graph_call("clone", input), call.graph_call(torch.ones_like, input, **bools)]
    else:
        empty = call.graph_call(torch.empty_like, input, **bools)
        mask = call.graph_call("bernoulli_", empty, call.constant(1.0 - chance))
        kept = call.graph_call("mul", input, mask)
        results = [call.graph_call("mul", kept, call.constant(1.0 - chance)), mask]
    return TupleValue(results)


@handles(torch.bernoulli, torch.Tensor.bernoulli)
def bernoulli(call: Call, input: Value, p: Value | None = None, *, generator: Value | None = None) -> Value | None:
    """A call with a single probability fills a row-major tensor."""
    if not isinstance(input, TracedTensor) or p is None or generator is not None or input.fake.requires_grad:
        return None
    row_major = call.constant(torch.contiguous_format)
    return call.graph_call("bernoulli_", call.graph_call(torch.empty_like, input, memory_format=row_major), p)


DRAWING = ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like")


@handles(*existing(*(f"torch.{name}" for name in DRAWING)))
def without_generator(call: Call, *args: Value, **options: Value) -> Value | None:
    """`generator=None` is the default, but fakes look for the overload that takes a generator, which refuses None."""
    given = options.pop("generator", None)
    if given is None or not given.is_constant or call.tracing.overrides.present:
        return None
    return call.graph_call(call.fn, *args, **options)
