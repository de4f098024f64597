# ruff: noqa: PLC0415 - imports inside functions are what is tested
"""Imports inside functions: what `sys.modules` has by then is what they give."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import armature
from tests.support.changed_programs import Program, like_eager

NAMES = ("made_module", "made_package", "made_package.part")


@pytest.fixture(autouse=True)
def no_modules_left() -> Iterator[None]:
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


def module(name: str, **held: Any) -> ModuleType:
    made = sys.modules[name] = ModuleType(name)
    vars(made).update(held)
    return made


class Answering(ModuleType):
    def __getattribute__(self, name: str) -> Any:
        return 77 if name == "k" else super().__getattribute__(name)


class WithProperty(ModuleType):
    @property
    def k(self) -> int:
        return 78


class WithFallback(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return len(name)


def replaced_module() -> Program:
    module("made_module", k=1)

    def function(t: torch.Tensor) -> tuple[object, ...]:
        import made_module  # type: ignore[import-not-found]
        from made_module import k

        return t + made_module.k, k

    return function, (
        lambda: module("made_module", k=5),
        lambda: setattr(sys.modules["made_module"], "k", 6),
        lambda: setattr(sys.modules["made_module"], "__class__", Answering),
        lambda: setattr(sys.modules["made_module"], "__class__", WithProperty),
    )


def replaced_part() -> Program:
    package = module("made_package", __path__=[])
    module("made_package.part", v=1)

    def function(t: torch.Tensor) -> tuple[object, ...]:
        from made_package import part  # type: ignore[import-not-found]

        return (t + part.v,)

    return function, (
        lambda: module("made_package.part", v=2),
        lambda: setattr(package, "part", SimpleNamespace(v=3)),
        lambda: delattr(package, "part"),
        lambda: setattr(package, "__getattr__", lambda name: SimpleNamespace(v=4)),
    )


def class_of_a_global_module() -> Program:
    held = ModuleType("held_module")
    held.k = 1  # type: ignore[attr-defined]
    return lambda t: (t + held.k, hasattr(held, "other")), (
        lambda: setattr(held, "__class__", WithProperty),
        lambda: setattr(held, "__class__", WithFallback),
        lambda: setattr(WithFallback, "late", 1),
        lambda: setattr(held, "__class__", ModuleType),
    )


def functions_of_the_class() -> Program:
    class WithFunctions(ModuleType):
        scale = 2

        @staticmethod
        def twice(t: torch.Tensor) -> torch.Tensor:
            return t * 2

        @classmethod
        def scaled(cls, t: torch.Tensor) -> torch.Tensor:
            return t * cls.scale

        def named(self) -> str:
            return self.__name__

    held: Any = WithFunctions("held_module")
    return lambda t: (held.twice(t), held.scaled(t), held.named()), (
        lambda: setattr(held, "twice", lambda t: t * 9),
        lambda: setattr(WithFunctions, "scale", 3),
        lambda: setattr(WithFunctions, "scaled", lambda self, t: t - 1),
        lambda: setattr(WithFunctions, "named", property(lambda self: lambda: "other")),
    )


def test_functions_of_the_class_of_a_module_are_traced() -> None:
    function, _ = functions_of_the_class()
    run = armature.compile(function, backend="eager", fullgraph=True)
    assert run(torch.ones(2))[2] == "held_module"


class Lazy(ModuleType):
    """A package that looks up its names in a table of its own."""

    objects: dict[str, object]

    def __getattr__(self, name: str) -> object:
        if name in self.objects:
            return self.objects[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


def lookup_of_the_class() -> Program:
    held: Any = Lazy("lazy_package")
    held.objects = {"version": "4.5"}

    def function(t: torch.Tensor) -> tuple[object, ...]:
        return t + len(held.version), held.version, hasattr(held, "other"), getattr(held, "other", 3)

    return function, (
        lambda: held.objects.update(version="4.5.1"),
        lambda: held.objects.update(other=7),
        lambda: setattr(held, "version", "own"),
        lambda: setattr(Lazy, "version", "of the class"),
        lambda: delattr(held, "version"),
        lambda: delattr(Lazy, "version"),
        lambda: setattr(held, "__getattr__", lambda name: "of the module"),
        lambda: delattr(held, "__getattr__"),
        lambda: setattr(held, "__class__", WithFallback),
    )


def lookup_of_the_module() -> Program:
    old = {"rate": 3}

    def lookup(name: str) -> object:
        if name not in old:
            raise AttributeError(f"no {name}")
        return old[name]

    held = module("lazy_module", __getattr__=lookup)

    def function(t: torch.Tensor) -> tuple[object, ...]:
        from lazy_module import rate  # type: ignore[import-not-found]

        try:
            other = held.other
        except AttributeError as error:
            other = str(error)
        return t * held.rate, rate, other

    return function, (
        lambda: old.update(rate=4),
        lambda: old.update(other=5),
        lambda: setattr(held, "rate", 6),
        lambda: setattr(held, "__getattr__", lambda name: 7),
        lambda: delattr(held, "__getattr__"),
    )


def test_a_module_with_its_own_lookup_is_in_the_graph() -> None:
    for program in (lookup_of_the_class, lookup_of_the_module):
        function, _ = program()
        t = torch.ones(2)
        compiled = armature.compile(function, backend="eager", fullgraph=True)(t)
        assert compiled[0].tolist() == function(t)[0].tolist()
        assert compiled[1:] == function(t)[1:]


PROGRAMS = (
    replaced_module,
    replaced_part,
    class_of_a_global_module,
    functions_of_the_class,
    lookup_of_the_class,
    lookup_of_the_module,
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_like_eager(program: Callable[[], Program]) -> None:
    like_eager(program)


def test_a_module_that_is_gone_is_not_found() -> None:
    def ask(t: torch.Tensor) -> torch.Tensor:
        import made_module

        return t + made_module.k  # type: ignore[no-any-return]

    module("made_module", k=1)
    run = armature.compile(ask, backend="eager")
    assert run(torch.zeros(2)).tolist() == [1, 1]
    del sys.modules["made_module"]
    with pytest.raises(ModuleNotFoundError, match="made_module"):
        run(torch.zeros(2))


def test_a_name_that_a_module_lacks_is_an_import_error() -> None:
    def ask(t: torch.Tensor) -> object:
        try:
            from made_module import lacking
        except ImportError as error:
            return t + 1, str(error)
        return lacking

    module("made_module", k=1)
    assert armature.compile(ask, backend="eager")(torch.zeros(2))[1] == ask(torch.zeros(2))[1]  # type: ignore[index]


def test_an_import_of_the_programs_own_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(t: torch.Tensor) -> torch.Tensor:
        import made_module

        return t + made_module.k  # type: ignore[no-any-return]

    plain = builtins.__import__

    def own(name: str, *args: Any) -> Any:
        return SimpleNamespace(k=9) if name == "made_module" else plain(name, *args)

    run = armature.compile(ask, backend="eager")
    monkeypatch.setattr(builtins, "__import__", own)
    assert run(torch.zeros(2)).tolist() == [9, 9]


def test_a_call_of_the_import_function_is_in_the_graph() -> None:
    x = torch.arange(3.0)
    run = armature.compile(lambda t: t * len(__import__("os.path").__name__), backend="eager", fullgraph=True)
    assert torch.equal(run(x), x * 2)
    inner = armature.compile(lambda t: t * __import__("math", fromlist=("pi",)).pi, backend="eager", fullgraph=True)
    assert torch.equal(inner(x), x * 3.141592653589793)
