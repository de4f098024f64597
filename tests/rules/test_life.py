"""100,000 lookups while objects come and go: each answer is the one that a fresh process gives."""

from __future__ import annotations

import functools
import gc
import json
import operator
import random
import subprocess
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from armature.hookspecs import hookimpl
from armature.plugins import PluginManager
from armature.rules import Decision, Rule, RuleBook, Subject
from armature.testing.rules_kit import book_with, rows
from armature.trace.handlers import Handler
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


class WithMember:
    __slots__ = ("x",)


def slotted_of(module: str, *slots: str) -> Any:
    return type("Made", (), {"__module__": module, "__call__": function_of(module), "__slots__": slots})


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
    "instance without weak references of a made class": lambda: slotted_of("sklearn.base")(),
    "the same of another module": lambda: slotted_of("users")(),
    "item getter": lambda: operator.itemgetter(1),
    "class method": lambda: classmethod(function_of("re")),
    "static method of C": lambda: staticmethod(torch.add),
    "member": lambda: slotted_of("users", "x").x,
    "member of a class that lives": lambda: WithMember.x,
    "slot of a made class": lambda: class_of("users").__dict__["__dict__"],
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
    before = len(book._cache.verdicts) + len(book._cache.classes)
    for _ in range(100):
        for make in MAKERS.values():
            book.verdict(make())
    gc.collect()
    assert len(book._cache.verdicts) + len(book._cache.classes) <= before + 5


def test_a_tensor_is_not_kept_alive_by_a_question_about_its_method() -> None:
    book = make_book()
    tensor = torch.ones(1)
    watched = weakref.ref(tensor)
    for name in ("add", "__add__", "__len__", "backward"):
        book.verdict(getattr(tensor, name))
    del tensor
    gc.collect()
    assert watched() is None


def asked(book: RuleBook) -> list[object]:
    """What a plugin is asked about from now on."""
    subjects: list[object] = []

    def ask(subject: Subject) -> None:
        subjects.append(subject.obj)

    book.index  # reads the rows, and who decides
    book._deciders = (ask,)
    return subjects


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_nothing_is_decided_twice(kind: str) -> None:
    """Also of objects that nothing can watch: the same object, or another instance of its class."""
    book, obj = make_book(), MAKERS[kind]()
    first = book.verdict(obj)
    subjects = asked(book)
    assert book.verdict(obj) is first
    assert subjects == []


def test_instances_that_nothing_can_watch_share_what_is_said_of_their_class() -> None:
    book = make_book()
    first = book.verdict(Slotted())
    subjects = asked(book)
    assert book.verdict(Slotted()) is first
    assert subjects == []


def test_an_instance_of_which_a_rule_speaks_has_its_own_verdict() -> None:
    one, other = Slotted(), Slotted()
    own = types.SimpleNamespace(armature_rules=hookimpl(rows(Rule(one, Decision.SKIP, "this one"))))
    for first, second in ((one, other), (other, one)):
        book = book_with(own=own)
        verdicts = {id(obj): book.verdict(obj).decision for obj in (first, second, first)}
        assert verdicts == {id(one): Decision.SKIP, id(other): Decision.INLINE}


def test_an_instance_that_takes_the_place_of_a_named_one() -> None:
    module = types.ModuleType("made_up_module")
    call = operator.itemgetter(0)  # no function by which the instances would be known
    kind = type("Plain", (), {"__slots__": (), "__module__": module.__name__, "__call__": call})
    sys.modules[module.__name__] = module
    try:
        module.named = kind()  # type: ignore[attr-defined]
        own = types.SimpleNamespace(armature_rules=hookimpl(rows(Rule("made_up_module.named", Decision.SKIP, "named"))))
        book = book_with(own=own)
        assert book.verdict(module.named).reason == "named"
        assert book.verdict(kind()).reason != "named"
        module.named = kind()  # type: ignore[attr-defined]
        assert book.verdict(module.named).reason == "named"
        assert book.verdict(kind()).reason != "named"
    finally:
        del sys.modules[module.__name__]


def test_a_rule_that_is_found_later_counts_for_an_instance_made_later() -> None:
    name = "made_up_later"
    own = types.SimpleNamespace(armature_rules=hookimpl(rows(Rule(f"{name}.named", Decision.SKIP, "named"))))
    book = book_with(own=own)
    assert book.verdict(Slotted()).decision is Decision.INLINE
    module = types.ModuleType(name)
    module.named = Slotted()  # type: ignore[attr-defined]
    sys.modules[name] = module
    try:
        assert book.verdict(module.named).reason == "named"
        assert book.verdict(Slotted()).decision is Decision.INLINE
    finally:
        del sys.modules[name]


def test_a_class_that_gets_another_call() -> None:
    book, kind = make_book(), slotted_of("users")
    assert book.verdict(kind()).decision is Decision.INLINE
    kind.__call__ = function_of("re")
    assert book.verdict(kind()).decision is Decision.SKIP


def test_a_class_that_gets_and_loses_a_call() -> None:
    book = make_book()
    kind: Any = type("Made", (), {"__module__": "users", "__slots__": ()})
    assert book.verdict(kind()).reason == "not a callable"
    kind.__call__ = function_of("re")
    assert "standard library" in book.verdict(kind()).reason
    del kind.__call__
    assert book.verdict(kind()).reason == "not a callable"


def test_a_base_class_that_gets_a_call() -> None:
    book = make_book()
    base: Any = type("Base", (), {"__module__": "users", "__slots__": ()})
    kind = type("Made", (base,), {"__module__": "users", "__slots__": ()})
    assert book.verdict(kind()).reason == "not a callable"
    base.__call__ = function_of("re")
    assert "standard library" in book.verdict(kind()).reason


def test_an_object_of_the_same_class_as_one_with_a_handler() -> None:
    """A row for one instance says nothing of the others, in whatever order they are asked about."""
    one, other = operator.itemgetter(1), operator.itemgetter(2)
    handler = Handler((one,), lambda call, *args: None)
    own = types.SimpleNamespace(armature_handlers=hookimpl(lambda: [handler]))
    for asked_about in ((one, other), (other, one)):
        manager = PluginManager(find=lambda: ())
        with manager.registered(own, "own"):
            book = manager.tables().rule_book
            said = {id(obj): book.verdict(obj).reason for obj in (*asked_about, *asked_about)}
        assert "a handler says" in said[id(one)]
        assert "a handler says" not in said[id(other)]


WATCHES = """
import ctypes
import torch
import armature
import armature.pipeline.session
from armature.rules.cache import VerdictCache
from armature.rules import Decision, RuleOrigin, Verdict

cache = VerdictCache()
for method in (bytearray.maketrans, str.maketrans, object.__new__):
    cache.store(method, Verdict(Decision.SKIP, "tested", RuleOrigin("test")))

def program(x, method):
    return x + 1, method is str.maketrans

armature.compile(program, backend="eager")(torch.ones(2), str.maketrans)
for held in (cache, [*armature.pipeline.session.session().compilations]):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))  # C code may hold it to the end
"""


def test_the_process_ends_well_when_methods_of_classes_in_c_are_watched() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
