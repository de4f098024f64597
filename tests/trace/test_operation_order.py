"""Which methods of a class operations ask, where it derives from a builtin type or leaves some to `object`."""

from __future__ import annotations

import copy
import enum
import functools
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature

LOG: list[str] = []


class OwnEq(list):  # type: ignore[type-arg]
    def __eq__(self, other: object) -> Any:
        LOG.append("eq")
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]


class Index(str):
    def __index__(self) -> int:
        LOG.append("index")
        return 1


class Indices(list):  # type: ignore[type-arg]
    def __index__(self) -> int:
        return 2


class Rounds(str):
    def __round__(self, digits: Any = None) -> str:
        LOG.append("round")
        return "rounded"


class Number(int):
    def __round__(self, digits: Any = None) -> int:
        LOG.append("round")
        return 7

    def __radd__(self, other: object) -> str:
        LOG.append("radd")
        return "radd"


class Plain:
    def __eq__(self, other: object) -> Any:
        LOG.append("plain eq")
        return True

    __hash__ = None  # type: ignore[assignment]


def unequal(x):
    return x + 1, OwnEq([1]) != OwnEq([2]), OwnEq() != 3, Plain() != 3, Plain() != OwnEq()


def by_index(x):
    return x + [1, 2][Index("a")], [3] * Index("b"), (4,) * Index("b"), [5] * Indices(), Indices([6]) * 2


def rounded(x):
    return x + 1, round(Rounds("a")), round(Number(3)), round(Number(3), 1)


def added_to_a_tensor(x):
    return x + Number(2), x * Number(3)


def reduced(x):
    try:
        return functools.reduce(lambda a, b: a, 5)  # type: ignore[arg-type]
    except TypeError as error:
        return x, str(error)


class Keyed:
    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        LOG.append(f"hash {self.number}")
        return 3

    def __eq__(self, other: object) -> Any:
        LOG.append(f"{self.number} == {other}")
        return isinstance(other, Keyed) and self.number % 10 == other.number % 10

    def __str__(self) -> str:
        return str(self.number)


def keyed(x):
    first, other, equal = Keyed(1), Keyed(2), Keyed(11)
    held = {first}
    held.add(other)
    held.add(equal)
    table = {first: 1, other: 2}
    table[equal] = 3
    return x + 1, len(held), len(table), equal in held, equal in [other, first], [first, other].index(equal)


PROGRAMS = [unequal, by_index, rounded, added_to_a_tensor, reduced, keyed]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_like_eager(program: Callable[[torch.Tensor], Any]) -> None:
    def answers(run: Callable[[torch.Tensor], Any]) -> tuple[str, list[str]]:
        LOG.clear()
        return str(run(torch.ones(2))), [*LOG]

    assert answers(armature.compile(program, backend="eager")) == answers(program)


OPERATORS = ("a + b", "b + a", "a + 1", "1 + a", "a * b", "a * 2", "2 * a", "[1] * a", "a == b", "a != b", "a < b", "a > b",
             "a >= 1", "1 > a", "a - b", "a | b", "b | a", "a & b", "'%d' % a", "'%s' % a", "'%s' % (a,)", "min(a, b)",
             "sorted([a, b]) == [a, b]", "(a, b) == (b, a)", "divmod(a, b)", "a += b", "b += a", "a *= 2", "a |= b",
             "held += a", "held *= a", "a[1] = 2", "del a[1]", "dict(a)", "{**a}", "dir(a)[:1]", "str(a)", "complex(a)",
             "copy.copy(a) is a", "copy.deepcopy(a) is a", "operator.index(a)", "1 in a", "x + a", "a == x")  # fmt: skip
METHODS = ("__add__", "__radd__", "__iadd__", "__mul__", "__rmul__", "__eq__", "__lt__", "__gt__", "__index__", "__int__",
           "__float__", "__len__", "__setitem__", "__getattr__", "__getattribute__", "__str__", "__repr__", "__or__",
           "__ror__", "__iter__")  # fmt: skip
RETURNED = {
    "__len__": "2", "__str__": "'S'", "__repr__": "'R'", "__index__": "1", "__int__": "4", "__float__": "2.5",
    "__iter__": "iter([(1, 2), (3, 4)])", "__getattr__": "_missing(args[0])",
    "__getattribute__": "object.__getattribute__(self, *args)",
}  # fmt: skip


