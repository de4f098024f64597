"""Which fakes have the strides of the real tensors also along axes of size 1, where most code does not care about them,
and torch's meta functions often choose others than its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from armature.torch_abi.fake_layouts import as_first
from armature.torch_abi.fake_rules import FakeRules

aten = torch.ops.aten
GUESSED = "_strides_are_guessed"  # set on fakes
# The strides of their results do not depend on those of their arguments.
OF_THEIR_OWN = frozenset((
    aten._log_softmax.default, aten.addmm.default, aten.as_strided.default, aten.baddbmm.default, aten.bmm.default,
    aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.mm.default, aten.native_layer_norm.default,
    aten.new_empty.default, aten.new_empty_strided.default, aten.new_full.default, aten.new_ones.default,
    aten.new_zeros.default, aten.tril.default, aten.triu.default,
))  # fmt: skip
# Fakes follow those of their arguments as kernels do. So do views, elementwise operators, and those that plugins say
# lie as their first arguments do.
FOLLOWING = frozenset((
    aten._softmax.default, aten._unsafe_view.default, aten.amax.default, aten.amin.default,
    aten.argmax.default, aten.cat.default, aten.clone.default, aten.constant_pad_nd.default, aten.cumsum.default,
    aten.embedding.default, aten.gather.default, aten.index_select.default, aten.mean.dim, aten.repeat.default,
    aten.stack.default, aten.sum.dim_IntList,
))  # fmt: skip
# Composed of several operators, so the rule for elementwise ones does not apply.
COMPOSED = frozenset((aten.float_power.Tensor_Tensor, aten.mvlgamma.default, aten.view_as_real.default))


def are_known(fake: torch.Tensor) -> bool:
    """Whether all strides of a fake are those of the real tensor."""
    return type(fake) is FakeTensor and not getattr(fake, GUESSED, False)


def note(rules: FakeRules, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
    """Mark the results of an operator whose strides along axes of size 1 may not be those of the kernel."""
    made = [one for one in _tensors((result,)) if any(type(size) is int and size == 1 for size in one.shape)]
    if not made:
        return
    given = list(_tensors((*args, *kwargs.values())))
    static = all(type(size) is int for one in (*given, *made) for size in one.shape)
    follows = static and _follows(rules, op) and not any(getattr(one, GUESSED, False) for one in given)
    for one in made:
        if not any(one is other for other in given):  # an operator in place changes values only
            setattr(one, GUESSED, not follows and op not in OF_THEIR_OWN)


def _follows(rules: FakeRules, op: Any) -> bool:
    """Whether the fake result has the kernel's strides if the fake arguments have."""
    if op in COMPOSED or not isinstance(op, torch._ops.OpOverload):
        return False
    creates = not any("Tensor" in str(argument.type) for argument in op._schema.arguments)
    if creates or op in FOLLOWING or op.is_view:
        return True
    rule = rules.layout_of(op)
    return rule is as_first or (torch.Tag.pointwise in op.tags and rule is not None)


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among values, and in the lists and tuples among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
