"""What hangs on constants alone: computed once, with eager's values, and never written to."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import armature
from armature.pipeline.session import session

Program = Callable[[Tensor], object]


def targets(fn: Program, x: Tensor, **options: object) -> list[str]:
    """What the graph calls, and the constants it has; checks two calls on the way."""
    armature.reset()
    run = armature.compile(fn, fullgraph=True, **options)
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(run(x), fn(x))
    [graph] = session().compilations[-1].graphs
    nodes = graph.aten.module.graph.nodes
    return ["constant" if n.op == "get_attr" else str(n.target) for n in nodes if n.op in ("get_attr", "call_function")]


def positions(x: Tensor) -> Tensor:
    place = torch.arange(8).float()[:, None]
    step = torch.exp(torch.arange(0, 16, 2).float() * (-9.2 / 16))
    table = torch.zeros(8, 16)
    table[:, 0::2] = torch.sin(place * step)
    table[:, 1::2] = torch.cos(place * step)
    return x + table


def rotary(x: Tensor) -> Tensor:
    steps = 1 / (10000 ** (torch.arange(0, 16, 2).float() / 16))
    angles = torch.outer(torch.arange(8).float(), steps)
    angles = torch.cat([angles, angles], -1)
    left, right = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-right, left], -1) * angles.sin()


def windows(x: Tensor) -> Tensor:
    """Which windows of a shifted image may see each other, as Swin writes it."""
    number = torch.zeros(1, 8, 8, 1)
    parts = (slice(0, -4), slice(-4, -2), slice(-2, None))
    for at, (rows, columns) in enumerate(itertools.product(parts, parts)):
        number[:, rows, columns, :] = at
    number = number.view(1, 2, 4, 2, 4, 1).transpose(2, 3).reshape(-1, 16)
    apart = number.unsqueeze(1) - number.unsqueeze(2)
    return x @ x.mT + apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)[:, :8, :8]


def numbers_in_parts(x: Tensor) -> Tensor:
    y = x * 2
    y[0], y[:, 1:3], y[..., 0] = 1, -0.5, True
    return y


def products(x: Tensor) -> Tensor:
    return x @ (torch.eye(16) * 2 @ torch.ones(16, 16)).t()


def test_tables_of_constants_are_computed_once() -> None:
    x = torch.randn(4, 8, 16)
    assert targets(positions, x) == ["constant", "aten.add.Tensor"]
    found = targets(rotary, x)
    assert found.count("constant") == 2 and not {"aten.cos.default", "aten.pow.Scalar"} & set(found)
    found = targets(windows, x)
    assert found.count("constant") == 1 and not any("fill" in name or "scatter" in name for name in found)
    assert targets(products, x).count("aten.mm.default") == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_parts_are_filled_with_numbers(dtype: torch.dtype) -> None:
    x = torch.randn(4, 8, 16).to(dtype)
    found = targets(numbers_in_parts, x)
    assert "constant" not in found and "aten.fill.Tensor" not in found
    assert session().totals().extern == 0


def written(x: Tensor) -> Tensor:
    table = torch.arange(16.0).cumsum(0)
    table += x[0, 0]
    return table


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x + 1, torch.arange(16.0).cumsum(0)),
        lambda x: x + torch.linspace(0, 1, 16).cos().expand(4096, 8, 16).contiguous().cumsum(0)[:4],
        lambda x: x.masked_fill(torch.ones(16, 16).tril()[:8] == 0, 0),
        lambda x: x.sum(0).sin() + torch.empty(8, 16).sin().cumsum(0) * 0,
    ],
    ids=["returned", "large", "cheap", "not set"],
)
def test_others_are_computed_in_each_call(fn: Program) -> None:
    x = torch.randn(4, 8, 16)
    armature.reset()
    with torch.no_grad():
        armature.compile(fn, fullgraph=True)(x)
    [graph] = session().compilations[-1].graphs
    held = list(graph.aten.module.graph.find_nodes(op="get_attr"))
    assert all(getattr(graph.aten.module, n.target).numel() == 16 for n in held)
    assert len(held) <= 1


def test_a_constant_is_not_written_to() -> None:
    assert "constant" in targets(written, torch.randn(4, 8, 16))


def test_random_numbers_are_drawn_anew() -> None:
    run = armature.compile(lambda x: x + torch.rand(8, 16).cumsum(0), fullgraph=True)
    x = torch.zeros(8, 16)
    assert not torch.equal(run(x), run(x))


def test_sizes_that_change_are_no_constants() -> None:
    run = armature.compile(lambda x: x + torch.arange(x.shape[0]).cumsum(0), fullgraph=True, dynamic=True)
    for size in (3, 5):
        assert torch.equal(run(torch.zeros(size)), torch.arange(size).cumsum(0).float())


def test_gradients_with_constants() -> None:
    x, y = (torch.linspace(-1, 1, 512).view(4, 8, 16).requires_grad_() for _ in range(2))
    armature.compile(rotary, fullgraph=True)(x).square().sum().backward()
    rotary(y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_in_inference_mode() -> None:
    x = torch.randn(4, 8, 16)
    with torch.inference_mode():
        torch.testing.assert_close(armature.compile(rotary, fullgraph=True)(x), rotary(x))
    torch.testing.assert_close(armature.compile(rotary, fullgraph=True)(x), rotary(x))


@pytest.mark.parametrize("number", [torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_tensors_are_filled_with_an_element_of_another(dtype: torch.dtype, number: torch.dtype) -> None:
    armature.reset()
    x, value = torch.zeros(3, 4, dtype=dtype), torch.tensor(2.7).to(number)

    def filled(x: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return torch.fill(x, value), x.clone().fill_(value)

    torch.testing.assert_close(armature.compile(filled, fullgraph=True)(x, value), filled(x, value), rtol=0, atol=0)
    assert session().totals().extern == 0
