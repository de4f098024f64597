"""The index algebra against brute force: every simplification gives the same numbers at every point."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from armature.lower import index as ix
from armature.lower.index import Index, Size, Var
from tests.support.counted_calls import calls_of

VARS = (Var("i", 4), Var("j", 3), Var("k", 5), Var("n", 1))


def value(expr: Index, point: dict[Var, int], sizes: dict[Size, int] | None = None) -> int:
    """The number an expression stands for."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, Var):
        return point[expr]
    if isinstance(expr, Size):
        return (sizes or {})[expr]
    if isinstance(expr, ix.Sum):
        return expr.const + sum(value(f, point, sizes) * c for f, c in expr.terms)
    if isinstance(expr, ix.Product):
        return math.prod(value(f, point, sizes) for f in expr.factors)
    num, den = value(expr.num, point, sizes), value(expr.den, point, sizes)
    return num // den if isinstance(expr, ix.FloorDiv) else num % den


def points(variables: tuple[Var, ...] = VARS) -> list[dict[Var, int]]:
    """Every point of the iteration space."""
    ranges = [range(value(v.extent, {})) for v in variables]
    return [dict(zip(variables, p, strict=True)) for p in itertools.product(*ranges)]


class Plain:
    """An expression with its meaning as a Python function, built side by side."""

    def __init__(self, expr: Index, meaning: str) -> None:
        self.expr, self.meaning = expr, meaning


LEAVES = st.one_of(
    st.sampled_from([Plain(v, v.name) for v in VARS]),
    st.integers(-6, 12).map(lambda n: Plain(n, f"({n})")),
)
DIVISORS = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12])


def extend(children: st.SearchStrategy[Plain]) -> st.SearchStrategy[Plain]:
    """One operation more."""
    return st.one_of(
        st.tuples(children, children).map(
            lambda p: Plain(ix.add(p[0].expr, p[1].expr), f"({p[0].meaning} + {p[1].meaning})")
        ),
        st.tuples(children, children).map(
            lambda p: Plain(ix.sub(p[0].expr, p[1].expr), f"({p[0].meaning} - {p[1].meaning})")
        ),
        st.tuples(children, st.integers(-3, 8)).map(
            lambda p: Plain(ix.mul(p[0].expr, p[1]), f"({p[0].meaning} * ({p[1]}))")
        ),
        st.tuples(children, DIVISORS).map(lambda p: Plain(ix.floordiv(p[0].expr, p[1]), f"({p[0].meaning} // {p[1]})")),
        st.tuples(children, DIVISORS).map(lambda p: Plain(ix.mod(p[0].expr, p[1]), f"({p[0].meaning} % {p[1]})")),
    )


@settings(max_examples=200, deadline=None)
@given(st.recursive(LEAVES, extend, max_leaves=8))
def test_simplified_expressions_keep_their_values(plain: Plain) -> None:
    meaning = eval(f"lambda i, j, k, n: {plain.meaning}")
    low, high = ix.bounds(plain.expr)
    for point in points():
        wanted = meaning(**{v.name: x for v, x in point.items()})
        assert value(plain.expr, point) == wanted
        assert (low is None or low <= wanted) and (high is None or wanted <= high)


@settings(max_examples=200, deadline=None)
@given(st.recursive(LEAVES, extend, max_leaves=6), st.recursive(LEAVES, extend, max_leaves=4))
def test_substitution(outer: Plain, inner: Plain) -> None:
    changed = ix.substitute(outer.expr, {VARS[0]: inner.expr})
    low, high = ix.bounds(inner.expr)
    if low is None or high is None or low < 0 or high >= 4:
        return  # only values within the variable's range may stand for it
    for point in points():
        assert value(changed, point) == value(outer.expr, {**point, VARS[0]: value(inner.expr, point)})


@settings(max_examples=200, deadline=None)
@given(st.recursive(LEAVES, extend, max_leaves=6))
def test_strides(plain: Plain) -> None:
    for var in VARS[:3]:
        step = ix.stride_of(plain.expr, var)
        if step is None:
            continue
        for point in points():
            if point[var] + 1 < value(var.extent, {}):
                up = {**point, var: point[var] + 1}
                assert value(plain.expr, up) - value(plain.expr, point) == value(step, point)


SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=4)


@given(SIZES)
def test_linear_and_back(shape: list[int]) -> None:
    space = [0 if n == 1 else Var(f"i{k}", n) for k, n in enumerate(shape)]
    flat = ix.linear(space, ix.contiguous_strides(shape))
    assert ix.delinear(flat, shape) == tuple(space)


@given(SIZES)
def test_back_and_linear(shape: list[int]) -> None:
    flat = Var("x", math.prod(shape)) if math.prod(shape) > 1 else 0
    assert ix.linear(ix.delinear(flat, shape), ix.contiguous_strides(shape)) == flat


FACTORS = {1: [1], 2: [2], 3: [3], 4: [2, 2], 6: [2, 3], 8: [2, 2, 2]}


