"""Exceptions, `with`, `match` and classes made in functions."""

# ruff: noqa: B012, B904, F821, PLC0415 - it is what is tested

from __future__ import annotations

import contextlib
import dataclasses
import enum
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import armature
from tests.support.tracing import check, check_cut, programs

X = torch.linspace(-1.0, 1.0, 6).reshape(2, 3)


class AppError(Exception):
    def __init__(self, code: int, text: str = "app") -> None:
        super().__init__(text)
        self.code = code


class SubError(AppError, ValueError):
    """Two families."""


class Plain(Exception):
    """Nothing of its own."""


def try_else_finally(t):
    log = []
    try:
        log.append("try")
    except ValueError:
        log.append("except")
    else:
        log.append("else")
    finally:
        log.append("finally")
    return t, log


def finally_runs_on_return(t):
    log = []

    def fn():
        try:
            return t * 2
        finally:
            log.append("finally")

    return fn(), log


def finally_overrides(t):
    def fn():
        for i in range(3):
            try:
                if i == 1:
                    continue
                return "try"
            finally:
                if i == 0:
                    break
        return t

    return fn()


def nested_handlers(t):
    log = []
    try:
        try:
            raise KeyError("inner")
        except ValueError:
            log.append("wrong")
        finally:
            log.append("finally")
    except LookupError as error:
        log.append(repr(error))
    return t, log


def raise_from(t):
    try:
        try:
            raise KeyError("k")
        except KeyError as error:
            raise ValueError("v") from error
    except ValueError as error:
        return t, type(error.__cause__).__name__, error.__cause__.args, error.__suppress_context__


def implicit_context(t):
    try:
        try:
            raise KeyError("k")
        except KeyError:
            raise ValueError("v")
    except ValueError as error:
        return t, type(error.__context__).__name__, error.__cause__ is None


def raise_from_none(t):
    try:
        try:
            raise KeyError("k")
        except KeyError:
            raise ValueError("v") from None
    except ValueError as error:
        return t, error.__cause__, error.__suppress_context__


def reraise(t):
    log = []
    try:
        try:
            raise ValueError("x")
        except ValueError:
            log.append("first")
            raise
    except ValueError as error:
        log.append(str(error))
    return t, log


def user_exceptions(t):
    try:
        raise SubError(7, text="seven")
    except AppError as error:
        return t * error.code, str(error), error.args, isinstance(error, ValueError), type(error).__name__


def exception_attributes(t):
    try:
        error = Plain("a", 1)
        error.extra = t
        error.add_note("note")
        raise error
    except Plain as caught:
        return caught.extra, caught.args, caught is error, caught.__notes__, str(caught), repr(caught)


def exception_texts(t):
    found = []
    for make in (
        lambda: 1 / 0,
        lambda: [][1],
        lambda: {}["k"],
        lambda: int("x"),
        lambda: None + 1,
        lambda: None.x,
        lambda: "a" + 1,
        lambda: (1)(),
    ):
        try:
            make()
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return t, found


def exception_from_helper(t):
    def check(v):
        if v.dim() != 3:
            raise TypeError(f"{v.dim()} dimensions")
        return v

    try:
        return check(t)
    except TypeError as error:
        return t, str(error)


def exception_variable_is_deleted(t):
    try:
        raise ValueError
    except ValueError as error:
        kept = error
    try:
        return error
    except UnboundLocalError:
        return t, kept.args


def loop_with_handlers(t):
    out = []
    for key in ("a", "b", "c"):
        try:
            out.append({"a": 1, "c": t}[key])
        except KeyError:
            continue
    return out


def groups(t):
    log = []
    try:
        raise ExceptionGroup("many", [ValueError("v"), TypeError("t"), ExceptionGroup("in", [KeyError("k")])])
    except* ValueError as group:
        log.append([str(e) for e in group.exceptions])
    except* (TypeError, KeyError) as group:
        log.append(len(group.exceptions))
    else:
        log.append("else")
    finally:
        log.append("finally")
    return t, log


def group_of_a_plain_exception(t):
    log = []
    try:
        raise ValueError("alone")
    except* ValueError as group:
        log.append((type(group).__name__, group.message, [str(e) for e in group.exceptions]))
    try:
        log.append("fine")
    except* ValueError:
        log.append("never")
    else:
        log.append("else")
    return t, log


def group_with_a_rest(t):
    log = []
    try:
        try:
            raise ExceptionGroup("g", [ValueError("v"), TypeError("t")])
        except* ValueError:
            log.append("values")
    except ExceptionGroup as rest:
        log.append((rest.message, [type(e).__name__ for e in rest.exceptions]))
    return t, log


