"""Lists, dicts, sets, texts and iterators."""

from __future__ import annotations

import collections
import itertools
import math
import types
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor


class Thing:
    """An object of the program."""

    size = 1


THING = Thing()


def nan_as_key(x: Tensor) -> object:
    return len({math.nan: 1}), x + 1


def nan_as_key_mended(x: Tensor) -> object:
    return len({"nan": 1}), x + 1


class Marked(Tensor):
    """A tensor with an `__eq__` of its own."""

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: Any) -> Any:
        return self is other


def tensor_subclass_as_key(x: Tensor) -> Any:
    return {x: 1}[x], x.sum()


def tensor_subclass_as_key_inputs() -> tuple[object, ...]:
    return (torch.ones(2).as_subclass(Marked),)


def tensor_subclass_as_key_mended(x: Tensor) -> object:
    return {"x": 1}["x"], x.sum()


def index_of_object(x: Tensor) -> object:
    try:
        return [x][THING]  # type: ignore[call-overload]
    except TypeError:
        return x + 1


def index_of_object_mended(x: Tensor) -> object:
    return [x][THING.size - 1]


def sequence_arithmetic(x: Tensor) -> object:
    held = [x]
    try:
        return held.__add__(1)  # type: ignore[operator]
    except TypeError:
        return x + 1


def sequence_arithmetic_mended(x: Tensor) -> object:
    held = [x]
    return held.__add__([x])


class Rank:
    """An object whose comparison leaves some pairs to the other operand."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __lt__(self, other: Any) -> object:
        return NotImplemented

    def __gt__(self, other: Any) -> bool:
        return bool(self.n > other.n)


def sort_comparisons(x: Tensor) -> object:
    return x + sorted([Rank(2), Rank(1)])[0].n


def sort_comparisons_mended(x: Tensor) -> object:
    return x + min([Rank(2), Rank(1)], key=lambda rank: rank.n).n


class Word(str):
    """A string class of the program."""


def sort_of_derived_class(x: Tensor) -> object:
    try:
        return x + len(sorted([Word("b"), 1]))  # type: ignore[type-var]
    except TypeError:
        return x + 1


def sort_of_derived_class_mended(x: Tensor) -> object:
    return x + len(sorted([Word("b"), Word("a")]))


def set_order(x: Tensor) -> object:
    return [x + n.size for n in {THING, Thing()}]


def set_order_mended(x: Tensor) -> object:
    return [x + n.size for n in (THING, Thing())]


def set_pop(x: Tensor, names: set[int]) -> object:
    return x + names.pop()


def set_pop_inputs() -> tuple[object, ...]:
    return torch.ones(3), {1, 2, 3}


def set_pop_mended(x: Tensor, names: set[int]) -> object:
    first = min(names)
    names.remove(first)
    return x + first


def changed_while_iterated(x: Tensor) -> object:
    seen = {1: x, 2: x}
    for key in seen:
        del seen[key]
        seen[key + 10] = x
        if len(seen) > 5 or key > 20:
            break
    return x + len(seen)


def changed_while_iterated_mended(x: Tensor) -> object:
    seen = {1: x, 2: x}
    for key in list(seen):
        del seen[key]
        seen[key + 10] = x
    return x + len(seen)


class Growing(list[int]):
    """A list with a `count` method of its own."""

    def __len__(self) -> int:
        return 7


GROWING = Growing([1, 2])


def sequence_with_own_length(x: Tensor) -> object:
    return x + GROWING[0]


def sequence_with_own_length_mended(x: Tensor) -> object:
    return x + [1, 2][0]


class Counted:
    """Counts how often it is hashed."""

    hashes = 0

    def __hash__(self) -> int:
        Counted.hashes += 1
        return 1


class Bag(set[Any]):
    """A set class of the program."""


BAG = Bag([Counted(), Counted()])


def set_hash_effects(x: Tensor) -> object:
    return x + len(BAG)


def set_hash_effects_mended(x: Tensor) -> object:
    return x + len([1, 2])


def iterator_over_changed_list(x: Tensor, rows: list[int], walk: Iterator[int]) -> object:
    rows.append(3)
    return x + next(walk)


def iterator_over_changed_list_inputs() -> tuple[object, ...]:
    rows = [1, 2]
    return torch.ones(3), rows, iter(rows)


def iterator_over_changed_list_mended(x: Tensor, rows: list[int], walk: Iterator[int]) -> object:
    first = next(walk)
    return x + first


def iterator_held_by_another(x: Tensor, inner: Iterator[int], outer: Any) -> object:
    first = next(inner)
    return x + first + next(outer)[0]


def iterator_held_by_another_inputs() -> tuple[object, ...]:
    inner = iter([1, 2, 3])
    return torch.ones(3), inner, zip(inner)


def iterator_held_by_another_mended(x: Tensor, inner: Iterator[int], outer: Any) -> object:
    return x + next(outer)[0]


class Steps:
    """An iterator of the program."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> int:
        self.at += 1
        return self.at


