"""Flexible attention: through Triton's interpreter against torch's dense operator, ahead of time to cubins, on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.attention.flex_attention as torchs
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import armature
from armature.backend_api import KernelSource
from armature_gpu_triton import flexible, toolchain
from armature_gpu_triton.attention_plan import AttentionInputs, Mask, Plan, Planning, Tiles, Unfit, blocks_for, ordered
from armature_gpu_triton.attention_printer import FORWARD, OF_KEYS
from armature_gpu_triton.spec import KernelSpec

BATCHES, HEADS, KEY_HEADS, ROWS, KEYS, WIDE, LONG = 2, 2, 1, 70, 50, 24, 16
torch.manual_seed(0)
SLOPES = torch.randn(HEADS)
DOCUMENTS = torch.randint(0, 3, (BATCHES, ROWS))
TABLE = torch.randn(ROWS, KEYS)


def causal(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return m >= n


def of_documents(b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return (DOCUMENTS[b, m] == DOCUMENTS[b, n]) & (m >= n)


def capped(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return torch.tanh(score / 5) * 5 + SLOPES[h] * (n - m) / 10


def by_table(score: Tensor, b: Tensor, h: Tensor, m: Tensor, n: Tensor) -> Tensor:
    return torch.where(h < 1, score + TABLE[m, n], score * 2)


CAUSAL = create_block_mask(causal, None, None, ROWS, KEYS, device="cpu", BLOCK_SIZE=32)
BY_DOCUMENT = create_block_mask(of_documents, BATCHES, None, ROWS, KEYS, device="cpu", BLOCK_SIZE=32)


def with_log_sum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out, total = flex_attention(q, k, v, score_mod=capped, return_lse=True, enable_gqa=True)
    return out * torch.sigmoid(total).unsqueeze(-1)


PROGRAMS: dict[str, Callable[..., Tensor]] = {
    "plain": lambda q, k, v: flex_attention(q, k, v, enable_gqa=True) + 1,
    "another scale": lambda q, k, v: flex_attention(q, k, v, scale=-0.3, enable_gqa=True) + 1,
    "causal": lambda q, k, v: flex_attention(q, k, v, block_mask=CAUSAL, enable_gqa=True) + 1,
    "documents": lambda q, k, v: flex_attention(q, k, v, block_mask=BY_DOCUMENT, enable_gqa=True) + 1,
    "scores": lambda q, k, v: flex_attention(q, k, v, score_mod=capped, enable_gqa=True) + 1,
    "both": lambda q, k, v: flex_attention(q, k, v, score_mod=by_table, block_mask=BY_DOCUMENT, enable_gqa=True) + 1,
    "log-sum-exp": with_log_sum,
}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for each time that the kernels run. Eager mode computes gradients on a CPU too."""
    seen: list[str] = []

    def noting(word: str, run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: seen.append(word) or run(*args)

    monkeypatch.setattr(flexible, "forward", noting("forward", flexible.forward))
    monkeypatch.setattr(flexible, "backward", noting("backward", flexible.backward))
    monkeypatch.setattr(torchs, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(torchs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    return seen


def tensors(key_batches: int = BATCHES, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Query, key and value."""
    shapes = ((BATCHES, HEADS, ROWS, WIDE), (key_batches, KEY_HEADS, KEYS, WIDE), (key_batches, KEY_HEADS, KEYS, LONG))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def copies(of: Sequence[Tensor]) -> list[Tensor]:
    return [one.detach().clone().requires_grad_() for one in of]


def check(program: Callable[..., Tensor], given: Sequence[Tensor], again: Sequence[Tensor]) -> None:
    """Results and gradients are eager mode's, with its strides."""
    wanted, found = program(*given), armature.compile(program)(*again)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert found.stride() == wanted.stride()
    gradient = torch.randn_like(wanted)
    wanted.backward(gradient)
    found.backward(gradient)
    for one, other in zip(given, again, strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-3, atol=1e-4)
        assert other.grad is not None and one.grad is not None and other.grad.stride() == one.grad.stride()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("interpreted")
def test_results_are_those_of_the_dense_operator(name: str, launched: list[str]) -> None:
    given = tensors()
    check(PROGRAMS[name], given, copies(given))
    assert launched == ["forward", "backward"]


@pytest.mark.usefixtures("interpreted")
def test_without_gradients(launched: list[str]) -> None:
    given = tensors()
    with torch.no_grad():
        wanted, found = PROGRAMS["both"](*given), armature.compile(PROGRAMS["both"])(*given)
    torch.testing.assert_close(found, wanted)
    assert launched == ["forward"]


@pytest.mark.usefixtures("interpreted")
def test_all_batches_may_read_the_same_keys(launched: list[str]) -> None:
    given = tensors(key_batches=1)
    check(PROGRAMS["documents"], given, copies(given))
    assert launched == ["forward", "backward"]


@pytest.mark.usefixtures("interpreted")
def test_heads_may_lie_within_rows(launched: list[str]) -> None:
    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(*(one.transpose(1, 2) for one in (q, k, v)), block_mask=CAUSAL, enable_gqa=True) + 1

    given = [one.detach().transpose(1, 2).contiguous().requires_grad_() for one in tensors()]
    check(program, given, copies(given))
    assert launched == ["forward", "backward"]


@pytest.mark.usefixtures("interpreted")
def test_a_plan_for_each_length(launched: list[str]) -> None:
    program = armature.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=capped) * 2, dynamic=True)
    for length in (40, 48, 33):
        q, k, v = (torch.randn(1, HEADS, length, 16) for _ in range(3))
        wanted = flex_attention(q, k, v, score_mod=capped) * 2
        torch.testing.assert_close(program(q, k, v), wanted, rtol=1e-4, atol=1e-5)
    assert len(launched) == 3


@pytest.mark.usefixtures("interpreted")
def test_what_is_left_to_torch(launched: list[str]) -> None:
    bias = torch.randn(HEADS, requires_grad=True)

    def learned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, m, n: s + bias[h], enable_gqa=True) + 1

    given = tensors()
    torch.testing.assert_close(armature.compile(learned)(*given), learned(*given))
    double = tensors(dtype=torch.float64)
    torch.testing.assert_close(armature.compile(PROGRAMS["causal"])(*double), PROGRAMS["causal"](*double))
    assert not launched
    with torch.no_grad():  # then there are no such gradients
        torch.testing.assert_close(armature.compile(learned)(*given), learned(*given))
    assert launched == ["forward"]


@pytest.mark.usefixtures("interpreted")
def test_an_index_out_of_range_is_an_error(launched: list[str]) -> None:
    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, m, n: s + SLOPES[h + n], enable_gqa=True) + 1

    with torch.no_grad(), pytest.raises(IndexError):
        armature.compile(program)(*tensors())
    assert launched == ["forward"]


