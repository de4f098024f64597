"""Operations on values of many kinds, most of which their types refuse: the program's handlers see what Python raises."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import pytest
import torch

import armature
from armature.testing.handler_kit import break_id


class Plain:
    pass


class Odd:
    """Answers in ways that Python refuses, or takes for an answer."""

    def __add__(self, other: object) -> Any:
        return NotImplemented

    def __radd__(self, other: object) -> str:
        return "radd"

    def __lt__(self, other: object) -> bool:
        return True

    def __len__(self) -> int:
        return -1

    def __index__(self) -> int:
        return 2

    def __iter__(self) -> Any:
        return 5

    def __contains__(self, item: object) -> Any:
        return []

    def __call__(self, *args: Any, **named: Any) -> Any:
        return args, named


class Items(list):  # type: ignore[type-arg]
    pass


class Table(dict):  # type: ignore[type-arg]
    def __missing__(self, key: object) -> object:
        return key


VALUES = (
    "5", "True", "2.5", "1j", "'ab'", "None", "(1, 2)", "[1, 2]", "{'a': 1}", "{1, 2}", "b'ab'", "range(3)", "Plain()",
    "Odd()", "Items([1])", "Table()", "x", "Plain", "...", "10**30", "-3", "float('nan')", "torch.Size([2])",
    "torch.float32", "iter([1, 2])", "frozenset([1])", "x.sum()", "(lambda: 1)", "slice(1, 2)", "bytearray(b'a')",
    "memoryview(b'ab')", "{'a': 1}.keys()", "'a'.upper", "ValueError(1)", "zip([1], [2])",
)  # fmt: skip
OF_ONE = (
    "v[0] = 2", "v[1:2] = [1]", "del v[0]", "v.lacking = 1", "del v.lacking", "r = v.lacking", "r = v()", "r = len(v)",
    "r = next(v)", "r = -v", "r = ~v", "r = abs(v)", "r = [*v]", "r = {**v}", "a, b, c = v", "a, *b = v", "v[0] += 1",
    "for i in v: pass", "r = 1 in v", "r = 'a' in v", "raise v", "r = ''.join(v)", "r = f'{v:d}'", "r = sorted(v)",
    "r = sum(v)", "r = range(v)", "r = chr(v)", "r = round(v)", "with v: pass", "r = v[10**30]", "r = v[-9]", "r = v[1.5]",
    "r = v.__class__.__name__", "r = int(v)", "r = dict(v)", "r = bytes(v)", "r = isinstance(1, v)", "r = issubclass(v, int)",
    "r = enumerate(v)", "r = zip(v)", "r = iter(v)", "r = reversed(v)", "v |= 1", "r = hasattr(v, 'real')",
)  # fmt: skip
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "@", "<<", "&", "|", "==", "!=", "<", ">=", "in", "not in", "and")
OF_TWO = (
    *(f"r = v {operator} w" for operator in OPERATORS), "v += w", "v *= w", "v |= w", "v -= w", "r = v[w]", "v[w] = 1",
    "del v[w]", "r = divmod(v, w)", "r = pow(v, w)", "r = max(v, w)", "r = min(v, w)", "r = [*zip(v, w)]", "r = sum(v, w)",
    "r = round(v, w)", "r = {v: w} and 0", "r = {v, w} and 0", "r = sorted([v, w])", "r = (v,) + w", "r = [v] * w",
    "r = enumerate(v, w)", "r = int(v, w)", "r = complex(v, w)", "r = format(v, w)", "r = getattr(v, w)", "r = v(w)",
    "r = v(*w)", "r = v(**w)",
)  # fmt: skip
SHOWN = (int, str, float, complex, bool, tuple, list, dict, set, bytes)
BODY = """
def program(x):
    r = 0
    try:
        v = {v}
        w = {w}
        {operation}
        kept = v if isinstance(v, (int, str, list, dict, set)) else 0
        r = type(r).__name__, r if isinstance(r, SHOWN) else 0, kept
    except Exception as error:
        return x + 1, type(error).__name__, str(error)
    return x + 1, r
