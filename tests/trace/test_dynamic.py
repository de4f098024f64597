"""Sizes and ints that change from call to call become symbols: few compilations, and answers as eager gives them."""

# ruff: noqa: UP031 - it is what is tested

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import armature
from armature.pipeline.session import session
from armature.plugin_api import Answer, Decision, Rule, hookimpl
from armature.plugins import manager
from armature.testing.differential import difference


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    armature.reset()
    yield
    armature.reset()


def compiled(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return armature.compile(fn, backend="eager", fullgraph=True, **options)


def count() -> int:
    return len(session().compilations)


def check(fn: Callable[..., Any], quick: Callable[..., Any], *args: Any) -> None:
    torch.testing.assert_close(quick(*args), fn(*args), rtol=0, atol=0)


def same(got: Any, want: Any) -> bool:
    if isinstance(want, torch.Tensor):
        return torch.equal(got, want) and got.dtype == want.dtype and got.stride() == want.stride()
    if isinstance(want, (list, tuple)):
        return type(got) is type(want) and len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, dict):
        return list(got) == list(want) and all(same(got[key], want[key]) for key in want)
    return type(got) is type(want) and bool(got == want)


def rows(n: int) -> torch.Tensor:
    return torch.arange(n * 6, dtype=torch.float32).view(n, 6)


SIZES = (4, 6, 9, 33)


def test_a_size_that_changes_becomes_a_symbol() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + x.sum(0)

    quick = compiled(fn)
    for n in SIZES:
        check(fn, quick, rows(n))
    assert count() == 2


def test_numbers_that_change_are_formatted_by_percent() -> None:
    def fn(x: torch.Tensor, m: int) -> tuple[Any, ...]:
        return x + 1, "%d/%s" % (m * 2, "box"), "%5s|%5.2f|%x" % (m, m, m), len("%-4d" % (m + 1))

    quick = compiled(fn)
    for m in (3, 4, 5, 900):
        assert same(quick(torch.ones(2), m), fn(torch.ones(2), m))


def test_a_size_that_changes_is_compared_with_a_bool() -> None:
    def fn(x: torch.Tensor, flag: bool) -> torch.Tensor:
        if x.shape[0] == flag or x.shape[0] + flag > 100:
            return x + 1
        return x * (x.shape[0] * flag)

    quick = compiled(fn)
    for size, flag in ((3, False), (5, False), (7, True), (100, True)):
        check(fn, quick, torch.ones(size), flag)


def test_sizes_of_0_and_1_are_their_own() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(4, 6)[: x.shape[0]]

    quick = compiled(fn)
    for n in (4, 3, 1, 0, 2, 1, 0):
        check(fn, quick, rows(n))
    assert count() == 4


def test_static_and_dynamic_by_option() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    static, dynamic = compiled(fn, dynamic=False), compiled(fn, dynamic=True)
    for n in SIZES:
        check(fn, static, rows(n))
    assert count() == len(SIZES)
    for n in SIZES:
        check(fn, dynamic, rows(n))
        check(fn, dynamic, torch.ones(5, n))
    assert count() == len(SIZES) + 1


def test_marked_dimensions() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    quick = compiled(fn)
    x = rows(4)
    armature.mark_dynamic(x, 0)
    check(fn, quick, x)
    check(fn, quick, rows(7))
    assert count() == 1
    y = torch.ones(4, 7)
    armature.mark_static(y)
    check(fn, quick, y)
    check(fn, quick, torch.ones(5, 7))
    assert count() == 3
    check(fn, quick, torch.ones(9, 9))
    assert count() == 3  # both axes are symbols now


def test_parameters_stay_static() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)

    model = Model()
    quick = armature.compile(model, backend="eager", fullgraph=True, dynamic=True)
    for n in SIZES:
        check(model, quick, rows(n))
    assert count() == 1
    assert "self.linear.weight is a tensor float32[3, 6]" in "\n".join(session().compilations[-1].guards).replace(
        ".__dict__['_modules']['linear'].__dict__['_parameters']['weight']", ".linear.weight"
    )


