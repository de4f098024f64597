"""Keyword arguments that Python's own functions refuse are refused in compiled functions, in the same words."""

from __future__ import annotations

import collections
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch

import armature
from armature.plugins import manager
from armature.trace import signatures
from tests.support.tensor_programs import compare

OF_CONTAINERS = (list, tuple, dict, set, frozenset, collections.OrderedDict, collections.deque)


def refuses(fn: Callable[..., Any], positional: int, names: Iterable[str]) -> bool:
    """Whether a call is refused, by what plugins say of the function too."""
    tables = manager().tables()
    return signatures.refuses(fn, positional, names, tables.signature(fn), tables.checked_modules)


def stand_ins() -> Iterator[tuple[Any, Callable[..., Any], tuple[Any, ...]]]:
    """Functions of Python, what is traced in their place, and the first arguments to call them with."""
    for rows in manager().tables().registries.handlers.rows.values():
        for row in rows:
            kind = getattr(row.subject, "__objclass__", None)
            if row.value.complete:
                yield row.subject, row.value.fn, (kind(),) if kind in OF_CONTAINERS else ()
    for rows in manager().tables().registries.polyfills.rows.values():
        yield rows[0].value.original, rows[0].value.replacement, ()


def names_of(ours: Callable[..., Any]) -> list[str]:
    try:
        found = inspect.signature(ours).parameters.values()
    except (TypeError, ValueError):
        return []
    wanted = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter.name for parameter in found if parameter.kind in wanted]


SKIPPED = ("exit", "quit", "input", "print", "open", "breakpoint", "help")


def refused(fn: Callable[..., Any], first: tuple[Any, ...], name: str) -> bool:
    """Whether the function itself finds fault with the keyword."""
    try:
        fn(*first, **{name: None})
    except TypeError as error:
        return "keyword" in str(error) and "missing" not in str(error)
    except Exception:
        return False
    return False


def test_every_stand_in() -> None:
    asked, wrong = 0, []
    for fn, ours, first in stand_ins():
        if isinstance(fn, type(refused)) or getattr(fn, "__name__", "") in SKIPPED:
            continue
        if not str(getattr(fn, "__module__", None) or "builtins").startswith(
            ("builtins", "itertools", "_", "math", "oper")
        ):
            continue
        for name in {*names_of(ours), "nonsense"}:
            asked += 1
            if (fn, name) == (enumerate, "start"):
                continue  # what it misses is what it iterates over
            if refused(fn, first, name) and not refuses(fn, len(first), [name]):
                wrong.append((fn, name))
    assert asked > 400
    assert wrong == []


TAKEN: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (collections.deque, ([],), {"maxlen": 2}), (collections.OrderedDict.pop, (collections.OrderedDict(), 1), {"default": 2}),
    (str.format, ("{a}",), {"a": 1}), (str.split, ("a",), {"sep": "b", "maxsplit": 1}), (sum, ([1],), {"start": 1}),
    (int.to_bytes, (3,), {"length": 2, "byteorder": "big"}), (itertools.accumulate, ([1],), {"initial": 2}),
    (itertools.count, (), {"start": 1, "step": 2}), (itertools.groupby, ([1],), {"key": None}), (pow, (2,), {"exp": 3}),
    (itertools.combinations, ([1],), {"r": 1}), (sorted, ([1],), {"key": None, "reverse": True}), (property, (), {"fget": len}),
    (round, (1.0,), {"ndigits": 1}), (complex, (), {"real": 1.0, "imag": 2.0}), (enumerate, ([1],), {"start": 1}),
    (list.sort, ([],), {"key": None}), (bytes.decode, (b"a",), {"encoding": "utf8"}), (int, ("1",), {"base": 3}),
    (collections.defaultdict, (int,), {"a": 1}), (zip, ([],), {"strict": True}), (min, ([1],), {"default": 1}),
    (dict.update, ({},), {"a": 1}), (itertools.zip_longest, ([],), {"fillvalue": 1}), (itertools.product, ([],), {"repeat": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "args", "kwargs"), TAKEN, ids=lambda part: getattr(part, "__qualname__", ""))
