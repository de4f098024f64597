"""The graph stage alone: captured graphs to functional ATen graphs, forward and backward, run as loops without a back end."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor, fx, nn

import armature
from armature.context import CompileContext
from armature.errors import InvariantError, PassFailed
from armature.graph.data import AtenGraph, GraphKind, Origin, Pass
from armature.graph.functional import compile_graph
from armature.graph.passes import run_passes
from armature.graph.show import show
from armature.graph.verify import verify
from armature.lower.data import BufferKind, View
from armature.testing.differential import difference
from armature.testing.lowering_kit import EVERYTHING, ReferenceBackend, context
from tests.graph.conftest import Evaluator
from tests.graph.frames import frame, frame_of

aten = torch.ops.aten


def graph_of(count: int, build: Callable[..., Any]) -> fx.GraphModule:
    """A captured graph: `build(graph, *placeholders)` gives its outputs."""
    graph = fx.Graph()
    places = [graph.placeholder(f"x{k}") for k in range(count)]
    graph.output(tuple(build(graph, *places)))
    return fx.GraphModule({}, graph)


def run(ctx: CompileContext, evaluator: Evaluator, module: fx.GraphModule, *inputs: Any) -> tuple[Any, ...]:
    return compile_graph(frame(module, list(inputs)), ctx, evaluator)(*inputs)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3), nn.Softmax(-1))


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )


MODELS = {"mlp": (mlp, (5, 6)), "convnet": (convnet, (3, 2, 7, 7))}


@pytest.mark.parametrize("name", MODELS)
def test_inference(ctx: CompileContext, evaluator: Evaluator, name: str) -> None:
    build, shape = MODELS[name]
    model, x = build().eval(), torch.randn(shape)
    with torch.no_grad():
        traced, given = frame_of(model, x)
        out = compile_graph(traced, ctx, evaluator)(*given)
        assert difference(model(x), out[0]) < 1e-5
    assert evaluator.kinds == ["inference"]


@pytest.mark.parametrize("name", MODELS)
def test_training(ctx: CompileContext, evaluator: Evaluator, name: str) -> None:
    build, shape = MODELS[name]
    model, x = build(), torch.randn(shape)
    reference = copy.deepcopy(model)
    wanted = reference(x)
    wanted.square().sum().backward()
    traced, given = frame_of(model, x)
    (out,) = compile_graph(traced, ctx, evaluator)(*given)
    assert evaluator.kinds == ["forward"]  # the backward waits for its first call
    out.square().sum().backward()
    assert evaluator.kinds == ["forward", "backward"]
    assert difference(wanted.detach(), out.detach()) < 1e-5
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert difference(theirs.grad, ours.grad) < 1e-4
    for ours, theirs in zip(model.buffers(), reference.buffers(), strict=True):
        assert difference(theirs, ours) < 1e-5


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_lstm(ctx: CompileContext, evaluator: Evaluator, grad: bool, bidirectional: bool) -> None:
    lstm = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=bidirectional)
    params = list(lstm.parameters())
    hidden = [torch.randn(4 if bidirectional else 2, 3, 6) for _ in range(2)]
    inputs = [*params, torch.randn(3, 5, 4), *hidden]

    def build(graph: fx.Graph, *places: fx.Node) -> tuple[fx.Node, ...]:
        flags = (True, 2, 0.0, True, bidirectional, True)
        out = graph.call_function(torch.lstm, (places[-3], tuple(places[-2:]), tuple(places[:-3]), *flags))
        return tuple(graph.call_method("__getitem__", (out, k)) for k in range(3))

    with torch.set_grad_enabled(grad):
        wanted = torch.lstm(inputs[-3], hidden, params, True, 2, 0.0, True, bidirectional, True)
        out = run(ctx, evaluator, graph_of(len(inputs), build), *inputs)
    for ours, theirs in zip(out, wanted, strict=True):
        assert difference(theirs.detach(), ours.detach()) < 1e-6
    if grad:
        ours = torch.autograd.grad(sum(o.square().sum() for o in out), params)
        theirs = torch.autograd.grad(sum(o.square().sum() for o in wanted), params)
        assert max(difference(t, o) for t, o in zip(theirs, ours, strict=True)) < 1e-5


def test_a_write_to_an_input(ctx: CompileContext, evaluator: Evaluator) -> None:
    def build(graph: fx.Graph, x: fx.Node, y: fx.Node) -> tuple[fx.Node, ...]:
        graph.call_method("add_", (x, y))
        return (graph.call_method("mul", (x, 2)),)

    x, y = torch.randn(4), torch.randn(4)
    before = x.clone()
    (out,) = run(ctx, evaluator, graph_of(2, build), x, y)
    assert torch.equal(x, before + y) and torch.equal(out, (before + y) * 2)


def test_two_inputs_swapped_in_place(ctx: CompileContext, evaluator: Evaluator) -> None:
    def build(graph: fx.Graph, x: fx.Node, y: fx.Node) -> tuple[fx.Node, ...]:
        held = graph.call_method("clone", (x,))
        graph.call_method("copy_", (x, y))
        graph.call_method("copy_", (y, held))
        return (graph.call_method("add", (x, 1)),)

    x, y = torch.randn(4), torch.randn(4)
    a, b = x.clone(), y.clone()
    (out,) = run(ctx, evaluator, graph_of(2, build), x, y)
    assert torch.equal(x, b) and torch.equal(y, a) and torch.equal(out, b + 1)


def test_an_input_reversed_in_place(ctx: CompileContext, evaluator: Evaluator) -> None:
    def build(graph: fx.Graph, x: fx.Node) -> tuple[fx.Node, ...]:
        graph.call_method("copy_", (x, graph.call_method("transpose", (x, 0, 1))))
        return (graph.call_method("sum", (x, 0)),)

    x = torch.randn(3, 3)
    wanted = x.t().clone()
    (out,) = run(ctx, evaluator, graph_of(1, build), x)
    assert torch.equal(x, wanted) and torch.allclose(out, wanted.sum(0))


def test_outputs_of_every_kind(ctx: CompileContext, evaluator: Evaluator) -> None:
    def build(graph: fx.Graph, x: fx.Node) -> tuple[Any, ...]:
        y = graph.call_method("mul", (x, 2))
        return x, y, y, graph.call_method("t", (x,)), graph.call_method("select", (y, 0, 1)), None, 7

    x = torch.randn(3, 4)
    same, double, again, turned, row, nothing, seven = run(ctx, evaluator, graph_of(1, build), x)
    assert same.data_ptr() == x.data_ptr() and turned.data_ptr() == x.data_ptr()
    assert difference(x * 2, double) == 0 and again.data_ptr() == double.data_ptr()
    assert turned.stride() == (1, 4) and row.data_ptr() == double[1].data_ptr()
    assert nothing is None and seven == 7
    assert evaluator.kinds == ["inference"]


def test_equal_results_do_not_share_memory(ctx: CompileContext, evaluator: Evaluator) -> None:
    def build(graph: fx.Graph, x: fx.Node) -> tuple[fx.Node, ...]:
        return graph.call_method("exp", (x,)), graph.call_method("exp", (x,)), graph.call_method("clone", (x,))

    x = torch.randn(3)
    first, second, copied = run(ctx, evaluator, graph_of(1, build), x)
    assert len({first.data_ptr(), second.data_ptr(), copied.data_ptr(), x.data_ptr()}) == 4
    assert torch.equal(first, second) and torch.equal(copied, x)


def test_common_values_are_shared_and_dead_code_goes(ctx: CompileContext, evaluator: Evaluator) -> None:
    def build(graph: fx.Graph, x: fx.Node) -> tuple[fx.Node, ...]:
        graph.call_method("sin", (x,))
        a, b = (graph.call_method("exp", (x,)) for _ in range(2))
        return (graph.call_method("mul", (a, b)),)

    x = torch.randn(3)
    (out,) = run(ctx, evaluator, graph_of(1, build), x)
    assert torch.allclose(out, x.exp() ** 2)
    targets = [n.target for n in evaluator.graphs[0].module.graph.nodes if n.op == "call_function"]
    assert targets == [aten.exp.default, aten.mul.Tensor]


def test_random_operators_keep_their_order(ctx: CompileContext, evaluator: Evaluator) -> None:
    def build(graph: fx.Graph, x: fx.Node) -> tuple[fx.Node, ...]:
        graph.call_function(torch.rand_like, (x,))  # nobody reads it, eager draws it
        first = graph.call_function(torch.rand_like, (x,))
        return first, graph.call_function(torch.nn.functional.dropout, (x, 0.5, True))

    x = torch.randn(50)
    torch.manual_seed(3)
    torch.rand_like(x)
    wanted = torch.rand_like(x), torch.nn.functional.dropout(x, 0.5, True)
    torch.manual_seed(3)
    out = run(ctx, evaluator, graph_of(1, build), x)
    assert all(torch.equal(o, w) for o, w in zip(out, wanted, strict=True))


def test_origins_reach_loops(ctx: CompileContext, evaluator: Evaluator) -> None:
    module = graph_of(1, lambda g, x: (g.call_method("exp", (g.call_method("mul", (x, 2)),)),))
    for line, node in enumerate(n for n in module.graph.nodes if n.op == "call_method"):
        node.meta["origin"] = Origin("", "model.py", line + 7, "forward", f"line {line}")
    for x in (torch.randn(3), torch.randn(3, requires_grad=True)):
        run(ctx, evaluator, module, x)
        found = [(o.op, o.line) for n in evaluator.loops[-1].nodes for o in n.origins]
        assert found == [("aten.mul.Tensor", 7), ("aten.exp.default", 8)]
        assert "model.py:8  line 1" in show(evaluator.graphs[-1])


def test_origins_reach_gradients(ctx: CompileContext, evaluator: Evaluator) -> None:
    module = graph_of(1, lambda g, x: (g.call_method("tanh", (x,)),))
    next(n for n in module.graph.nodes if n.op == "call_method").meta["origin"] = Origin("", "model.py", 7)
    x = torch.randn(3, requires_grad=True)
    run(ctx, evaluator, module, x)[0].sum().backward()
    assert [o.line for n in evaluator.loops[-1].nodes for o in n.origins] == [7]


def test_outputs_are_marked(ctx: CompileContext, evaluator: Evaluator) -> None:
    run(ctx, evaluator, graph_of(1, lambda g, x: (g.call_method("exp", (x,)), x)), torch.randn(3))
    loops = evaluator.loops[0]
    views = [o for o in loops.outputs if isinstance(o, View)]
    assert [loops.buffers[v.buffer].kind for v in views] == [BufferKind.OUTPUT, BufferKind.INPUT]


def failing(aten: AtenGraph, ctx: CompileContext) -> Callable[[list[Tensor]], Any]:
    if aten.kind is GraphKind.BACKWARD:
        raise RuntimeError("no back end")
    return Evaluator()(aten, ctx)


@attrs.frozen
class Unbuilt:
    """A graph whose kernels can't be built."""

    call: Callable[[list[Tensor]], Any]

    def ready(self) -> None:
        raise RuntimeError("no back end")


