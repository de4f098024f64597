"""torch.onnx writes the program of a compiled module, with either exporter: it computes what the module does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import armature

onnx = pytest.importorskip("onnx", reason="evaluates what was exported")
pytest.importorskip("onnxscript", reason="one of the exporters needs it")
reference = pytest.importorskip("onnx.reference")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.convolution = nn.Conv1d(1, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(self.linear(x).relu().unsqueeze(1)).sum(1)


def with_compiled_forward(net: nn.Module) -> nn.Module:
    found = copy.deepcopy(net)
    found.forward = armature.compile(found.forward)
    return found


def with_compiled_part(net: Net) -> nn.Module:
    found = copy.deepcopy(net)
    found.linear = armature.compile(found.linear)
    return found


WAYS: dict[str, Callable[[Any], Any]] = {
    "module": armature.compile,
    "forward": with_compiled_forward,
    "part": with_compiled_part,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("warm", [False, True], ids=["first", "compiled before"])
@pytest.mark.parametrize("dynamo", [False, True], ids=["jit.trace", "torch.export"])
@pytest.mark.parametrize("way", WAYS)
def test_a_compiled_module_is_exported_as_its_program(way: str, dynamo: bool, warm: bool, tmp_path: Path) -> None:
    net, x = Net().eval(), torch.randn(2, 4)
    compiled = WAYS[way](net)
    if warm:
        compiled(x)
    torch.onnx.export(compiled, (x,), tmp_path / "net.onnx", dynamo=dynamo, verbose=False)
    model = onnx.load(tmp_path / "net.onnx")
    assert {"Conv", "Relu"} <= {node.op_type for node in model.graph.node}
    (found,) = reference.ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), net(x).detach(), rtol=1e-5, atol=1e-6)
