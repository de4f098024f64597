"""No garbage collection runs while something is compiled; afterwards the collector is as the program left it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import armature
from armature import config
from armature.errors import PassFailed
from armature.plugin_api import Pass, hookimpl
from armature.plugins import manager

STAGES = ("pre_grad", "joint", "post_grad", "loops", "kernels")


class Asks:
    """A plugin that notes for each of its passes whether collections may run."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []
        self.fails = False

    @hookimpl
    def armature_passes(self) -> list[Pass]:
        return [Pass(f"asks-{stage}", stage, self.asking(stage)) for stage in STAGES]

    def asking(self, stage: str) -> Any:
        def ask(data: Any, ctx: Any) -> Any:
            self.seen.append((stage, gc.isenabled()))
            if self.fails:
                raise ValueError(stage)
            return data

        return ask


@pytest.fixture(params=[True, False], ids=["on", "off"])
def enabled(request: Any) -> Iterator[bool]:
    """Whether the program has the collector on."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("autotune", [False, True], ids=["default", "lazy-backward"])
def test_no_collection_while_compiling(enabled: bool, autotune: bool) -> None:
    armature.reset()
    asks = Asks()
    x = torch.randn(5, requires_grad=True)
    with manager().registered(asks, "asks"), config.patch(autotune=autotune):
        armature.compile(lambda x: x.sin().exp())(x).sum().backward()
    assert [stage for stage, _ in asks.seen].count("kernels") == 2
    assert {stage for stage, _ in asks.seen} == set(STAGES) and not any(on for _, on in asks.seen)
    assert gc.isenabled() is enabled


def test_the_collector_is_set_back_after_a_failure(enabled: bool) -> None:
    armature.reset()
    asks = Asks()
    asks.fails = True
    with manager().registered(asks, "asks"), config.patch(strict=True), pytest.raises(PassFailed):
        armature.compile(lambda x: x.sin().exp())(torch.randn(5))
    assert gc.isenabled() is enabled
