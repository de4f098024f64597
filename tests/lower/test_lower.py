"""Lowering graphs: layouts handed to ATen calls, missing features, printing, the spec, and time linear in the graph."""

from __future__ import annotations

import operator
from typing import Any

import attrs
import pytest
import torch
from torch import fx

import armature
from armature.errors import InvariantError, LoweringError
from armature.graph.data import AtenGraph, GraphKind, Origin
from armature.lower.builder import Builder
from armature.lower.data import AsNumber, Const, ExternCall, Load, Loop, LoopGraph, Op, Store, View
from armature.lower.features import Features
from armature.lower.index import Index, Size, Var
from armature.lower.lower import lower
from armature.lower.registry import takes
from armature.lower.show import show
from armature.lower.values import Scalar, ScalarValue, TensorValue
from armature.lower.verify import verify
from armature.pipeline.session import session
from armature.testing.loop_evaluator import run_loops
from armature.testing.lowering_kit import EVERYTHING, ReferenceBackend, context
from armature.torch_abi.fake import NUMBER
from armature.torch_abi.symbols import Symbols
from armature_aten_lowerings import plugin
from tests.support.counted_calls import calls_of

aten = torch.ops.aten
ROWS = tuple(plugin.armature_lowerings())


class Graph:
    """An ATen graph built call by call on real tensors, which give the layouts."""

    def __init__(self, *inputs: torch.Tensor) -> None:
        self.graph = fx.Graph()
        self.inputs = inputs
        self.places = [self.graph.placeholder(f"x{k}") for k in range(len(inputs))]
        for place, value in zip(self.places, inputs, strict=True):
            place.meta["val"] = value

    def call(self, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(op, args, kwargs)
        node.meta["val"] = op(*fx.map_arg(args, lambda n: n.meta["val"]), **kwargs)
        return node

    def loops(self, *outputs: Any, features: Features = EVERYTHING) -> LoopGraph:
        self.graph.output(outputs)
        module = fx.GraphModule({}, self.graph)
        made = lower(
            AtenGraph("f", GraphKind.INFERENCE, module, self.inputs), context(ROWS, ReferenceBackend(features=features))
        )
        verify(made)
        return made

    def unknown(self, op: Any, *args: Any) -> fx.Node:
        """A float that is only known when the graph runs."""
        node = self.graph.call_function(op, args)
        node.meta["val"] = Symbols(scalar_outputs=True).unknown_float()
        return node

    def like(self, place: fx.Node, op: Any, *args: Any) -> fx.Node:
        """A call whose result is like an input."""
        node = self.graph.call_function(op, args)
        node.meta["val"] = place.meta["val"]
        return node


def test_unknown_floats_are_read_by_loops_and_given_to_aten_calls_as_numbers() -> None:
    g = Graph(torch.randn(4, 6), torch.tensor(0.5, dtype=torch.float64))
    x, number = g.places[0], g.unknown(NUMBER, g.places[1])
    loops = g.loops(g.like(x, aten.mul.Tensor, x, number), g.like(x, aten.renorm.default, x, 2, 0, number), number)
    loop, call = loops.nodes
    assert isinstance(loop, Loop) and isinstance(call, ExternCall)
    assert "x1_0" in show(loops).partition("renorm")[0] and call.args[3] == loops.outputs[2] == AsNumber("x1_0", (), ())
    assert "renorm.default(x0_0[4, 6; 6, 1], 2, 0, x1_0.item())" in show(loops)


def test_arithmetic_on_unknown_floats_is_done_on_the_host() -> None:
    g = Graph(torch.randn(4, 6), torch.tensor(0.5, dtype=torch.float64))
    x, number = g.places[0], g.unknown(NUMBER, g.places[1])
    computed = g.unknown(operator.pow, g.unknown(operator.sub, 1, number), 3)
    loops = g.loops(g.like(x, aten.mul.Tensor, x, computed))
    calls = [node for node in loops.nodes if isinstance(node, ExternCall)]
    assert [call.target for call in calls] == [aten.sub.Tensor, aten.scalar_tensor.default, aten.pow.Tensor_Tensor]
    assert {loops.buffers[str(call.outputs[0])].device.type for call in calls} == {"cpu"}
    (result,) = run_loops(loops, [x.meta["val"], g.places[1].meta["val"]])
    torch.testing.assert_close(result, x.meta["val"] * 0.125)


def test_lowerings_say_which_numbers_they_take() -> None:
    tensor = TensorValue("x", torch.float64, torch.device("cpu"), (), (), ())
    size, unknown = Size("s0", 4), ScalarValue(tensor)

    def known(b: Builder, x: TensorValue, y: int | float) -> None: ...
    def index(b: Builder, x: TensorValue, y: Index | float) -> None: ...
    def scalar(b: Builder, x: TensorValue, y: Scalar) -> None: ...
    def any_float(b: Builder, x: TensorValue, y: ScalarValue | float) -> None: ...

    accepted = {
        fn.__name__: [takes(fn, (tensor, y), {}) for y in (2, size, unknown)]
        for fn in (known, index, scalar, any_float)
    }
    assert accepted == {
        "known": [True, False, False],
        "index": [True, True, False],
        "scalar": [True, True, True],
        "any_float": [True, False, True],
    }


def test_views_go_to_aten_calls_as_strides() -> None:
    g = Graph(torch.randn(4, 6), torch.randn(5, 6))
    loops = g.loops(g.call(aten.mm.default, g.places[0], g.call(aten.t.default, g.places[1])))
    (call,) = loops.nodes
    assert isinstance(call, ExternCall)
    assert call.args[1] == View("x1_0", (6, 5), (1, 6), 0)


def test_a_view_that_no_strides_describe_is_copied_once() -> None:
    g = Graph(torch.randn(2, 3, 4))
    turned = g.call(aten.permute.default, g.places[0], [0, 2, 1])
    flat = g.call(
        aten._unsafe_view.default, g.call(aten.clone.default, turned, memory_format=torch.contiguous_format), [8, 3]
    )
    loops = g.loops(g.call(aten.mm.default, flat, g.call(aten.t.default, flat)))
    assert [type(n) for n in loops.nodes] == [Loop, ExternCall]
    assert torch.allclose(run_loops(loops, g.inputs)[0], flat.meta["val"] @ flat.meta["val"].t())


@pytest.mark.parametrize(
    "less",
    [{"ops": EVERYTHING.ops - {"exp"}}, {"dtypes": EVERYTHING.dtypes - {torch.float32}}, {"dtypes": frozenset()}],
    ids=["operation", "dtype", "nothing"],
)
def test_what_a_back_end_lacks_stays_an_aten_call(less: dict[str, Any]) -> None:
    g = Graph(torch.randn(4))
    loops = g.loops(g.call(aten.exp.default, g.places[0]), features=attrs.evolve(EVERYTHING, **less))
    (call,) = loops.nodes
    assert isinstance(call, ExternCall) and call.target is aten.exp.default
    assert list(loops.buffers) == ["x0_0", "exp_default_0"]  # nothing of the attempt is left
    assert torch.equal(run_loops(loops, g.inputs)[0], g.inputs[0].exp())


def test_atomic_stores_need_the_feature() -> None:
    g = Graph(torch.randn(3, 2), torch.tensor([0, 1, 1]))
    node = g.call(aten.embedding_dense_backward.default, *g.places, 4, -1, False)
    loops = g.loops(node, features=attrs.evolve(EVERYTHING, atomic_add=frozenset()))
    assert [type(n) for n in loops.nodes] == [ExternCall]


def test_an_operator_on_a_device_without_back_end_stays_an_aten_call() -> None:
    x = torch.randn(3, device="meta")
    g = Graph(x)
    loops = g.loops(g.call(aten.exp.default, g.places[0]))
    assert [type(n) for n in loops.nodes] == [ExternCall]


def test_show_prints_the_users_line() -> None:
    g = Graph(torch.randn(4, 5))
    node = g.call(aten.sum.dim_IntList, g.call(aten.exp.default, g.places[0]), [1])
    node.meta["origin"] = Origin("aten.sum.dim_IntList", "/home/me/model.py", 41, "forward", "x.exp().sum(1)")
    text = show(g.loops(node))
    assert "for i0<4: sum_dim_int_list_0[i0] = sum(exp_default_0[i0, r0] over r0<5)" in text
    assert text.splitlines()[-2].endswith("# aten.sum.dim_IntList     model.py:41  x.exp().sum(1)")


def test_constants_are_kept() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    c = graph.create_node("get_attr", "c")
    y = graph.call_function(aten.add.Tensor, (x, c))
    value = torch.randn(3)
    y.meta["val"] = value
    graph.output((y, c))
    module = fx.GraphModule({"c": value}, graph)
    loops = lower(AtenGraph("f", GraphKind.INFERENCE, module, (value,)), context(ROWS))
    verify(loops)
    total, constant = run_loops(loops, [value])
    assert torch.equal(total, value * 2) and torch.equal(constant, value)


def test_a_failing_lowering_names_operator_and_line() -> None:
    g = Graph(torch.randn(3))
    node = g.call(aten.exp.default, g.places[0])
    node.meta["origin"] = Origin("aten.exp.default", "model.py", 41)
    node.args = ()
    with pytest.raises(LoweringError, match=r"model\.py:41: .*aten\.exp\.default"):
        g.loops(node)


def test_time_is_linear_in_the_graph() -> None:
    def calls(count: int) -> int:
        g = Graph(torch.randn(4))
        a, b = g.places[0], g.call(aten.exp.default, g.places[0])
        for _ in range(count):
            a, b = b, g.call(aten.add.Tensor, a, b)
        return calls_of(lambda: g.loops(b))

    calls(10)  # what the first call imports and keeps
    assert calls(1000) <= 11 * calls(100)


def broken(**changes: Any) -> LoopGraph:
    """A sound graph with one thing changed."""
    g = Graph(torch.randn(4))
    loops = g.loops(g.call(aten.exp.default, g.places[0]))
    (loop,) = loops.nodes
    return attrs.evolve(loops, nodes=(attrs.evolve(loop, **changes),))


I0, J = Var("i0", 4), Var("j", 4)
F32 = torch.float32
WRONG = {
    "variable that no loop runs": Store("exp_default_0", (I0,), Load("x0_0", (J,), F32)),
    "one index per axis": Store("exp_default_0", (I0,), Load("x0_0", (I0, I0), F32)),
    "read before it is filled": Store("exp_default_0", (I0,), Load("nowhere", (I0,), F32)),
    "unknown operation": Store("exp_default_0", (I0,), Op("guess", (Const(1.0, F32),), F32)),
    "wrong number of arguments": Store("exp_default_0", (I0,), Op("add", (Const(1.0, F32),), F32)),
    "another dtype than the buffer": Store("exp_default_0", (I0,), Const(1, torch.int64)),
    "load of another dtype": Store("exp_default_0", (I0,), Load("x0_0", (I0,), torch.int64)),
    "elsewhere than at its own": Store("exp_default_0", (0,), Const(1.0, F32)),
    "unknown buffer": Store("nowhere", (I0,), Const(1.0, F32)),
}


@pytest.mark.parametrize("what", WRONG)
def test_verify_names_what_is_wrong(what: str) -> None:
    with pytest.raises(InvariantError, match=what):
        verify(broken(stores=(WRONG[what],)))


GIVEN = [
    lambda x: (x + 1, torch.tensor([1.0, 2.0])),
    lambda x: (x * 2, c := torch.tensor([1, 2]), c.view(2, 1), c),
    lambda x: (x + 1, torch.tensor([1 + 2j, 3])),
]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("program", GIVEN)
def test_a_constant_that_was_given_to_the_caller_is_as_it_was_in_the_next_call(
    program: Any, requires_grad: bool
) -> None:
    armature.reset()
    compiled = armature.compile(program, backend="auto", fullgraph=True)
    x = torch.ones(2, requires_grad=requires_grad)
    for _ in range(3):
        found, expected = compiled(x)[1:], program(x)[1:]
        assert [t.tolist() for t in found] == [t.tolist() for t in expected]
        found[0].add_(7)
        expected[0].add_(7)
        assert [t.tolist() for t in found] == [t.tolist() for t in expected]


EMPTY = [
    lambda x: x.sin() * 2 + 1,
    lambda x: (x.exp(), x.exp().t()),
    lambda x: x.exp().t() @ x.cos(),  # what is computed of nothing is something
    lambda x: torch.cat([x.sigmoid(), x.new_ones(2, 3)]).tanh(),
    lambda x: torch.nn.functional.layer_norm(x, (3,)).softmax(-1).sum(0),
    lambda x: x.sin().sort(dim=1),
    lambda x: x.sin().add_(1).mul_(2),
]


@pytest.mark.parametrize("program", EMPTY)
@pytest.mark.parametrize("train", [False, True])
def test_tensors_without_elements_are_computed_by_no_operator(program: Any, train: bool) -> None:
    armature.reset()
    compiled = armature.compile(program, backend="auto", fullgraph=True)
    x = torch.ones(0, 3, requires_grad=train)
    found, expected = compiled(x), program(x)
    torch.testing.assert_close(found, expected, check_stride=True)
    one = found if isinstance(found, torch.Tensor) else found[0]
    if train:
        (gradient,) = torch.autograd.grad(one.sum(), x)
        assert gradient.shape == x.shape
    graphs = [graph for record in session().compilations for graph in record.graphs]
    calls = [step for graph in graphs for step in graph.plan.steps if isinstance(step, ExternCall)]
    assert graphs
    buffers = {name: buffer for graph in graphs for name, buffer in graph.plan.buffers.items()}
    assert all(any(0 not in buffers[name].shape for name in call.outputs if name) for call in calls)


def test_operators_of_others_are_called_on_tensors_without_elements() -> None:
    seen = []

    @torch.library.custom_op("test_lower::look", mutates_args=())
    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.shape)
        return x.clone()

    look.register_fake(torch.empty_like)
    compiled = armature.compile(lambda x: look(x) + 1, fullgraph=True)
    for _ in range(2):
        compiled(torch.ones(0, 3))
    assert seen == [(0, 3)] * 2


