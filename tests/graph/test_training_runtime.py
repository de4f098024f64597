"""Compiled training graphs behave towards autograd as eager does: flags, gradients, saved tensors, and what is refused."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import armature
from armature import config
from armature.torch_abi import aot, training

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    armature.reset()
    with config.patch(strict=True):
        yield


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[training.Wiring]:
    """The graphs that got the short wrapper."""
    found: list[training.Wiring] = []

    def connect(wires: training.Wiring, *graphs: Any) -> Function:
        found.append(wires)
        return training.connect(wires, *graphs)

    class Watched:
        wiring = staticmethod(training.wiring)
        mark_spare = staticmethod(training.mark_spare)

    Watched.connect = staticmethod(connect)  # type: ignore[attr-defined]
    monkeypatch.setattr(aot, "training", Watched)
    return found


def compiled(fn: Function) -> Function:
    return armature.compile(fn, fullgraph=True)


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(x @ weight + bias)


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(5, 4), leaf(4, 3), leaf(3)


def message(run: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as caught:
        run()
    return str(caught.value)


def same(left: Tensor | None, right: Tensor | None) -> bool:
    if left is None or right is None:
        return left is right
    return left.dtype == right.dtype and left.stride() == right.stride() and torch.allclose(left, right, atol=1e-5)


def test_gradients_flags_and_none_for_inputs_that_want_none(connected: list[training.Wiring]) -> None:
    x, weight, bias = inputs()
    out, wanted = compiled(affine)(x, weight, bias), affine(x, weight, bias)
    assert len(connected) == 1
    assert (out.requires_grad, out.is_leaf) == (wanted.requires_grad, wanted.is_leaf) == (True, False)
    ours = torch.autograd.grad(out.square().sum(), (weight, bias))
    theirs = torch.autograd.grad(wanted.square().sum(), (weight, bias))
    assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    assert x.grad is None
    assert [edge[0] is None for edge in out.grad_fn.next_functions].count(True) == 1


def several(x: Tensor, y: Tensor) -> tuple[Any, ...]:
    mask = x > 0
    return x * y, mask, y.detach() * 3, 7, None, x.exp(), torch.argmax(x, 1)


def test_outputs_of_many_kinds(connected: list[training.Wiring]) -> None:
    x, y = leaf(3, 4), torch.randn(3, 4)
    ours, theirs = compiled(several)(x, y), several(x, y)
    assert connected and connected[0].constant
    for a, b in zip(ours, theirs, strict=True):
        assert type(a) is type(b)
        if isinstance(b, Tensor):
            assert a.requires_grad == b.requires_grad
            assert torch.allclose(a, b)
        else:
            assert a == b
    ours[5].sum().backward()  # the other output's gradient is undefined
    assert same(x.grad, x.detach().exp())


def test_undefined_gradients_of_each_output() -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x * y).sin(), x.cos() @ y.t()

    run = compiled(fn)
    for used in (0, 1):
        x, y = leaf(3, 4), leaf(3, 4)
        ours = torch.autograd.grad(run(x, y)[used].sum(), (x, y), allow_unused=True)
        theirs = torch.autograd.grad(fn(x, y)[used].sum(), (x, y), allow_unused=True)
        assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))


def test_inputs_of_outputs_without_gradients_get_none(connected: list[training.Wiring]) -> None:
    """Not zeros, which an optimizer would take for a gradient."""

    def two_heads(x: Tensor, shared: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
        y = (x @ shared).sin()
        return y @ left, y @ right, (right * 2).floor()

    run = compiled(two_heads)
    for used in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
        given = (torch.randn(2, 3), leaf(3, 3), leaf(3, 3), leaf(3, 3))
        wanted = tuple(t.detach().requires_grad_(t.requires_grad) for t in given)
        for fn, inputs_ in ((run, given), (two_heads, wanted)):
            results = fn(*inputs_)
            sum(results[k].sum() for k in used).backward()  # type: ignore[union-attr]
        for mine, theirs in zip(given, wanted, strict=True):
            assert (mine.grad is None) == (theirs.grad is None), used
            assert mine.grad is None or torch.allclose(mine.grad, theirs.grad, atol=1e-6)
    assert connected


@pytest.mark.parametrize("layout", ["expanded", "transposed", "sliced", "dense"])
def test_gradients_that_come_in_other_layouts(layout: str) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(x @ w) * 2

    x, w = leaf(5, 4), leaf(4, 6)
    gradient = {
        "expanded": torch.randn(()).expand(5, 6),
        "transposed": torch.randn(6, 5).t(),
        "sliced": torch.randn(5, 12)[:, ::2],
        "dense": torch.randn(5, 6),
    }[layout]
    ours = torch.autograd.grad(compiled(fn)(x, w), (x, w), gradient)
    theirs = torch.autograd.grad(fn(x, w), (x, w), gradient)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


def test_channels_last_output_and_plain_gradient() -> None:
    conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    gradient = torch.randn(2, 4, 4, 4)
    reference = copy.deepcopy(conv)
    out = armature.compile(conv, fullgraph=True)(x)
    wanted = reference(x)
    assert out.stride() == wanted.stride()
    out.backward(gradient)
    wanted.backward(gradient)
    for a, b in zip(conv.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, atol=1e-4)


def test_a_gradient_of_a_subclass_is_refused() -> None:
    class Named(Tensor):
        pass

    tangent = training.Tangent(0, (1,), None)
    with pytest.raises(TypeError, match="Named"):
        tangent.laid_out(torch.ones(3).as_subclass(Named))


def test_retain_graph_works_twice_and_a_second_time_without_is_an_error() -> None:
    x, weight, bias = inputs()
    out, wanted = compiled(affine)(x, weight, bias).sum(), affine(x, weight, bias).sum()
    for retain in (True, True, False):
        ours = torch.autograd.grad(out, (weight, bias), retain_graph=retain)
        theirs = torch.autograd.grad(wanted, (weight, bias), retain_graph=retain)
        assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    twice = message(lambda: torch.autograd.grad(out, weight))
    assert twice == message(lambda: torch.autograd.grad(wanted, weight))
    assert "second time" in twice


def product(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sin()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("view", [False, True])
def test_an_input_written_before_the_backward_is_an_error(which: int, view: bool) -> None:
    def failure(fn: Function) -> str:
        bases = [torch.randn(6, 4), torch.randn(6, 4)]
        x, y = ((b[1:4] if view else b) for b in bases)
        out = fn(x * leaf(1, 4) if which else x, y if which else y * leaf(1, 4))
        with torch.no_grad():
            bases[which].add_(1)
        return message(lambda: out.sum().backward())

    text = failure(compiled(product))
    assert "modified by an inplace operation" in text
    assert "modified by an inplace operation" in failure(product)


def test_a_weight_written_before_the_backward_is_an_error(connected: list[training.Wiring]) -> None:
    def fn(x: Tensor, weight: Tensor) -> Tensor:
        return (x @ weight.t()).relu() @ weight.reshape(3, 4)

    def failure(run: Function) -> str:
        x, weight = leaf(5, 4), leaf(3, 4)
        out = run(x, weight)
        with torch.no_grad():
            weight.mul_(2)
        return message(lambda: out.sum().backward())

    assert "modified by an inplace operation" in failure(fn)
    assert "modified by an inplace operation" in failure(compiled(fn))
    assert connected


@pytest.mark.parametrize("shape", [(3, 4), (12,)])
def test_an_output_written_before_the_backward_is_an_error(shape: tuple[int, ...]) -> None:
    def fn(x: Tensor) -> Tensor:
        return x.exp().view(shape)

    def failure(run: Function) -> str:
        out = run(leaf(3, 4))
        loss = out.sum()
        with torch.no_grad():
            out.zero_()
        return message(loss.backward)

    assert "modified by an inplace operation" in failure(fn)
    assert "modified by an inplace operation" in failure(compiled(fn))


def test_an_output_written_in_place_on_the_tape() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return (x + y).reshape(-1)

    run, x, y = compiled(fn), leaf(3, 4), leaf(3, 4)
    results = []
    for f in (run, fn):
        results.append(torch.autograd.grad(f(x, y).mul_(3).square().sum(), (x, y)))
    assert all(same(a, b) for a, b in zip(*results, strict=True))


def test_hooks_on_saved_tensors_see_all_of_them(connected: list[training.Wiring]) -> None:
    packed: list[int] = []

    def pack(t: Tensor) -> tuple[int, Tensor]:
        packed.append(len(packed))
        return packed[-1], t.clone()

    unpacked: list[int] = []

    def unpack(kept: tuple[int, Tensor]) -> Tensor:
        unpacked.append(kept[0])
        return kept[1]

    x, weight, bias = inputs()
    run = compiled(affine)
    run(x, weight, bias)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = run(x, weight, bias)
    assert connected and packed and not unpacked
    out.sum().backward()
    assert unpacked == packed
    assert same(weight.grad, torch.autograd.grad(affine(x, weight, bias).sum(), weight)[0])


def sine_of_sums(x: Tensor) -> Tensor:
    """Compiled, it keeps for backward neither its input nor its output: the sums are the fewest bytes."""
    return x.sum(0).sin()


def test_what_is_kept_for_second_derivatives_keeps_no_memory() -> None:
    run = compiled(sine_of_sums)
    given = leaf(4, 3).cos()
    out = run(given)
    (kept,) = out.grad_fn.saved_tensors
    assert kept.shape == (3,) and kept is not out
    alive = weakref.ref(given.untyped_storage())
    del given
    gc.collect()
    assert alive() is None and out.requires_grad


def test_no_gradients_wanted_at_the_call() -> None:
    run = compiled(affine)
    x, weight, bias = inputs()
    assert run(x, weight, bias).requires_grad
    with torch.no_grad():
        out = run(x, weight, bias)
    assert not out.requires_grad
    assert torch.allclose(out, affine(x, weight, bias))
    with torch.inference_mode():
        assert not run(x, weight, bias).requires_grad


def test_an_input_that_no_gradient_reaches_is_cut_off() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return x * y.detach()

    x, y = leaf(3), leaf(3)
    held = y.exp()
    held.sum().backward()  # frees the tape of `held`
    out = compiled(fn)(x, held)
    out.sum().backward()
    assert same(x.grad, held.detach())


def test_batch_norm_buffers_are_updated_and_counted(connected: list[training.Wiring]) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    reference = copy.deepcopy(model)
    run = armature.compile(model, fullgraph=True)
    x = torch.randn(6, 4)
    for _ in range(2):
        for m, f in ((model, run), (reference, reference)):
            m.zero_grad()
            f(x).square().sum().backward()
    assert connected
    for a, b in zip(model.buffers(), reference.buffers(), strict=True):
        assert torch.allclose(a.float(), b.float(), atol=1e-6)
    assert model[1].running_mean._version > 0
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, atol=1e-4)


def test_autocast_is_off_inside_and_its_casts_are_kept() -> None:
    run = compiled(affine)
    x, weight, bias = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        out, wanted = run(x, weight, bias), affine(x, weight, bias)
        assert out.dtype == wanted.dtype
        assert torch.allclose(out.float(), wanted.float(), atol=1e-1)
    out.float().sum().backward()
    assert weight.grad.dtype == torch.float32


def test_a_backward_under_autocast_computes_what_was_traced() -> None:
    x, weight, bias = leaf(5, 4), leaf(4, 3), leaf(3)
    wanted = torch.autograd.grad(affine(x, weight, bias).square().sum(), (x, weight))
    loss = compiled(affine)(x, weight, bias).square().sum()
    with torch.autocast("cpu", torch.bfloat16):
        ours = torch.autograd.grad(loss, (x, weight))
    assert all(same(a, b) for a, b in zip(ours, wanted, strict=True))


def test_a_backward_under_vmap_is_that_of_eager() -> None:
    x, weight, bias = inputs()
    rows = torch.eye(15).view(15, 5, 3)
    ours, wanted = (
        torch.autograd.grad(fn(x, weight, bias), weight, rows, is_grads_batched=True)[0]
        for fn in (compiled(affine), affine)
    )
    assert torch.allclose(ours, wanted, atol=1e-6)


ALIASING: dict[str, Function] = {
    "an output that is an input": lambda x, y: (x, x * y),
    "an output that is a view of an input": lambda x, y: (x.t(), x * y),
    "outputs that share memory": lambda x, y: (lambda z: (z, z.t()))(x * y),
    "an output twice": lambda x, y: (lambda z: (z, z))(x * y),
    "an input that is written": lambda x, y: (y.add_(1), x * y)[1],
}
VIEWS = ("an output that is a view of an input", "outputs that share memory")


@pytest.mark.parametrize("what", ALIASING)
def test_aliases_and_writes_are_those_of_eager(connected: list[training.Wiring], what: str) -> None:
    fn = ALIASING[what]
    x, y = leaf(3, 3), torch.randn(3, 3)
    ours, theirs = compiled(fn)(x, y.clone()), fn(x, y.clone())
    pairs = list(zip(ours, theirs, strict=True)) if isinstance(ours, tuple) else [(ours, theirs)]
    assert all(torch.allclose(a, b) and a.requires_grad == b.requires_grad for a, b in pairs)
    loss, wanted = (sum(pair[k].square().sum() for pair in pairs) for k in (0, 1))
    for retain in (True, False):
        ours = torch.autograd.grad(loss, x, retain_graph=retain)
        assert same(ours[0], torch.autograd.grad(wanted, x, retain_graph=retain)[0])
    if what in VIEWS:
        assert connected  # the views are taken of what the graph gives


def test_two_equal_outputs_are_two_tensors() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x * 2

    x = leaf(3)
    a, b = compiled(fn)(x)
    assert a is not b
    (a.sum() + 3 * b.sum()).backward()
    assert torch.allclose(x.grad, torch.full((3,), 8.0))


def test_outputs_do_not_keep_themselves_alive() -> None:
    def alive(fn: Function) -> bool:
        out = fn(leaf(3, 4))
        seen = weakref.ref(out)
        del out
        return seen() is not None

    gc.disable()
    try:
        for fn in (lambda x: x.exp(), lambda x: x.exp().view(-1), lambda x: x.sigmoid().t() * 2):
            run = compiled(fn)
            assert [alive(run) for _ in range(2)][-1] is False
    finally:
        gc.enable()


def test_a_conjugated_view_that_is_saved_keeps_its_values() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return x.conj() * y

    x, y = (torch.randn(3, 4, dtype=torch.complex64, requires_grad=True) for _ in range(2))
    ours, theirs = (torch.autograd.grad(f(x, y).abs().sum(), (x, y)) for f in (compiled(fn), fn))
    assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_result_requires_gradients_that_reach_no_input() -> None:
    """As of `norm(x, 0)`, which counts: its derivative is nothing."""

    def counts(x: Tensor) -> Tensor:
        return torch.norm(x, 0)

    x = torch.tensor([0.0, 2.0, 3.0], requires_grad=True)
    found = armature.compile(counts)(x)
    assert found.requires_grad == counts(x).requires_grad
    assert found.item() == 2
    found.backward()


@pytest.mark.parametrize("gradients", [False, True])
def test_operators_without_a_result_are_part_of_the_graph(gradients: bool) -> None:
    """Such as the check of the classes in `one_hot`."""

    def fn(x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        torch._assert_async((x > -9).all(), "too small")
        return x.sin(), F.one_hot(classes, 5)

    x, classes = torch.ones(3, requires_grad=gradients), torch.tensor([1, 4])
    run = armature.compile(fn, fullgraph=True)
    assert all(same(a, b) for a, b in zip(run(x, classes), fn(x, classes), strict=True))
    with pytest.raises(RuntimeError, match="too small"):
        run(x - 20, classes)
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        run(x, classes + 1)
    with pytest.raises(RuntimeError, match="must be non-negative"):
        run(x, classes - 2)