def unbuilt(aten: AtenGraph, ctx: CompileContext) -> Any:
    call = Evaluator()(aten, ctx)
    return Unbuilt(call) if aten.kind is GraphKind.BACKWARD else call


def building(ctx: CompileContext, apart: bool, strict: bool = False) -> CompileContext:
    """The context with a back end that builds kernels apart from this process, or not."""
    features = attrs.evolve(EVERYTHING, builds_apart=apart)
    made = context(ctx.tables.rows, ReferenceBackend(features=features))  # type: ignore[attr-defined]
    made.config = made.config.changed({"strict": strict})
    return made


@pytest.mark.parametrize("compile_aten", [failing, unbuilt])
@pytest.mark.parametrize("apart", [False, True])
def test_a_backward_that_can_not_be_compiled_runs_operator_by_operator(
    ctx: CompileContext, apart: bool, compile_aten: Callable[..., Any]
) -> None:
    module = graph_of(1, lambda g, x: (g.call_method("tanh", (x,)),))
    x = torch.randn(3, requires_grad=True)
    loose = building(ctx, apart)
    call = compile_graph(frame(module, [x]), loose, compile_aten)
    assert bool(loose.events) == (apart and compile_aten is failing)
    call(x)[0].sum().backward()
    assert torch.allclose(x.grad, 1 - x.detach().tanh() ** 2)
    assert "no back end" in loose.events[-1].detail