def reason(features: Features = EVERYTHING, *, op: Any, args: tuple[Any, ...]) -> tuple[str, str]:
    graph = Graph(*(arg for arg in args if isinstance(arg, torch.Tensor)))
    places = iter(graph.places)
    node = graph.call(op, *(next(places) if isinstance(arg, torch.Tensor) else arg for arg in args))
    (call,) = graph.loops(node, features=features).nodes
    assert isinstance(call, ExternCall)
    return call.reason.kind, call.reason.detail


def test_a_call_has_a_reason() -> None:
    x = torch.rand(3, 4)
    without_exp = attrs.evolve(EVERYTHING, ops=EVERYTHING.ops - {"exp"})
    without_doubles = attrs.evolve(EVERYTHING, dtypes=EVERYTHING.dtypes - {torch.float64})
    assert reason(without_exp, op=aten.exp.default, args=(x,)) == ("operation", "exp")
    assert reason(without_doubles, op=aten.exp.default, args=(x.double(),)) == ("dtype", "float64")
    assert reason(op=aten.cummax.default, args=(x > 0, 0)) == ("arguments", "extremes of bools")
    assert reason(op=aten.gcd.default, args=(torch.arange(3), torch.arange(3))) == ("no-lowering", "")
    assert reason(op=aten.bernoulli.default, args=(x,)) == ("random", "")
    assert reason(op=aten.exp.default, args=(torch.rand(2, device="meta"),)) == ("device", "meta")
