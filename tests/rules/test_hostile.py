"""Objects that lie, raise or pretend: each gets a verdict with a reason, and none of their code runs."""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch

import armature
from armature import plugins
from armature.hookspecs import hookimpl
from armature.rules import Decision, Rule, RuleBook, Verdict
from armature.rules.export import export
from armature.testing.rules_kit import book_of, rows

RAN: list[str] = []


class Trap:
    """Any question to an instance is noted."""

    def __getattribute__(self, name: str) -> Any:
        RAN.append(name)
        raise RuntimeError(name)

    def __call__(self) -> int:
        RAN.append("call")
        return 1

    def __eq__(self, other: object) -> bool:
        RAN.append("eq")
        return True

    def __hash__(self) -> int:
        RAN.append("hash")
        return 0

    def __bool__(self) -> bool:
        RAN.append("bool")
        return True


class LyingMeta(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        RAN.append("module")
        return "torch.nn"

    def __getattribute__(cls, name: str) -> Any:
        RAN.append(name)
        return super().__getattribute__(name)

    def __instancecheck__(cls, instance: object) -> bool:
        RAN.append("instancecheck")
        return True


class Lying(metaclass=LyingMeta):
    def __call__(self) -> int:
        return 1


class Proxy:
    """Claims to be what it holds."""

    def __init__(self, held: object) -> None:
        object.__setattr__(self, "held", held)

    def __getattr__(self, name: str) -> Any:
        RAN.append(name)
        return getattr(object.__getattribute__(self, "held"), name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        RAN.append("class")
        return types.FunctionType

    def __call__(self) -> int:
        return 1


class NoCode:
    __call__ = 3


def renamed() -> Callable[..., object]:
    def f() -> int:
        return 1

    f.__name__ = f.__qualname__ = "one_hot"
    f.__module__ = "torch.nn.functional"
    return f


def cyclic_partial() -> Callable[..., object]:
    partial = functools.partial(len)
    partial.__setstate__((partial, (), {}, {}))
    return partial


def made_by_exec(namespace: dict[str, object]) -> Callable[..., object]:
    exec("def f(): return 1", namespace)
    return namespace["f"]  # type: ignore[return-value]


class Text(str):
    """A name that is no plain string."""

    def __eq__(self, other: object) -> bool:
        RAN.append("text eq")
        return True

    def __hash__(self) -> int:
        RAN.append("text hash")
        return 0

    def __str__(self) -> str:
        RAN.append("str")
        return "torch.add"


class Names(dict):  # type: ignore[type-arg]
    """A namespace that answers anything."""

    def get(self, *args: object) -> object:
        RAN.append("get")
        return torch.add

    def __getitem__(self, key: object) -> object:
        RAN.append("getitem")
        return torch.add

    def __missing__(self, key: object) -> object:
        RAN.append("missing")
        return torch.add


class Descriptor:
    def __get__(self, obj: object, owner: object) -> Any:
        RAN.append("descriptor")
        raise RuntimeError("descriptor")


class Described:
    __call__ = Descriptor()
    __name__ = Descriptor()  # type: ignore[assignment]
    __qualname__ = "Described"
    __module__ = Descriptor()  # type: ignore[assignment]
    __wrapped__ = Descriptor()
    __code__ = Descriptor()


class Partial(functools.partial):  # type: ignore[type-arg]
    def __getattribute__(self, name: str) -> Any:
        RAN.append(name)
        raise RuntimeError(name)


class ModuleOfTraps(types.ModuleType):
    def __getattribute__(self, name: str) -> Any:
        RAN.append(name)
        raise RuntimeError(name)


class Incomparable(type):
    def __hash__(cls) -> int:
        RAN.append("class hash")
        raise RuntimeError("hash")

    def __eq__(cls, other: object) -> bool:
        RAN.append("class eq")
        raise RuntimeError("eq")


class Meta(Incomparable):
    def __call__(cls, *args: object) -> object:
        RAN.append("made")
        return super().__call__(*args)

    def __getattr__(cls, name: str) -> Any:
        RAN.append(name)
        raise RuntimeError(name)


class OfMeta(metaclass=Meta):
    pass


class RaisingMeta(Incomparable):
    """Its classes refuse everything: names, hash, comparison, questions about instances."""

    def __getattribute__(cls, name: str) -> Any:
        RAN.append(name)
        raise RuntimeError(name)

    def __instancecheck__(cls, instance: object) -> bool:
        RAN.append("instancecheck")
        raise RuntimeError("instancecheck")

    def __subclasscheck__(cls, other: type) -> bool:
        RAN.append("subclasscheck")
        raise RuntimeError("subclasscheck")


class OfRaising(metaclass=RaisingMeta):
    def __call__(self) -> int:
        return 1


class SlottedOfRaising(metaclass=RaisingMeta):
    __slots__ = ("a",)

    def __call__(self) -> int:
        return 1


class OddModule:
    """Where its class stands is told by an object that equals everything."""

    __module__ = Trap()  # type: ignore[assignment]

    def __call__(self) -> int:
        return 1


def namespace_of(cls: type) -> Any:
    return type.__dict__["__dict__"].__get__(cls)


def with_names_of_its_own() -> Callable[..., object]:
    def f() -> int:
        return 1

    f.__module__ = Text("torch")
    f.__name__ = f.__qualname__ = Text("add")
    f.__dict__ = Names(__wrapped__=Trap())
    return f


def cached_trap() -> object:
    cached: Any = functools.lru_cache(made_by_exec({}))
    cached.__dict__ = Names(__wrapped__=Trap())
    return cached


def wrapping_itself() -> Callable[..., object]:
    def f() -> int:
        return 1

    f.__wrapped__ = f  # type: ignore[attr-defined]
    return f


def deep_partial() -> object:
    made: Any = len
    for _ in range(1_000):  # a partial subclass keeps what it wraps as it is; a plain one is flattened
        made = type("P", (functools.partial,), {})(made)
    return made


HOSTILE = {
    "class that refuses everything": OfRaising,
    "instance of a class that refuses everything": type.__call__(OfRaising),
    "such an instance without weak references": type.__call__(SlottedOfRaising),
    "member of a class that refuses everything": namespace_of(SlottedOfRaising)["a"],
    "method of a class that refuses everything": types.MethodType(
        namespace_of(OfRaising)["__call__"], type.__call__(OfRaising)
    ),
    "partial of an instance of such a class": functools.partial(type.__call__(OfRaising)),
    "instance of a class with an odd module": OddModule(),
    "names of its own kind": with_names_of_its_own(),
    "cached trap": cached_trap(),
    "wrapping itself": wrapping_itself(),
    "descriptors that raise": Described(),
    "class of descriptors that raise": Described,
    "partial of its own kind": Partial(len),
    "partials of partials": deep_partial(),
    "module of traps": ModuleOfTraps("torch"),
    "class that cannot be hashed": OfMeta,
    "method of a class that cannot be hashed": types.MethodType(len, OfMeta),
    "exec in a namespace of its own kind": made_by_exec(Names()),
    "exec in a lying namespace": made_by_exec({"__name__": Text("torch")}),
    "member of slots": type("S", (), {"__slots__": ("a",)}).__dict__["a"],
    "cell": (lambda: RAN).__closure__,
    "weak proxy": weakref.proxy(renamed),
    "code without a name": compile("1", "<text>", "eval"),
    "trap": Trap(),
    "trap's method": Trap.__dict__["__call__"],
    "lying class": Lying,
    "lying instance": Lying(),
    "proxy": Proxy(len),
    "mock": mock.Mock(),
    "magic mock": mock.MagicMock(name="torch.add"),
    "mock of a function": mock.create_autospec(torch.nn.Linear.forward),
    "no code": NoCode(),
    "renamed": renamed(),
    "partial of itself": cyclic_partial(),
    "partial of a trap": functools.partial(Trap()),
    "method of a trap": types.MethodType(len, Trap()),
    "exec without a name": made_by_exec({}),
    "exec with an object for a name": made_by_exec({"__name__": Trap()}),
    "descriptor": torch.Tensor.__dict__["__torch_function__"],
    "slot": str.__add__,
    "bound slot": "a".__add__,
    "class method in C": dict.fromkeys,
    "new": object.__new__,
    "None": None,
    "module": torch,
    "property": property(len),
    "code": renamed.__code__,
    "generator": (i for i in ()),
}


SMALL = book_of(
    Rule("torch.nn", Decision.INLINE, "modules"), Rule("torch.nn.functional.one_hot", Decision.SKIP, "one node")
)


def of_all_plugins() -> RuleBook:
    return plugins.manager().tables().rule_book


@pytest.mark.parametrize("made", [lambda: SMALL, of_all_plugins], ids=["small", "all plugins"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_verdict_with_a_reason_and_no_code_run(name: str, made: Callable[[], RuleBook]) -> None:
    obj, book = HOSTILE[name], made()
    book.verdict(len)
    RAN.clear()
    verdict = book.verdict(obj)
    again = book.verdict(obj)
    assert RAN == []
    assert type(verdict) is Verdict
    assert verdict.reason
    assert again.decision is verdict.decision


@pytest.mark.parametrize("name", HOSTILE)
def test_why_runs_no_code(name: str) -> None:
    obj = HOSTILE[name]
    armature.why(len)
    RAN.clear()
    answer = armature.why(obj)
    assert (RAN, bool(str(answer))) == ([], True)
    assert answer.as_data()["reason"]


@pytest.mark.parametrize("name", ["trap", "descriptors that raise", "partial of its own kind", "proxy", "magic mock"])
@pytest.mark.parametrize("say", [armature.rules.skip, armature.rules.inline, armature.rules.in_graph])
def test_rules_for_hostile_objects(name: str, say: Callable[[object], Any]) -> None:
    obj = HOSTILE[name]
    with say(obj):
        assert armature.why(obj).decision.name.lower() == say.__name__
        assert f"armature.rules.{say.__name__}" in armature.why(obj).reason
    assert "armature.rules." not in armature.why(obj).reason


@pytest.mark.parametrize("variables", [{}, {"__name__": Trap()}, {"__name__": Text("torch.nn")}, Names()], ids=type)
def test_frames_with_hostile_globals(variables: dict[str, object]) -> None:
    RAN.clear()
    verdict = SMALL.frame_verdict(compile("1", "<text>", "eval"), variables)
    assert RAN == []
    assert (verdict.decision, bool(verdict.reason)) == (Decision.INLINE, True)


def test_modules_that_are_traps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are looked up in what stands in sys.modules, whatever that is."""
    monkeypatch.setitem(sys.modules, "trap_module", ModuleOfTraps("trap_module"))
    monkeypatch.setitem(sys.modules, "trap_object", Trap())  # type: ignore[arg-type]
    names = ["trap_module.f", "trap_module.C#m", "trap_object.f", "trap_object", "trap_module"]
    book = book_of(*(Rule(name, Decision.SKIP, "trap") for name in names))
    namespace: dict[str, object] = {"__name__": "trap_module"}
    exec("def f(): return 1", namespace)
    RAN.clear()
    assert book.verdict(namespace["f"]).reason == "trap"
    book.missing()
    assert RAN == []


def test_proxies_of_wrapt() -> None:
    wrapt = pytest.importorskip("wrapt")
    lying, proxy = wrapt.ObjectProxy(Lying()), wrapt.ObjectProxy(torch.add)
    function = wrapt.FunctionWrapper(renamed(), lambda wrapped, instance, args, kwargs: RAN.append("wrapper"))
    for obj in (lying, proxy, function, wrapt.CallableObjectProxy(torch.nn.functional.one_hot)):
        for book in (SMALL, of_all_plugins()):
            RAN.clear()
            verdict = book.verdict(obj)
            assert RAN == []
            assert verdict.reason
            assert verdict.decision is not Decision.IN_GRAPH, "a proxy is not what it stands for"


def test_lies_have_no_effect() -> None:
    book = book_of(
        Rule("torch.nn", Decision.SKIP, "modules"), Rule("torch.nn.functional.one_hot", Decision.SKIP, "one node")
    )
    assert book.verdict(HOSTILE["renamed"]).decision is Decision.INLINE
    assert book.verdict(HOSTILE["lying instance"]).decision is Decision.INLINE
    assert book.verdict(HOSTILE["no code"]).reason != ""


def test_hostile_targets() -> None:
    trap = Trap()
    book = book_of(Rule(trap, Decision.SKIP, "the trap"))
    RAN.clear()
    assert book.verdict(trap).reason == "the trap"
    assert RAN == []


def test_two_plugins_that_disagree_about_a_hostile_object() -> None:
    """It is a row like any other: the tables can be built, the winner answers, and the loser can be printed."""
    obj: Any = HOSTILE["trap"]
    manager = plugins.PluginManager(find=lambda: ())
    one = types.SimpleNamespace(armature_rules=hookimpl(rows(Rule(obj, Decision.SKIP, "first", priority=1))))
    other = types.SimpleNamespace(armature_rules=hookimpl(rows(Rule(obj, Decision.INLINE, "second"))))
    with manager.registered(one, "one"), manager.registered(other, "other"):
        tables = manager.tables()
        assert tables.rule_book.verdict(obj).reason == "first"
        assert [contest.key for contest in tables.contests()] == [f"an object of {__name__}.Trap"]
        assert {entry.target for entry in export(tables).rules} == {f"an object of {__name__}.Trap"}