@pytest.mark.parametrize(
    "strides",
    [(2400, 600, 24, 1), (2400, 24, 96, 1), (1, 2, 8, 800), (0, 0, 24, 1), (96, 24, 192, 1), (7, 7, 7, 7)],
)
def test_results_have_the_order_of_the_querys_strides(strides: tuple[int, ...]) -> None:
    shape = (2, 4, 100, 24)
    query = torch.empty(100000).as_strided(shape, strides)
    key = torch.randn(2, 4, 10, 24)
    wanted = torch.ops.higher_order.flex_attention(
        query, key, key, lambda s, b, h, m, n: s, (100, 10, *[None] * 8, 128, 128, lambda b, h, m, n: m >= 0), 1.0, {}
    )
    assert ordered(shape, strides) == wanted[0].stride()


def meta(rows: int, wide: int, dtype: torch.dtype = torch.bfloat16, sparse: int = 128) -> AttentionInputs:
    """Arguments that are never computed."""
    one = torch.empty(1, 2, rows, wide, dtype=dtype)
    count = torch.empty(1, 1, -(-rows // sparse), dtype=torch.int32)
    places = torch.empty(*count.shape, count.shape[2], dtype=torch.int32)
    return AttentionInputs(one, one, one, Mask((count, places) * 2, (count, places) * 2, sparse, sparse), ())


def test_blocks_divide_those_of_the_mask() -> None:
    assert blocks_for(FORWARD, meta(1024, 64)).m == 128
    assert blocks_for(FORWARD, meta(1024, 64, sparse=96)).m == 32
    assert blocks_for(FORWARD, meta(3, 64)).m == 16
    with pytest.raises(Unfit):
        blocks_for(FORWARD, meta(1024, 64, sparse=72))


def test_a_block_of_the_mask_may_reach_past_the_end() -> None:
    given = meta(192, 64)
    assert not given.key.shape[2] % blocks_for(FORWARD, given).n
    assert Tiles.of(FORWARD, blocks_for(FORWARD, given), given).n_masked
    assert Tiles.of(OF_KEYS, blocks_for(OF_KEYS, given), given).m_masked


def planned(given: AttentionInputs) -> tuple[KernelSource, Sequence[KernelSpec], Plan]:
    """The kernels for functions that are traced here, not built."""
    kept: list[Any] = []

    def build(source: KernelSource, specs: Sequence[KernelSpec]) -> Mapping[KernelSpec, Callable[..., None]]:
        kept.extend((source, specs))
        return dict.fromkeys(specs, lambda *args: None)

    armature.reset()
    calls: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torchs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        patch.setattr(flexible, "compile_call", lambda call, *rest: calls.append(call))
        with torch.no_grad():
            armature.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=capped, block_mask=WHOLE) + 1)(
                *(torch.randn(1, HEADS, 64, 16) for _ in range(3))
            )
    (call,) = calls
    functions = flexible.Functions(call.args[3], call.args[4][-1], 1, 0.125, call.expression)
    given = AttentionInputs(given.query, given.key, given.value, given.mask, (SLOPES,))
    plan = Planning.of(functions, given, True).run(build, True)
    return kept[0], kept[1], plan


