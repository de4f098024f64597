"""Windows over images in the interpreter: averages, maxima, repeated elements, repeated borders, and their
gradients; places among boundaries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import armature
from armature.pipeline.session import session

pytestmark = pytest.mark.usefixtures("interpreted")

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "overlapping averages": lambda x: functional.avg_pool2d(x, 3, 1, 1),
    "averages without the padding": lambda x: functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "averages partly outside": lambda x: functional.avg_pool2d(x, 4, ceil_mode=True),
    "averages of volumes": lambda x: functional.avg_pool3d(x[None], 2),
    "averages that divide": lambda x: functional.adaptive_avg_pool2d(x, (3, 2)),
    "repeated elements": lambda x: functional.interpolate(x, scale_factor=2),
    "repeated borders": lambda x: functional.pad(x, (1, 1, 1, 1), mode="replicate"),
    "maxima": lambda x: functional.max_pool2d(x.to(memory_format=torch.channels_last), 3, 2, 1),
}

VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "averages of several sizes": lambda x: functional.adaptive_avg_pool2d(x, (4, 5)),
    "elements repeated by a fraction": lambda x: functional.interpolate(x, scale_factor=1.5),
    "the exact nearest": lambda x: functional.interpolate(x, size=(4, 11), mode="nearest-exact"),
    "maxima of large windows": lambda x: functional.max_pool2d(x, 5, 1, 2),
    "maxima of volumes": lambda x: functional.max_pool3d(x[None], 3, 2, 1),
    "maxima of several sizes": lambda x: functional.adaptive_max_pool2d(x, (4, 5)),
    "places among few": lambda x: torch.bucketize(x, torch.linspace(-1, 1, 5)),
    "places among many": lambda x: torch.bucketize(x, torch.linspace(-1, 1, 100)),
    "places in rows": lambda x: torch.searchsorted(x.flatten(2).sort(-1).values, x.flatten(2) * 0.7, right=True),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    x = torch.randn(2, 3, 6, 8)
    torch.testing.assert_close(armature.compile(VALUES[name], fullgraph=True)(x), VALUES[name](x))
    assert all(graph.program.kernel_count for graph in session().compilations[-1].graphs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients(name: str) -> None:
    ours = torch.randn(2, 3, 6, 8, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    for run, x in ((armature.compile(PROGRAMS[name], fullgraph=True), ours), (PROGRAMS[name], theirs)):
        run(x).square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert all(graph.program.kernel_count for graph in session().compilations[-1].graphs)
