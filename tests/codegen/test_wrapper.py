"""The wrapper: Python that a person can read, which allocates, launches, calls and frees as the plan says."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch

from armature.codegen import wrapper
from armature.codegen.data import Program
from armature.codegen.program import generate
from armature.codegen.show import show
from armature.codegen.verify import verify
from armature.errors import InvariantError
from armature.graph.facts import Operator
from armature.lower import layout
from armature.lower.data import LoopGraph, Reading
from armature.lower.index import Size
from armature.schedule.schedule import schedule
from armature.testing.lowering_kit import context
from armature.torch_abi.operators import direct
from tests.support.current_device import CurrentDevice
from tests.support.loop_graphs import LoopWriter
from tests.support.plan_kit import PlanBackend

aten = torch.ops.aten


def program_of(graph: LoopGraph, boxed: bool = True) -> Program:
    told = Operator(aten.mm.default, torch.mm, reliable_strides=True)
    ctx = context((), PlanBackend(), operators=[told])
    program = generate(schedule(graph, ctx), ctx, boxed=boxed)
    verify(program)
    return program


def test_wrapper_reads_like_a_program() -> None:
    w = LoopWriter()
    x, y = w.input(4, 4), w.input(4, 4)
    flipped = attrs.evolve(layout.permute(y, (1, 0)), strides=(1, 4))
    product = w.extern(aten.mm.default, w.op("tanh", x), flipped, shape=(4, 4))
    text = program_of(w.graph(w.op("add", product, 1.0))).wrapper
    steps = [line.split("  #")[0].strip() for line in text.splitlines()]
    assert steps == [
        "# graph: 2 kernels",
        "def call(args):",
        "(in_0, in_1) = args",
        "args.clear()",
        "tanh_1 = empty_strided_cpu((4, 4), (4, 1), float64)",
        "tanh_0(in_0, tanh_1)",
        "del in_0",
        "mm_2 = aten_mm(tanh_1, reinterpret(in_1, (4, 4), (1, 4), 0))",
        "del tanh_1, in_1",
        "add_3 = mm_2; del mm_2",
        "add_1(add_3)",
        "return (add_3,)",
    ]


@pytest.mark.parametrize("boxed", [True, False])
def test_memory_is_taken_while_the_device_of_the_tensors_is_the_current_one(
    boxed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = CurrentDevice(own=1)
    current.stand_in(wrapper, monkeypatch)
    w = LoopWriter()
    graph = w.graph(w.extern(aten.mm.default, w.op("tanh", w.input(4, 4)), w.input(4, 4), shape=(4, 4)))
    ctx = context((), PlanBackend())
    program = generate(schedule(graph, ctx), ctx, boxed=boxed)
    given = "args" if boxed else "in_0, in_1"
    steps = [line.strip() for line in program.wrapper.splitlines()[1:4]]
    assert steps == [f"def call({given}):", "if current_index() != 1:", f"return on_device(1, call, {given})"]
    seen: list[int] = []
    names = {**program.bindings, **{kernel: lambda *args: seen.append(current.index) for kernel in kernels(program)}}
    exec(program.wrapper, names)
    call: Any = names["call"]
    for current.index in (0, 1):
        inputs = [torch.ones(4, 4, dtype=torch.float64) for _ in range(2)]
        assert len(call(inputs) if boxed else call(*inputs)) == 1
    assert seen == [1, 1]
    verify(program)


def kernels(program: Program) -> list[str]:
    return [name for source in program.sources for name in source.kernels]


def test_a_wrapper_that_takes_its_inputs_one_by_one() -> None:
    w = LoopWriter()
    graph = w.graph(w.op("add", w.input(4, 4), w.input(4, 4)))
    ctx = context((), PlanBackend())
    program = generate(schedule(graph, ctx), ctx, boxed=False)
    verify(program)
    assert not program.boxed
    assert program.wrapper.splitlines()[1] == "def call(in_0, in_1):"
    assert "args" not in program.wrapper


def test_a_buffer_is_made_in_the_layout_in_which_it_is_returned() -> None:
    w = LoopWriter()
    flat = attrs.evolve(layout.reshape(w.op("tanh", w.input(4, 4)), (16,)), strides=(1,))
    text = program_of(w.graph(flat)).wrapper
    assert "tanh_1 = empty_strided_cpu((16,), (1,), float64)" in text
    assert "reinterpret" not in text


@pytest.mark.parametrize(("boxed", "again"), [(False, "reinterpret(in_0, (4, 4), (4, 1), 0)"), (True, "in_0_view_0")])
def test_a_returned_view_that_an_operator_takes_too_is_made_once(boxed: bool, again: str) -> None:
    """Returned once more it is another tensor, except among gradients (those of graphs that take a list)."""
    w = LoopWriter()
    x = w.input(2, 2, 4)
    flat = attrs.evolve(layout.reshape(x, (4, 4)), strides=(4, 1))
    text = program_of(w.graph(w.extern(aten.mm.default, flat, flat, shape=(4, 4)), flat, flat), boxed).wrapper
    assert text.count("reinterpret(") == (1 if boxed else 2)
    assert "aten_mm(in_0_view_0, in_0_view_0)" in text
    assert f"return (mm_1, in_0_view_0, {again})" in text


def test_each_step_names_the_users_line() -> None:
    w = LoopWriter()
    text = program_of(w.graph(w.op("tanh", w.input(4, 4)))).wrapper
    assert "# model.py:1  tanh(...)" in text


def test_the_short_way_is_called_where_a_plugin_knows_one() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    product = w.extern(aten.mm.default, x, x, shape=(4, 4))
    program = program_of(w.graph(product, w.extern(aten.tanh.default, x, shape=(4, 4))))
    assert program.bindings["aten_mm"] is torch.mm
    assert program.bindings["aten_tanh"] is direct(aten.tanh.default)
    assert program.extern_count == 2 and program.kernel_count == 0


def test_symbolic_sizes_are_read_from_the_inputs() -> None:
    w = LoopWriter()
    rows = Size("s0", 5)
    x = w.input(rows, 4)
    graph = w.graph(w.op("tanh", x))
    graph = LoopGraph(graph.name, graph.inputs, {}, graph.buffers, graph.nodes, graph.outputs, {rows: Reading(0, 0)})
    text = program_of(graph).wrapper
    assert "s0 = in_0.size(0)" in text
    assert "empty_strided_cpu((s0, 4), (4, 1), float64)" in text
    assert "tanh_0(in_0, tanh_1, s0)" in text


def test_counts_say_what_was_fused() -> None:
    w = LoopWriter()
    x = w.input(4, 4)
    program = program_of(w.graph(w.op("tanh", w.op("neg", w.op("abs", x)))))
    assert (program.kernel_count, program.fused_count, program.extern_count) == (1, 3, 0)


def test_same_graph_gives_the_same_text() -> None:
    def text() -> str:
        w = LoopWriter()
        x = w.input(4, 4)
        a = w.op("sub", x, w.reduce("max", x, [1], keepdim=True))
        return show(program_of(w.graph(a, w.op("tanh", a))))

    assert text() == text()


def test_unknown_name_in_a_wrapper_is_found() -> None:
    program = Program("p", (), "def call(args):\n    return launch(args)\n", {}, {}, 0, 0, 0)
    with pytest.raises(InvariantError, match="launch"):
        verify(program)


def test_an_operator_called_directly_takes_the_same_arguments() -> None:
    x = torch.randn(3, 4)
    assert torch.equal(direct(aten.sum.dim_IntList)(x, [0], keepdim=True), x.sum(0, keepdim=True))


def test_results_of_operators_are_laid_out_as_kernels_read_them() -> None:
    w = LoopWriter()
    x = w.input(3, 4)
    drawn = w.extern(aten.bernoulli.default, x, shape=(3, 4))
    program = program_of(w.graph(w.op("add", drawn, 1.0)))
    lines = [line.split("  #")[0].strip() for line in program.wrapper.splitlines()]
    assert "if bernoulli_1.stride() != (4, 1):" in lines
    assert "bernoulli_1 = laid_out(bernoulli_1, (4, 1))" in lines
