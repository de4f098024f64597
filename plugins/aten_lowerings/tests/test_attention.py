"""Attention written out becomes one operator, with eager's results and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.pipeline.session import session
from armature_aten_lowerings.attention_kernels import KERNELS, ON_CPU
from armature_aten_lowerings.einsums import Axes, axes_of

L = 260
ALIKE = attrs.evolve(ON_CPU, least=dict.fromkeys(ON_CPU.least, 1 << 19))
Scores = Callable[[Tensor, Tensor], Tensor]

SHOWN: dict[str, Scores] = {
    "no mask": lambda s, m: s,
    "filled": lambda s, m: s.masked_fill(m, float("-inf")),
    "filled by keyword": lambda s, m: torch.masked_fill(s, mask=m, value=-1e9),
    "chosen": lambda s, m: torch.where(~m, s, float("-inf")),
    "added": lambda s, m: torch.zeros(m.shape).masked_fill(m, float("-inf")) + s,
    "causal": lambda s, m: s.masked_fill(torch.ones(L, L, dtype=torch.bool).triu(1), float("-inf")),
}
SCALED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "divided": lambda q, k: q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]),
    "multiplied": lambda q, k: torch.matmul(q, k.mT).mul(0.3),
    "query": lambda q, k: (q * 0.3) @ k.transpose(2, 3),
    "by a tensor": lambda q, k: (q @ k.swapaxes(-1, -2)) / torch.full([], 4.0),
}
WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda s: s.softmax(-1),
    "nothing dropped": lambda s: F.dropout(torch.softmax(s, dim=3), p=0.5, training=False),
    "in float32": lambda s: F.softmax(s, dim=-1, dtype=torch.float32).to(s.dtype),
}


def fused() -> list[str]:
    graphs = [g.aten.module.graph for g in session().compilations[-1].graphs]
    return [str(n.target) for graph in graphs for n in graph.nodes if "scaled_dot_product" in str(n.target)]


def given(training: bool = False, heads: int = 4, length: int = L) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    shape = (2, length, heads * 16) if training else (2, heads, length, 16)
    q, k, v = (torch.randn(shape, requires_grad=training) for _ in range(3))
    return q, k, v, torch.rand(1, 1, length, length) > 0.6


def results(program: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The result and the gradients of what needs some."""
    found = program(*inputs)
    leaves = [x for x in inputs if x.requires_grad]
    if not leaves:
        return [found]
    weights = torch.linspace(-1, 1, found.numel()).view(found.shape)
    return [found.detach(), *torch.autograd.grad((found * weights).sum(), leaves)]


