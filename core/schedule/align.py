"""Decides whether two loop nests run over the same points, and maps the variables of one to those of the other.

The link is a buffer that both touch: equal elements mean equal points. Coordinates are compared as positions in the
buffer, and a variable is a digit of a mixed-radix number, so `x.view(n, c * h * w)` lines up with `x[n, c, h, w]`: both
sides are split at the borders of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import attrs

from armature.lower.index import (
    Index,
    Sum,
    Var,
    add,
    contiguous_strides,
    linear,
    mul,
    numel,
)  # fmt: skip

Nest = tuple[tuple[Var, ...], tuple[Var, ...]]  # outer, inner


@attrs.frozen
class Digit:
    """A factor that `left` and `right` share: (var // step) % extent of either."""

    left: Var
    left_step: int
    right: Var
    right_step: int
    extent: Index


@attrs.frozen
class Alignment:
    """The common nest, and each side's variables expressed in it (unchanged ones left out)."""

    outer: tuple[Var, ...]
    inner: tuple[Var, ...]
    left: Mapping[Var, Index]
    right: Mapping[Var, Index]


def align(
    left: Nest, right: Nest, left_index: Sequence[Index], right_index: Sequence[Index], shape: Sequence[Index]
) -> Alignment | None:
    """Line up two nests of which one touches `left_index`, the other `right_index` of a buffer of `shape`.

    None if they do not run over the same points. A pointwise nest may line up with all of a reduction or with its outer
    part.
    """
    digits = _match(left_index, right_index, shape)
    own_left, own_right = frozenset((*left[0], *left[1])), frozenset((*right[0], *right[1]))
    if digits is None or not all(d.left in own_left and d.right in own_right for d in digits):
        return None  # computed indices are not loop variables
    rest_left = [v for v in (*left[0], *left[1]) if all(d.left != v for d in digits)]
    rest_right = [v for v in (*right[0], *right[1]) if all(d.right != v for d in digits)]
    if rest_left and rest_right:
        more = _match_rest(rest_left, rest_right)
        if more is None:
            return None
        digits += more
        rest_left = rest_right = []
    if (rest_left and tuple(rest_left) != left[1]) or (rest_right and tuple(rest_right) != right[1]):
        return None
    if right[1] and not left[1]:
        flipped = _build(right, left, [Digit(d.right, d.right_step, d.left, d.left_step, d.extent) for d in digits])
        return flipped and Alignment(flipped.outer, flipped.inner, flipped.right, flipped.left)
    return _build(left, right, digits)


def _build(base: Nest, other: Nest, digits: list[Digit]) -> Alignment | None:
    """The nest of `base`, split at the digits, and `other` expressed in it."""
    change_base: dict[Var, Index] = {}
    change_other: dict[Var, list[Index]] = {}
    pieces: dict[Digit, Var] = {}
    nest: list[tuple[Var, ...]] = []
    for variables in base:
        new: list[Var] = []
        for var in variables:
            own = sorted((d for d in digits if d.left == var), key=lambda d: -d.left_step)
            if len(own) <= 1:
                new.append(var)
                pieces.update(dict.fromkeys(own, var))
                continue
            cut = [Var(f"{var.name}_{k}", d.extent) for k, d in enumerate(own)]
            change_base[var] = add(*(mul(v, d.left_step) for v, d in zip(cut, own, strict=True)))
            pieces.update(zip(own, cut, strict=True))
            new += cut
        nest.append(tuple(new))
    for digit, var in pieces.items():
        change_other.setdefault(digit.right, []).append(mul(var, digit.right_step))
    inner = frozenset(nest[1])
    if other[1]:  # two reductions must reduce over the same points
        for digit, var in pieces.items():
            if (digit.right in other[1]) != (var in inner):
                return None
    return Alignment(nest[0], nest[1], change_base, {v: add(*parts) for v, parts in change_other.items()})


def _match(left: Sequence[Index], right: Sequence[Index], shape: Sequence[Index]) -> list[Digit] | None:
    direct: list[Digit] = []
    for a, b in zip(left, right, strict=True):
        if isinstance(a, Var) and isinstance(b, Var) and a.extent == b.extent:
            direct.append(Digit(a, 1, b, 1, a.extent))
        elif a != b or not isinstance(a, int):
            return _match_linear(linear(left, contiguous_strides(shape)), linear(right, contiguous_strides(shape)))
    once = len({d.left for d in direct}) == len(direct) == len({d.right for d in direct})
    return direct if once else None


def _match_rest(left: list[Var], right: list[Var]) -> list[Digit] | None:
    if [v.extent for v in left] == [v.extent for v in right]:
        return [Digit(a, 1, b, 1, a.extent) for a, b in zip(left, right, strict=True)]
    if numel(v.extent for v in left) != numel(v.extent for v in right):
        return None
    sides = [linear(side, contiguous_strides([v.extent for v in side])) for side in (left, right)]
    return _match_linear(sides[0], sides[1])


def _spans(value: Index) -> list[tuple[int, int, Var]] | None:
    """(step, end, variable) per variable of a position whose steps have no gaps; None unless all are numbers."""
    if isinstance(value, Var):
        terms: tuple[tuple[object, int], ...] = ((value, 1),)
    elif isinstance(value, Sum) and value.const == 0:
        terms = value.terms
    else:
        return [] if value == 0 else None
    spans: list[tuple[int, int, Var]] = []
    for factor, step in terms:
        if not isinstance(factor, Var) or not isinstance(factor.extent, int) or step <= 0 or factor.extent <= 0:
            return None
        spans.append((step, step * factor.extent, factor))
    spans.sort(key=lambda s: s[:2])
    if any(a[1] > b[0] for a, b in pairwise(spans)):
        return None
    return spans


def _match_linear(left: Index, right: Index) -> list[Digit] | None:
    a, b = _spans(left), _spans(right)
    if a is None or b is None:
        return None
    borders = sorted({x for s in (*a, *b) for x in s[:2]})
    digits: list[Digit] = []
    for low, high in pairwise(borders):
        on_left = next((s for s in a if s[0] <= low and high <= s[1]), None)
        on_right = next((s for s in b if s[0] <= low and high <= s[1]), None)
        if on_left is None and on_right is None:
            continue
        if on_left is None or on_right is None or high % low or low % on_left[0] or low % on_right[0]:
            return None
        if on_left[1] % high or on_right[1] % high:
            return None
        digits.append(Digit(on_left[2], low // on_left[0], on_right[2], low // on_right[0], high // low))
    return digits
