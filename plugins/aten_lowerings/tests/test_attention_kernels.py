"""Which attention becomes one operator on a GPU, on tensors without memory; and that results and gradients are right with
what a GPU's kernels are given, computed by those of a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

import armature
from armature.config import current
from armature.pipeline.session import session
from armature.pipeline.stages import new_context
from armature.plugins import manager
from armature_aten_lowerings import attention
from armature_aten_lowerings.attention import use_attention
from armature_aten_lowerings.attention_kernels import KERNELS, ON_CPU, ON_GPU

B, H, L, D = 2, 4, 96, 32
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
INF = math.inf
Program = Callable[..., Tensor]
OPERATOR = F.scaled_dot_product_attention


def plain(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    return (q @ k.transpose(-2, -1) * 0.25).softmax(-1) @ v


def nanogpt(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    """nanoGPT and minGPT: the causal mask is a buffer."""
    scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(D))
    return F.softmax(scores.masked_fill(m == 0, -INF), dim=-1) @ v


def eager_attention_forward(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    """Hugging Face's, with the mask made from one of truth values."""
    mask = torch.where(m, torch.zeros((), dtype=q.dtype), torch.finfo(q.dtype).min)
    weights = torch.matmul(q, k.transpose(2, 3)) * D**-0.5
    weights = weights + mask[:, :, :, :L]
    weights = F.dropout(F.softmax(weights, dim=-1, dtype=F32).to(q.dtype), p=0.0, training=False)
    return torch.matmul(weights, v)


def added(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
    """With a mask that is given: numbers, among them minus infinity."""
    return (q @ k.transpose(-2, -1) * 0.25 + m).softmax(-1) @ v


def placed(program: Program, given: list[Tensor]) -> fx.GraphModule:
    """The program's graph for tensors of a GPU, after the pass."""
    module = fx.symbolic_trace(program)
    with FakeTensorMode():
        Recording(module).run(*(torch.empty(x.shape, dtype=x.dtype, device="cuda") for x in given))
    found = use_attention(module, new_context(current(), manager().tables(), 0))
    assert isinstance(found, fx.GraphModule)
    found.graph.lint()
    return found


class Recording(fx.Interpreter):
    """Notes each result as the tracer does."""

    def run_node(self, n: fx.Node) -> Any:
        n.meta["example_value"] = result = super().run_node(n)
        return result


def operators(module: fx.GraphModule) -> list[fx.Node]:
    return module.graph.find_nodes(op="call_function", target=OPERATOR)


def given(dtype: torch.dtype = BF16, length: int = L, width: int = D, heads: int = H) -> list[Tensor]:
    x = torch.randn(3, B, heads, length, width, dtype=dtype)
    return [*x, torch.rand(1, 1, length, length) > 0.5]


@pytest.fixture
def torch_has_a_kernel(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor | None, ...]]:
    asked: list[tuple[Tensor | None, ...]] = []
    monkeypatch.setattr(attention, "runs_fused", lambda *fakes: asked.append(fakes) or True)
    return asked