"""
ALL = [(one, "0", operation) for one, operation in itertools.product(VALUES, OF_ONE)]
ALL += itertools.product(VALUES, VALUES, OF_TWO)
random.Random(3).shuffle(ALL)
PARTS = 120


def in_order(value: Any) -> Any:
    """The value, its sets as sorted texts where tensors are in them: these lie in the order of their addresses."""
    if isinstance(value, tuple):
        return tuple(map(in_order, value))
    if isinstance(value, set) and any(isinstance(member, torch.Tensor) for member in value):
        return sorted(map(str, value))
    return value


def answer(run: Any) -> str:
    try:
        found = str(in_order(run(torch.ones(2))))
    except Exception as error:  # it came out of the program's handler
        found = f"left: {error!r}"
    return re.sub(r"0x[0-9a-f]+|grad_fn=<\w+>", "", found)


def check(programs: list[tuple[str, str, str]]) -> None:
    found = []
    for v, w, operation in programs:
        namespace: dict[str, Any] = {**globals()}
        exec(BODY.format(v=v, w=w, operation=operation), namespace)
        program = namespace["program"]
        expected, mine = answer(program), answer(armature.compile(program, backend="eager"))
        if mine != expected:
            found.append(f"{operation}, of {v} and {w}: {mine}, not {expected}")
    assert found == []


@pytest.mark.parametrize("part", range(2))
def test_like_eager(part: int) -> None:
    check(ALL[part::PARTS])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2, 24))
def test_like_eager_at_length(part: int) -> None:
    check(ALL[part::PARTS])


def test_the_handler_that_python_asks() -> None:
    def changes_a_tuple(x):
        held = (1,)
        try:
            held[0] = 2
        except AttributeError:
            return x * 5
        except TypeError as error:
            return x, str(error)

    x = torch.ones(2)
    assert str(armature.compile(changes_a_tuple, backend="eager")(x)) == str(changes_a_tuple(x))


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_an_operator_without_a_kernel_raises_in_the_handler(backend: str) -> None:
    """What was written before is taken back, and the frame runs again."""

    def writes(x):
        x.add_(1)
        try:
            x |= 1
        except NotImplementedError as error:
            return x + 1, str(error)
        return x

    mine, theirs = torch.ones(2), torch.ones(2)
    run = armature.compile(writes, backend=backend)
    for _ in range(2):
        assert str(run(mine)) == str(writes(theirs))
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("spec", ["d", ".2f", ">8", "x", "zzz", "c"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.complex64])
def test_forms_of_tensors(spec: str, dtype: torch.dtype) -> None:
    def shows(x, y):
        texts = []
        for one in (x, y):
            try:
                texts.append(f"{one:{spec}}")
            except (TypeError, ValueError, OverflowError) as error:
                texts.append(str(error))
        return x + 1, texts

    given = torch.ones(2, dtype=dtype), torch.ones((), dtype=dtype)
    assert str(armature.compile(shows, backend="eager")(*given)) == str(shows(*given))


class Returning:
    """An object whose special methods return what they were told to."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __len__(self) -> Any:
        return self.value

    __bool__ = __hash__ = __index__ = __len__


class Hinting:
    def __iter__(self) -> Any:
        return iter((1, 2))

    def __length_hint__(self) -> int:
        return 3


class OnlySets:
    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def deleted(x: Any) -> Any:
    del OnlySets()[1]
    return x


@pytest.mark.parametrize(
    ("program", "broken_by"),
    [
        (lambda x: x + len(Returning(-1)), "special-method-result"),
        (lambda x: x + len(Returning(1 << 70)), "special-method-result"),
        (lambda x: x + len(Returning("a")), "special-method-result"),
        (lambda x: x + bool(Returning(2)), "special-method-result"),
        (lambda x: x + {Returning("a"): 1}[Returning("a")], "special-method-result"),
        (lambda x: x + [1, 2][Returning("a")], "special-method-result"),
        (lambda x: x + len(list(Hinting())), "iteration-of-object"),
        (deleted, "item-of-object"),
    ],
)
def test_what_special_methods_may_not_return_is_left_to_python(program: Any, broken_by: str) -> None:
    x = torch.ones(1)
    assert break_id(program, (x,)) == broken_by
    found = []
    for run in (program, armature.compile(program, backend="eager")):
        try:
            found.append(str(run(x)))
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            found.append(repr(error))
    assert found[0] == found[1]