class Recorder:
    def __init__(self, log: list[Any], swallow: type | None = None) -> None:
        self.log = log
        self.swallow = swallow

    def __enter__(self) -> list[Any]:
        self.log.append("enter")
        return self.log

    def __exit__(self, kind: type | None, value: Any, trace: Any) -> bool:
        self.log.append(None if kind is None else kind.__name__)
        return self.swallow is not None and kind is not None and issubclass(kind, self.swallow)


def with_user_class(t):
    log = []
    with Recorder(log) as same:
        same.append("body")
    with Recorder(log, LookupError):
        log.append({}["missing"])
    try:
        with Recorder(log, LookupError), Recorder(log):
            raise ValueError("through")
    except ValueError:
        log.append("outside")
    return t, log


def with_return_and_break(t):
    log = []

    def fn():
        for i in range(3):
            with Recorder(log):
                if i == 1:
                    return t * i
                continue

    return fn(), log


def contextlib_managers(t):
    log = []

    @contextlib.contextmanager
    def manager(value):
        try:
            yield value
        except ValueError as error:
            log.append(str(error))
        finally:
            log.append("done")

    with manager(t) as v:
        raise ValueError("inside")
    with contextlib.suppress(KeyError, IndexError):
        [].pop()
    with contextlib.nullcontext(3) as three:
        log.append(three)
    with contextlib.nullcontext():
        pass
    return v, log


def context_manager_as_decorator(t):
    log = []

    @contextlib.contextmanager
    def manager():
        log.append("in")
        yield
        log.append("out")

    @manager()
    def fn(v):
        return v + 1

    return fn(t), fn(t), log


def the_exception_being_handled(t):
    seen = [sys.exception()]
    try:
        raise KeyError("k")
    except KeyError as error:
        seen.append(sys.exception() is error)
        try:
            [][0]
        except IndexError as inner:
            seen.append(sys.exception() is inner)
        seen.append(sys.exception() is error)
    return t, seen, sys.exception()


def exit_stack(t):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Recorder(log))
        stack.callback(log.append, "callback")
        stack.enter_context(torch.no_grad())
        out = t * 2
    return out, log


def closing(t):
    class Door:
        def __init__(self):
            self.open = True

        def close(self):
            self.open = False

    with contextlib.closing(Door()) as door:
        was = door.open
    return t, was, door.open


class Base(contextlib.ContextDecorator):
    def __enter__(self) -> Base:
        return self

    def __exit__(self, *info: Any) -> None:
        return None


def context_decorator(t):
    @Base()
    def fn(v):
        return v * 2

    return fn(t)


@dataclasses.dataclass
class Point:
    x: Any
    y: int = 0


class Kind(enum.Enum):
    A = 1
    B = 2


class Pair(NamedTuple):
    left: Any
    right: Any


class Matched:
    __match_args__ = ("first", "second")

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second


def match_values(t):
    found = []
    for subject in (1, 2.0, "s", None, True, Kind.A, -3, b"x", [], ()):
        match subject:
            case True | None:
                found.append("singleton")
            case 1 | -3:
                found.append("int")
            case 2.0:
                found.append("float")
            case "s":
                found.append("text")
            case Kind.A:
                found.append("enum")
            case bytes(data):
                found.append(data)
            case []:
                found.append("empty")
            case _:
                found.append("other")
    return t, found


def match_sequences(t):
    found = []
    for subject in ([1, 2], (1, [2, 3]), [1, 2, 3, 4], "ab", [t], range(2), Pair(1, 2)):
        match subject:
            case [1, 2] as whole:
                found.append(("two", whole))
            case (1, [a, b]):
                found.append((a, b))
            case [first, *rest, last] if len(rest) > 1:
                found.append((first, rest, last))
            case [torch.Tensor() as only]:
                found.append(only)
            case str():
                found.append("string")
            case [x, y]:
                found.append((x, y))
    return found


def match_mappings(t):
    found = []
    for subject in ({"op": "add", "v": 1}, {"op": "neg"}, {}, {"k": {"n": 2}}):
        match subject:
            case {"op": "add", **rest}:
                found.append(rest)
            case {"op": name}:
                found.append(name)
            case {"k": {"n": n}}:
                found.append(n)
            case {}:
                found.append("empty")
    return t, found


def match_classes(t):
    found = []
    for subject in (Point(1, 2), Point(t), Matched(1, 2), Pair(3, 4), 5, 2.5, {"d": 1}):
        match subject:
            case Point(x=torch.Tensor() as x, y=0):
                found.append(x)
            case Point(1, y):
                found.append(y)
            case Matched(first, second=2):
                found.append(first)
            case Pair(left, right):
                found.append((left, right))
            case int(n) | float(n):
                found.append(n)
            case dict() as d:
                found.append(d)
    return found


