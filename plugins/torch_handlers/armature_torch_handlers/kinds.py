"""Kinds of objects, as far as they tell which operations on them are cheap, and which end a graph.

A kind is a guess: what is guessed wrong costs time, and changes no result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import cast

import attrs
import torch
from torch import Tensor

from armature.plugin_api import BoundMethod, BuiltinValue, CellValue, ClassValue, TracedTensor, Value


class NotCheap(Exception):
    """An instruction may compute more than one number, or what it does is not known."""


@attrs.frozen
class Kind:
    """What is known of an object. rank: the dimensions of a tensor, None if unknown. mask: a tensor of bools. items: of
    a tuple, or the kind of all items of an iterator. python_object: of a function, class or module, itself. owner: of
    the method `name`."""

    name: str
    rank: int | None = None
    mask: bool = False
    items: tuple[Kind, ...] = ()
    python_object: object = attrs.field(default=None, eq=id)
    owner: Kind | None = None

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return self.name == "tensor"

    @property
    def is_number(self) -> bool:
        """Whether an operator on it is that of one number: a plain value, or a tensor without dimensions."""
        return self == PLAIN or (self.is_tensor and self.rank == 0)


ANY, PLAIN, NULL, VIEW = Kind("any"), Kind("plain"), Kind("null"), Kind("view")
LIST, DICT, SET = Kind("list"), Kind("dict"), Kind("set")
NUMBER, ANY_TENSOR = Kind("tensor", 0), Kind("tensor")
PLAIN_TYPES = (int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.Size)
BY_TYPE: Mapping[type, Kind] = {**dict.fromkeys(PLAIN_TYPES, PLAIN), list: LIST, dict: DICT, set: SET}
ITERATORS = frozenset(map(type, (iter([]), iter(()), iter(range(1)), iter({}), zip(), enumerate([]), reversed([]))))
HOLDERS = frozenset({"list", "dict", "set", "tuple", "iterator"})

# What ends a graph, and gives plain values or tensors of sizes that depend on values; by id, as globals may be
# anything, and hashing runs code of the program.
READS: Mapping[int, Kind] = {
    id(int): PLAIN,
    id(float): PLAIN,
    id(bool): PLAIN,
    id(torch.nonzero): Kind("tensor", 2),
    id(torch.argwhere): Kind("tensor", 2),
    id(torch.masked_select): Kind("tensor", 1),
    id(torch.unique): ANY_TENSOR,
    id(torch.where): Kind("tuple", items=(Kind("tensor", 1),) * 4),
}
METHODS_THAT_READ = {
    "item": PLAIN,
    "tolist": LIST,
    "nonzero": Kind("tensor", 2),
    "argwhere": Kind("tensor", 2),
    "masked_select": Kind("tensor", 1),
    "unique": ANY_TENSOR,
}
FACTS = frozenset({"size", "dim", "numel", "ndimension", "stride", "is_floating_point", "is_contiguous"})
VIEWS = frozenset({"view", "squeeze", "unsqueeze", "t", "transpose", "permute", "expand", "select", "narrow", "detach"})
REDUCTIONS = frozenset({"any", "all", "sum", "max", "min", "argmax", "argmin", "mean", "count_nonzero"})
PLAIN_ATTRIBUTES = frozenset({"shape", "ndim", "dtype", "device", "is_cuda", "requires_grad"})


def kind_of_tensor(tensor: Tensor) -> Kind:
    """The kind of a tensor."""
    return Kind("tensor", tensor.dim(), tensor.dtype in (torch.bool, torch.uint8))


def kind_of_object(obj: object) -> Kind:
    """The kind of an object of the program, found without running code of its class."""
    plain = type(obj) in (Tensor, torch.nn.Parameter)
    return kind_of_tensor(cast(Tensor, obj)) if plain else BY_TYPE.get(type(obj), ANY)


def kind_of(value: Value) -> Kind:
    """The kind of a value that tracing has met."""
    if isinstance(value, TracedTensor):
        return kind_of_tensor(value.fake)
    if isinstance(value, BuiltinValue | ClassValue):
        return Kind("object", python_object=value.as_object())
    if isinstance(value, BoundMethod):
        return Kind(value.name, owner=kind_of(value.owner))
    kind = value.python_type()
    if kind is type(None) and not value.is_constant:
        return NULL  # what a call has beside its function
    return Kind("iterator", items=(ANY,)) if kind in ITERATORS else BY_TYPE.get(kind, ANY)


def content_of(cell: Value | None) -> Kind:
    """The kind of what is in a cell."""
    content = cell.content if isinstance(cell, CellValue) else None
    return ANY if content is None else kind_of(content)


def join(one: Kind, two: Kind) -> Kind:
    """What holds of both."""
    if one == two:
        return one
    if one.is_tensor and two.is_tensor:
        return ANY_TENSOR
    if one.name == two.name and one.name in ("tuple", "iterator") and len(one.items) == len(two.items):
        return attrs.evolve(one, items=tuple(map(join, one.items, two.items)))
    return ANY


def attribute_of(owner: Kind, name: str) -> Kind:
    """The kind of an attribute; of a method, if it is one. Errors: NotCheap."""
    if type(owner.python_object) is ModuleType:
        return Kind("object", python_object=vars(owner.python_object).get(name))
    if not owner.is_tensor:
        return Kind(name, owner=owner) if owner.name in HOLDERS else ANY
    return PLAIN if name in PLAIN_ATTRIBUTES else Kind(name, owner=owner)


def item_of(holder: Kind, place: int = 0) -> Kind:
    """The kind of an item that iteration gives. Errors: NotCheap."""
    if holder.is_tensor:
        return part_of(holder, 1)
    if holder.name == "tuple" and place < len(holder.items):
        return holder.items[place]
    if holder.name == "iterator":
        return holder.items[0]
    return PLAIN if holder == PLAIN else ANY


def part_of(tensor: Kind, axes: int) -> Kind:
    """A tensor with fewer axes."""
    return attrs.evolve(tensor, rank=None if tensor.rank is None else max(tensor.rank - axes, 0))


def iterator_over(holder: Kind) -> Kind:
    """The kind of an iterator. Errors: NotCheap."""
    if holder.name not in HOLDERS and not holder.is_tensor and holder != PLAIN:
        raise NotCheap
    items = {*holder.items} if holder.name == "tuple" else {item_of(holder)}
    return Kind("iterator", items=(items.pop() if len(items) == 1 else ANY,))


def subscript(holder: Kind, index: Kind) -> tuple[Kind, bool]:
    """The kind of `holder[index]`, and whether it ends a graph. Errors: NotCheap."""
    if holder.is_tensor:
        parts = index.items if index.name == "tuple" else (index,)
        masked = any(part.mask for part in parts)
        numbers = [part for part in parts if part in (PLAIN, NUMBER)]  # a tensor as index is read
        if all(part == VIEW or part.mask or part in numbers for part in parts):
            return (ANY_TENSOR if masked else part_of(holder, len(numbers))), masked or NUMBER in numbers
    elif holder == PLAIN and index in (PLAIN, VIEW):
        return PLAIN, False
    elif holder.name in HOLDERS and (index.is_tensor or index == PLAIN):
        return item_of(holder), index.is_tensor and holder.name in ("list", "tuple")
    raise NotCheap


def stored(holder: Kind, index: Kind, value: Kind) -> None:
    """Check that `holder[index] = value` is cheap, as one copy is. Errors: NotCheap."""
    if holder.is_tensor:
        _, reads = subscript(holder, index)
        if reads or not (value.is_tensor or value == PLAIN):
            raise NotCheap
    elif holder.name not in ("list", "dict") or index != PLAIN:
        raise NotCheap


def computed(*operands: Kind) -> Kind:
    """The kind of the result of an operator on numbers. Errors: NotCheap."""
    if not all(operand.is_number for operand in operands):
        raise NotCheap
    return PLAIN if all(operand == PLAIN for operand in operands) else NUMBER


def compared(*operands: Kind) -> Kind:
    """The kind of a comparison's result. One that gives a mask is a single operator, for the break that reads it: as a
    graph of its own it would not pay. Errors: NotCheap."""
    tensors = [operand for operand in operands if operand.is_tensor]
    if tensors and all(operand.is_tensor or operand == PLAIN for operand in operands):
        ranks = {tensor.rank for tensor in tensors}
        return Kind("tensor", None if None in ranks else max(rank or 0 for rank in ranks), mask=True)
    return computed(*operands)


def called(function: Kind, args: Sequence[Kind]) -> tuple[Kind, bool]:
    """The kind of a call's result, and whether the call ends a graph. Errors: NotCheap."""
    if function.owner is not None:
        return method_called(function.owner, function.name, args)
    if function.python_object is torch.repeat_interleave:
        return repeated(args)
    reads = READS.get(id(function.python_object))
    if reads is not None and args and (function.python_object is not torch.where or len(args) == 1):
        return reads, args[0].is_tensor
    of_python = OF_PYTHON.get(id(function.python_object))
    if of_python is None:
        raise NotCheap
    return of_python(args), False


