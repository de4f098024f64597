"""LSTM through the fused operators, against eager: values, gradients, and what is left of torch.lstm."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature
from armature.context import CompileContext
from armature.pipeline.session import session
from armature.testing.differential import difference
from armature_aten_lowerings import rnn, rnn_cudnn
from armature_aten_lowerings.rnn import training_layer

DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=pytest.mark.gpu)]
FORMS = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "both directions": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True, "bidirectional": True},
    "no biases": {"bias": False, "num_layers": 2},
    "projected": {"proj_size": 3},
}


def results(module: Any, lstm: nn.LSTM, x: Tensor, backward: bool) -> list[Tensor]:
    x = x.clone().requires_grad_(backward)
    out, (h, c) = module(x)
    found = [out, h, c]
    if backward:
        ((out * out).sum() + h.sin().sum() + c.cos().sum()).backward()
        found += [x.grad, *(p.grad for p in lstm.parameters())]
    return found


@pytest.fixture(autouse=True)
def full_precision() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backward", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_lstm_matches_eager(form: str, backward: bool, device: str) -> None:
    lstm = nn.LSTM(5, 7, **FORMS[form]).to(device)
    twin = copy.deepcopy(lstm)
    twin.flatten_parameters()
    x = torch.randn(4, 6, 5, device=device)
    with torch.set_grad_enabled(backward):
        expected = results(lstm, lstm, x, backward)
        found = results(armature.compile(twin, fullgraph=True), twin, x, backward)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_in_evaluation_mode(device: str) -> None:
    lstm = nn.LSTM(5, 7, num_layers=2, dropout=0.5).to(device).eval()
    twin = copy.deepcopy(lstm)
    x = torch.randn(4, 6, 5, device=device)
    with torch.backends.cudnn.flags(
        enabled=False, allow_tf32=False
    ):  # eager's own kernels give no gradients outside training
        expected = results(lstm, lstm, x, True)
    found = results(armature.compile(twin, fullgraph=True), twin, x, True)
    for got, want in zip(found, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_dropout_between_layers_follows_the_seed(device: str) -> None:
    lstm = nn.LSTM(5, 32, num_layers=2, dropout=0.5).to(device)
    compiled = armature.compile(lstm, fullgraph=True)
    x = torch.randn(4, 6, 5, device=device)

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        out: Tensor = compiled(x)[0]
        return out

    first = run(0)
    assert torch.equal(first, run(0))
    assert not torch.equal(first, run(1))
    lstm.eval()
    assert not torch.allclose(first, lstm(x)[0])


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("layers", [1, 2])
def test_under_autocast_a_cpu_computes_in_its_dtype(layers: int, mode: Callable[[], Any]) -> None:
    lstm, x = nn.LSTM(8, 6, num_layers=layers, bidirectional=layers > 1), torch.randn(3, 5, 8)

    def run(lstm: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            out, (h, c) = lstm(x)
        return out, h, c

    given, twin = (
        x.clone().requires_grad_(mode is torch.enable_grad),
        x.clone().requires_grad_(mode is torch.enable_grad),
    )
    with mode():
        expected, found = run(lstm, given), armature.compile(run, fullgraph=True)(lstm, twin)
    assert found[0].dtype == torch.bfloat16
    exact = rnn.NARROW_GRADIENTS or mode is not torch.enable_grad
    assert difference(expected, found) <= (0 if exact else 2**-7)
    if mode is torch.enable_grad:
        for parts in (expected, found):
            sum(part.float().sum() for part in parts).backward()
        assert difference(given.grad, twin.grad) <= (1e-6 if exact else 2**-7)


@pytest.mark.gpu
@pytest.mark.parametrize("flat", [False, True], ids=["scattered", "flat"])
def test_weights_are_used_where_they_lie(flat: bool) -> None:
    lstm = nn.LSTM(5, 7, num_layers=2, bidirectional=True).cuda()
    if not flat:
        for p in lstm.parameters():
            p.data = p.data.clone()
    found = rnn_cudnn._flat([p.detach() for p in lstm._flat_weights], 5, 7, 2, 4, True)
    assert (found is not None) == flat
    if found is not None:
        assert found.data_ptr() == lstm.weight_ih_l0.data_ptr()


@pytest.mark.gpu
def test_retained_graphs_run_backward_twice() -> None:
    lstm = nn.LSTM(5, 7).cuda()
    out, _ = armature.compile(lstm, fullgraph=True)(torch.randn(4, 6, 5, device="cuda"))
    out.sum().backward(retain_graph=True)
    once = [p.grad.clone() for p in lstm.parameters()]
    out.sum().backward()
    for p, g in zip(lstm.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * g)


READS = {
    "last": lambda out, h: out[:, -1],
    "last, in full": lambda out, h: out[:, -1, :],
    "last, twice": lambda out, h: out[:, -1].sin() + out[:, -1, 2:3],
    "last as a slice": lambda out, h: out[:, -1:],
    "last of some rows": lambda out, h: out[1:, -1],
    "first": lambda out, h: out[:, 0],
    "both ends": lambda out, h: out[:, -1] + out[:, 0],
    "rows": lambda out, h: out[-1],
    "last and state": lambda out, h: out[:, -1] + h[0, :, :1],
    "last and all": lambda out, h: out[:, -1] + out.sum(1),
}


class Reader(nn.Module):
    def __init__(self, read: Callable[[Tensor, Tensor], Tensor], **form: Any) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 7, batch_first=True, **form)
        self.read = read

    def forward(self, x: Tensor) -> Tensor:
        out, (h, _) = self.lstm(x)
        return self.read(out, h)


READERS = [
    *((read, {"num_layers": 2, "bidirectional": True}) for read in READS),
    ("last", {"num_layers": 2}),
    ("last", {"bidirectional": True}),
    ("last", {"bidirectional": True, "num_layers": 2, "bias": False}),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backward", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize(("read", "form"), READERS)
def test_steps_that_nobody_reads(read: str, form: dict[str, Any], backward: bool, device: str) -> None:
    model = Reader(READS[read], **form).to(device)
    twin = copy.deepcopy(model)
    compiled = armature.compile(twin, fullgraph=True)
    for steps in (6, 1):
        x = torch.randn(4, steps, 5, device=device)
        with torch.set_grad_enabled(backward):
            expected, found = model(x), compiled(x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert found.stride() == expected.stride()
        if backward:
            expected.square().sum().backward()
            found.square().sum().backward()
    for got, want in zip(twin.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-5)


def test_last_step_of_a_projected_layer() -> None:
    model = Reader(READS["last"], num_layers=2, bidirectional=True, proj_size=3)
    x = torch.randn(4, 6, 5)
    with torch.no_grad():
        torch.testing.assert_close(armature.compile(model, fullgraph=True)(x), model(x), rtol=1e-4, atol=1e-5)


def test_the_way_back_ends_after_the_step_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompileContext, "recurrent", lambda ctx, device: frozenset())  # no loops instead of oneDNN's
    armature.reset()
    model = Reader(READS["last"], num_layers=2, bidirectional=True)
    armature.compile(model, fullgraph=True)(torch.randn(4, 6, 5))
    [graph] = session().compilations[-1].graphs
    layers = graph.aten.module.graph.find_nodes(op="call_function", target=training_layer())
    assert [node.meta["val"][0].shape[0] for node in layers] == [6, 6, 6, 1]


@pytest.mark.parametrize(("layers", "bidirectional", "dropout"), [(1, False, 0.0), (2, True, 0.0), (3, True, 0.5)])
def test_cudnn_calls_have_the_shapes_of_torch(layers: int, bidirectional: bool, dropout: float) -> None:
    """Without the library: on tensors that have shapes only."""
    lstm = nn.LSTM(5, 7, layers, bidirectional=bidirectional, dropout=dropout, batch_first=True)
    x = torch.randn(2, 3, 5)
    wanted = lstm(x)
    states = [torch.zeros_like(t, device="meta") for t in wanted[1]]
    params = [p.detach().to("meta") for p in lstm._flat_weights]
    options = rnn_cudnn.Options(True, layers, dropout, True, bidirectional, True)
    out, h, c = rnn_cudnn.lstm(x.to("meta"), states, params, options, gradients=False)
    assert [t.shape for t in (out, h, c)] == [t.shape for t in (wanted[0], *wanted[1])]


def test_gradients_by_a_transform_of_torch() -> None:
    lstm, x = nn.LSTM(5, 7), torch.randn(4, 6, 5)

    def gradient(x: Tensor) -> Tensor:
        slope: Tensor = torch.func.grad(lambda x: lstm(x)[0].sin().sum())(x)
        return slope

    torch.testing.assert_close(armature.compile(gradient)(x), gradient(x), rtol=1e-4, atol=1e-5)
