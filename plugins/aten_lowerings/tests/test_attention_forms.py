"""Ways in which libraries write attention: found where the operator computes the same, left alone where it does not.

Results in double precision may differ by twice as much as from eager mode's, since both round sums in other orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.pipeline.session import session
from armature_aten_lowerings.attention_kernels import KERNELS, ON_CPU

B, H, L, D = 2, 4, 260, 16
F32 = torch.float32
INF = math.inf
ALIKE = attrs.evolve(ON_CPU, least=dict.fromkeys(ON_CPU.least, 1 << 19))
Attention = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def causal() -> Tensor:
    return torch.ones(L, L, dtype=torch.bool).triu(1)


def llama(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(2, 3)) * D**-0.5
    scores = scores + additive(m, q.dtype)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(F.dropout(weights, p=0.0, training=True), v)


def t5(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(3, 2))
    scores += alibi.view(B, H, 1, L) + additive(m, q.dtype)
    weights = F.softmax(scores.float(), dim=-1).type_as(scores)
    return torch.matmul(F.dropout(weights, p=0.1, training=False), v)


def bloom(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    flat = (x.reshape(B * H, L, D) for x in (q, k))
    scores = alibi.baddbmm(batch1=next(flat), batch2=next(flat).mT, beta=1.0, alpha=D**-0.5)
    weights = F.softmax(scores.view(B, H, L, L) + additive(m, q.dtype), dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.bmm(weights.view(B * H, L, L), v.reshape(B * H, L, D)).view(B, H, L, D)


def falcon(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    scores = (q @ k.transpose(-1, -2)).view(B, H, L, -1)
    scores = scores + alibi.view(B, H, 1, -1)
    scores *= 1 / math.sqrt(D)
    return (F.softmax(scores + additive(m, q.dtype), dim=-1, dtype=q.dtype).view(B, H, L, L) @ v).flatten(0, 1)


def gpt2(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    scores = q @ k.mT / torch.full([], D**0.5, dtype=q.dtype)
    least = torch.full([], torch.finfo(q.dtype).min, dtype=q.dtype)
    scores = torch.where(~causal(), scores, least)
    return F.softmax(scores + additive(m, q.dtype), dim=-1).type(v.dtype) @ v


def scratch(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    flat = [x.reshape(B * H, L, D) for x in (q, k, v)]
    empty = torch.empty(B * H, L, L, dtype=q.dtype)
    scores = torch.baddbmm(empty, flat[0], flat[1].mT, beta=0, alpha=0.25)
    return torch.bmm(scores.softmax(dim=-1).to(q.dtype), flat[2])


def fairseq(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    q, k, v = (x.reshape(B * H, L, D) for x in (q * 0.25, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)).view(B, H, L, L).masked_fill(m.to(torch.bool), -INF)
    scores = scores.view(B * H, L, L) + torch.zeros(L, L, dtype=q.dtype).masked_fill(causal(), -INF).unsqueeze(0)
    return torch.bmm(F.softmax(scores, dim=-1, dtype=torch.float32).type_as(q), v)


def shared(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    """The keys and values of one head, for queries of several."""
    weights = (q @ k[:, :1].mT).masked_fill(m, -INF).softmax(-1)
    return weights @ v[:, 1:2]


def shared_by_einsum(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    scores = torch.einsum("b h i d, b j d -> b h i j", q * 0.25, k[:, 0]).masked_fill(m, -INF)
    return torch.einsum("b h i j, b j d -> b h i d", scores.softmax(dim=-1, dtype=F32).type(q.dtype), v[:, 1])


def grouped(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    """Two groups of queries for each head of keys, in five axes, which are broadcast."""
    q = q.view(B, H // 2, 2, L, D)
    scores = torch.matmul(q, k[:, ::2].unsqueeze(2).transpose(-1, -2)) * 0.25
    weights = torch.where(m.unsqueeze(2), -INF, scores).softmax(-1)
    return torch.matmul(weights, v[:, ::2].unsqueeze(2)).view(B, H, L, D)


def grouped_by_einsum(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    q = q.unflatten(1, (H // 2, 2))
    scores = torch.einsum("bhgid,bhjd->bhgij", q * 0.25, k[:, ::2])
    scores = scores + additive(m, q.dtype).unsqueeze(1) + alibi.view(B, H // 2, 2, 1, L)
    return torch.einsum("bhgij,bhjd->bhgid", scores.softmax(-1).to(v.dtype), v[:, ::2]).flatten(1, 2)


def learned(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    """The same queries for each batch."""
    return ((q[0] @ k.mT) * 0.25).softmax(-1) @ v


def gptj(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    """Queries and keys are cast for the product, in GPT-Neo and CodeGen too."""
    scores = torch.matmul(q.to(F32), k.to(F32).transpose(-1, -2)) / D**0.5
    weights = F.softmax(scores + additive(m, q.dtype), dim=-1)
    return torch.matmul(weights.to(v.dtype), v)


def gptneo(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    scores = torch.matmul(q.to(F32), k.to(F32).transpose(-1, -2))
    least = torch.tensor(torch.finfo(scores.dtype).min, dtype=scores.dtype)
    scores = torch.where(~causal(), scores, least) + additive(m, q.dtype)
    return torch.matmul(F.softmax(scores, dim=-1).to(v.dtype), v)


def nanogpt(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    """In minGPT too."""
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    scores = scores.masked_fill(torch.tril(torch.ones(L, L)).view(1, 1, L, L)[:, :, :L, :L] == 0, -INF)
    return F.dropout(F.softmax(scores, dim=-1), 0.1, training=False) @ v


def timm(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    """Without fused attention."""
    q = q * D**-0.5
    return F.dropout((q @ k.transpose(-2, -1)).softmax(dim=-1), 0.0, training=True) @ v


def whisper(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    """OpenAI's: both are scaled, and scores cast."""
    scores = (q * D**-0.25) @ (k * D**-0.25).transpose(-1, -2) + additive(causal(), q.dtype)[:L, :L]
    return F.softmax(scores.float(), dim=-1).to(q.dtype) @ v


