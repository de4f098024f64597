"""The seam between compiled training graphs and autograd, on whatever torch is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
from torch import Tensor, fx, nn

from armature.torch_abi import aot, fake, partition, training
from armature.torch_abi.operators import direct

aten = torch.ops.aten


def graph_of(fn: Callable[..., Any]) -> fx.GraphModule:
    """A captured graph that returns a tuple, by torch's own tracer: what captured it does not matter here."""
    module = fx.symbolic_trace(fn)
    for node in module.graph.nodes:
        if node.op == "output":
            results = node.args[0]
            node.args = (tuple(results) if isinstance(results, (tuple, list)) else (results,),)
    module.recompile()
    return module


@attrs.define
class Compiled:
    run: Callable[..., Any]
    wirings: list[training.Wiring | None]


@pytest.fixture
def compile_lean(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Compiled]:
    """Compiles with graphs run by their interpreter, and keeps what `wiring` said."""

    def compile_graph(graph: fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        return lambda args: graph(*args)

    def compiled(fn: Callable[..., Any], *inputs: Tensor) -> Compiled:
        wirings: list[training.Wiring | None] = []
        real = training.wiring

        def spy(*args: Any) -> training.Wiring | None:
            wirings.append(real(*args))
            return wirings[-1]

        monkeypatch.setattr(training, "wiring", spy)
        compilers = aot.Compilers(compile_graph, compile_graph, compile_graph, partition.min_cut)
        world = fake.FakeWorld()
        run = aot.compile_functional(graph_of(fn), [world.of(t) for t in inputs], compilers, {})
        return Compiled(run, wirings)

    return compiled


def gradients(outputs: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad([o.sum() for o in outputs if o.requires_grad], inputs, allow_unused=True)


def leaves(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.randn(*shape, requires_grad=True) for shape in shapes)


def test_a_plain_graph_is_connected_without_the_wrapper(compile_lean: Callable[..., Compiled]) -> None:
    x, w = inputs = leaves((4, 3), (3, 5))
    made = compile_lean(lambda x, w: torch.tanh(x @ w), *inputs)
    [wires] = made.wirings
    assert wires is not None
    assert (wires.outputs, wires.constant, wires.cut, wires.written) == (1, (), (), ())
    [output] = made.run(*inputs)
    assert type(output.grad_fn).__name__ == "CompiledBackward"
    for got, expected in zip(gradients([output], inputs), gradients([torch.tanh(x @ w)], inputs), strict=True):
        torch.testing.assert_close(got, expected)


def test_gradients_reach_only_what_takes_part(compile_lean: Callable[..., Compiled]) -> None:
    inputs = leaves((3,), (3,))
    made = compile_lean(lambda x, y: (x.sin(), y.detach() + 1), *inputs)
    [wires] = made.wirings
    assert wires is not None
    assert wires.constant == (1,)
    assert wires.cut == (1,)
    first, second = made.run(*inputs)
    assert first.requires_grad
    assert not second.requires_grad
    got, nothing = gradients([first], inputs)
    torch.testing.assert_close(got, inputs[0].cos())
    assert nothing is None


def test_a_view_of_an_input_takes_the_wrapper(compile_lean: Callable[..., Compiled]) -> None:
    inputs = leaves((3, 2))
    made = compile_lean(lambda x: (x.t(), x * 2), *inputs)
    assert made.wirings == [None]
    view, _ = made.run(*inputs)
    assert view._is_view()
    assert view._base is inputs[0]


def test_a_gradient_comes_in_the_strides_it_was_traced_with(compile_lean: Callable[..., Compiled]) -> None:
    inputs = leaves((4, 3))
    made = compile_lean(lambda x: x.exp(), *inputs)
    [output] = made.run(*inputs)
    gradient = torch.randn(3, 4).t()
    output.backward(gradient)
    torch.testing.assert_close(inputs[0].grad, gradient * inputs[0].exp())


def test_retained_graphs_run_backward_twice(compile_lean: Callable[..., Compiled]) -> None:
    inputs = leaves((3,))
    made = compile_lean(lambda x: x.exp().sin(), *inputs)
    [output] = made.run(*inputs)
    output.sum().backward(retain_graph=True)
    once = inputs[0].grad
    assert once is not None
    expected = 2 * once.clone()
    output.sum().backward()
    torch.testing.assert_close(inputs[0].grad, expected)
    with pytest.raises(RuntimeError, match="second time"):
        output.sum().backward()


def test_an_input_written_between_forward_and_backward_is_noticed(compile_lean: Callable[..., Compiled]) -> None:
    inputs = leaves((3,), (3,))
    made = compile_lean(lambda x, y: x * y, *inputs)
    [output] = made.run(*inputs)
    with torch.no_grad():
        inputs[0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_second_derivatives_by_what_inputs_that_are_gone_came_from(compile_lean: Callable[..., Compiled]) -> None:
    def fn(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return (x.exp() + y.exp() + z.exp()).sin()

    origins = leaves((3,), (3,), (3,))
    made = compile_lean(fn, *leaves((3,), (3,), (3,)))
    results = []
    for run in (fn, lambda *given: made.run(*given)[0]):
        given = [origins[0] * 2, origins[1] * 3, origins[2]]  # two with a history, a leaf
        firsts = torch.autograd.grad(run(*given).sum(), given, create_graph=True)
        del given
        results.append(torch.autograd.grad(firsts[0].sum(), origins))
    for wanted, got in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted)


def test_a_graph_casts_as_it_was_traced(compile_lean: Callable[..., Compiled]) -> None:
    inputs = leaves((4, 3), (3, 5))
    made = compile_lean(lambda x, w: x @ w, *inputs)
    with torch.autocast("cpu", torch.bfloat16):
        [output] = made.run(*inputs)
    assert output.dtype == torch.float32


def test_tangents_know_their_layout() -> None:
    dense = training.Tangent(0, None, torch.contiguous_format)
    assert dense.laid_out(torch.randn(3, 4).t()).is_contiguous()
    strided = training.Tangent(0, (1, 3), None)
    source = torch.randn(3, 4)
    laid = strided.laid_out(source)
    assert laid.stride() == (1, 3)
    assert torch.equal(laid, source)
    assert strided.laid_out(laid) is laid
    with pytest.raises(TypeError, match="Subclass"):
        dense.laid_out(torch.randn(2).as_subclass(Subclass))


class Subclass(Tensor):
    pass


@pytest.mark.parametrize(
    ("overload", "arguments"),
    [
        (aten.add.Tensor, (torch.ones(2), torch.ones(2))),
        (aten.sum.dim_IntList, (torch.ones(2, 3), [1], True)),
        (aten.topk.default, (torch.arange(5.0), 2)),
        (aten.max_pool2d_with_indices.default, (torch.randn(1, 1, 4, 4), [2, 2])),
    ],
)
def test_a_direct_operator_is_the_operator(overload: torch._ops.OpOverload, arguments: tuple[Any, ...]) -> None:
    torch.testing.assert_close(direct(overload)(*arguments), overload(*arguments))


def test_a_direct_operator_takes_names_and_out() -> None:
    out = torch.empty(2)
    assert direct(aten.add.out)(torch.ones(2), torch.ones(2), alpha=2, out=out) is out
    assert out.tolist() == [3, 3]


def test_a_direct_operator_is_differentiable() -> None:
    weight = nn.Parameter(torch.ones(2))
    direct(aten.mul.Tensor)(weight, weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [2, 2]
