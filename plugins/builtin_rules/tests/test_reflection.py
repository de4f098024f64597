"""Programs that ask about themselves, and about what is installed."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import inspect
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

import armature
from tests.support.changed_programs import Program, like_eager

LOGGER = logging.getLogger("armature.tests.reflection")
QUIET = LOGGER.getChild("quiet")


def helper(a: Any, b: int = 2, *rest: Any, c: Any = None) -> Any:
    return a


class Unit:
    def area(self, scale: float) -> float:
        return scale

    @functools.lru_cache(None)  # noqa: B019  what is tested
    def twice(self, scale: int) -> int:
        return 2 * scale


UNIT = Unit()


def parameters(x: torch.Tensor) -> Any:
    given = {"b": 1, "c": 2, "d": 3}
    names = inspect.signature(helper).parameters
    return x, {name: value for name, value in given.items() if name in names}, len(names), list(names)


def of_method(x: torch.Tensor) -> Any:
    return x + len(inspect.signature(UNIT.area).parameters), inspect.signature(helper).parameters["b"].default


class Layer(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return x


LAYER = Layer()
PARTIAL = functools.partial(helper, c=1)


def of_wrappers(x: torch.Tensor) -> Any:
    called, forward, part = (inspect.signature(one).parameters for one in (LAYER, LAYER.forward, PARTIAL))
    return x, list(called), list(forward), forward["mask"].default, list(part), inspect.get_annotations(LAYER.forward)


def of_annotations(x: torch.Tensor) -> Any:
    found = inspect.get_annotations(helper)
    found["a"] = len(found)  # a copy
    return x, found, "a" in inspect.get_annotations(helper), inspect.get_annotations(len)


def is_installed(x: torch.Tensor) -> Any:
    return x if importlib.util.find_spec("torch") is not None else -x, importlib.util.find_spec("nowhere_at_all")


def version(x: torch.Tensor) -> Any:
    try:
        importlib.metadata.version("nowhere-at-all")
    except importlib.metadata.PackageNotFoundError:
        return x, importlib.metadata.version("torch")


def logs(x: torch.Tensor) -> Any:
    QUIET.debug("of shape %s", x.shape)
    return x + 1


def asks_for_a_logger(x: torch.Tensor) -> Any:
    logger = logging.getLogger("armature.tests.reflection.asked")
    logger.debug("of shape %s", x.shape)
    facts = (
        logger.isEnabledFor(logging.DEBUG),
        logger.isEnabledFor(logging.ERROR),
        logging.getLogger(logger.name) is logger,
    )
    return x + 1, facts


def cached_method(x: torch.Tensor) -> Any:
    return x + UNIT.twice(3)


@pytest.mark.parametrize(
    "function",
    [parameters, of_method, of_wrappers, of_annotations, is_installed, version, logs, asks_for_a_logger, cached_method],
    ids=lambda fn: fn.__name__,
)
def test_as_in_eager_mode(function: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(2)
    assert str(armature.compile(function, backend="eager", fullgraph=True)(x)) == str(function(x))


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def test_a_logger_that_starts_to_listen_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = armature.compile(logs, backend="eager")
    x, kept = torch.ones(2), Kept()
    monkeypatch.setattr(LOGGER, "handlers", [kept])
    compiled(x)
    assert not kept.said
    LOGGER.setLevel(logging.DEBUG)
    try:
        torch.testing.assert_close(compiled(x), x + 1)
    finally:
        LOGGER.setLevel(logging.NOTSET)
    assert kept.said == ["of shape torch.Size([2])"]


def test_what_a_logger_says_of_a_level_is_guarded() -> None:
    def function(x: torch.Tensor, level: int) -> Any:
        asked = logging.getLogger("armature.tests.reflection.asked").isEnabledFor(level)
        return (x + 1, asked) if asked else (x - 1, asked)

    x, asked = torch.ones(2), logging.getLogger("armature.tests.reflection.asked")

    def change(name: str, value: object) -> Callable[[], None]:
        return lambda: setattr(asked, name, value)

    changes: list[Callable[[], object]] = [
        lambda: None, lambda: LOGGER.setLevel(15), lambda: asked.setLevel(5), lambda: asked.setLevel(25),
        lambda: asked.setLevel(35), change("disabled", True), change("disabled", False),
        lambda: asked.setLevel(0), lambda: LOGGER.setLevel(0), lambda: logging.disable(40), lambda: logging.disable(0),
    ]  # fmt: skip
    for act in changes:
        compiled = armature.compile(function, backend="eager", fullgraph=True)
        compiled(x, 20), compiled(x, 30)
        act()
        for level in (20, 30):
            assert str(compiled(x, level)) == str(function(x, level)), level


def test_a_logger_that_the_frame_changes_is_asked_by_python() -> None:
    def function(x: torch.Tensor) -> Any:
        before = QUIET.isEnabledFor(logging.INFO)
        QUIET.setLevel(logging.INFO)
        after = QUIET.isEnabledFor(logging.INFO)
        QUIET.setLevel(logging.NOTSET)
        return x + 1, before, after

    def plainly(x: torch.Tensor) -> Any:
        QUIET.disabled = True
        try:
            return x + 1, QUIET.isEnabledFor(logging.CRITICAL)
        finally:
            QUIET.disabled = False

    x = torch.ones(2)
    for each in (function, plainly):
        assert str(armature.compile(each, backend="eager")(x)) == str(each(x))


class Own(logging.Logger):
    def isEnabledFor(self, level: int) -> bool:
        return level == 3


def test_a_logger_of_the_program_is_traced() -> None:
    own = Own("own")

    def function(x: torch.Tensor) -> Any:
        return x + 1, own.isEnabledFor(3), own.isEnabledFor(50), own.debug("said nowhere")

    x = torch.ones(2)
    assert str(armature.compile(function, backend="eager")(x)) == str(function(x))


def changed_signature() -> Program:
    def asked(a: int, b: object = (1,)) -> None: ...

    def other() -> None: ...

    def function(t: torch.Tensor) -> tuple[object, ...]:
        return t + 1, str(inspect.signature(asked))

    return function, (
        lambda: setattr(asked, "__defaults__", (2,)),
        lambda: setattr(asked, "__defaults__", None),
        lambda: setattr(asked, "__kwdefaults__", {"c": 1}),
        lambda: asked.__annotations__.update(a="float"),
        lambda: setattr(asked, "__wrapped__", other),
        lambda: setattr(asked, "__signature__", inspect.Signature()),
    )


def test_what_a_signature_is_made_of_is_guarded() -> None:
    like_eager(changed_signature)


SCALE = [1]


def test_a_cached_function_gives_what_it_has_kept() -> None:
    def answers(wrap: Callable[..., Any]) -> list[object]:
        SCALE[0] = 1

        @functools.lru_cache
        def scaled(n: int) -> int:
            return n * SCALE[0]

        run = wrap(lambda t: (t * scaled(3), scaled(4)))
        found = []
        for change in (lambda: None, lambda: SCALE.__setitem__(0, 5), scaled.cache_clear, lambda: None):
            change()
            found.append([part.tolist() if isinstance(part, torch.Tensor) else part for part in run(torch.ones(2))])
        return found

    assert answers(lambda fn: armature.compile(fn, backend="eager")) == answers(lambda fn: fn)
