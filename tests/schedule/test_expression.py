"""Graphs of numbers as expressions, and the calls that back ends compile with them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch
from torch import Tensor, fx
from torch.nn.attention.flex_attention import flex_attention

import armature
from armature.backend_api import CompilesCalls, Expression, GraphCall, IndexValue, Load, Op, Var, postorder
from armature.config import current
from armature.context import CompileContext
from armature.pipeline.backends import expression_of
from armature.plugin_api import hookimpl
from armature.plugins import manager
from armature.run.cache import Cache
from armature.run.workers import Workers

ROW = Var("row", 8)
SCORE = Load("score", (ROW,), torch.float32)


def expressed(fn: Any, *tensors: Tensor, tmp_path: Any, derivative: bool = False) -> Expression | None:
    """A function of a score, its row and tensors."""
    ctx = CompileContext(current(), manager().tables(), Cache(tmp_path), Workers(1), 0)
    examples = [torch.zeros(()), torch.zeros((), dtype=torch.int32), *tensors]
    given: dict[int, Any] = {0: SCORE, 1: IndexValue(ROW, torch.int32)}
    return expression_of(ctx, fx.symbolic_trace(fn), examples, given, derivative)


def operations(found: Expression | None) -> list[str]:
    assert found is not None
    return [node.op for node in postorder(found.values) if isinstance(node, Op)]


def test_a_value_of_what_is_given(tmp_path: Any) -> None:
    found = expressed(lambda score, row: torch.tanh(score) * row, tmp_path=tmp_path)
    assert found is not None and not found.buffers
    assert SCORE in postorder(found.values) and "tanh" in operations(found)


def test_tensors_are_loaded_from(tmp_path: Any) -> None:
    found = expressed(lambda score, row, table: score + table[row], torch.randn(8), tmp_path=tmp_path)
    assert found is not None
    ((name, position),) = found.positions.items()
    assert position == 2 and found.buffers[name].shape == (8,)


@pytest.mark.parametrize(("size", "checked"), [(8, False), (7, True)])
def test_only_indices_that_may_be_out_of_range_are_checked(size: int, checked: bool, tmp_path: Any) -> None:
    found = expressed(lambda score, row, table: score + table[row], torch.randn(size), tmp_path=tmp_path)
    assert ("check_index" in operations(found)) is checked
    assert "where" not in operations(found)  # none counts from the end


def test_what_is_no_number_has_no_expression(tmp_path: Any) -> None:
    assert expressed(lambda score, row, t: (t * score).sum(), torch.randn(8), tmp_path=tmp_path) is None


@attrs.define
class Asked:
    """The CPU's back end, which has `compile_call` as well."""

    inner: Any
    answer: Any
    calls: list[GraphCall] = attrs.field(factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def features(self) -> Any:
        return attrs.evolve(self.inner.features, graph_calls=frozenset((torch.ops.higher_order.flex_attention,)))

    def compile_call(self, call: GraphCall, ctx: Any) -> Any:
        self.calls.append(call)
        return self.answer


@attrs.frozen
class Plugin:
    backend: Asked
    ARMATURE_PRIORITY = 100

    @hookimpl
    def armature_device_backend(self, device_type: str) -> Any:
        return self.backend if device_type == "cpu" else None


def program(q: Tensor) -> Tensor:
    return flex_attention(q * 2, q, q, score_mod=lambda score, b, h, m, n: score + m) + 1


@pytest.mark.parametrize("taken", [True, False])
def test_a_back_end_may_compile_a_call(taken: bool) -> None:
    def run(query: Tensor, *args: object) -> tuple[Tensor, ...]:
        return query * 5, query[..., 0], query[..., 0]

    backend = Asked(manager().tables().device_backend("cpu"), run if taken else None)
    assert isinstance(backend, CompilesCalls)
    q = torch.randn(1, 2, 40, 16)
    armature.reset()
    with manager().registered(Plugin(backend), "asked"):
        found = armature.compile(program)(q)
    armature.reset()
    torch.testing.assert_close(found, q * 10 + 1 if taken else program(q))
    (call,) = backend.calls
    assert call.op is torch.ops.higher_order.flex_attention and not call.gradients
    assert isinstance(call.args[3], fx.GraphModule) and call.args[0].shape == q.shape