def iterator_over_unknown(x: Tensor, walk: Iterator[Any]) -> object:
    return x + next(walk)[1]


def iterator_over_unknown_inputs() -> tuple[object, ...]:
    return torch.ones(3), enumerate(Steps())


def iterator_over_unknown_mended(x: Tensor, walk: Iterator[Any]) -> object:
    return x + next(enumerate(Steps()))[1]


def method_of_constant(x: Tensor) -> object:
    return x + "abc".count(f"{x.sum()}")


def method_of_constant_mended(x: Tensor) -> object:
    return x + "abc".count("x")


def iterator_of_constant(x: Tensor) -> object:
    return x + len(list(str.__iter__("abc")))


def iterator_of_constant_mended(x: Tensor) -> object:
    return x + len(list("abc"))


def contains_unknown(x: Tensor) -> object:
    return x + (f"{x.sum()}" in "abc")


def contains_unknown_mended(x: Tensor) -> object:
    return x + ("x" in "abc")


def percent_format(x: Tensor) -> object:
    return "%(a)s" % Fields(), x + 1


class Fields(dict[str, int]):
    """A dict that creates missing values."""

    def __missing__(self, key: str) -> int:
        return 1


def percent_format_mended(x: Tensor) -> object:
    return f"{Fields()['a']}", x + 1


def format_arguments(x: Tensor) -> object:
    try:
        return "{} {}".format(THING), x  # type: ignore[str-format]  # noqa: F524
    except IndexError:
        return x + 1


def format_arguments_mended(x: Tensor) -> object:
    return f"{THING.size} {1}", x


def format_template(x: Tensor) -> object:
    try:
        return "{".format(THING), x  # type: ignore[str-format]  # noqa: F521
    except ValueError:
        return x + 1


def format_template_mended(x: Tensor) -> object:
    return f"{{{THING.size}", x


def format_nested(x: Tensor) -> object:
    try:
        return "{:{:{}}}".format(x.sum(), 1, 1), x  # type: ignore[str-format]
    except (ValueError, TypeError):
        return x + 1


def format_nested_mended(x: Tensor) -> object:
    return "{:{}}".format(1, 1), x


def size_of_no_ints(x: Tensor) -> object:
    try:
        return torch.Size([1.5]), x  # type: ignore[list-item]
    except TypeError:
        return x + 1


def size_of_no_ints_mended(x: Tensor) -> object:
    return torch.Size([1]), x


class Config(collections.UserDict[str, int]):
    """A mapping class of the program."""


def mapping_proxy(x: Tensor) -> object:
    return x + MappingProxyType(Config(a=1))["a"]


def mapping_proxy_mended(x: Tensor) -> object:
    return x + MappingProxyType({"a": 1})["a"]


class Sieve(Mapping[str, int]):
    """A mapping written in Python."""

    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


def match_mapping(x: Tensor) -> object:
    match SIEVE:
        case {"a": size}:
            return x + size
    return x


