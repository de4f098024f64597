"""Plugins' rules of fusion: they keep kernels apart, and choose which are joined first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

import armature
from armature.backend_api import FusionPair, FusionRule
from armature.errors import ArmatureWarning, FusionRuleFailed
from armature.pipeline.session import session
from armature.plugin_api import hookimpl
from armature.plugins import manager

EXP, SUM = "aten.exp.default", "aten.sum.dim_IntList"


@contextmanager
def ruled_by(*rules: FusionRule) -> Iterator[None]:
    class Mine:
        @hookimpl
        def armature_fusion_rules(self) -> tuple[FusionRule, ...]:
            return rules

    armature.reset()
    with manager().registered(Mine(), "mine"):
        yield
    armature.reset()


def kernels(program: Callable[..., object], *inputs: Tensor) -> list[set[str]]:
    """The operators of each kernel, once the results have been compared with eager's."""
    armature.reset()
    torch.testing.assert_close(armature.compile(program, fullgraph=True)(*inputs), program(*inputs))
    [graph] = session().compilations[-1].graphs
    return [{origin.op for origin in kernel.origins} for kernel in graph.plan.kernels]


def alone(operator: str) -> FusionRule:
    """The operator is in a kernel of its own."""
    return FusionRule(
        f"alone-{operator}", allows=lambda pair: operator not in (*pair.one.operators, *pair.other.operators)
    )


@pytest.mark.parametrize("operator", [EXP, SUM])
def test_a_rule_keeps_an_operator_apart(operator: str) -> None:
    def program(x: Tensor) -> Tensor:
        return (x.cos().exp() * 2).sum(1) + 1

    x = torch.randn(32, 64)
    assert len(kernels(program, x)) == 1
    with ruled_by(alone(operator)):
        assert {operator} in kernels(program, x)


def test_a_value_that_readers_would_compute_again_is_stored_by_a_rule() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return x.exp().t() + y  # along other axes, so that it is copied into its reader

    x, y = torch.randn(16, 8), torch.randn(8, 16)
    assert len(kernels(program, x, y)) == 1
    with ruled_by(alone(EXP)):
        assert kernels(program, x, y) == [{EXP}, {"aten.add.Tensor"}]


@pytest.mark.parametrize("left", ["aten.amax.default", "aten.amin.default"])
def test_a_rule_says_what_is_joined_first(left: str) -> None:
    chosen = {SUM, "aten.amax.default", "aten.amin.default"} - {left}

    def program(x: Tensor) -> tuple[Tensor, ...]:
        return x.sum(1), x.amax(1), x.amin(1)

    def by(pair: FusionPair) -> float:
        names = {*pair.one.operators, *pair.other.operators}
        return pair.saved * (3 if names == chosen else 1)

    x = torch.randn(64, 128)
    # of the three, two fit in a kernel
    with armature.config.patch(max_kernel_nodes=4), ruled_by(FusionRule("mine", saves=by)):
        assert sorted(map(sorted, kernels(program, x))) == sorted([sorted(chosen), [left]])


def test_what_a_rule_is_told() -> None:
    seen: list[FusionPair] = []

    def note(pair: FusionPair) -> bool:
        seen.append(pair)
        return True

    def program(x: Tensor) -> Tensor:
        return x - x.sum(1, keepdim=True)

    with ruled_by(FusionRule("seen", allows=note), FusionRule("apart", saves=lambda pair: -1)):
        assert len(kernels(program, torch.randn(32, 64))) == 2
    pair = next(pair for pair in seen if SUM in pair.one.operators)
    assert pair.device.type == "cpu"
    assert (pair.one.points, pair.one.inner, pair.other.points, pair.other.inner) == (32 * 64, 64, 32 * 64, 1)
    assert list(pair.one.writes.values()) == [32 * 4] and sorted(pair.other.reads.values()) == [32 * 4, 32 * 64 * 4]
    assert pair.saved == 2 * 32 * 4 + 32 * 64 * 4  # the sums are handed over, both read x


def fails(pair: FusionPair) -> bool:
    raise KeyError("boom")


def test_a_rule_that_fails_is_named() -> None:
    def program(x: Tensor) -> Tensor:
        return x.exp() - x.sum(1, keepdim=True)

    x = torch.randn(4, 4)
    with ruled_by(FusionRule("broken", allows=fails)):
        with pytest.raises(FusionRuleFailed, match="fusion rule broken of plugin mine failed: KeyError: 'boom'"):
            armature.compile(program)(x)
        armature.reset()
        with armature.config.patch(strict=False), pytest.warns(ArmatureWarning, match="fusion rule broken"):
            torch.testing.assert_close(armature.compile(program)(x), program(x))