def regrouped(data: st.DataObject, shape: list[int]) -> list[int]:
    """Another shape of the same elements: the factors of the sizes, in order, multiplied together in other groups."""
    factors = [f for n in shape for f in FACTORS[n]]
    out = [1]
    for factor in factors:
        if data.draw(st.booleans()):
            out.append(factor)
        else:
            out[-1] *= factor
    return out


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_two_reshapes_cancel(data: st.DataObject) -> None:
    first = data.draw(SIZES)
    second = regrouped(data, first)
    space = tuple(0 if n == 1 else Var(f"i{k}", n) for k, n in enumerate(first))
    flat = ix.linear(space, ix.contiguous_strides(first))
    assert ix.linear(ix.delinear(flat, second), ix.contiguous_strides(second)) == flat


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_reshape_reaches_each_element_once(data: st.DataObject) -> None:
    first = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3))
    second = data.draw(st.permutations(first))
    space = tuple(Var(f"i{k}", n) for k, n in enumerate(first))
    there = ix.delinear(ix.linear(space, ix.contiguous_strides(first)), second)
    flat = ix.linear(there, ix.contiguous_strides(second))
    assert [value(flat, p) for p in points(space)] == list(range(math.prod(first)))


def test_divisions_are_found_within_one_another() -> None:
    i, j = Var("i", 40), Var("j", 9)
    inner = ix.mod(ix.add(ix.mul(i, 3), j), 7)
    whole = ix.add(ix.mul(ix.floordiv(ix.add(inner, j, 5), 4), 2), i)
    assert [type(part).__name__ for part in ix.divisions(whole)] == ["FloorDiv", "Mod"]
    assert ix.divisions(ix.add(i, j)) == ()


def test_small_terms_are_dropped() -> None:
    i, j = Var("i", 6), Var("j", 4)
    num = ix.add(ix.mul(i, 4), j)
    assert ix.floordiv(num, 8) == ix.floordiv(i, 2)
    assert ix.mod(num, 8) == ix.add(ix.mul(ix.mod(i, 2), 4), j)
    assert ix.floordiv(num, 4) == i and ix.mod(num, 4) == j
    assert ix.floordiv(ix.add(num, 8), 8) == ix.add(ix.floordiv(i, 2), 1)


def test_rows_within_a_block_become_one_line_again() -> None:
    """As in rotary embedding: loops over positions and channels were joined, and then all loops into one."""
    x = Var("x", 8 * 4096)
    block = ix.mod(x, 4096)
    assert ix.add(ix.mul(ix.floordiv(block, 128), 128), ix.mod(block, 128)) == block
    assert ix.add(ix.mul(ix.mod(ix.floordiv(x, 128), 32), 128), ix.mod(x, 128)) == block
    assert ix.linear((ix.floordiv(x, 4096), ix.floordiv(block, 128), ix.mod(block, 128)), (4096, 128, 1)) == x


def test_symbolic_sizes_cancel() -> None:
    s = Size("s0", 7)
    i, j = Var("i", s), Var("j", 4)
    flat = ix.linear((i, j), ix.contiguous_strides((s, 4)))
    assert ix.delinear(flat, (s, 4)) == (i, j)
    k = Var("k", s)
    flat = ix.linear((j, k), ix.contiguous_strides((4, s)))
    assert ix.delinear(flat, (4, s)) == (j, k)


SIZE_VALUES = {"a": 3, "b": 4, "c": 5}
SYMBOLS = {name: Size(name, number) for name, number in SIZE_VALUES.items()}
SYMBOLIC_SHAPES = st.lists(st.sampled_from([*SYMBOLS.values(), 2, 3]), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(SYMBOLIC_SHAPES, st.sampled_from([1, 2, *SYMBOLS.values()]))
def test_back_and_linear_with_symbolic_sizes(shape: list[Index], step: Index) -> None:
    """Rows of a tensor that are joined to one axis have one stride."""
    flat = Var("x", ix.numel(shape))
    strides = [ix.mul(s, step) for s in ix.contiguous_strides(shape)]
    assert ix.linear(ix.delinear(flat, shape), strides) == ix.mul(flat, step)


@settings(max_examples=100, deadline=None)
@given(SYMBOLIC_SHAPES, SYMBOLIC_SHAPES, st.lists(st.integers(-2, 3), min_size=4, max_size=4))
def test_symbolic_divisions_keep_their_values(shape: list[Index], other: list[Index], steps: list[int]) -> None:
    sizes = {symbol: SIZE_VALUES[name] for name, symbol in SYMBOLS.items()}
    flat = Var("x", ix.numel(shape))
    parts = ix.delinear(flat, other)
    found = ix.linear(parts, [ix.mul(s, n) for s, n in zip(ix.contiguous_strides(other), steps, strict=False)])
    assert len(parts) == len(other)
    numbers = [value(n, {}, sizes) for n in other]
    for x in range(value(flat.extent, {}, sizes)):
        wanted, rest, step = 0, x, 1
        for k, (size, factor) in reversed(list(enumerate(zip(numbers, steps, strict=False)))):
            wanted += (rest % size if k else rest) * step * factor
            rest, step = rest // size, step * size
        assert value(found, {flat: x}, sizes) == wanted


def test_time_is_linear_in_the_expression() -> None:
    def calls(count: int) -> int:
        space = [Var(f"v{k}", 2) for k in range(count)]
        return calls_of(lambda: ix.add(*(ix.mul(v, 2**k) for k, v in enumerate(space))))

    calls(10)  # what the first call imports and keeps
    assert calls(400) <= 11 * calls(40)
