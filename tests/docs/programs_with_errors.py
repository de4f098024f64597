"""Programs that raise and catch, one graph here, by the code of the type under which torch.compile breaks them."""

from __future__ import annotations

import itertools
from typing import Any


class Plain:
    pass


def numbers(x: Any) -> Any:
    yield x + 1
    yield x + 2


def gb0010(x: Any) -> Any:
    y = x + 1
    del y
    try:
        return y
    except UnboundLocalError:
        return x + 2


def gb0011(x: Any) -> Any:
    if x.dim() == 5:
        y = 1
    try:
        return x + y
    except UnboundLocalError:
        return x + 2


def gb0024(x: Any) -> Any:
    made = numbers(x)
    first = next(made)
    try:
        made.throw(StopIteration)
    except RuntimeError:
        return first * 2
    return first


def gb0050(x: Any) -> Any:
    try:
        try:
            raise ValueError
        except 5:
            return x
    except TypeError:
        return x + 1


def gb0051(x: Any) -> Any:
    try:
        try:
            raise ValueError
        except (5, ValueError):
            return x
    except TypeError:
        return x + 1


def gb0077(x: Any) -> Any:
    try:
        a, b, c = x
    except ValueError:
        return x + 1
    return a


def gb0111(x: Any) -> Any:
    try:
        return x + len(5)
    except TypeError:
        return x + 1


def gb0133(x: Any) -> Any:
    try:
        return x + len(list(itertools.accumulate(5)))
    except TypeError:
        return x + 1


def gb0134(x: Any) -> Any:
    try:
        return x + len(list(itertools.groupby(5)))
    except TypeError:
        return x + 1


def gb0160(x: Any) -> Any:
    try:
        return x + next(5)
    except TypeError:
        return x + 1


def gb0196(x: Any) -> Any:
    try:
        return x + {"a": 1}["b"]
    except KeyError:
        return x + 1


def gb0252(x: Any) -> Any:
    try:
        return x + Plain().missing
    except AttributeError:
        return x + 1


def gb0354(x: Any) -> Any:
    try:
        return x + not_there  # noqa: F821
    except NameError:
        return x + 1