def repeated(args: Sequence[Kind]) -> tuple[Kind, bool]:
    """The same for `torch.repeat_interleave`; by numbers in a tensor, its size depends on them. Errors: NotCheap."""
    if not any(arg.is_tensor for arg in args[1:]):
        raise NotCheap
    return ANY_TENSOR, True


def method_called(owner: Kind, name: str, args: Sequence[Kind]) -> tuple[Kind, bool]:
    """The same for a method."""
    if not owner.is_tensor:
        return ANY, False
    if name in METHODS_THAT_READ:
        return METHODS_THAT_READ[name], True
    if name == "repeat_interleave":
        return repeated((owner, *args))
    if name in REDUCTIONS and not args:
        return Kind("tensor", 0, mask=name in ("any", "all")), False
    if name in VIEWS | FACTS:
        return (PLAIN if name in FACTS else ANY_TENSOR), False
    raise NotCheap


def zipped(args: Sequence[Kind]) -> Kind:
    """The kind of `zip(...)`."""
    return Kind("iterator", items=(Kind("tuple", items=tuple(iterator_over(arg).items[0] for arg in args)),))


def counted(args: Sequence[Kind]) -> Kind:
    """The kind of `enumerate(...)`."""
    return Kind("iterator", items=(Kind("tuple", items=(PLAIN, iterator_over(args[0]).items[0])),))


def number_range(args: Sequence[Kind]) -> Kind:
    """The kind of `range(...)`."""
    return Kind("iterator", items=(computed(*args),))


OF_PYTHON: Mapping[int, Callable[[Sequence[Kind]], Kind]] = {
    id(len): lambda args: PLAIN,
    id(isinstance): lambda args: PLAIN,
    id(range): number_range,
    id(zip): zipped,
    id(enumerate): counted,
    id(reversed): lambda args: iterator_over(args[0]),
    **dict.fromkeys(map(id, (abs, min, max, round)), lambda args: computed(*args)),
}
