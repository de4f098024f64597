"""Pooled embeddings of bags of one length: on a GPU their rows are gathered in loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import armature
from armature.pipeline.session import session
from armature.testing.lowering_kit import EVERYTHING
from armature_aten_lowerings import bags
from armature_aten_lowerings.bags import POOLED, gather_bags

aten = torch.ops.aten
ROWS, WIDTH = 50, 8


def graph_of(fn: Callable[..., object], device: str, *args: Tensor) -> fx.GraphModule:
    """The graph of operators on tensors of a device, which need not be there."""
    with FakeTensorMode():
        return make_fx(fn)(*(torch.empty(arg.shape, dtype=arg.dtype, device=device) for arg in args))


def pools(graph: fx.Graph) -> int:
    return sum(len(graph.find_nodes(op="call_function", target=target)) for target in POOLED)


def on_cpu(module: fx.GraphModule) -> fx.GraphModule:
    """The same graph for tensors of the CPU."""
    for node in module.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
    module.recompile()
    return module


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("count", [torch.int32, torch.int64])
def test_the_rows_and_what_backward_reads_are_the_same(mode: str, count: torch.dtype) -> None:
    number = {"sum": 0, "mean": 1}[mode]

    def pooled(table: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        offsets = torch.arange(0, places.numel(), places.shape[1], device=places.device, dtype=places.dtype)
        results = aten._embedding_bag(table, places.view(-1), offsets.detach(), False, number)
        gradient = aten._embedding_bag_backward(
            results[0].cos(), places.view(-1), offsets, *results[1:], ROWS, False, number, False, None
        )
        return results[0], gradient

    table, places = torch.randn(ROWS, WIDTH), torch.randint(0, ROWS, (6, 4), dtype=count)
    module = graph_of(pooled, "cuda", table, places)
    assert pools(module.graph) == 1
    gather_bags(module, EVERYTHING)
    module.graph.lint()
    assert pools(module.graph) == 0 and module.graph.find_nodes(op="call_function", target=aten.embedding.default)
    torch.testing.assert_close(on_cpu(module)(table, places), pooled(table, places))


LEFT_ALONE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the largest": lambda table, places: F.embedding_bag(places, table, mode="max"),
    "weights": lambda table, places: F.embedding_bag(
        places, table, mode="sum", per_sample_weights=torch.ones_like(places, dtype=table.dtype)
    ),
    "padding": lambda table, places: F.embedding_bag(places, table, mode="sum", padding_idx=2),
    "other bags": lambda table, places: F.embedding_bag(
        places.view(-1), table, torch.zeros_like(places.select(1, 0)), mode="sum"
    ),
    "a part": lambda table, places: F.embedding_bag(
        places.view(-1), table, torch.arange(0, 20, 4, device=table.device), mode="sum"
    ),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_others_stay_calls(name: str) -> None:
    module = graph_of(LEFT_ALONE[name], "cuda", torch.randn(ROWS, WIDTH), torch.zeros(6, 4, dtype=torch.int64))
    gather_bags(module, EVERYTHING)
    assert pools(module.graph) == 1


@pytest.mark.parametrize(("count", "calls"), [(64, 0), (4096, 1)])
def test_the_library_for_cpus_keeps_long_calls(count: int, calls: int) -> None:
    places = torch.zeros(count, 5, dtype=torch.int64)
    module = graph_of(lambda t, p: F.embedding_bag(p, t, mode="sum"), "cpu", torch.randn(ROWS, WIDTH), places)
    gather_bags(module, EVERYTHING)
    assert pools(module.graph) == calls


class Tables(nn.Module):
    """Several pooled features side by side, as recommenders have them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode=mode) for mode in ("sum", "mean", "sum"))

    def forward(self, places: Tensor) -> Tensor:
        return torch.stack([table(places[:, k]) for k, table in enumerate(self.tables)], 1).relu()


def test_the_number_of_bags_may_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bags, "is_faster", lambda *_: True)  # as on a GPU, whatever the size
    model = Tables().requires_grad_(False)
    compiled = armature.compile(model, fullgraph=True)
    for count in (3, 5, 7, 0):
        places = torch.randint(0, ROWS, (count, 3, 4))
        torch.testing.assert_close(compiled(places), model(places))
    varying = session().compilations[1].graphs[0].aten.module.graph
    assert pools(varying) == 0 and varying.find_nodes(op="call_function", target=aten.sym_size.int)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tables_side_by_side(device: str, learns: bool, dtype: torch.dtype) -> None:
    armature.reset()
    torch.manual_seed(0)
    model = Tables().to(device, dtype).requires_grad_(learns)
    places = torch.randint(0, ROWS, (64, 3, 4), device=device)
    with torch.set_grad_enabled(learns):
        ours, theirs = armature.compile(model, fullgraph=True)(places), model(places)
    torch.testing.assert_close(ours, theirs)
    (compilation,) = session().compilations
    assert pools(compilation.graphs[0].aten.module.graph) == 0
    if learns:
        weights = list(model.parameters())
        for each in zip(*(torch.autograd.grad(out.square().sum(), weights) for out in (ours, theirs)), strict=True):
            torch.testing.assert_close(*each, atol=1e-1 if dtype == torch.bfloat16 else 1e-5, rtol=2e-2)