def test_what_is_taken_is_not_refused(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    fn(*args, **kwargs)
    assert not refuses(fn, len(args), kwargs)


CALLS: dict[str, Callable[..., Any]] = {
    "len(obj=)": lambda t: len(obj=[t]),
    "sum(iterable=)": lambda t: sum(iterable=[1]),
    "sum(start=)": lambda t: sum([1], start=2),
    "list(items=)": lambda t: list(items=[1]),
    "tuple(items=)": lambda t: tuple(items=(1,)),
    "isinstance(obj=)": lambda t: isinstance(obj=t, kinds=int),
    "getattr(name=)": lambda t: getattr(t, name="shape"),
    "append(item=)": lambda t: [].append(item=t),
    "append(object=)": lambda t: [].append(object=t),
    "pop(position=)": lambda t: [t].pop(position=0),
    "sort(key=)": lambda t: [3, 1].sort(key=abs),
    "get(default=)": lambda t: {}.get(1, default=t),
    "pop(default=)": lambda t: {}.pop(1, default=t),
    "update(a=)": lambda t: {}.update(a=t),
    "add(item=)": lambda t: set().add(item=1),
    "zip(strict=)": lambda t: list(zip([1], [2], strict=True)),
    "zip(other=)": lambda t: list(zip([1], other=[2])),
    "enumerate(items=)": lambda t: list(enumerate(items=[1])),
    "enumerate(iterable=)": lambda t: list(enumerate(iterable=[1], start=3)),
    "min(key=)": lambda t: min([3, -4], key=abs),
    "min(items=)": lambda t: min(items=[3]),
    "range(stop=)": lambda t: list(range(stop=3)),
    "abs(value=)": lambda t: abs(value=-1),
    "round(ndigits=)": lambda t: round(1.25, ndigits=1),
    "round(digits=)": lambda t: round(1.25, digits=1),
    "int(base=)": lambda t: int("11", base=2),
    "int(x=)": lambda t: int(x=3),
    "dict(a=)": lambda t: dict(a=t),  # noqa: C408
    "chain(iterables=)": lambda t: list(itertools.chain(iterables=[1])),
    "repeat(times=)": lambda t: list(itertools.repeat(t, times=2)),
    "accumulate(initial=)": lambda t: list(itertools.accumulate([1, 2], initial=3)),
    "islice(stop=)": lambda t: list(itertools.islice([1], stop=2)),
    "deque(maxlen=)": lambda t: list(collections.deque([1, 2], maxlen=1)),
    "deque.extend(iterable=)": lambda t: collections.deque().extend(iterable=[1]),
    "numel(obj=)": lambda t: torch.numel(obj=t),
    "is_tensor(thing=)": lambda t: torch.is_tensor(thing=t),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    call = CALLS[name]

    def program(t: torch.Tensor) -> Any:
        try:
            found = call(t)
        except TypeError as error:
            found = str(error)
        return t + 1, found

    compare(program, lambda: (torch.ones(2),), fullgraph=False)


def test_errors_of_merged_keywords_name_the_function() -> None:
    class Pairs:
        def keys(self) -> list[str]:
            return ["a", "b"]

        def __getitem__(self, name: str) -> str:
            return name * 2

    def takes(*args: object, **kwargs: object) -> object:
        return args, kwargs

    def program(x: torch.Tensor) -> tuple[object, ...]:
        found: list[object] = [takes(**Pairs(), c=x)]
        for call in (lambda: takes(**Pairs(), a=1), lambda: takes(**5), lambda: takes(c=1, **[2])):  # type: ignore[arg-type]
            try:
                found.append(call())
            except TypeError as error:
                found.append(str(error))
        return tuple(found)

    x = torch.ones(2)
    assert repr(armature.compile(program, backend="eager")(x)) == repr(program(x))
