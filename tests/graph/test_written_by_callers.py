"""What the caller of a training graph writes to, in its results and inputs, is told to autograd as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import armature
from armature.torch_abi import training

Program = Callable[[Tensor, Tensor], tuple[Tensor, ...]]


def result_saved(x, w):
    y = (x * w).exp()
    return y, y.view(-1), y * 2


def result_of_a_write(x, w):
    y = x.clone()
    z = y.view(-1)
    z.mul_(2)
    return y, z, y * w


def view_alone(x, w):
    y = torch.movedim(x * w, 0, 1)
    return y, y.contiguous().sin()


def several_views(x, w):
    y = x * w
    a, b = y.chunk(2)
    return a, b, a * b


def one_of_several_views(x, w):
    y = (x * w).exp()
    return y.unbind()[1], y.sum()


def part_of_several_views(x, w):
    y = x * w
    return y.view(2, 2, 4).unbind()[0].t(), y


def several_views_of_inputs(x, w):
    return (*x.split(2), *w.unbind(1), (x * w).sin())


def view_without_gradients(x, w):
    y = (x * w).exp()
    with torch.no_grad():
        z = y[1:]
    return y, z


def view_made_without_gradients(x, w):
    y = x.detach() * 2
    with torch.no_grad():
        z = y.view(-1)
    return z, w * y


def views_without_history(x, w):
    a, b = (x.detach() * 2).split(2)
    return a, b, w[:2] * a


def detached_part(x, w):
    y = (x * w).exp()
    return y, y[1:].detach()


def detached_before_a_view(x, w):
    y = (x * w).exp()
    return y.detach(), y.view(-1)


def data_of_a_result(x, w):
    y = (x * w).exp()
    return y.data, y, y.data[1:]


def data_of_what_is_saved(x, w):
    y = x.exp()
    return y.data, y * w


def data_that_is_read(x, w):
    d = x.data
    return d, d * w


def data_of_inputs(x, w):
    return x.data, w.data[1:], x * w


def view_and_sizes(x, w):
    y = (x * w).exp()
    return y.t(), y.view(-1)[: x.shape[0] - 1].sum() * x.shape[0]


CHANGED = [
    result_saved, result_of_a_write, several_views, one_of_several_views, part_of_several_views,
    several_views_of_inputs, view_without_gradients, view_made_without_gradients, views_without_history, detached_part,
    detached_before_a_view, data_of_a_result, data_of_what_is_saved, data_of_inputs, view_and_sizes,
]  # fmt: skip


def without_gradients(t: Tensor) -> None:
    with torch.no_grad():
        t.add_(1)


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "in place": lambda t: t.add_(1),
    "without gradients": without_gradients,
    "detached": lambda t: t.detach().mul_(2),
    "with a history": lambda t: t.mul_(torch.full((), 2.0, requires_grad=True)),
}


def outcome(call: Callable[..., Any], program: Program, written: int, write: str) -> list[object]:
    """What a write to one result does: errors, counts of writes, and gradients."""
    torch.manual_seed(0)
    x, w = (torch.rand(4, 4).add_(0.5).requires_grad_() for _ in range(2))
    results = call(x, w)
    tensors = (x, w, *results)
    before = [t._version for t in tensors]
    seen: list[object] = []
    try:
        WRITES[write](results[written])
    except RuntimeError as error:
        seen.append(str(error))
    seen.append([t._version - count for t, count in zip(tensors, before, strict=True)])
    # All at once: a compiled graph has one way back, which reads all that it keeps.
    try:
        loss = sum(result.square().sum() for result in results if result.requires_grad)
        seen += torch.autograd.grad(loss, (x, w))
    except RuntimeError as error:
        seen.append(str(error).split(":")[0][:60])
    return seen


def assert_alike(found: list[object], wanted: list[object]) -> None:
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        if isinstance(theirs, Tensor):
            torch.testing.assert_close(ours, theirs)
        else:
            assert ours == theirs


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", CHANGED, ids=lambda function: function.__name__)
def test_a_result_is_written(program, dynamic, compiled_graphs):
    call = armature.compile(program, backend="auto", fullgraph=True, dynamic=dynamic)
    count = len(program(torch.ones(4, 4), torch.ones(4, 4)))
    for write in WRITES:
        for written in range(count):
            wanted = outcome(program, program, written, write)
            assert_alike(outcome(call, program, written, write), wanted)
    assert "forward" in compiled_graphs or program is view_without_gradients


def test_the_gradient_of_a_view_is_right_or_refused():
    """Backward may read the view, of which eager mode keeps a copy."""
    call = armature.compile(view_alone, backend="auto", fullgraph=True)
    for write in WRITES:
        found, wanted = (outcome(one, view_alone, 0, write) for one in (call, view_alone))
        assert isinstance(found[-1], str) or torch.allclose(found[-1], wanted[-1])


def test_data_that_is_read_runs_operator_by_operator(compiled_graphs):
    call = armature.compile(data_that_is_read, backend="auto", fullgraph=True)
    for write in WRITES:
        assert_alike(
            outcome(call, data_that_is_read, 0, write), outcome(data_that_is_read, data_that_is_read, 0, write)
        )
    assert not compiled_graphs


def test_sizes_of_views_that_change():
    def program(x, w):
        y = x * w
        return (*y.split(x.shape[0] // 2), y.view(-1, 2), y.sin())

    call = armature.compile(program, backend="auto", fullgraph=True)
    for rows in (4, 6, 8):
        x, w = (torch.rand(rows, 4, requires_grad=True) for _ in range(2))
        found, wanted = call(x, w), program(x, w)
        assert [t._is_view() for t in found] == [t._is_view() for t in wanted]
        grads = [torch.autograd.grad(sum(t.sin().sum() for t in results), (x, w)) for results in (found, wanted)]
        torch.testing.assert_close(*grads)
        with pytest.raises(RuntimeError, match="is the output of a function that returns multiple views"):
            found[0].add_(1)


@pytest.mark.parametrize("view", [Tensor.t, Tensor.flatten], ids=lambda view: view.__name__)
def test_results_kept_for_backward_beside_sizes(view):
    """AOTAutograd's own wrapper keeps sizes; results that it keeps count their caller's writes too."""

    def program(x, w, rows):
        y = (x[:rows] * w[:rows]).exp()
        return view(y), y * rows

    call = armature.compile(program, backend="auto", fullgraph=True, dynamic=True)
    for run in (program, call):
        x, w = (torch.rand(6, 4, requires_grad=True) for _ in range(2))
        kept, loss = run(x, w, 4)
        with torch.no_grad():
            kept.mul_(3)
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            loss.sum().backward()


def test_kernels_know_of_no_views(monkeypatch):
    """Should a compiled graph give a result and what it saves as two tensors, they still count writes together."""
    tied: list[object] = []
    tie = training._share_counters
    monkeypatch.setattr(training, "_share_counters", lambda *args: tied.append(args) or tie(*args))
    call = armature.compile(result_of_a_write, backend="auto", fullgraph=True)
    assert_alike(
        outcome(call, result_of_a_write, 0, "detached"), outcome(result_of_a_write, result_of_a_write, 0, "detached")
    )
    assert tied


def data_alone(x):
    return x.data, x.data[1:], x.detach()


def data_of_what_is_made(x):
    y = x * 2
    return y.data, y, y.data[1:], y.detach()[1:]


def detached_data(x):
    d = (x * 2).data
    return d, d.detach(), d[1:]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [data_alone, data_of_what_is_made, detached_data])
def test_writes_through_data_without_gradients(program, dynamic):
    def counts(call):
        seen = []
        for k in range(1 + len(program(torch.ones(3)))):
            x = torch.ones(3)
            tensors = (x, *call(x))
            before = [t._version for t in tensors]
            tensors[k].add_(1)
            seen.append([(t._version - count, t._is_view(), t.tolist()) for t, count in zip(tensors, before)])
        return seen

    assert counts(armature.compile(program, backend="auto", dynamic=dynamic)) == counts(program)