def written(draw: random.Random, base: str) -> str:
    """A program with a class that derives from a builtin type, and has some methods of its own."""
    chosen = draw.sample(METHODS, draw.randint(1, 4))
    lines = ["LOG = []", "def _missing(name):", "    raise AttributeError(name)", f"class A({base}):"]
    for name in chosen:
        result = RETURNED.get(name) or draw.choice(["NotImplemented", "7", "True", "self"])
        lines += [f"    def {name}(self, *args):", f"        LOG.append('{name}')", f"        return {result}"]
    lines += ["    __hash__ = None"] if "__eq__" in chosen else []
    lines += [f"class B({draw.choice(['A', base])}):", "    pass"]
    first, second = draw.choice(["A()", "B()"]), draw.choice(["A()", "B()", "a", "1", base + "()"])
    operation = draw.choice(OPERATORS)
    if operation in ("x + a", "a == x") and {"__len__", "__iter__"} & {*chosen}:
        operation = "a + b"  # torch believes what a tuple says of its length, and crashes
    statement = (
        operation if operation.startswith("del ") or "= " in operation.replace("== ", "") else f"r = {operation}"
    )
    if any(f" {op}= " in operation for op in "!<>"):
        statement = f"r = {operation}"
    lines += [
        "def program(x):",
        f"    a, r, held = {first}, None, [3]",
        f"    b = {second}",
        "    try:",
        f"        {statement}",
    ]
    lines += ["        r = r if type(r) in (int, float, str, list, dict, bool) else type(r).__name__"]
    lines += [
        "    except Exception as error:",
        "        r = type(error).__name__",
        "    return x + 1, r, str(held), LOG",
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("base", ["int", "str", "list", "tuple", "dict", "float", "set"])
@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))])
def test_classes_that_derive_from_builtin_types(base: str, part: int) -> None:
    draw = random.Random(f"{base}{part}")
    for _ in range(60):
        source = written(draw, base)
        answers = []
        for compiled in (False, True):
            namespace: dict[str, Any] = {"__name__": "program", "copy": copy, "operator": operator}
            exec(source, namespace)
            run = namespace["program"]
            run = armature.compile(run, backend="eager") if compiled else run
            answers.append(str(run(torch.ones(2))))
        assert answers[0] == answers[1], source


def no_lookup(x, a):
    return x + 1, a is None


def broken(x, a):
    print(end="")
    return x + 1, a, [a]


def in_containers(x, a):
    made = type(a)()
    held = {1: a, 2: [made]}
    print(end="")
    return x, len(held), held


def as_keys(x, a):
    held = {object(): 1, (1, 2): a}
    print(end="")
    return x, held.get(3), len(held)


def given_as_keys(x, a):
    held = {(a, 1): 1, a: 2}
    print(end="")
    return x, len(held), held


class ShyKey(str):
    def __repr__(self) -> str:
        LOG.append("repr")
        return "shy"


TABLE = {"a": 1}


def looked_for(x, a):
    return x, TABLE.get(a), a in TABLE


@pytest.mark.parametrize("program", [given_as_keys, looked_for], ids=lambda p: p.__name__)
def test_keys_are_not_asked_for_their_text(program: Callable[..., Any]) -> None:
    LOG.clear()
    armature.compile(program, backend="eager")(torch.ones(2), ShyKey("b"))
    assert LOG == []


@pytest.mark.parametrize("program", [no_lookup, broken, in_containers, as_keys], ids=lambda p: p.__name__)
@pytest.mark.parametrize("base", [object, int, str, list, tuple, dict, set], ids=lambda kind: kind.__name__)
def test_tracing_asks_objects_for_nothing(base: type, program: Callable[..., Any]) -> None:
    """Nothing of the program runs that does not run in eager mode, not even for texts."""

    class Shy(base):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            LOG.append(name)
            return base.__getattribute__(self, name)

        def __repr__(self) -> str:
            LOG.append("repr")
            return "shy"

    def asked(run: Callable[..., Any]) -> list[str]:
        LOG.clear()
        for _ in range(2):
            run(torch.ones(2), Shy())
        return [*LOG]

    assert asked(armature.compile(program, backend="eager")) == asked(program)


class EqOfInt(enum.IntEnum):
    ONE = 1

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


class EqOfMember(enum.Enum):
    ONE = 1

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = enum.Enum.__hash__


class OnlyNe:
    def __ne__(self, other: object) -> bool:
        return True


class Below(Plain):
    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("left", "right", "unequal"),
    [
        (EqOfInt.ONE, 2, True),  # by the `__ne__` of int, which asks no `__eq__`
        (2, EqOfInt.ONE, True),
        (EqOfMember.ONE, 2, False),
        (2, EqOfMember.ONE, False),
        (EqOfMember.ONE, OnlyNe(), False),  # the member's `__eq__` comes before the other's `__ne__`
        (OnlyNe(), EqOfMember.ONE, True),
        (Plain(), OnlyNe(), False),
        (Plain(), Below(), True),  # the derived class comes first
        (Plain(), [1], False),
        ([1], Plain(), False),
        (Indices([1]), Plain(), False),
        (Plain(), Indices([1]), False),
    ],
)
def test_unequal_asks_eq_only_where_ne_is_that_of_object(left: Any, right: Any, unequal: bool) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if left != right else x - 1

    assert bool(left != right) is unequal
    compiled = armature.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.zeros(2)), fn(torch.zeros(2)))