def test_backward_is_compiled_while_kernels_are_built_apart(ctx: CompileContext, evaluator: Evaluator) -> None:
    module = graph_of(1, lambda g, x: (g.call_method("tanh", (x,)),))
    x = torch.randn(3, requires_grad=True)
    call = compile_graph(frame(module, [x]), building(ctx, True, strict=True), evaluator)
    assert evaluator.kinds == ["forward", "backward"] and evaluator.graphs[1].ahead
    for _ in range(2):
        x.grad = None
        call(x)[0].sum().backward()
        assert torch.allclose(x.grad, 1 - x.detach().tanh() ** 2)
    assert evaluator.kinds == ["forward", "backward"]


def test_a_pass_that_breaks_the_graph_is_named(ctx: CompileContext) -> None:
    module = graph_of(1, lambda g, x: (g.call_method("exp", (x,)),))

    def break_it(graph: object, ctx: CompileContext) -> object:
        assert isinstance(graph, fx.GraphModule)
        graph.graph.call_function(torch.sin, (fx.Graph().placeholder("y"),))
        return graph

    broken = context((), passes=[Pass("break-it", "post_grad", break_it)])
    with pytest.raises(PassFailed, match="break-it"):
        run_passes("post_grad", module, broken)


def test_verify_wants_fakes_and_functional_graphs() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(aten.exp.default, (x,)),))
    module = fx.GraphModule({}, graph)
    with pytest.raises(InvariantError, match="one fake input per placeholder"):
        verify(AtenGraph("f", GraphKind.INFERENCE, module, ()))
    with pytest.raises(InvariantError, match="no fake result"):
        verify(AtenGraph("f", GraphKind.INFERENCE, module, (torch.ones(2),)))


def test_results_computed_without_gradients_of_inputs_that_need_them() -> None:
    def product(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x @ x.t()

    for backend in ("aot_eager", None):
        armature.reset()
        compiled = armature.compile(product, **({} if backend is None else {"backend": backend}))
        for _ in range(2):
            found = compiled(torch.ones(2, 2, requires_grad=True))
            assert not found.requires_grad
            assert torch.is_grad_enabled()


def test_leaves_with_the_same_gradient_do_not_share_its_memory() -> None:
    """Else what the next backward adds to one of them is added to both."""
    leaves = [torch.randn(4, requires_grad=True) for _ in range(2)]
    x, weight = torch.randn(5, 3), torch.randn(4, 3)
    compiled = armature.compile(lambda x, one, other: nn.functional.linear(x, weight, one + other).sin().sum())
    for _ in range(2):
        compiled(x, *leaves).backward()
    expected = torch.autograd.grad(nn.functional.linear(x, weight, leaves[0] + leaves[1]).sin().sum(), leaves)
    for leaf, gradient in zip(leaves, expected, strict=True):
        torch.testing.assert_close(leaf.grad, 2 * gradient)
