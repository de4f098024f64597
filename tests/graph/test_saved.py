"""What is saved for the backward graph: inputs in place of views of them, and no sums of what is saved anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

CASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "one view": lambda x, w: x.reshape(-1, 4).sin() * w,
    "a chain": lambda x, w: x.reshape(4, 6).t()[None].sin() * w,
    "two views": lambda x, w: x.reshape(-1, 4).sin() * w + x.reshape(4, 6).t().cos(),
    "the input too": lambda x, w: (x.sin().reshape(6, 4) + x.view(6, 4).exp()) * w,
    "a part": lambda x, w: x[:1].reshape(3, 4).sin() @ w.t(),
}


def check(fn: Callable[..., Tensor], inputs: Sequence[Tensor], calls: int) -> None:
    """Compare results and gradients with eager mode."""
    armature.reset()
    twins = [t.detach().clone().requires_grad_() for t in inputs]
    compiled = armature.compile(fn, fullgraph=True)
    for _ in range(calls):
        found, expected = compiled(*inputs), fn(*twins)
        torch.testing.assert_close(found, expected)
        found.square().sum().backward()
        expected.square().sum().backward()
    for ours, theirs in zip(inputs, twins, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("case", CASES)
def test_views_of_inputs(case: str) -> None:
    check(CASES[case], [torch.randn(2, 3, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)], calls=2)
    forward, backward = session().compilations[-1].graphs
    saved = forward.aten.module.graph.output_node().args[0][1:]
    assert all(node.op == "placeholder" or not node.target.is_view for node in saved)
    assert len(set(saved)) == len(saved)
    assert len(backward.aten.module.graph.find_nodes(op="placeholder")) == len(saved) + 1


def test_views_of_inputs_of_any_size() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.einsum("bi,bj->ij", x, x), x.t().sin() * x.shape[0]

    compiled = armature.compile(fn, fullgraph=True)
    for rows in (5, 3):
        x = torch.randn(rows, 6, requires_grad=True)
        armature.mark_dynamic(x, 0)
        twin = x.detach().clone().requires_grad_()
        for found, expected in zip(compiled(x), fn(twin), strict=True):
            torch.testing.assert_close(found, expected)
            found.square().sum().backward(retain_graph=True)
            expected.square().sum().backward(retain_graph=True)
        torch.testing.assert_close(x.grad, twin.grad)


def test_a_write_between_forward_and_backward_is_seen() -> None:
    x, w = torch.randn(2, 3, 4), torch.randn(6, 4, requires_grad=True)
    out = armature.compile(lambda x, w: x.reshape(-1, 4) * w, fullgraph=True)(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.filterwarnings("ignore:Error detected in")
def test_an_input_that_the_graph_writes_to() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        out = x.reshape(-1, 4) * w
        x.add_(1)
        return out.sin()

    x, w = torch.randn(2, 3, 4), torch.randn(6, 4, requires_grad=True)
    for run in (fn, armature.compile(fn, fullgraph=True)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(x, w).sum().backward()


def scaled(x: Tensor, w: Tensor) -> Tensor:
    x.mul_(w.sum())
    return x.sin()


def scaled_by_a_view(x: Tensor, w: Tensor) -> Tensor:
    x.t().mul_(w.sum())
    return x


def read_before(x: Tensor, w: Tensor) -> Tensor:
    y = x.t() * w
    with torch.no_grad():
        x.add_(1)
    return y


def written_twice(x: Tensor, w: Tensor) -> Tensor:
    x.mul_(w.sum())
    y = x * w
    x.mul_(w.mean())
    return y


def written_inside(x: Tensor, w: Tensor) -> Tensor:
    y = (x * w).exp()
    y.add_(1)
    return y


@pytest.mark.filterwarnings("ignore:Error detected in")
@pytest.mark.parametrize("backend", ["auto", "aot_eager"])
@pytest.mark.parametrize("fn", [scaled, scaled_by_a_view, read_before, written_twice, written_inside])
def test_inputs_that_backward_reads_and_the_graph_writes_to(fn: Callable[..., Tensor], backend: str) -> None:
    """Eager mode keeps what it needs of them, or refuses to go back."""
    found = []
    for call in (fn, armature.compile(fn, fullgraph=True, backend=backend)):
        x, w = torch.arange(16.0).reshape(4, 4), torch.ones(4, 4).requires_grad_()
        result = call(x, w)
        try:
            (result.sum() + x.sum()).backward()
        except RuntimeError as error:
            found.append(str(error).split("[")[0])
        else:
            found.append(w.grad.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("dynamic", [True, None])
def test_sizes_are_saved_too(dynamic: bool | None) -> None:
    """The forward graph gives sizes after the tensors it saves, the backward graph takes them before these."""

    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        h = x @ w
        return (h.relu() * x.shape[0]).sum() + h.view(-1)[: x.shape[0]].sum(), h.reshape(x.shape[0] * 2, -1)

    armature.reset()
    compiled = armature.compile(fn, fullgraph=True, dynamic=dynamic)
    for rows in (3, 5, 7, 2):
        inputs = [torch.randn(rows, 4, requires_grad=True), torch.randn(4, 6, requires_grad=True)]
        twins = [t.detach().clone().requires_grad_() for t in inputs]
        found, expected = compiled(*inputs), fn(*twins)
        torch.testing.assert_close(found, expected)
        (found[0] + found[1].square().sum()).backward()
        (expected[0] + expected[1].square().sum()).backward()
        for ours, theirs in zip(inputs, twins, strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("pieces", [2, 3, 4])
def test_sizes_that_only_occur_within_expressions(pieces: int) -> None:
    """The gradient of a first piece has zeros for the others: their size and that of the piece don't give the whole."""

    def first(x: Tensor) -> Tensor:
        return x.chunk(pieces)[0].sin()

    def middle(x: Tensor) -> Tensor:
        return x.chunk(pieces)[1] * 2

    for fn in (first, middle):
        compiled = armature.compile(fn, fullgraph=True, dynamic=True)
        for rows in (8, 9, 13, 12):
            x = torch.randn(rows, 4, requires_grad=True)
            twin = x.detach().clone().requires_grad_()
            found, expected = compiled(x), fn(twin)
            torch.testing.assert_close(found, expected)
            found.square().sum().backward()
            expected.square().sum().backward()
            torch.testing.assert_close(x.grad, twin.grad)


def gated(h: Tensor, w: Tensor, gate: Tensor) -> Tensor:
    for _ in range(2):
        new = (h @ w + h @ w.t()).tanh()
        h = (h - new) * (h @ gate).sigmoid() + new
    return h


@pytest.mark.parametrize("shape", [(4, 8), (1, 4, 8)], ids=["matrices", "views of matrices"])
def test_backward_computes_sums_of_what_is_saved(shape: tuple[int, ...]) -> None:
    inputs = [torch.randn(shape, requires_grad=True), *(torch.randn(8, 8, requires_grad=True) for _ in range(2))]
    check(gated, inputs, calls=1)
    forward, _ = session().compilations[-1].graphs
    saved = forward.aten.module.graph.output_node().args[0][1:]
    assert torch.ops.aten.tanh.default in [node.target for node in saved]
    assert torch.ops.aten.sub.Tensor not in [node.target for node in saved]
