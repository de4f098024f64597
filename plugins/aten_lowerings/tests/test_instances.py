"""Instance norms as arithmetic, which leaves images in the layout that they have."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import armature
from armature.pipeline.session import session

aten = torch.ops.aten
NORM = aten._native_batch_norm_legit.no_stats


def called() -> list[object]:
    [graph] = session().compilations[-1].graphs
    return [node.target for node in graph.aten.module.graph.nodes if node.op == "call_function"]


def checked(fn: Callable[..., Tensor], *args: Tensor, atol: float = 1e-5) -> list[object]:
    """What the compiled function calls, which gives eager's values in eager's layout."""
    armature.reset()
    with torch.no_grad():
        given, expected = armature.compile(fn, fullgraph=True)(*args), fn(*args)
    torch.testing.assert_close(given, expected, rtol=1e-5, atol=atol)
    assert given.stride() == expected.stride()
    return called()


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 4, 6, 7), (1, 4, 6, 7), (2, 1, 6, 1), (2, 4, 3, 4, 5)], ids=str)
def test_planes_are_normalised_alone(shape: tuple[int, ...], affine: bool) -> None:
    model = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[len(shape) - 3](shape[1], affine=affine)
    for number, parameter in enumerate(model.parameters()):
        nn.init.normal_(parameter, mean=number)
    assert NORM not in checked(model, torch.randn(shape))
    assert NORM not in checked(lambda x: F.pad(model(x).relu(), (1, 1)), torch.randn(shape))


def test_other_batch_norms_stay() -> None:
    x, weight = torch.randn(2, 4, 6, 7), torch.randn(8)
    assert NORM in checked(lambda x: NORM(x, weight[:4], weight[4:], True, 0.1, 1e-5)[0], x)
    assert NORM in checked(lambda x: NORM(x.view(1, 8, 6, 7), weight, None, True, 0.1, 1e-5)[0].view(x.shape), x)
    assert NORM in checked(lambda x: NORM(x.view(1, 8, 6, 7), None, None, True, 0.1, 1e-5)[0].view(4, 2, 6, 7), x)
    assert NORM in checked(lambda x: NORM(x.view(1, 8, 42), None, None, True, 0.1, 1e-5)[0].view(x.shape), x)
    statistics = x[:1].contiguous()
    assert NORM in checked(lambda x: NORM(x.view(1, 4, 6, 7), None, None, True, 0.1, 1e-5)[1] * 2, statistics)
    # rounded once, from values between -4 and 4
    assert NORM in checked(lambda x: F.instance_norm(x.bfloat16()).float(), x, atol=2**-6)


class Styled(nn.Module):
    """Convolutions of reflected images, with instance norms between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(64, 64, 3) for _ in range(2))
        self.norm = nn.InstanceNorm2d(64, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(F.pad(x, (1, 1, 1, 1), mode="reflect"))).relu()
        return self.second(F.pad(x, (1, 1, 1, 1), mode="reflect"))


def test_convolutions_around_them_keep_channels_last() -> None:
    targets = checked(Styled(), torch.randn(2, 64, 16, 16))
    assert targets.count(aten.clone.default) == 2  # what comes in and what goes out
    [graph] = session().compilations[-1].graphs
    padded = graph.aten.module.graph.find_nodes(op="call_function", target=aten.reflection_pad2d.default)[1]
    assert padded.meta["val"].is_contiguous(memory_format=torch.channels_last)
    # one kernel for the statistics, one that normalises where the border reads, and the two copies
    assert len(graph.plan.kernels) == 4
