"""Every model of the benchmarks' zoo in one graph, with the loss of eager mode."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch

import armature
from benchmarks.models import ZOO


@pytest.fixture
def no_warnings_written() -> Iterator[None]:
    """As in the benchmark: a warning that a model writes ends its graph."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.usefixtures("no_warnings_written")
@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", ZOO)
def test_in_one_graph(name: str, mode: str) -> None:
    torch.manual_seed(0)
    case = ZOO[name]()
    case.model.train(mode == "train")
    losses = []
    armature.reset()
    for model in (case.model, armature.compile(case.model, backend="eager", fullgraph=True)):
        torch.manual_seed(1)
        losses.append(case.loss(model(*case.args, **case.kwargs)))
    torch.testing.assert_close(losses[1], losses[0])
