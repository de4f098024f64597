"""Seam to relations between tensors over one memory: which is a view of which, and shared version counters.

A compiled graph returns tensors over the right memory, but each as a separate tensor, or one in place of two, and its
kernels write unseen by autograd. In eager mode such tensors share version counters, and views follow each other's
history in autograd's graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import attrs
import torch
from torch import Tensor

from armature.torch_abi.symbols import has_own_strides
from armature.torch_abi.wrappers import is_wrapper

_C: Any = torch._C


@attrs.frozen
class OutputAlias:
    """How one result is reconstructed: from an input or an earlier result, or from itself; and whether it is a view for
    autograd.

    base: a key of an otherwise unreachable tensor that it is a view of; None: it is a view of the owner.
    """

    result: int
    owner: int
    of_input: bool
    is_view: bool
    base: int | None = None
    creation: Any = None  # autograd's record of how the view was made: under no_grad, as one of several
    counts: bool = True  # whether it shares the owner's version counter; not for `x.data`


def output_aliases(inputs: Sequence[object], results: Sequence[object]) -> tuple[OutputAlias, ...]:
    """How to reconstruct results that share memory with others, all given as fakes."""
    givers = [(k, True, fake) for k, fake in enumerate(inputs) if _is_plain(fake)]
    known = {id(fake) for _, _, fake in givers}
    made: list[tuple[int, bool, Any]] = [
        (k, False, fake) for k, fake in enumerate(results) if _is_plain(fake) and id(fake) not in known
    ]
    made.sort(key=lambda other: other[2]._is_view())  # bases before their views
    sharing = Counter(_memory(fake) for _, _, fake in (*givers, *made))
    return tuple(
        found
        for k, _, fake in made
        if sharing[_memory(fake)] > 1 and (found := _output_alias(k, fake, [*givers, *made])) is not None
    )


def _output_alias(k: int, fake: Any, others: list[tuple[int, bool, Any]]) -> OutputAlias | None:
    aliases = [other for other in others if _memory(other[2]) == _memory(fake)]
    base = fake._base
    if fake._is_view():
        for owner, of_input, other in aliases:
            if other is base or (of_input and other._base is base):
                return OutputAlias(k, owner, of_input, is_view=True, creation=creation_of(fake))
    earlier = takewhile(lambda other: other[2] is not fake, aliases)
    together = (other for other in earlier if share_version_counter(other[2], fake))
    owner, of_input, first = next(together, aliases[0])
    counts = share_version_counter(first, fake)
    if fake._is_view():
        return OutputAlias(k, owner, of_input, is_view=True, base=id(base), creation=creation_of(fake), counts=counts)
    return None if first is fake else OutputAlias(k, owner, of_input, is_view=False, counts=counts)


def in_other_forms(inputs: Sequence[object], results: Sequence[object]) -> bool:
    """Whether a result shares an input's or another result's memory in another form: with another dtype, or conjugated.
    A lowered graph returns copies of these."""
    forms: dict[int, set[object]] = {}
    given: dict[int, Any] = {id(fake): fake for fake in (*inputs, *results) if _is_strided(fake)}
    for fake in given.values():
        forms.setdefault(_memory(fake), set()).add((fake.dtype, fake.is_conj(), fake.is_neg()))
    return any(len(forms[_memory(fake)]) > 1 for fake in results if id(fake) in given)


def _is_strided(fake: Any) -> bool:
    return isinstance(fake, Tensor) and not is_wrapper(type(fake)) and fake.layout is torch.strided


def share_version_counter(tensor: Tensor, other: Tensor) -> bool:
    """Make writes to one of two tensors count for both."""
    if tensor.is_inference() or other.is_inference():
        return False
    before = tensor._version, other._version
    torch.autograd.graph.increment_version(tensor)
    together = other._version != before[1]
    _C._autograd._unsafe_set_version_counter((tensor,), (before[0],))
    return together


def creation_of(view: Tensor) -> Any:
    """autograd's record of how a view was made; None if it does not restrict what may be done to it."""
    found = _C._autograd._get_creation_meta(view)
    return None if found == _C._autograd.CreationMeta.DEFAULT else found


def share_memory(left: Tensor, right: Tensor) -> bool:
    """Whether two strided tensors, also fake ones, share memory."""
    return _memory(left) == _memory(right)


def may_overlap_itself(tensor: Tensor) -> bool:
    """Whether two elements may overlap. False is certain; tensors are assumed not to if only their sizes vary."""
    if is_wrapper(type(tensor)) or tensor.layout is not torch.strided:
        return False
    if tensor._has_symbolic_sizes_strides:
        return has_own_strides(tensor)
    last = 0  # the position of the last element along the axes with smaller steps
    for step, size in sorted(
        (step, size) for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1
    ):
        if step <= last:
            return True
        last += (size - 1) * step
    return False


def _memory(fake: Any) -> int:
    address: int = fake.untyped_storage()._cdata
    return address


def _is_plain(fake: Any) -> bool:
    """Whether a view can have the tensor's form over its memory. Gradients are AOTAutograd's business."""
    if not _is_strided(fake):
        return False
    return not (fake.requires_grad or fake.is_inference() or fake.is_quantized or fake.is_conj() or fake.is_neg())


def with_aliases(kinds: Sequence[OutputAlias], inputs: Sequence[Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results; those that share memory are reconstructed as eager mode makes them."""
    made = [*results]
    bases: dict[int, Tensor] = {}
    for kind in kinds:
        tensor, owner = made[kind.result], (inputs if kind.of_input else made)[kind.owner]
        if tensor.dtype != owner.dtype or not _C._is_alias_of(tensor, owner):
            continue
        if kind.base is not None:
            if kind.base not in bases:
                bases[kind.base] = _flat_memory(owner.detach() if kind.counts else owner.data)
            owner = bases[kind.base]
        view = owner.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        detached = view.detach() if kind.counts else view.data
        made[kind.result] = view if kind.is_view else detached
        if kind.creation is not None and view._is_view():
            _C._autograd._set_creation_meta(view, kind.creation)
    return tuple(made)


def _flat_memory(tensor: Tensor) -> Tensor:
    """All of the memory as one dimension."""
    return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0).detach()


def counting(run: Callable[..., Any], counts: Mapping[int, bool]) -> Callable[..., Any]:
    """Wrap a callable to count, or not count, its writes to inputs at some positions; in eager mode writes through
    `x.data` are not counted."""

    # Some share a counter, like `x` and `x.detach()`, unknown to each other: if one is counted, all are.
    positions = sorted(counts.items(), key=lambda item: item[1])

    def counted(*args: Any) -> Any:
        tensors = [(args[k], count) for k, count in positions if not args[k].is_inference()]
        before = [tensor._version for tensor, _ in tensors]
        results = run(*args)
        for (tensor, count), version in zip(tensors, before):
            if (tensor._version != version) is not count:
                torch._C._autograd._unsafe_set_version_counter((tensor,), (version + count,))
        return results

    return counted
