"""Windows over images in the interpreter: averages, repeated elements, repeated borders, and their gradients."""

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


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients(name: str) -> None:
    ours = torch.randn(2, 3, 6, 8, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    for run, x in ((armature.compile(PROGRAMS[name], fullgraph=True), ours), (PROGRAMS[name], theirs)):
        run(x).square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert all(graph.program.kernel_count for graph in session().compilations[-1].graphs)
