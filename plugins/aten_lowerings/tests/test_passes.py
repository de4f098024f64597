"""The passes over ATen graphs: what they change, and that results stay eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn

import armature
from armature.pipeline.session import session
from armature.plugin_api import Pass, hookimpl
from armature.plugins import manager
from armature_aten_lowerings.passes import move_bias_after

aten = torch.ops.aten


def operators(fn: Callable[..., Tensor], *inputs: Tensor) -> list[object]:
    """The operators of the ATen graph after all passes; checks the result on the way."""
    armature.reset()
    with torch.no_grad():
        torch.testing.assert_close(armature.compile(fn, fullgraph=True)(*inputs), fn(*inputs))
    [graph] = session().compilations[-1].graphs
    return [n.target for n in graph.aten.module.graph.nodes if n.op == "call_function"]


def linear(rows: int = 6, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(rows, 5, dtype=dtype), torch.randn(7, 5, dtype=dtype), torch.randn(7, dtype=dtype)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, b: nn.functional.linear(x, w, b).relu(),
        lambda x, w, b: nn.functional.gelu(nn.functional.linear(x[None], w, b)),
        lambda x, w, b: nn.functional.linear(x, w, b).sum(0),
        lambda x, w, b: nn.functional.linear(x, w, b).view(3, 2, 7).transpose(0, 1) + 1,
    ],
)
def test_a_bias_is_added_by_the_loops_that_follow(fn: Callable[..., Tensor]) -> None:
    found = operators(fn, *linear())
    assert aten.mm.default in found
    assert aten.addmm.default not in found


@pytest.mark.parametrize(
    ("fn", "dtype"),
    [
        (lambda x, w, b: nn.functional.linear(x, w, b), torch.float32),
        (lambda x, w, b: nn.functional.linear(nn.functional.linear(x, w, b), w.t()), torch.float32),
        (lambda x, w, b: nn.functional.linear(x, w, b).relu(), torch.bfloat16),
        (lambda x, w, b: torch.addmm(b, x, w.t(), beta=2).relu(), torch.float32),
    ],
    ids=["returned", "read by a product", "lower precision", "scaled"],
)
def test_a_bias_stays_where_it_is(fn: Callable[..., Tensor], dtype: torch.dtype) -> None:
    assert aten.addmm.default in operators(fn, *linear(dtype=dtype))


def test_common_values_are_computed_once() -> None:
    found = operators(lambda x: x.sin() + x.sin() * 2, torch.randn(5))
    assert found.count(aten.sin.default) == 1


def test_returned_values_stay_apart() -> None:
    x = torch.randn(5)
    first, second = armature.compile(lambda x: (x.sin(), x.sin()), fullgraph=True)(x)
    first.zero_()
    torch.testing.assert_close(second, x.sin())


NARROW: dict[str, Callable[[], tuple[Callable[..., Tensor], tuple[Tensor, ...]]]] = {
    "few columns": lambda: (torch.mm, (torch.randn(50, 70), torch.randn(10, 70).t())),
    "few rows": lambda: (torch.mm, (torch.randn(3, 70), torch.randn(40, 70).t())),
    "short sums": lambda: (torch.mm, (torch.randn(50, 10), torch.randn(10, 70))),
    "turned": lambda: (torch.mm, (torch.randn(50, 10).t(), torch.randn(50, 70))),
    "bias": lambda: (torch.addmm, (torch.randn(10), torch.randn(50, 70), torch.randn(10, 70).t())),
    "bias of rows": lambda: (torch.addmm, (torch.randn(50, 1), torch.randn(50, 70), torch.randn(10, 70).t())),
    "double": lambda: (torch.mm, (torch.randn(50, 10).double(), torch.randn(10, 70).double())),
    "followed": lambda: (lambda x, w: torch.mm(x, w).relu() + 1, (torch.randn(50, 10), torch.randn(10, 70))),
    "steps between": lambda: (torch.mm, (torch.randn(50, 20)[:, ::2], torch.randn(10, 70))),
}
PRODUCTS = (aten.mm.default, aten.addmm.default)


@pytest.mark.parametrize("case", NARROW)
def test_narrow_products_become_loops(case: str) -> None:
    fn, inputs = NARROW[case]()
    assert not set(operators(fn, *inputs)) & set(PRODUCTS)


WIDER: dict[str, Callable[[], tuple[Callable[..., Tensor], tuple[Tensor, ...]]]] = {
    "no narrow side": lambda: (torch.mm, (torch.randn(40, 50), torch.randn(50, 40))),
    "much work": lambda: (torch.mm, (torch.randn(600, 300), torch.randn(300, 10))),
    "no vectors": lambda: (torch.mm, (torch.randn(50, 70), torch.randn(70, 10))),
    "lower precision": lambda: (torch.mm, (torch.randn(50, 10).bfloat16(), torch.randn(10, 70).bfloat16())),
    "scaled": lambda: (
        lambda b, x, w: torch.addmm(b, x, w, alpha=2),
        (torch.randn(70), torch.randn(50, 10), torch.randn(10, 70)),
    ),
    "nothing": lambda: (torch.mm, (torch.randn(0, 10), torch.randn(10, 70))),
}


@pytest.mark.parametrize("case", WIDER)
def test_other_products_stay_the_librarys(case: str) -> None:
    fn, inputs = WIDER[case]()
    assert set(operators(fn, *inputs)) & set(PRODUCTS)


def test_products_of_unknown_sizes_stay_the_librarys() -> None:
    armature.reset()
    compiled = armature.compile(torch.mm, fullgraph=True, dynamic=True)
    x, w = torch.randn(50, 10), torch.randn(10, 70)
    torch.testing.assert_close(compiled(x, w), x @ w)
    [graph] = session().compilations[-1].graphs
    assert aten.mm.default in [node.target for node in graph.aten.module.graph.nodes]


VECTORS = (aten.mv.default, aten.addmv.default, aten.dot.default, aten.vdot.default)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_products_with_vectors_are_loops(dtype: torch.dtype) -> None:
    def program(a: Tensor, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return a @ x + z, a.t() @ y, torch.addmv(z, a, x), torch.dot(x, x), torch.vdot(z, z), torch.inner(y, y)

    a, x, y, z = (torch.randint(-9, 9, shape).to(dtype) for shape in ((50, 40), (40,), (50,), (50,)))
    armature.reset()
    compiled = armature.compile(program, fullgraph=True)
    for given in ((a, x, y, z), (a.t().contiguous().t(), x, y, z)):
        for found, expected in zip(compiled(*given), program(*given), strict=True):
            torch.testing.assert_close(found, expected)
    assert session().totals().extern == 0


@pytest.mark.parametrize("beta", [0, 1, 3])
@pytest.mark.parametrize("alpha", [1, 2])
def test_scaled_products_with_vectors(alpha: int, beta: int) -> None:
    z, a, x = torch.randn(9), torch.randn(9, 40), torch.randn(40)
    z[0] = torch.nan

    def program(z: Tensor, a: Tensor, x: Tensor) -> Tensor:
        return torch.addmv(z, a, x, alpha=alpha, beta=beta)

    armature.reset()
    torch.testing.assert_close(
        armature.compile(program, fullgraph=True)(z, a, x), program(z, a, x), equal_nan=True, rtol=1e-5, atol=1e-5
    )
    assert session().totals().extern == 0


@pytest.mark.parametrize("alpha, beta", [(3.9, 2.7), (0.6, 0.2), (2, 0.5)])
def test_products_of_integers_drop_the_fractions_of_factors(alpha: float, beta: float) -> None:
    z, a, x = (torch.randint(-9, 9, shape) for shape in ((9,), (9, 40), (40,)))

    def program(z: Tensor, a: Tensor, x: Tensor) -> Tensor:
        return torch.addmv(z, a, x, alpha=alpha, beta=beta)

    armature.reset()
    torch.testing.assert_close(armature.compile(program, fullgraph=True)(z, a, x), program(z, a, x))
    assert session().totals().extern == 0


def test_gradients_of_products_with_vectors() -> None:
    a, x = torch.randn(50, 40, requires_grad=True), torch.randn(40, requires_grad=True)

    def program(a: Tensor, x: Tensor) -> Tensor:
        return torch.dot((a @ x).sin(), a @ x)

    armature.reset()
    found = torch.autograd.grad(armature.compile(program, fullgraph=True)(a, x), (a, x))
    for ours, theirs in zip(found, torch.autograd.grad(program(a, x), (a, x)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert session().totals().extern == 0


LONGER = {
    "many numbers": lambda: (torch.dot, (torch.randn(1 << 17), torch.randn(1 << 17))),
    "a large matrix": lambda: (torch.mv, (torch.randn(1000, 1000), torch.randn(1000))),
    "lower precision": lambda: (torch.mv, (torch.randn(9, 40).bfloat16(), torch.randn(40).bfloat16())),
}  # fmt: skip


@pytest.mark.parametrize("case", LONGER)
def test_other_products_with_vectors_stay_the_librarys(case: str) -> None:
    fn, inputs = LONGER[case]()
    assert set(operators(fn, *inputs)) & set(VECTORS)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_convolutions_bias_is_added_behind_it(layout: torch.memory_format) -> None:
    """As on a GPU, where the pass runs; the graph itself is the same on a CPU."""

    class Move:
        @hookimpl
        def armature_passes(self) -> list[Pass]:
            return [Pass("move", "post_grad", self.run)]

        def run(self, module: fx.GraphModule, ctx: object) -> fx.GraphModule:
            for node in module.graph.find_nodes(op="call_function", target=aten.convolution.default):
                move_bias_after(node)
            return module

    with manager().registered(Move(), "move"):
        model = nn.Conv2d(3, 4, 3).to(memory_format=layout)
        found = operators(lambda x: model(x).relu(), torch.randn(2, 3, 8, 8).to(memory_format=layout))
    assert found.index(aten.convolution.default) < found.index(aten.add.Tensor) < found.index(aten.relu.default)
