"""Statements of a kernel: shared values once, invariant ones outside the loop, guarded loads inside their condition."""

from __future__ import annotations

from armature.codegen.nodes import Accumulate, Guarded, KernelBody, Let, Statement, Write, origin_of, walk_kernel
from armature.lower.data import Load
from armature.schedule.schedule import schedule
from armature.testing.lowering_kit import context
from tests.support.loop_graphs import LoopWriter


def body_of(writer: LoopWriter, *outputs: object) -> KernelBody:
    plan = schedule(writer.graph(*outputs), context(()))  # type: ignore[arg-type]
    (kernel,) = plan.kernels
    return walk_kernel(kernel)


def loads(statements: tuple[Statement, ...]) -> list[str]:
    return [s.node.buffer for s in statements if isinstance(s, Let) and isinstance(s.node, Load)]


def test_shared_values_have_one_name() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    a = w.op("tanh", x)
    body = body_of(w, w.op("add", a, a), w.op("mul", a, x))
    (only,) = body.passes
    assert only.inside == () and only.before == ()
    assert loads(only.after) == ["in_0"]
    lets = [s for s in only.after if isinstance(s, Let)]
    assert len({s.name for s in lets}) == len(lets) == 4
    assert sum(isinstance(s, Write) for s in only.after) == 2


def test_what_does_not_change_stands_before_the_inner_loop() -> None:
    w = LoopWriter()
    x, scale = w.input(4, 6), w.input(4, 1)
    body = body_of(w, w.reduce("sum", w.op("mul", x, w.op("tanh", scale)), [1]))
    (only,) = body.passes
    assert loads(only.before) == ["in_1"] and loads(only.inside) == ["in_0"]
    assert isinstance(only.inside[-1], Accumulate)
    assert [type(s) for s in only.after] == [Write]
    assert only.reductions[0].name == "red0"


def test_values_of_an_earlier_pass_are_made_again_and_outer_ones_are_not() -> None:
    w = LoopWriter()
    x = w.input(4, 6)
    mean = w.op("mul", w.reduce("sum", x, [1], keepdim=True), 0.5)
    body = body_of(w, w.op("sub", x, mean), mean)
    first, second = body.passes
    assert loads(first.inside) == loads(second.inside) == ["in_0"]
    named = [s.name for s in (*first.before, *first.after, *second.before, *second.after) if isinstance(s, Let)]
    assert len(named) == len(set(named)) == 1


def test_padded_load_stands_under_its_condition() -> None:
    w = LoopWriter()
    x = w.input(4, 6)
    body = body_of(w, w.pad(w.op("neg", x), 1))
    (only,) = body.passes
    (guarded,) = [s for s in only.after if isinstance(s, Guarded)]
    assert loads(guarded.body) == ["in_0"] and loads(only.after) == []
    assert body.names[guarded.node] == guarded.name


def test_statements_know_the_users_line() -> None:
    w = LoopWriter()
    body = body_of(w, w.op("tanh", w.input(4)))
    found = [origin.text for s in body.passes[0].after if (origin := origin_of(s)) is not None]
    assert found == ["tanh(...)", "tanh(...)"]