SIEVE = Sieve()


def match_mapping_mended(x: Tensor) -> object:
    match {**SIEVE}:
        case {"a": size}:
            return x + size
    return x


NOT_A_CLASS: Any = types.SimpleNamespace(kind=1)


def match_class(x: Tensor) -> Any:
    try:
        match x.dim():
            case NOT_A_CLASS.kind():
                return x
    except TypeError:
        return x + 1


def match_class_mended(x: Tensor) -> object:
    match x.dim():
        case int():
            return x + 1


class Odd:
    """A class whose `__match_args__` is a list, not a tuple."""

    __match_args__ = ["a"]
    a = 1


ODD = Odd()


def match_args(x: Tensor) -> Any:
    try:
        match ODD:
            case Odd(1):
                return x
    except TypeError:
        return x + 1


def match_args_mended(x: Tensor) -> Any:
    match ODD:
        case Odd(a=1):
            return x + 1


def default_dict_init(x: Tensor, counts: Any) -> object:
    counts.__init__(int)
    return x + counts["a"]


def default_dict_init_inputs() -> tuple[object, ...]:
    return torch.ones(3), collections.defaultdict(list)


def default_dict_init_mended(x: Tensor, counts: Any) -> object:
    counts = collections.defaultdict(int)
    return x + counts["a"]


COUNT = Thing()


def key_of_dict(x: Tensor) -> object:
    numbers = (number for number in (1, 2))
    return x + len({numbers: 1})


def key_of_dict_mended(x: Tensor) -> object:
    return x + len({(1, 2): 1})


def conversion_of_unknown(x: Tensor) -> object:
    try:
        return x + float([x])  # type: ignore[arg-type]
    except TypeError:
        return x + 1


def conversion_of_unknown_mended(x: Tensor) -> object:
    return x + float("1.5")


def next_of_iterator(x: Tensor, steps: Iterator[int]) -> object:
    return x + next(steps)


def next_of_iterator_inputs() -> tuple[object, ...]:
    return torch.ones(2), itertools.chain([1], [2])


def next_of_iterator_mended(x: Tensor, steps: list[int]) -> object:
    return x + steps[0]


def next_of_iterator_mended_inputs() -> tuple[object, ...]:
    return torch.ones(2), [1, 2]


def address_among_numbers(x: Tensor) -> object:
    seen = {1 << 40: 2}
    items = [x]
    seen[id(items)] = 1
    return x + len(seen)


def address_among_numbers_mended(x: Tensor) -> object:
    seen: dict[Any, int] = {1 << 40: 2}
    seen[x] = 1
    return x + len(seen)


def format_of_unknown(x: Tensor) -> object:
    try:
        return x + len("{:{}}".format(3, str(x)))
    except ValueError:
        return x + 1


def format_of_unknown_mended(x: Tensor) -> object:
    return x + len("{:{}}".format(3, x.dim()))


def item_of_object(x: Tensor) -> Any:
    try:
        (1, 2)[x] = 3  # type: ignore[index]
    except TypeError:
        return x + 1


def item_of_object_mended(x: Tensor) -> object:
    items = [1, 2]
    items[0] = 3
    return x + items[0]


class Lengths:
    """An object with a length."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


def special_method_result(x: Tensor) -> object:
    try:
        return x + len(Lengths(-1))
    except ValueError:
        return x + 1


def special_method_result_mended(x: Tensor) -> object:
    return x + len(Lengths(1))


UNITS = collections.OrderedDict(width=2)
UNITS.unit = "mm"  # type: ignore[attr-defined]


def attribute_of_new_dict(x: Tensor) -> object:
    return x + len(UNITS.unit)  # type: ignore[attr-defined]


def attribute_of_new_dict_mended(x: Tensor, unit: str) -> object:
    return x + len(unit)


def attribute_of_new_dict_mended_inputs() -> tuple[object, ...]:
    return torch.ones(2), "mm"