def class_in_function(t):
    class Local:
        factor = 2

        def __init__(self, v):
            self.v = v

        def scaled(self):
            return self.v * self.factor

        @property
        def doubled(self):
            return self.v * 2

        @classmethod
        def make(cls, v):
            return cls(v)

        @staticmethod
        def shift(v):
            return v + 1

    obj = Local(t)
    return obj.scaled(), obj.doubled, Local.make(t).v, Local.shift(t), isinstance(obj, Local), Local.__name__


def class_with_closure(t):
    scale = 3

    class Base:
        def run(self, v):
            return v * scale

    class Derived(Base):
        def run(self, v):
            return super().run(v) + t

    return Derived().run(t), issubclass(Derived, Base), Derived.__mro__[1] is Base


def class_with_slots_and_defaults(t):
    class Node:
        __slots__ = ("next", "value")

        def __init__(self, value, next=None):
            self.value, self.next = value, next

    chain, total = Node(t, Node(1, Node(2))), 0
    while chain is not None:
        total, chain = total + chain.value, chain.next
    return total


def dataclass_in_function(t):
    @dataclasses.dataclass
    class Local:
        a: Any
        b: int = 2

    obj = Local(t)
    return obj.a * obj.b, obj.b


def namedtuple_in_function(t):
    import collections

    Local = collections.namedtuple("Local", ["a", "b"])
    obj = Local(t, b=2)
    return obj.a * obj.b, obj._replace(b=3).b, obj[1], len(obj)


def enum_in_function(t):
    class Mode(enum.Enum):
        ON = 1
        OFF = 2

    return t * Mode.OFF.value, Mode.ON is Mode.ON, [m.name for m in Mode]


def exception_class_in_function(t):
    class Stop(Exception):
        pass

    try:
        for i in range(5):
            if i == 2:
                raise Stop(i)
    except Stop as stop:
        return t * stop.args[0]


MAKE_A_CLASS = {
    closing, class_in_function, class_with_closure, class_with_slots_and_defaults, dataclass_in_function,
    enum_in_function, exception_class_in_function,
}  # fmt: skip


SPLIT_A_GROUP = {groups, group_of_a_plain_exception, group_with_a_rest}


@pytest.mark.parametrize("program", programs(globals()))
def test_like_eager(program: Callable[..., Any]) -> None:
    if program in MAKE_A_CLASS:
        check_cut(program, X, broken_by="class-statement")
    elif program in SPLIT_A_GROUP:
        check_cut(program, X, broken_by="untraced-opcode")
    else:
        check(program, X)


class Doubled(Exception):
    """Gives its base other arguments than it was given."""

    def __init__(self, held: object) -> None:
        super().__init__(held, held)
        self.held = held


def test_init_of_an_exception_that_was_made_outside_the_graph() -> None:
    def make(t: torch.Tensor) -> tuple[Exception, torch.Tensor]:
        return Doubled(t), t + 1

    run = armature.compile(make, backend="eager")
    for _ in range(2):
        made, _ = run(X)
        assert len(made.args) == 2
        assert made.args[0] is X is made.args[1]


class OwnArguments(ValueError):
    @property
    def args(self) -> tuple[int, int]:  # type: ignore[override]
        return (5, 6)


class OwnValue(StopIteration):
    value = 7  # type: ignore[assignment]


def test_attributes_that_the_class_of_an_error_has_itself() -> None:
    def fn(x: torch.Tensor, error: Exception) -> tuple[torch.Tensor, Any, str, str]:
        try:
            raise error
        except OwnValue as caught:
            return x + caught.value, caught.args, str(caught), repr(caught)
        except OwnArguments as caught:
            return x + sum(caught.args), caught.args, str(caught), repr(caught)

    def made(x: torch.Tensor) -> tuple[Any, ...]:
        return *fn(x, OwnArguments("a")), *fn(x, OwnValue(2))

    assert str(armature.compile(made, backend="eager")(torch.ones(2))) == str(made(torch.ones(2)))


class OwnLinks(Exception):
    __cause__ = "of the class"  # type: ignore[assignment]

    @property
    def __context__(self):  # type: ignore[override]
        return "of a property"


def cause_of_the_class(t):
    try:
        try:
            raise KeyError("k")
        except KeyError as inner:
            raise OwnLinks("a") from inner
    except OwnLinks as error:
        return t + 1, error.__cause__, error.__context__, error.__suppress_context__


def cause_of_the_object(t):
    error = OwnLinks("a")
    error.__cause__ = KeyError("k")
    try:
        raise error from ValueError("v")
    except OwnLinks as caught:
        return t + 1, repr(caught.__cause__)


@pytest.mark.parametrize("program", [cause_of_the_class, cause_of_the_object])
def test_what_raise_sets_may_be_hidden_by_the_class(program: Any) -> None:
    armature.reset()
    t = torch.ones(2)
    assert str(armature.compile(program, backend="eager")(t)) == str(program(t))
