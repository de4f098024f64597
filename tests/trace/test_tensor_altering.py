"""Parameters made in a frame, and changes of what a tensor is: its memory, and whether autograd follows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import armature
from armature.pipeline.session import session
from tests.support.tensor_programs import compare
from tests.support.tracing import break_of


def inputs() -> tuple[torch.Tensor, torch.Tensor, nn.Parameter]:
    return torch.arange(1.0, 4), torch.linspace(1, 2, 3), nn.Parameter(torch.full((3,), 2.0))


def parameter(x, y, p):
    w = nn.Parameter(torch.ones(3))
    return w, w * x, type(w), isinstance(w, nn.Parameter), w.is_leaf, w.requires_grad, w.grad


def parameter_of_input(x, y, p):
    w = nn.Parameter(x)
    with torch.no_grad():
        w.mul_(2)
    return w, w * y, x * 1


def parameter_of_parameter(x, y, p):
    w = nn.Parameter(p)
    return w, w is p, type(p)(x), p.__class__(y, requires_grad=False)


def parameter_without_gradient(x, y, p):
    w = nn.Parameter(x * 2, requires_grad=False)
    return w, w * p, isinstance(w * 1, nn.Parameter), isinstance(w.data, nn.Parameter)


def parameter_of_history(x, y, p):
    w = nn.Parameter(p * 2)
    return w, w * x


def parameter_that_stays_inside(x, y, p):
    return (nn.Parameter(x) * y).sum().detach()


def parameter_without_arguments(x, y, p):
    return nn.Parameter().shape, x + 1


def parameter_with_gradient(x, y, p):
    w = nn.Parameter(x)
    w.grad = y * 2
    w.tag = "own"
    return w, w.grad, w.tag


def layer(x, y, p):
    made = nn.Linear(3, 2)
    nn.init.ones_(made.weight)
    return made.weight, made(x)


def parameters(x, y, p):
    made = nn.ParameterList([nn.Parameter(x), nn.Parameter(y)])
    return made[0] * made[1] * nn.ParameterDict({"a": nn.Parameter(p.detach())})["a"]


def leaf(x, y, p):
    w = torch.zeros(3, requires_grad=True)
    v = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    return w * x, w, v * x, v.is_leaf, torch.tensor(x, requires_grad=True)


def data(x, y, p):
    x.data = y
    x.add_(1)
    return x, y * 1


def data_of_parameter(x, y, p):
    before = p * x
    p.data = p.data * 0.5
    return before, p * x


def data_without_gradients(x, y, p):
    with torch.no_grad():
        p.data = p.data * 0.9
        p.data -= x
    return p * x


def data_of_another_size(x, y, p):
    x.data = torch.zeros(2, 2, dtype=torch.float64)
    return x.shape, x.dtype, x + 1


def data_of_view(x, y, p):
    view = x[:2]
    view.data = y[1:]
    view.mul_(2)
    return view, x * 1, y * 1


def data_swapped(x, y, p):
    x.data, y.data = y.data, x.data
    return x - y


def data_of_result(x, y, p):
    z = p * 2
    z.data = y
    return z, z * 2


def step(x, y, p):
    p.grad = x.clone()
    with torch.no_grad():
        p.data = p.data - 0.1 * p.grad
    p.grad = None
    return p * x


def sets(x, y, p):
    z = torch.empty(0)
    z.set_(y)
    z.add_(1)
    return z, y * 1


def sets_input(x, y, p):
    x.set_(y)
    with torch.no_grad():
        p.set_(p * 0.5)
    return x + 1, p * y


def requires_gradient(x, y, p):
    z = (x * 2).requires_grad_()
    x.requires_grad = True
    return z, z * 3, x * z, z.is_leaf, x.requires_grad


def requires_none(x, y, p):
    p.requires_grad_(False)
    z = p * x
    p.requires_grad = True
    return z, p * x


def requires_after_view(x, y, p):
    view = x.view(3)
    x.requires_grad_()
    return view, view.requires_grad, x * 2


def detaches(x, y, p):
    z = p * 2
    z.detach_()
    return z * 3, z.requires_grad


def hashes(x, y, p):
    z = x + 1
    known = {hash(x): 1, hash(z): 2}
    return known[hash(x)], known[id(z)], hash(p) == id(p), hash(x) == hash(y), z


PROGRAMS = [
    parameter, parameter_of_input, parameter_of_parameter, parameter_without_gradient, parameter_of_history,
    parameter_that_stays_inside, parameter_without_arguments, parameter_with_gradient, layer, parameters, leaf,
    data, data_of_parameter, data_without_gradients, data_of_another_size, data_of_view, data_swapped, data_of_result,
    step, sets, sets_input, requires_gradient, requires_none, requires_after_view, detaches, hashes,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda function: function.__name__)
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_in_one_graph(program: Callable[..., Any]) -> None:
    compare(program, inputs, fullgraph=True, backward=True)


@pytest.mark.parametrize("backend", ["auto", "aot_eager"])
@pytest.mark.parametrize(
    "program",
    [parameter, parameter_of_input, parameter_of_parameter, parameter_without_gradient, parameter_of_history, leaf,
     data_of_parameter, requires_gradient, requires_none, requires_after_view, detaches],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_under_compilers(program: Callable[..., Any], backend: str) -> None:
    armature.reset()
    found, expected = armature.compile(program, backend=backend, fullgraph=True)(*inputs()), program(*inputs())
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, torch.Tensor):
            assert torch.equal(one, other)
            assert (type(one), one.requires_grad, one.is_leaf) == (type(other), other.requires_grad, other.is_leaf)
        else:
            assert one == other


def begins_to_learn(x, y, p):
    before = (x * 2).sin()[None]
    before.requires_grad = True
    return before, (before.cos() * p).sum(), y.requires_grad_()


def learns_twice(x, y, p):
    first = torch.ones(x.shape, requires_grad=True)
    inner = (first * x).sin()
    inner.retain_grad()
    second = nn.Parameter((y * 2).cos())
    return first, inner, second, (inner * second * p).sum()


def learns_under_autocast(x, y, p):
    with torch.autocast("cpu", torch.bfloat16):
        a = x[None] @ y[:, None]
    w = (a * 2).cos().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        return w, (w[None] @ p[None, None]).sum()


def learns_in_part(x, y, p):
    with torch.no_grad():
        w = (x * p).sin()
    w.requires_grad_()
    z = (w * p).cos()
    with torch.no_grad():
        z.mul_(2)
    return w, z.sum()


def of_a_changing_size(x, y, p):
    w = torch.zeros(x.shape[0], requires_grad=True)
    return w, (w * x).sin().sum()


AROUND = [begins_to_learn, learns_twice, learns_under_autocast, learns_in_part, of_a_changing_size]


@pytest.mark.parametrize("program", AROUND, ids=lambda function: function.__name__)
def test_what_is_around_a_new_leaf_is_compiled(program: Callable[..., Any]) -> None:
    armature.reset()
    mine = armature.compile(program, fullgraph=True)
    for length in (3, 4, 5):
        results = []
        for function in (mine, program):
            x, y, p = (
                torch.arange(1.0, 1 + length),
                torch.linspace(1, 2, length),
                nn.Parameter(torch.full((length,), 2.0)),
            )
            found = function(x, y, p)
            sum(t.sum() for t in found if t.requires_grad).backward()
            leaves = [t for t in (*found, x, y, p) if t.is_leaf or t.retains_grad]
            results.append([(t.detach(), t.requires_grad, t.is_leaf) for t in found] + [t.grad for t in leaves])
        torch.testing.assert_close(results[0], results[1])
    (*_, record) = session().compilations
    assert record.graphs, "no piece of it was compiled"


def test_pieces_around_a_new_leaf_for_a_back_end() -> None:
    given = []

    def backend(graph: torch.fx.GraphModule, examples: Any) -> Any:
        given.append([node.name for node in graph.graph.nodes if node.op.startswith("call")])
        return graph.forward

    armature.compile(begins_to_learn, backend=backend, fullgraph=True)(*inputs())
    assert given == [["mul", "sin", "getitem"], ["cos", "mul_1", "sum_1"]]


def test_what_a_result_keeps_of_its_gradient() -> None:
    def retaining(x: torch.Tensor) -> tuple[Any, ...]:
        z = x * 2
        before = z.retains_grad
        z.retain_grad()
        x.retain_grad()
        return before, z.retains_grad, z, z * 3

    x = torch.ones(2, requires_grad=True)
    before, after, z, w = armature.compile(retaining, backend="eager", fullgraph=True)(x)
    w.sum().backward()
    assert (before, after) == (False, True)
    assert z.grad.tolist() == [3, 3]


def test_the_gradient_of_a_parameter_that_was_made_is_its_own() -> None:
    x = torch.ones(3, requires_grad=True)
    w, z = armature.compile(lambda a: (w := nn.Parameter(a * 2), w * a), backend="eager", fullgraph=True)(x)
    z.sum().backward()
    assert w.grad.tolist() == [1, 1, 1]
    assert x.grad.tolist() == [2, 2, 2]
    with torch.no_grad():
        w.sub_(w.grad)
    assert w.tolist() == [1, 1, 1]


def test_a_layer_that_was_made_leaves_the_frame() -> None:
    def make(x: torch.Tensor) -> tuple[nn.Module, torch.Tensor]:
        made = nn.LayerNorm(3)
        return made, made(x)

    made, result = armature.compile(make, backend="eager", fullgraph=True)(torch.arange(3.0))
    assert [type(p) for p in made.parameters()] == [nn.Parameter] * 2
    result.square().sum().backward()
    assert made.weight.grad is not None
    torch.testing.assert_close(made(torch.arange(3.0)), result)


def reads_the_other(x, y):
    x.requires_grad_()
    return y.requires_grad


def resizes_the_other(x, y):
    x.data = torch.zeros(2)
    return y.shape


@pytest.mark.parametrize("program", [reads_the_other, resizes_the_other])
def test_two_inputs_that_become_one(program: Callable[..., Any]) -> None:
    armature.reset()
    compiled = armature.compile(program, backend="eager", fullgraph=True)
    for same in (False, True, False):
        results = []
        for function in (program, compiled):
            x = torch.ones(3)
            results.append(function(x, x if same else torch.ones(3)))
        assert results[0] == results[1]


def test_a_change_before_a_graph_break() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, p: nn.Parameter) -> tuple[Any, ...]:
        x.data = y
        w = nn.Parameter(x)
        y.requires_grad_()
        armature.graph_break()
        return x + 1, w, w * y, y.requires_grad

    compare(program, inputs, fullgraph=False, backward=True)


def test_sizes_that_change() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.data = y * 2
        return x + x.shape[0]

    armature.reset()
    compiled = armature.compile(program, backend="eager", dynamic=True)
    for size, other in ((3, 3), (4, 4), (5, 7), (6, 6)):
        found, expected = torch.ones(size), torch.ones(size)
        torch.testing.assert_close(compiled(found, torch.ones(other)), program(expected, torch.ones(other)))
        torch.testing.assert_close(found, expected)


def raising_data(x, y, index):
    x.data = y
    x.add_(1)
    return x[index]


def raising_data_read(x, y, index):
    x.data.mul_(2)
    return x[index]


def raising_set(x, y, index):
    x.set_(y)
    x.mul_(3)
    return x[index]


def raising_gradient(x, y, index):
    x.requires_grad_()
    x.data = torch.zeros(5)
    return (x * 2)[index]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("program", [raising_data, raising_data_read, raising_set, raising_gradient])
def test_a_graph_that_raises_is_undone(program: Callable[..., Any], fullgraph: bool) -> None:
    armature.reset()
    compiled = armature.compile(program, backend="eager", fullgraph=fullgraph)
    seen = []
    for function in (program, compiled, compiled):
        x, y = torch.arange(3.0), torch.arange(1.0, 4)
        memory = x.detach()
        with pytest.raises(IndexError):
            function(x, y, torch.tensor([9]))
        shares = x.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr()
        seen.append((x.tolist(), y.tolist(), memory.tolist(), x.requires_grad, x._version, shares))
    assert seen[0] == seen[1] == seen[2]


def hooked(x: torch.Tensor) -> None:
    x.register_hook(lambda g: g * 2)
    x.requires_grad_(False)


BREAKS = [
    (lambda x: nn.Buffer(x), torch.ones(2, requires_grad=True), "creates-buffer"),
    (lambda x: x.detach_(), torch.ones(2, requires_grad=True) * 1, "tensor-detach"),
    (lambda x: x.retain_grad(), torch.ones(2, requires_grad=True) * 1, "tensor-retain-grad"),
    (lambda x: x.requires_grad_(False), torch.ones(2, requires_grad=True) * 1, "tensor-requires-grad"),
    (lambda x: torch.vmap(lambda a: nn.Parameter(a) * 2)(x), torch.ones(2, 2), "creates-parameter"),
    (hooked, torch.ones(2, requires_grad=True), "tensor-requires-grad"),
]


@pytest.mark.parametrize(("program", "x", "reason"), BREAKS)
def test_what_breaks(program: Callable[..., Any], x: torch.Tensor, reason: str) -> None:
    assert break_of(program, x) == reason


WEIGHT = nn.Parameter(torch.arange(6.0).reshape(2, 3))


def seen(results: tuple[torch.Tensor, ...]) -> list[Any]:
    return [(r.requires_grad, r.is_leaf, r._is_view(), r._base is WEIGHT, r.tolist()) for r in results]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_views_of_a_parameter_without_gradients(backend: str, mode: Any) -> None:
    def program(x):
        return WEIGHT.view(-1), WEIGHT.t() + x, WEIGHT.expand(2, 2, 3), WEIGHT[0], WEIGHT.detach(), WEIGHT.unbind()[0]

    compiled = armature.compile(program, backend=backend, fullgraph=True)
    with mode():
        for _ in range(2):
            assert seen(compiled(torch.ones(1))) == seen(program(torch.ones(1)))


def test_a_graph_that_views_a_parameter_without_gradients_is_compiled() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    with torch.no_grad():
        armature.compile(lambda x: WEIGHT.expand(2, 2, 3) + x, backend=backend)(torch.ones(1))
    assert len(graphs) == 1


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_rows_of_a_tensor_that_changes_meanwhile(backend: str) -> None:
    def program(x):
        seen = []
        for place, _ in enumerate(x):
            x += 1
            seen.append(x.index_select(0, torch.tensor([place])).sum())
        return seen

    def given() -> torch.Tensor:
        return torch.ones(3, 2, requires_grad=True) * 1

    compiled = armature.compile(program, backend=backend)
    for _ in range(2):
        assert [r.tolist() for r in compiled(given())] == [r.tolist() for r in program(given())]
