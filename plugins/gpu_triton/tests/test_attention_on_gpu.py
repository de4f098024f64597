"""On a real GPU: attention written out is one of torch's fused kernels, with eager's results and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import armature
from armature.pipeline.session import session

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("fresh")]
B, H, L, D = 2, 4, 157, 64
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
INF = math.inf
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def numbers(m: Tensor, dtype: torch.dtype, hidden: float | None = None) -> Tensor:
    """A mask to be added, of one that is true where keys are hidden."""
    return torch.zeros(m.shape, dtype=dtype, device=m.device).masked_fill(
        m, hidden or max(torch.finfo(dtype).min, torch.finfo(F32).min)
    )


def hugging_face(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    """`eager_attention_forward` with `repeat_kv`: two heads of queries share one of keys."""
    k, v = (x[:, ::2, None].expand(B, H // 2, 2, L, D).reshape(B, H, L, D) for x in (k, v))
    weights = torch.matmul(q, k.transpose(2, 3)) * D**-0.5
    weights = weights + numbers(m, q.dtype)[:, :, :, :L]
    weights = F.softmax(weights, dim=-1, dtype=F32).to(q.dtype)
    weights = F.dropout(weights, p=0.0, training=True)
    return torch.matmul(weights, v).transpose(1, 2).contiguous().transpose(1, 2)


def nanogpt(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(D))
    return F.softmax(scores.masked_fill(torch.ones(L, L, device=q.device).tril() == 0, -INF), dim=-1) @ v


def timm(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    return (q * D**-0.5 @ k.transpose(-2, -1)).softmax(dim=-1) @ v


def x_transformers(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    scores = torch.einsum("b h i d, b h j d -> b h i j", q, k) * D**-0.5
    scores = scores.masked_fill(m, -torch.finfo(scores.dtype).max)
    return torch.einsum("b h i j, b h j d -> b h i d", scores.softmax(dim=-1, dtype=F32).to(q.dtype), v)


def t5(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    scores = torch.matmul(q, k.transpose(3, 2))
    distance = torch.arange(L, device=q.device)
    scores += (distance[None] - distance[:, None]).abs()[None, None].to(q.dtype) * -0.125 + numbers(m, q.dtype)
    return torch.matmul(F.softmax(scores.float(), dim=-1).type_as(scores), v)


def bart(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    """fairseq's and older ones of Hugging Face: batches and heads are one axis."""
    q, k, v = (x.reshape(B * H, L, D) for x in (q * D**-0.5, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)).view(B, H, L, L) + numbers(m, q.dtype)
    return torch.bmm(F.softmax(scores.view(B * H, L, L), dim=-1), v).view(B, H, L, D)