@pytest.mark.parametrize("program", [plain, nanogpt, added])
@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
def test_a_gpus_attention(program: Program, dtype: torch.dtype, torch_has_a_kernel: list[tuple[Tensor, ...]]) -> None:
    inputs = given(dtype)
    module = placed(program, [*inputs[:3], inputs[3].to(dtype if program is added else torch.bool)])
    assert len(operators(module)) == 1 and "softmax" not in module.code
    (query, keys, value, mask), *others = torch_has_a_kernel
    assert not others and query.shape == keys.shape == value.shape == (B, H, L, D) and query.device.type == "cuda"
    assert mask is None or (mask.dtype in (torch.bool, dtype) and mask.device.type == "cuda")


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_a_mask_of_finite_numbers_needs_no_correction(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except in float16, where scores are lost beside the least number."""
    monkeypatch.setitem(KERNELS, "cpu", attrs.evolve(ON_GPU, chosen=False))
    armature.compile(eager_attention_forward, fullgraph=True)(*given(dtype))
    [graph] = [g.aten.module.graph for g in session().compilations[-1].graphs]
    names = " ".join(str(node.target) for node in graph.nodes)
    assert "scaled_dot_product" in names and ("amax" in names) == (dtype is F16)


def test_attention_for_which_torch_has_no_kernel_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not operators(placed(plain, given()))  # there is no GPU here
    monkeypatch.setattr(attention, "runs_fused", lambda *fakes: False)
    assert not operators(placed(plain, given()))


STAYS: dict[str, dict[str, Any]] = {
    "few scores": {"length": 16, "heads": 1},
    "a width that no kernel takes": {"width": 20},
    "a wide head": {"width": 264},
    "a wide head in float32": {"width": 136, "dtype": F32},
    "double precision": {"dtype": torch.float64},
}


@pytest.mark.parametrize("case", STAYS)
def test_what_stays_loops(case: str, torch_has_a_kernel: object) -> None:
    assert not operators(placed(plain, given(**STAYS[case])))


def test_few_queries_of_many_keys_stay(torch_has_a_kernel: object) -> None:
    q, k, v, m = given(length=4096)
    assert not operators(placed(plain, [q[..., :4, :], k, v, m]))


def test_gradients_that_are_to_be_summed_in_order_stay() -> None:
    case = (D, BF16, (B, H, L, L))
    assert ON_GPU.pay(*case, training=True)
    torch.use_deterministic_algorithms(True)
    try:
        assert ON_GPU.pay(*case, training=False) and not ON_GPU.pay(*case, training=True)
    finally:
        torch.use_deterministic_algorithms(False)


def test_einsums_that_stay_are_as_they_were(torch_has_a_kernel: object) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        return torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1), v)

    def scores(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        return torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)

    assert len(operators(placed(attend, given()))) == 1
    module = placed(scores, given())
    assert "einsum" in module.code and "matmul" not in module.code


SEEN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "filled": lambda s, m: s.masked_fill(m, -INF),
    "filled with a number": lambda s, m: s.masked_fill(m, torch.finfo(s.dtype).min),
    "added": lambda s, m: s + torch.zeros(m.shape, dtype=s.dtype).masked_fill(m, -INF),
    "added numbers": lambda s, m: s + torch.zeros(m.shape, dtype=s.dtype).masked_fill(m, torch.finfo(s.dtype).min),
    "both": lambda s, m: s.masked_fill(m, -INF) + torch.zeros(m.shape, dtype=s.dtype).masked_fill(m, -INF),
}


@pytest.mark.parametrize("blind", [False, True], ids=["", "a query sees nothing"])
@pytest.mark.parametrize("training", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=str)
@pytest.mark.parametrize("seen", SEEN)
def test_masks_as_a_gpu_gets_them(
    seen: str, dtype: torch.dtype, training: bool, blind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KERNELS, "cpu", attrs.evolve(ON_GPU, chosen=False, forward=frozenset()))

    def program(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        square = torch.eye(D, dtype=q.dtype)
        q, k, v = (F.linear(x, square) for x in (q, k, v))
        return SEEN[seen](q @ k.mT * 0.25, m).softmax(-1) @ v

    q, k, v, m = given(F32)
    m[..., 3, :] |= blind

    def computed(run: Program, of: torch.dtype) -> list[Tensor]:
        leaves = [x.to(dtype).to(of).requires_grad_(training) for x in (q, k, v)]
        result = run(*leaves, m)
        if not training:
            return [result]
        slope = torch.linspace(-1, 1, result.numel()).view(result.shape).to(of)
        return [result.detach(), *torch.autograd.grad((result * slope).sum(), leaves)]

    eager, exact = computed(program, dtype), computed(program, torch.float64)
    found = computed(armature.compile(program, fullgraph=True), dtype)
    for got, want, true in zip(found, eager, exact, strict=True):
        assert torch.equal(got.isnan(), want.isnan())
        limit = 2 * (want - true).nan_to_num().abs().max() + 8 * torch.finfo(dtype).eps * true.nan_to_num().abs().max()
        assert (got - true).nan_to_num().abs().max() <= limit
    [graph, *_] = [g.aten.module.graph for g in session().compilations[-1].graphs]
    fused = any("scaled_dot_product" in str(node.target) for node in graph.nodes)
    assert fused == (not training or seen != "both")


def test_the_cpus_thresholds() -> None:
    for rows, dtype, pays in ((500, F32, False), (800, F32, True), (800, BF16, False)):
        assert ON_CPU.pay(16, dtype, (1, 1, rows, rows), training=False) == pays


def test_in_float32_kernels_pay_without_gradients_and_without_tf32() -> None:
    sizes = (2, 4, 512, 512)
    assert ON_GPU.pay(64, F32, sizes, training=False) and not ON_GPU.pay(64, F32, sizes, training=True)
    assert ON_GPU.pay(64, BF16, sizes, training=True) and ON_CPU.pay(64, F32, sizes, training=True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert not ON_GPU.pay(64, F32, sizes, training=False)
        assert ON_GPU.pay(64, BF16, sizes, training=False) and ON_CPU.pay(64, F32, sizes, training=False)
    finally:
        torch.set_float32_matmul_precision(before)