def arithmetic(x: torch.Tensor) -> Any:
    n, m = x.shape[0], len(x)
    return x.sum(), n * 2 + 1, n // 2, n % 3, -n, ~n, +m, n - m, n**2, abs(n), divmod(n, 2), n == m, x.shape, x.numel()


def extremes(x: torch.Tensor) -> Any:
    n = x.size(0)
    return x[: min(n, 3)], max(n, 100), sum([n, n, 1]), int(n), x.size().numel()


def text(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return x + 1, f"{n} rows, {n * 2:4d} halves", str(n), f"{n!r}"


def views(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return (x * 2).view(n * 2, 3), x.reshape(-1), x.t().contiguous().view(6, n), x[1:], x[: n // 2], x.unbind(1)[0]


def creation(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return torch.zeros(n, 2) + 1, torch.arange(n), x.new_ones(n), torch.full((n,), n), torch.eye(n), x.expand(2, n, 6)


def containers(x: torch.Tensor) -> Any:
    sizes = {"n": x.shape[0], "both": [x.shape[0], x.shape[1]]}
    sizes["more"] = (sizes["n"] + 1, sizes["both"][0])
    first, *rest = x.shape
    return sizes, x.view(sizes["both"]), first, rest


def joined_sizes(x: torch.Tensor) -> Any:
    size = x.shape[:1]
    size += (3, 2)
    more = (1,) + x.shape, x.shape + x.shape[1:], x.shape[:0] + (), torch.Size([True]) + x.shape
    return x.view(size), x.view(x.size()[:-1] + (2, 3)), x.new_ones((2,) + x.shape), more


def products(x: torch.Tensor) -> Any:
    n = math.prod(x.shape)
    return x.view(n), x.view(math.prod(list(x.size())[:-1]), -1), math.prod(x.shape[1:]), math.prod(x.shape, start=2)


def broadcasting(x: torch.Tensor) -> Any:
    return x[:, None] * x[None], x + x[:1], x.t() @ x, torch.cat([x, x, x[:2]]), torch.stack([x, x], 1)


def unlike(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return x + 1, n == "n", n is None, n in (None, "a"), n < float("inf"), isinstance(n, int), type(n), n != None  # noqa: E711


def shapes(x: torch.Tensor) -> Any:
    return F.pad(x, (1, 1, 0, 2)), x.repeat(2, 1), F.interpolate(x[None, None], scale_factor=2), x.flip(0), x.roll(1)


def in_place(x: torch.Tensor) -> Any:
    y = x.clone()
    y[: x.shape[0] // 2] = 1
    y[:, 0] += x.shape[0]
    return y.mul_(2)


@pytest.mark.parametrize(
    "fn",
    [
        arithmetic,
        extremes,
        text,
        views,
        creation,
        containers,
        joined_sizes,
        products,
        broadcasting,
        unlike,
        shapes,
        in_place,
    ],
    ids=lambda fn: fn.__name__,
)
def test_symbolic_ints_flow(fn: Callable[..., Any]) -> None:
    quick = compiled(fn)
    for n in SIZES:
        got, want = quick(rows(n)), fn(rows(n))
        assert same(got, want)
    assert count() == 2


@functools.lru_cache
def elements(shape: tuple[int, ...]) -> int:
    return shape[0] * shape[1]


@functools.lru_cache
def halved(shape: tuple[int, ...]) -> list[int]:
    return [shape[0], 2, shape[1] // 2]


def cached(x: torch.Tensor) -> Any:
    return x.view(elements(tuple(x.shape))), x.view(halved(tuple(x.shape))) * elements(x.shape)


class OnlyRead:
    @hookimpl
    def armature_rules(self) -> list[Rule]:
        return [Rule(halved.__wrapped__, Decision.INLINE, "its results are only read", answer=Answer.OF_ARGUMENTS)]


@pytest.mark.parametrize("only_read", (True, False))
def test_cached_functions_of_shapes_take_symbols(only_read: bool) -> None:
    with manager().registered(OnlyRead(), "only-read") if only_read else contextlib.nullcontext():
        quick = compiled(cached)
        for n in SIZES:
            assert same(quick(rows(n)), cached(rows(n)))
        assert count() == (2 if only_read else len(SIZES))


def test_a_comparison_is_a_guard_with_the_users_line() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 8:  # here
            return x * 2
        return x - 1

    quick = compiled(fn)
    for n in (4, 6, 3, 9, 12, 8):
        check(fn, quick, rows(n))
    assert count() == 3
    (guard,) = (text for text in session().compilations[1].guards if "<= 8" in text)
    line = fn.__code__.co_firstlineno + 1
    assert guard == f"x.size(0) <= 8    (test_dynamic.py:{line})"
    assert session().compilations[2].recompiled_for[-1] == guard


def test_a_number_that_python_needs_is_a_constant() -> None:
    def fn(x: torch.Tensor) -> Any:
        total = x.sum()
        for _ in range(x.shape[0]):
            total = total + 1
        return total, [0] * x.shape[0], {x.shape[0]: "key"}, 1 / x.shape[0]

    quick = compiled(fn)
    for n in (2, 3, 4):
        assert quick(rows(n)) == fn(rows(n))
    assert count() == 3


def test_equal_sizes_of_two_inputs() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    quick = compiled(fn, dynamic=True)
    check(fn, quick, rows(4), rows(4))
    check(fn, quick, rows(5), rows(5))
    assert count() == 1
    check(fn, quick, rows(5), rows(1))
    with pytest.raises(armature.errors.Unsupported):
        quick(rows(5), rows(4))


def test_strides_of_dynamic_inputs() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        return x * 2, x.is_contiguous()

    quick = compiled(fn)
    for n in (4, 5, 6):
        check(fn, quick, rows(n))
    assert count() == 2
    for n in (4, 5, 7):
        check(fn, quick, torch.ones(6, n).t())
        got, want = quick(torch.ones(6, n).t())[0], fn(torch.ones(6, n).t())[0]
        assert got.stride() == want.stride()
    assert count() == 3
    for n in (4, 5, 7):
        check(fn, quick, rows(9)[1 : n + 1])  # a view with an offset
    assert count() == 3


def test_inputs_that_share_memory() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    quick = compiled(fn)
    for n in (4, 5, 6, 7):
        mine, theirs = rows(n), rows(n)
        torch.testing.assert_close(quick(mine, mine[1:]), fn(theirs, theirs[1:]))
        torch.testing.assert_close(mine, theirs)


def test_an_int_argument_that_changes() -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        return x * n, x[:n], n + 1, torch.zeros(n), n

    quick = compiled(fn)
    for n in (5, 2, 3, 1, 0, 4):
        got, want = quick(rows(6), n), fn(rows(6), n)
        torch.testing.assert_close(got, want)
    assert count() <= 4  # 5, others, and 0 and 1 where torch looks at sizes


def test_a_counter_of_a_module_compiles_twice() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + self.calls

    model = Counter()
    quick = armature.compile(model, backend="eager", fullgraph=True)
    for n in range(1, 9):
        assert torch.equal(quick(torch.zeros(2)), torch.full((2,), float(n)))
        assert model.calls == n
    assert count() == 2


def test_ints_of_different_modules_stay_constants() -> None:
    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.width = width

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.width

    def mentions(record: Any) -> bool:
        return any("width" in text and "== " in text for text in record.guards)

    for width in (3, 4, 5):
        quick = armature.compile(Layer(width), backend="eager", fullgraph=True)
        assert torch.equal(quick(torch.ones(2)), torch.full((2,), float(width)))
    assert [mentions(record) for record in session().compilations] == [True] * 3


def test_ints_in_a_tuple() -> None:
    def fn(x: torch.Tensor, sizes: tuple[int, int]) -> torch.Tensor:
        return x.view(sizes[0], sizes[1]) + sizes[0]

    quick = compiled(fn)
    for n in (2, 3, 4, 6):
        check(fn, quick, torch.arange(12.0), (n, 12 // n))
    assert count() <= 3


def test_side_effects_with_sizes() -> None:
    held = SimpleNamespace(last=None, text="")

    def fn(x: torch.Tensor, seen: list[object]) -> torch.Tensor:
        seen.append(x.shape[0] + 1)
        held.last, held.text = (x.shape[0], x.shape), f"{x.shape[0]} rows"
        return x * 2

    quick = compiled(fn)
    for n in SIZES:
        seen: list[object] = []
        quick(rows(n), seen)
        assert seen == [n + 1]
        assert (held.last, held.text) == ((n, (n, 6)), f"{n} rows")
    assert count() == 2


def test_comparisons_of_ints_in_arithmetic() -> None:
    def program(x, n, m):
        b = 1.5 < m < n + 3
        results = (
            b + m,
            m + b,
            b - m,
            m - b,
            b * m,
            m // (b + 1),
            b // m,
            b % m,
            m % (b + 2),
            b**2,
            -b,
            b + b,
            abs(b),
            min(b, m),
        )
        b += m
        return x + b, b, results, [b < 5, m < b, not b]

    run = armature.compile(program, backend="eager", dynamic=True)
    for n, m in ((2, 3), (3, 4), (2, 6), (7, 5)):
        assert difference(program(torch.ones(3), n, m), run(torch.ones(3), n, m)) == 0.0


def test_division_by_a_size_that_may_be_zero() -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        return x + 7 % n, 100 // n

    quick = compiled(fn)
    for n in (5, 2, 3):
        check(fn, quick, torch.ones(2), n)
    with pytest.raises((ZeroDivisionError, armature.errors.Unsupported)):
        quick(torch.ones(2), 0)
    check(fn, quick, torch.ones(2), -3)


def test_a_decoder_with_a_growing_cache_compiles_at_most_three_times() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)
            self.out = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, cache: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = (part.view(b, t, 2, 4).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
            if cache is not None:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            found = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
            return self.out(found.transpose(1, 2).reshape(b, t, 8)), (k, v)

    torch.manual_seed(0)
    model = Attention()
    quick = armature.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        prompt = torch.randn(1, 5, 8)
        (mine, held), (theirs, kept) = quick(prompt, None), model(prompt, None)
        for _ in range(64):
            step = torch.randn(1, 1, 8)
            (mine, held), (theirs, kept) = quick(step, held), model(step, kept)
            torch.testing.assert_close(mine, theirs)
    assert held[0].shape == (1, 2, 69, 4)
    assert count() <= 3


def test_resetting_forgets_what_was_seen() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    quick = compiled(fn)
    quick(rows(3))
    armature.reset()
    quick(rows(4))
    assert "x is a tensor float32[4, 6]" in "\n".join(session().compilations[-1].guards)


def flat(x: torch.Tensor) -> Any:
    return (x.reshape(-1),)


def flat_parts(x: torch.Tensor) -> Any:
    return x[1:].reshape(-1), x.reshape(-1)[1:], x.t().reshape(-1), x * 2


def flat_result(x: torch.Tensor) -> Any:
    y = x + 1
    return y, y[:, ::2].reshape(-1), y.reshape(-1)[::2]


@pytest.mark.parametrize("fn", [flat, flat_parts, flat_result])
def test_results_share_memory_with_symbolic_sizes(fn: Callable[..., Any]) -> None:
    def facts(x: torch.Tensor, results: Any) -> Any:
        memory = [x.untyped_storage().data_ptr(), *(r.untyped_storage().data_ptr() for r in results)]
        return [(r.stride(), r.storage_offset(), r.tolist(), memory.index(m)) for r, m in zip(results, memory[1:])]

    quick = armature.compile(fn)
    for x in (rows(4), rows(4)[:, ::2], rows(7)[:, ::2], torch.ones(8, 10)[:, ::2], torch.ones(10, 8)):
        assert facts(x, quick(x)) == facts(x, fn(x))
