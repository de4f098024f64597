"""Operators that stay calls and give a part of their argument back: the memory has two names, and lives for both."""

from __future__ import annotations

import torch

from armature.lower import layout
from armature.lower.data import ExternCall
from armature.schedule.data import Allocate, Launch
from tests.schedule.test_fusion import planned
from tests.support.loop_graphs import LoopWriter

aten = torch.ops.aten


def test_memory_with_a_second_name_is_not_taken_over() -> None:
    w = LoopWriter()
    x, y = w.input(4, 4), w.input(4, 4)
    a = w.op("tanh", x)
    part = w.extern(aten.alias.default, a, shape=(4, 4))  # the last that reads `a`
    b = w.op("exp", y)
    product = w.extern(aten.mm.default, b, b, shape=(4, 4))
    plan = planned(w, w.graph(w.op("add", part, product)))
    assert [s for s in plan.steps if isinstance(s, Allocate) and s.reuse == a.buffer] == []
    assert any(isinstance(s, Allocate) and s.buffer == b.buffer for s in plan.steps)


def test_results_are_not_made_in_memory_with_a_second_name() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    a = w.op("tanh", x)
    part = w.extern(aten.alias.default, a, shape=(4, 4))
    b = w.op("exp", a)  # the last that reads `a`, element by element
    again = w.extern(aten.mm.default, b, b, shape=(4, 4))
    planned(w, w.graph(w.op("add", part, again)))


def test_a_second_name_of_a_second_name() -> None:
    w = LoopWriter()
    x, y = w.input(4, 4), w.input(4, 4)
    a = w.op("tanh", x)
    part = w.extern(aten.alias.default, a, shape=(4, 4))
    last = w.extern(aten.alias.default, part, shape=(4, 4))
    b = w.op("exp", y)
    product = w.extern(aten.mm.default, b, b, shape=(4, 4))
    planned(w, w.graph(w.op("add", last, product)))


def test_an_input_is_written_after_its_second_name_was_read() -> None:
    w = LoopWriter()
    x, y = w.input(4, 4), w.input(4, 4)
    part = w.extern(aten.alias.default, x, shape=(4, 4))
    early = w.op("tanh", y)
    w.write(x, early)
    late = w.op("mul", w.copy(part), early)  # reads what was written
    plan = planned(w, w.graph(late))
    assert len(plan.kernels) == 2  # as one kernel the read might come first


def test_a_kernel_does_not_write_what_it_reads_under_another_name() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    part = w.extern(aten.alias.default, x, shape=(4, 4))
    turned = w.op("tanh", layout.permute(part, (1, 0)))
    w.write(x, w.op("exp", x))
    plan = planned(w, w.graph(turned))
    read_first = [s.kernel.reads for s in plan.steps if isinstance(s, Launch)]
    assert len(read_first) == 2 and read_first[0] == (part.buffer,)


def test_memory_for_one_name_alone_is_taken_over() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    a = w.op("tanh", x)
    b = w.extern(aten.mm.default, a, a, shape=(4, 4))
    plan = planned(w, w.graph(w.extern(aten.mm.default, w.op("exp", b), b, shape=(4, 4))))
    assert any(isinstance(s, Allocate) and s.reuse == a.buffer for s in plan.steps)
    assert sum(isinstance(s, ExternCall) for s in plan.steps) == 2
