"""Integer index expressions: which element a loop body reads or writes.

An `Index` is a Python int or one of the frozen node classes below, which say what their parts are, what bounds they
have, and how variables are replaced in them. The smart constructors (`add`, `mul`, `floordiv`, `mod`) keep sums flat
and sorted by coefficient map, fold integers, and use the range of each variable to drop divisions and remainders that
do nothing; so static shapes never reach sympy. Extents of variables may themselves be symbolic (`Size`); a
simplification that needs a number is then not made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd, prod
from typing import Any, TypeAlias, cast

import attrs

Bounds: TypeAlias = tuple[int | None, int | None]
"""Smallest and largest value, both inclusive; None where it is not known."""


@attrs.frozen(cache_hash=True)
class Var:
    """A loop variable: runs from 0 to `extent` - 1 in steps of 1. Identified by name and extent."""

    name: str
    extent: Index

    def __str__(self) -> str:
        return self.name

    def operands(self) -> tuple[Index, ...]:
        return ()

    def bounds(self) -> Bounds:
        high = bounds(self.extent)[1]
        return 0, None if high is None else max(high - 1, 0)

    def substitute(self, changes: Mapping[Var, Index]) -> Index:
        return changes.get(self, self)

    def hinted(self) -> int:
        raise ValueError(f"a loop variable has no hint: {self}")


@attrs.frozen(cache_hash=True)
class Size:
    """A symbolic size (ShapeEnv's `s0`), positive unless `low` says otherwise. `hint` is its value while tracing.

    definition: Python code over the names of other sizes, for a size that is computed from those instead of read.
    """

    name: str
    hint: int
    low: int = 1
    definition: str = ""

    def __str__(self) -> str:
        return self.name

    def operands(self) -> tuple[Index, ...]:
        return ()

    def bounds(self) -> Bounds:
        return self.low, None

    def substitute(self, changes: Mapping[Var, Index]) -> Index:
        return self

    def hinted(self) -> int:
        return self.hint


@attrs.frozen(cache_hash=True)
class Sum:
    """`const` plus the sum of factor times coefficient. Never empty, never a lone term with coefficient 1."""

    terms: tuple[tuple[Atom, int], ...]
    const: int

    def __str__(self) -> str:
        parts = [str(f) if c == 1 else f"{c}*{f}" for f, c in self.terms]
        if self.const:
            parts.append(str(self.const))
        return "(" + " + ".join(parts) + ")"

    def operands(self) -> tuple[Index, ...]:
        return tuple(factor for factor, _ in self.terms)

    def bounds(self) -> Bounds:
        low: int | None = self.const
        high: int | None = self.const
        for factor, coefficient in self.terms:
            ends = factor.bounds()
            small, large = ends if coefficient > 0 else ends[::-1]
            low = None if low is None or small is None else low + small * coefficient
            high = None if high is None or large is None else high + large * coefficient
        return low, high

    def substitute(self, changes: Mapping[Var, Index]) -> Index:
        return add(*(mul(factor.substitute(changes), c) for factor, c in self.terms), self.const)

    def hinted(self) -> int:
        return self.const + sum(factor.hinted() * c for factor, c in self.terms)


@attrs.frozen(cache_hash=True)
class Product:
    """Two or more non-integer factors, kept in a fixed order."""

    factors: tuple[Atom, ...]

    def __str__(self) -> str:
        return "*".join(str(f) for f in self.factors)

    def operands(self) -> tuple[Index, ...]:
        return self.factors

    def bounds(self) -> Bounds:
        low: int | None = 1
        high: int | None = 1
        for factor in self.factors:
            small, large = factor.bounds()
            if small is None or small < 0:
                return None, None
            low = low * small if low is not None else None
            high = None if high is None or large is None else high * large
        return low, high

    def substitute(self, changes: Mapping[Var, Index]) -> Index:
        out: Index = 1
        for factor in self.factors:
            out = mul(out, factor.substitute(changes))
        return out

    def hinted(self) -> int:
        return prod(factor.hinted() for factor in self.factors)


@attrs.frozen(cache_hash=True)
class FloorDiv:
    """`num // den`, rounded towards minus infinity as in Python."""

    num: Index
    den: Index

    def __str__(self) -> str:
        return f"({self.num} // {self.den})"

    def operands(self) -> tuple[Index, ...]:
        return self.num, self.den

    def bounds(self) -> Bounds:
        small, large = bounds(self.num)
        if isinstance(self.den, int):
            return (
                None if small is None else small // self.den,
                None if large is None else large // self.den,
            )
        return (0 if small is not None and small >= 0 else None), large

    def substitute(self, changes: Mapping[Var, Index]) -> Index:
        return floordiv(substitute(self.num, changes), substitute(self.den, changes))

    def hinted(self) -> int:
        return hint(self.num) // hint(self.den)


@attrs.frozen(cache_hash=True)
class Mod:
    """`num % den` with the sign of `den` as in Python."""

    num: Index
    den: Index

    def __str__(self) -> str:
        return f"({self.num} % {self.den})"

    def operands(self) -> tuple[Index, ...]:
        return self.num, self.den

    def bounds(self) -> Bounds:
        top = bounds(self.den)[1]
        return 0, None if top is None else top - 1

    def substitute(self, changes: Mapping[Var, Index]) -> Index:
        return mod(substitute(self.num, changes), substitute(self.den, changes))

    def hinted(self) -> int:
        return hint(self.num) % hint(self.den)


Atom: TypeAlias = Var | Size | Sum | Product | FloorDiv | Mod
Index: TypeAlias = int | Var | Size | Sum | Product | FloorDiv | Mod


def _terms(value: Index) -> tuple[dict[Atom, int], int]:
    if isinstance(value, int):
        return {}, value
    if isinstance(value, Sum):
        return dict(value.terms), value.const
    return {value: 1}, 0


def _sum(terms: Mapping[Atom, int], const: int) -> Index:
    kept = [(f, c) for f, c in terms.items() if c]
    if not kept:
        return const
    if len(kept) > 1:
        kept.sort(key=lambda item: str(item[0]))
    elif kept[0][1] == 1 and const == 0:
        return kept[0][0]
    return Sum(tuple(kept), const)


def _rejoin(terms: dict[Atom, int]) -> tuple[dict[Atom, int], int]:
    """Turn `(x // k) * (k*m) + (x % k) * m` back into `x * m`; returns the terms, and the constant part of x."""
    const = 0
    todo = [f for f in terms if _has_remainder(f)]
    while todo:
        factor = todo.pop()
        coefficient = terms.get(factor, 0)
        found = _quotient_of(factor, coefficient, terms) if coefficient else None
        if found is None:
            continue
        quotient, shift, whole = found
        for f in (factor, *quotient):
            del terms[f]
        more, extra = _terms(mul(whole, coefficient))
        const += extra - shift
        for f, c in more.items():
            terms[f] = terms.get(f, 0) + c
            if not terms[f]:
                del terms[f]
        todo = [f for f in terms if _has_remainder(f)]  # the result may be the quotient that another remainder needs
    return terms, const


def _has_remainder(factor: Atom) -> bool:
    """Whether the factor is a remainder, or a product with one."""
    return isinstance(factor, Mod) or (isinstance(factor, Product) and any(isinstance(f, Mod) for f in factor.factors))


def _quotient_of(factor: Atom, coefficient: int, terms: Mapping[Atom, int]) -> tuple[list[Atom], int, Index] | None:
    """Terms that make `num // den` times `coefficient * den`, the missing constant, and the number that they are parts
    of."""
    if not isinstance(factor, Mod) or not isinstance(factor.den, int):
        return _symbolic_quotient_of(factor, coefficient, terms)
    wanted = coefficient * factor.den
    quotient, shift = _terms(floordiv(factor.num, factor.den))
    if quotient and all(terms.get(f) == c * wanted for f, c in quotient.items()):
        return list(quotient), shift * wanted, factor.num
    for f, c in terms.items():
        divided = f.num if isinstance(f, Mod) else f
        if c != wanted or not isinstance(divided, FloorDiv):
            continue
        if not isinstance(divided.den, int) or divided.den % factor.den:
            continue
        # `x // (a*k)` is `(x // a) // k`; the remainder was simplified further than the quotient.
        whole = floordiv(divided.num, divided.den // factor.den)
        if mod(whole, factor.den) == factor:
            return [f], 0, mod(whole, mul(f.den, factor.den)) if isinstance(f, Mod) else whole
    return None


def _symbolic_quotient_of(
    factor: Atom, coefficient: int, terms: Mapping[Atom, int]
) -> tuple[list[Atom], int, Index] | None:
    """The same where the remainder has a symbolic divisor or is multiplied by sizes."""
    parts = factor.factors if isinstance(factor, Product) else (factor,)
    for k, part in enumerate(parts):
        if not isinstance(part, Mod):
            continue
        step: Index = 1
        for other in (*parts[:k], *parts[k + 1 :]):
            step = mul(step, other)
        quotient, shift = _terms(mul(mul(floordiv(part.num, part.den), mul(part.den, step)), coefficient))
        if quotient and all(terms.get(f) == c for f, c in quotient.items()):
            return list(quotient), shift, mul(part.num, step)
    return None


def add(*values: Index) -> Index:
    """Sum of the values."""
    terms: dict[Atom, int] = {}
    const = 0
    for value in values:
        if isinstance(value, int):
            const += value
            continue
        more, extra = _terms(value)
        const += extra
        for factor, coefficient in more.items():
            terms[factor] = terms.get(factor, 0) + coefficient
    if any(map(_has_remainder, terms)):
        terms, extra = _rejoin({f: c for f, c in terms.items() if c})
        const += extra
    return _sum(terms, const)


def mul(left: Index, right: Index) -> Index:
    """Product of two values; integers distribute over sums."""
    if isinstance(left, int) and isinstance(right, int):
        return left * right
    if isinstance(left, int):
        left, right = right, left
    if isinstance(right, int):
        if right == 1:
            return left
        terms, const = _terms(left)
        return _sum({f: c * right for f, c in terms.items()}, const * right)
    if isinstance(left, Sum) or isinstance(right, Sum):
        left_terms, left_const = _terms(left)
        right_terms, right_const = _terms(right)
        parts: list[Index] = [left_const * right_const]
        parts += [mul(f, c * right_const) for f, c in left_terms.items()]
        parts += [mul(f, c * left_const) for f, c in right_terms.items()]
        parts += [mul(_product(f, g), c * d) for f, c in left_terms.items() for g, d in right_terms.items()]
        return add(*parts)
    return _product(cast(Atom, left), cast(Atom, right))


def _product(left: Atom, right: Atom) -> Index:
    factors = [*(left.factors if isinstance(left, Product) else (left,))]
    factors += right.factors if isinstance(right, Product) else (right,)
    return Product(tuple(sorted(factors, key=str)))


def sub(left: Index, right: Index) -> Index:
    """`left - right`."""
    return add(left, mul(right, -1))


def floordiv(num: Index, den: Index) -> Index:
    """`num // den`, simplified where the ranges of the variables allow it. `den` is positive."""
    if den == 1:
        return num
    if isinstance(num, int) and isinstance(den, int):
        return num // den
    if num == den:
        return 1
    if not isinstance(den, int):
        return _divide_symbolic(num, den)
    whole, rest = _multiples(num, den)
    low, high = bounds(rest)
    if low is not None and high is not None and low // den == high // den:
        return add(whole, low // den)
    if isinstance(rest, FloorDiv):
        return add(whole, floordiv(rest.num, mul(rest.den, den)))
    parts = _coarse(rest, den)
    if parts is not None:
        step, coarse, _ = parts
        return add(whole, floordiv(coarse, den // step))
    return add(whole, FloorDiv(rest, den))


def _multiples(num: Index, den: int) -> tuple[Index, Index]:
    """Split the terms into the quotient, from those that `den` divides, and the rest with a constant in 0..den-1."""
    terms, const = _terms(num)
    whole = _sum({f: c // den for f, c in terms.items() if c % den == 0}, const // den)
    return whole, _sum({f: c for f, c in terms.items() if c % den}, const % den)


def _coarse(num: Index, den: int) -> tuple[int, Index, Index] | None:
    """`(step, coarse, fine)` with `num == step * coarse + fine`, `fine` in 0..step-1 and 1 < step < den dividing `den`.

    `(4*i + j) // 8` with j below 4 is `i // 2`, and `(4*i + j) % 8` is `4*(i % 2) + j`.
    """
    terms, const = _terms(num)
    steps = sorted({gcd(c, den) for c in terms.values()}, reverse=True)
    for step in steps:
        if not 1 < step < den:
            continue
        large = {f: c // step for f, c in terms.items() if c % step == 0}
        fine = _sum({f: c for f, c in terms.items() if c % step}, const % step)
        low, high = bounds(fine)
        if low is not None and high is not None and low // step == high // step:
            shift = low // step
            return step, _sum(large, const // step + shift), sub(fine, shift * step)
    return None


def _divide_symbolic(num: Index, den: Index) -> Index:
    terms, const = _terms(num)
    whole: list[Index] = []
    rest: list[Index] = [const]
    for factor, coefficient in terms.items():
        factors: list[Index] = list(factor.factors) if isinstance(factor, Product) else [factor]
        if den in factors:
            factors.remove(den)
            part: Index = coefficient
            for f in factors:
                part = mul(part, f)
            whole.append(part)
        else:
            rest.append(mul(factor, coefficient))
    remainder = add(*rest)
    if _below(remainder, den):
        return add(*whole)
    if isinstance(remainder, FloorDiv):
        return add(*whole, floordiv(remainder.num, mul(remainder.den, den)))
    return add(*whole, FloorDiv(remainder, den))


def mod(num: Index, den: Index) -> Index:
    """`num % den`, simplified where the ranges of the variables allow it. `den` is positive."""
    if den == 1:
        return 0
    if isinstance(num, int) and isinstance(den, int):
        return num % den
    if num == den:
        return 0
    if not isinstance(den, int):
        whole = floordiv(num, den)
        if isinstance(whole, FloorDiv):
            return Mod(num, den)
        rest = sub(num, mul(whole, den))
        return rest if _below(rest, den) else Mod(num, den)
    terms, const = _terms(num)
    rest = _sum({f: c % den for f, c in terms.items() if c % den}, const % den)
    low, high = bounds(rest)
    if low is not None and high is not None and low // den == high // den:
        return sub(rest, low // den * den)
    if isinstance(rest, Mod) and isinstance(rest.den, int) and rest.den % den == 0:
        return mod(rest.num, den)
    parts = _coarse(rest, den)
    if parts is not None:
        step, coarse, fine = parts
        return add(mul(mod(coarse, den // step), step), fine)
    return Mod(rest, den)


def _below(value: Index, limit: Index) -> bool:
    """True if 0 <= value < limit is certain for a symbolic limit."""
    return (isinstance(value, Var) and value.extent == limit) or value == 0


def bounds(value: Index) -> Bounds:
    """Smallest and largest value, both inclusive; None where it is not known."""
    return (value, value) if isinstance(value, int) else value.bounds()


def substitute(value: Index, changes: Mapping[Var, Index]) -> Index:
    """Replace variables, simplifying as the expression is rebuilt."""
    return value if isinstance(value, int) else value.substitute(changes)


def walk(value: Index) -> list[Index]:
    """The expression and all parts of it, each before its own parts. Extents of variables are no parts."""
    parts = () if isinstance(value, int) else value.operands()
    return [value, *(inner for part in parts for inner in walk(part))] if parts else [value]


def variables(value: Index) -> frozenset[Var]:
    """All loop variables in the expression."""
    return frozenset([part for part in walk(value) if isinstance(part, Var)])


def sizes(value: Index) -> frozenset[Size]:
    """All symbolic sizes in the expression, not counting extents of variables."""
    return frozenset([part for part in walk(value) if isinstance(part, Size)])


def divisions(value: Index) -> tuple[FloorDiv | Mod, ...]:
    """All quotients and remainders in the expression, also those within another."""
    return tuple([part for part in walk(value) if isinstance(part, (FloorDiv, Mod))])


def stride_of(value: Index, var: Var) -> Index | None:
    """By how much the expression grows when `var` grows by one; None if that is not a fixed amount."""
    terms, _ = _terms(value)
    total: Index = 0
    for factor, coefficient in terms.items():
        if isinstance(factor, Var):
            total = add(total, coefficient) if factor == var else total
        elif var not in variables(factor):
            continue
        elif isinstance(factor, Product) and factor.factors.count(var) == 1:
            others = [f for f in factor.factors if f != var]
            if any(var in variables(f) for f in others):
                return None
            part: Index = coefficient
            for f in others:
                part = mul(part, f)
            total = add(total, part)
        else:
            return None
    return total


def linear(coordinates: Sequence[Index], strides: Sequence[Index], offset: Index = 0) -> Index:
    """Offset in elements of the element at `coordinates` of a strided buffer."""
    terms: dict[Atom, int] = {}
    const = offset if isinstance(offset, int) else 0
    others: list[Index] = [] if isinstance(offset, int) else [offset]
    for coordinate, stride in zip(coordinates, strides, strict=True):
        if isinstance(coordinate, Var) and isinstance(stride, int):  # the usual case, far quicker than sums of products
            terms[coordinate] = terms.get(coordinate, 0) + stride
        elif isinstance(coordinate, int) and isinstance(stride, int):
            const += coordinate * stride
        else:
            others.append(mul(coordinate, stride))
    whole = _sum(terms, const)
    return add(whole, *others) if others else whole


def contiguous_strides(shape: Sequence[Index]) -> tuple[Index, ...]:
    """Row-major strides in elements; a size of 0 counts as 1, as in torch."""
    strides: list[Index] = []
    step: Index = 1
    for size in reversed(shape):
        strides.append(step)
        step = mul(step, 1 if size == 0 else size)
    return tuple(reversed(strides))


def delinear(position: Index, shape: Sequence[Index]) -> tuple[Index, ...]:
    """Row-major coordinates in `shape` of the element number `position`."""
    out: list[Index] = []
    for axis, (size, step) in enumerate(zip(shape, contiguous_strides(shape), strict=True)):
        coordinate = floordiv(position, step)
        out.append(coordinate if axis == 0 else mod(coordinate, size))
    return tuple(0 if size == 1 else c for size, c in zip(shape, out, strict=True))


def numel(shape: Iterable[Index]) -> Index:
    """Number of elements."""
    out: Index = 1
    for size in shape:
        out = mul(out, size)
    return out


def computed(size: Size, numbers: Mapping[Size, int]) -> Any:
    """The value of a size with a definition, computed from those of other sizes."""
    return eval(size.definition, {}, {other.name: number for other, number in numbers.items()})


def hint(value: Index) -> int:
    """The value with every symbolic size at its hint. Errors: ValueError if a loop variable remains."""
    return value if isinstance(value, int) else value.hinted()
