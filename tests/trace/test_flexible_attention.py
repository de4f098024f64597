"""`flex_attention` is a node with graphs of the functions of scores and of the mask; block masks are traced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import armature
from tests.support.resuming import in_one_graph
from tests.support.tensor_programs import same
from tests.support.tracing import break_of, trace

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
LENGTH, HEADS = 16, 4
BIAS = torch.linspace(-1, 1, HEADS)
TABLE = torch.linspace(-2, 2, LENGTH * LENGTH).reshape(LENGTH, LENGTH)
DOCUMENTS = torch.tensor([0] * 5 + [1] * 6 + [2] * 5)
WEIGHT = torch.nn.Parameter(torch.linspace(0, 1, HEADS * 2 * LENGTH).reshape(HEADS, 2 * LENGTH))
SCALE = 20.0


def causal(b, h, i, j):
    return i >= j


def near(b, h, i, j):
    return (i - j).abs() < 4


def of_document(b, h, i, j):
    return DOCUMENTS[i] == DOCUMENTS[j]


BLOCKS = create_block_mask(causal, 2, HEADS, LENGTH, LENGTH, device="cpu")


def plain(q, k, v):
    return flex_attention(q, k, v, scale=0.3)


def relative(q, k, v):
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j))


def tables(q, k, v):
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * BIAS[h] + TABLE[i, j] + TABLE[0, 1]) + 1


def computed(q, k, v):
    slopes = torch.exp2(-torch.arange(1, q.shape[1] + 1) * 8.0 / q.shape[1])
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: SCALE * torch.tanh((s + slopes[h] * j) / SCALE))


def masked(q, k, v):
    return flex_attention(q, k, v, block_mask=BLOCKS)


def masked_inside(q, k, v):
    both = flex.and_masks(causal, near)
    blocks = create_block_mask(both, 2, None, q.shape[2], k.shape[2], device=q.device, BLOCK_SIZE=4)
    return flex_attention(q, k, v, block_mask=blocks, score_mod=lambda s, b, h, i, j: s + i)


def documents(q, k, v):
    either = flex.or_masks(of_document, near)
    return flex_attention(q, k, v, block_mask=create_block_mask(either, None, None, LENGTH, LENGTH, device="cpu"))


def grouped(q, k, v):
    return flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True, return_lse=True)


def partial(q, k, v):
    def scaled(weight, s, b, h, i, j):
        return torch.where(i >= j, s * weight, -float("inf"))

    return flex_attention(q.transpose(1, 2).contiguous().transpose(1, 2), k, v, functools.partial(scaled, 2.0))


def learned(q, k, v):
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + WEIGHT[h, i - j + LENGTH])


def autocast(q, k, v):
    with torch.autocast("cpu", torch.bfloat16):
        return flex_attention(q, k, v, return_lse=True)


PROGRAMS = [plain, relative, tables, computed, masked, masked_inside, documents, grouped, partial, learned, autocast]
# Symbolic sizes take several times as long: with them, one back end in the quick tests, the other one in the long ones.
WAYS = [
    ("eager", None),
    ("auto", None),
    ("auto", True),
    pytest.param("eager", True, marks=pytest.mark.slow),
]


@pytest.fixture(autouse=True)
def _eager_mode_as_at_first() -> None:
    torch.compiler.reset()


def inputs(seed: int = 0, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(2, HEADS, LENGTH, 8, dtype=dtype) for _ in range(3)]


@functools.cache  # in eager mode torch compiles it
def in_eager_mode(fn: Callable[..., Any], seed: int) -> Any:
    with torch.no_grad():
        return fn(*inputs(seed))


@pytest.mark.parametrize(("backend", "dynamic"), WAYS)
@pytest.mark.parametrize("fn", PROGRAMS)
def test_one_graph(fn: Callable[..., Any], backend: str, dynamic: bool | None) -> None:
    run = in_one_graph(fn, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for seed in (0, 1):
            same(run(*inputs(seed)), in_eager_mode(fn, seed), "result")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("fn", [tables, grouped])
def test_dtypes(fn: Callable[..., Any], dtype: torch.dtype) -> None:
    run = in_one_graph(fn, backend="eager")
    with torch.no_grad():
        same(run(*inputs(0, dtype)), fn(*inputs(0, dtype)), "result")


@pytest.mark.parametrize("backend", ["eager", "auto"])
def test_gradients_of_what_a_function_uses(backend: str) -> None:
    run, found = in_one_graph(learned, backend=backend), []
    for call in (run, learned):
        WEIGHT.grad = None
        result = call(*inputs())
        (result * torch.arange(8)).sum().backward()
        found.append((result, WEIGHT.grad))
    same(found[0], found[1], "result and gradient")


def test_node_and_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = trace(tables, *inputs())
    assert torch.ops.higher_order.flex_attention in traced.targets()
    assert traced.holds(tables, *inputs(1)) and not traced.holds(tables, *inputs(1, torch.float64))
    run = in_one_graph(tables, backend="eager")
    same(run(*inputs()), tables(*inputs()), "result")
    monkeypatch.setitem(globals(), "BIAS", BIAS * 2)
    same(run(*inputs()), tables(*inputs()), "result")
    run = in_one_graph(computed, backend="eager")
    same(run(*inputs()), computed(*inputs()), "result")
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    torch.compiler.reset()  # eager mode compiles it as well, and in torch 2.15 not for a float that has changed
    same(run(*inputs()), computed(*inputs()), "result")


def test_in_training_on_the_processor_eager_mode_refuses() -> None:
    q, k, v = (x.requires_grad_() for x in inputs())
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        armature.compile(plain, backend="eager")(q, k, v)


SEEN: list[int] = []


def effects(q, k, v):
    def seen(s, b, h, i, j):
        SEEN.append(1)
        return s * 2

    return flex_attention(q, k, v, score_mod=seen)


def learned_mask(q, k, v):
    blocks = create_block_mask(lambda b, h, i, j: WEIGHT[h, i] >= 0, 2, HEADS, LENGTH, LENGTH, device="cpu")
    return flex_attention(q, k, v, block_mask=blocks, score_mod=lambda s, b, h, i, j: s + WEIGHT[h, i])


def test_functions_that_are_no_graphs() -> None:
    assert break_of(effects, *inputs()) == "flex-attention-function"
    assert break_of(learned_mask, *inputs()) in ("flex-attention-gradient", "autograd-function")


def learned_score_and_mask(q, k, v):
    def score(s, b, h, i, j):
        return s + WEIGHT[h, i]

    blocks = create_block_mask(
        lambda b, h, i, j: WEIGHT[h, i] > WEIGHT[h, j] - 9, 2, HEADS, LENGTH, LENGTH, device="cpu"
    )
    return flex_attention(q, k, v, block_mask=blocks, score_mod=score)


def test_what_both_functions_learn_is_not_dropped_in_silence() -> None:
    """The operator by itself gives a result without that gradient; torch's function around it raises an error."""
    errors = []
    for run in (learned_score_and_mask, armature.compile(learned_score_and_mask, backend="eager")):
        with pytest.raises(RuntimeError, match="require grad are not supported") as error:
            run(*inputs())
        errors.append(type(error.value))
    assert errors[0] is errors[1]


def test_a_break_inside_of_vmap_leaves_its_levels() -> None:
    def branch(q, k, v):
        def mask(b, h, i, j):
            return i >= j if q.sum() > 0 else i > j

        return create_block_mask(mask, 1, 1, LENGTH, LENGTH, device="cpu").to_dense()

    assert break_of(branch, *inputs()) == "data-dependent-branch"
    assert torch._C._functorch.maybe_current_level() is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has gradients of inputs on GPUs")
@pytest.mark.parametrize("backend", ["eager", "auto"])
@pytest.mark.parametrize("fn", [plain, relative, masked_inside, grouped])
def test_training_on_a_gpu(fn: Callable[..., Any], backend: str) -> None:
    run, found = in_one_graph(fn, backend=backend), []
    for call in (run, fn):
        given = [x.cuda().requires_grad_() for x in inputs()]
        result = call(*given)
        sum(part.sum() for part in (result if isinstance(result, tuple) else (result,))).backward()
        found.append((result, [x.grad for x in given]))
    same(found[0], found[1], "result and gradients")