def check(program: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
    armature.reset()
    expected = results(program, inputs)
    found = results(armature.compile(program, fullgraph=True), inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert [x.stride() for x in found] == [x.stride() for x in expected]


@pytest.mark.parametrize("blind", [False, True], ids=["", "a query sees nothing"])
@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("mask", SHOWN)
def test_masks(mask: str, training: bool, blind: bool) -> None:
    def program(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        if training:
            q, k, v = (F.linear(x, torch.eye(64)).view(2, L, 4, 16).transpose(1, 2) for x in (q, k, v))
        return SHOWN[mask](q @ k.transpose(-2, -1) / 4, m).softmax(-1) @ v

    inputs = given(training)
    inputs[-1][..., 3, :] |= blind
    check(program, inputs)
    assert len(fused()) == 1 + training


@pytest.mark.parametrize("blind", [False, True], ids=["", "a query sees nothing"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", ["filled", "chosen", "added"])
def test_masks_in_16_bits(mask: str, dtype: torch.dtype, blind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "cpu", ALIKE)

    def program(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) / 4
        if mask == "added":
            scores = scores + torch.zeros(m.shape, dtype=dtype).masked_fill(m, float("-inf"))
        else:
            scores = SHOWN[mask](scores, m)
        return scores.softmax(-1) @ v

    q, k, v, m = given()
    m[..., 3, :] |= blind
    armature.reset()
    found = armature.compile(program, fullgraph=True)(*(x.to(dtype) for x in (q, k, v)), m)
    assert found.dtype is dtype and len(fused()) == 1
    exact = program(*(x.to(dtype).to(torch.float64) for x in (q, k, v)), m).to(dtype)
    torch.testing.assert_close(found, exact, rtol=0.02, atol=0.01, equal_nan=True)


@pytest.mark.parametrize("scale", SCALED)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_ways_to_write_it(scale: str, weights: str) -> None:
    check(lambda q, k, v, m: WEIGHTS[weights](SCALED[scale](q, k)) @ v, given())
    assert len(fused()) == 1


def test_batches_of_one_axis() -> None:
    def program(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        return torch.bmm((torch.bmm(q, k.transpose(1, 2)) * 0.25).masked_fill(m, -1e9).softmax(2), v)

    q, k, v, _ = given()
    check(program, (*(x.reshape(8, L, 16) for x in (q, k, v)), torch.rand(8, L, L) > 0.6))
    assert len(fused()) == 1


EINSUMS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "by heads": ("bhid,bhjd->bhij", "bhij,bhjd->bhid", (0, 1, 2, 3)),
    "by positions": ("bthd,bshd->bhts", "bhts, bshd -> bthd", (0, 2, 1, 3)),
    "keys first": ("bshd,bthd->bhts", "bhts,bshd->bthd", (0, 2, 1, 3)),
    "keys transposed": ("bhid,bhdj->bhij", "bhij,bhjd->bhid", (0, 1, 2, 3)),
    "heads as batches": ("nld,nmd->nlm", "nlm,nmd->nld", (0, 1, 2, 3)),
}


@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("kind", EINSUMS)
def test_einsums(kind: str, training: bool) -> None:
    products, mixes, order = EINSUMS[kind]

    def program(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        if training:
            q, k, v = (F.linear(x, torch.eye(64)).view(2, L, 4, 16).transpose(1, 2) for x in (q, k, v))
        q, k, v = (x.permute(order) for x in (q, k, v))
        if kind == "heads as batches":
            q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        first = (k, q) if kind == "keys first" else (q, k.mT) if kind == "keys transposed" else (q, k)
        return torch.einsum(mixes, (torch.einsum(products, *first) * 0.25).softmax(-1), v)

    check(program, given(training))
    assert len(fused()) == 1 + training


@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("heads", [1, 8])
def test_einsums_of_one_batch(heads: int, training: bool) -> None:
    """As lucidrains writes them."""

    def attend(x: Tensor, weight: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (heads, 16)).transpose(1, 2) for part in F.linear(x, weight).chunk(3, dim=-1))
        scores = torch.einsum("b h i d, b h j d -> b h i j", q * 0.25, k)
        mixed = torch.einsum("b h i j, b h j d -> b h i d", scores.softmax(dim=-1), v)
        return mixed.transpose(1, 2).flatten(2)

    weight = torch.randn(3 * heads * 16, 16).requires_grad_(training)
    check(attend, (torch.randn(1, 800, 16) / 4, weight))
    assert len(fused()) == 1 + training


@pytest.mark.parametrize(
    "equation", ["bhid,bhjd->bijh", "bhid,bhjd->bhji", "bhid,bhjd->hij", "bhid,hjd->bhij", "bhid,bhid->bhi"]
)
def test_other_einsums_are_as_they_were(equation: str) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum(equation, x, y).softmax(-1)

    x = torch.randn(2, 4, L, 16)
    inputs = (x.requires_grad_(), (x[0] if ",hjd" in equation else x).detach().requires_grad_())
    check(program, inputs)
    assert not fused()


@pytest.mark.parametrize(
    ("equation", "axes"),
    [
        ("bhid,bhjd->bhij", ((0, 1, 2, 3), (0, 1, 3, 2), (0, 1, 2, 3))),
        ("bthd,bshd->bhts", ((0, 2, 1, 3), (0, 2, 3, 1), (0, 1, 2, 3))),
        ("bhts, bshd -> bthd", ((0, 1, 2, 3), (0, 2, 1, 3), (0, 2, 1, 3))),
        ("bshd,bthd->bhts", ((0, 2, 1, 3), (0, 2, 3, 1), (0, 1, 2, 3), True)),
        ("id,jd->ij", None),  # no batch
        ("bhgid,bhjd->bhgij", ((0, 1, 2, 3, 4), (0, 1, 3, 2), (0, 1, 2, 3, 4), False, True)),
        ("bgrsid,bgjd->bgrsij", None),  # three axes of rows
        ("bhid,bhid->bhi", None),
        ("bhii,bhij->bhij", None),
        ("...id,...jd->...ij", None),
        ("bhid,bhjd", None),
    ],
)
def test_axes_of_equations(equation: str, axes: Any) -> None:
    assert axes_of(equation) == (None if axes is None else Axes(*axes))


def test_a_mask_that_is_causal_becomes_a_flag() -> None:
    check(lambda q, k, v, m: SHOWN["causal"](q @ k.transpose(-2, -1), m).softmax(-1) @ v, given())
    [graph] = session().compilations[-1].graphs
    [node] = [n for n in graph.aten.module.graph.nodes if "scaled_dot_product" in str(n.target)]
    assert node.args[4] is True


def written(s: Tensor) -> Tensor:
    s += 1
    return s


STAYS: dict[str, Callable[..., Tensor | tuple[Tensor, ...]]] = {
    "weights are returned": lambda q, k, v, m: ((w := (q @ k.mT).softmax(-1)) @ v) + w.sum(),
    "another axis": lambda q, k, v, m: (q @ k.mT).softmax(-2) @ v,
    "scores written to": lambda q, k, v, m: written(q @ k.mT).softmax(-1) @ v,
    "a small fill": lambda q, k, v, m: (q @ k.mT).masked_fill(m, -10.0).softmax(-1) @ v,
    "a scale that is computed": lambda q, k, v, m: ((q @ k.mT) * v.mean()).softmax(-1) @ v,
    "a wider value": lambda q, k, v, m: (q @ k.mT).softmax(-1) @ torch.cat((v, v), -1),
}


def test_gradients_that_would_lie_otherwise_stay() -> None:
    q, k, v, _ = given()
    check(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, (q.requires_grad_(), k, v))
    assert fused() == []


@pytest.mark.parametrize("case", STAYS)
def test_what_stays_as_it_is(case: str) -> None:
    check(STAYS[case], given())
    assert fused() == []


def test_few_scores_stay_loops() -> None:
    check(lambda q, k, v, m: (q @ k.mT).softmax(-1) @ v, given(length=32))
    assert fused() == []


def test_a_bias_that_learns_stays() -> None:
    bias = torch.randn(4, L, L, requires_grad=True)
    q, k, v, _ = given()
    check(lambda q, k, v, b: (q @ k.mT + b).softmax(-1) @ v, (q, k, v, bias))
    assert fused() == []


def test_dropout_keeps_its_random_numbers() -> None:
    q, k, v, _ = given()
    program = lambda q, k, v: F.dropout((q @ k.mT).softmax(-1), 0.3) @ v  # noqa: E731
    armature.reset()
    torch.manual_seed(3)
    expected = program(q, k, v)
    torch.manual_seed(3)
    torch.testing.assert_close(armature.compile(program, fullgraph=True)(q, k, v), expected)
    assert fused() == []


def test_autocast_stays() -> None:
    """Its softmax is computed in float32, of products in bfloat16."""

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with torch.autocast("cpu"):
            return (q @ k.mT).softmax(-1) @ v

    q, k, v, _ = given()
    armature.reset()
    torch.testing.assert_close(
        armature.compile(program, fullgraph=True)(q, k, v), program(q, k, v), rtol=0.05, atol=0.05
    )


@pytest.mark.parametrize("training", [False, True])
def test_one_head_of_one_sequence(training: bool) -> None:
    """Along axes of one element, steps of the operator's result are others than those of the program's."""

    def attend(x: Tensor, w: Tensor) -> Tensor:
        q, k, v = (x @ w).reshape(1, 1024, 3, 1, 16).transpose(1, 3).unbind(dim=2)
        return torch.matmul(torch.matmul(q * 0.3, k.transpose(2, 3)).softmax(-1), v) + q

    x, w = torch.randn(1, 1024, 16), torch.randn(16, 48, requires_grad=training)
    for got, want in zip(
        results(armature.compile(attend, fullgraph=True), (x, w)), results(attend, (x, w)), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=2e-5 * float(want.abs().max()))
    assert training or fused()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_in_inference_never_has_all_scores(dtype: torch.dtype, bias: bool) -> None:
    armature.reset()
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(32, 4, bias=bias, batch_first=True, dtype=dtype).eval()
    x = torch.randn(2, 24, 32, dtype=dtype)

    def attend(x: Tensor) -> Tensor:
        return layer(x * 2, x * 2, x * 2, need_weights=False)[0]

    def itself(x: Tensor) -> Tensor:
        y = x * 2
        return layer(y, y, y, need_weights=False)[0]

    with torch.no_grad():
        for program in (itself, attend):
            expected, found = program(x), armature.compile(program, fullgraph=True)(x)
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride()


@pytest.mark.parametrize("needed", ["weights", "mask"])
def test_multi_head_attention_that_needs_scores_or_a_mask_stays_atens(needed: str) -> None:
    armature.reset()
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval()
    x, mask = torch.randn(2, 24, 32), torch.rand(2, 24) < 0.3
    mask[:, 0] = False

    def attend(x: Tensor) -> tuple[Tensor, Tensor | None]:
        return layer(x, x, x, need_weights=needed == "weights", key_padding_mask=mask if needed == "mask" else None)

    with torch.no_grad():
        torch.testing.assert_close(armature.compile(attend, fullgraph=True)(x), attend(x))


def test_a_result_of_an_operator_that_nobody_reads_is_freed_after_its_call() -> None:
    armature.reset()

    def largest(x: Tensor) -> Tensor:
        return torch.sort(x)[0].matmul(x.t())

    x = torch.randn(64, 64)
    compiled = armature.compile(largest, fullgraph=True)
    torch.testing.assert_close(compiled(x), largest(x))
    lines = [line.strip() for line in session().compilations[-1].graphs[-1].program.wrapper.splitlines()]
    [call] = [k for k, line in enumerate(lines) if ", _) = " in line]
    assert any(line.startswith("del ") and "_" in line.removeprefix("del ").split(", ") for line in lines[call + 1 :])


@pytest.mark.parametrize("chance", [0.0, 0.5])
def test_the_generators_state_is_saved_where_attention_draws(chance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that may raise, here because of an index, saves what it may change. That takes 5 KB."""
    armature.reset()
    table, places = torch.randn(8, 2, 16, 8), torch.tensor([1, 3])

    def attend(places: Tensor) -> Tensor:
        rows = table[places]
        return F.scaled_dot_product_attention(rows, rows, rows, dropout_p=chance)

    compiled = armature.compile(attend, fullgraph=True)
    with torch.no_grad():
        compiled(places)
        saved: list[int] = []
        state = torch.get_rng_state
        monkeypatch.setattr(torch, "get_rng_state", lambda: saved.append(1) or state())
        found = compiled(places)
    assert len(saved) == (chance > 0)
    if not chance:
        torch.testing.assert_close(found, attend(places))