def infinite(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    return (q @ k.mT * 0.125 + numbers(m, q.dtype, -INF)).softmax(-1) @ v


def filled(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    return torch.where(m, -INF, q @ k.mT * 0.125).softmax(-1) @ v


def gptj(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    """Queries and keys are cast for the product."""
    scores = torch.matmul(q.to(F32), k.to(F32).transpose(-1, -2)) / D**0.5 + numbers(m, q.dtype)
    return torch.matmul(F.softmax(scores, dim=-1).to(v.dtype), v)


def espnet(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    """Weights are set to zero where scores have been hidden."""
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D)
    return torch.softmax(scores.masked_fill(m, torch.finfo(q.dtype).min), dim=-1).masked_fill(m, 0.0) @ v


def grouped(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    """In five axes: two groups of queries share the keys of one head."""
    scores = torch.einsum("bhgid,bhjd->bhgij", q.unflatten(1, (H // 2, 2)) * D**-0.5, k[:, ::2])
    weights = scores.masked_fill(m.unsqueeze(1), -INF).softmax(-1)
    return torch.einsum("bhgij,bhjd->bhgid", weights, v[:, ::2]).flatten(1, 2)


FORMS: dict[str, Attend] = {
    one.__name__: one
    for one in (hugging_face, nanogpt, timm, x_transformers, t5, bart, infinite, filled, gptj, espnet, grouped)
}
SOME = ("hugging_face", "x_transformers", "t5")


def masks(kind: str) -> Tensor:
    """True where a query does not see a key."""
    if kind == "causal":
        return torch.ones(1, 1, L, L, dtype=torch.bool, device="cuda").triu(1)
    mask = torch.zeros(B, 1, 1, L, dtype=torch.bool, device="cuda")
    mask[1, ..., L // 3 :] = True
    mask[1] |= kind == "blind"
    return mask


def computed(attend: Attend, x: Tensor, weights: Tensor, m: Tensor, training: bool) -> list[Tensor]:
    x, weights = (one.detach().requires_grad_(training) for one in (x, weights))
    result = attend(x, weights, m)
    if not training:
        return [result]
    slope = torch.linspace(-1, 1, result.numel(), device="cuda").view(result.shape).to(result.dtype)
    return [result.detach(), *torch.autograd.grad((result * slope).sum(), (x, weights))]


def fused() -> list[str]:
    graphs = [g.aten.module.graph for g in session().compilations[-1].graphs]
    return [str(n.target) for graph in graphs for n in graph.nodes if "scaled_dot_product" in str(n.target)]


def check(form: str, m: Tensor, dtype: torch.dtype, training: bool) -> None:
    """Differs from what a wider dtype gives by at most twice what eager mode differs by."""

    def program(x: Tensor, weights: Tensor, m: Tensor) -> Tensor:
        q, k, v = (F.linear(x, w).view(B, L, H, D).transpose(1, 2) for w in weights)
        return FORMS[form](q, k, v, m).transpose(1, 2).reshape(B, L, -1)

    x = torch.randn(B, L, H * D, device="cuda").to(dtype)
    weights = (torch.randn(3, H * D, H * D, device="cuda") / math.sqrt(H * D)).to(dtype)
    wide, slack = (torch.float64, 32) if dtype is F32 else (F32, 8)
    exact = computed(program, x.to(wide), weights.to(wide), m, training)
    eager = computed(program, x, weights, m, training)
    found = computed(armature.compile(program, fullgraph=True), x, weights, m, training)
    for got, want, true in zip(found, eager, exact, strict=True):
        assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
        assert torch.equal(got.isnan(), want.isnan())
        true, gap = true.nan_to_num(), (want - true).nan_to_num().abs().max()
        limit = 2 * gap + slack * torch.finfo(dtype).eps * true.abs().max()
        assert (got - true).nan_to_num().abs().max() <= limit


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize(
    ("form", "dtype"),
    [*((form, BF16) for form in FORMS), *((form, dtype) for form in SOME for dtype in (F16, F32))],
    ids=str,
)
def test_forms(form: str, dtype: torch.dtype, training: bool) -> None:
    check(form, masks("padding"), dtype, training)
    calls = 0 if dtype is F32 and training else 1 + training  # loops are as fast there
    assert len(fused()) == calls and not any("math" in name for name in fused())


def test_in_float32_it_stays_loops_where_products_may_be_of_tf32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    q, k, v = torch.randn(3, 2, 4, 256, 64, device="cuda")
    program = lambda q, k, v: (q @ k.mT * 0.125).softmax(-1) @ v  # noqa: E731
    torch.testing.assert_close(
        armature.compile(program, fullgraph=True)(q, k, v), program(q, k, v), rtol=0.02, atol=0.02
    )
    assert not fused()


@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("kind", ["padding", "blind"])
def test_autocast(kind: str, training: bool) -> None:
    """Weights and queries in float32, the mask too."""

    def program(x: Tensor, weights: Tensor, m: Tensor) -> Tensor:
        with torch.autocast("cuda", BF16):
            q, k, v = (F.linear(x, w).view(B, L, H, D).transpose(1, 2) for w in weights)
            q, k = q * x.new_ones(D), k * x.new_ones(D)  # rotary embeddings in float32
            mask = torch.where(m, torch.finfo(F32).min, torch.zeros((), device=m.device))
            scores = torch.matmul(q, k.transpose(2, 3)) * D**-0.5 + mask
            return torch.matmul(F.softmax(scores, dim=-1, dtype=F32).to(q.dtype), v).transpose(1, 2).flatten(2)

    x = torch.randn(B, L, H * D, device="cuda")
    weights = torch.randn(3, H * D, H * D, device="cuda") / math.sqrt(H * D)
    eager = computed(program, x, weights, masks(kind), training)
    found = computed(armature.compile(program, fullgraph=True), x, weights, masks(kind), training)
    for got, want in zip(found, eager, strict=True):
        assert got.dtype is want.dtype
        assert (got - want).abs().max() <= 16 * torch.finfo(BF16).eps * want.abs().max()
    assert len(fused()) == 1 + training


@pytest.mark.parametrize(("dtype", "training"), [(BF16, True), (F16, False)], ids=["train", "infer"])
@pytest.mark.parametrize("kind", ["causal", "blind"])
@pytest.mark.parametrize("form", [*SOME, "infinite", "filled", "espnet"])
def test_masks(form: str, kind: str, dtype: torch.dtype, training: bool) -> None:
    """Also where queries of one batch see no key, which kernels do not agree on."""
    check(form, masks(kind), dtype, training)
    assert len(fused()) == 1 + training


def test_a_causal_mask_is_a_flag() -> None:
    check("nanogpt", masks("causal"), BF16, training=False)
    graph = session().compilations[-1].graphs[-1].aten.module.graph
    [node] = [n for n in graph.nodes if "scaled_dot_product" in str(n.target)]
    given = [*node.args, *node.kwargs.values()]
    assert True in [one for one in given if isinstance(one, bool)]


@pytest.mark.parametrize("shape", [(1, 1, 24, 64), (2, 4, 128, 20), (2, 4, 128, 264)], ids=str)
def test_what_stays_loops(shape: tuple[int, ...]) -> None:
    q, k, v = torch.randn(3, *shape, device="cuda", dtype=BF16)
    program = lambda q, k, v: (q @ k.mT * 0.1).softmax(-1) @ v  # noqa: E731
    torch.testing.assert_close(
        armature.compile(program, fullgraph=True)(q, k, v), program(q, k, v), rtol=0.05, atol=0.02
    )
    assert not fused()


def test_a_user_who_asks_for_no_fused_kernel_gets_none() -> None:
    q, k, v = torch.randn(3, 2, 4, 128, 64, device="cuda", dtype=BF16)
    compiled = armature.compile(lambda q, k, v: (q @ k.mT * 0.1).softmax(-1) @ v, fullgraph=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        compiled(q, k, v)
    assert not fused()


def test_gradients_that_are_to_be_the_same_each_time_are_those_of_loops() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        check("timm", masks("padding"), BF16, training=True)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not fused()


def test_in_float32_a_kernel_is_as_exact_as_products_without_tf32() -> None:
    """Its products are sums of three of TF32, whatever the setting for products of matrices."""
    q, k, v = torch.randn(3, 2, 4, 256, 64, device="cuda")
    program = lambda q, k, v: (q @ k.mT * 0.125).softmax(-1) @ v  # noqa: E731
    found, eager, exact = (
        run(*(x.to(of) for x in (q, k, v)))
        for run, of in ((armature.compile(program, fullgraph=True), F32), (program, F32), (program, torch.float64))
    )
    assert len(fused()) == 1
    assert (found - exact).abs().max() <= 4 * (eager - exact).abs().max() + 1e-6