WHOLE = create_block_mask(causal, None, None, 64, 64, device="cpu", BLOCK_SIZE=32)


@pytest.mark.usefixtures("interpreted")
def test_only_blocks_that_need_it_are_masked() -> None:
    source, _, plan = planned(meta(1024, 64))
    forward = source.text.partition("def attention_forward")[2].partition("@triton.jit")[0]
    assert forward.count("kept = ") == 1 and forward.count("for step in") == 2
    assert "m_in" not in forward and "n_in" not in forward
    assert plan.numbers[FORWARD][-10:] == (1024, 1024, 2, 2, 1, 8, 8, 2, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("rows, wide, dtype", [(1024, 64, torch.bfloat16), (1000, 80, torch.float16)])
@pytest.mark.usefixtures("interpreted")
def test_cubins(capability: int, rows: int, wide: int, dtype: torch.dtype, tmp_path: Any) -> None:
    source, specs, _ = planned(meta(rows, wide, dtype))
    path = tmp_path / "attention.py"
    path.write_text(source.text)
    functions = toolchain.functions_of(source.text, path)
    for spec in specs:
        built = toolchain.compile_function(functions[spec.name], spec, capability)
        # code for sm_80 also runs on GPUs of that kind with less shared memory
        assert built.cubin.startswith(b"\x7fELF") and built.shared < {80: 99, 90: 227}[capability] << 10


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["plain", "causal", "capped"])
@pytest.mark.parametrize("wide", [64, 80, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_on_a_gpu(name: str, wide: int, dtype: torch.dtype, fresh: None) -> None:
    mask = create_block_mask(causal, None, None, 384, 384, device="cuda")
    slopes = SLOPES.cuda()
    options: dict[str, Any] = {
        "plain": {},
        "causal": {"block_mask": mask},
        "capped": {"block_mask": mask, "score_mod": lambda s, b, h, m, n: torch.tanh(s / 5) * 5 + slopes[h] * (n - m)},
    }[name]

    def program(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, enable_gqa=True, **options) + 1

    heads = (HEADS, KEY_HEADS, KEY_HEADS)
    given = [torch.randn(2, n, 384, wide, device="cuda", dtype=dtype, requires_grad=True) for n in heads]
    exact = [one.detach().float().requires_grad_() for one in given]
    found, wanted = armature.compile(program)(*given), program(*exact)
    limit = 2e-2 if dtype != torch.float32 else 1e-4
    torch.testing.assert_close(found.float(), wanted, rtol=limit, atol=limit)
    gradient = torch.randn_like(found)
    found.backward(gradient)
    wanted.backward(gradient.float())
    for one, other in zip(given, exact, strict=True):
        assert one.grad is not None and other.grad is not None
        assert (one.grad.float() - other.grad).abs().max() < limit * other.grad.abs().max()


@pytest.mark.gpu
def test_scores_are_not_stored(fresh: None) -> None:
    length = 8192
    mask = create_block_mask(causal, None, None, length, length, device="cuda")
    q, k, v = (torch.randn(1, 8, length, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    program = armature.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=mask) * 2)
    program(q, k, v).sum().backward()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    program(q, k, v).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < 12 * q.numel() * q.element_size()
