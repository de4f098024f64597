"""On a real GPU: dropout in kernels draws what eager's own draws, and leaves the generator as it does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import armature
from armature.pipeline.session import session
from armature_gpu_triton.random_numbers import CudaRandomNumbers

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("fresh")]
SHAPES: dict[str, Callable[[], Tensor]] = {
    "rows": lambda: torch.randn(512, 1024, device="cuda"),
    "several steps": lambda: torch.randn(3000, 2048, device="cuda"),
    "half": lambda: torch.randn(3000, 2048, device="cuda", dtype=torch.bfloat16),
    "float16": lambda: torch.randn(64, 100, device="cuda", dtype=torch.float16),
    "four at once": lambda: torch.randn(1501, 1012, device="cuda", dtype=torch.bfloat16),
    "two at once": lambda: torch.randn(1501, 1002, device="cuda"),
    "one at once": lambda: torch.randn(1501, 1001, device="cuda"),
    "few": lambda: torch.randn(3, device="cuda"),
    "transposed": lambda: torch.randn(40, 80, device="cuda").t(),
    "channels last": lambda: torch.randn(4, 8, 14, 14, device="cuda").to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_eagers_numbering_is_known(dtype: torch.dtype) -> None:
    before = torch.cuda.get_rng_state()
    assert CudaRandomNumbers().numbering(torch.device("cuda"), dtype) is not None
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_are_eagers(shape: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        first = F.dropout(x, 0.3)
        return first, F.dropout(first + 1, 0.1)

    x = SHAPES[shape]()
    compiled = armature.compile(program, fullgraph=True)
    for _ in range(3):
        results = []
        for fn in (program, compiled):
            torch.manual_seed(7)
            torch.rand(5, device="cuda")
            results.append((*fn(x), torch.cuda.get_rng_state()))
        torch.testing.assert_close(results[1], results[0])  # a product and a sum may be one operation
        assert all(torch.equal(mine == 0, theirs == 0) for mine, theirs in zip(*results, strict=True))
        assert [t.stride() for t in results[1]] == [t.stride() for t in results[0]]
    assert "helpers.uniform" in "\n".join(source.text for source in session().kernel_sources())


class Block(nn.Module):
    """Attention draws by a call of its own, in between."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(64, 192), nn.Linear(64, 64), nn.LayerNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.qkv(F.dropout(x, 0.1)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
        return self.norm(x + F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), 0.3))


def test_gradients_of_a_block_with_dropout_are_eagers() -> None:
    model = Block().cuda().bfloat16()
    compiled = armature.compile(model, fullgraph=True)
    results = []
    for fn in (model, compiled):
        torch.manual_seed(3)
        x = torch.linspace(-1, 1, 4 * 32 * 64, device="cuda").reshape(4, 32, 64).bfloat16().requires_grad_()
        fn(x).float().pow(2).sum().backward()
        results.append((x.grad, model.out.weight.grad, torch.cuda.get_rng_state()))
        model.zero_grad()
    torch.testing.assert_close(results[1], results[0], rtol=2e-2, atol=2e-2)


def test_a_recording_of_the_program_draws_new_numbers_in_each_replay() -> None:
    compiled = armature.compile(lambda x: F.dropout(x, 0.5), fullgraph=True)
    x = torch.ones(1024, device="cuda")
    compiled(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = compiled(x)
    seen = set()
    for _ in range(4):
        graph.replay()
        assert 300 < (drawn != 0).sum() < 724
        seen.add(tuple(drawn.tolist()))
    assert len(seen) == 4