def espnet(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
    """Weights are set to zero where scores have been hidden, in WeNet and NeMo too."""
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D)
    weights = torch.softmax(scores.masked_fill(m, torch.finfo(scores.dtype).min), dim=-1).masked_fill(m, 0.0)
    return torch.matmul(weights, v)


def additive(m: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers to add; in double precision those of float32, in which some forms compute weights."""
    return torch.zeros(m.shape, dtype=dtype).masked_fill(m, max(torch.finfo(dtype).min, torch.finfo(F32).min))


def low(x: Tensor) -> float:
    return -1e9 if torch.finfo(x.dtype).max > 1e9 else -INF


def of_scores(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Attention:
    """Attention with some change of its scores: by a mask and what is added to each head's."""
    return lambda q, k, v, m, alibi: change(q @ k.mT, m, alibi.view(B, H, 1, L)).softmax(-1).to(v.dtype) @ v


def by_hand(s: Tensor) -> Tensor:
    e = torch.exp(s - s.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)


def by_amax(s: Tensor) -> Tensor:
    e = (s - s.amax(-1, keepdim=True).detach()).exp()
    return torch.div(e, torch.sum(e, 3, keepdim=True))


def in_place(s: Tensor, m: Tensor, a: Tensor) -> Tensor:
    s *= 0.25
    s += a
    s.masked_fill_(m, -INF)
    return s


FORMS: dict[str, Attention] = {
    "llama": llama,
    "t5": t5,
    "bloom": bloom,
    "falcon": falcon,
    "gpt2": gpt2,
    "fairseq": fairseq,
    "shared": shared,
    "shared by einsum": shared_by_einsum,
    "grouped": grouped,
    "grouped by einsum": grouped_by_einsum,
    "learned": learned,
    "scratch memory": scratch,
    "gptj": gptj,
    "gptneo": gptneo,
    "nanogpt": nanogpt,
    "timm": timm,
    "whisper": whisper,
    "espnet": espnet,
    "two masks filled": of_scores(lambda s, m, a: (s / 4).masked_fill(causal(), low(s)).masked_fill(m, low(s))),
    "shown and filled": of_scores(lambda s, m, a: torch.where(~m, s, -INF).masked_fill(causal(), -INF) * 0.25),
    "filled first": of_scores(lambda s, m, a: torch.where(m, -INF, s)),
    "added, then filled": of_scores(lambda s, m, a: ((s + a) / 4).masked_fill(m, -INF)),
    "filled, then added": of_scores(lambda s, m, a: s.mul(0.25).masked_fill(causal(), -INF) + additive(m, s.dtype)),
    "subtracted": of_scores(lambda s, m, a: s - a),
    "float32 inside": of_scores(lambda s, m, a: s.float().mul(0.5).masked_fill(m, -INF)),
    "in place": of_scores(in_place),
    "by hand": lambda q, k, v, m, a: by_hand((q @ k.mT).masked_fill(m, low(q))) @ v,
    "by amax": lambda q, k, v, m, a: by_amax((q @ k.mT).float() * 0.25).to(v.dtype) @ v,
}

MIXED = {"gpt2", "gptneo", "fairseq", "in place", "added, then filled", "filled, then added"}
"""Forms that both fill and add. One mask for both would let gradients through where a fill does not: in rows without a
key that is seen."""


def expected(form: str, training: bool) -> int:
    """The calls of the operator and of its gradient."""
    return 0 if training and form in MIXED else 1 + training


def fused() -> int:
    graphs = [g.aten.module.graph for g in session().compilations[-1].graphs]
    return sum("scaled_dot_product" in str(n.target) for graph in graphs for n in graph.nodes)


def given(dtype: torch.dtype = F32) -> list[Tensor]:
    x = torch.randn(3, B, L, H * D)
    mask = torch.zeros(B, 1, 1, L, dtype=torch.bool)
    mask[1, ..., L // 2 :] = True
    return [*x.to(dtype), mask, torch.randn(B * H, 1, L).to(dtype)]


def computed(program: Callable[..., Tensor], inputs: list[Tensor], training: bool) -> list[Tensor]:
    """The result, and the gradients by queries, keys and values."""
    leaves = [x.detach().requires_grad_(training) for x in inputs[:3]]
    found = program(*leaves, *inputs[3:])
    if not training:
        return [found]
    weights = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).to(found.dtype).view(found.shape)
    return [found.detach(), *torch.autograd.grad((found * weights).sum(), leaves)]


def heads(attend: Attention) -> Callable[..., Tensor]:
    """Attention of heads, with a product before it, so that its gradients may lie as the operator's do."""

    def program(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
        square = torch.eye(H * D, dtype=q.dtype)
        q, k, v = (F.linear(x, square).view(B, L, H, D).transpose(1, 2) for x in (q, k, v))
        return attend(q, k, v, m, alibi)

    return program


def check(attend: Attention, inputs: list[Tensor], training: bool) -> None:
    program = heads(attend)
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    exact, eager = computed(program, wide, training), computed(program, inputs, training)
    found = computed(armature.compile(program, fullgraph=True), inputs, training)
    for got, want, true in zip(found, eager, exact, strict=True):
        assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
        assert torch.equal(got.isnan(), want.isnan())
        largest = true.nan_to_num().abs().max()
        limit = 2 * (want - true).nan_to_num().abs().max() + 8 * torch.finfo(want.dtype).eps * largest
        assert (got - true).nan_to_num().abs().max() <= limit


@pytest.fixture(autouse=True)
def in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KERNELS, "cpu", ALIKE)


@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("dtype", [F32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, dtype: torch.dtype, training: bool) -> None:
    check(FORMS[form], given(dtype), training)
    assert fused() == expected(form, training)


@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("dtype", [F32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "form",
    [
        "llama",
        "gptj",
        "espnet",
        "gpt2",
        "two masks filled",
        "shown and filled",
        "added, then filled",
        "filled, then added",
    ],
)
def test_queries_that_see_nothing(form: str, dtype: torch.dtype, training: bool) -> None:
    inputs = given(dtype)
    inputs[3][1] = True
    check(FORMS[form], inputs, training)
    assert fused() == expected(form, training)


def read_before(s: Tensor, m: Tensor, a: Tensor) -> Tensor:
    before = s.sum()
    s += a
    return s * (before > 0)


def in_no_grad(s: Tensor, m: Tensor, a: Tensor) -> Tensor:
    with torch.no_grad():
        s += a
    return s


def without_maximum(s: Tensor) -> Tensor:
    return s.exp() / s.exp().sum(-1, keepdim=True)


def of_others(s: Tensor, dim: int = -1) -> Tensor:
    e = torch.exp(s - (s * 2).amax(-1, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def cleared(s: Tensor, m: Tensor, a: Tensor) -> Tensor:
    return s.masked_fill(m, -1e9).softmax(-1).masked_fill(causal(), 0.0)


OTHERS: dict[str, Attention] = {
    "other weights cleared": lambda q, k, v, m, a: cleared(q @ k.mT, m, a) @ v,
    "fills of two numbers": of_scores(lambda s, m, a: s.masked_fill(causal(), -1e9).masked_fill(m, -INF)),
    "a fill that may count": of_scores(lambda s, m, a: (s + a).masked_fill(m, -1e9)),
    "a fill made small": of_scores(lambda s, m, a: s.masked_fill(m, -1e9) * 1e-3),
    "an addend turned round": of_scores(lambda s, m, a: (s + additive(m, s.dtype)) * -1.0),
    "a fill made large": of_scores(lambda s, m, a: s.masked_fill(m, -1e30) * -1.0),
    "read before a write": of_scores(read_before),
    "a write without gradient": of_scores(in_no_grad),
    "in double precision": of_scores(lambda s, m, a: s.double()),
    "a mask in double precision": of_scores(lambda s, m, a: s + a.double()),
    "without maximum": lambda q, k, v, m, a: without_maximum((q @ k.mT) / 8) @ v,
    "another maximum": lambda q, k, v, m, a: of_others((q @ k.mT) / 8) @ v,
    "another sum": lambda q, k, v, m, a: of_others((q @ k.mT) / 8, 2) @ v,
    "scores read twice": lambda q, k, v, m, a: ((s := q @ k.mT + a.view(B, H, 1, L)).softmax(-1) @ v) + s.mean(),
    "powers read twice": lambda q, k, v, m, a: (
        ((e := (q @ k.mT / 8 - 1).exp()) / e.sum(-1, keepdim=True)) @ v + e.mean()
    ),
}


@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("form", OTHERS)
def test_what_stays_as_it_is(form: str, training: bool) -> None:
    with armature.config.patch(own_products=False):
        check(OTHERS[form], given(), training)
    assert fused() == 0


@pytest.mark.parametrize("equation", ["bhid,bjd->bhij", "bhid,hjd->bhij"])
def test_einsums_with_shared_heads_outside_of_attention_stay(equation: str) -> None:
    """As a product of matrices, they would copy one operand for each head."""

    def program(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
        return torch.einsum(equation, q, k[:, 0] if "bjd" in equation else k[0]).softmax(-1)

    check(program, given(), training=False)
    [graph] = session().compilations[-1].graphs
    sizes = [n.meta["val"].numel() for n in graph.aten.module.graph.nodes if "bmm" in str(n.target)]
    assert sizes == [B * H * L * L]
    copies = [n for n in graph.aten.module.graph.nodes if n.op == "call_function" and "expand" in str(n.target)]
    assert all(n.meta["val"].numel() <= n.args[0].meta["val"].numel() for n in copies)


@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
def test_bfloat16_stays_loops(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    check(llama, given(torch.bfloat16), training)
    assert fused() == 0


@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
def test_weights_that_would_be_nan_are_set_to_zero(training: bool) -> None:
    """In training they have gradients that are NaN in rows without a key that is seen."""

    def attend(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
        return (q @ k.mT / 4).masked_fill(m, -INF).softmax(-1).masked_fill(m, 0.0) @ v

    inputs = given()
    inputs[3][1] = True
    check(attend, inputs, training)
    assert fused() == (not training)


Mask = Callable[[Tensor, torch.dtype], Tensor]
MASKS: dict[str, Mask] = {
    "none": lambda m, dtype: torch.zeros(1),
    "switches": lambda m, dtype: torch.where(m, torch.finfo(F32).min, torch.tensor(0.0)),
    "16 bits": additive,
}


def under_autocast(mask: Mask, dtype: torch.dtype) -> Callable[..., Tensor]:
    def program(x: Tensor, weights: Tensor, turn: Tensor, m: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype):
            q, k, v = (F.linear(x, w).view(B, L, H, D).transpose(1, 2) for w in weights)
            q, k = q * turn, k * turn  # rotary embeddings in float32
            scores = torch.matmul(q, k.transpose(2, 3)) * D**-0.5 + mask(m, dtype)
            return torch.matmul(F.softmax(scores, dim=-1, dtype=F32).to(q.dtype), v).transpose(1, 2).flatten(2)

    return program


@pytest.mark.parametrize("blind", [False, True], ids=["", "queries that see nothing"])
@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_autocast(mask: str, dtype: torch.dtype, training: bool, blind: bool) -> None:
    """Hugging Face's: queries and keys are cast for their product, weights for theirs."""
    program = under_autocast(MASKS[mask], dtype)
    m = given()[3]
    m[1] |= blind
    leaves = [x.requires_grad_(training) for x in (torch.randn(B, L, H * D), torch.randn(3, H * D, H * D) / 8)]

    def found(run: Callable[..., Tensor]) -> list[Tensor]:
        result = run(*leaves, torch.randn(L, D, generator=torch.Generator().manual_seed(0)), m)
        if not training:
            return [result]
        slope = torch.linspace(-1, 1, result.numel()).view(result.shape).to(result.dtype)
        return [result.detach(), *torch.autograd.grad((result * slope).sum(), leaves)]

    for got, want in zip(found(armature.compile(program, fullgraph=True)), found(program), strict=True):
        assert got.dtype is want.dtype
        assert (got - want).abs().max() <= 16 * torch.finfo(dtype).eps * want.abs().max()
    assert fused() == 1 + training


def test_a_mask_in_float32_whose_numbers_count_stays() -> None:
    program = under_autocast(lambda m, dtype: torch.linspace(-9, 9, L), torch.bfloat16)
    x, weights, turn = torch.randn(B, L, H * D), torch.randn(3, H * D, H * D) / 8, torch.randn(L, D)
    armature.compile(program, fullgraph=True)(x, weights, turn, given()[3])
    assert fused() == 0


def test_dropout_keeps_its_numbers() -> None:
    def program(q: Tensor, k: Tensor, v: Tensor, m: Tensor, alibi: Tensor) -> Tensor:
        scores = (q @ k.mT).masked_fill(causal(), -INF).masked_fill(m, -INF)
        return F.dropout(scores.softmax(-1), 0.3) @ v

    inputs = given()
    torch.manual_seed(3)
    expected = computed(heads(program), inputs, training=True)
    torch.manual_seed(3)
    found = computed(armature.compile(heads(program), fullgraph=True), inputs, training=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert fused() == 0
