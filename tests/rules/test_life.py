"""100,000 lookups while objects come and go: each answer is the one that a fresh process gives."""

from __future__ import annotations

import functools
import gc
import json
import random
import subprocess
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import nn

from armature.hookspecs import hookimpl
from armature.rules import Decision, Rule, RuleBook
from armature.testing.rules_kit import book_with, rows
from armature_builtin_rules import plugin

LOOKUPS = 100_000


def function_of(module: str, name: str = "f") -> types.FunctionType:
    namespace: dict[str, Any] = {"__name__": module}
    exec(f"def {name}(x): return x", namespace)
    made: types.FunctionType = namespace[name]
    return made


class WithCall:
    def __call__(self) -> int:
        return 1


class Slotted:
    __slots__ = ()

    def __call__(self) -> int:
        return 1


def class_of(module: str) -> type:
    return type("Made", (), {"__module__": module, "__call__": function_of(module)})


# Each makes its object anew, or gives one that lives as long as the process.
MAKERS: dict[str, Callable[[], Any]] = {
    "function of a skipped module": lambda: function_of("re"),
    "function of an inlined module": lambda: function_of("torch.nn.modules.made_up"),
    "function of the user": lambda: function_of("users"),
    "function of a skipped package": lambda: function_of("pandas.core"),
    "lambda": lambda: lambda x: x,
    "closure": lambda: (lambda y: lambda x: x + y)(1),
    "partial": lambda: functools.partial(function_of("re"), 1),
    "partial of a partial": lambda: functools.partial(functools.partial(torch.add, 1), 2),
    "cached": lambda: functools.lru_cache(function_of("random")),
    "static method": lambda: staticmethod(function_of("copy")),
    "bound method": lambda: nn.Linear(1, 1).forward,
    "bound method of a made class": lambda: types.MethodType(function_of("tqdm.std"), 3),
    "module": lambda: nn.Linear(1, 1),
    "class": lambda: class_of("users"),
    "class of a skipped package": lambda: class_of("xarray.core"),
    "instance": lambda: WithCall(),
    "instance of a made class": lambda: class_of("sklearn.base")(),
    "instance without weak references": lambda: Slotted(),
    "bound method in C": lambda: torch.ones(1).add,
    "bound slot in C": lambda: torch.ones(1).__add__,
    "bound method of a list": lambda: [].append,
    "bound slot of a string": lambda: "a".__add__,
    "tensor": lambda: torch.ones(1),
    "tensor method": lambda: torch.Tensor.add,
    "function in C": lambda: torch.add,
    "function in Python": lambda: nn.functional.one_hot,
    "skipped function": lambda: torch.save,
    "operator": lambda: torch.ops.aten.add.Tensor,
    "builtin": lambda: len,
    "print": lambda: print,
    "slot": lambda: str.__add__,
    "numpy": lambda: numpy.sin,
    "number": lambda: 3,
    "named function": lambda: named,
}


def named(x: int) -> int:
    return x


def make_book() -> RuleBook:
    own = types.SimpleNamespace()
    own.armature_rules = hookimpl(rows(Rule(named, Decision.SKIP, "named by the object")))
    return book_with(builtin_rules=plugin, own=own)


def told(book: RuleBook, obj: object) -> list[str]:
    verdict = book.verdict(obj)
    return [verdict.decision.value, verdict.reason, verdict.origin.file, str(verdict.origin.line)]


def of_fresh_process() -> dict[str, list[str]]:
    code = (
        "import json, test_life as t; book = t.make_book(); "
        "print(json.dumps({kind: t.told(book, make()) for kind, make in t.MAKERS.items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=300
    )
    answer: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_verdicts_while_objects_come_and_go() -> None:
    expected = of_fresh_process()
    assert {decision for decision, *_ in expected.values()} == {decision.value for decision in Decision}
    book, chance, kinds = make_book(), random.Random(0), list(MAKERS)
    alive: list[tuple[str, Any]] = [(kind, MAKERS[kind]()) for kind in kinds]
    ids: dict[int, str] = {}
    reused = wrong = 0
    for step in range(LOOKUPS):
        if step % 5 == 0:  # one in five is new, and takes the place of one that dies
            kind = chance.choice(kinds)
            at = chance.randrange(len(alive))
            alive[at] = (kind, MAKERS[kind]())
            obj = alive[at][1]
            reused += ids.get(id(obj), kind) != kind
            ids[id(obj)] = kind
        else:
            kind, obj = chance.choice(alive)
        wrong += told(book, obj) != expected[kind]
        if step % 10_000 == 0:
            gc.collect()
    assert wrong == 0
    assert reused > 100, "no address was used again by an object of another kind: this tested nothing"


def test_what_is_kept_goes_with_its_objects() -> None:
    book = make_book()
    for make in MAKERS.values():
        book.verdict(make())
    gc.collect()
    before = len(book._kept)
    for _ in range(100):
        for make in MAKERS.values():
            book.verdict(make())
    gc.collect()
    assert len(book._kept) <= before + 5


def test_a_tensor_is_not_kept_alive_by_a_question_about_its_method() -> None:
    book = make_book()
    tensor = torch.ones(1)
    watched = weakref.ref(tensor)
    for name in ("add", "__add__", "__len__", "backward"):
        book.verdict(getattr(tensor, name))
    del tensor
    gc.collect()
    assert watched() is None
