"""Seam to what tensors over the same memory have in common: which is a view of which, and the count of writes.

A compiled graph gives tensors over the right memory, each of them on its own, or one in the place of two, and its
kernels write without a word to autograd. Eager mode has such tensors count writes together, and views of one another
follow each other's history in autograd's graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import attrs
import torch
from torch import Tensor

from armature.torch_abi.wrappers import is_wrapper

_C: Any = torch._C


@attrs.frozen
class Kinship:
    """How one result is made anew: of an input or an earlier result, or of itself; and whether it is autograd's view.

    base: a key of the tensor, which nobody else has, that it is a view of; None: it is a view of the owner.
    """

    result: int
    owner: int
    of_input: bool
    is_view: bool
    base: int | None = None
    creation: Any = None  # what autograd knows of how the view was made: without gradients, as one of several
    counts: bool = True  # writes together with the owner; not what `x.data` gives


def kinships(inputs: Sequence[object], results: Sequence[object]) -> tuple[Kinship, ...]:
    """What is to be said of results which share the memory of others, all of them fakes."""
    givers = [(k, True, fake) for k, fake in enumerate(inputs) if _is_plain(fake)]
    known = {id(fake) for _, _, fake in givers}
    made: list[tuple[int, bool, Any]] = [
        (k, False, fake) for k, fake in enumerate(results) if _is_plain(fake) and id(fake) not in known
    ]
    made.sort(key=lambda other: other[2]._is_view())  # what others are views of is made before them
    sharing = Counter(_memory(fake) for _, _, fake in (*givers, *made))
    return tuple(
        found
        for k, _, fake in made
        if sharing[_memory(fake)] > 1 and (found := _kinship(k, fake, [*givers, *made])) is not None
    )


def _kinship(k: int, fake: Any, others: list[tuple[int, bool, Any]]) -> Kinship | None:
    kin = [other for other in others if _memory(other[2]) == _memory(fake)]
    base = fake._base
    if fake._is_view():
        for owner, of_input, other in kin:
            if other is base or (of_input and other._base is base):
                return Kinship(k, owner, of_input, is_view=True, creation=creation_of(fake))
    earlier = takewhile(lambda other: other[2] is not fake, kin)
    together = (other for other in earlier if count_together(other[2], fake))
    owner, of_input, first = next(together, kin[0])
    counts = count_together(first, fake)
    if fake._is_view():
        return Kinship(k, owner, of_input, is_view=True, base=id(base), creation=creation_of(fake), counts=counts)
    return None if first is fake else Kinship(k, owner, of_input, is_view=False, counts=counts)


def in_other_forms(inputs: Sequence[object], results: Sequence[object]) -> bool:
    """Whether a result is over memory that an input or another result has in another form: as numbers of another
    dtype, or conjugated. A lowered graph gives copies of these."""
    forms: dict[int, set[object]] = {}
    given: dict[int, Any] = {id(fake): fake for fake in (*inputs, *results) if _is_strided(fake)}
    for fake in given.values():
        forms.setdefault(_memory(fake), set()).add((fake.dtype, fake.is_conj(), fake.is_neg()))
    return any(len(forms[_memory(fake)]) > 1 for fake in results if id(fake) in given)


def _is_strided(fake: Any) -> bool:
    return isinstance(fake, Tensor) and not is_wrapper(type(fake)) and fake.layout is torch.strided


def count_together(tensor: Tensor, other: Tensor) -> bool:
    """Whether what is written to one of two tensors counts for both."""
    if tensor.is_inference() or other.is_inference():
        return False
    before = tensor._version, other._version
    torch.autograd.graph.increment_version(tensor)
    together = other._version != before[1]
    _C._autograd._unsafe_set_version_counter((tensor,), (before[0],))
    return together


def creation_of(view: Tensor) -> Any:
    """How a view was made, None where autograd allows all that is done to it."""
    found = _C._autograd._get_creation_meta(view)
    return None if found == _C._autograd.CreationMeta.DEFAULT else found


def share_memory(left: Tensor, right: Tensor) -> bool:
    """Whether two strided tensors, fake ones too, are over the same memory."""
    return _memory(left) == _memory(right)


def may_overlap_itself(tensor: Tensor) -> bool:
    """Whether two elements may lie in one place. False is sure; tensors of symbolic sizes are taken not to."""
    if is_wrapper(type(tensor)) or tensor.layout is not torch.strided or tensor._has_symbolic_sizes_strides:
        return False
    last = 0  # the place of the last element along the axes with smaller steps
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
    """Whether the tensor is over memory that a view has in the same form. What gradients follow is AOTAutograd's."""
    if not _is_strided(fake):
        return False
    return not (fake.requires_grad or fake.is_inference() or fake.is_quantized or fake.is_conj() or fake.is_neg())


def related(kinds: Sequence[Kinship], inputs: Sequence[Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results, those that share memory made anew as eager mode makes them."""
    made = [*results]
    bases: dict[int, Tensor] = {}
    for kind in kinds:
        tensor, owner = made[kind.result], (inputs if kind.of_input else made)[kind.owner]
        if tensor.dtype != owner.dtype or not _C._is_alias_of(tensor, owner):
            continue
        if kind.base is not None:
            if kind.base not in bases:
                bases[kind.base] = _whole(owner.detach() if kind.counts else owner.data)
            owner = bases[kind.base]
        view = owner.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        detached = view.detach() if kind.counts else view.data
        made[kind.result] = view if kind.is_view else detached
        if kind.creation is not None and view._is_view():
            _C._autograd._set_creation_meta(view, kind.creation)
    return tuple(made)


def _whole(tensor: Tensor) -> Tensor:
    """All of the memory in one row."""
    return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0).detach()


def counting(run: Callable[..., Any], counts: Mapping[int, bool]) -> Callable[..., Any]:
    """A callable whose inputs at some positions, which it writes to, count that, or do not: what is written through
    `x.data` eager mode does not count."""

    # Some share a count, `x` and `x.detach()`, and may not know it of each other: if one counts, all have.
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
