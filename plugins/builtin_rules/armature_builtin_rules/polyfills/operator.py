"""Polyfills for the C functions of operator: each applies the operator itself."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any


def add(a: Any, b: object, /) -> object:
    return a + b


def and_(a: Any, b: object, /) -> object:
    return a & b


def contains(a: Container[object], b: object, /) -> bool:
    return b in a


def _searched(items: Iterable[object]) -> Iterator[object]:
    try:
        return iter(items)
    except TypeError:
        raise TypeError(f"argument of type '{type(items).__name__}' is not iterable") from None


def countOf(a: Iterable[object], b: object, /) -> int:
    found = 0
    for item in _searched(a):
        if b in (item,):  # identical or equal
            found += 1
    return found


def delitem(a: Any, b: object, /) -> None:
    del a[b]


def eq(a: object, b: object, /) -> object:
    return a == b


def floordiv(a: Any, b: object, /) -> object:
    return a // b


def ge(a: Any, b: object, /) -> object:
    return a >= b


def getitem(a: Any, b: object, /) -> object:
    return a[b]


def gt(a: Any, b: object, /) -> object:
    return a > b


def iadd(a: Any, b: object, /) -> object:
    a += b
    return a


def iand(a: Any, b: object, /) -> object:
    a &= b
    return a


def ifloordiv(a: Any, b: object, /) -> object:
    a //= b
    return a


def ilshift(a: Any, b: object, /) -> object:
    a <<= b
    return a


def imatmul(a: Any, b: object, /) -> object:
    a @= b
    return a


def imod(a: Any, b: object, /) -> object:
    a %= b
    return a


def imul(a: Any, b: object, /) -> object:
    a *= b
    return a


def indexOf(a: Iterable[object], b: object, /) -> int:
    for position, item in enumerate(_searched(a)):
        if b in (item,):
            return position
    raise ValueError("sequence.index(x): x not in sequence")


def inv(a: Any, /) -> object:
    return ~a


def ior(a: Any, b: object, /) -> object:
    a |= b
    return a


def ipow(a: Any, b: object, /) -> object:
    a **= b
    return a


def irshift(a: Any, b: object, /) -> object:
    a >>= b
    return a


def is_(a: object, b: object, /) -> bool:
    return a is b


def is_not(a: object, b: object, /) -> bool:
    return a is not b


def isub(a: Any, b: object, /) -> object:
    a -= b
    return a


def itruediv(a: Any, b: object, /) -> object:
    a /= b
    return a


def ixor(a: Any, b: object, /) -> object:
    a ^= b
    return a


def le(a: Any, b: object, /) -> object:
    return a <= b


def lshift(a: Any, b: object, /) -> object:
    return a << b


def lt(a: Any, b: object, /) -> object:
    return a < b


def matmul(a: Any, b: object, /) -> object:
    return a @ b


def mod(a: Any, b: object, /) -> object:
    return a % b


def mul(a: Any, b: object, /) -> object:
    return a * b


def ne(a: object, b: object, /) -> object:
    return a != b


def neg(a: Any, /) -> object:
    return -a


def not_(a: object, /) -> bool:
    return not a


def or_(a: Any, b: object, /) -> object:
    return a | b


def pos(a: Any, /) -> object:
    return +a


def pow_(a: Any, b: object, /) -> object:
    return a**b


def rshift(a: Any, b: object, /) -> object:
    return a >> b


def setitem(a: Any, b: object, c: object, /) -> None:
    a[b] = c


def sub(a: Any, b: object, /) -> object:
    return a - b


def truediv(a: Any, b: object, /) -> object:
    return a / b


def truth(a: object, /) -> bool:
    return bool(a)


def xor(a: Any, b: object, /) -> object:
    return a ^ b


def call(obj: Callable[..., object], /, *args: object, **kwargs: object) -> object:
    return obj(*args, **kwargs)


_BY_NAME: tuple[Callable[..., object], ...] = (
    add, and_, call, contains, countOf, delitem, eq, floordiv, ge, getitem, gt, iadd, iand, ifloordiv, ilshift, imatmul,
    imod, imul, indexOf, inv, ior, ipow, irshift, is_, is_not, isub, itruediv, ixor, le, lshift, lt, matmul, mod,
    mul, ne, neg, not_, or_, pos, rshift, setitem, sub, truediv, truth, xor,
)  # fmt: skip


def itemgetter(item: object, /, *items: object) -> Callable[..., object]:
    if not items:
        return lambda obj: obj[item]
    return lambda obj: tuple([obj[name] for name in (item, *items)])


def attrgetter(attr: str, /, *attrs: str) -> Callable[..., object]:
    for path in (attr, *attrs):
        if not isinstance(path, str):
            raise TypeError("attribute name must be a string")

    def get(obj: object, path: str) -> object:
        for name in path.split("."):
            obj = getattr(obj, name)
        return obj

    if not attrs:
        return lambda obj: get(obj, attr)
    return lambda obj: tuple([get(obj, path) for path in (attr, *attrs)])


def methodcaller(name: str, /, *args: object, **kwargs: object) -> Callable[..., object]:
    if not isinstance(name, str):
        raise TypeError("method name must be a string")
    return lambda obj: getattr(obj, name)(*args, **kwargs)


def length_hint(obj: Any, default: int = 0, /) -> int:
    default = int(operator.index(default))
    if hasattr(type(obj), "__len__"):
        try:
            return len(obj)
        except TypeError:
            pass
    hinted = getattr(type(obj), "__length_hint__", None)
    if hinted is None:
        return default
    try:
        hint = hinted(obj)
    except TypeError:
        return default
    if hint is NotImplemented:
        return default
    if not isinstance(hint, int):
        raise TypeError(f"__length_hint__ must be an integer, not {type(hint).__name__}")
    if hint < 0:
        raise ValueError("__length_hint__() should return >= 0")
    return hint


STAND_INS = (
    *((getattr(operator, function.__name__), function) for function in _BY_NAME),
    (operator.pow, pow_),
    (operator.invert, inv),
    (operator.length_hint, length_hint),
)
