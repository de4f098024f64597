"""The stand-ins in a compiled function: one graph, and what eager mode gives."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import textwrap
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple

import torch
from torch import Tensor

from armature.api import public as api
from armature.testing.handler_kit import Captured, Case, HandlerConformance, break_id
from armature_builtin_rules import plugin

Pair = namedtuple("Pair", "first second")


def ones() -> tuple[Tensor]:
    return (torch.ones(2, 3),)


def reduced(x: Tensor) -> Tensor:
    return functools.reduce(operator.add, [x, x * 2, x * 3])


def reduced_from(x: Tensor) -> Tensor:
    return functools.reduce(lambda a, b: a * b, (x, x + 1), 2)


def chained(x: Tensor) -> Tensor:
    for y in itertools.chain([x, x + 1], (x * y for y in (2, 3)), itertools.chain.from_iterable([[x], [x]])):
        x = x + y
    return x


def combined(x: Tensor) -> Tensor:
    total = x
    for a, b in itertools.combinations(range(4), 2):
        total = total + a * b
    for a, b in itertools.product((1, 2), repeat=2):
        total = total * a + b
    for a, b, c in itertools.permutations((1, 2, 3)):
        total = total + a * b - c
    return total


def sliced(x: Tensor) -> Tensor:
    for y in itertools.islice(itertools.count(1), 1, 6, 2):
        x = x * y
    for y, z in zip(itertools.repeat(2), itertools.cycle([1, 2]), strict=False):
        x = x * y + z
        if len(x.shape) == 2:
            break
    return x


def paired(x: Tensor) -> list[Tensor]:
    total = [y + z for y, z in itertools.pairwise([x, x * 2, x * 3])]
    total += list(itertools.accumulate([x, x, x]))
    total += [y if z is None else y + z for y, z in itertools.zip_longest([x, x * 2], [x])]
    total += list(itertools.starmap(torch.add, [(x, x), (x, 1)]))
    return total


def filtered(x: Tensor) -> list[Tensor]:
    kept = itertools.dropwhile(lambda y: y < 2, itertools.takewhile(lambda y: y < 6, range(10)))
    odd = itertools.filterfalse(lambda y: y % 2 == 0, range(6))
    return [x * y for y in (*kept, *odd, *itertools.compress(range(4), [True, False, True]))]


def operators(x: Tensor) -> list[object]:
    items = [x, x + 1]
    operator.setitem(items, 0, operator.mul(x, 3))
    y = operator.iadd(x.clone(), 1)
    found = operator.contains([1, 2], 2), operator.countOf([1, 2, 2], 2), operator.indexOf("abc", "b")
    tests = operator.is_(x, x), operator.not_([]), operator.truth([1]), operator.xor(5, 3), operator.pow(2, 3)
    return [items[0], y, operator.neg(x), operator.lt(x, y), operator.getitem(x, 0), found, tests]


def containers(x: Tensor) -> tuple[object, ...]:
    held: OrderedDict[str, Tensor] = OrderedDict(a=x, b=x + 1)
    groups: defaultdict[str, list[Tensor]] = defaultdict(list)
    for name, value in held.items():
        groups[name].append(value * 2)
    pair = Pair(x + 3, second=groups["a"][0])
    return pair.first + pair.second, list(groups), pair._fields


def numbers(x: Tensor) -> Tensor:
    scale = math.sqrt(x.shape[-1]) + math.prod(x.shape) + max(1, abs(-3), key=lambda v: -v)
    return x * scale + sum(range(4)) + divmod(7, 2)[1] + round(math.pi, 2)


@functools.cache
def cached(size: int) -> int:
    return size * 2


def partials(x: Tensor) -> Tensor:
    add = functools.partial(torch.add, alpha=3)
    return add(x, functools.partial(functools.partial(torch.mul, x), 2)()) * cached(3)


def overloads(x: Tensor) -> Tensor:
    return torch.ops.aten.add.Tensor(x, x) + torch.ops.aten.mul(x, 2) + torch.ops.aten.relu.default(x)


TABLE: dict[int, str | None] = {ord("a"): "zz", ord("e"): None}


def translated(x: Tensor) -> tuple[Tensor, list[object]]:
    joined = {**TABLE, ord("b"): "B"}
    found = ["eabc".translate(TABLE), "eabc".translate(joined), "eabc".translate(str.maketrans(TABLE))]
    found += ["eabc".translate(str.maketrans("ea", "xy", "b")), str.maketrans({"a": "b"}), str.maketrans("a", "b")]
    found += [b"abc".translate(bytes.maketrans(b"a", b"z")), "abc".translate([0x78] * 98)]
    try:
        str.maketrans("ab", "x")
    except ValueError as error:
        found.append(str(error))
    return x + 1, found


def laid_out(x: Tensor) -> tuple[Tensor, list[str]]:
    text = "  The quick brown\n\tfox jumps, over-cautiously."
    return x + 1, [textwrap.fill(text, 12), textwrap.dedent(text), textwrap.shorten(text, 15), *textwrap.wrap(text, 9)]


def warned(x: Tensor) -> Tensor:
    warnings.warn("once", stacklevel=2)
    return x + 1


class TestTraced(HandlerConformance):
    plugin = plugin
    cases = (
        Case("reduce", reduced, ones),
        Case("reduce with a start", reduced_from, ones),
        Case("chain", chained, ones),
        Case("combinations", combined, ones),
        Case("islice", sliced, ones),
        Case("pairwise", paired, ones),
        Case("filters", filtered, ones),
        Case("operator", operators, ones),
        Case("collections", containers, ones),
        Case("numbers", numbers, ones),
        Case("partial and lru_cache", partials, ones),
        Case("print", lambda x: (x + 1, print("seen"))[0], ones, breaks="prints"),
        Case("overloads", overloads, ones),
        Case("translate", translated, ones),
        Case("text that is wrapped", laid_out, ones),
        Case("deque", lambda x: deque([x, x + 1]).pop(), ones),
        Case("branch", lambda x: x + 1 if x.sum() > 0 else x, ones, breaks="data-dependent-branch"),
        Case("item", lambda x: x * x.sum().item(), ones, breaks="tensor-item"),
    )


def test_a_warning_that_is_shown_once_stays_out_of_the_graph() -> None:
    captured = Captured()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        compiled = api.compile(warned, backend=captured, fullgraph=True)
        assert torch.equal(compiled(*ones()), torch.ones(2, 3) + 1)
        compiled(*ones())
    assert [str(warning.message) for warning in seen] == ["once"]
    assert len(captured.graphs) == 1


def test_a_warning_that_is_an_error_breaks_the_graph() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert break_id(warned, ones()) == "handler-declines"


def test_a_filter_of_a_text_that_is_no_pattern() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filters.insert(0, ("error", "on.e", UserWarning, __name__, 0))  # type: ignore[attr-defined]
        assert break_id(warned, ones()) == ""
        warnings.filters.insert(0, ("error", "once", UserWarning, __name__, 0))  # type: ignore[attr-defined]
        assert break_id(warned, ones()) == "handler-declines"


def test_a_table_is_guarded_by_what_it_holds() -> None:
    table = {ord("a"): "zz"}

    def function(x: Tensor) -> Tensor:
        return x * len("abc".translate(table))

    captured = Captured()
    compiled = api.compile(function, backend=captured, fullgraph=True)
    for held in ("zz", "zzz", None):
        table[ord("a")] = held
        assert torch.equal(compiled(*ones()), function(*ones()))
    assert len(captured.graphs) == 3
